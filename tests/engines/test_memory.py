"""Scratch that never shows, and denormal numbers that never stay."""

import pytest
import torch

from steadyrnn.cells.registry import CELLS
from steadyrnn.engines.cpu import memory
from steadyrnn.engines.cpu.memory import flushed_denormals, scratch
from steadyrnn.engines.select import ENGINES
from tests.support.recurrences import Case, make

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
    monkeypatch.setattr(memory, "KEPT_BYTES", 64)
    like = torch.zeros(1)
    scratch("test_large", (1000,), like)
    assert ("test_large", like.dtype) not in memory._LOCAL.kept


def test_scratch_made_in_inference_mode_is_an_ordinary_tensor() -> None:
    with torch.inference_mode():
        made = scratch("test_inference", (3,), torch.zeros(1))
    assert not made.is_inference()


def test_denormals_are_flushed_inside_only() -> None:
    assert not flushing()
    with flushed_denormals():
        assert flushing()
    assert not flushing()


def test_mode_is_restored_after_an_exception() -> None:
    with pytest.raises(KeyError), flushed_denormals():
        raise KeyError
    assert not flushing()


def test_mode_that_was_on_stays_on() -> None:
    torch.set_flush_denormal(True)
    try:
        with flushed_denormals():
            pass
        assert flushing()
    finally:
        torch.set_flush_denormal(False)


@pytest.mark.parametrize("name", CELLS)
def test_run_leaves_the_mode_as_it_was(name: str) -> None:
    run = make(CELLS[name], Case())
    CPU.run(run)[0].sum().backward()
    assert not flushing()


@pytest.mark.parametrize("name", CELLS)
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
