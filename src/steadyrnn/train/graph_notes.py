"""What is to be said of captured steps: whether they are, and why not, each once."""

from collections.abc import Callable, Mapping
from typing import Any

from .progress import Progress

__all__ = ["GraphNotes"]


class GraphNotes:
    """Collects what a run learns of its captured steps, and says each once.

    Example:
        >>> from steadyrnn.train.progress import Silent
        >>> notes, lines = GraphNotes(), []
        >>> notes.add(False, "the device is cpu")
        >>> for _ in range(2):
        ...     notes.say(lambda kind, values, alone: lines.append(values), Silent())
        >>> lines
        [{'captured': False, 'why': 'the device is cpu'}]
    """

    def __init__(self) -> None:
        self._said: dict[tuple[bool, str], bool] = {}

    def add(self, captured: bool, why: str) -> None:
        """Note whether steps are captured and, if not, why."""
        self._said.setdefault((captured, why), False)

    def say(self, log: Callable[[str, Mapping[str, Any], bool], None], progress: Progress) -> None:
        """Log what is new, and show it; capturing may fail on one rank alone, or at another step."""
        for (captured, why), said in self._said.items():
            if not said:
                log("graph", {"captured": captured} | ({"why": why} if why else {}), True)
                progress.note("steps are captured as CUDA graphs" if captured else f"steps run without CUDA graphs: {why}")
                self._said[captured, why] = True
