"""How far the gradient of a run in windows of time is from that of the sequential one (Note [mathematics], section 6.4)."""

import torch
from torch import Tensor

from steadyrnn.checks import check_count, check_finite, check_number

from .gradients import Constants
from .memory import boundary_errors, check_rate, required_warmup, truncation_error, warmup_error
from .norms import ROUND_OFF, above, product_above

__all__ = [
    "adjoint_error",
    "masked_gradient_error",
    "masks_agree",
    "measured_window_gradient_error",
    "required_adjoint_warmup",
    "window_gradient_error",
]


def adjoint_error(rate: float, loss_gain: float, warmup: int, distance: int = 0) -> float:
    r"""Return the error of an adjoint that was started from zero to the right of its window (Note [mathematics], section 6.4).

    .. math:: \lambda^{k_b + 1 + d} A, \qquad A = G / (1 - \lambda)

    The adjoint recursion contracts by :math:`\lambda` in the dual norm, and no adjoint is larger than A.

    Args:
        rate: :math:`\lambda`.
        loss_gain: G, a bound on the gradient of each step's loss.
        warmup: :math:`k_b`, the steps to the right of the window.
        distance: d, from the window's last step.

    Example:
        >>> round(adjoint_error(0.5, 1.0, warmup=1), 6)
        0.5
    """
    return warmup_error(rate, _largest_adjoint(rate, loss_gain), warmup, 1 + check_count("distance", distance))


def _largest_adjoint(rate: float, loss_gain: float) -> float:
    """Return A."""
    return product_above(check_number("loss_gain", loss_gain), 1 / (1 - check_rate(rate)))


def required_adjoint_warmup(constants: Constants, windows: int, loss_gain: float, tol: float) -> int:
    r"""Return the warm-up of the adjoint that makes its part of the gradient's error at most half of ``tol``.

    Note [mathematics], section 6.4.

    The smallest :math:`k_b` with :math:`\frac{J - 1}{1 - \lambda} \lambda^{k_b + 1} L_w A \le \varepsilon / 2`: one less
    than the formula of the note, which does not use the last factor :math:`\lambda`.

    Example:
        >>> required_adjoint_warmup(Constants(0.9, 1.0, 1.0, 0.0, 1.0, 1.0, 0.0), windows=8, loss_gain=1.0, tol=1e-3)
        134
    """
    others = check_count("windows", windows, low=1) - 1
    total = 1 / (1 - check_rate(constants.rate))
    largest = product_above(constants.weight_gain, _largest_adjoint(constants.rate, loss_gain))
    return required_warmup(constants.rate, largest, tol / 2, gain=product_above(others, total))


def window_gradient_error(
    constants: Constants,
    windows: int,
    warmup: int,
    adjoint_warmup: int,
    state_bound: float,
    loss_gain: float,
    loss_smoothness: float,
) -> float:
    r"""Return the a-priori error of a gradient whose states and adjoints are run in windows (Note [mathematics], section 6.4).

    .. math::
        \lVert \Delta \nabla_w \rVert \le \frac{J - 1}{1 - \lambda} \Bigl\{ \lambda^{k_b + 1} L_w A
        + \lambda^k R L_w \frac{\lambda \beta_\ell + \beta_{hh} A}{1 - \lambda} + \lambda^k R \beta_{wh} A \Bigr\}

    The first term is what adjoints lack, the others what wrong states do to Jacobians; each sums a geometric series
    over a window.

    Args:
        constants: Of the layer (Note [mathematics], section 4.2), in the 2-norm.
        windows: J.
        warmup: k, of the states.
        adjoint_warmup: :math:`k_b`.
        state_bound: R.
        loss_gain: G.
        loss_smoothness: :math:`\beta_\ell`.

    Example:
        >>> linear = Constants(0.5, 1.0, 2.0, 0.0, 1.0, 1.0, 0.0)
        >>> round(window_gradient_error(linear, 2, 3, 3, state_bound=1.0, loss_gain=1.0, loss_smoothness=0.0), 6)
        1.0
    """
    others = check_count("windows", windows, low=1) - 1
    rate = check_rate(constants.rate)
    adjoint = product_above(adjoint_error(rate, loss_gain, adjoint_warmup), constants.weight_gain)
    states = product_above(truncation_error(rate, state_bound, warmup), _state_gain(constants, loss_gain, loss_smoothness))
    return product_above(others, 1 / (1 - rate), above(adjoint + states))


