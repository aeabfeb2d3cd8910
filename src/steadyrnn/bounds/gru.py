"""The box a GRU's states cannot leave, and its contraction there: Note [mathematics], section 7.2."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from steadyrnn.checks import check_finite
from steadyrnn.errors import ShapeError

from . import gates
from .norms import Contraction, MaxNorm, above

__all__ = ["GRUBox", "gru_box", "gru_contraction", "gru_input_gain", "gru_rate", "gru_scalar_test"]

GRU_ENTRYWISE = "entrywise bound of a GRU (docs/notes/mathematics.md, 7.2)"
"""The theorem behind :func:`gru_contraction`."""


@dataclass(frozen=True)
class GRUBox:
    """Bounds on the gates, the candidate and the state of a GRU, one per unit: float64, shape ``(H,)``, rounded outwards.

    ``update_low`` and ``update_high`` enclose torch's ``z``, the share of the old state that is kept; ``reset`` bounds
    ``r``, ``candidate`` the absolute value of ``n``, ``hidden`` that of the state, and ``gated`` that of what the reset
    gate multiplies: the recurrent product with its bias if ``reset_after``, the state if not.
    """

    reset: Tensor
    update_low: Tensor
    update_high: Tensor
    candidate: Tensor
    hidden: Tensor
    gated: Tensor
    reset_after: bool

    @property
    def corner(self) -> Tensor:
        """The largest absolute values of the state."""
        return self.hidden


@torch.no_grad()
def gru_box(
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias_ih: Tensor | None,
    bias_hh: Tensor | None,
    input_bound: float,
    reset_after: bool = True,
    rounds: int = 20,
    initial_bound: gates.Bound = 0.0,
) -> GRUBox:
    r"""Return a box that no trajectory of a GRU leaves.

    From :math:`\bar h = 1`, with :math:`p_k = |W_k| \bar h + |U_k| 1 B_x`,

    .. math::
        \bar r = \sigma(p_r + b_r), \quad \sigma(-p_z + b_z) \le z \le \sigma(p_z + b_z), \quad
        \bar h \leftarrow \min(\bar h, \bar n),

    where :math:`\bar n` is the hyperbolic tangent of :math:`|U_n| 1 B_x + |b_n| + \bar r \circ (|W_n| \bar h + |c_n|)` (reset
    after the product, torch's form) or of :math:`|U_n| 1 B_x + |b_n + c_n| + |W_n| (\bar r \circ \bar h)` (before).

    Why it holds: the next state lies between the old one and the candidate, unit by unit, so from
    :math:`|h_0| \le \bar h` none is ever larger than the largest of :math:`|h_0|` and the candidates. An initial state
    other than zero enters this maximum.

    Args:
        weight_ih: :math:`U`, shape ``(3H, D)``, gates in torch's order r, z, n.
        weight_hh: :math:`W`, shape ``(3H, H)``.
        bias_ih: :math:`b`, shape ``(3H,)``, or None.
        bias_hh: :math:`c`, shape ``(3H,)``, or None; its last third stays inside the reset gate if ``reset_after``.
        input_bound: :math:`B_x \ge |x_{t,j}|`.
        reset_after: Whether the reset gate multiplies the recurrent product, or the state before it.
        rounds: How often to tighten the box; each round is valid.
        initial_bound: Bound on the entries of :math:`|h_0|`, a number or one per unit, shape ``(H,)``.

    Example:
        >>> gru = torch.nn.GRU(3, 5)
        >>> box = gru_box(gru.weight_ih_l0, gru.weight_hh_l0, gru.bias_ih_l0, gru.bias_hh_l0, input_bound=1.0)
        >>> bool((box.hidden < 1).all())
        True
    """
    b, c = (_bias(name, bias, weight_hh) for name, bias in (("bias_ih", bias_ih), ("bias_hh", bias_hh)))
    r, z, n = gates.gate_rows(weight_ih, weight_hh, b + c, gates.check_input_bound(input_bound), 3)
    outer, inner = (part.abs().split(len(n.bias))[2] for part in (b, c))
    n = n._replace(bias=outer if reset_after else n.bias.abs())
    first = gates.as_bound("initial_bound", initial_bound, n.bias)

    def around(hidden: Tensor) -> GRUBox:
        reset = gates.sigmoid_above(r.highest(hidden))
        gated = gates.round_up(n.recurrent @ hidden + inner, len(hidden) + 8) if reset_after else hidden
        candidate = gates.tanh_above(_candidate_reach(n, reset, gated, reset_after))
        low, high = gates.sigmoid_below(z.lowest(hidden)), gates.sigmoid_above(z.highest(hidden))
        return GRUBox(reset, low, high, candidate, hidden, gated, reset_after)

    box = around(first.clamp(min=1.0))
    for _ in range(rounds):
        box = around(box.hidden.minimum(box.candidate.maximum(first)))
    return box


@torch.no_grad()
def gru_scalar_test(weight_hh: Tensor, box: GRUBox) -> float:
    r"""Return the known scalar test of contraction: passed if below 1.

    With :math:`\lVert\cdot\rVert` the largest absolute row sum and the largest of each bound of the box,

    .. math::
        \lambda = \max_{z} \bigl[ z + (1 - z) \kappa \bigr] + \tfrac14 (\bar h + \bar n) \lVert W_z \rVert, \qquad
        \kappa = \lVert W_n \rVert \bigl( \bar r + \tfrac14 \bar h \lVert W_r \rVert \bigr)

    (reset before the product; after it, :math:`\kappa = \bar r \lVert W_n \rVert + \tfrac14 \bar a \lVert W_r \rVert` with
    :math:`\bar a` the bound on the product). For ``rounds=0``, that is :math:`\bar h = 1`, :math:`\lambda < 1` is the
    published condition :math:`\kappa < 1 - \tfrac14 \frac{1 + \bar n}{1 - \bar z} \lVert W_z \rVert`, with gate bounds of
    its own. :func:`gru_contraction` does the same with every unit apart.

    Args:
        weight_hh: :math:`W`, shape ``(3H, H)``, gates in torch's order r, z, n.
        box: From :func:`gru_box`.

    Example:
        >>> zero = torch.zeros(3, 1)
        >>> round(gru_scalar_test(zero, gru_box(zero, zero, None, None, input_bound=1.0)), 4)
        0.5

    References:
        Bonassi, Farina, Scattolini. On the stability properties of Gated Recurrent Units neural networks.
        Systems and Control Letters 157, 2021. https://arxiv.org/abs/2011.06806
    """
    r, z, n = (float(part.sum(1).max()) for part in _recurrent(weight_hh, box))
    reset, gated = float(box.reset.max()), float(box.gated.max())
    through = reset * n + gated * r / 4 if box.reset_after else n * (reset + gated * r / 4)
    kept = max(share + (1 - share) * through for share in (float(box.update_low.min()), float(box.update_high.max())))
    return above(kept + float(box.hidden.max() + box.candidate.max()) * z / 4, 2 * len(box.hidden) + 64)


@torch.no_grad()
def gru_contraction(weight_hh: Tensor, box: GRUBox) -> Contraction:
    r"""Return the contraction of a GRU's state in a weighted maximum norm, for states of the box.

    For two states, :math:`\Delta h^+ = z \circ \Delta h + (1 - z) \circ \Delta n + \Delta z \circ (h' - n')`, hence
    :math:`|\Delta h^+| \le T(|\Delta h|)`,

    .. math::
        T(v)_j = \max_{z} \bigl[ z v_j + (1 - z) (J_n v)_j \bigr] + (J_z v)_j, \qquad
        J_z = \tfrac14 \operatorname{diag}(\bar h + \bar n) |W_z|,

    the maximum over both ends of the range of :math:`z_j`, and

    .. math::
        J_n = \operatorname{diag}(\bar r) |W_n| + \tfrac14 \operatorname{diag}(|W_n| \bar h + |c_n|) |W_r|
        \quad\text{or}\quad
        J_n = |W_n| \bigl( \operatorname{diag}(\bar r) + \tfrac14 \operatorname{diag}(\bar h) |W_r| \bigr)

    with the reset gate after or before the product. T is monotone and homogeneous, so for any :math:`v > 0`,
    :math:`\max_j |\Delta h_j| / v_j` shrinks by :math:`\max_j T(v)_j / v_j`; v comes from the power iteration
    :math:`v \leftarrow T(v)`.

    Args:
        weight_hh: :math:`W`, shape ``(3H, H)``, gates in torch's order r, z, n.
        box: From :func:`gru_box`.

    Example:
        >>> gru = torch.nn.GRU(3, 5)
        >>> with torch.no_grad():
        ...     _ = gru.weight_hh_l0.mul_(0.1)
        >>> box = gru_box(gru.weight_ih_l0, gru.weight_hh_l0, None, None, input_bound=1.0)
        >>> gru_contraction(gru.weight_hh_l0, box).stable
        True

    References:
        Bonassi, Farina, Scattolini. On the stability properties of Gated Recurrent Units neural networks.
        Systems and Control Letters 157, 2021. https://arxiv.org/abs/2011.06806 (made entrywise).
    """
    weights = gates.perron_weights(_comparison(weight_hh, box), box.hidden)
    return Contraction(gru_rate(weight_hh, box, weights), MaxNorm(weights), GRU_ENTRYWISE)


@torch.no_grad()
def gru_rate(weight_hh: Tensor, box: GRUBox, weights: Tensor) -> float:
    r"""Return the rate of :func:`gru_contraction` in the norm of given weights: :math:`\max_j T(v)_j / v_j`.

    Args:
        weight_hh: :math:`W`, shape ``(3H, H)``, gates in torch's order r, z, n.
        box: From :func:`gru_box`.
        weights: :math:`v > 0`, shape ``(H,)``.

    Example:
        >>> zero = torch.zeros(3, 1)
        >>> round(gru_rate(zero, gru_box(zero, zero, None, None, input_bound=1.0), torch.ones(1)), 4)
        0.5
    """
    weights = gates.check_norm(MaxNorm(weights), len(box.hidden), "the state").to(box.hidden.device)
    ratio = _comparison(weight_hh, box)(weights) / weights
    return float(gates.round_up(ratio, 2 * len(weights) + 32).max()) if bool(ratio.isfinite().all()) else math.inf


@torch.no_grad()
def gru_input_gain(weight_ih: Tensor, weight_hh: Tensor, box: GRUBox, norm: MaxNorm) -> float:
    r"""Return how far a step moves with its input: :math:`N(h^+(x) - h^+(x')) \le` gain :math:`\lVert x - x' \rVert_2`.

    At the same state :math:`\Delta h^+ = (1 - z) \circ \Delta n + \Delta z \circ (h - n')`, so
    :math:`|\Delta h^+| \le G_x |\Delta x|`,

    .. math::
        G_x = \operatorname{diag}(1 - z_{\mathrm{low}}) \bigl( |U_n| + \tfrac14 R |U_r| \bigr)
        + \tfrac14 \operatorname{diag}(\bar h + \bar n) |U_z|,

    with :math:`R = \operatorname{diag}(|W_n| \bar h + |c_n|)` or :math:`R = |W_n| \operatorname{diag}(\bar h)`, the reset gate
    after or before the product; then the Cauchy-Schwarz inequality in each row.

    Args:
        weight_ih: :math:`U`, shape ``(3H, D)``, gates in torch's order r, z, n.
        weight_hh: :math:`W`, shape ``(3H, H)``.
        box: From :func:`gru_box`, for both inputs and the state.
        norm: From :func:`gru_contraction`.

    Example:
        >>> zero = torch.zeros(3, 1)
        >>> gru_input_gain(zero, zero, gru_box(zero, zero, None, None, input_bound=1.0), MaxNorm(torch.ones(1))) < 1e-200
        True
    """
    size = len(box.hidden)
    weights = gates.check_norm(norm, len(box.hidden), "the state").to(box.hidden.device)
    r, z, n = gates.absolute_parts("weight_ih", weight_ih, 3, size)
    recurrent = _recurrent(weight_hh, box)[2]
    through = box.gated.unsqueeze(1) * r / 4
    moved = n + (through if box.reset_after else recurrent @ through)
    rows = (1 - box.update_low).unsqueeze(1) * moved + (box.hidden + box.candidate).unsqueeze(1) * z / 4  # (H, D)
    return float(gates.round_up(rows.norm(dim=1) / weights, size + rows.shape[1] + 32).max())


def _bias(name: str, bias: Tensor | None, weight_hh: Tensor) -> Tensor:
    """Return a bias in float64, zero where it is missing."""
    shape = weight_hh.shape[:1]
    if bias is None:
        return weight_hh.new_zeros(shape, dtype=torch.float64)
    if bias.shape != shape:
        raise ShapeError(f"`{name}` must have shape {tuple(shape)}, but has {tuple(bias.shape)}.")
    return check_finite(name, bias).detach().double()


def _candidate_reach(gate: gates.Gate, reset: Tensor, gated: Tensor, reset_after: bool) -> Tensor:
    """Return the largest absolute argument of the candidate's hyperbolic tangent, rounded up."""
    recurrent = reset * gated if reset_after else gate.recurrent @ (reset * gated)
    return gates.round_up(gate.reach + gate.bias + recurrent, len(reset) + 8)


def _comparison(weight_hh: Tensor, box: GRUBox) -> Callable[[Tensor], Tensor]:
    """Return the map T."""
    r, z, n = _recurrent(weight_hh, box)
    distance = (box.hidden + box.candidate) / 4

    def candidate(v: Tensor) -> Tensor:
        if box.reset_after:
            return box.reset * (n @ v) + box.gated * (r @ v) / 4
        return n @ (box.reset * v + box.gated * (r @ v) / 4)

    def apply(v: Tensor) -> Tensor:
        moved = candidate(v)
        low, high = (share * v + (1 - share) * moved for share in (box.update_low, box.update_high))
        return low.maximum(high) + distance * (z @ v)

    return apply


def _recurrent(weight_hh: Tensor, box: GRUBox) -> tuple[Tensor, ...]:
    """Return the absolute recurrent weights of each gate."""
    return gates.absolute_parts("weight_hh", weight_hh, 3, len(box.hidden), len(box.hidden))
