"""A picture of gradient norms by lag: what was measured, inside what is certified."""

from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw_flow"]


def draw_flow(
    lag: Tensor, measured: tuple[Tensor, Tensor, Tensor], band: tuple[Tensor, Tensor], title: str, path: str | Path | None
) -> "Figure":
    """Draw norms by lag on a logarithmic scale, and save the picture if a path is given.

    A bound of 0 lies below every logarithmic axis: the band then reaches down to its lower edge. A bound that is NaN
    (no theorem) or infinite is not drawn.

    Args:
        lag: Shape (N,).
        measured: The least, mean and largest norm at each lag, shape (N,) each.
        band: Lower and upper bound, shape (N,) each.
        title: What the norms are of.
        path: Where to save, or None.

    Example:
        >>> lag, ones = torch.arange(3), torch.ones(3)
        >>> draw_flow(lag, (ones, ones, ones), (0.5 * ones, 2 * ones), "norm", None).axes[0].get_title()
        'norm'
    """
    from matplotlib.figure import Figure  # an extra

    figure = Figure(figsize=(6.4, 4.0), layout="constrained")
    axes = figure.add_subplot(xlabel="lag", yscale="log", title=title)
    least, mean, largest = measured
    axes.plot(lag.tolist(), _drawable(largest), label="measured, largest", color="C0")
    axes.plot(lag.tolist(), _drawable(mean), label="measured, mean", color="C0", linestyle="--")
    axes.plot(lag.tolist(), _drawable(least), label="measured, least", color="C0", linestyle=":")
    _fill(axes, lag, *band)
    axes.legend()
    if path is not None:
        figure.savefig(path)
    return figure


def _fill(axes: "Axes", lag: Tensor, low: Tensor, high: Tensor) -> None:
    """Shade the certified band, if there is one."""
    if not bool(high.isfinite().any()):
        return
    floor = axes.get_ylim()[0]
    bottom = torch.where(low > floor, low, floor)
    axes.fill_between(lag.tolist(), _drawable(bottom), _drawable(high), color="C2", alpha=0.2, label="certified")
    axes.plot(lag.tolist(), _drawable(high), color="C2", linewidth=1)
    axes.plot(lag.tolist(), _drawable(low), color="C2", linewidth=1)


def _drawable(values: Tensor) -> list[float]:
    """Return what a logarithmic axis can show; the rest leaves a gap."""
    return torch.where(values.isfinite() & (values > 0), values, torch.nan).tolist()
