"""Networks on sequences of Zhang, Lei and Dhillon: every cell can be built, and every judge can say no."""

import copy
import os
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest
import torch

from steadyrnn.errors import SteadyError
from steadyrnn.experiments.base import Claim, Series
from steadyrnn.experiments.curves import Panel
from steadyrnn.experiments.parameter_counts import count_parameters, judge_count
from steadyrnn.experiments.published.zhang import VALUES
from steadyrnn.experiments.registry import EXPERIMENTS
from steadyrnn.experiments.zhang_pictures import draw_addition, draw_copy, draw_margins, draw_pixels
from steadyrnn.experiments.zhang_sequences import FIGURE_1
from steadyrnn.jobs.configuration import Configuration
from steadyrnn.jobs.measurements import check_probe_names
from steadyrnn.models.systems import build_model
from steadyrnn.tasks.base import Interface
from steadyrnn.train.arguments import check_settings

NAMES = ("zhang-fig1", "zhang-fig2", "zhang-table2", "zhang-fig3", "zhang-fig4")
INTERFACES = {"addition": (2, 1), "copy": (10, 9), "pixel-mnist": (1, 10), "permuted-mnist": (1, 10)}
SERIES = [
    pytest.param(series, id=f"{name}-{mode}-{series.name}")
    for name in NAMES
    for mode in ("quick", "full")
    for series in getattr(EXPERIMENTS[name], mode)
]


def all_settings(series: Series) -> list[dict[str, Any]]:
    """Return the settings of every network that a series trains or counts."""
    settings = {"task.name": "pixel-mnist", **series.arguments["settings"]}
    return [{**settings, **more} for more in series.arguments.get("candidates", [{}])]


@pytest.mark.parametrize("series", SERIES)
def test_every_network_of_a_series_can_be_built(series: Series) -> None:
    for settings in all_settings(series):
        configuration = Configuration.from_dotted(settings)
        check_settings(configuration.train)
        check_probe_names(configuration.train.probe.names)
        inputs, outputs = INTERFACES[configuration.task_name]
        with torch.device("meta"):
            model = build_model(configuration.model, Interface(inputs=inputs, outputs=outputs))
        assert next(model.parameters()).is_meta


@pytest.mark.parametrize("series", SERIES)
def test_a_search_has_at_most_four_candidates_and_comes_before_its_runs(series: Series) -> None:
    assert len(series.arguments.get("candidates", ())) in ({0} if series.seeds or "inputs" in series.arguments else {4})
    if series.after is not None:
        assert len(series.seeds) >= 3
        assert any(series.after == param.values[0].name for param in SERIES)
