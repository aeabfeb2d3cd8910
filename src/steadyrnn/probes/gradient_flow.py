"""Gradient flow: how large the derivatives through time are, lag by lag, beside what is proven of them."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from steadyrnn.errors import ArgumentError

from .adjoint import walk_back
from .band import certified_band
from .losses import Loss, loss_partials
from .picture import draw_flow
from .unrolled import unroll

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["GradientFlow", "gradient_flow"]


@dataclass(frozen=True, eq=False)
class GradientFlow:
    """Norms of derivatives through time by lag, measured and certified. Tensors of shape (N,), float64, on the CPU.

    Args:
        lag: Number of steps between the two ends, from 0 on; int64.
        frobenius: The largest Frobenius norm of any row of the batch.
        spectral: The largest spectral norm; for a loss, whose gradient is a vector, the same as ``frobenius``.
        low: What no row's spectral norm is below, by proof; NaN where no theorem says anything.
        high: What no row's spectral norm is above.
        frobenius_low: As ``low``, for the Frobenius norm.
        frobenius_high: As ``high``, for the Frobenius norm.
        frobenius_mean: The mean over rows (and times, for a loss a step).
        spectral_mean: The mean over rows.
        frobenius_least: The least of any row.
        spectral_least: The least of any row.
        quantity: What was differentiated by what.
        source: Where the proof of the band is, or why there is none.

    Example:
        >>> flow = gradient_flow(sr.RNN(2, 4, nonlinearity="abs", transition="ornn"), torch.randn(6, 3, 2))
        >>> flow.frobenius.round(decimals=4)
        tensor([2., 2., 2., 2., 2., 2., 2.], dtype=torch.float64)
    """

    lag: Tensor
    frobenius: Tensor
    spectral: Tensor
    low: Tensor
    high: Tensor
    frobenius_low: Tensor
    frobenius_high: Tensor
    frobenius_mean: Tensor
    spectral_mean: Tensor
    frobenius_least: Tensor
    spectral_least: Tensor
    quantity: str
    source: str

    def plot(self, path: str | Path | None = None, norm: str = "spectral") -> "Figure":
        """Draw what was measured against the certified band, on a logarithmic scale.

        Needs matplotlib (the extra ``report``).

        Args:
            path: Where to save the picture, in the format its end names; None saves nothing.
            norm: ``"spectral"`` or ``"frobenius"``.

        Returns:
            The figure, a matplotlib object that belongs to no window.

        Example:
            >>> figure = gradient_flow(sr.RNN(2, 4), torch.randn(6, 3, 2)).plot()
            >>> figure.axes[0].get_yscale()
            'log'
        """
        if norm not in ("spectral", "frobenius"):
            raise ArgumentError(f"`norm` must be 'spectral' or 'frobenius', but is {norm!r}.")
        first = "frobenius_" if norm == "frobenius" else ""
        least, mean, largest = (getattr(self, name) for name in (f"{norm}_least", f"{norm}_mean", norm))
        band = getattr(self, f"{first}low"), getattr(self, f"{first}high")
        return draw_flow(self.lag, (least, mean, largest), band, f"{norm} norm of {self.quantity}", path)


def gradient_flow(module: nn.Module, input: Tensor, loss: Loss | None = None, wrt: str = "state") -> GradientFlow:
    r"""Measure how gradients flow back through time, and say within which bounds they must.

    Without a loss the norms are those of the Jacobians, by lag :math:`T - t`,

    .. math:: \frac{\partial s_T}{\partial s_t} = \prod_{i=t+1}^{T} J_i, \qquad J_i = \frac{\partial s_i}{\partial s_{i-1}}
        \qquad (\texttt{wrt="state"}), \qquad
        \frac{\partial s_T}{\partial x_t} \qquad (\texttt{wrt="input"}),

    with a loss :math:`L` those of :math:`dL/ds_t` or :math:`dL/dx_t`. A loss that returns one value :math:`p_u` a step
    gives :math:`dp_{t+i}/ds_t` or :math:`dp_{t+i}/dx_t` by distance i, over all t.

    The state s is h for an RNN and a GRU and the pair (h, c) for an LSTM, which carries its gradient in c. Of a stack it
    is the top layer's: no layer depends on one above it, so the product of the top layer's own Jacobians is the whole
    derivative; ``wrt="input"`` goes through all layers. At lag T stands the initial state, zero or the learned one.
    Dropout is left out.

    States are those of the module in its own dtype, step by step; derivatives are taken at these states in float64, of
    the weights as stored. So no rounding of single precision is measured, and what is measured lies in the band up to a
    relative rounding of about :math:`T H 2^{-53}`. A norm beyond the range of float64 is reported as infinity.

    The band is that of Note [mathematics], section 3.3, for an RNN. A GRU or LSTM has the upper bound of section 7, for inputs
    as long as the longest one here.
    A gradient of a loss is bounded by the sum of what the loss sees at later times, each times its Jacobian's bound.

    One pass forwards and one backwards, in which all rows of the Jacobian go through a step as one batch:
    :math:`O(T B G H^3)` operations without a loss, :math:`O(T B G H^2)` with one, :math:`T/2` times that for one a step.
    Memory: T states and one Jacobian of :math:`B H^2` numbers (T vectors for a loss a step).

    Args:
        module: An RNN, GRU or LSTM of this package or of ``torch.nn``, in one direction, or a ``SequenceModel`` of one.
        input: As the module takes it: (T, B, D), (B, T, D) if ``batch_first``, or (T, D) unbatched; tokens without D,
            which then go through the embedding.
        loss: From the outputs in the module's form (the logits of a ``SequenceModel``) to one number, or to one a step,
            shape (T,) or as the outputs without their last dimension.
        wrt: ``"state"`` or ``"input"``.

    Returns:
        The norms by lag: 0 to T for states, 0 to T - 1 for inputs.

    Raises:
        NotFiniteError: A weight, the input or a state is NaN or infinite.

    Example:
        >>> gru = torch.nn.GRU(3, 8)
        >>> flow = gradient_flow(gru, torch.randn(10, 4, 3), loss=lambda outputs: outputs[-1].square().sum())
        >>> flow.lag[-1], bool(flow.spectral[-1] < flow.spectral[0])
        (tensor(10), True)

    References:
        Lin, Wang. uRNN: An Approach to Bounded Gradients (Theorem 1, Figure 4).
        Miller, Hardt. When Recurrent Models Don't Need To Be Recurrent (Figure 2: a loss a step, by its input).
        https://arxiv.org/abs/1805.10369
    """
    if wrt not in ("state", "input"):
        raise ArgumentError(f"`wrt` must be 'state' or 'input', but is {wrt!r}.")
    run = unroll(module, input)
    partials = None if loss is None else loss_partials(run, loss)
    tally = walk_back(run.top() if wrt == "state" else run, partials, wrt)
    band = certified_band(run, partials, wrt)
    largest, mean, least = tally.largest.cpu(), tally.mean.cpu(), tally.least.cpu()  # Frobenius, spectral; (2, N) each
    return GradientFlow(
        lag=torch.arange(largest.shape[1], device="cpu"),
        frobenius=largest[0],
        spectral=largest[1],
        low=band.spectral[0],
        high=band.spectral[1],
        frobenius_low=band.frobenius[0],
        frobenius_high=band.frobenius[1],
        frobenius_mean=mean[0],
        spectral_mean=mean[1],
        frobenius_least=least[0],
        spectral_least=least[1],
        quantity=_quantity(None if partials is None else partials.per_step, wrt),
        source=band.source,
    )


def _quantity(per_step: bool | None, wrt: str) -> str:
    """Return what is differentiated by what, for people."""
    below = "s" if wrt == "state" else "x"
    if per_step is None:
        return f"ds_T / d{below}_t"
    return f"dp_(t+lag) / d{below}_t" if per_step else f"dL / d{below}_t"
