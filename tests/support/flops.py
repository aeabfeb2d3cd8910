"""How many operations one step has in each form, counted as the paper's Table 1 does, corrected."""

from steadyrnn.checks import check_positive_int
from steadyrnn.errors import ArgumentError

__all__ = ["backward_flops", "dense_flops", "forward_flops", "hgrad_flops", "hprod_flops", "wy_flops"]


def hprod_flops(size: int) -> int:
    r"""Count the operations of one reflection of a vector, with :math:`u \cdot u` known.

    One inner product and one scaled addition of length :math:`k`, a multiplication and an addition each: :math:`4k`.

    Example:
        >>> hprod_flops(10)
        40

    References:
        Zhang, Lei, Dhillon. Stabilizing Gradients for Deep Neural Networks via
        Efficient SVD Parameterization. ICML 2018, Table 1. https://arxiv.org/abs/1803.09327
    """
    return 4 * size


def hgrad_flops(size: int) -> int:
    r"""Count the operations of the gradient through one reflection, in the form with two terms.

    The product :math:`u \cdot g`, the update of :math:`g` and two scaled additions for :math:`u`, less what is shared,
    on the last :math:`k` coordinates only: :math:`7k`. (Three terms over all :math:`n` coordinates take
    :math:`3n + 6k`.)

    Example:
        >>> hgrad_flops(10)
        70
    """
    return 7 * size


def forward_flops(rows: int, left: int, right: int) -> int:
    r"""Count the operations of one product :math:`U \Sigma V^\top h`, reflection by reflection.

    .. math::
        \sum_{k > n - m_1} 4k + \sum_{k > n - m_2} 4k = 4n(m_1 + m_2) - 2m_1^2 - 2m_2^2 + 2(m_1 + m_2)

    and :math:`n` for the singular values are left out, as in the source.

    Example:
        >>> forward_flops(128, 16, 0)
        7712

    References:
        Zhang, Lei, Dhillon. Stabilizing Gradients for Deep Neural Networks via
        Efficient SVD Parameterization. ICML 2018, Table 1. https://arxiv.org/abs/1803.09327
    """
    return sum(hprod_flops(size) for size in _sizes(rows, left) + _sizes(rows, right))


def backward_flops(rows: int, left: int, right: int) -> int:
    r"""Count the operations of the gradient of one product :math:`U \Sigma V^\top h`, reflection by reflection.

    .. math:: \sum_{k > n - m_1} 7k + \sum_{k > n - m_2} 7k = 7n(m_1 + m_2) - \tfrac72 (m_1^2 + m_2^2) + O(n)

    Example:
        >>> backward_flops(128, 16, 0)
        13496
    """
    return sum(hgrad_flops(size) for size in _sizes(rows, left) + _sizes(rows, right))


def wy_flops(rows: int, left: int, right: int) -> int:
    r"""Count the operations of one product :math:`U \Sigma V^\top h` in the compact WY form.

    .. math:: 4n(m_1 + m_2) + m_1^2 + m_2^2

    two products with :math:`n \times m` matrices and one triangular solve for each side.

    Example:
        >>> wy_flops(512, 16, 16), dense_flops(512)
        (66048, 524288)
    """
    m1, m2 = len(_sizes(rows, left)), len(_sizes(rows, right))
    return 4 * rows * (m1 + m2) + m1**2 + m2**2


def dense_flops(rows: int) -> int:
    r"""Count the operations of one product with an :math:`n \times n` matrix: :math:`2n^2`.

    Example:
        >>> dense_flops(10)
        200
    """
    return 2 * check_positive_int("rows", rows) ** 2


def _sizes(rows: int, count: int) -> list[int]:
    """Return the lengths of ``count`` reflectors, longest first."""
    check_positive_int("rows", rows)
    if not 0 <= count <= rows:
        raise ArgumentError(f"The number of reflectors must be from 0 to `rows` = {rows}, but is {count}.")
    return [rows - index for index in range(count)]
