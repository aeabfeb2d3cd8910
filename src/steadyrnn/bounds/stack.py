"""Truncation in a stack of contracting layers, each fed by the one below (Note [mathematics], section 5.4)."""

from collections.abc import Sequence

from steadyrnn.checks import check_count, check_number
from steadyrnn.errors import ArgumentError, CertificateError, ShapeError

from .memory import first_step
from .norms import above, product_above, state_radius

__all__ = ["stack_errors", "stack_horizon"]

Matrix = list[list[float]]

_NEGLIGIBLE = 2.0**-900


def stack_errors(rates: Sequence[float], radii: Sequence[float], gains: Sequence[float], steps: int) -> list[float]:
    r"""Return the error of each layer of a stack that was started from zero ``steps`` inputs ago.

    Note [mathematics], section 5.4.

    .. math::
        e_1(i) = \lambda_1 e_1(i-1), \qquad e_l(i) = \lambda_l e_l(i-1) + L_l e_{l-1}(i), \qquad e_l(0) = R_l

    Layer l contracts with :math:`\lambda_l`, its state is at most :math:`R_l` away from zero, and it sees the error that
    the layer below makes at the same time. Written with a lower triangular matrix of numbers from 0 on,
    :math:`e(i) = A e(i-1)` with :math:`A_{lm} = \lambda_m \prod_{m < j \le l} L_j`, whose power is taken by squaring: the
    cost grows with the logarithm of ``steps``. For large i the error decays with the largest rate, times a power of i where
    rates coincide.

    Args:
        rates: :math:`\lambda_l`, each in the norm of its layer, from the bottom up.
        radii: :math:`R_l`, bounds on the states, each in the norm of its layer.
        gains: :math:`L_l`, the Lipschitz constants from the states of the layer below to the states of layer l, in the
            norms of both (a readout, a dropout's scaling and a change of norm are factors of it). The first is not used, as
            the inputs are exact.
        steps: How many inputs are read.

    Returns:
        One bound a layer, rounded up.

    Example:
        >>> [round(error, 9) for error in stack_errors([0.5, 0.5], [8.0, 8.0], [1.0, 1.0], steps=3)]
        [1.0, 4.0]
    """
    rates, radii, gains = _check_layers(rates, radii, gains)
    return _times_vector(_power(_transition(rates, gains), check_count("steps", steps)), radii)


def stack_horizon(rates: Sequence[float], radii: Sequence[float], gains: Sequence[float], eps: float) -> int:
    r"""Return how many inputs it takes to know the top layer of a stack to ``eps`` (Note [mathematics], section 5.4).

    By :func:`stack_errors`. The errors of upper layers may rise before they fall, as the ones below pass theirs on; so k is
    the first number for which the top's error is at most :math:`\varepsilon` and :math:`A e(k) \le e(k)` in every layer. As A
    has no negative entries the errors then fall for ever, and every longer window is good too. (Numbers that have
    underflowed need not fall: with :math:`A e \le e + d` for a negligible d, and f such that :math:`A f \le f - d`, it is
    :math:`e + f` that falls.)

    Args:
        rates: :math:`\lambda_l < 1`, each in the norm of its layer, from the bottom up.
        radii: :math:`R_l`, finite.
        gains: :math:`L_l`, as in :func:`stack_errors`.
        eps: :math:`\varepsilon > 0`, in the norm of the top layer.

    Returns:
        k.

    Example:
        >>> stack_horizon([0.75], [40.0], [1.0], eps=1e-3), stack_horizon([0.75, 0.75], [40.0, 40.0], [1.0, 1.0], eps=1e-3)
        (37, 51)
    """
    rates, radii, gains = _check_layers(rates, radii, gains)
    eps = check_number("eps", eps, finite=True)
    if eps < 2.0**-800:
        raise ArgumentError(f"`eps` must be a number above zero, from 2^-800 on, but is {eps}.")
    for place, (rate, radius) in enumerate(zip(rates, radii, strict=True)):
        if rate >= 1:
            raise CertificateError(f"the rate of layer {place} is {rate:.6g}, and only a rate below 1 forgets.")
        if not radius * max(gains) < float("inf"):
            raise CertificateError(f"the radius of layer {place} or a gain is infinite: a bound on the states is missing.")
    matrix, floor = _transition(rates, gains), 0.0
    for rate, gain in zip(rates, gains, strict=True):
        floor = state_radius(rate, above(product_above(gain, floor) + _NEGLIGIBLE))

    def enough(steps: int) -> bool:
        if steps > 2**64:
            raise CertificateError(
                "no number of steps could be proven enough: a rate is closer to 1, or a gain larger, than float64 can follow."
            )
        errors = _times_vector(_power(matrix, steps), radii)
        later = _times_vector(matrix, errors)
        falling = all(new <= old + _NEGLIGIBLE for new, old in zip(later, errors, strict=True))
        return falling and above(errors[-1] + floor) <= eps

    return first_step(enough)


def _check_layers(
    rates: Sequence[float], radii: Sequence[float], gains: Sequence[float]
) -> tuple[list[float], list[float], list[float]]:
    if not len(rates) == len(radii) == len(gains) or not rates:
        raise ShapeError(
            "`rates`, `radii` and `gains` must hold one number a layer each, "
            f"but hold {len(rates)}, {len(radii)} and {len(gains)}."
        )
    return (
        [check_number("rates", rate) for rate in rates],
        [check_number("radii", radius) for radius in radii],
        [check_number("gains", gain) for gain in gains],
    )


def _transition(rates: list[float], gains: list[float]) -> Matrix:
    """Return the matrix that takes the errors of all layers one step on; row l has l + 1 entries."""
    rows: Matrix = []
    for layer, rate in enumerate(rates):
        passed = [product_above(gains[layer], entry) for entry in rows[-1]] if rows else []
        rows.append([*passed, rate])
    return rows


def _power(matrix: Matrix, exponent: int) -> Matrix:
    """Return a bound on a power, entry by entry."""
    result = [[float(row == column) for column in range(row + 1)] for row in range(len(matrix))]
    for bit in bin(exponent)[2:]:
        result = _times(result, result)
        if bit == "1":
            result = _times(result, matrix)
    return result


def _times(left: Matrix, right: Matrix) -> Matrix:
    return [
        [_total([product_above(left[row][k], right[k][column]) for k in range(column, row + 1)]) for column in range(row + 1)]
        for row in range(len(left))
    ]


def _times_vector(matrix: Matrix, vector: list[float]) -> list[float]:
    return [_total([product_above(a, b) for a, b in zip(row, vector, strict=False)]) for row in matrix]


def _total(terms: list[float]) -> float:
    return above(sum(terms), len(terms)) if len(terms) > 1 else terms[0]
