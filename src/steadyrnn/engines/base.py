"""What an engine is given and what it gives back: a recurrence, whole or in windows of time, and results on their way."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn.functional import pad

from steadyrnn.cells.base import Cell, State
from steadyrnn.errors import ArgumentError
from steadyrnn.linalg.operators import DiagonalLowRank

__all__ = [
    "AsyncResult",
    "Comparison",
    "Deferred",
    "Engine",
    "Gate",
    "Recurrence",
    "RecurrentWeight",
    "Windows",
    "as_gates",
    "flatten_weight",
    "join_windows",
    "lengths_of",
    "stack_gates",
    "unflatten_weight",
]

T = TypeVar("T")

Gate = Tensor | DiagonalLowRank
"""One matrix, dense (H, H) or in factors."""

RecurrentWeight = Gate | tuple[Gate, ...]
"""One matrix (G * H, H), its factors where G is 1, or one per gate."""


def as_gates(weight: RecurrentWeight) -> tuple[Gate, ...]:
    """Return the matrices a weight consists of (factors are a tuple, too, but one matrix).

    Example:
        >>> len(as_gates(torch.eye(2)))
        1
    """
    return (weight,) if isinstance(weight, Tensor | DiagonalLowRank) else weight


def flatten_weight(weight: RecurrentWeight) -> list[Tensor]:
    """Return every tensor of a weight, one for a dense matrix and three for factors.

    Example:
        >>> len(flatten_weight((torch.eye(2), DiagonalLowRank(torch.ones(2), torch.ones(2, 1), torch.ones(2, 1)))))
        4
    """
    return [tensor for gate in as_gates(weight) for tensor in ((gate,) if isinstance(gate, Tensor) else gate)]


def unflatten_weight(tensors: Sequence[Tensor]) -> RecurrentWeight:
    """Return the weight of which :func:`flatten_weight` gave the tensors; a vector is the diagonal that factors begin with.

    Example:
        >>> unflatten_weight([torch.ones(2), torch.ones(2, 1), torch.ones(2, 1)]).dense()
        tensor([[2., 1.],
                [1., 2.]])
    """
    gates: list[Gate] = []
    rest = iter(tensors)
    for tensor in rest:
        gates.append(tensor if tensor.dim() > 1 else DiagonalLowRank(tensor, next(rest), next(rest)))
    return gates[0] if len(gates) == 1 else tuple(gates)


def stack_gates(weight: RecurrentWeight, dtype: torch.dtype) -> Tensor:
    """Return the dense matrix of all gates, (G * H, H); factors are multiplied out before they are rounded.

    Example:
        >>> stack_gates((torch.eye(2), torch.eye(2)), torch.float32).shape
        torch.Size([4, 2])
    """
    dense = [(gate if isinstance(gate, Tensor) else gate.dense()).to(dtype) for gate in as_gates(weight)]
    return dense[0] if len(dense) == 1 else torch.cat(dense)


class Recurrence(NamedTuple):
    """One layer in one direction, ready to run: nothing here knows how the weights came to be.

    Rows are sorted by length, longest first; ``batch_sizes[t]`` of them are still running at time t, as in torch's
    packed sequences. ``reverse`` runs time backwards: a row then starts at its own last step.
    """

    cell: Cell
    input: Tensor  # (T, B, D)
    state: State  # each (B, H)
    weight_ih: Tensor  # (G * H, D)
    weight_hh: RecurrentWeight  # (G * H, H), or one per gate; factors may have more digits than the input
    bias_ih: Tensor | None = None  # (G * H,)
    bias_hh: Tensor | None = None  # (G * H,)
    theta: Tensor | None = None
    batch_sizes: Tensor | None = None  # (T,) int64 on the CPU
    reverse: bool = False
    recompute: bool = False

    @property
    def tensors(self) -> tuple[Tensor | None, ...]:
        """Every tensor a gradient can reach."""
        weights = flatten_weight(self.weight_hh)
        return (self.input, *self.state, self.weight_ih, *weights, self.bias_ih, self.bias_hh, self.theta)


def lengths_of(recurrence: Recurrence) -> Tensor | None:
    """Return the length of each row, shape (B,), on the CPU; None where all rows run to the end.

    Example:
        >>> from steadyrnn.cells.registry import CELLS
        >>> zero, sizes = torch.zeros(2, 1), torch.tensor([2, 1, 1])
        >>> lengths_of(Recurrence(CELLS["rnn-tanh"], torch.ones(3, 2, 1), (zero,), zero, zero, batch_sizes=sizes))
        tensor([3, 1])
    """
    sizes = recurrence.batch_sizes
    if sizes is None:
        return None
    return torch.searchsorted(-sizes.cpu(), -torch.arange(recurrence.input.shape[1]))


class Windows(NamedTuple):
    """Window j covers times jC to jC + k + C - 1. Its first k outputs are a warm-up, which counts in window 0 only.

    Example:
        >>> Windows(warmup=1, chunk=2, number=2).cut(torch.arange(5.0).view(5, 1, 1)).squeeze(-1)
        tensor([[1., 3.],
                [2., 4.]])
    """

    warmup: int  # k
    chunk: int  # C
    number: int  # J

    def depth(self, sweeps: int) -> int:
        """Return how many steps run one after another."""
        return self.warmup + self.chunk * (1 + sweeps)

    def fill(self, steps: int) -> bool:
        """Say whether the last window ends with the last of ``steps`` steps, so that none is cut off."""
        return self.warmup + self.number * self.chunk == steps

    def check(self, steps: int) -> None:
        """Refuse windows that are fewer than two or do not end with the last of ``steps`` steps."""
        k, chunk, number = self
        if number < 2 or not k + (number - 1) * chunk < steps <= k + number * chunk:
            raise ArgumentError(f"`windows` must be two or more that end with the last of {steps} steps, but are {self}.")

    def cut(self, x: Tensor) -> Tensor:
        """Return a sequence (T, B, N) in windows without their warm-ups, (C, J * B, N), zero behind the last time."""
        k, chunk, number = self
        if self.fill(x.shape[0]):
            return x[k:].unflatten(0, (number, chunk)).transpose(0, 1).reshape(chunk, -1, x.shape[2])  # type: ignore[no-any-return]
        edge = k + (number - 1) * chunk
        last = pad(x[edge:], (0, 0, 0, 0, 0, edge + chunk - x.shape[0])).unsqueeze(1)  # (C, 1, B, N)
        whole = x[k:edge].unflatten(0, (number - 1, chunk)).transpose(0, 1)  # (C, J - 1, B, N)
        return torch.cat([whole, last], dim=1).flatten(1, 2)

    def cut_warmups(self, x: Tensor) -> Tensor:
        """Return the warm-ups of a sequence (T, B, N), (k, J * B, N)."""
        return self.cut_first(x, self.warmup)

    def cut_first(self, x: Tensor, length: int) -> Tensor:
        """Return the first ``length`` steps of every window of a sequence (T, B, N), (length, J * B, N)."""
        rows = self.number * x.shape[1]
        if length == 0:
            return x.new_empty(0, rows, x.shape[2])
        return x.unfold(0, length, self.chunk)[: self.number].permute(3, 0, 1, 2).reshape(length, rows, x.shape[2])


def join_windows(warm: Tensor, main: Tensor, steps: int) -> Tensor:
    """Return outputs of window 0's warm-up (k, B, H) and of all windows (C, J, B, H) as one sequence, (T, B, H)."""
    joined: Tensor = Joined.apply(warm, main, steps)  # type: ignore[no-untyped-call]
    return joined


