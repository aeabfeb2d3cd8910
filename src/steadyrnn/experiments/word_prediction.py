"""Language models: recurrent parameters, perplexity on the training text, and the picture of a table of models."""

import math
from collections.abc import Mapping
from statistics import fmean
from typing import Any

from steadyrnn.jobs.configuration import Configuration
from steadyrnn.models.systems import build_model
from steadyrnn.tasks.base import Interface
from steadyrnn.train.clipping import recurrent_parameters

from .base import Judgement
from .curves import Axis, Line, Mark, Panel
from .scores import collect_scores, judge_printed, mean_score

__all__ = ["collect_perplexities", "count_recurrent", "judge_count", "judge_generalization", "judge_training"]


def count_recurrent(settings: Mapping[str, Any]) -> dict[str, int]:
    """Return how many parameters the recurrent weights of a language model have.

    Args:
        settings: Dotted settings; those of the model count.

    Example:
        >>> count_recurrent({"task.name": "ptb", "model.name": "lstm", "model.width": 4, "model.embedding": 8})
        {'recurrent': 64}
    """
    words = Interface(1, 2, vocabulary=2, reads="each", carries_state=True)  # what is counted knows no vocabulary
    model = build_model(Configuration.from_dotted(settings).model, words)
    return {"recurrent": sum(parameter.numel() for parameter in recurrent_parameters(model).values())}


def judge_count(cells: Mapping[str, Any], model: str, published: float) -> Judgement:
    """Judge a printed number of recurrent parameters: in units of 1024, what is left over cut off.

    Example:
        >>> judge_count({"count/rnn": {"recurrent": 16384}}, "rnn", 16).ours
        '16384 recurrent parameters, 16 units of 1024'
    """
    count = cells[f"count/{model}"]["recurrent"]
    text = f"{count} recurrent parameters, {count / 1024:.4g} units of 1024"
    return Judgement("seen" if count // 1024 == published else "not seen", text, count / 1024, unit="units of 1024")


def judge_training(cells: Mapping[str, Any], model: str, published: float) -> Judgement:
    """Judge a printed perplexity on the training text as :func:`~.scores.judge_printed` does: lower is not what is promised.

    Ours is that of the epoch after which the validation perplexity was lowest, while it was trained on, with dropout.

    Example:
        >>> run = {"test": {"perplexity": 9.0}, "best_step": 2, "curve": {"train loss": [[1, 3.0], [2, 2.0], [3, 1.0]]}}
        >>> judge_training({"rnn/seed0": run}, "rnn", 7.5).ours
        '7.389, 0.11 better than printed, within 5 %'
    """
    found = {name: {"test": _training_score(run)} for name, run in cells.items() if name.startswith(f"{model}/seed")}
    return judge_printed(found, model, "perplexity", published, higher=False)


def judge_generalization(cells: Mapping[str, Any], model: str, other: str) -> Judgement:
    """Judge that a series has a lower test perplexity than another, and a higher one on the training text.

    Example:
        >>> runs = {
        ...     f"{name}/seed0": {"test": {"perplexity": test}, "best_step": 1, "curve": {"train loss": [[1, loss]]}}
        ...     for name, test, loss in (("a", 100.0, 4.0), ("b", 120.0, 3.0))
        ... }
        >>> judge_generalization(runs, "a", "b").ours
        'test: a 100, b 120; training: a 54.6, b 20.1'
    """
    tested = {name: mean_score(collect_scores(cells, name, "perplexity")) for name in (model, other)}
    trained = {name: _mean_training(cells, name) for name in (model, other)}
    known = [mean for mean in (*tested.values(), *trained.values()) if mean is not None]
    seen = len(known) == 4 and known[0] < known[1] and known[2] > known[3]
    text = f"test: {_show(tested)}; training: {_show(trained)}"
    return Judgement("seen" if seen else "not seen", text, seeds=len(collect_scores(cells, model, "perplexity")))


def collect_perplexities(cells: Mapping[str, Any]) -> list[Panel]:
    """Return a panel of the test perplexity of every series, and one of the validation perplexity during training."""
    names = {name.partition("/seed")[0]: None for name in cells if "/seed" in name}
    means = {name: mean_score(collect_scores(cells, name, "perplexity")) for name in names}
    bars = Line("ours", [*range(len(means))], [*means.values()], style="bars")
    chance = fmean(run["baselines"]["perplexity"] for name, run in cells.items() if "/seed" in name)
    lines = [
        Line(name.partition("/seed")[0], [step for step, _ in points], [value for _, value in points])
        for name, run in cells.items()
        if "/seed" in name and (points := run["curve"].get("validation perplexity"))
    ]
    panels = [
        Panel("Test perplexity", Axis("model", names=[*names]), Axis("perplexity"), [bars], [Mark("each word alone", y=chance)])
    ]
    if lines:
        panels.append(Panel("During training", Axis("step"), Axis("validation perplexity", "log"), lines))
    return panels


def _training_score(run: Mapping[str, Any]) -> dict[str, float] | None:
    if run["test"] is None:
        return None
    losses = dict(run["curve"]["train loss"])
    return {"perplexity": math.exp(losses[run["best_step"]])}


def _mean_training(cells: Mapping[str, Any], model: str) -> float | None:
    scores = [_training_score(run) for name, run in cells.items() if name.startswith(f"{model}/seed")]
    return mean_score([None if score is None else score["perplexity"] for score in scores])


def _show(means: Mapping[str, float | None]) -> str:
    return ", ".join(f"{name} {'diverged' if mean is None else format(mean, '.3g')}" for name, mean in means.items())
