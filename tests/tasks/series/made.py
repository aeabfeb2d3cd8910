"""Series and tasks made in memory."""

from collections.abc import Sequence

import torch
from torch import Tensor

from steadyrnn.tasks.series.records import RawTarget, SeriesSet
from steadyrnn.tasks.series.settings import SeriesSettings
from steadyrnn.tasks.series.task import SeriesTask, task_of

__all__ = ["classes", "made", "make", "numbers", "windows_or_stream"]


def made(
    lengths: Sequence[int],
    channels: int = 1,
    target: RawTarget | None = None,
    seed: int = 0,
    missing: float = 0.0,
    **more: object,
) -> SeriesSet:
    """Return series of Gaussian numbers; a share of them is missing."""
    draw = torch.Generator().manual_seed(seed)
    steps = sum(lengths)
    values = torch.randn(steps, channels, generator=draw, dtype=torch.float64)
    gaps = torch.rand(steps, channels, generator=draw) < missing
    names = tuple(f"s{place}" for place in range(len(lengths)))
    return SeriesSet(
        values.masked_fill(gaps, torch.nan), torch.tensor([*lengths]), tuple("xyzuvw"[:channels]), names, target, **more
    )  # type: ignore[arg-type]


def classes(count: int, kinds: int = 2, each: bool = True) -> RawTarget:
    """Return classes in turn, as text."""
    return RawTarget(("kind",), texts=tuple("abcdefgh"[place % kinds] for place in range(count)), each=each)


def numbers(count: int, each: bool = True, columns: int = 1, seed: int = 0) -> RawTarget:
    """Return Gaussian numbers."""
    drawn = torch.randn(count, columns, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return RawTarget(tuple("pqr"[:columns]), numbers=drawn, each=each)


def make(series: SeriesSet, test: SeriesSet | None = None, **settings: object) -> SeriesTask:
    """Return the task of some series."""
    return task_of(series, SeriesSettings(**settings), test)  # type: ignore[arg-type]


def windows_or_stream(task: SeriesTask, part: str) -> list[tuple[Tensor, Tensor]]:
    """Return inputs and targets of all batches of a part."""
    return [(batch.input, batch.target) for batch in task.batches(part, 7)]