class Joined(Function):
    """The join, which copies each number once."""

    @staticmethod
    def forward(ctx: Any, warm: Tensor, main: Tensor, steps: int) -> Tensor:
        """Return the sequence, (T, B, H)."""
        k, (chunk, number) = warm.shape[0], main.shape[:2]
        ctx.layout = k, chunk, number
        whole = (steps - k) // chunk  # windows that are not cut off
        joined = main.new_empty(steps, *main.shape[2:])
        joined[:k] = warm
        edge = k + whole * chunk
        joined[k:edge].view(whole, chunk, *main.shape[2:]).copy_(main[:, :whole].transpose(0, 1))
        if edge < steps:
            joined[edge:] = main[: steps - edge, -1]
        return joined

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
        """Return the gradient's parts, by operations that can be differentiated again."""
        k, chunk, number = ctx.layout
        missing = k + chunk * number - grad.shape[0]
        rest = pad(grad[k:], (0, 0, 0, 0, 0, missing)) if missing else grad[k:]  # padding by nothing would copy
        return grad[:k], rest.unflatten(0, (number, chunk)).transpose(0, 1), None


class Engine(ABC):
    """A way to run a recurrence.

    Laws, for every recurrence it does not refuse: outputs, final states and gradients equal the reference loop's up to
    twice its rounding error; outputs at padding are 0; a row of length 0 keeps its state; row b depends on row b only.
    """

    name: str

    @abstractmethod
    def refusal(self, recurrence: Recurrence) -> str | None:
        """Return why this engine cannot run ``recurrence``, as a clause that ends a sentence; None if it can."""

    @abstractmethod
    def run(self, recurrence: Recurrence) -> tuple[Tensor, State]:
        """Return every output, shape (T, B, H), and the final state, each of shape (B, H)."""


class Deferred(Generic[T]):
    """What is computed when its value is first read, and only then.

    Example:
        >>> Deferred(lambda: 2).value()
        2
    """

    def __init__(self, compute: Callable[[], T]) -> None:
        self.compute: Callable[[], T] | None = compute
        self.found: list[T] = []

    def value(self) -> T:
        """Return it."""
        if self.compute is not None:
            self.found.append(self.compute())
            self.compute = None  # and what it holds on to
        return self.found[0]


class AsyncResult:
    """A tensor on its way to the CPU, while the device goes on.

    Example:
        >>> AsyncResult(torch.ones(1)).value()
        tensor([1.])
    """

    def __init__(self, tensor: Tensor) -> None:
        self.there, self.arrived = tensor, None
        if tensor.device.type == "cuda":
            self.there = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu", pin_memory=True)
            self.there.copy_(tensor, non_blocking=True)
            self.arrived = torch.cuda.Event()
            self.arrived.record(torch.cuda.current_stream(tensor.device))

    def value(self) -> Tensor:
        """Return the tensor on the CPU, once it is there."""
        if self.arrived is not None:
            self.arrived.synchronize()
        return self.there.cpu()


class Comparison:
    """Whether weights are still the numbers they were: compared on the device, and waited for when it is read.

    Example:
        >>> Comparison((torch.ones(2),), (torch.zeros(2),)).holds()
        False
    """

    def __init__(self, known: tuple[Tensor, ...], now: tuple[Tensor, ...]) -> None:
        self.pairs = list(zip(known, now, strict=False))
        self.alike = len(known) == len(now) and all(
            (a.device, a.dtype, a.shape) == (b.device, b.dtype, b.shape) for a, b in self.pairs
        )
        self.result: AsyncResult | None = None

    def start(self) -> None:
        """Begin to compare."""
        if self.alike and self.result is None:
            self.result = AsyncResult(~torch.stack([(a != b).any() for a, b in self.pairs]).any())

    def holds(self) -> bool:
        """Say whether they are the same."""
        self.start()
        return self.alike and self.result is not None and bool(self.result.value())
