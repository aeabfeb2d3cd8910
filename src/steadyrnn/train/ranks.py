"""The processes of a distributed run: joined as torchrun started them, speaking to one another, left at the end."""

import atexit
import os
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import timedelta
from types import MappingProxyType
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from steadyrnn.errors import ArgumentError, DeviceError, RanksError
from steadyrnn.runs.json_text import decode_exactly, encode_exactly, parse, render
from steadyrnn.runs.tensors import pack, unpack

__all__ = ["ALONE", "Ranks", "alone", "current_ranks", "is_launched", "join", "leave", "local_rank", "refuse_ranks"]

_VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_PATIENCE = timedelta(hours=6)
"""How long a process waits for another: one may read data or find a rate meanwhile. That one has died shows at once."""

Value = TypeVar("Value")
Parcel = tuple[Any, dict[str, Tensor]]
"""A JSON value and tensors by name, on the CPU."""


class Ranks:
    """The processes that train one network, and which of them this one is.

    Messages go over gloo between CPUs; gradients over NCCL where they lie on GPUs. Every method that speaks to the others must
    be called by all of them, in the same order. Of a process that was not started with others (:data:`ALONE`) each does
    what it says without a word, and without torch's process groups.

    Attributes:
        rank: Number of this process, from 0.
        size: How many there are.
        joined: Whether there is a process group, be it of one.
        lost: Whether another process could not be reached.

    Example:
        >>> ALONE.size, ALONE.first, ALONE.joined, ALONE.lead(lambda: 7)
        (1, True, False, 7)
    """

    def __init__(self, rank: int = 0, size: int = 1, joined: bool = False, host: Any = None) -> None:
        self.rank, self.size, self.joined = rank, size, joined
        self._host, self._device = host, host
        self.lost, self._count = False, 0

    @property
    def first(self) -> bool:
        """Whether this is the one that writes and prints."""
        return self.rank == 0

    def compute_on(self, device: torch.device) -> None:
        """Say where gradients lie; on GPUs they are added up by NCCL.

        Raises:
            DeviceError: This torch has no NCCL.
            RanksError: Another process computes on another kind of device, or on the same GPU.
        """
        if not self.joined:
            return
        name = self.agree(lambda: _identify(device))
        told: list[list[str]] = [own for own, _ in self.gather([device.type, name])]
        kinds, gpus = [kind for kind, _ in told], [name for _, name in told]
        if len({*kinds}) > 1:
            raise RanksError(
                f"All ranks must compute on the same kind of device, but those of ranks 0 to {self.size - 1} are "
                f"{', '.join(kinds)}. Give `device`: cpu or cuda."
            )
        twice = next((rank for rank, name in enumerate(gpus) if name and name in gpus[:rank]), None)
        if twice is not None:
            raise RanksError(
                f"Every rank needs a GPU of its own, but ranks {gpus.index(gpus[twice])} and {twice} see the same one. Start "
                "as many ranks per machine as it has GPUs, or give `device` cpu."
            )
        if device.type == "cuda" and self._device is self._host:
            torch.cuda.set_device(device)
            self._device = None if dist.get_backend() == "nccl" else dist.new_group(backend="nccl", timeout=_PATIENCE)

    def add(self, tensor: Tensor) -> None:
        """Replace a tensor, on the device that gradients lie on, by its sum over all ranks: the same bits on each."""
        if self.joined:
            group = self._device if tensor.is_cuda else self._host
            self._speak(lambda: dist.all_reduce(tensor, group=group))

    def share(self, value: Any = None, tensors: Mapping[str, Tensor] = MappingProxyType({})) -> Parcel:
        """Return what rank 0 gives: a JSON value, and tensors by name. What others give is not looked at."""
        if not self.joined:
            return value, dict(tensors)
        self._count += 1
        data = _wrap(self._count, value, tensors) if self.first else b""
        size = torch.tensor([len(data)])
        self._speak(lambda: dist.broadcast(size, self._root(), group=self._host))
        buffer = _to_tensor(data) if self.first else torch.empty(int(size), dtype=torch.uint8)
        self._speak(lambda: dist.broadcast(buffer, self._root(), group=self._host))
        return (value, dict(tensors)) if self.first else self._open(buffer)

    def gather(self, value: Any = None, tensors: Mapping[str, Tensor] = MappingProxyType({})) -> list[Parcel]:
        """Return what every rank gives, in their order, on all of them."""
        if not self.joined:
            return [(value, dict(tensors))]
        self._count += 1
        data = _to_tensor(_wrap(self._count, value, tensors))
        sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(self.size)]
        self._speak(lambda: dist.all_gather(sizes, torch.tensor([len(data)]), group=self._host))
        most = max(int(size) for size in sizes)
        padded = torch.zeros(most, dtype=torch.uint8)
        padded[: len(data)] = data
        found = [torch.zeros(most, dtype=torch.uint8) for _ in range(self.size)]
        self._speak(lambda: dist.all_gather(found, padded, group=self._host))
        return [self._open(one[: int(size)]) for one, size in zip(found, sizes, strict=True)]

    def add_values(self, sums: Mapping[str, float]) -> dict[str, float]:
        """Return sums by name over all ranks, added in their order; a rank may lack names."""
        if not self.joined:
            return dict(sums)
        total: dict[str, float] = {}
        for own, _ in self.gather(dict(sums)):
            for name, number in own.items():
                total[name] = total[name] + number if name in total else number
        return total

    def agree(self, work: Callable[[], Value]) -> Value:
        """Do a piece of work on every rank, and go on only if none of them failed.

        Raises:
            RanksError: Another rank failed; rank 0 names all that did.
        """
        if not self.joined:
            return work()
        try:
            value = work()
        except Exception as error:
            self._tell(error)
            raise
        self._tell(None)
        return value

    def lead(self, work: Callable[[], Value]) -> Value:
        """Do a piece of work on rank 0 alone, and return what it gave, a JSON value, on every rank.

        Raises:
            RanksError: Rank 0 failed. There its own error is raised.
        """
        if not self.joined:
            return work()
        found: Any = self.agree(work if self.first else lambda: None)
        value: Value = self.share(found)[0]
        return value

    def _tell(self, error: Exception | None) -> None:
        """Tell all ranks of an error; raise where this one has none and another has."""
        found = [text for text, _ in self.gather(None if error is None else str(error) or type(error).__name__)]
        failed = {rank: text for rank, text in enumerate(found) if text is not None}
        if error is not None:
            _note_told(error, self.first)
        elif failed:
            text = " ".join(f"Rank {rank} failed: {text}" for rank, text in failed.items())
            raise _note_told(RanksError(text), self.first)

    def _open(self, buffer: Tensor) -> Parcel:
        """Return what another rank has sent, if it is its answer to what this one asks."""
        count, value, tensors = _unwrap(buffer)
        if count != self._count:
            raise RanksError(
                f"Rank {self.rank} is at message {self._count}, but another rank at {count}: they do not do the same. Call "
                "`train` with the same arguments on all ranks."
            )
        return value, tensors

    def _root(self) -> int:
        return 0 if self._host is None else dist.get_global_rank(self._host, 0)

    def _speak(self, call: Callable[[], Any]) -> None:
        """Speak to the others; say what it means if they cannot be reached."""
        try:
            call()
        except RuntimeError as error:
            self.lost = True
            raise RanksError(
                f"Rank {self.rank} has lost another rank of the run, which was killed or has failed (its own message says "
                "why), so that the run cannot go on. Its last checkpoint is whole: start all ranks again with `--resume`. "
                f"({str(error).splitlines()[0][:160]})"
            ) from error


