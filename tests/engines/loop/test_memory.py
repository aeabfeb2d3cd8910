"""Scratch that never shows, denormal numbers that never stay, and no Python object that a run keeps of each step."""

import gc
import sys
from collections.abc import Callable
from types import FrameType

import pytest
import torch

from steadyrnn.cells.registry import CELLS
from steadyrnn.engines.cpu.engine import flush_denormals
from steadyrnn.engines.loop import family
from steadyrnn.engines.loop.family import Steps, scratch
from steadyrnn.engines.select import ENGINES
from tests.support.recurrences import CPU_CELLS, Case, make

DENORMAL = 5e-324
CPU = ENGINES["cpu"]


def flushing() -> bool:
    return DENORMAL * 1.0 == 0.0


def test_scratch_is_used_again() -> None:
    like = torch.zeros(1)
    assert scratch("test", (4, 3), like).data_ptr() == scratch("test", (2, 3), like).data_ptr()


def test_scratch_of_another_name_or_dtype_is_other_memory() -> None:
    like = torch.zeros(1)
    pointers = {scratch("a", (4,), like).data_ptr(), scratch("b", (4,), like).data_ptr()}
    assert len(pointers | {scratch("a", (4,), like.double()).data_ptr()}) == 3


def test_large_scratch_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(family, "KEPT_BYTES", 64)
    like = torch.zeros(1)
    scratch("test_large", (1000,), like)
    assert ("test_large", like.dtype) not in family._LOCAL.kept


def test_scratch_made_in_inference_mode_is_an_ordinary_tensor() -> None:
    with torch.inference_mode():
        made = scratch("test_inference", (3,), torch.zeros(1))
    assert not made.is_inference()


def test_denormals_are_flushed_inside_only() -> None:
    assert not flushing()
    with flush_denormals():
        assert flushing()
    assert not flushing()


def test_mode_is_restored_after_an_exception() -> None:
    with pytest.raises(KeyError), flush_denormals():
        raise KeyError
    assert not flushing()


def test_mode_that_was_on_stays_on() -> None:
    torch.set_flush_denormal(True)
    try:
        with flush_denormals():
            pass
        assert flushing()
    finally:
        torch.set_flush_denormal(False)


@pytest.mark.parametrize("name", CPU_CELLS)
def test_run_leaves_the_mode_as_it_was(name: str) -> None:
    run = make(CELLS[name], Case())
    CPU.run(run)[0].sum().backward()
    assert not flushing()


@pytest.mark.parametrize("name", CPU_CELLS)
def test_run_that_fails_leaves_the_mode_as_it_was(name: str) -> None:
    run = make(CELLS[name], Case())
    with pytest.raises(RuntimeError):
        CPU.run(run._replace(weight_ih=run.weight_ih[:, :2]))
    assert not flushing()


@pytest.mark.parametrize("reverse", [False, True])
def test_decayed_states_and_gradients_are_zero_or_normal(reverse: bool) -> None:
    run = make(CELLS["rnn-identity"], Case(steps=60, hidden=3, bias_ih=False, bias_hh=False, reverse=reverse), torch.float32)
    with torch.no_grad():
        run.input.zero_()
        run.weight_hh.copy_(torch.eye(3) * 0.1)
    output, (h_n,) = CPU.run(run)
    (gradient,) = torch.autograd.grad(h_n.sum(), run.input)
    tiny = torch.finfo(torch.float32).tiny
    for tensor in (output.detach(), gradient):
        assert not ((tensor != 0) & (tensor.abs() < tiny)).any()
    assert output[0 if reverse else -1].abs().max() == 0


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("steps", [1, 63, 64, 65, 200])
def test_views_by_time_are_those_of_the_tensor(steps: int, order: int) -> None:
    tensor = torch.arange(steps * 2).view(steps, 1, 2)
    views = Steps(tensor)
    for time in range(steps)[::order]:
        assert views[time].equal(tensor[time])
        assert views[time].data_ptr() == tensor[time].data_ptr()
        assert len(views) <= 64


def most_objects(run: Callable[[], object]) -> int:
    """Return how many more objects there were at any time in a run than before it, by looking every now and then."""
    calls, most = 0, 0

    def look(_frame: FrameType, event: str, _what: object) -> None:
        nonlocal calls, most
        calls += event == "c_call"
        if event == "c_call" and calls % 200 == 0:
            most = max(most, len(gc.get_objects()))

    gc.collect()
    gc.freeze()  # so that only what comes now is counted
    before = sys.getprofile()
    sys.setprofile(look)
    try:
        run()
    finally:
        sys.setprofile(before)
        gc.unfreeze()
    return most


LONG_CASES = {
    "plain": {},
    "ragged": {"lengths": True},
    "reverse": {"lengths": True, "reverse": True},
    "factored": {"factored": True},
    "recompute": {"recompute": True},
}


@pytest.mark.parametrize(("engine", "gradients"), [("cpu", False), ("cpu", True), ("reference", False)])
@pytest.mark.parametrize("case", LONG_CASES)
@pytest.mark.parametrize("name", CPU_CELLS)
def test_no_run_keeps_an_object_of_each_step(name: str, case: str, gradients: bool, engine: str) -> None:
    # the reference under autograd has torch's own graph, a node an operation
    steps, options = 1024, dict(LONG_CASES[case])
    lengths = (steps, steps // 2, 3) if options.pop("lengths", False) else None
    run = make(CELLS[name], Case(steps=steps, hidden=2, lengths=lengths, **options))

    def whole() -> None:
        with torch.set_grad_enabled(gradients):
            output = ENGINES[engine].run(run)[0]
            if gradients:
                output.sum().backward()

    ENGINES[engine].run(make(CELLS[name], Case()))  # what is made once
    assert most_objects(whole) < steps
