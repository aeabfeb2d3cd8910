"""Orthogonal matrices that contain a given matrix as a block, and the scalings that make them small."""

import math
from itertools import pairwise

import torch
from torch import Tensor

from steadyrnn.checks import check_finite, check_matrix
from steadyrnn.errors import ConstraintError

__all__ = ["defect_rank", "dilation_tolerance", "monomial_scaling", "orthogonal_dilation"]


def dilation_tolerance(size: int, unit: float = 2.0**-53) -> float:
    r"""Return how far from 1 a singular value may be that is 1 except for rounding: :math:`16 \sqrt{n} u`.

    Rounding its entries moves the singular values of an orthogonal matrix by up to :math:`\sqrt{n} u`, and computing
    it by a few times as much.

    Args:
        size: Rows of the matrix, n.
        unit: Unit round-off u of the dtype its entries were rounded to.

    Example:
        >>> dilation_tolerance(4) == 32 * 2**-53
        True
    """
    return 16 * math.sqrt(max(size, 1)) * unit


def defect_rank(matrix: Tensor, tolerance: float | None = None) -> int:
    r"""Return the number of singular values below 1, which is the rank of :math:`I - W^\top W`.

    By so many rows and columns :func:`orthogonal_dilation` enlarges the matrix (Note [mathematics], section 1.4).

    Args:
        matrix: :math:`W`, shape ``(N, N)``.
        tolerance: How far below 1 counts as 1; :func:`dilation_tolerance` of float64 if None.

    Example:
        >>> defect_rank(torch.diag(torch.tensor([1.0, 0.5, 0.0])))
        2
    """
    wide = check_finite("matrix", check_matrix("matrix", matrix, square=True)).double()
    slack = dilation_tolerance(len(wide)) if tolerance is None else tolerance
    return int((torch.linalg.svdvals(wide) < 1 - slack).sum())


@torch.no_grad()
def orthogonal_dilation(matrix: Tensor, tolerance: float | None = None) -> Tensor:
    r"""Return an orthogonal matrix with ``matrix`` as its first block, in float64.

    With :math:`W = P \operatorname{diag}(s) Q^\top`, the columns :math:`P_I, Q_I` where :math:`s_i < 1`, and
    :math:`c_i = \sqrt{(1 - s_i)(1 + s_i)}`,

    .. math::
        W_u = \begin{pmatrix} W & P_I \operatorname{diag}(c_I) \\
              \operatorname{diag}(c_I) Q_I^\top & -\operatorname{diag}(s_I) \end{pmatrix}.

    It is orthogonal: :math:`W^\top W + Q_I \operatorname{diag}(c_I)^2 Q_I^\top = Q \operatorname{diag}(s^2 + c^2) Q^\top = I`,
    the second block column has unit columns for the same reason, and both are orthogonal to each other since
    :math:`W^\top P_I \operatorname{diag}(c_I) = Q_I \operatorname{diag}(s_I c_I)`. No smaller one exists: the rows below
    :math:`W` must complete :math:`W^\top W` to the identity, so there are at least as many as
    :math:`I - W^\top W` has rank. :math:`W` is copied, not multiplied together again. One SVD.

    Args:
        matrix: :math:`W`, shape ``(N, N)``, of spectral norm at most 1.
        tolerance: How far from 1 a singular value counts as 1; :func:`dilation_tolerance` of float64 if None. By as
            much, at most, :math:`W_u` is off an orthogonal matrix.

    Returns:
        :math:`W_u`, shape ``(N + R, N + R)``, R as :func:`defect_rank` counts it.

    Raises:
        ConstraintError: The spectral norm is above 1: no orthogonal matrix has such a block.

    Example:
        >>> orthogonal_dilation(torch.tensor([[0.6]])).round(decimals=6)
        tensor([[ 0.6000,  0.8000],
                [ 0.8000, -0.6000]], dtype=torch.float64)

    References:
        Emami, Sahraee-Ardakan, Fletcher, Rangan. Input-Output Equivalence of Unitary and Contractive RNNs.
        NeurIPS 2019. https://arxiv.org/abs/1910.13672
    """
    wide = check_finite("matrix", check_matrix("matrix", matrix, square=True)).double()
    slack = dilation_tolerance(len(wide)) if tolerance is None else tolerance
    left, values, right = torch.linalg.svd(wide)
    largest = float(values.max()) if len(values) else 0.0
    if largest > 1 + slack:
        raise ConstraintError(
            f"`matrix` must have spectral norm at most 1, but has {largest:.6g}: no orthogonal matrix contains it as a block."
        )
    below = values < 1 - slack
    s = values[below]
    c = ((1 - s) * (1 + s)).sqrt()
    upper = torch.cat([wide, left[:, below] * c], dim=1)
    lower = torch.cat([c.unsqueeze(1) * right[below], -s.diag()], dim=1)
    return torch.cat([upper, lower])


@torch.no_grad()
def monomial_scaling(matrix: Tensor) -> Tensor | None:
    r"""Return weights d that give a matrix with one entry per row and column as few singular values below 1 as can be.

    Such a matrix (a permutation times a diagonal, or one with further zeros) is a set of cycles and paths
    :math:`j \to i` of gains :math:`a = |W_{ij}|`. Put :math:`d_i = d_j / a` along each: then every entry of
    :math:`\operatorname{diag}(d) W \operatorname{diag}(d)^{-1}` has modulus 1 but the one that closes a cycle, which is the
    product g of its gains. If :math:`g < 1` one singular value is below 1, and no scaling does better, since the
    modulus of the determinant of the cycle is g whatever d is. A path leaves one singular value 0, also whatever d is.

    Args:
        matrix: :math:`W`, shape ``(N, N)``.

    Returns:
        d in float64, shape ``(N,)``, centred about 1 on each cycle or path; powers of two where the entries are.
        None where a row or column has two entries, or where d is out of range.

    Example:
        >>> shift = 0.5 * torch.eye(3).roll(1, dims=0)
        >>> monomial_scaling(shift)
        tensor([0.5000, 1.0000, 2.0000], dtype=torch.float64)
    """
    gains = check_finite("matrix", check_matrix("matrix", matrix, square=True)).double().abs()
    links = gains != 0
    if bool((links.sum(0) > 1).any()) or bool((links.sum(1) > 1).any()):
        return None
    follows = {int(j): int(i) for i, j in links.nonzero()}
    logs = torch.zeros(len(gains), dtype=torch.float64)
    weights = torch.ones_like(logs)
    starts = [j for j in range(len(gains)) if j not in follows.values()]  # of paths; what is left are cycles
    left = dict.fromkeys([*starts, *range(len(gains))])
    while left:
        units = _walk(next(iter(left)), follows)
        for unit in units:
            del left[unit]
        for j, i in pairwise(units):
            weights[i] = weights[j] / gains[i, j]
            logs[i] = logs[j] - gains[i, j].log2()
        weights[units] *= 2.0 ** -float(logs[units].mean().round())
    usable = bool(((weights > 2.0**-400) & (weights < 2.0**400)).all()) and bool((logs.abs() < 400).all())
    return weights if usable else None


def _walk(start: int, follows: dict[int, int]) -> list[int]:
    """Return the units from ``start`` on, up to the end of a path or once around a cycle."""
    units = [start]
    while units[-1] in follows and follows[units[-1]] != start:
        units.append(follows[units[-1]])
    return units