ALONE = Ranks()
"""A process of its own, which speaks to nobody."""

_joined: Ranks | None = None
_apart: ContextVar[bool] = ContextVar("steadyrnn_apart", default=False)


def is_launched() -> bool:
    """Say whether this process was started as one of several, by torchrun or with its environment.

    Example:
        >>> is_launched()
        False
    """
    return all(name in os.environ for name in _VARIABLES)


def local_rank() -> int | None:
    """Return the number of this process on its machine; None if it was started alone, or works by itself for a while.

    Example:
        >>> local_rank() is None
        True
    """
    if not is_launched() or _apart.get():
        return None
    return int(os.environ.get("LOCAL_RANK", os.environ["RANK"]))


def join() -> Ranks:
    """Return the processes that this one was started with; the first call makes their group, which lasts to the end.

    Raises:
        RanksError: They cannot be reached.
    """
    global _joined
    if _apart.get():
        return ALONE
    if _joined is None and (is_launched() or _has_group()):
        _joined = _make()
        atexit.register(leave)
    return ALONE if _joined is None else _joined


def current_ranks() -> Ranks:
    """Return the processes that were joined, :data:`ALONE` before."""
    return ALONE if _joined is None or _apart.get() else _joined


def leave() -> None:
    """Leave the group; a second call does nothing."""
    global _joined
    was, _joined = _joined, None
    if was is not None and not was.lost and _has_group():  # one that is gone would be waited for
        dist.destroy_process_group()


