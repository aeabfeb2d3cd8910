"""Recurrences of every shape and kind, and all that a run of one gives: outputs, final states, gradients."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from steadyrnn.cells.base import Cell
from steadyrnn.cells.registry import CELLS
from steadyrnn.cells.rnn import RNNStep
from steadyrnn.engines.base import Engine, Recurrence, RecurrentWeight, flatten_weight, unflatten_weight
from steadyrnn.engines.cpu.engine import LOOPS
from steadyrnn.linalg.operators import DiagonalLowRank

__all__ = ["CPU_CELLS", "Case", "as_dtype", "batch_sizes", "make", "results"]

CPU_CELLS = [name for name, cell in CELLS.items() if cell.record.kernel in LOOPS]
"""Registered cells that the CPU engine runs; it refuses the others."""


@dataclass(frozen=True)
class Case:
    """The shape of a recurrence and its options."""

    steps: int = 4
    batch: int = 3
    inputs: int = 3
    hidden: int = 5
    lengths: tuple[int, ...] | None = None
    bias_ih: bool = True
    bias_hh: bool = True
    reverse: bool = False
    recompute: bool = False
    factored: bool = False

    def __str__(self) -> str:
        """Name the case by what differs from the plain one."""
        words = [f"T{self.steps}", f"B{self.batch}", f"H{self.hidden}"]
        words += ["ragged"] if self.lengths is not None else []
        words += [name for name in ("reverse", "recompute", "factored") if getattr(self, name)]
        words += [f"no-{name}" for name in ("bias_ih", "bias_hh") if not getattr(self, name)]
        return "-".join(words)


def batch_sizes(lengths: Sequence[int], steps: int) -> Tensor:
    """Return how many rows, longest first, run at each time."""
    return (torch.tensor(sorted(lengths, reverse=True)) > torch.arange(steps).unsqueeze(1)).sum(1)


def make(cell: Cell, case: Case, dtype: torch.dtype = torch.float64, seed: int = 0) -> Recurrence:
    """Return a random recurrence; every tensor needs a gradient; modReLU's odd sizes are made even."""
    generator = torch.Generator().manual_seed(seed)
    theta_size = None
    hidden, gates = case.hidden, len(cell.gates)
    if isinstance(cell, RNNStep):
        hidden += hidden % 2 if not cell.activation.elementwise else 0
        theta_size = cell.activation.parameter_size(hidden)

    def draw(*shape: int, fan: int = 1) -> Tensor:
        normal = torch.randn(*shape, generator=generator, dtype=torch.float64)
        return (normal / max(fan, 1) ** 0.5).to(dtype).requires_grad_()

    def factors() -> DiagonalLowRank:
        return DiagonalLowRank(draw(hidden, fan=4), draw(hidden, 2, fan=hidden), draw(hidden, 2, fan=2))

    weight: RecurrentWeight = draw(gates * hidden, hidden, fan=hidden)
    if case.factored:
        each = tuple(factors() if gate == cell.candidate else draw(hidden, hidden, fan=hidden) for gate in cell.gates)
        weight = each[0] if len(each) == 1 else each
    return Recurrence(
        cell,
        draw(case.steps, case.batch, case.inputs),
        tuple(draw(case.batch, hidden) for _ in range(cell.states)),
        draw(gates * hidden, case.inputs, fan=case.inputs),
        weight,
        draw(gates * hidden) if case.bias_ih else None,
        draw(gates * hidden) if case.bias_hh else None,
        None if theta_size is None else draw(theta_size, fan=4),
        None if case.lengths is None else batch_sizes(case.lengths, case.steps),
        case.reverse,
        case.recompute,
    )


def as_dtype(recurrence: Recurrence, dtype: torch.dtype) -> Recurrence:
    """Return the same numbers in another dtype, as fresh leaves."""

    def cast(tensor: Tensor | None) -> Tensor | None:
        return None if tensor is None else tensor.detach().to(dtype).clone().requires_grad_()

    return recurrence._replace(
        input=cast(recurrence.input),
        state=tuple(cast(state) for state in recurrence.state),
        weight_ih=cast(recurrence.weight_ih),
        weight_hh=unflatten_weight([cast(part) for part in flatten_weight(recurrence.weight_hh)]),
        bias_ih=cast(recurrence.bias_ih),
        bias_hh=cast(recurrence.bias_hh),
        theta=cast(recurrence.theta),
    )


def names(recurrence: Recurrence) -> list[str]:
    """Return a name for each of ``recurrence.tensors``."""
    weights = [f"weight_hh, part {place}" for place in range(len(flatten_weight(recurrence.weight_hh)))]
    states = ["h_0", "c_0"][: len(recurrence.state)]
    return ["input", *states, "weight_ih", *weights, "bias_ih", "bias_hh", "theta"]


def results(engine: Engine, recurrence: Recurrence, *, gradients: bool = True, seed: int = 1) -> dict[str, Tensor]:
    """Return outputs, final states and, for random cotangents, the gradient of every tensor (zero where unused)."""
    output, state = engine.run(recurrence)
    found = {"output": output, **dict(zip(("h_n", "c_n"), state, strict=False))}
    if gradients:
        generator = torch.Generator().manual_seed(seed)
        cotangents = [torch.randn(t.shape, generator=generator, dtype=torch.float64).to(t) for t in found.values()]
        named = {n: t for n, t in zip(names(recurrence), recurrence.tensors, strict=True) if t is not None}
        pairs = [(t, c) for t, c in zip(found.values(), cotangents, strict=True) if t.requires_grad]
        grads = torch.autograd.grad([t for t, _ in pairs], list(named.values()), [c for _, c in pairs], allow_unused=True)
        for (name, tensor), grad in zip(named.items(), grads, strict=True):
            found[f"gradient of {name}"] = torch.zeros_like(tensor) if grad is None else grad
    return {name: tensor.detach() for name, tensor in found.items()}
