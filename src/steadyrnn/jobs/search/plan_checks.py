"""Whether a plan can be: one that was made in Python, or read from a folder, was not checked as a file is; free of torch."""

from collections.abc import Collection
from typing import Any

from steadyrnn.errors import ArgumentError, not_among, suggestion
from steadyrnn.models.registry import SYSTEMS
from steadyrnn.tasks.registry import TASKS

from ..seeds_file import MOST_SEEDS
from .plan import MOST_TRIALS, PRUNERS, SAMPLERS, Range, SweepPlan
from .setting_types import is_number, kinds_of, setting_types

__all__ = ["check_plan"]


def check_plan(plan: SweepPlan) -> None:
    """Refuse a plan that would try something else than it says.

    Raises:
        ArgumentError: A part of it cannot be; the message names it.

    Example:
        >>> check_plan(SweepPlan("addition", ("gru",), (0,), grid={"model.width": (4, 8)}))
    """
    names: list[tuple[str, Any, Collection[str]]] = [
        ("task", plan.task, TASKS), ("sampler", plan.sampler, SAMPLERS), ("pruner", plan.pruner, PRUNERS),
        *(("model", model, SYSTEMS) for model in plan.models),
    ]  # fmt: skip
    for name, value, known in names:
        if not isinstance(value, str) or value not in known:
            raise ArgumentError(not_among(name, str(value)[:60], known))
    if not plan.models or len({*plan.models}) < len(plan.models):
        raise ArgumentError("`models` must name at least one model, and each once.")
    _check_numbers(plan)
    both = sorted({*plan.grid} & {*plan.search})
    if both:
        raise ArgumentError(f"`{both[0]}` must be in `grid` or in `search`, but is in both.")
    if plan.sampler == "grid" and plan.search:
        raise ArgumentError("With `sampler` grid nothing is drawn: list the values of `search` under `grid`.")
    types = setting_types(plan.task)
    for key, part in (("grid", plan.grid), ("search", plan.search)):
        for name, space in part.items():
            if name not in types:
                raise ArgumentError(f"`{key}` has {name[:60]!r}, which is not a setting. {suggestion(name, types)}")
            _check_space(f"{key}[{name!r}]", space, kinds_of(types[name]))
    if not 1 <= plan.count() <= MOST_TRIALS:
        raise ArgumentError(f"A sweep has from 1 to {MOST_TRIALS:,} trials, but this one would have {plan.count():,}.")


def _check_numbers(plan: SweepPlan) -> None:
    seeds = plan.seeds
    if not all(type(seed) is int and 0 <= seed < 2**64 for seed in seeds) or not 1 <= len({*seeds}) == len(seeds) <= MOST_SEEDS:
        raise ArgumentError(
            f"`seeds` must be different whole numbers, from 0 and below 2^64, at least 1 and at most {MOST_SEEDS}."
        )
    for name, value, least, most in (("trials", plan.trials, 1, MOST_TRIALS), ("seed", plan.seed, 0, 2**32 - 1)):
        if type(value) is not int or not least <= value <= most:
            raise ArgumentError(f"`{name}` must be a whole number from {least:,} to {most:,}, but is {str(value)[:60]}.")


def _check_space(name: str, space: Any, kinds: tuple[Any, ...]) -> None:
    """Refuse a list without values, with one twice, or with what a journal cannot hold, and a range without numbers."""
    if not isinstance(space, Range):
        right = isinstance(space, tuple) and all(isinstance(value, str | bool | int | float | None) for value in space)
        if not right or not space or len({(type(value), value) for value in space}) < len(space):
            raise ArgumentError(
                f"`{name}` must be a tuple of numbers, texts, True, False or None, each once, and at least one."
            )
        return
    numbers = [space.low, space.high, *([] if space.step is None else [space.step])]
    whole = int in kinds and float not in kinds
    if not (whole or float in kinds):
        raise ArgumentError(f"`{name}` must be a tuple of choices: the setting is no number, and has no range.")
    if space.whole is not whole or not all(is_number(value) and (not whole or type(value) is int) for value in numbers):
        kind = "whole numbers, with `whole=True`" if whole else "finite numbers, without `whole`"
        raise ArgumentError(f"`{name}` must be a range of {kind}.")
    if not space.low < space.high:
        raise ArgumentError(f"`{name}` must have `low` below `high`, but they are {space.low:g} and {space.high:g}.")
    if space.log and (space.low <= 0 or space.step is not None):
        raise ArgumentError(f"`{name}` must have `low` above 0 and no `step` where `log` is true.")
    if space.step is not None and not 0 < space.step <= space.high - space.low:
        raise ArgumentError(f"`{name}` must have a `step` above 0 and at most high - low.")
