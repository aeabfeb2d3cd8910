"""Ranks that run one series together: what they send one another, and how they fail together."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from steadyrnn import errors
from steadyrnn.errors import ArgumentError, ConversionError, EngineError, SteadyError

__all__ = ["Alone", "GroupRanks", "Ranks", "ranks_of"]

V = TypeVar("V")
_TEXT = 1024
"""Bytes of an error's text that the other ranks are told."""


class Ranks(ABC):
    """Ranks of a group, each of which calls the same methods in the same order.

    Laws: what is sent arrives unchanged; no rank waits for one that makes the same calls.
    """

    rank: int
    size: int

    @abstractmethod
    def gather(self, row: Sequence[float]) -> list[list[float]]:
        """Return the rows of all ranks; every rank gives one of the same length."""

    @abstractmethod
    def transfer(self, sent: Tensor | None, receiver: int, like: Tensor | None, sender: int) -> Tensor | None:
        """Send a tensor to ``receiver`` and return one from ``sender``, of the shape of ``like``; None is nothing."""

    @abstractmethod
    def share(self, tensor: Tensor, source: int) -> Tensor:
        """Return the tensor of rank ``source``; the others give one of its shape and dtype."""

    @abstractmethod
    def add(self, tensor: Tensor) -> Tensor:
        """Return the sum of the tensors of all ranks."""

    def prepare(self, device: torch.device) -> None:  # noqa: B027 - most need not know
        """Learn on which device the layer runs."""

    def together(
        self, compute: Callable[[], V], numbers: Callable[[V], Sequence[float]], width: int
    ) -> tuple[V, list[list[float]]]:
        """Compute on every rank, and return the result and the numbers of all ranks; if one fails, all raise its error.

        Args:
            compute: What needs no other rank.
            numbers: What the others are told of the result.
            width: How many numbers they are at most.
        """
        failure: Exception | None = None
        row = [0.0] * width
        try:
            found = compute()
            told = [float(number) for number in numbers(found)]
            row[: len(told)] = told
        except Exception as error:  # whatever it is, the others must not wait
            failure = error
        table = self.gather([float(failure is not None), *row])
        failed = [rank for rank, line in enumerate(table) if line[0]]
        if failed:
            self.fail(failed[0], failure)
        return found, [line[1:] for line in table]

    def fail(self, source: int, failure: Exception | None) -> None:
        """Raise on every rank the error of rank ``source``."""
        text = b"" if failure is None else f"{type(failure).__name__}\n{failure}".encode()[:_TEXT]
        sent = torch.zeros(_TEXT, dtype=torch.uint8, device="cpu")
        sent[: len(text)] = torch.tensor(list(text), dtype=torch.uint8, device="cpu")
        heard = bytes(self.share(sent, source).cpu().tolist()).rstrip(b"\0").decode(errors="ignore")
        kind, _, message = heard.partition("\n")
        if source == self.rank and failure is not None and not isinstance(failure, SteadyError):
            raise failure
        known = getattr(errors, kind, None)
        if isinstance(known, type) and issubclass(known, SteadyError):
            raise known(f"rank {source}: {message}") from failure
        raise EngineError(f"rank {source} failed with {kind}: {message}") from failure


class Alone(Ranks):
    """One process without a group: nothing is sent.

    Example:
        >>> Alone().together(lambda: 2, lambda found: [found], 1)
        (2, [[2]])
    """

    rank, size = 0, 1

    def gather(self, row: Sequence[float]) -> list[list[float]]:
        """Return the own row."""
        return [list(row)]

    def transfer(self, sent: Tensor | None, receiver: int, like: Tensor | None, sender: int) -> Tensor | None:
        """Return nothing: there is nobody to send to."""
        return None

    def share(self, tensor: Tensor, source: int) -> Tensor:
        """Return the tensor."""
        return tensor

    def add(self, tensor: Tensor) -> Tensor:
        """Return the tensor."""
        return tensor

    def together(
        self, compute: Callable[[], V], numbers: Callable[[V], Sequence[float]], width: int
    ) -> tuple[V, list[list[float]]]:
        """Compute; an error is what it is."""
        found = compute()
        return found, [list(numbers(found))]


class GroupRanks(Ranks):
    """The ranks of a process group of ``torch.distributed``.

    Args:
        group: The group; None is the default one.
    """

    def __init__(self, group: dist.ProcessGroup | None) -> None:
        self.group = group
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)
        self.device = torch.device("cpu")

    def __deepcopy__(self, memo: dict[int, Any]) -> "GroupRanks":
        """Return the same object: processes cannot be copied."""
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """Save that it is the default group: what it consists of is another process's to say."""
        if self.group is not None:
            raise ConversionError("a layer converted for a group of some processes cannot be saved: save `fast.layer`.")
        return ranks_of, (True,)

    def prepare(self, device: torch.device) -> None:
        """Send from the layer's device where the group can, and from the CPU otherwise."""
        direct = device.type == "cuda" and "cuda:nccl" in str(dist.get_backend_config(self.group))
        self.device = device if direct else torch.device("cpu")

    def gather(self, row: Sequence[float]) -> list[list[float]]:
        """Return the rows of all ranks."""
        own = torch.tensor(list(row), dtype=torch.float64, device=self.device)
        rows = [torch.empty_like(own) for _ in range(self.size)]
        dist.all_gather(rows, own, group=self.group)
        found: list[list[float]] = torch.stack(rows).tolist()
        return found

    def transfer(self, sent: Tensor | None, receiver: int, like: Tensor | None, sender: int) -> Tensor | None:
        """Send and receive at once, so that no rank waits for another that waits for it."""
        operations, found = [], None
        if sent is not None:
            leaving = sent.detach().to(self.device).contiguous()
            operations.append(dist.P2POp(dist.isend, leaving, self._global(receiver), self.group))
        if like is not None:
            found = torch.empty(like.shape, dtype=like.dtype, device=self.device)
            operations.append(dist.P2POp(dist.irecv, found, self._global(sender), self.group))
        if operations:
            for work in dist.batch_isend_irecv(operations):
                work.wait()
        return None if found is None or like is None else found.to(like.device)

    def share(self, tensor: Tensor, source: int) -> Tensor:
        """Broadcast."""
        found = tensor.detach().to(self.device, copy=True).contiguous()
        dist.broadcast(found, self._global(source), group=self.group)
        return found.to(tensor.device)

    def add(self, tensor: Tensor) -> Tensor:
        """Sum over all ranks."""
        found = tensor.detach().to(self.device, copy=True).contiguous()
        dist.all_reduce(found, group=self.group)
        return found.to(tensor.device)

    def _global(self, rank: int) -> int:
        return rank if self.group is None else dist.get_global_rank(self.group, rank)


def ranks_of(group: object) -> Ranks:
    """Return the ranks that ``group`` names: None or False is this process alone, True the default group.

    Example:
        >>> ranks_of(None).size
        1
    """
    if group is None or group is False:
        return Alone()
    if not dist.is_available() or not dist.is_initialized():
        raise ArgumentError(
            "`group` needs the process group of torch.distributed, and there is none. Call "
            "`torch.distributed.init_process_group` in every process first, for example under `torchrun`."
        )
    if group == dist.GroupMember.NON_GROUP_MEMBER:  # what a process gets for a group that it is not in
        raise ArgumentError("`group` must contain the process that converts the layer, but it is not a member of this one.")
    if group is not True and not isinstance(group, dist.ProcessGroup):
        raise ArgumentError(
            f"`group` must be True (every process), a process group of torch.distributed or None, but is {group!r}."
        )
    return GroupRanks(None if group is True else group)
