"""What the loops of all cells share: memory, the walk over time, and the products with weights in it and outside it."""

import math
import threading
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from steadyrnn.linalg.operators import DiagonalLowRank

from ..base import Gate, Recurrence, as_gates, unflatten_weight
from .call import Call, Forward, Gradients

__all__ = [
    "KEPT_BYTES",
    "Dense",
    "Factored",
    "Family",
    "History",
    "Product",
    "Steps",
    "Visit",
    "flat",
    "gate_products",
    "head",
    "product_of",
    "scratch",
    "sum_biases",
]

KEPT_BYTES = 2**24
"""The largest scratch tensor that is kept for the next call; a larger one is given back, since it would add to the peak."""

_LOCAL = threading.local()
_BLOCK = 64  # times whose views exist at once


def scratch(name: str, shape: Sequence[int], like: Tensor) -> Tensor:
    """Return an uninitialised tensor that may hold the memory of an earlier call's.

    Fresh pages cost more than the arithmetic on them, so memory that is neither returned nor saved is used again, one
    piece per name and thread. Never hand out for a result: the next call would overwrite it.

    Example:
        >>> scratch("adjoint", (2, 3), torch.zeros(1)).shape
        torch.Size([2, 3])
    """
    size = math.prod(shape)
    kept: dict[tuple[str, torch.dtype, torch.device], Tensor] | None = getattr(_LOCAL, "kept", None)
    if kept is None:
        kept = _LOCAL.kept = {}
    memory = kept.get((name, like.dtype, like.device))
    if memory is None or memory.numel() < size:
        with torch.inference_mode(False):  # an inference tensor could not be written to by a later call outside that mode
            memory = torch.empty(size, dtype=like.dtype, device=like.device)
        if size * memory.element_size() <= KEPT_BYTES:
            kept[name, like.dtype, like.device] = memory
    return memory[:size].view(*shape)


class Steps(dict[int, Tensor]):
    """The views (B, N) of a tensor (T, B, N) by time, of which only those of some neighbouring times exist at once.

    A view takes a hundred times the memory of a number, so a list of all of them would be most of a long run's memory; one
    by one they would cost as much time as the arithmetic. Times are expected in order, up or down.

    Args:
        tensor: What is looked at, shape (T, B, N).

    Example:
        >>> Steps(torch.arange(6).view(3, 1, 2))[2]
        tensor([[4, 5]])
    """

    def __init__(self, tensor: Tensor) -> None:
        super().__init__()
        self.tensor = tensor

    def __missing__(self, time: int) -> Tensor:
        """Make the views of the block of times that ``time`` lies in, in place of those before."""
        start = time - time % _BLOCK
        self.clear()
        self.update(enumerate(self.tensor[start : start + _BLOCK].unbind(0), start))
        return self[time]


def flat(tensor: Tensor) -> Tensor:
    """Return ``tensor`` (T, B, N) as the matrix (T * B, N)."""
    return tensor.reshape(tensor.shape[0] * tensor.shape[1], tensor.shape[2])


class History(NamedTuple):
    """What the gradient of a recurrent matrix is made of: adjoints of its results beside the states it was applied to."""

    late: Tensor  # (T - 1, B, N), adjoints except the first step's
    early: Tensor  # (T - 1, B, H), states before them
    first: Tensor  # (B, N), the first step's adjoints, zero for a row of length 0
    start: Tensor  # (B, H), initial states

    def columns(self, part: slice) -> "History":
        """Return the history of some of the results."""
        return self._replace(late=self.late[..., part], first=self.first[..., part])


class Visit(NamedTuple):
    """One step of the walk: the time, the rows that run, and the states they come from."""

    time: int
    rows: int
    before: tuple[Tensor, ...]  # each (rows, H)


def head(tensor: Tensor, rows: int) -> Tensor:
    """Return the first ``rows`` rows, without a view where that is all of them."""
    return tensor if tensor.shape[0] == rows else tensor[:rows]


