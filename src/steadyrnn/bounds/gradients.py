"""What truncation does to the gradient of a contracting layer, and how smooth that gradient is.

Note [mathematics], sections 4.2 to 4.4.
"""

import math
from dataclasses import dataclass, fields

from steadyrnn.checks import check_count, check_number

from .memory import truncation_error
from .norms import above, product_above, state_radius

__all__ = [
    "Constants",
    "gradient_smoothness",
    "gradient_truncation_error",
    "in_norm",
    "layer_constants",
    "squared_loss_constants",
    "weight_sensitivity",
]


@dataclass(frozen=True)
class Constants:
    r"""How a step :math:`\phi_w(h, x)` and its derivatives change, in the 2-norm (Frobenius for the parameters w).

    Args:
        rate: :math:`\lambda`, the Lipschitz constant in h.
        input_gain: :math:`L_x`, in x.
        weight_gain: :math:`L_w`, in w.
        b_hh: Of :math:`\partial\phi/\partial h` in h.
        b_wh: Of :math:`\partial\phi/\partial w` in h.
        b_hw: Of :math:`\partial\phi/\partial h` in w.
        b_ww: Of :math:`\partial\phi/\partial w` in w.
    """

    rate: float
    input_gain: float
    weight_gain: float
    b_hh: float
    b_wh: float
    b_hw: float
    b_ww: float

    def __post_init__(self) -> None:
        """Refuse what is no bound."""
        for field in fields(self):
            check_number(field.name, getattr(self, field.name))


def layer_constants(
    rate: float,
    smoothness: float,
    state_bound: float,
    input_bound: float,
    bias: bool | int,
    *,
    slope: float = 1.0,
    input_gain: float = math.inf,
) -> Constants:
    r"""Return the constants of a layer :math:`\rho(Wh + Ux + b)` in the parameters W, U and b.

    Note [mathematics], section 4.2.

    .. math::
        L_w = \gamma z, \quad \beta_{hh} = s \lVert W \rVert^2, \quad
        \beta_{wh} = \beta_{hw} = s \lVert W \rVert z + \gamma, \quad \beta_{ww} = s z^2, \qquad
        z^2 = B_h^2 + B_x^2 \; (+ \text{biases})

    with :math:`|\rho'| \le \gamma`, :math:`|\rho''| \le s` and :math:`\lVert W \rVert = \lambda / \gamma`. A change of the
    parameters by dw moves the pre-activation by at most :math:`z \lVert dw \rVert`, one of the state by
    :math:`\lVert W \rVert \lVert dh \rVert`; either moves :math:`\rho'` by at most s times as much, and the second term
    of :math:`\beta_{wh}` is the state or the weight that stands beside :math:`\rho'`.

    Args:
        rate: :math:`\lambda = \gamma \lVert W \rVert`, in the 2-norm.
        smoothness: s; 0 for a linear layer, infinite for ReLU.
        state_bound: :math:`B_h`, on the 2-norm of every state.
        input_bound: :math:`B_x`, on the 2-norm of every input.
        bias: Whether a bias is among the parameters, or how many are: torch's layers add up two.
        slope: :math:`\gamma`, for instance 1/4 for the sigmoid.
        input_gain: :math:`L_x = \gamma \lVert U \rVert`, for the record: no bound of this file needs it.

    Returns:
        The constants, each rounded up.

    Example:
        >>> linear = layer_constants(0.5, 0.0, state_bound=3.0, input_bound=4.0, bias=False)
        >>> round(linear.weight_gain, 9), linear.b_hh, round(linear.b_wh, 9)
        (5.0, 0.0, 1.0)

    References:
        Miller, Hardt. When Recurrent Models Don't Need To Be Recurrent. Section 4. https://arxiv.org/abs/1805.10369
    """
    rate, s = check_number("rate", rate), check_number("smoothness", smoothness)
    slope = check_number("slope", slope, low=math.ulp(0.0), finite=True)
    norm = rate if slope == 1 else product_above(rate, 1 / slope)
    state_bound, input_bound = check_number("state_bound", state_bound), check_number("input_bound", input_bound)
    reach = above(math.hypot(state_bound, input_bound, math.sqrt(check_count("bias", int(bias)))))
    mixed = above(product_above(s, norm, reach) + slope)
    return Constants(
        rate=rate,
        input_gain=check_number("input_gain", input_gain),
        weight_gain=product_above(slope, reach),
        b_hh=product_above(s, norm, norm),
        b_wh=mixed,
        b_hw=mixed,
        b_ww=product_above(s, reach, reach),
    )


