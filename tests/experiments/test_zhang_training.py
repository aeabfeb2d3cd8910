"""Networks on sequences of Zhang, Lei and Dhillon: every cell can be built, and every judge can say no."""

import copy
import math
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
from steadyrnn.jobs.measurements import check_probes
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
        check_probes(configuration.train.probe)
        inputs, outputs = INTERFACES[configuration.task_name]
        with torch.device("meta"):
            model = build_model(configuration.model, Interface(inputs=inputs, outputs=outputs))
        assert next(model.parameters()).is_meta


@pytest.mark.parametrize("name", NAMES)
def test_settings_that_the_paper_lacks_are_searched_and_runs_have_seeds(name: str) -> None:
    full = EXPERIMENTS[name].full
    searches = {one.name: one for one in full if one.function.endswith(":search_settings")}
    assert searches
    assert all(len(one.arguments["candidates"]) == 4 for one in searches.values())
    runs = [one for one in full if one.function.endswith(":train_network")]
    assert all(one.after in searches and len(one.seeds) >= 3 for one in runs)


@pytest.mark.parametrize("name", NAMES)
def test_a_first_cell_trains_and_is_judged_and_drawn(name: str, tmp_path: Path) -> None:
    """Three steps of the first trained cell, small, stand for every cell: claims and pictures must understand its numbers."""
    one = EXPERIMENTS[name]
    series = next(series for series in one.full if series.function.endswith(":train_network"))
    small = {"train.steps": 3, "train.validate_every": 3, "train.probe.every": 2, "train.batch_size": 4}
    sizes = {"model.width": 16, "task.validation": 50, "train.evaluation_batch_size": 50, "train.device": "cpu"}
    settings = {**series.arguments["settings"], **small, **sizes}
    settings |= {key: 5 for key in ("task.length", "task.delay") if key in settings}
    settings |= {"task.pixels_per_step": 98} if one.data else {"task.test": 50}
    try:
        done = resolve_name(series.function)(settings, 0, tmp_path)
    except SteadyError as error:
        if one.data and "STEADYRNN_DATA" not in os.environ:
            pytest.skip(f"the data of {name} is not here: {error}")
        raise
    assert done["steps"] == 3
    counted = {cell.name: cell.run({}, tmp_path) for part in one.full if "inputs" in part.arguments for cell in part.cells()}
    cells = {cell.name: done for cell in one.work().cells if not cell.name.startswith("parameters/")} | counted
    record = one.work().finish(cells)
    assert len(record["claims"]) == len(one.claims)
    assert all(Panel.from_dict(panel).title for panel in record["curves"])


COUNTS = {
    "spectral-rnn": 5658, "ornn": 11034, "rnn": 18058, "urnn": 17418, "rc-urnn": 17418, "fc-urnn": 16598,
    "factorized-rnn": 18058, "lstm": 68106,
}  # fmt: skip


@pytest.mark.parametrize("row", COUNTS)
def test_the_parameters_of_a_row_of_table_2_are_those_of_the_rules(row: str) -> None:
    (series,) = [series for series in EXPERIMENTS["zhang-table2"].full if series.name == f"parameters/{row}"]
    found = count_parameters(**series.arguments)
    assert found["all"] == COUNTS[row]
    (claim,) = [claim for claim in EXPERIMENTS["zhang-table2"].claims if claim.name == f"{row}-parameters"]
    printed, part = claim.arguments["printed"], claim.arguments["part"]
    assert printed == VALUES[f"table2/{row}/parameters-k"].value
    cells = {f"parameters/{row}": found}
    assert judge_count(cells, f"parameters/{row}", printed, part).verdict == ("seen" if part == "all" else "different")
    wrong = {f"parameters/{row}": {**found, part: found[part] + 1100}}
    assert judge_count(wrong, f"parameters/{row}", printed, part).verdict == "not seen"


def test_a_count_that_fits_by_the_formula_is_no_misprint() -> None:
    assert judge_count({"rnn": {"all": 18058, "formula": 18058}}, "rnn", 18, "formula").verdict == "not seen"


