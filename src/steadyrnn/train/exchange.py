"""The one collective of a step: gradients and losses of all ranks are added up, and what ranks have to say goes with them."""

import math
import signal
from collections.abc import Sequence

import torch
from torch import Tensor

from steadyrnn.errors import RanksError

from .ranks import Ranks

__all__ = ["Exchange"]

_SIGNALS = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGUSR1") if hasattr(signal, name))
_ALIGNMENT = 64
"""Entries that each gradient's place is a multiple of, so that kernels read it as they would one of its own memory."""


class Exchange:
    """Adds up the gradients of all ranks, each of which has those of its own rows.

    All gradients of a dtype lie side by side in one buffer, and behind those of the loss's dtype: the loss, the signals that a
    rank was sent, and which tensors have a gradient on it. So a step has one collective (one more where dtypes are mixed), in
    memory that stays in its place, as a captured step needs it. The sum has the same bits on every rank, and what follows from
    it, clipping and the optimizer's step, has them too.

    A tensor that has a gradient on some rank counts as having one of zeros on the others. On a GPU that would need the host to
    wait; so there it is found out a step later, and ends the run.

    Args:
        ranks: The processes.
        device: Where gradients are.
    """

    def __init__(self, ranks: Ranks, device: torch.device) -> None:
        self.ranks, self.device = ranks, device
        self._asked = torch.zeros(len(_SIGNALS), device=device)
        self._flat: dict[object, tuple[dict[torch.dtype, Tensor], list[Tensor], Tensor]] = {}
        self._nothing: dict[tuple[torch.dtype, int], Tensor] = {}
        self._present: dict[tuple[bool, ...], Tensor] = {}
        self._news: list[_News | _LateNews] = []  # of each buffer: a captured step does not say which one it has used

    def ask_to_end(self, number: int) -> None:
        """Tell the others with the next step that this rank was sent a signal."""
        if number in _SIGNALS:
            self._asked[_SIGNALS.index(signal.Signals(number))] = 1.0

    @torch.no_grad()
    def add(self, tensors: Sequence[Tensor], loss: Tensor) -> Tensor:
        """Put the sum over all ranks in the place of each gradient; return the sum of losses."""
        flat, places, tail = self._buffers(tensors, loss)
        has = [tensor.grad is not None for tensor in tensors]
        pieces: dict[torch.dtype, list[Tensor]] = {dtype: [] for dtype in flat}
        for tensor in tensors:
            own, length = pieces[tensor.dtype], tensor.numel()
            own.append(self._zeros(tensor.dtype, length) if tensor.grad is None else tensor.grad.reshape(-1))
            if length % _ALIGNMENT:
                own.append(self._zeros(tensor.dtype, -length % _ALIGNMENT))
        pieces[loss.dtype] += [loss.reshape(1), self._asked.to(loss.dtype), self._marks(has).to(loss.dtype)]
        for dtype, buffer in flat.items():
            torch.cat(pieces[dtype], out=buffer)
            self.ranks.add(buffer)
        if self.device.type != "cuda":
            has = [number > 0 for number in tail[1 + len(_SIGNALS) :].tolist()]
        for place, tensor, present in zip(places, tensors, has, strict=True):
            tensor.grad = place if present else None
        return tail[0]

    def signal_to_end(self) -> int | None:
        """Return a signal that any rank was sent, the same on all of them; of a GPU the news is a step old.

        Raises:
            RanksError: On a GPU a tensor has a gradient on some ranks only.
        """
        found = None
        for source in self._news:
            numbers = source.read()
            signals, there = numbers[: len(_SIGNALS)], numbers[len(_SIGNALS) :]
            if self.device.type == "cuda" and any(0 < number < self.ranks.size for number in there):
                raise RanksError(
                    "A parameter of the model has a gradient on some ranks, and none on others: which parameters a batch uses "
                    "must not depend on its rows. Train with one process, or on the CPU, where such a gradient counts as zeros."
                )
            asked = (int(number) for number, sent in zip(_SIGNALS, signals, strict=True) if sent)
            found = next(asked, None) if found is None else found
        return found

    def _zeros(self, dtype: torch.dtype, length: int) -> Tensor:
        """Return zeros, of memory that stays in its place."""
        key = dtype, length
        if key not in self._nothing:
            self._nothing[key] = torch.zeros(length, dtype=dtype, device=self.device)
        return self._nothing[key]

    def _marks(self, has: Sequence[bool]) -> Tensor:
        """Return 1 for each tensor with a gradient, on the device; made once, as a captured step may not wait for the host."""
        key = tuple(has)
        if key not in self._present:
            self._present[key] = torch.tensor(key, dtype=torch.float32, device=self.device)
        return self._present[key]

    def _buffers(self, tensors: Sequence[Tensor], loss: Tensor) -> tuple[dict[torch.dtype, Tensor], list[Tensor], Tensor]:
        """Return the buffer of each dtype, the place of each tensor in it, and the place behind them; made once."""
        key = loss.dtype, tuple((tensor.shape, tensor.dtype) for tensor in tensors)
        if key not in self._flat:
            ends: dict[torch.dtype, int] = {loss.dtype: 0}
            starts = []
            for tensor in tensors:
                starts.append(ends.setdefault(tensor.dtype, 0))
                ends[tensor.dtype] += math.ceil(tensor.numel() / _ALIGNMENT) * _ALIGNMENT
            behind = ends[loss.dtype]
            ends[loss.dtype] += 1 + len(_SIGNALS) + len(tensors)
            flat = {dtype: torch.zeros(end, dtype=dtype, device=self.device) for dtype, end in ends.items()}
            places = [
                flat[tensor.dtype][start : start + tensor.numel()].view(tensor.shape)
                for tensor, start in zip(tensors, starts, strict=True)
            ]
            self._flat[key] = flat, places, flat[loss.dtype][behind:]
            self._news.append(
                _LateNews(self._flat[key][2][1:]) if self.device.type == "cuda" else _News(self._flat[key][2][1:])
            )
        return self._flat[key]


class _News:
    """What ranks had to say in the last step: the place behind the loss in a buffer."""

    def __init__(self, source: Tensor) -> None:
        self.source = source

    def read(self) -> list[float]:
        """Return the numbers."""
        numbers: list[float] = self.source.tolist()
        return numbers


class _LateNews:
    """The same of a GPU, a step late: the host waits for the step before, not for the one in hand."""

    def __init__(self, source: Tensor) -> None:
        self.source, self.turn = source, 0
        self.copies = [torch.zeros(source.shape, dtype=source.dtype, pin_memory=True) for _ in range(2)]
        self.events = [torch.cuda.Event() for _ in range(2)]

    def read(self) -> list[float]:
        """Return the numbers of the step before; nothing after the first one."""
        now, before = self.turn % 2, (self.turn + 1) % 2
        with torch.cuda.device(self.source.device):
            self.copies[now].copy_(self.source, non_blocking=True)
            self.events[now].record()
            self.turn += 1
            if self.turn == 1:
                return [0.0] * len(self.source)
            self.events[before].synchronize()
        numbers: list[float] = self.copies[before].tolist()
        return numbers
