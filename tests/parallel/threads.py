"""Ranks that are threads of one process, so that many runs over ranks can be checked quickly."""

import threading
from collections.abc import Callable, Sequence
from queue import Queue
from typing import Any, TypeVar

import torch
from torch import Tensor

from steadyrnn.parallel.ranks import Ranks

__all__ = ["ThreadRanks", "run_threads"]

V = TypeVar("V")
PATIENCE = 60.0
"""Seconds after which a thread that waits for another fails: nothing here takes one."""


class Board:
    """What the threads of one group see of one another."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.barrier = threading.Barrier(size)
        self.slots: list[Any] = [None] * size
        self.mail: dict[tuple[int, int], Queue[Tensor]] = {(a, b): Queue() for a in range(size) for b in range(size)}


class ThreadRanks(Ranks):
    """One of them."""

    def __init__(self, board: Board, rank: int) -> None:
        self.board, self.rank, self.size = board, rank, board.size
        self.calls: list[str] = []
        self.scalars = self.tensors = 0  # bytes sent

    def __deepcopy__(self, memo: object) -> "ThreadRanks":
        return self

    def everyone(self, given: Any, name: str) -> list[Any]:
        self.calls.append(name)
        self.board.slots[self.rank] = (name, given)
        self.board.barrier.wait(PATIENCE)
        found = list(self.board.slots)
        self.board.barrier.wait(PATIENCE)
        assert {kind for kind, _ in found} == {name}  # all ranks make the same calls in the same order
        return [one for _, one in found]

    def gather(self, row: Sequence[float]) -> list[list[float]]:
        self.scalars += 8 * len(row)
        rows = self.everyone(list(row), "gather")
        assert len({len(one) for one in rows}) == 1
        return rows

    def transfer(self, sent: Tensor | None, receiver: int, like: Tensor | None, sender: int) -> Tensor | None:
        self.calls.append("transfer")
        if sent is not None:
            self.tensors += sent.numel() * sent.element_size()
            self.board.mail[self.rank, receiver].put(sent.detach().clone())
        if like is None:
            return None
        got = self.board.mail[sender, self.rank].get(timeout=PATIENCE)
        assert (got.shape, got.dtype) == (like.shape, like.dtype)
        return got

    def share(self, tensor: Tensor, source: int) -> Tensor:
        self.tensors += tensor.numel() * tensor.element_size() if self.rank == source else 0
        shared: Tensor = self.everyone(tensor.detach().clone(), "share")[source]
        assert shared.shape == tensor.shape
        return shared.clone()

    def add(self, tensor: Tensor) -> Tensor:
        self.tensors += tensor.numel() * tensor.element_size()
        return torch.stack(self.everyone(tensor.detach().clone(), "add")).sum(0)


def run_threads(size: int, work: Callable[[ThreadRanks], V]) -> list[V]:
    """Run ``work`` once per rank, all at once; return what they return, or raise what the first of them raised."""
    board = Board(size)
    found: list[Any] = [None] * size
    failed: list[BaseException | None] = [None] * size
    grad, dtype = torch.is_grad_enabled(), torch.get_default_dtype()

    def run(rank: int) -> None:
        try:
            torch.set_default_dtype(dtype)
            with torch.set_grad_enabled(grad):
                found[rank] = work(ThreadRanks(board, rank))
        except BaseException as error:  # it is raised below
            failed[rank] = error
            board.barrier.abort()

    threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(4 * PATIENCE)
    causes = [error for error in failed if error is not None]
    if causes:
        raise next((one for one in causes if not isinstance(one, threading.BrokenBarrierError)), causes[0])
    assert all(queue.empty() for queue in board.mail.values())  # whatever was sent has been received
    return found