def in_norm(constants: Constants, rate: float, lower: float, upper: float) -> Constants:
    r"""Return the constants of a layer in another norm N in which it contracts, from those in the 2-norm.

    .. math::
        \lambda_N, \quad L_w^N = u L_w, \quad \beta_{hh}^N = \frac{u}{l^2} \beta_{hh}, \quad \beta_{wh}^N = \frac ul \beta_{wh},
        \quad \beta_{hw}^N = \frac ul \beta_{hw}, \quad \beta_{ww}^N = u \beta_{ww}, \qquad
        l \lVert h \rVert \le N(h) \le u \lVert h \rVert

    What comes out of a step is measured in N, which costs u; what goes in is given in N, which costs 1/l.
    Lemma 2 of Miller and Hardt (Note [mathematics], section 4.3) holds
    in any norm, with these constants, a radius in N, and cotangents in the dual norm,
    :math:`N^*(g) \le \lVert g \rVert / l`.

    Args:
        constants: In the 2-norm; their rate may be 1 or more.
        rate: :math:`\lambda_N`.
        lower: l.
        upper: u.

    Example:
        >>> in_norm(Constants(1.5, 1.0, 2.0, 0.0, 1.0, 1.0, 0.0), 0.5, lower=1.0, upper=3.0).rate
        0.5
    """
    back = 1 / check_number("lower", lower, low=math.ulp(0.0), finite=True)
    return Constants(
        rate=check_number("rate", rate),
        input_gain=product_above(upper, constants.input_gain),
        weight_gain=product_above(upper, constants.weight_gain),
        b_hh=product_above(upper, back, back, constants.b_hh),
        b_wh=product_above(upper, back, constants.b_wh),
        b_hw=product_above(upper, back, constants.b_hw),
        b_ww=product_above(upper, constants.b_ww),
    )


def squared_loss_constants(readout_norm: float, state_bound: float, target_bound: float) -> tuple[float, float]:
    r"""Return the Lipschitz constant and the smoothness of a squared loss in the state (Note [mathematics], section 4.2).

    .. math:: p(h) = \tfrac12 \lVert Ch - y \rVert^2, \qquad L_p = \lVert C \rVert (\lVert C \rVert B_h + \lVert y \rVert),
        \qquad \beta_p = \lVert C \rVert^2

    as its gradient is :math:`C^\top (Ch - y)`.

    Args:
        readout_norm: :math:`\lVert C \rVert`.
        state_bound: :math:`B_h`.
        target_bound: A bound on :math:`\lVert y \rVert`.

    Returns:
        :math:`(L_p, \beta_p)`, rounded up.

    Example:
        >>> [round(number, 9) for number in squared_loss_constants(2.0, state_bound=3.0, target_bound=1.0)]
        [14.0, 4.0]
    """
    norm, target = check_number("readout_norm", readout_norm), check_number("target_bound", target_bound)
    residual = above(product_above(norm, check_number("state_bound", state_bound)) + target)
    return product_above(norm, residual), product_above(norm, norm)


def gradient_truncation_error(
    constants: Constants, steps: int, state_bound: float, loss_gain: float, loss_smoothness: float
) -> float:
    r"""Return how far the gradient of a truncated model is from the full one (Note [mathematics], section 4.3).

    .. math::
        \lVert \nabla_w p_T - \nabla_w p_T^k \rVert \le \lambda^k \frac{L_w}{1 - \lambda} (L_p + \beta_p B_h)
        + k \lambda^{k-1} L_p B_h \Bigl( \beta_{wh} + \frac{L_w \beta_{hh}}{1 - \lambda} \Bigr)

    The first part is the terms of the sum over time that the window leaves out, and the change of the loss's gradient.
    In each of the k terms that stay, the derivative at time t is taken at states :math:`\lambda^{t-1-(T-k)} B_h` apart and
    carried to T by a factor of :math:`\lambda^{T-t}`: together :math:`\lambda^{k-1}`. (The paper prints :math:`\lambda^k`
    there, which a scalar linear layer contradicts.)

    Args:
        constants: Of the layer, from :func:`layer_constants`.
        steps: k, the inputs that the truncated model reads.
        state_bound: :math:`B_h`.
        loss_gain: :math:`L_p`, a bound on the loss's gradient in the last state.
        loss_smoothness: :math:`\beta_p`, the Lipschitz constant of that gradient.

    Returns:
        The bound, rounded up; infinite where the rate is 1 or more, or the activation has a kink.

    Example:
        >>> linear = layer_constants(0.5, 0.0, state_bound=2.0, input_bound=1.0, bias=False)
        >>> [f"{gradient_truncation_error(linear, k, 2.0, 1.0, 0.0):.4f}" for k in (1, 10, 40)]
        ['4.2361', '0.0434', '0.0000']

    References:
        Miller, Hardt. When Recurrent Models Don't Need To Be Recurrent. Lemma 2. https://arxiv.org/abs/1805.10369
    """
    rate, steps = constants.rate, check_count("steps", steps)
    state_bound, loss_gain = check_number("state_bound", state_bound), check_number("loss_gain", loss_gain)
    bend = product_above(check_number("loss_smoothness", loss_smoothness), state_bound)
    total = state_radius(rate, 1.0)  # 1 / (1 - rate)
    left_out = product_above(truncation_error(rate, 1.0, steps), constants.weight_gain, total, above(loss_gain + bend))
    if steps == 0:
        return left_out
    each = above(constants.b_wh + product_above(constants.weight_gain, constants.b_hh, total))
    kept = product_above(check_number("steps", steps), truncation_error(rate, 1.0, steps - 1), loss_gain, state_bound, each)
    return above(left_out + kept)


