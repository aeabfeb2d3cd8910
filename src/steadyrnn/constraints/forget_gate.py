"""The forget gate of a stable LSTM: the nearest rows that keep it below a bound, for any number of bias vectors."""

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from steadyrnn.linalg.projections import project_rows_l1

from .tolerance import entry_rounding

__all__ = ["ForgetGate", "ForgetLimits", "project_forget_gate", "row_sums", "rows_into_ball"]


class ForgetLimits(NamedTuple):
    r"""The set of rows.

    .. math::
        \lVert w \rVert_1 + B \lVert u \rVert_1 + \sum b \le \text{bound}, \qquad \lVert w \rVert_1 \le \text{radius}
    """

    bound: float
    radius: float
    input_bound: float


class ForgetGate(NamedTuple):
    """Rows of the gate: recurrent weights w (H, H), input weights u (H, D) and the bias vectors, each (H,)."""

    w: Tensor
    u: Tensor
    biases: tuple[Tensor, ...]

    def sums(self, input_bound: float) -> Tensor:
        """Return the largest pre-activation of each unit in float64, shape (H,)."""
        total = row_sums(self.w) + input_bound * row_sums(self.u)
        return total + self.bias()

    def bias(self) -> Tensor:
        """Return the sum of the bias vectors in float64, shape (H,)."""
        return sum((bias.double() for bias in self.biases), self.w.new_zeros(self.w.shape[0], dtype=torch.float64))

    def excess(self, limits: ForgetLimits) -> Tensor:
        """Return how far each row is outside the set, shape (H,); at most 0 inside."""
        return torch.maximum(self.sums(limits.input_bound) - limits.bound, row_sums(self.w) - limits.radius)

    def rounding(self) -> "ForgetGate":
        """Return how far rounding to its dtype may have moved each number, in float64."""
        return ForgetGate(entry_rounding(self.w), entry_rounding(self.u), tuple(map(entry_rounding, self.biases)))

    def sizes(self) -> "ForgetGate":
        """Return absolute values."""
        return ForgetGate(self.w.abs(), self.u.abs(), tuple(bias.abs() for bias in self.biases))

    def like(self, other: "ForgetGate") -> "ForgetGate":
        """Return the same rows in the dtypes of others."""
        biases = tuple(mine.to(its.dtype) for mine, its in zip(self.biases, other.biases, strict=True))
        return ForgetGate(self.w.to(other.w.dtype), self.u.to(other.u.dtype), biases)

    def where(self, chosen: Tensor, other: "ForgetGate") -> "ForgetGate":
        """Return these rows where chosen, shape (H,), and the others elsewhere."""
        column = chosen.unsqueeze(1)
        biases = tuple(torch.where(chosen, mine, its) for mine, its in zip(self.biases, other.biases, strict=True))
        return ForgetGate(torch.where(column, self.w, other.w), torch.where(column, self.u, other.u), biases)


def row_sums(rows: Tensor) -> Tensor:
    """Return absolute row sums in float64.

    Example:
        >>> row_sums(torch.tensor([[1.0, -2.0]]))
        tensor([3.], dtype=torch.float64)
    """
    return rows.double().abs().sum(dim=1)


def rows_into_ball(rows: Tensor, radius: float) -> Tensor:
    r"""Return the nearest rows with :math:`\lVert w \rVert_1 \le` ``radius``, shape ``(M, N)``.

    Rows inside are unchanged. The bound holds for the numbers returned, in their own dtype: what rounding left outside
    is scaled down.

    Example:
        >>> rows_into_ball(torch.tensor([[1.0, 3.0], [0.5, 0.0]]), 1.0)
        tensor([[0.0000, 1.0000],
                [0.5000, 0.0000]])
    """
    near = project_rows_l1(rows.double(), radius).to(rows.dtype)
    sums = row_sums(near).unsqueeze(1)
    inner = radius * (1 - 2 * torch.finfo(rows.dtype).eps)
    scale = torch.where(sums > radius, inner / sums.clamp(min=radius), 1.0)
    return torch.where(row_sums(rows).unsqueeze(1) <= radius, rows, (near.double() * scale).to(rows.dtype))


