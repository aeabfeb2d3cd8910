"""Small files of series, and the words that train on them in a second."""

import random
from pathlib import Path

__all__ = ["QUICK", "WAVES", "steps_of_one", "waves"]

QUICK = [
    *("--train.steps", "4", "--train.batch_size", "8", "--model.width", "4", "--device", "cpu"),
    *("--train.optimizer.lr", "0.01"),
]
WAVES = ["waves.csv", "--target", "kind", "--series", "id"]


def waves(path: str | Path = "waves.csv", count: int = 20, seed: int = 0, steps: int = 9) -> None:
    """Write series of two channels, of two classes."""
    draw = random.Random(seed)
    lines = ["id,x,y,kind"]
    for name in range(count):
        lines += [f"{name},{(name % 2 + 1) * step % 3},{draw.random():.3f},{'ab'[name % 2]}" for step in range(steps)]
    Path(path).write_text("\n".join(lines) + "\n", encoding="utf-8")


def steps_of_one(path: str | Path = "long.csv", steps: int = 120, seed: int = 0) -> None:
    """Write one series with a class and a number at each step."""
    draw = random.Random(seed)
    lines = ["x,y,label,level"]
    lines += [f"{draw.random():.3f},{draw.random():.3f},{'uv'[step % 2]},{draw.gauss(0, 3):.3f}" for step in range(steps)]
    Path(path).write_text("\n".join(lines) + "\n", encoding="utf-8")
