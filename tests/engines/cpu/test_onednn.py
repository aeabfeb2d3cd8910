"""The LSTM through torch's own layer: taken in eager float32, differentiable twice, silent where nothing is kept."""

import pytest
import torch
from torch import Tensor

from steadyrnn.cells.registry import CELLS
from steadyrnn.engines.base import Recurrence
from steadyrnn.engines.reference import ReferenceEngine
from steadyrnn.engines.select import ENGINES
from tests.support.errors import assert_within_budget, errors
from tests.support.recurrences import Case, as_dtype, make

LSTM, REFERENCE = CELLS["lstm"], ReferenceEngine()
ROUTES = ("steadyrnn.engines.cpu.engine.run_onednn", "steadyrnn.engines.cpu.engine.run_op")


def route(run: Recurrence, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return which of both ways a run takes."""
    taken: list[str] = []
    for name in ROUTES:
        monkeypatch.setattr(name, lambda *_, name=name: taken.append(name))
    ENGINES["cpu"].run(run)
    return taken[0].rpartition(".")[2]


def test_plain_float32_run_uses_torchs_layer(monkeypatch: pytest.MonkeyPatch) -> None:
    assert route(make(LSTM, Case(), torch.float32), monkeypatch) == "run_onednn"


@pytest.mark.parametrize("case", [Case(lengths=(4, 2, 0)), Case(recompute=True), Case(steps=0), Case(batch=0)], ids=str)
def test_what_torchs_layer_cannot_do_runs_our_loop(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    assert route(make(LSTM, case, torch.float32), monkeypatch) == "run_op"


def test_float64_runs_our_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    assert route(make(LSTM, Case()), monkeypatch) == "run_op"


def second_derivatives(engine: object, run: Recurrence) -> dict[str, Tensor]:
    """Return the gradient of the squared norm of a gradient."""
    tensors = [tensor for tensor in run.tensors if tensor is not None]
    output, (h, c) = engine.run(run)
    first = torch.autograd.grad((output**2).sum() + h.sum() + (c**3).sum(), tensors, create_graph=True)
    found = torch.autograd.grad(sum((grad**2).sum() for grad in first), tensors)
    return {f"by tensor {place}": grad for place, grad in enumerate(found)}


@pytest.mark.parametrize("case", [Case(), Case(reverse=True, bias_ih=False), Case(bias_hh=False)], ids=str)
def test_torchs_layer_is_differentiated_twice(case: Case) -> None:
    run = make(LSTM, case, torch.float32)
    truth = second_derivatives(REFERENCE, as_dtype(run, torch.float64))
    own = errors(second_derivatives(REFERENCE, as_dtype(run, torch.float32)), truth)
    assert_within_budget(second_derivatives(ENGINES["cpu"], run), truth, own)


def test_no_gradient_is_kept_where_none_is_wanted() -> None:
    run = make(LSTM, Case(), torch.float32)
    with torch.no_grad():
        output, states = ENGINES["cpu"].run(run)
    assert not any(tensor.requires_grad for tensor in (output, *states))
