"""The picture of networks that classify permuted digits; free of torch."""

from collections.abc import Mapping
from statistics import stdev
from typing import Any

from .curves import Axis, Line, Panel
from .scores import collect_scores, mean_score

__all__ = ["draw_accuracy"]

_LABELS = {
    "rnn": "RNN", "contractive": "contractive RNN", "urnn": "URNN", "urnn-restricted": "URNN of Arjovsky et al.",
    "urnn-full": "URNN of Wisdom et al.", "lstm": "LSTM",
}  # fmt: skip


def draw_accuracy(cells: Mapping[str, Any]) -> list[Panel]:
    """Return the test accuracy of each model, and the validation accuracy of each run during training."""
    models = [model for model in _LABELS if collect_scores(cells, model, "accuracy")]
    scores = [collect_scores(cells, model, "accuracy") for model in models]
    spread = [_find_spread(own) for own in scores]
    bars = Line("mean over seeds", [*range(len(models))], [mean_score(own) for own in scores], spread, "bars")
    names = Axis("model", names=[_LABELS[model] for model in models])
    lines = [
        Line(_LABELS[model], [step for step, _ in points], [accuracy for _, accuracy in points])
        for model in models
        for name, cell in cells.items()
        if name.startswith(f"{model}/seed") and (points := cell["curve"].get("validation accuracy"))
    ]
    during = [Panel("During training", Axis("step"), Axis("validation accuracy"), lines)] if lines else []
    return [Panel("Permuted digits", names, Axis("test accuracy"), [bars]), *during]


def _find_spread(scores: list[float | None]) -> float | None:
    """Return the standard deviation, None where a run diverged and 0 for one run."""
    known = [score for score in scores if score is not None]
    if len(known) < len(scores):
        return None
    return stdev(known) if len(known) > 1 else 0.0