def project_forget_gate(rows: ForgetGate, limits: ForgetLimits) -> ForgetGate:
    r"""Return the nearest rows inside the set; rows inside are unchanged.

    The nearest point is :math:`w \to \operatorname{soft}(w, \mu + \nu)`, :math:`u \to \operatorname{soft}(u, \mu B)`,
    every bias :math:`b \to b - \mu`, with multipliers :math:`\mu` of the bound and :math:`\nu` of the ball. If the
    point for :math:`\nu = 0` is outside the ball, then w is its nearest point in the ball, whose border it reaches,
    and u and the biases are those for what the bound leaves beside the radius: that needs a smaller :math:`\mu`, so
    :math:`\nu > 0`.
    """
    mu = _level(rows, limits.bound, limits.input_bound)
    w = _soft(rows.w, mu)
    crowded = row_sums(w) > limits.radius
    beside = _level(rows._replace(w=rows.w[:, :0]), limits.bound - limits.radius, limits.input_bound)
    mu = torch.where(crowded, beside, mu)
    w = torch.where(crowded.unsqueeze(1), rows_into_ball(rows.w, limits.radius).double(), w)
    biases = tuple(bias.double() - mu for bias in rows.biases)
    near = ForgetGate(w, _soft(rows.u, mu * limits.input_bound), biases).like(rows)
    return rows.where(rows.excess(limits) <= 0, _settle(near, limits))


def _soft(rows: Tensor, level: Tensor) -> Tensor:
    """Return the soft threshold of every row at its own level, in float64."""
    wide = rows.double()
    return wide.sign() * (wide.abs() - level.unsqueeze(1)).clamp(min=0)


def _level(rows: ForgetGate, bound: float, input_bound: float) -> Tensor:
    r"""Return the :math:`\mu \ge 0`, shape (H,), at which the thresholded rows meet the bound.

    For entries of size :math:`a_k` and weight :math:`c_k` in the sum, m biases of sum b, and a set S of entries,
    :math:`\mu_S = (\sum_S c_k a_k + b - \text{bound}) / (\sum_S c_k^2 + m) \le \mu`: what survives is at least
    :math:`a_k - \mu c_k` and at least 0; with equality for the set that survives, which are the largest
    :math:`a_k / c_k`. So :math:`\mu` is the largest over all sets of largest ones.
    """
    sizes = torch.cat([rows.w, rows.u], dim=1).double().abs()
    weights = sizes.new_ones(sizes.shape[1])
    weights[rows.w.shape[1] :] = input_bound
    order = torch.where(weights > 0, sizes / weights, -math.inf).argsort(dim=1, descending=True)
    gain = pad((sizes * weights).gather(1, order).cumsum(dim=1), (1, 0))
    load = pad(weights.square().expand_as(sizes).gather(1, order).cumsum(dim=1), (1, 0))
    over, load = gain + (rows.bias() - bound).unsqueeze(1), load + len(rows.biases)
    return torch.where(load > 0, over / load, 0.0).amax(dim=1).clamp(min=0)


def _settle(rows: ForgetGate, limits: ForgetLimits) -> ForgetGate:
    """Move rows that rounding left outside the set into it: by their biases, or without any by scaling them down."""
    w = rows_into_ball(rows.w, limits.radius)
    over = rows._replace(w=w).sums(limits.input_bound) - limits.bound
    over = torch.where(over > 0, over, 0.0)
    if rows.biases:
        slack = [2 * torch.finfo(bias.dtype).eps * bias.double().abs() for bias in rows.biases]
        lower = torch.where(over > 0, 2 * over + sum(slack), 0.0)
        biases = tuple((bias.double() - lower).to(bias.dtype) for bias in rows.biases)
        return ForgetGate(w, rows.u, biases)
    eps = max(torch.finfo(w.dtype).eps, torch.finfo(rows.u.dtype).eps)
    scale = torch.where(over > 0, limits.bound * (1 - 2 * eps) / (limits.bound + over), 1.0).unsqueeze(1)
    return ForgetGate((w.double() * scale).to(w.dtype), (rows.u.double() * scale).to(rows.u.dtype), ())
