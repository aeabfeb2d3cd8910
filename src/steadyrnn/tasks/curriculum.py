"""Curricula over length: sequences that grow while a network learns, and training batches that differ in length."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

from steadyrnn.errors import ArgumentError

from .base import Stage
from .hashing import Stream, integers
from .settings import CurriculumSettings
from .stream import StreamTask

__all__ = ["GrowingTask", "Part", "read_curriculum"]

_FIRST = 50
"""Length of the first stage of ``auto``, which an untrained network of a few dozen units learns."""
_DEFAULTS = CurriculumSettings()


@dataclass(frozen=True)
class Part:
    """A stage of a curriculum, as it is written.

    Args:
        length: Of its sequences.
        steps: Its share of the steps.
        rate: Factor of the learning rates.
    """

    length: int
    steps: float
    rate: float


def read_curriculum(text: str, full: int, least: int = 1) -> tuple[Part, ...]:
    r"""Return the stages of a curriculum; none for ``none``, and for ``auto`` where the full length is short.

    A network that sums a quantity over L steps is moved by one step of Adam by about L times the learning rate. So rates go as
    1 / L. Steps do too: then every stage costs the same, and the last, which is what counts, has four times that.

    Args:
        text: ``none``, ``auto``, or stages separated by commas, each ``LENGTH`` or ``LENGTH:STEPS:RATE``.
        full: Length of the sequences of the task itself.
        least: The shortest length that the task has.

    Raises:
        ArgumentError: It is none of these, or lengths do not grow up to the full one.

    Example:
        >>> [(part.length, part.rate) for part in read_curriculum("auto", 500)]
        [(50, 1.0), (100, 0.5), (200, 0.25), (500, 0.1)]
        >>> read_curriculum("8:30:1,20:10:0.5", 20)
        (Part(length=8, steps=30.0, rate=1.0), Part(length=20, steps=10.0, rate=0.5))
    """
    if text == "none":
        return ()
    parts = [_Entry(str(length)) for length in _grow(full)] if text == "auto" else [_Entry(word) for word in text.split(",")]
    lengths = [part.length for part in parts]
    if lengths != sorted({*lengths}) or lengths[0] < least or lengths[-1] != full:
        raise ArgumentError(
            f"`curriculum` must have lengths that grow from {least} or more up to the full one, {full}, but has "
            f"{', '.join(map(str, lengths[:20]))}."
        )
    if len({part.rest is None for part in parts}) > 1:
        raise ArgumentError("`curriculum` must give steps and rate of all stages or of none, but gives those of some.")
    if text == "auto" and len(parts) == 1:
        return ()
    return tuple(part.read(lengths[0], last=part is parts[-1]) for part in parts)


def _grow(full: int) -> Iterator[int]:
    """Yield 50, 100, 200, ... up to half the full length, then that."""
    length = _FIRST
    while 2 * length <= full:
        yield length
        length *= 2
    yield full


class _Entry:
    """A stage in words: ``LENGTH`` or ``LENGTH:STEPS:RATE``."""

    def __init__(self, word: str) -> None:
        self.word = word.strip()
        length, *rest = self.word.split(":")
        if not (length.isascii() and length.isdigit()) or len(length) > 20 or len(rest) not in (0, 2):
            raise self._refusal()
        self.length, self.rest = int(length), rest or None

    def read(self, first: int, last: bool) -> Part:
        """Return the stage; ``first`` is the length of the first one."""
        if self.rest is None:
            return Part(self.length, (4 if last else 1) * first / self.length, first / self.length)
        try:
            steps, rate = (float(number) for number in self.rest)
        except ValueError:
            raise self._refusal() from None
        if not (0 < steps < math.inf and 0 < rate < math.inf):
            raise self._refusal()
        return Part(self.length, steps, rate)

    def _refusal(self) -> ArgumentError:
        return ArgumentError(
            "`curriculum` must be 'none', 'auto' or stages separated by commas, each LENGTH or LENGTH:STEPS:RATE with numbers "
            f"above 0, but one is {self.word[:60]!r}."
        )


class GrowingTask(StreamTask):
    """A task whose sequences can grow while a network learns.

    Validation and test have the full length.

    Args:
        settings: Their length is the full one.
    """

    settings: CurriculumSettings
    grows: ClassVar[str]
    """The setting that is the length."""
    least: ClassVar[int] = 1
    """The shortest length there is."""

    def __init__(self, settings: CurriculumSettings) -> None:
        super().__init__(settings)
        self.settings = settings
        self._parts = read_curriculum(settings.curriculum, getattr(settings, self.grows), self.least)
        below = settings.curriculum_below
        if below is not None and not 0 < below < math.inf:
            raise ArgumentError(f"`curriculum_below` must be a number above 0, or None for never, but is {below}.")
        if settings.curriculum == "none" and below != _DEFAULTS.curriculum_below:
            raise ArgumentError("`curriculum_below` has no effect: `curriculum` is 'none'. Leave it out.")
        if not 0 < settings.shortest <= 1:
            raise ArgumentError(f"`shortest` must be above 0 and at most 1, but is {settings.shortest}.")

    @property
    def stages(self) -> tuple[Stage, ...]:
        """Shorter sequences first, if the settings ask for them."""
        below = self.settings.curriculum_below
        return tuple(
            Stage(f"{self.grows} {part.length}", self._of_length(part.length), part.steps, part.rate, below)
            for part in self._parts
        )

    @property
    def varies(self) -> bool:
        """Whether training batches have lengths of their own."""
        return self.settings.shortest < 1

    def _at(self, step: int) -> StreamTask:
        if not self.varies:
            return self
        longest: int = getattr(self.settings, self.grows)
        first = max(self.least, math.ceil(self.settings.shortest * longest))
        drawn = integers(self.settings.seed, Stream.LENGTH, step, 0, below=longest - first + 1)
        return self._of_length(first + int(drawn), shortest=1.0)

    def _of_length(self, length: int, **more: float) -> Self:
        """Return this task with sequences of another length, and no stages."""
        none = {"curriculum": "none", "curriculum_below": _DEFAULTS.curriculum_below}
        changes: dict[str, Any] = {self.grows: length, **none, **more}
        task = type(self)(replace(self.settings, **changes))
        task.to(self.device)
        return task
