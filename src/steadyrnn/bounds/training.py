"""How far training a truncated model leads away from training the full one (Note [mathematics], section 4.5)."""

import math
from collections.abc import Sequence

from steadyrnn.checks import check_count, check_number
from steadyrnn.errors import ArgumentError, CertificateError

from .gradients import Constants, weight_sensitivity
from .memory import first_step, truncation_error
from .norms import above, power_above, product_above

__all__ = [
    "minus_lambert",
    "output_divergence",
    "steps_for",
    "steps_for_closed_form",
    "training_divergence",
    "training_divergence_harmonic",
]


def training_divergence(gradient_error: float, smoothness: float, rates: Sequence[float]) -> float:
    r"""Return how far apart the parameters of the full and the truncated model are after training both.

    Note [mathematics], section 4.5.

    .. math::
        \lVert w^N_{\mathrm{full}} - w^N_{\mathrm{trunc}} \rVert
        \le \frac{g}{\beta} \Bigl( \prod_{i=1}^N (1 + \alpha_i \beta) - 1 \Bigr)

    for gradient descent, projected onto a convex set or not, from the same start. It is the solution of
    :math:`\delta_i = (1 + \alpha_i \beta) \delta_{i-1} + \alpha_i g`: a step moves two parameters apart by the
    difference of their gradients, at most :math:`\beta \delta` for the same model and g between the models. The recurrence
    is what is computed, as nothing cancels in it, so :math:`\beta = 0` needs no care.

    Args:
        gradient_error: g, a bound on the difference of the two models' gradients at the same parameters,
            :func:`~steadyrnn.bounds.gradients.gradient_truncation_error`.
        smoothness: :math:`\beta`, :func:`~steadyrnn.bounds.gradients.gradient_smoothness`.
        rates: The step sizes :math:`\alpha_1, \dots, \alpha_N`.

    Returns:
        The bound, rounded up.

    Example:
        >>> round(training_divergence(1.0, 100.0, [0.01 / i for i in range(1, 201)]), 9)
        2.0

    References:
        Miller, Hardt. When Recurrent Models Don't Need To Be Recurrent. Proposition 2. https://arxiv.org/abs/1805.10369
    """
    error, smoothness = check_number("gradient_error", gradient_error), check_number("smoothness", smoothness)
    distance = 0.0
    for rate in rates:
        rate = check_number("rates", rate)
        distance = above(distance + product_above(distance, rate, smoothness) + product_above(rate, error), 4)
    return distance


def training_divergence_harmonic(gradient_error: float, smoothness: float, rate: float, steps: int) -> float:
    r"""Return :func:`training_divergence` for the step sizes :math:`\alpha / i`, from above and in closed form.

    Note [mathematics], section 4.5.

    .. math:: \frac{g}{\beta} \bigl( (eN)^{\alpha\beta} - 1 \bigr)

    since :math:`1 + x \le e^x` and :math:`\sum_{i \le N} 1/i \le 1 + \ln N`.

    Args:
        gradient_error: g.
        smoothness: :math:`\beta`; at 0 the limit :math:`g \alpha (1 + \ln N)` is taken.
        rate: :math:`\alpha`.
        steps: N.

    Returns:
        The bound, rounded up.

    Example:
        >>> round(training_divergence_harmonic(1.0, 100.0, rate=0.01, steps=200), 3)
        5.427
    """
    error, smoothness = check_number("gradient_error", gradient_error), check_number("smoothness", smoothness)
    rate, steps = check_number("rate", rate), check_count("steps", steps)
    if steps == 0:
        return 0.0
    total = product_above(rate, above(1 + math.log(steps)))
    exponent = product_above(total, smoothness)
    if math.isinf(exponent):
        return 0.0 if error == 0 else math.inf
    try:
        growth = math.expm1(exponent) / exponent if exponent else 1.0
    except OverflowError:
        growth = math.inf
    return product_above(error, total, above(growth))


def output_divergence(
    parameter_distance: float, constants: Constants, steps: int, state_bound: float, gain: float = 1.0
) -> float:
    r"""Return how far apart the outputs of the two trained models are.

    Note [mathematics], section 4.5, Theorem 1 of Miller and Hardt, 2019.

    .. math::
        \lVert y_T - y_T^k \rVert \le L_f \Bigl( \frac{L_w}{1-\lambda} \lVert w_{\mathrm{full}} - w_{\mathrm{trunc}} \rVert
        + \lambda^k B_h \Bigr)

    The first part is :func:`~steadyrnn.bounds.gradients.weight_sensitivity`, the second the truncation of the second model.

    Args:
        parameter_distance: From :func:`training_divergence`.
        constants: Of the layer, from :func:`~steadyrnn.bounds.gradients.layer_constants`; they must hold for both.
        steps: k, the inputs that the truncated model reads.
        state_bound: :math:`B_h`.
        gain: :math:`L_f`, the Lipschitz constant of the readout.

    Returns:
        The bound, rounded up.

    Example:
        >>> linear = Constants(0.5, 1.0, 2.0, 0.0, 1.0, 1.0, 0.0)
        >>> round(output_divergence(0.25, linear, steps=3, state_bound=8.0), 9)
        2.0
    """
    moved = product_above(weight_sensitivity(constants), check_number("parameter_distance", parameter_distance))
    cut = truncation_error(constants.rate, check_number("state_bound", state_bound), steps)
    return product_above(check_number("gain", gain), above(moved + cut))


