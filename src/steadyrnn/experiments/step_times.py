"""How much longer an optimizer step of one network takes than that of another."""

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

from steadyrnn.jobs.calibrate import seconds_per_call
from steadyrnn.jobs.configuration import Configuration
from steadyrnn.jobs.loading import build_task
from steadyrnn.models.systems import build_model
from steadyrnn.train.device import choose_device, device_context
from steadyrnn.train.randomness import seed_everything
from steadyrnn.train.step import Stepper

from .base import Judgement

__all__ = ["compare_step_times", "judge_times"]


def compare_step_times(settings: Mapping[str, Any], model: str, beside: str, pairs: int = 15) -> dict[str, float]:
    """Return the time of an optimizer step of one system over that of another: the median over pairs, measured in turn.

    The ratio is a measurement: it differs from call to call by some percent.

    Args:
        settings: Dotted settings of both, the model's name aside.
        model: The system whose time is the numerator.
        beside: The other one.
        pairs: Measurements of each, of five steps each.

    Returns:
        The ``ratio``.

    Example:
        >>> sizes = {"task.name": "recall", "task.length": 5, "model.width": 4, "train.batch_size": 2}
        >>> compare_step_times(sizes, "urnn", "rnn", pairs=1)["ratio"] > 0
        True
    """
    calls = []
    for name in (model, beside):
        configuration = Configuration.from_dotted({**settings, "model.name": name})
        calls.append(_make_step(configuration))
    device = choose_device(configuration.train.device)
    with device_context(configuration.train):
        for call in calls:
            seconds_per_call(call, 3, device)  # kernels are compiled and memory is taken
        times = [[seconds_per_call(call, 5, device) for call in calls] for _ in range(pairs)]
    return {"ratio": round(median(first / second for first, second in times), 3)}


def _make_step(configuration: Configuration) -> Callable[[], object]:
    device = choose_device(configuration.train.device)
    task = build_task(configuration).to(device)
    seed_everything(configuration.train.seed)
    model = build_model(configuration.model, task.interface).to(device)
    stepper = Stepper(model, task, configuration.train, model)
    batch = task.train_batch(0, configuration.train.batch_size)
    return lambda: stepper.step(1, batch, 1.0)


def judge_times(cells: Mapping[str, Any], names: Sequence[str], most: float) -> Judgement:
    """Judge that each of some ratios of times is at most as large as printed.

    Example:
        >>> judge_times({"time/35": {"ratio": 1.02}, "time/150": {"ratio": 1.2}}, ["time/35", "time/150"], 1.1).ours
        '1.02 times (time/35); 1.2 times (time/150)'
    """
    ratios = {name: cells[name]["ratio"] for name in names}
    text = "; ".join(f"{ratio:.3g} times ({name})" for name, ratio in ratios.items())
    return Judgement("seen" if max(ratios.values()) <= most else "not seen", text)
