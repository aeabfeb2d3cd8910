"""What rounding costs the reference in float64, where it is the truth itself: seen by adding up in another order."""

import torch
from torch import Tensor

from steadyrnn.cells.base import State
from steadyrnn.cells.rnn import RNNStep
from steadyrnn.engines.base import Engine, Gate, Recurrence, as_gates
from steadyrnn.engines.reference import ReferenceEngine
from steadyrnn.linalg.operators import DiagonalLowRank
from tests.support.errors import errors
from tests.support.recurrences import results

__all__ = ["ReorderedEngine", "rounding_errors"]

ORDERS = 8


class ReorderedEngine(Engine):
    """The reference with its hidden units in another order, and its results back in the old one.

    Order means nothing to a recurrence, so only the sums over units change, and those by their rounding alone; moving numbers
    to and fro, and gradients with them, rounds nothing.
    """

    name = "reordered"

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    def refusal(self, recurrence: Recurrence) -> str | None:
        return None

    def run(self, recurrence: Recurrence) -> tuple[Tensor, State]:
        run, size = recurrence, recurrence.state[0].shape[1]
        learned = run.cell.activation.parameter_size(size) if isinstance(run.cell, RNNStep) else None
        halves = 1 if learned is None else size // learned  # a pair with one parameter stays one
        half = torch.randperm(size // halves, generator=torch.Generator().manual_seed(self.seed)).to(run.input.device)
        order = torch.cat([half + place * len(half) for place in range(halves)])

        def rows(tensor: Tensor) -> Tensor:
            return tensor.unflatten(0, (-1, size))[:, order].flatten(0, 1)  # of every gate

        def reordered(gate: Gate) -> Gate:
            return rows(gate)[:, order] if isinstance(gate, Tensor) else DiagonalLowRank(*map(rows, gate))

        gates = tuple(reordered(gate) for gate in as_gates(run.weight_hh))
        output, state = ReferenceEngine().run(
            run._replace(
                state=tuple(s[:, order] for s in run.state),
                weight_ih=rows(run.weight_ih),
                weight_hh=gates if len(gates) > 1 else gates[0],
                bias_ih=None if run.bias_ih is None else rows(run.bias_ih),
                bias_hh=None if run.bias_hh is None else rows(run.bias_hh),
                theta=None if run.theta is None else run.theta[half],
            )
        )
        back = order.argsort()
        return output[..., back], tuple(s[:, back] for s in state)


def rounding_errors(run: Recurrence, truth: dict[str, Tensor], *, gradients: bool = True) -> dict[str, float]:
    r"""Return what the reference errs by in float64, for its results ``truth``.

    Two runs that differ in the order of sums err independently of each other, so each by :math:`1 / \sqrt 2` of their
    distance. Of few large errors (modReLU's near its zero) an order may meet more or fewer: the largest of eight is taken.
    """
    found = [errors(results(ReorderedEngine(seed), run, gradients=gradients), truth) for seed in range(ORDERS)]
    return {name: max(distances[name] for distances in found) / 2**0.5 for name in truth}