def steps_for(rate: float, eta: float) -> int:
    r"""Return a number of steps from which on :math:`k \lambda^k \le \eta` (Note [mathematics], section 4.5).

    .. math:: k = \Bigl\lceil \frac{-W_{-1}(-\eta \ln(1/\lambda))}{\ln(1/\lambda)} \Bigr\rceil

    with the lower branch of Lambert's function: :math:`k \lambda^k` rises up to :math:`k = 1/\ln(1/\lambda)`, where it is
    :math:`1/(e \ln(1/\lambda))`, and falls from there. If :math:`\eta` is not below that maximum, every k will do, and the
    first one on the falling side is returned. The result is compared with :math:`\eta`, rounding included: it satisfies the
    inequality, and the integer before it does not or is on the rising side.

    Args:
        rate: :math:`\lambda < 1`.
        eta: :math:`\eta > 0`.

    Returns:
        k, at least 1.

    Example:
        >>> steps_for(0.9, 1e-8)
        227
    """
    decay, eta = _decay(rate, eta)
    if decay == math.inf:
        return 1
    crest = max(1, math.ceil(1 / decay))
    log = math.log(eta) + math.log(decay)
    steps = crest if log >= -1 else max(crest, math.ceil(minus_lambert(log) / decay))
    if _small_enough(rate, steps, eta) and (steps == crest or not _small_enough(rate, steps - 1, eta)):
        return steps
    return crest + first_step(lambda more: _small_enough(rate, crest + more, eta))  # rounding has moved the solution


def steps_for_closed_form(rate: float, eta: float) -> int:
    r"""Return a number of steps from which on :math:`k \lambda^k \le \eta`, without Lambert's function.

    Note [mathematics], section 4.5.

    .. math:: k = \Bigl\lceil \frac{2}{\ln(1/\lambda)} \ln \frac{2}{e \eta \ln(1/\lambda)} \Bigr\rceil

    since :math:`\ln k \le ak - 1 - \ln a` for every :math:`a > 0`; take :math:`a = \ln(1/\lambda) / 2`. At most about twice
    the number that :func:`steps_for` finds, for the same arguments.

    Example:
        >>> steps_for_closed_form(0.9, 1e-8)
        387
    """
    decay, eta = _decay(rate, eta)
    if decay == math.inf:
        return 1
    steps = max(1, math.ceil(2 / decay * (math.log(2 / decay) - 1 - math.log(eta))))
    while not _small_enough(rate, steps, eta):
        steps += 1
    return steps


def minus_lambert(log: float) -> float:
    r"""Return :math:`-W_{-1}(-e^{l})`, the solution :math:`y \ge 1` of :math:`y - \ln y = -l`.

    The logarithm of the argument is what is taken, so that nothing underflows. Newton's method from the bound
    :math:`y \le -l + \sqrt{2(-l - 1)}`: the left side is convex, so the iterates fall to the solution.

    Args:
        log: :math:`l \le -1`.

    Example:
        >>> round(minus_lambert(-3.0), 9)
        4.505241496

    References:
        Chatzigeorgiou. Bounds on the Lambert Function and Their Application to the Outage Analysis of User Cooperation.
        IEEE Communications Letters, 2013. https://arxiv.org/abs/1601.04895
    """
    if not log <= -1:
        raise ArgumentError(f"`log` must be a number up to -1, but is {log}.")
    y = -log + math.sqrt(2 * (-log - 1))
    for _ in range(64):  # a handful suffices; near y = 1 rounding may make two numbers alternate
        step = (y - math.log(y) + log) / (1 - 1 / y) if y > 1 else 0.0
        if step <= 4 * math.ulp(y):
            break
        y = max(1.0, y - step)
    return y


def _decay(rate: float, eta: float) -> tuple[float, float]:
    """Return ln(1 / rate) and eta, once both are checked."""
    rate, eta = check_number("rate", rate), check_number("eta", eta, finite=True)
    if eta < 2.0**-1000:
        raise ArgumentError(f"`eta` must be a number above zero, from 2^-1000 on, but is {eta}.")
    if rate >= 1:
        raise CertificateError(f"`rate` is {rate:.6g}, and only below 1 does the gradient of what is left out vanish.")
    return (-math.log(rate) if rate else math.inf), eta


def _small_enough(rate: float, steps: int, eta: float) -> bool:
    return product_above(steps, power_above(rate, steps)) <= eta
