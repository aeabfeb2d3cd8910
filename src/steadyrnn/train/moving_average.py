"""Sums between two lines of training metrics, kept on the device until they are read."""

import time

import torch
from torch import Tensor

__all__ = ["MovingAverage"]


class MovingAverage:
    """Sums over the steps since the last line: losses, gradient norms, rows, seconds spent in training alone.

    Args:
        device: Where losses are.

    Example:
        >>> average = MovingAverage(torch.device("cpu"))
        >>> average.add(torch.tensor(2.0), torch.tensor(1.0), rows=8)
        >>> average.add(torch.tensor(4.0), torch.tensor(3.0), rows=8)
        >>> average.means()
        (3.0, 2.0)
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.running: float | None = None
        self.loss, self.norm = (torch.zeros((), device=device, dtype=torch.float64) for _ in range(2))
        self.steps, self.rows, self.seconds = 0, 0, 0.0

    def clear(self) -> None:
        """Start anew; the sums stay where they are, as a captured step adds to them."""
        self.loss.zero_()
        self.norm.zero_()
        self.steps, self.rows, self.seconds = 0, 0, 0.0

    def add(self, loss: Tensor, norm: Tensor, rows: int) -> None:
        """Add a step."""
        self.add_values(loss, norm)
        self.count(rows)

    def add_values(self, loss: Tensor, norm: Tensor) -> None:
        """Add the values of a step, on the device."""
        self.loss += loss
        self.norm += norm

    def count(self, rows: int) -> None:
        """Count a step, on the host."""
        self.steps += 1
        self.rows += rows

    def means(self) -> tuple[float, float]:
        """Return the mean loss and gradient norm; waits for the device."""
        loss, norm = torch.stack([self.loss, self.norm]).tolist()
        return loss / max(self.steps, 1), norm / max(self.steps, 1)

    def resume(self) -> None:
        """Let the clock run."""
        self.running = time.perf_counter()

    def pause(self) -> None:
        """Stop the clock: what follows is not training."""
        if self.running is not None:
            self.seconds += time.perf_counter() - self.running
            self.running = None