def weight_sensitivity(constants: Constants) -> float:
    r"""Return how much the states move with the parameters (Note [mathematics], section 4.4).

    .. math:: \lVert h_t(w) - h_t(w') \rVert \le \frac{L_w}{1 - \lambda} \lVert w - w' \rVert

    since every step adds at most :math:`L_w \lVert w - w' \rVert` and shrinks what was there by :math:`\lambda`. Both
    parameters must satisfy ``constants``.

    Args:
        constants: Of the layer, from :func:`layer_constants`.

    Returns:
        The factor, rounded up; infinite where the rate is 1 or more.

    Example:
        >>> round(weight_sensitivity(layer_constants(0.5, 0.0, 3.0, 4.0, bias=False)), 9)
        10.0

    References:
        Miller, Hardt. When Recurrent Models Don't Need To Be Recurrent. Lemma 4. https://arxiv.org/abs/1805.10369
    """
    return state_radius(constants.rate, constants.weight_gain)


def gradient_smoothness(constants: Constants, loss_gain: float, loss_smoothness: float) -> float:
    r"""Return a Lipschitz constant of the gradient in the parameters (Note [mathematics], section 4.4).

    .. math::
        \beta = \frac{\beta_p L_w^2}{(1-\lambda)^2} + L_p \Bigl[ \frac{\beta_{wh} L_w}{(1-\lambda)^2}
        + \frac{\beta_{ww}}{1-\lambda} + \frac{L_w \beta_{hw}}{(1-\lambda)^2} + \frac{L_w^2 \beta_{hh}}{(1-\lambda)^3} \Bigr]

    The gradient is a sum over t of products of the loss's gradient, the Jacobian from t to the end, and the derivative of
    step t; each factor moves with w directly and through the states (:func:`weight_sensitivity`), and the sums
    over time are geometric. For a squared loss :math:`L_p` and :math:`L_w` hide further powers of
    :math:`1/(1-\lambda)`.

    Args:
        constants: Of the layer, from :func:`layer_constants`; they must hold for both parameters.
        loss_gain: :math:`L_p`.
        loss_smoothness: :math:`\beta_p`.

    Returns:
        :math:`\beta`, rounded up; infinite where the rate is 1 or more, or the activation has a kink.

    Example:
        >>> linear = layer_constants(0.5, 0.0, state_bound=3.0, input_bound=4.0, bias=False)
        >>> round(gradient_smoothness(linear, loss_gain=1.0, loss_smoothness=1.0), 9)
        140.0

    References:
        Miller, Hardt. When Recurrent Models Don't Need To Be Recurrent. Lemma 3. https://arxiv.org/abs/1805.10369
    """
    total, c = state_radius(constants.rate, 1.0), constants
    loss_gain = check_number("loss_gain", loss_gain)
    terms = (
        product_above(check_number("loss_smoothness", loss_smoothness), c.weight_gain, c.weight_gain, total, total),
        product_above(loss_gain, c.b_wh, c.weight_gain, total, total),
        product_above(loss_gain, c.b_ww, total),
        product_above(loss_gain, c.weight_gain, c.b_hw, total, total),
        product_above(loss_gain, c.weight_gain, c.weight_gain, c.b_hh, total, total, total),
    )
    return above(sum(terms))
