"""A plan that was made in Python or came with a folder is checked as one from a file is, before anything is trained."""

from typing import Any

import pytest

from steadyrnn.errors import ArgumentError
from steadyrnn.jobs.search.plan import Range
from steadyrnn.jobs.search.plan_checks import check_plan
from steadyrnn.jobs.sweep import run_sweep
from tests.jobs.search.sweeps import LR, make_plan


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"task": "additon"}, "`task` must be one of .* Did you mean `addition`"),
        ({"models": ("gur",)}, "`model` must be one of .* Did you mean `gru`"),
        ({"models": ()}, "`models` must name at least one model, and each once"),
        ({"models": ("gru", "gru")}, "`models` must name at least one model, and each once"),
        ({"seeds": ()}, "`seeds` must be different whole numbers"),
        ({"seeds": (0, 0)}, "`seeds` must be different whole numbers"),
        ({"seeds": (True,)}, "`seeds` must be different whole numbers"),
        ({"seeds": ("../x",)}, "`seeds` must be different whole numbers"),
        ({"trials": 0}, "`trials` must be a whole number"),
        ({"trials": 2.5}, "`trials` must be a whole number"),
        ({"trials": 10**200}, "`trials` must be a whole number"),
        ({"seed": -1}, "`seed` must be a whole number"),
        ({"sampler": "rnadom"}, "`sampler` must be one of tpe, random, grid"),
        ({"sampler": "grid"}, "With `sampler` grid nothing is drawn"),
        ({"pruner": "mean"}, "`pruner` must be one of none, median, halving"),
        ({"grid": {LR: (0.1,)}}, f"`{LR}` must be in `grid` or in `search`, but is in both"),
        ({"grid": {"model.wdith": (4,)}}, "`grid` has 'model.wdith', which is not a setting. Did you mean `model.width`"),
        ({"grid": {"model.width": ()}}, r"`grid\['model.width'\]` must be a tuple"),
        ({"grid": {"model.width": (4, 4)}}, "must be a tuple of numbers, .* each once"),
        ({"grid": {"model.width": ([4],)}}, "must be a tuple of numbers"),
        ({"grid": {"model.width": tuple(range(1, 9000))}}, "A sweep has from 1 to 10,000 trials"),
        ({"search": {LR: Range(1, 0.1)}}, "must have `low` below `high`"),
        ({"search": {LR: Range(0.1, float("nan"))}}, "must be a range of finite numbers"),
        ({"search": {LR: Range(0, 1, log=True)}}, "must have `low` above 0 and no `step`"),
        ({"search": {LR: Range(1, 2, log=True, step=0.5)}}, "must have `low` above 0 and no `step`"),
        ({"search": {LR: Range(0.1, 1, step=2)}}, "must have a `step` above 0"),
        ({"search": {"model.width": Range(2, 8)}}, "must be a range of whole numbers, with `whole=True`"),
        ({"search": {LR: Range(1, 8, whole=True)}}, "must be a range of finite numbers, without `whole`"),
        ({"search": {"train.optimizer.name": Range(0, 1)}}, "the setting is no number, and has no range"),
    ],
)
def test_a_plan_that_cannot_be_is_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        run_sweep(make_plan(**changed), "nowhere", jobs=1)


def test_what_can_be_is_not_refused() -> None:
    check_plan(make_plan())
    check_plan(make_plan(sampler="grid", search={}, trials=1, grid={"train.clip.norm": (None, 1, 2.5)}))
    check_plan(make_plan(search={"model.width": Range(2, 9, whole=True, step=2), LR: Range(0, 1, step=0.25)}))


@pytest.mark.parametrize("given", [{"jobs": 0}, {"jobs": -1}, {"threads": 0}])
def test_fewer_than_one_process_or_thread_are_refused(given: dict[str, int]) -> None:
    with pytest.raises(ArgumentError, match="must be at least 1, but is"):
        run_sweep(make_plan(), "nowhere", **{"jobs": 1, **given})
