"""How far states and outputs move when the weights of a network without biases move (Note [mathematics], section 2.11)."""

import math

from steadyrnn.checks import check_count, check_number
from steadyrnn.errors import CertificateError

from .norms import above, power_above, product_above, state_radius

__all__ = ["activation_bound", "activation_perturbation", "contractive_perturbation", "output_perturbation"]


def activation_bound(recurrent_norm: float, input_norm: float, input_bound: float, steps: int) -> float:
    r"""Return a bound on the state after ``steps`` steps.

    Note [mathematics], section 2.11, Lemma 4 of Zhang, Lei and Dhillon, 2018.

    .. math::
        \lVert h_t \rVert \le B \lVert M \rVert \sum_{j<t} \lVert W \rVert^j
        \le B \lVert M \rVert \, t \max(\lVert W \rVert^{t-1}, 1)

    for :math:`h_t = \sigma(W h_{t-1} + M x_t)`, :math:`h_0 = 0`, with :math:`|\sigma(a)| \le |a|` (ReLU, leaky ReLU, tanh,
    the absolute value): every step multiplies the norm by at most :math:`\lVert W \rVert` and adds
    :math:`\lVert M \rVert B`. The middle one is returned. A bias is a column of M beside an input of 1.

    Args:
        recurrent_norm: :math:`\lVert W \rVert`.
        input_norm: :math:`\lVert M \rVert`.
        input_bound: B, on the 2-norm of every input.
        steps: t.

    Returns:
        The bound, rounded up.

    Example:
        >>> round(activation_bound(2.0, 1.0, input_bound=1.0, steps=10), 9)
        1023.0

    References:
        Zhang, Lei, Dhillon. Stabilizing Gradients for Deep Neural Networks via Efficient SVD Parameterization.
        ICML 2018. https://arxiv.org/abs/1803.09327
    """
    norm, steps = check_number("recurrent_norm", recurrent_norm), check_count("steps", steps)
    enters = product_above(check_number("input_norm", input_norm), check_number("input_bound", input_bound))
    return product_above(enters, _powers(norm, steps))


def activation_perturbation(
    recurrent_norm: float,
    input_norm: float,
    input_bound: float,
    steps: int,
    recurrent_change: float,
    input_change: float,
) -> float:
    r"""Return how far the state moves when W moves by :math:`\delta W` and M by :math:`\delta M`.

    Note [mathematics], section 2.11.

    .. math:: \lVert \Delta h_t \rVert \le e B t \mu (t \lVert M \rVert \lVert \delta W \rVert + \lVert \delta M \rVert),
        \qquad \mu = \max(\lVert W \rVert^{t-1}, 1)

    for a 1-Lipschitz activation with :math:`\sigma(0) = 0`. By induction over
    :math:`\Delta_i \le \lVert W + \delta W \rVert \Delta_{i-1} + \lVert \delta W \rVert \lVert h_{i-1} \rVert
    + \lVert \delta M \rVert B`, where :math:`\lVert W + \delta W \rVert \le (1 + 1/t) \max(\lVert W \rVert, 1)`, and
    :math:`(1 + 1/t)^t \le e`. (The display printed in the paper has no maximum and is false; this is what its proof gives.)

    Args:
        recurrent_norm: :math:`\lVert W \rVert`.
        input_norm: :math:`\lVert M \rVert`.
        input_bound: B, on the 2-norm of every input.
        steps: t, from 1 on.
        recurrent_change: :math:`\lVert \delta W \rVert`, at most :math:`\max(\lVert W \rVert, 1) / t`.
        input_change: :math:`\lVert \delta M \rVert`.

    Returns:
        The bound, rounded up.

    Example:
        >>> round(activation_perturbation(0.5, 1.0, input_bound=1.0, steps=10, recurrent_change=0.05, input_change=0.0), 3)
        13.591

    References:
        Zhang, Lei, Dhillon. Stabilizing Gradients for Deep Neural Networks via Efficient SVD Parameterization.
        ICML 2018. Lemma 2. https://arxiv.org/abs/1803.09327
    """
    norm, steps = check_number("recurrent_norm", recurrent_norm), check_count("steps", steps, low=1)
    change = check_number("recurrent_change", recurrent_change)
    _check_small("recurrent_change", change, "max(`recurrent_norm`, 1)", max(norm, 1.0), steps)
    moved = above(
        product_above(steps, check_number("input_norm", input_norm), change) + check_number("input_change", input_change)
    )
    return product_above(math.e, check_number("input_bound", input_bound), steps, _largest_power(norm, steps), moved)