def made(loss: float = 0.1, gradients: Any = (0.1, 0.1), margins: Any = (0.0, 0.5), reach: int = 100) -> dict[str, Any]:
    """Return the numbers of a run: test loss (one minus it is the accuracy), probes, and the step of a low validation loss."""
    probes = {
        "gradient-h0": [{"step": 10 * i, "value": {"mean": value}} for i, value in enumerate(gradients)],
        "margin": [{"step": 10 * i, "value": {"weight_hh_l0": value}} for i, value in enumerate(margins)],
    }
    curve = {"validation loss": [[50, 0.2], [reach, 0.01]], "validation accuracy": [[50, 0.3], [reach, 0.5]]}
    test = {"loss": loss, "accuracy": 1 - loss}
    return {"test": test, "probes": probes, "curve": curve, "baselines": {"loss": 0.167}, "parameters": 10}


FAILS, GONE = made(0.17, (1e-9, 1e-9), reach=500), (1e-9, 1e-9, 0.1, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0)
STEADY = made(0.05, (0.1,) * 11, (0.0, 0.009))
GOOD: dict[str, dict[str, Any]] = {
    "zhang-fig1": {
        **{f"{name}/L30/seed0": made() for name in ("rnn", "irnn", "lstm", "ornn", "spectral")},
        **{f"{name}/L100/seed0": made() for name in ("rnn", "ornn", "spectral")},
        **{f"{name}/L100/seed0": FAILS for name in ("irnn", "lstm")},
        **{f"{name}/L300/seed0": made() for name in ("ornn", "spectral")},
        **{f"{name}/L300/seed0": FAILS for name in ("rnn", "irnn", "lstm")},
    },
    "zhang-fig2": {
        f"{name}/T{lag}/seed0": {**made(loss), "baselines": {"loss": 0.17}}
        for lag in (100, 500, 1000)
        for name, loss in {
            "rnn": 0.17, "irnn": 0.18, "lstm": 0.16, "ornn": 0.15, "spectral": 0.1,
            "irnn-linear": 0.09, "ornn-linear": 0.05, "spectral-linear": 0.01,
        }.items()
    },
    "zhang-table2": {
        f"{name}/pixels-784/seed0": made(loss)
        for name, loss in {
            "spectral-rnn": 0.01, "spectral-rnn-printed": 0.02, "ornn": 0.03, "rnn": 0.06, "rc-urnn": 0.035, "fc-urnn": 0.07,
            "factorized-rnn": 0.055, "lstm": 0.03,
        }.items()
    },
    "zhang-fig3": {
        f"{name}/{group}/seed0": made(0.05 if name == "spectral" else 0.1)
        for group in ("pixels-392", "pixels-784", "permuted-784")
        for name in ("rnn", "irnn", "lstm", "ornn", "spectral")
    },
    "zhang-fig4": {
        "rnn/seed0": made(gradients=GONE), "irnn/seed0": made(margins=(1e-7, 0.4, 0.5)),
        "lstm/seed0": made(gradients=(1e-6, 1e-6, 1e-3, 1e-2, 0.1, 9.0)), "ornn/seed0": STEADY,
        **{f"spectral-r{radius}/seed0": STEADY for radius in ("0.01", "0.1", "0.5")},
    },
}  # fmt: skip
"""Numbers, made up, that show everything the paper says."""

WRONG: list[tuple[str, str, str, dict[str, Any]]] = [
    ("zhang-fig1", "short", "lstm/L30", made(0.155)),
    ("zhang-fig1", "short-gradient", "rnn/L30", FAILS),
    ("zhang-fig1", "middle-irnn", "irnn/L100", made(0.1)),
    ("zhang-fig1", "middle-lstm", "lstm/L100", made(reach=150)),
    ("zhang-fig1", "middle-lstm", "ornn/L100", made(reach=400)),
    ("zhang-fig1", "long", "lstm/L300", made(0.1)),
    ("zhang-fig1", "long", "ornn/L300", FAILS),
    ("zhang-fig1", "gradient", "spectral/L300", FAILS),
    ("zhang-fig1", "gradient", "lstm/L300", made()),
    *(("zhang-fig2", f"best-T{lag}", f"ornn/T{lag}", made(0.09)) for lag in (100, 500, 1000)),
    *(("zhang-fig2", f"best-linear-T{lag}", f"ornn-linear/T{lag}", made(0.001)) for lag in (100, 500, 1000)),
    ("zhang-fig2", "large-lag", "lstm/T1000", made(0.1)),
    ("zhang-fig2", "memoryless", "rnn/T1000", made(0.1)),
    ("zhang-fig2", "memoryless", "rnn/T1000", made(0.2)),
    *(
        ("zhang-table2", row, f"{row}/pixels-784", made(0.1))
        for row in ("spectral-rnn", "ornn", "rnn", "rc-urnn", "fc-urnn", "factorized-rnn", "lstm", "spectral-rnn-printed")
    ),
    ("zhang-table2", "urnn", "rc-urnn/pixels-784", made(0.08)),
    ("zhang-table2", "spectral-rnn-text", "spectral-rnn/pixels-784", made(0.05)),
    ("zhang-table2", "highest", "lstm/pixels-784", made(0.005)),
    *(("zhang-fig3", group, f"rnn/{group}", made(0.01)) for group in ("pixels-392", "pixels-784", "permuted-784")),
    ("zhang-fig1", "gradient", "spectral/L300", made(gradients=(math.inf, math.inf))),
    ("zhang-fig4", "lstm", "ornn", made(gradients=(math.inf,) * 11)),
    ("zhang-fig4", "irnn", "irnn", made(margins=(0.01, 0.4, 0.5))),
    ("zhang-fig4", "irnn", "irnn", made(margins=(0.0, 0.05, 0.5))),
    ("zhang-fig4", "radius", "spectral-r0.01", made(margins=(0.0, 0.0101))),
    ("zhang-fig4", "rnn", "rnn", made()),
    ("zhang-fig4", "lstm", "lstm", made(gradients=(9.0, 0.1, 0.1, 0.1, 0.1))),
    ("zhang-fig4", "steady", "ornn", made(gradients=GONE)),
    ("zhang-fig4", "steady", "lstm", STEADY),
]