@contextmanager
def alone() -> Iterator[None]:
    """Work by itself inside this context, as if it had been started alone: what rank 0 does while others wait.

    Example:
        >>> with alone():
        ...     join() is ALONE
        True
    """
    token = _apart.set(True)
    try:
        yield
    finally:
        _apart.reset(token)


def refuse_ranks(what: str, instead: str) -> None:
    """Refuse what several processes cannot do together.

    Example:
        >>> refuse_ranks("`compare`", "Start it without torchrun.")
    """
    size = int(os.environ["WORLD_SIZE"]) if is_launched() else current_ranks().size
    if size > 1 and not _apart.get():
        first = os.environ.get("RANK", "0") == "0"
        raise _note_told(ArgumentError(f"{what} cannot be run by several ranks, but there are {size}. {instead}"), first)


def _has_group() -> bool:
    return dist.is_available() and dist.is_initialized()


def _make() -> Ranks:
    """Make the group of all processes, or take the one there is; messages need one of gloo."""
    if not dist.is_available() or not dist.is_gloo_available():
        raise DeviceError("This torch has no gloo, by which ranks speak to one another. Train with one process.")
    try:
        if not _has_group():
            dist.init_process_group("gloo", timeout=_PATIENCE)
        host = None if dist.get_backend() == "gloo" else dist.new_group(backend="gloo", timeout=_PATIENCE)
    except (RuntimeError, ValueError) as error:
        raise RanksError(f"The ranks of the run could not find one another: {error}") from error
    return Ranks(dist.get_rank(), dist.get_world_size(), True, host)


def _check_nccl(device: torch.device) -> None:
    """Refuse GPUs where nothing can add up what lies on them."""
    if device.type == "cuda" and not dist.is_nccl_available():
        raise DeviceError(
            "Ranks on GPUs need NCCL, which this torch lacks. Install a torch with it, train with one process, or give "
            "`device` cpu: there gloo adds up the gradients."
        )


def _identify(device: torch.device) -> str:
    """Return a name that no other GPU has, nothing for a CPU; refuse GPUs where there is no NCCL."""
    _check_nccl(device)
    return str(torch.cuda.get_device_properties(device).uuid) if device.type == "cuda" else ""


def _note_told(error: Exception, first: bool) -> Exception:
    """Mark an error that rank 0 tells a person; on other ranks it need not be printed."""
    error.__dict__["told"] = not first
    return error


def _wrap(count: int, value: Any, tensors: Mapping[str, Tensor]) -> bytes:
    """Return a parcel and its number as bytes: the length of the text, the text, the tensors."""
    packed = pack({name: tensor.detach() for name, tensor in tensors.items()})
    text = render({"count": count, "value": encode_exactly(value), "tensors": packed.table}).encode()
    return struct.pack("<q", len(text)) + text + packed.data


def _unwrap(buffer: Tensor) -> tuple[int, Any, dict[str, Tensor]]:
    """Return what :func:`_wrap` was given."""
    data = buffer.numpy().tobytes()
    (length,) = struct.unpack_from("<q", data)
    found = parse(data[8 : 8 + length])
    return found["count"], decode_exactly(found["value"]), unpack(data[8 + length :], found["tensors"])


def _to_tensor(data: bytes | Sequence[int]) -> Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)