def output_perturbation(
    recurrent_norm: float,
    input_norm: float,
    output_norm: float,
    input_bound: float,
    steps: int,
    recurrent_change: float,
    input_change: float,
    output_change: float,
) -> float:
    r"""Return how far the output :math:`Y h_t` moves when W, M and Y move.

    Note [mathematics], section 2.11, Lemma 2 of Zhang, Lei and Dhillon, 2018.

    .. math::
        \lVert \Delta \hat y_t \rVert \le t B \mu (e t \lVert Y \rVert \lVert M \rVert \lVert \delta W \rVert
        + e \lVert Y \rVert \lVert \delta M \rVert + \lVert M \rVert \lVert \delta Y \rVert)

    as :math:`\Delta \hat y = (Y + \delta Y) \Delta h + \delta Y h`, with :func:`activation_perturbation` for
    :math:`\Delta h`, :func:`activation_bound` for h, and one more factor of :math:`1 + 1/t` below e.

    Args:
        recurrent_norm: :math:`\lVert W \rVert`.
        input_norm: :math:`\lVert M \rVert`.
        output_norm: :math:`\lVert Y \rVert`.
        input_bound: B, on the 2-norm of every input.
        steps: t, from 1 on.
        recurrent_change: :math:`\lVert \delta W \rVert`, at most :math:`\max(\lVert W \rVert, 1) / t`.
        input_change: :math:`\lVert \delta M \rVert`.
        output_change: :math:`\lVert \delta Y \rVert`, at most :math:`\lVert Y \rVert / t`.

    Returns:
        The bound, rounded up.

    Example:
        >>> round(output_perturbation(1.0, 1.0, 1.0, 1.0, 2, recurrent_change=0.0, input_change=0.0, output_change=0.1), 9)
        0.2

    References:
        Zhang, Lei, Dhillon. Stabilizing Gradients for Deep Neural Networks via Efficient SVD Parameterization.
        ICML 2018. Lemma 2. https://arxiv.org/abs/1803.09327
    """
    gain, change = check_number("output_norm", output_norm), check_number("output_change", output_change)
    states = activation_perturbation(recurrent_norm, input_norm, input_bound, steps, recurrent_change, input_change)
    _check_small("output_change", change, "`output_norm`", gain, steps)
    direct = product_above(steps, input_bound, _largest_power(float(recurrent_norm), steps), input_norm, change)
    return above(product_above(gain, states) + direct)


def contractive_perturbation(
    recurrent_norm: float,
    input_norm: float,
    input_bound: float,
    recurrent_change: float,
    input_change: float,
    perturbed_norm: float | None = None,
) -> float:
    r"""Return how far any state of a contraction moves when W and M move, at whatever time (Note [mathematics], section 2.11).

    .. math::
        \lVert \Delta h_t \rVert \le \frac{B}{1 - \lambda'} \Bigl( \frac{\lVert \delta W \rVert \lVert M \rVert}{1 - \lambda}
        + \lVert \delta M \rVert \Bigr), \qquad \lambda = \lVert W \rVert, \; \lambda' = \lVert W + \delta W \rVert

    for a 1-Lipschitz activation with :math:`\sigma(0) = 0`: each step shrinks the difference by :math:`\lambda'` and adds at
    most :math:`\lVert \delta W \rVert \lVert h \rVert + \lVert \delta M \rVert B` with
    :math:`\lVert h \rVert \le B \lVert M \rVert / (1 - \lambda)`.

    Args:
        recurrent_norm: :math:`\lambda`.
        input_norm: :math:`\lVert M \rVert`.
        input_bound: B, on the 2-norm of every input.
        recurrent_change: :math:`\lVert \delta W \rVert`.
        input_change: :math:`\lVert \delta M \rVert`.
        perturbed_norm: :math:`\lambda'`; by default :math:`\lambda + \lVert \delta W \rVert`.

    Returns:
        The bound, rounded up; infinite where either norm is 1 or more.

    Example:
        >>> round(contractive_perturbation(0.5, 1.0, 1.0, recurrent_change=0.0, input_change=0.1), 9)
        0.2
    """
    norm, change = check_number("recurrent_norm", recurrent_norm), check_number("recurrent_change", recurrent_change)
    other = above(norm + change) if change else norm
    if perturbed_norm is not None:
        other = check_number("perturbed_norm", perturbed_norm)
    states = state_radius(norm, check_number("input_norm", input_norm))
    enters = above(product_above(change, states) + check_number("input_change", input_change))
    return state_radius(other, product_above(check_number("input_bound", input_bound), enters))


def _powers(norm: float, steps: int) -> float:
    """Return the sum of the powers below ``steps`` from above, by doubling: S(2k) = S(k) (1 + norm^k)."""
    total = 0.0
    for place in reversed(range(steps.bit_length())):
        half = steps >> (place + 1)
        total = above(total + product_above(total, power_above(norm, half)))
        if steps >> place & 1:
            total = above(1.0 + product_above(norm, total))
    return total


def _largest_power(norm: float, steps: int) -> float:
    return power_above(norm, steps - 1) if norm > 1 else 1.0


def _check_small(name: str, change: float, of: str, size: float, steps: int) -> None:
    """Refuse a change beyond ``size / steps``; rounding of the quotient is forgiven, as (1 + 1/t)^t is well below e."""
    if change > above(size / steps):
        raise CertificateError(
            f"`{name}` is {change:.6g}, but must be at most {of} / `steps`, {size / steps:.6g}: the bound is proven for small "
            "changes only. For a contraction use `contractive_perturbation`."
        )
