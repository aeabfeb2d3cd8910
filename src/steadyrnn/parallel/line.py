"""The ranks of one call in order of time: states go to the right, adjoints to the left, and every byte is counted."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from steadyrnn.cells.base import State
from steadyrnn.engines.cuda.kernels.norms import every_norm

from .gradients import Evidence
from .ranks import Alone, Ranks
from .traffic import Traffic

__all__ = ["Line"]

V = TypeVar("V")


class Line:
    """Ranks in order of time, for one call.

    Rank 0 and every rank with steps of its own are members, and exchange states with their neighbours. The others only
    take part in what all do.

    Args:
        ranks: Which.
        steps: T of every rank.
        token: A number of the graph that every exchange depends on, so that ``backward`` makes all of them, and in one
            order on all ranks; None where no gradient is wanted.

    Example:
        >>> Line().members, Line().first
        ((0,), True)
    """

    def __init__(self, ranks: Ranks | None = None, steps: Sequence[int] = (0,), token: Tensor | None = None) -> None:
        self.ranks, self.steps, self.token = ranks or Alone(), tuple(steps), token
        self.traffic = Traffic()
        self.members = (0, *(rank for rank in range(1, self.ranks.size) if self.steps[rank]))
        self.member = self.ranks.rank in self.members
        place = self.members.index(self.ranks.rank) if self.member else 0
        self.left = self.members[place - 1] if self.member and place else None
        self.right = self.members[place + 1] if self.member and place + 1 < len(self.members) else None
        self.first = self.ranks.rank == 0
        self.last = self.members[-1]

    def together(
        self, compute: Callable[[], V], numbers: Callable[[V], Sequence[float]], width: int
    ) -> tuple[V, list[list[float]]]:
        """Return what :meth:`Ranks.together` does."""
        self.traffic.scalars += 8 * (width + 1) if self.ranks.size > 1 else 0
        return self.ranks.together(compute, numbers, width)

    def exchange(self, end: State, moved: Sequence[bool]) -> State | None:
        """Send the end state to the right where it has moved, and return the left neighbour's, if that has.

        Args:
            end: Of this rank's part, each (B, H).
            moved: Of every rank, whether its end state is new.
        """
        sends = self.member and self.right is not None and moved[self.ranks.rank]
        receives = self.member and self.left is not None and moved[self.left]
        if self.token is None:
            packed = torch.stack(end)
            got = self.transfer(packed if sends else None, self.right, packed if receives else None, self.left)
            return None if got is None else tuple(got.unbind())
        self.token, *state = Passed.apply(self, sends, receives, self.token, *end)  # type: ignore[no-untyped-call]
        return tuple(state) if receives else None

    def hand_on(self, end: State) -> State | None:
        """Return the end state of the left neighbour, without a graph; None where there is none."""
        if self.ranks.size == 1:
            return None
        packed = torch.stack([s.detach() for s in end])
        sent, like = packed if self.right is not None else None, packed if self.left is not None else None
        got = self.transfer(sent, self.right, like, self.left)
        return None if got is None else tuple(got.unbind())

    def transfer(
        self, sent: Tensor | None, receiver: int | None, like: Tensor | None, sender: int | None, back: bool = False
    ) -> Tensor | None:
        """Send and receive, and count what is sent."""
        size = 0 if sent is None else sent.numel() * sent.element_size()
        self.traffic.adjoints += size if back else 0
        self.traffic.states += 0 if back else size
        return self.ranks.transfer(sent, receiver or 0, like, sender or 0)

    def finish(self, output: Tensor, finals: State, evidence: Evidence) -> tuple[Tensor, State]:
        """Return the outputs, and the final states of the last rank with steps, each (L, B, H), on every rank."""
        if self.token is None:
            return output, self.share(finals)
        output, *shared = Finished.apply(self, evidence, self.token, output, *finals)  # type: ignore[no-untyped-call]
        return output, tuple(shared)

    def share(self, finals: State) -> State:
        """Return the final states of the last rank with steps."""
        if self.ranks.size == 1:
            return finals
        packed = torch.stack(finals)
        if self.ranks.rank == self.last:
            self.traffic.states += packed.numel() * packed.element_size()
        return tuple(self.ranks.share(packed, self.last).unbind())


class Passed(Function):
    """One exchange of states with the neighbours, and in ``backward`` of their adjoints the other way."""

    @staticmethod
    def forward(ctx: Any, line: Line, sends: bool, receives: bool, token: Tensor, *end: Tensor) -> tuple[Tensor, ...]:
        """Return the token and the states received, zero where none are."""
        ctx.line, ctx.sends, ctx.receives = line, sends, receives
        packed = torch.stack(end)
        got = line.transfer(packed if sends else None, line.right, packed if receives else None, line.left)
        found = torch.zeros_like(packed) if got is None else got
        return token.clone(), *(state.clone() for state in found.unbind())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, token: Tensor, *adjoints: Tensor) -> tuple[Tensor | None, ...]:
        """Send adjoints to the left, and return those from the right."""
        line, packed = ctx.line, torch.stack(adjoints)
        sent, like = packed if ctx.receives else None, packed if ctx.sends else None
        got = line.transfer(sent, line.left, like, line.right, back=True)
        found = torch.zeros_like(packed) if got is None else got
        return None, None, None, token, *found.unbind()


class Finished(Function):
    """The end of a call: final states to every rank, and in ``backward`` the sum of their cotangents to the last."""

    @staticmethod
    def forward(ctx: Any, line: Line, evidence: Evidence, token: Tensor, output: Tensor, *finals: Tensor) -> tuple[Tensor, ...]:
        """Return outputs and final states."""
        ctx.line, ctx.evidence = line, evidence
        return output.detach(), *(state.clone() for state in line.share(finals))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, output: Tensor, *finals: Tensor) -> tuple[Tensor | None, ...]:
        """Return the cotangents of outputs, and on the last rank those of the final states of all ranks."""
        line, packed = ctx.line, torch.stack(finals)
        line.traffic.adjoints += packed.numel() * packed.element_size() if line.ranks.size > 1 else 0
        total = line.ranks.add(packed)
        ends = line.ranks.rank == line.last
        evidence = ctx.evidence
        if evidence.refusal is None:
            norms = every_norm(output)
            if ends and len(norms):
                norms = norms.clone()
                norms[-1] += every_norm(total[0])[-1]
            evidence.add(norms)
            line.traffic.scalars += 8 if line.ranks.size > 1 else 0
            evidence.everywhere = sum(row[0] for row in line.ranks.gather([evidence.own()]))
        none = (None,) * len(finals)
        return None, None, output.new_zeros(()), output, *(total.unbind() if ends else none)
