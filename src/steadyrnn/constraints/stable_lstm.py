"""Stable LSTMs: one convex set for all weights of a layer, kept by projection after each step."""

import math
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from steadyrnn.checks import check_finite, check_interval, check_matrix
from steadyrnn.errors import ArgumentError, ShapeError

from .base import Kind
from .forget_gate import ForgetGate, ForgetLimits, project_forget_gate, row_sums, rows_into_ball
from .tolerance import entry_rounding

__all__ = ["StableLSTM"]

LSTMWeights = tuple[Tensor, Tensor, Tensor | None, Tensor | None]


@dataclass(frozen=True)
class StableLSTM:
    r"""LSTM layers that contract: a joint constraint on all weights of a layer, for ``sr.LSTM(transition=...)``.

    With :math:`\bar f` = ``forget_bound``, :math:`B` = ``input_bound``, :math:`\delta` = ``margin``, recurrent weights
    :math:`W`, input weights :math:`U`, summed biases :math:`b` and :math:`\lVert\cdot\rVert_1` of each row :math:`j`,

    .. math::
        \lVert W_f \rVert_1 + B \lVert U_f \rVert_1 + b_f \le \operatorname{logit} \bar f, \quad
        \lVert W_f \rVert_1 \le (1-\bar f)^2 (1-\delta), \quad
        \lVert W_i \rVert_1, \lVert W_o \rVert_1 \le (1-\bar f)(1-\delta), \quad
        \lVert W_g \rVert_1 \le \tfrac14 (1-\bar f)(1-\delta).

    While :math:`|x_{t,j}| \le B` the first inequality keeps the forget gate below :math:`\bar f`, since
    :math:`|h| < 1`, and the others make one step a contraction of :math:`(h, c)` in the maximum norm, with

    .. math::
        \lambda = \bar f + \tfrac14 \Bigl( \lVert W_i \rVert_\infty + \frac{\lVert W_f \rVert_\infty}{1-\bar f}
        + \lVert W_o \rVert_\infty \Bigr) + \lVert W_g \rVert_\infty \le 1 - \delta(1-\bar f).

    The set is convex, and its nearest point comes row by row from soft thresholds.

    Not a constraint on one matrix: it cannot be put on a gate or used with :func:`steadyrnn.constrain`.

    Args:
        forget_bound: Largest value of the forget gate, between 0 and 1. A large one lets the cell remember (its memory
            decays as :math:`\bar f^t`) and leaves only small recurrent weights, which shrink with
            :math:`1-\bar f`. 0.64 leaves both some, and stays possible without any bias, as all from one half up do.
        input_bound: Largest absolute value of an entry of the input; 1 suits data scaled to :math:`\pm 1`.
        margin: How far from the border of the proposition to stay, between 0 and 1. A small one gives up little of the
            set.

    Example:
        >>> stable = sr.constraints.StableLSTM()
        >>> lstm = torch.nn.LSTM(3, 8)
        >>> weights = stable.project(lstm.weight_ih_l0, lstm.weight_hh_l0, lstm.bias_ih_l0, lstm.bias_hh_l0)
        >>> float(stable.violation(*weights))
        0.0
        >>> stable.contraction
        0.9964

    References:
        Miller, Hardt. When Recurrent Models Don't Need To Be Recurrent (Proposition 5, see Note [corrections]).
        Later version: Stable Recurrent Models. ICLR 2019. https://arxiv.org/abs/1805.10369
    """

    forget_bound: float = 0.64
    input_bound: float = 1.0
    margin: float = 0.01

    kind: ClassVar[Kind] = Kind.PROJECTION

    def __post_init__(self) -> None:
        for name in ("forget_bound", "margin"):
            if check_interval(name, getattr(self, name), 0.0, 1.0) in (0, 1):
                raise ArgumentError(f"`{name}` must lie strictly between 0 and 1, but is {getattr(self, name)}.")
        if not math.isfinite(check_interval("input_bound", self.input_bound, 0.0, math.inf)):
            raise ArgumentError("`input_bound` must be finite.")

    def arguments(self) -> dict[str, Any]:
        """Return the arguments that make such a set."""
        return asdict(self)

    @property
    def contraction(self) -> float:
        r"""The proven constant :math:`\lambda = 1 - \delta(1-\bar f)` of every member, in the maximum norm."""
        return 1 - self.margin * (1 - self.forget_bound)

    def with_input_bound(self, input_bound: float) -> "StableLSTM":
        """Return the same set for inputs of another size: those of a second layer are states, at most 1."""
        return replace(self, input_bound=input_bound)

    @property
    def radii(self) -> tuple[float, float, float, float]:
        """Largest absolute row sums of the recurrent weights of the gates i, f, g, o."""
        budget = (1 - self.forget_bound) * (1 - self.margin)
        return budget, budget * (1 - self.forget_bound), budget / 4, budget

    @property
    def limits(self) -> ForgetLimits:
        """The set of the forget gate's rows."""
        logit = math.log(self.forget_bound / (1 - self.forget_bound))
        return ForgetLimits(logit, self.radii[1], self.input_bound)

    @torch.no_grad()
    def violation(
        self, weight_ih: Tensor, weight_hh: Tensor, bias_ih: Tensor | None = None, bias_hh: Tensor | None = None
    ) -> Tensor:
        """Return how far the worst row is above its bound: a float64 scalar, 0 for a member.

        Args:
            weight_ih: Shape ``(4H, D)``, gates in torch's order i, f, g, o.
            weight_hh: Shape ``(4H, H)``.
            bias_ih: Shape ``(4H,)``, or None.
            bias_hh: Shape ``(4H,)``, or None.
        """
        excess, _ = self._rows(weight_ih, weight_hh, bias_ih, bias_hh)
        return excess.amax().clamp(min=0)

    @torch.no_grad()
    def worst_row(
        self, weight_ih: Tensor, weight_hh: Tensor, bias_ih: Tensor | None = None, bias_hh: Tensor | None = None
    ) -> tuple[float, float]:
        r"""Return how far one row is above its bound, at least 0, and how far rounding may leave it there.

        It is the row that is farthest beyond its rounding. A row of a member that is rounded to the dtype has, with
        :math:`r` of :func:`~steadyrnn.constraints.tolerance.entry_rounding`, a sum of at most
        :math:`\sum_k r(w_k)` above its bound; in the forget gate beside
        :math:`B \sum_k r(u_k) + \sum r(b)`. To that comes the rounding of the sum itself in float64. Arguments as in
        :meth:`violation`.

        Example:
            >>> weights = torch.zeros(4, 1), torch.tensor([[0.0], [0.0], [0.5], [0.0]])
            >>> [round(number, 9) for number in sr.constraints.StableLSTM().worst_row(*weights)]
            [0.4109, 3e-08]
        """
        excess, allowed = self._rows(weight_ih, weight_hh, bias_ih, bias_hh)
        worst = int((excess - allowed).argmax())
        return float(excess[worst].clamp(min=0)), float(allowed[worst])

    def _rows(
        self, weight_ih: Tensor, weight_hh: Tensor, bias_ih: Tensor | None, bias_hh: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """Return how far each inequality is from holding, shape (5H,), and how far rounding may leave it from that."""
        size = _check_shapes(weight_ih, weight_hh, bias_ih, bias_hh)
        biases = tuple(bias[size : 2 * size] for bias in (bias_ih, bias_hh) if bias is not None)
        forget = ForgetGate(weight_hh[size : 2 * size], weight_ih[size : 2 * size], biases)
        radii = torch.tensor(self.radii, dtype=torch.float64, device=weight_hh.device).repeat_interleave(size)
        excess = torch.cat([forget.sums(self.input_bound) - self.limits.bound, row_sums(weight_hh) - radii])
        moved = torch.cat([forget.rounding().sums(self.input_bound), row_sums(entry_rounding(weight_hh))])
        sizes = torch.cat([forget.sizes().sums(self.input_bound) + abs(self.limits.bound), row_sums(weight_hh) + radii])
        terms = weight_hh.shape[1] + weight_ih.shape[1] + 4
        return excess, moved + 2 * terms * torch.finfo(torch.float64).eps * sizes

    @torch.no_grad()
    def project(
        self, weight_ih: Tensor, weight_hh: Tensor, bias_ih: Tensor | None = None, bias_hh: Tensor | None = None
    ) -> LSTMWeights:
        """Return the nearest member as new tensors, arguments as in :meth:`violation`; rows inside are unchanged.

        Two bias vectors move by the same amount.

        Raises:
            NotFiniteError: A weight holds NaN or infinity.
            ArgumentError: There is no bias, and ``forget_bound`` is below one half.
        """
        size = _check_shapes(weight_ih, weight_hh, bias_ih, bias_hh)
        given = {"weight_ih": weight_ih, "weight_hh": weight_hh, "bias_ih": bias_ih, "bias_hh": bias_hh}
        new = {name: check_finite(name, weight).clone() for name, weight in given.items() if weight is not None}
        biases = [name for name in ("bias_ih", "bias_hh") if name in new]
        if not biases and self.forget_bound < 0.5:
            raise ArgumentError(
                f"`forget_bound` must be at least 0.5 for an LSTM without biases, but is {self.forget_bound}: "
                "the forget gate of zero weights is 0.5. Give the layer biases, or raise the bound."
            )
        rows = slice(size, 2 * size)
        forget = ForgetGate(new["weight_hh"][rows], new["weight_ih"][rows], tuple(new[name][rows] for name in biases))
        forget = project_forget_gate(forget, self.limits)
        gates = [rows_into_ball(w, r) for w, r in zip(new["weight_hh"].split(size), self.radii, strict=True)]
        new["weight_hh"] = torch.cat([gates[0], forget.w, *gates[2:]])
        new["weight_ih"][rows] = forget.u
        for name, bias in zip(biases, forget.biases, strict=True):
            new[name][rows] = bias
        return new["weight_ih"], new["weight_hh"], new.get("bias_ih"), new.get("bias_hh")


def _check_shapes(weight_ih: Tensor, weight_hh: Tensor, bias_ih: Tensor | None, bias_hh: Tensor | None) -> int:
    """Return H."""
    check_matrix("weight_ih", weight_ih)
    size = check_matrix("weight_hh", weight_hh).shape[1]
    expected: dict[str, tuple[int, ...]] = {"weight_ih": (4 * size, weight_ih.shape[1]), "weight_hh": (4 * size, size)}
    shapes = {"weight_ih": weight_ih.shape, "weight_hh": weight_hh.shape}
    for name, bias in (("bias_ih", bias_ih), ("bias_hh", bias_hh)):
        if bias is not None:
            expected[name], shapes[name] = (4 * size,), bias.shape
    for name, shape in shapes.items():
        if tuple(shape) != expected[name]:
            raise ShapeError(
                f"`{name}` must have shape {expected[name]}, four gates of {size} units, but has shape {tuple(shape)}."
            )
    return size
