"""The box an LSTM's states cannot leave, and its contraction there: Note [mathematics], section 7.1."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from .gates import (
    Bound,
    absolute_parts,
    as_bound,
    check_input_bound,
    check_norm,
    gate_rows,
    perron_weights,
    round_up,
    sigmoid_above,
    sigmoid_below,
    tanh_above,
)
from .norms import Contraction, MaxNorm, above

__all__ = [
    "LSTMBox",
    "LSTMRates",
    "lstm_box",
    "lstm_contraction",
    "lstm_input_gain",
    "lstm_rate",
    "lstm_rates",
]

LSTM_ENTRYWISE = "Proposition 5 of Miller and Hardt (2019), entrywise (docs/notes/mathematics.md, 7.1)"
"""The theorem behind :func:`lstm_contraction`."""


@dataclass(frozen=True)
class LSTMBox:
    """Largest values of the gates and largest absolute values of candidate and states, one per unit.

    Each is a float64 tensor of shape ``(H,)``, rounded up. The candidate is torch's ``g``.
    """

    forget: Tensor
    input: Tensor
    output: Tensor
    candidate: Tensor
    cell: Tensor
    hidden: Tensor

    @property
    def squashed(self) -> Tensor:
        r"""The largest :math:`|\tanh c|`."""
        return tanh_above(self.cell)

    @property
    def corner(self) -> Tensor:
        """The largest absolute values of the state, c before h."""
        return torch.cat([self.cell, self.hidden])


class LSTMRates(NamedTuple):
    """Two quick tests of contraction, each passed if below 1; both hold for every state of the box.

    ``printed`` is that of the paper, in the maximum norm; ``paired`` looks at cell and output apart, with one number each.
    """

    printed: float
    paired: float


@torch.no_grad()
def lstm_box(
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias: Tensor | None,
    input_bound: float,
    rounds: int = 20,
    initial_bound: Bound | tuple[Bound, Bound] = 0.0,
) -> LSTMBox:
    r"""Return a box that no trajectory of an LSTM leaves.

    From :math:`\bar h = 1`, with :math:`p_k = |W_k| \bar h + |U_k| 1 B_x`,

    .. math::
        \bar f = \sigma(p_f + b_f), \quad \bar\imath = \sigma(p_i + b_i), \quad \bar o = \sigma(p_o + b_o), \quad
        \bar g = \tanh(p_g + |b_g|), \quad \bar c = \frac{\bar\imath \bar g}{1 - \bar f}, \quad
        \bar h \leftarrow \min(\bar h, \bar o \tanh \bar c).

    Why it holds: :math:`|h_t| < 1` always. If :math:`|h_t| \le \bar h` at all times, then the gates are below their
    bounds at all times, so :math:`|c^+| \le \bar f |c| + \bar\imath \bar g`, which keeps
    :math:`|c| \le \bar\imath \bar g / (1 - \bar f)` true, and :math:`|h^+| \le \bar o \tanh \bar c`. An initial state other
    than zero only enters where a maximum over time is taken: :math:`\bar c` is at least the bound on :math:`|c_0|`, and
    :math:`\bar h` at least that on :math:`|h_0|`.

    Args:
        weight_ih: :math:`U`, shape ``(4H, D)``, gates in torch's order i, f, g, o.
        weight_hh: :math:`W`, shape ``(4H, H)``.
        bias: The sum of both bias vectors, taken in float64, shape ``(4H,)``, or None.
        input_bound: :math:`B_x \ge |x_{t,j}|`.
        rounds: How often to tighten the box; each round is valid.
        initial_bound: Bound on the entries of :math:`|h_0|` and :math:`|c_0|`, a number or one per unit, shape ``(H,)``;
            or a pair of these, for :math:`h_0` and :math:`c_0`.

    Example:
        >>> lstm = torch.nn.LSTM(3, 5)
        >>> bias = lstm.bias_ih_l0.double() + lstm.bias_hh_l0.double()
        >>> box = lstm_box(lstm.weight_ih_l0, lstm.weight_hh_l0, bias, input_bound=1.0)
        >>> bool((box.hidden < 1).all())
        True

    References:
        Miller, Hardt. Stable Recurrent Models (Proposition 5 and its Lemma 5). ICLR 2019.
        https://arxiv.org/abs/1805.10369
    """
    bias = weight_hh.new_zeros(len(weight_hh)) if bias is None else bias
    i, f, g, o = gate_rows(weight_ih, weight_hh, bias, check_input_bound(input_bound), 4)
    g = g._replace(bias=g.bias.abs())
    pair = initial_bound if isinstance(initial_bound, tuple) else (initial_bound, initial_bound)
    first_hidden, first_cell = (as_bound("initial_bound", bound, f.bias) for bound in pair)

    def around(hidden: Tensor) -> LSTMBox:
        opening, forget, output = (gate.highest(hidden) for gate in (i, f, o))
        enters, candidate = sigmoid_above(opening), tanh_above(g.highest(hidden))
        leak = sigmoid_below(-forget)  # 1 - f without cancellation
        cell = torch.where(leak > 0, round_up(enters * candidate / leak, 8), math.inf).maximum(first_cell)
        return LSTMBox(sigmoid_above(forget), enters, sigmoid_above(output), candidate, cell, hidden)

    box = around(first_hidden.clamp(min=1.0))
    for _ in range(rounds):
        reached = round_up(box.output * box.squashed, 4).maximum(first_hidden)
        box = around(box.hidden.minimum(reached))
    return box


@torch.no_grad()
def lstm_rates(weight_hh: Tensor, box: LSTMBox) -> LSTMRates:
    r"""Return the paper's test of contraction, and a sharper one as cheap.

    With :math:`\lVert\cdot\rVert` the largest absolute row sum and the largest of each bound of the box,

    .. math::
        \lambda_1 &= \bar f + \tfrac14 \Bigl( \lVert W_i \rVert + \frac{\lVert W_f \rVert}{1 - \bar f}
        + \lVert W_o \rVert \Bigr) + \lVert W_g \rVert, \\
        \lambda_2 &= \rho \begin{pmatrix} \bar f & a \\ \bar o \bar f & \bar o a + b \end{pmatrix}, \quad
        a = \tfrac14 (\lVert W_i \rVert \bar g + \lVert W_f \rVert \bar c) + \bar\imath \lVert W_g \rVert, \quad
        b = \tfrac14 \lVert W_o \rVert \tanh \bar c.

    The matrix bounds :math:`(|\Delta c^+|, |\Delta h^+|)` by :math:`(|\Delta c|, |\Delta h|)` in the maximum norm; see
    :func:`lstm_contraction`, which does the same with every unit apart and is never worse.

    Args:
        weight_hh: :math:`W`, shape ``(4H, H)``, gates in torch's order i, f, g, o.
        box: From :func:`lstm_box`. If it is made for an initial cell state above :math:`1 / (1 - \bar f)`, that bound takes
            the place of this number in :math:`\lambda_1`.

    Example:
        >>> zero = torch.zeros(4, 1)
        >>> rates = lstm_rates(zero, lstm_box(zero, zero, None, input_bound=1.0))
        >>> round(rates.printed, 4), round(rates.paired, 4)
        (0.5, 0.5)

    References:
        Miller, Hardt. Stable Recurrent Models (Proposition 5). ICLR 2019. https://arxiv.org/abs/1805.10369
    """
    i, f, g, o = (float(part.sum(1).max()) for part in _recurrent(weight_hh, box))
    forget, enters, output = float(box.forget.max()), float(box.input.max()), float(box.output.max())
    candidate, cell, squashed = float(box.candidate.max()), float(box.cell.max()), float(box.squashed.max())
    roundings = len(box.hidden) + 64
    longest = max(1 / (1 - forget) if forget < 1 else math.inf, cell)
    printed = forget + (i + (f * longest if f else 0.0) + o) / 4 + g
    a, b = (i * candidate + (f * cell if f else 0.0)) / 4 + enters * g, o * squashed / 4
    if not math.isfinite(a):
        return LSTMRates(math.inf, math.inf)
    low, high = forget, output * a + b
    paired = (low + high) / 2 + math.hypot((low - high) / 2, math.sqrt(a * output * forget))
    return LSTMRates(above(printed, roundings), above(paired, roundings))


@torch.no_grad()
def lstm_contraction(weight_hh: Tensor, box: LSTMBox) -> Contraction:
    r"""Return the contraction of an LSTM's state :math:`(c, h)` in a weighted maximum norm, for states of the box.

    Two steps from the same input differ by at most

    .. math::
        |\Delta c^+| &\le \operatorname{diag}(\bar f) |\Delta c| + G |\Delta h|, \quad
        G = \tfrac14 \operatorname{diag}(\bar g) |W_i| + \operatorname{diag}(\bar\imath) |W_g|
        + \tfrac14 \operatorname{diag}(\bar c) |W_f|, \\
        |\Delta h^+| &\le \operatorname{diag}(\bar o) |\Delta c^+|
        + \tfrac14 \operatorname{diag}(\tanh \bar c) |W_o| |\Delta h|,

    entry by entry, since :math:`\sigma' \le \tfrac14`, :math:`\tanh' \le 1` and a difference of products is a sum of two
    in each of which one factor is a difference. For the matrix M of this and any :math:`v > 0`,
    :math:`\max_j |\Delta s_j| / v_j` shrinks by :math:`\max_j (Mv)_j / v_j`; v comes from power iteration, so the rate is
    about the spectral radius of M, the least that such a norm can give.

    Args:
        weight_hh: :math:`W`, shape ``(4H, H)``, gates in torch's order i, f, g, o.
        box: From :func:`lstm_box`.

    Returns:
        The rate, which may be 1 or more, and infinite; its norm takes states ``(c, h)``, shape ``(..., 2H)``.

    Example:
        >>> lstm = torch.nn.LSTM(3, 5)
        >>> with torch.no_grad():
        ...     _ = lstm.weight_hh_l0.mul_(0.1)
        >>> box = lstm_box(lstm.weight_ih_l0, lstm.weight_hh_l0, None, input_bound=1.0)
        >>> lstm_contraction(lstm.weight_hh_l0, box).stable
        True

    References:
        Miller, Hardt. Stable Recurrent Models. ICLR 2019. https://arxiv.org/abs/1805.10369 (made entrywise).
    """
    weights = perron_weights(_comparison(weight_hh, box), torch.cat([box.cell, box.hidden]))
    return Contraction(lstm_rate(weight_hh, box, weights), MaxNorm(weights), LSTM_ENTRYWISE)


@torch.no_grad()
def lstm_rate(weight_hh: Tensor, box: LSTMBox, weights: Tensor) -> float:
    r"""Return the rate of :func:`lstm_contraction` in the norm of given weights: :math:`\max_j (Mv)_j / v_j`.

    Args:
        weight_hh: :math:`W`, shape ``(4H, H)``, gates in torch's order i, f, g, o.
        box: From :func:`lstm_box`.
        weights: :math:`v > 0` for ``(c, h)``, shape ``(2H,)``.

    Example:
        >>> zero = torch.zeros(4, 1)
        >>> round(lstm_rate(zero, lstm_box(zero, zero, None, input_bound=1.0), torch.ones(2)), 4)
        0.5
    """
    weights = check_norm(MaxNorm(weights), 2 * len(box.hidden), "(c, h)").to(box.hidden.device)
    ratio = _comparison(weight_hh, box)(weights) / weights
    return float(round_up(ratio, len(weights) + 32).max()) if bool(ratio.isfinite().all()) else math.inf


@torch.no_grad()
def lstm_input_gain(weight_ih: Tensor, box: LSTMBox, norm: MaxNorm) -> float:
    r"""Return how far a step moves with its input: :math:`N(s^+(x) - s^+(x')) \le` gain :math:`\lVert x - x' \rVert_2`.

    .. math::
        |\Delta c^+| &\le G_x |\Delta x|, \quad
        G_x = \tfrac14 \operatorname{diag}(\bar g) |U_i| + \operatorname{diag}(\bar\imath) |U_g|
        + \tfrac14 \operatorname{diag}(\bar c) |U_f|, \\
        |\Delta h^+| &\le \operatorname{diag}(\bar o) |\Delta c^+|
        + \tfrac14 \operatorname{diag}(\tanh \bar c) |U_o| |\Delta x|,

    as in :func:`lstm_contraction`; then the Cauchy-Schwarz inequality in each row.

    Args:
        weight_ih: :math:`U`, shape ``(4H, D)``, gates in torch's order i, f, g, o.
        box: From :func:`lstm_box`, for both inputs and the state.
        norm: From :func:`lstm_contraction`.

    Example:
        >>> zero = torch.zeros(4, 1)
        >>> lstm_input_gain(zero, lstm_box(zero, zero, None, input_bound=1.0), MaxNorm(torch.ones(2))) < 1e-200
        True
    """
    weights = check_norm(norm, 2 * len(box.hidden), "(c, h)").to(box.hidden.device)
    cell, rest = _gains(absolute_parts("weight_ih", weight_ih, 4, len(box.hidden)), box)
    both = torch.cat([cell, box.output.unsqueeze(1) * cell + rest])  # (2H, D)
    gain = round_up(both.norm(dim=1) / weights, both.shape[1] + 32).max()
    return float(gain) if bool(gain.isfinite()) else math.inf


def _gains(parts: tuple[Tensor, ...], box: LSTMBox) -> tuple[Tensor, Tensor]:
    """Return what a difference of the gates' arguments adds to the cell, and past the cell to the output."""
    i, f, g, o = parts
    enters, candidate, cell, squashed = (bound.unsqueeze(1) for bound in (box.input, box.candidate, box.cell, box.squashed))
    return candidate * i / 4 + enters * g + cell * f / 4, squashed * o / 4


def _comparison(weight_hh: Tensor, box: LSTMBox) -> Callable[[Tensor], Tensor]:
    """Return the product with M, by blocks."""
    gain, rest = _gains(_recurrent(weight_hh, box), box)

    def apply(v: Tensor) -> Tensor:
        cell, hidden = v.chunk(2)
        top = box.forget * cell + gain @ hidden
        return torch.cat([top, box.output * top + rest @ hidden])

    return apply


def _recurrent(weight_hh: Tensor, box: LSTMBox) -> tuple[Tensor, ...]:
    """Return the absolute recurrent weights of each gate."""
    return absolute_parts("weight_hh", weight_hh, 4, len(box.hidden), len(box.hidden))