class Family(ABC):
    """A cell family's loop over one call."""

    def __init__(self, call: Call) -> None:
        self.call = call
        self.steps, self.batch = call.input.shape[0], call.input.shape[1]
        self.hidden = call.state[0].shape[1]

    @abstractmethod
    def forward(self, keep: bool) -> Forward:
        """Run the loop; with ``keep`` the stash holds what :meth:`backward` needs."""

    @abstractmethod
    def stash_like(self) -> Tensor:
        """Return an empty tensor of the shape of the stash that ``forward(keep=True)`` gives."""

    @abstractmethod
    def backward(
        self, done: Forward, grad_output: Tensor | None, grad_state: list[Tensor | None], needs_input: bool
    ) -> Gradients:
        """Run the adjoint."""

    def visits(self, *states: Steps, back: bool = False) -> Iterator[Visit]:
        """Yield the visits of a run while ``states`` (views by time, each (B, H)) are being filled; ``back``, last one first.

        Running backwards, a row starts when its last step is met: there the states before are the running rows' last
        ones with the newcomers' initial ones below.
        """
        sizes, start, times = self.call.sizes, tuple(self.call.state), self.running_times()
        for time in reversed(times) if back else times:
            rows = self.batch if sizes is None else sizes[time]
            last = time - times.step
            running = self.batch if sizes is None or time == times[0] else sizes[last]
            if time == times[0]:
                before = tuple(head(s, rows) for s in start)
            elif rows <= running:
                before = tuple(head(views[last], rows) for views in states)
            else:
                before = tuple(
                    torch.cat([views[last][:running], s[running:rows]]) for views, s in zip(states, start, strict=True)
                )
            yield Visit(time, rows, before)

    def running_times(self) -> range:
        """Return the times at which any row runs, in the order in which they are run."""
        sizes = self.call.sizes
        steps = self.steps if self.batch else 0
        if sizes is not None:  # which never grow
            steps = bisect_left(sizes, 0, key=lambda rows: -rows)
        return range(steps - 1, -1, -1) if self.call.reverse else range(steps)

    def project(self, bias: Tensor | None, out: Tensor) -> Tensor:
        """Write the input part of every gate at every time to ``out`` (T, B, G * H): one product, outside the loop."""
        flat_in, flat_out = flat(self.call.input), out.view(self.steps * self.batch, out.shape[-1])
        if bias is None:
            torch.mm(flat_in, self.call.weight_ih.t(), out=flat_out)
        else:
            torch.addmm(bias, flat_in, self.call.weight_ih.t(), out=flat_out)
        return out

    def clear_padding(self, tensor: Tensor) -> None:
        """Zero the rows of ``tensor`` (T, B, ...) that do not run."""
        if self.call.sizes is not None:
            for time, rows in enumerate(self.call.sizes):
                if rows < self.batch:
                    tensor[time, rows:].zero_()

    def final(self, states: Tensor, start: Tensor) -> Tensor:
        """Return each row's last state, a fresh tensor (B, H); a row of length 0 keeps its initial one."""
        if self.steps == 0:
            return start.clone()
        if self.call.sizes is None:
            return states[0 if self.call.reverse else -1].clone()
        result, ended = start.clone(), 0
        order = range(1) if self.call.reverse else range(self.steps - 1, -1, -1)
        for time in order:
            rows = self.call.sizes[time]
            if rows > ended:
                result[ended:rows] = states[time, ended:rows]
                ended = rows
        return result

    def first(self, adjoint: Tensor) -> Tensor:
        """Return ``adjoint`` (T, B, ...) at each row's first step, zero for a row of length 0; shape (B, ...)."""
        if not self.call.reverse or self.call.sizes is None:
            return adjoint[-1 if self.call.reverse else 0]
        result, started = torch.zeros_like(adjoint[0]), 0
        for time in reversed(range(self.steps)):
            rows = self.call.sizes[time]
            if rows > started:
                result[started:rows] = adjoint[time, started:rows]
                started = rows
        return result

    def history(self, adjoint: Tensor, states: Tensor, start: Tensor) -> History:
        """Return adjoints (T, B, N) beside the states (T, B, H) they came from, the initial ones apart."""
        if self.steps == 0:
            return History(adjoint, states, adjoint.new_zeros(0, adjoint.shape[-1]), start[:0])
        late, early = (adjoint[:-1], states[1:]) if self.call.reverse else (adjoint[1:], states[:-1])
        return History(late, early, self.first(adjoint), start)

    def outside(self, adjoint: Tensor, needs_input: bool) -> tuple[Tensor | None, Tensor, Tensor | None]:
        """Return the gradients of input, input weight and input bias from the gates' adjoint (T, B, G * H)."""
        grad_w = flat(adjoint).t() @ flat(self.call.input)
        return self.grad_input(adjoint, needs_input), grad_w, None if self.call.bias_ih is None else self.sum_rows(adjoint)

    def sum_rows(self, adjoint: Tensor) -> Tensor:
        """Return the gradient of a bias, (N,), from the adjoint (T, B, N) of what it was added to."""
        return flat(adjoint).sum(0)

    def grad_input(self, adjoint: Tensor, needed: bool) -> Tensor | None:
        """Return the gradient of the input, where it is needed, from the gates' adjoint (T, B, G * H)."""
        return (flat(adjoint) @ self.call.weight_ih).view(self.call.input.shape) if needed else None

    def carry(self, grad: Tensor | None, like: Tensor) -> Tensor:
        """Return the adjoint of the final state as a tensor the loop may overwrite (and return as the initial one's)."""
        return torch.zeros_like(like) if grad is None else grad.clone(memory_format=torch.contiguous_format)

    def adjoint_memory(self, name: str, width: int) -> Tensor:
        """Return scratch (T, B, ``width``) for adjoints."""
        return scratch(name, (self.steps, self.batch, width), self.call.input)