@pytest.mark.parametrize(("name", "claim", "series", "numbers"), WRONG)
def test_a_wrong_number_changes_the_verdict(name: str, claim: str, series: str, numbers: dict[str, Any]) -> None:
    (one,) = [one for one in EXPERIMENTS[name].claims if one.name == claim]
    cells = copy.deepcopy(GOOD[name])
    assert decide(one, cells) == "seen"
    if "baselines" in cells[f"{series}/seed0"]:
        numbers = {**numbers, "baselines": cells[f"{series}/seed0"]["baselines"]}
    assert decide(one, {**cells, f"{series}/seed0": numbers}) == "not seen"


@pytest.mark.parametrize("name", NAMES)
def test_every_claim_is_given_a_wrong_number(name: str) -> None:
    counted = {claim.name for claim in EXPERIMENTS[name].claims if claim.name.endswith("-parameters")}
    assert {row[1] for row in WRONG if row[0] == name} | counted == {claim.name for claim in EXPERIMENTS[name].claims}


@pytest.mark.parametrize(("claim", "verdict"), [("short", "not seen"), ("middle-irnn", "seen"), ("long", "not seen")])
def test_a_run_that_diverged_beats_no_baseline(claim: str, verdict: str) -> None:
    (one,) = [one for one in FIGURE_1.claims if one.name == claim]
    diverged = {**made(), "test": None}
    cells = {**GOOD["zhang-fig1"], **{f"{name}/seed0": diverged for name in ("irnn/L30", "irnn/L100", "ornn/L300")}}
    assert decide(one, cells) == verdict


def decide(claim: Claim, cells: dict[str, Any]) -> str:
    return str(claim.decide("zhang", cells)["verdict"])


@pytest.mark.parametrize(
    ("draw", "name", "panels", "gaps"),
    [
        (draw_addition, "zhang-fig1", 6, 2),
        (draw_copy, "zhang-fig2", 3, 1),
        (draw_pixels, "zhang-fig3", 3, 0),
        (draw_margins, "zhang-fig4", 2, 2),
    ],
)
def test_a_picture_has_a_line_per_model_and_a_gap_for_0_on_a_logarithmic_axis(
    draw: Any, name: str, panels: int, gaps: int
) -> None:
    cells = copy.deepcopy(GOOD[name])
    first = next(iter(cells))
    cells[first]["probes"]["gradient-h0"][0]["value"] = {"mean": 0.0}
    cells[first]["probes"]["margin"][0]["value"] = {"weight_hh_l0": 0.0}
    cells[first]["curve"]["validation loss"][0][1] = cells[first]["curve"]["validation accuracy"][0][1] = 0.0
    drawn = [*draw({**cells, "search/rnn": {"chosen": {}}, "parameters/rnn": {"all": 1}})]
    assert len(drawn) == panels
    models = {cell.split("/")[0] for cell in cells}
    assert all({line.label for line in panel.lines} == models for panel in drawn)
    assert sum(panel.lines[0].y[0] is None for panel in drawn) == gaps