def measured_window_gradient_error(
    constants: Constants,
    chunk: int,
    adjoint_mismatch: Tensor,
    state_errors: Tensor,
    loss_gain: float,
    loss_smoothness: float,
) -> float:
    r"""Return the a-posteriori error of a gradient whose states and adjoints are run in windows.

    Note [mathematics], section 6.4.

    .. math::
        \lVert \Delta \nabla_w \rVert \le \frac{1}{1 - \lambda} \sum_j \Bigl( L_w \varepsilon_j + e_j \Bigl[ L_w
        \frac{\lambda \beta_\ell + \beta_{hh} A}{1 - \lambda} + \beta_{wh} A \Bigr] \Bigr), \qquad
        \varepsilon_j = m^a_j + \lambda^C \varepsilon_{j+1}, \quad \varepsilon_{J-1} = 0

    Args:
        constants: Of the layer (Note [mathematics], section 4.2), in the 2-norm.
        chunk: C.
        adjoint_mismatch: :math:`m^a_j`, between the adjoint that enters window j from its own warm-up and the one window
            j + 1 gives, shape ``(J,)``; the last is 0.
        state_errors: :math:`e_j` of :func:`boundary_errors`, shape ``(J,)``.
        loss_gain: G.
        loss_smoothness: :math:`\beta_\ell`.

    Example:
        >>> linear, zero = Constants(0.5, 1.0, 2.0, 0.0, 1.0, 1.0, 0.0), torch.zeros(2)
        >>> round(measured_window_gradient_error(linear, 4, torch.tensor([0.25, 0.0]), zero, 1.0, 0.0), 6)
        1.0
    """
    rate = check_rate(constants.rate)
    adjoints = float(boundary_errors(rate, chunk, adjoint_mismatch.flip(0)).sum())
    states = float(check_finite("state_errors", state_errors).double().sum())
    late = product_above(constants.weight_gain, adjoints)
    bent = product_above(states, _state_gain(constants, loss_gain, loss_smoothness))
    return above(product_above(above(late + bent), 1 / (1 - rate)), 16 + 2 * adjoint_mismatch.numel())


def _state_gain(constants: Constants, loss_gain: float, loss_smoothness: float) -> float:
    """Return what a wrong state does to the gradient of its window, a step."""
    rate, largest = constants.rate, _largest_adjoint(constants.rate, loss_gain)
    bend = above(product_above(rate, check_number("loss_smoothness", loss_smoothness)) + product_above(constants.b_hh, largest))
    return above(product_above(constants.weight_gain, bend, 1 / (1 - rate)) + product_above(constants.b_wh, largest))


def masks_agree(preactivation: Tensor, row_norms: Tensor, error: Tensor, margin: float = 0.0) -> Tensor:
    r"""Say at which steps a piecewise linear activation has the same slopes on the true state.

    Note [mathematics], section 6.4.

    Where :math:`|a_i| > \lVert W_{i,:} \rVert \eta` for every unit i, no state within :math:`\eta` changes the sign of a
    pre-activation.

    Args:
        preactivation: a, shape ``(..., H)``.
        row_norms: Norms of the rows of W, shape ``(H,)``.
        error: :math:`\eta`, in the 2-norm, shape ``(...)``.
        margin: What a itself may be wrong by, entry by entry.

    Example:
        >>> masks_agree(torch.tensor([[1.0, -2.0]]), torch.tensor([1.0, 1.0]), torch.tensor([0.5]))
        tensor([True])
    """
    reach = error.double().unsqueeze(-1) * (row_norms.double() * (1 + 64 * ROUND_OFF)) + margin
    return (preactivation.double().abs() * (1 - 64 * ROUND_OFF) > reach).all(dim=-1)


def masked_gradient_error(rate: float, context: Tensor, agreeing: Tensor, state_bound: float, weight_gain: float) -> Tensor:
    r"""Return the error of one output's gradient through a piecewise linear layer, for a cotangent of norm 1.

    .. math:: p \lambda^{K-1} R + \frac{\lambda^p (2 - \lambda^{K-p})}{1 - \lambda} L_w

    The output has seen K steps, on the last p of which the slopes are those of the true states (:func:`masks_agree`).
    There Jacobians agree, and the derivative by the weights differs by the state's error,
    :math:`\lambda^{t - \tau} \cdot \lambda^{K - (t - \tau) - 1} R` for each of the p steps :math:`\tau`. What is older has
    in either run at most :math:`\lambda^p L_w / (1 - \lambda)`, in the truncated one without the steps before its start.
    For p = K this is Note [mathematics], section 4.3 with :math:`\beta_{hh} = 0` and :math:`\beta_{wh} = 1`.

    Args:
        rate: :math:`\lambda`, in the 2-norm.
        context: K, any shape.
        agreeing: p, from 0 to K, of the same shape.
        state_bound: R.
        weight_gain: :math:`L_w`.

    Returns:
        The bound, of the same shape, float64, rounded up.

    Example:
        >>> masked_gradient_error(0.5, torch.tensor([3]), torch.tensor([3]), 4.0, 1.0).round(decimals=6)
        tensor([3.2500], dtype=torch.float64)
    """
    check_rate(rate)
    base = torch.tensor(rate, dtype=torch.float64, device=context.device)
    seen, same = context.double(), agreeing.double()
    near = same * base ** (seen - 1).clamp(min=0) * state_bound
    far = base**same * (2 - base ** (seen - same)) / (1 - rate) * weight_gain
    return (near + far) * (1 + 256 * ROUND_OFF)
