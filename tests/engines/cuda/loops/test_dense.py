"""What the CUDA engine does around its Elman kernels, with the kernels' contract in plain torch in their place."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

from steadyrnn.activations import ACTIVATIONS, Absolute, Activation
from steadyrnn.cells.base import Cell, State
from steadyrnn.cells.registry import CELLS
from steadyrnn.engines.base import Engine, Recurrence, flatten_weight
from steadyrnn.engines.cuda.engine import loop_of
from steadyrnn.engines.cuda.kernels.codes import ACTIVATIONS as CODES
from steadyrnn.engines.cuda.kernels.dense import Rows
from steadyrnn.engines.cuda.loops import dense, factored
from steadyrnn.engines.loop.call import Call, Forward, Gradients, Kernel
from steadyrnn.engines.loop.ops import register, run_op
from steadyrnn.engines.reference import ReferenceEngine
from steadyrnn.linalg.operators import DiagonalLowRank
from tests.support.errors import assert_within_budget
from tests.support.memory import poisoned_memory
from tests.support.recurrences import Case, make, results

RAGGED = (7, 3, 5, 0)
CASES = (
    Case(steps=1, batch=1, hidden=1),
    Case(steps=7, batch=3, hidden=5, bias_ih=False),
    Case(steps=7, batch=3, hidden=5, bias_hh=False, reverse=True),
    Case(steps=7, batch=4, hidden=5, lengths=RAGGED),
    Case(steps=7, batch=4, hidden=5, lengths=RAGGED, reverse=True),
    Case(steps=3, batch=2, hidden=5, lengths=(0, 0), bias_ih=False, bias_hh=False),
)


def run_elman(
    weight: Tensor, gates: Tensor, output: Tensor, begin: Tensor | None, end: Tensor, rows: Rows, *, extra: Tensor,
    slope: float, activation: int, keep: bool, bias: Tensor | None = None, back: bool = False, given: bool = True,
) -> None:  # fmt: skip
    """Do what direct.cu, gather.cu and factored.cu do for an Elman cell."""
    cls = next(cls for cls in ACTIVATIONS.values() if cls.kernel is not None and CODES[cls.kernel] == activation)
    act: Activation = cls(slope) if slope else cls()
    steps, batch, size = output.shape
    lengths = torch.full((batch,), steps) if rows.lengths is None else rows.lengths
    saved, downwards = extra.view(-1, batch, size), rows.backwards != back
    state = torch.zeros_like(end) if begin is None else begin.clone()
    for time in reversed(range(steps)) if downwards else range(steps):
        runs = (time < lengths).unsqueeze(1)
        if back:
            total = state + (gates[time] if given else 0)
            adjoint = total * act.derivative(saved[time])
            output[time] = torch.where(runs, adjoint, output[time])
            state = torch.where(runs, adjoint @ weight, state)
            continue
        argument = gates[time] + (0 if bias is None else bias) + state @ weight.mT
        if keep and isinstance(act, Absolute):
            saved[time] = torch.where(runs, argument, saved[time])
        state = torch.where(runs, act.value(argument), state)
        output[time] = torch.where(runs, state, output[time])
    end.copy_(state)


@pytest.fixture(autouse=True)
def _kernels_in_torch(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def launch(weight: DiagonalLowRank, *given: Any, **more: Any) -> Tensor | None:
        run_elman(weight.dense(), *given, **more)
        if not more.get("back"):
            return None
        output, rows, states = given[1], given[4], more["extra"].view_as(given[1])
        states = states.abs() if more["activation"] == CODES["absolute"] else states
        late, early = (output[:-1], states[1:]) if rows.backwards else (output[1:], states[:-1])
        return torch.stack([(late * early).sum(0), output.sum(0)])  # each row is a tile

    monkeypatch.setattr(dense, "run_elman", run_elman)
    monkeypatch.setattr(dense, "adds_bias", lambda output: output.shape[0] % 2 == 1)
    monkeypatch.setattr(factored, "run_factored", launch)
    with poisoned_memory():
        yield


class LoopKernel(Kernel):
    """The engine's loops without a device around them."""

    def forward(self, call: Call, cell: Cell, recompute: bool, keep: bool) -> Forward:
        return loop_of(call, cell).forward(keep)

    def backward(
        self, call: Call, cell: Cell, recompute: bool, done: Forward, grad_output: Tensor | None,
        grad_state: list[Tensor | None], needs_input: bool,
    ) -> Gradients:  # fmt: skip
        return loop_of(call, cell).backward(done, grad_output, grad_state, needs_input)

    def stash_like(self, call: Call, cell: Cell, recompute: bool) -> Tensor:
        return loop_of(call, cell).stash_like()


OP = register("cuda_loops_in_torch", "cpu", LoopKernel())


class LoopEngine(Engine):
    """Runs them."""

    name = "loops"

    def refusal(self, recurrence: Recurrence) -> str | None:
        return None

    def run(self, recurrence: Recurrence) -> tuple[Tensor, State]:
        return run_op(OP, recurrence, flatten_weight(recurrence.weight_hh))


@pytest.mark.parametrize("in_factors", [False, True], ids=["dense", "factored"])
@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("name", ["rnn-tanh", "rnn-leaky_relu", "rnn-abs"])
def test_products_around_the_kernel_give_every_gradient(name: str, case: Case, in_factors: bool) -> None:
    run = make(CELLS[name], Case(**{**vars(case), "factored": in_factors}))
    truth = results(ReferenceEngine(), run)
    assert_within_budget(results(LoopEngine(), run), truth, dict.fromkeys(truth, 0.0))


@pytest.mark.parametrize("in_factors", [False, True], ids=["dense", "factored"])
def test_every_gradient_begins_at_the_beginning_of_its_memory(in_factors: bool) -> None:
    """A compiler is told so, and may read sixteen bytes at a time."""
    run = make(CELLS["rnn-tanh"], Case(steps=3, batch=2, hidden=5, factored=in_factors), torch.float32)
    wanted = [tensor for tensor in run.tensors if tensor is not None and tensor.requires_grad]
    found = torch.autograd.grad(LoopEngine().run(run)[0].sum(), wanted)
    assert all(gradient.storage_offset() == 0 for gradient in found)