def sum_biases(call: Call | Recurrence) -> Tensor | None:
    """Return the sum of both biases, or the one there is."""
    if call.bias_ih is None or call.bias_hh is None:
        return call.bias_ih if call.bias_hh is None else call.bias_hh
    return call.bias_ih + call.bias_hh


class Product(ABC):
    """A recurrent matrix W, (N, H), as a step uses it."""

    size: int  # N

    @abstractmethod
    def add(self, gate: Tensor, before: Tensor) -> None:
        r"""Add :math:`h W^\top` to ``gate`` (rows, N) in place, for ``before`` (rows, H)."""

    @abstractmethod
    def write(self, before: Tensor, bias: Tensor | None, out: Tensor) -> None:
        r"""Write :math:`h W^\top`, plus a bias (N,) where given, to ``out`` (rows, N)."""

    @abstractmethod
    def pull(self, adjoint: Tensor, plus: Tensor | None, out: Tensor) -> None:
        """Write ``adjoint`` (rows, N) times W, plus ``plus`` where given, to ``out`` (rows, H); ``plus`` may be ``out``."""

    @abstractmethod
    def gradient(self, history: History) -> list[Tensor]:
        """Return the gradient of W, or of each of its factors, from products over all time."""


class Dense(Product):
    """A matrix multiplied out."""

    def __init__(self, weight: Tensor) -> None:
        self.weight = weight
        self.transposed = weight.t()
        self.size = weight.shape[0]

    def add(self, gate: Tensor, before: Tensor) -> None:
        """One product."""
        gate.addmm_(before, self.transposed)

    def write(self, before: Tensor, bias: Tensor | None, out: Tensor) -> None:
        """One product."""
        if bias is None:
            torch.mm(before, self.transposed, out=out)
        else:
            torch.addmm(bias, before, self.transposed, out=out)

    def pull(self, adjoint: Tensor, plus: Tensor | None, out: Tensor) -> None:
        """One product."""
        if plus is None:
            torch.mm(adjoint, self.weight, out=out)
        else:
            torch.addmm(plus, adjoint, self.weight, out=out)

    def gradient(self, history: History) -> list[Tensor]:
        r"""Return :math:`\sum_t a_t^\top h_{t-1}` as one product over all time, plus one for the initial state."""
        late, early, first, start = history
        return [(flat(late).t() @ flat(early)).addmm_(first.t(), start)]


class Factored(Product):
    """A diagonal and two thin factors: two thin products per step."""

    def __init__(self, weight: DiagonalLowRank) -> None:
        self.diagonal, self.left, self.right = weight
        self.size = weight.diagonal.shape[0]

    def thin(self, rows: Tensor, factor: Tensor) -> Tensor:
        """Return ``rows`` times a factor, in scratch memory."""
        return torch.mm(rows, factor, out=scratch("thin", (rows.shape[0], factor.shape[1]), rows))

    def add(self, gate: Tensor, before: Tensor) -> None:
        """Two thin products and a diagonal."""
        gate.addmm_(self.thin(before, self.right), self.left.t()).addcmul_(before, self.diagonal)

    def write(self, before: Tensor, bias: Tensor | None, out: Tensor) -> None:
        """Two thin products and a diagonal."""
        torch.mul(before, self.diagonal, out=out)
        if bias is not None:
            out.add_(bias)
        out.addmm_(self.thin(before, self.right), self.left.t())

    def pull(self, adjoint: Tensor, plus: Tensor | None, out: Tensor) -> None:
        """Two thin products and a diagonal."""
        thin = self.thin(adjoint, self.left)
        if plus is None:
            torch.mm(thin, self.right.t(), out=out)
        else:
            torch.addmm(plus, thin, self.right.t(), out=out)
        out.addcmul_(adjoint, self.diagonal)

    def gradient(self, history: History) -> list[Tensor]:
        """Return the gradients of the diagonal and of both factors."""
        late, early, first, start = history
        grad_left = (flat(late).t() @ (flat(early) @ self.right)).addmm_(first.t(), start @ self.right)
        grad_right = (flat(early).t() @ (flat(late) @ self.left)).addmm_(start.t(), first @ self.left)
        diagonal = (first * start).sum(0)
        for place in range(0, late.shape[0], 16):  # some steps at once: little memory
            diagonal += (late[place : place + 16] * early[place : place + 16]).sum((0, 1))
        return [diagonal, grad_left, grad_right]


def gate_products(tensors: list[Tensor]) -> list[tuple[slice, Product]]:
    """Return the product with each matrix, beside its columns among the gates (..., G * H)."""
    weight = unflatten_weight(tensors)
    products = [product_of(gate) for gate in as_gates(weight)]
    result, start = [], 0
    for product in products:
        result.append((slice(start, start + product.size), product))
        start += product.size
    return result


def product_of(weight: Gate) -> Product:
    """Return the product with a matrix."""
    return Factored(weight) if isinstance(weight, DiagonalLowRank) else Dense(weight)
