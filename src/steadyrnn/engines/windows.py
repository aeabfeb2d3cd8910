"""Windows of time: where they lie in a sequence, how it is cut into them, and how their outputs are joined again."""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn.functional import pad

from steadyrnn.errors import ArgumentError

__all__ = ["Windows", "join_windows"]


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
