"""How far computed states are from the true ones, by what each step leaves over (Note [mathematics], section 6.6)."""

from torch import Tensor

from .memory import check_rate, geometric_sums
from .norms import product_above

__all__ = ["residual_errors"]


def residual_errors(rate: float, residuals: Tensor) -> Tensor:
    r"""Return a bound on the error of every computed state, from the residual of every step (Note [mathematics], section 6.6).

    .. math:: e_t = \lambda e_{t-1} + r_t, \quad e_0 = 0, \qquad r_t = N(\hat s_t - \Phi(\hat s_{t-1}, x_t))

    The states :math:`\hat s_t` may come from anywhere: another precision, windows of time, another program. The true ones
    obey :math:`s_t = \Phi(s_{t-1}, x_t)` and start from the same :math:`s_0`. So

    .. math::
        N(\hat s_t - s_t) \le r_t + N(\Phi(\hat s_{t-1}, x_t) - \Phi(s_{t-1}, x_t))
        \le r_t + \lambda N(\hat s_{t-1} - s_{t-1}),

    which is the recursion; so no error is above :math:`\max_t r_t / (1 - \lambda)`. Truncation and rounding are both in it,
    and nothing is assumed of either. Where a step is evaluated with an error, or its input has one, what that does to
    the step is part of :math:`r_t`. The sum is computed by doubling, in at most :math:`\log_2 T` passes.

    Args:
        rate: :math:`\lambda < 1`, of the contraction in N.
        residuals: :math:`r_t`, rounded up, shape ``(T, ...)``. From one that is
            NaN or infinite on, so are the errors: a GPU is not waited for.

    Returns:
        :math:`e_t`, shape ``(T, ...)``, float64, rounded up.

    Example:
        >>> residual_errors(0.5, torch.tensor([0.0, 1.0, 0.0, 2.0])).round(decimals=6)
        tensor([0.0000, 1.0000, 0.5000, 2.2500], dtype=torch.float64)
    """
    return geometric_sums(product_above(check_rate(rate)), residuals.detach().double())
