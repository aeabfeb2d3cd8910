"""What a user of data of one's own can leave open; free of torch."""

__all__ = ["AUTO", "TASK", "WANTS"]

AUTO = "auto"
"""The model's name that leaves the choice to us."""

TASK = "series"
"""The task that reads a user's own file."""

WANTS = {
    "memory": "norms of gradients are kept through time, for series of many steps",
    "stability": "a proven contraction: the state forgets, and small disturbances stay small",
    "speed": "few operations per step",
}
"""What a user can want of a model, and what it means."""
