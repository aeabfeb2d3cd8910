"""The folder of several runs that differ by their seeds: which seeds, and how they are trained; free of torch."""

import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from steadyrnn.errors import RunError
from steadyrnn.runs.files import write_atomically
from steadyrnn.runs.json_text import parse_file, render
from steadyrnn.runs.regular import read_if_there

__all__ = ["CHECKPOINT", "MOST_SEEDS", "SEEDS", "SeedsPlan", "parse_seeds", "read_plan", "seed_folder", "write_plan"]

SEEDS = "seeds.json"
"""What makes a folder one of several runs."""

CHECKPOINT = "group"
"""Where the checkpoint of a whole group is, beside the folders of its runs."""

MOST_SEEDS = 100
"""Of one call: all folders are held at once, and a system lends a process some hundred files."""

_FORMAT = 1


@dataclass(frozen=True)
class SeedsPlan:
    """How several runs are trained that differ by their seeds.

    Args:
        seeds: Of the runs, in order.
        together: Whether they are trained as a group.
        reason: Why not, else empty.
    """

    seeds: tuple[int, ...]
    together: bool
    reason: str = ""


def seed_folder(folder: Path, seed: int) -> Path:
    """Return the run folder of a seed.

    Example:
        >>> seed_folder(Path("runs/addition/gru/20260101-120000-abcdef"), 3).name
        'seed-3'
    """
    return folder / f"seed-{seed}"


def write_plan(folder: Path, plan: SeedsPlan) -> None:
    """Write the file that makes a folder one of several runs."""
    write_atomically(folder / SEEDS, render({"format": _FORMAT, **asdict(plan)}).encode())


def read_plan(folder: Path) -> SeedsPlan | None:
    """Return the plan of a folder, None where it is none of several runs.

    Raises:
        RunError: Its file is damaged, or of another release.
    """
    data = read_if_there(folder / SEEDS)
    if data is None:
        return None
    stored: Any = parse_file(data, folder / SEEDS)
    match stored:
        case {"format": 1, "seeds": [*seeds], "together": bool(together), "reason": str(reason)}:
            if seeds and all(type(seed) is int and 0 <= seed < 2**64 for seed in seeds) and len({*seeds}) == len(seeds):
                return SeedsPlan(tuple(seeds), together, reason)
    raise RunError(f"`{folder / SEEDS}` is damaged, or of another release: it does not have the fields of a plan of seeds.")


def parse_seeds(text: str, most: int) -> list[int]:
    """Return the seeds of ``0..9`` or ``0,2,5``; none where the text is neither, or stands for more than ``most``.

    Example:
        >>> parse_seeds("0..3", 10), parse_seeds("0,2,5", 10), parse_seeds("all", 10)
        ([0, 1, 2, 3], [0, 2, 5], [])
    """
    found = re.fullmatch(r"(\d{1,9})\.\.(\d{1,9})", text)
    if found:
        first, last = int(found[1]), int(found[2])
        seeds = [*range(first, min(last, first + most) + 1)]
    else:
        seeds = [*map(int, text.split(","))] if re.fullmatch(r"\d{1,9}(,\d{1,9})*", text) else []
    return seeds if len(seeds) <= most else []
