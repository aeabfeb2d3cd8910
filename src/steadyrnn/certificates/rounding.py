"""How far computed numbers can be from the exact ones: a step of a recurrence, and the largest of many norms."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from steadyrnn.bounds.memory import summation_error
from steadyrnn.bounds.norms import above, spectral_norm_bound
from steadyrnn.cells.record import CellRecord
from steadyrnn.checks import multiplies_in_full_float32
from steadyrnn.engines.base import AsyncResult, Gate, Recurrence, as_gates
from steadyrnn.engines.cuda.kernels.norms import largest_square, supports
from steadyrnn.errors import CertificateError
from steadyrnn.layers.base import RecurrentLayer

__all__ = ["LargestNorms", "Sizes", "largest_norm", "local_rounding", "norm_of_square", "sizes_of", "sizes_of_layers"]

UNITS, CUDNN_UNITS = 8, 256
"""Assumed of tanh, sigmoid and a user's own activation: errors of at most this many units of rounding, relative to the
larger of value and argument; the second of cuDNN's own in float32, measured at up to 166 on an H200."""
_SECOND_ORDER = 1.125
"""Covers products of two errors, where each is at most 1/16."""


Number = TypeVar("Number", float, Tensor)
"""One bound for all steps, or one for each."""


class Sizes(NamedTuple):
    """What a step multiplies by, in absolute values: numbers that change with the weights only."""

    state: float  # spectral norm of |W|
    input: float  # of |U|
    bias: float  # 2-norm of |b|
    terms: int  # roundings on the way to one pre-activation


@torch.no_grad()
def sizes_of(recurrence: Recurrence) -> Sizes:
    r"""Return bounds on :math:`\lVert |W| \rVert`, :math:`\lVert |U| \rVert` and :math:`\lVert |b| \rVert`.

    Of a factored weight :math:`|W|` stands for :math:`|d| + |L| |R|^\top`, by which its errors are bounded whether it is
    applied in factors or multiplied out first.

    Example:
        >>> from steadyrnn.cells.registry import CELLS
        >>> run = Recurrence(CELLS["rnn-tanh"], torch.ones(3, 1, 1), (torch.zeros(1, 1),), torch.ones(1, 1), -torch.eye(1))
        >>> round(sizes_of(run).state, 6)
        1.0
    """
    gates = as_gates(recurrence.weight_hh)
    inner = max(0 if isinstance(gate, Tensor) else gate.left.shape[1] for gate in gates)
    width = recurrence.state[0].shape[-1] + recurrence.weight_ih.shape[1]
    biases = [b.detach().double().cpu().abs() for b in (recurrence.bias_ih, recurrence.bias_hh) if b is not None]
    bias = float(torch.linalg.vector_norm(torch.stack(biases).sum(0))) if biases else 0.0
    return Sizes(
        spectral_norm_bound(torch.cat([_absolute(gate) for gate in gates])),
        spectral_norm_bound(recurrence.weight_ih.detach().double().cpu().abs()),
        above(bias, 64 + width),
        width + inner + 8,
    )


@torch.no_grad()
def sizes_of_layers(layer: RecurrentLayer) -> tuple[Sizes, ...]:
    """Return :func:`sizes_of` of every layer of a stack that runs one way.

    Example:
        >>> len(sizes_of_layers(sr.RNN(2, 4, num_layers=3)))
        3
    """
    found = []
    for place in range(layer.num_layers):
        end = layer.suffix(place, 0)
        weight = getattr(layer, f"weight_ih{end}")
        state = tuple(weight.new_zeros(1, layer.hidden_size) for _ in layer.cell.record.state_names)
        nothing = weight.new_zeros(0, 1, weight.shape[1])
        found.append(sizes_of(layer._recurrence(nothing, state, end, None, False, False)))
    return tuple(found)


def _absolute(gate: Gate) -> Tensor:
    """Return |W| of a gate in float64 on the CPU."""
    if isinstance(gate, Tensor):
        return gate.detach().double().cpu().abs()
    diagonal, left, right = (part.detach().double().cpu().abs() for part in gate)
    return torch.addmm(diagonal.diag(), left, right.mT) * (1 + 1e-12)


def local_rounding(recurrence: Recurrence, sizes: Sizes, hidden: Number, inputs: Number, cell: float = 0.0) -> Number:
    r"""Return a bound on the 2-norm of the error of one computed step, in the recurrence's dtype.

    Note [mathematics], section 6.5.

    .. math:: \delta \le \gamma_m \bigl\lVert |W| |h| + |U| |x| + |b| \bigr\rVert + \text{the activation's own error}

    for an Elman step, whatever the order in which sums are formed; the pre-activation's error goes through an activation
    of slope at most :math:`\gamma`. In a gated step each gate has this error, through a slope of 1/4 or 1, and products of
    gates and states add theirs.

    Args:
        recurrence: Cell, dtype and device are read off it.
        sizes: Of its weights.
        hidden: Bound on the 2-norm of every output h, or of those before and behind each step.
        inputs: Bound on the 2-norm of every input, or of each.
        cell: Bound on the entries of an LSTM's cell state.

    Returns:
        The bound; infinite where so many terms in so few digits prove nothing.

    Example:
        >>> from steadyrnn.cells.registry import CELLS
        >>> run = Recurrence(CELLS["rnn-tanh"], torch.ones(3, 1, 1), (torch.zeros(1, 1),), torch.ones(1, 1), torch.eye(1))
        >>> local_rounding(run, sizes_of(run), hidden=1.0, inputs=1.0) < 64 * 2.0**-24
        True

    References:
        Higham. Accuracy and Stability of Numerical Algorithms, chapter 3. SIAM 2002.
    """
    x, step = recurrence.input, recurrence.cell
    info = torch.finfo(x.dtype)
    u = info.eps / 2
    own = (CUDNN_UNITS if x.device.type == "cuda" and x.dtype == torch.float32 else UNITS) * u
    relative = summation_error(sizes.terms, _product_round_off(x, u))
    if relative > 1 / 16 or own > 1 / 16:
        return hidden + math.inf
    size = recurrence.state[0].shape[-1]
    reach = sizes.state * hidden + sizes.input * inputs + sizes.bias
    linear = relative * reach + math.sqrt(len(step.record.gates) * size) * sizes.terms * info.tiny  # what underflows is lost
    bound = _STEP_ERRORS.get(step.record.theorem)
    if bound is None:
        raise CertificateError(f"No bound on the rounding of the cell {step.record.key!r}.")
    error: Number = bound(StepSizes(linear, own, reach, hidden, cell, math.sqrt(size)), step.record)
    return error * above(_SECOND_ORDER)


class StepSizes(NamedTuple):
    """What the error of a step is put together of; a number, or a tensor with one for each step."""

    linear: Any  # error of every pre-activation
    own: float  # relative error of an activation
    reach: Any  # of pre-activations
    hidden: Any  # of states
    cell: float  # of entries of an LSTM's cell state
    root: float  # sqrt(H)


def _elman(sizes: StepSizes, record: CellRecord) -> Any:
    """Return the error of an activation from that of its argument."""
    slope = 1.0 if record.activation is None else record.activation.steepness[1]
    return slope * sizes.linear + sizes.own * (sizes.hidden + slope * sizes.reach)


def _gru(sizes: StepSizes, record: CellRecord) -> Any:
    """Return the error of n + z (h - n) from that of its gates, entry by entry."""
    linear, own, reach, hidden, _, root = sizes
    gate = linear / 4 + own
    candidate = 2 * linear + gate * reach + own * (root + 2 * reach)
    return candidate + gate * (hidden + root) + own * (hidden + root)


def _lstm(sizes: StepSizes, record: CellRecord) -> Any:
    """Return the error of (c, h), c = f c + i g and h = o tanh c, from that of its gates."""
    linear, own, _, _, cell, root = sizes
    gate = linear / 4 + own * root
    new_cell = gate * (cell + 1) + linear + own * root * (cell + 2)
    behind = gate + new_cell + 2 * own * root
    return (new_cell * new_cell + behind * behind) ** 0.5


_STEP_ERRORS: dict[str | None, Callable[[StepSizes, CellRecord], Any]] = {"elman": _elman, "gru": _gru, "lstm": _lstm}
"""The error of a computed step, by the kind of step that the cell's record names."""


def _product_round_off(x: Tensor, round_off: float) -> float:
    """Return the unit round-off of a product, which a GPU may be allowed to round to ten bits."""
    short = x.dtype == torch.float32 and not multiplies_in_full_float32()
    return 2.0**-9 if short else round_off


class LargestNorms:
    """:func:`largest_norm` of each of some tensors, on its way from the device until it is read.

    Example:
        >>> [round(norm, 4) for norm in LargestNorms(torch.tensor([[3.0, 4.0]]), torch.zeros(0, 2)).value()]
        [5.0, 0.0]
    """

    @torch.no_grad()
    def __init__(self, *tensors: Tensor) -> None:
        self.tensors, self.norms = tensors, AsyncResult(torch.stack([_largest(t) for t in tensors]))

    def value(self) -> list[float]:
        """Return the numbers, once they are there."""
        return [_round_up(t, largest) for t, largest in zip(self.tensors, self.norms.value().tolist(), strict=True)]


def largest_norm(vectors: Tensor) -> float:
    """Return a number that is not below the 2-norm of any of ``vectors``, shape (..., N); NaN where there is one.

    Example:
        >>> round(largest_norm(torch.tensor([[3.0, 4.0], [0.0, 1.0]])), 4)
        5.0
    """
    return LargestNorms(vectors).value()[0]


def norm_above(norm: float, size: int, dtype: torch.dtype) -> float:
    """Return a number that is not below the 2-norm of ``size`` entries which was computed in ``dtype`` as ``norm``.

    Example:
        >>> 5 < norm_above(5.0, 2, torch.float32) < 5.00001
        True
    """
    info = torch.finfo(dtype)
    return (norm * (1 + (size + 8) * info.eps) + math.sqrt(size * info.tiny)) * (1 + 2.0**-49)


def norm_of_square(square: float, size: int, dtype: torch.dtype) -> float:
    """Return a number not below the 2-norm of finite vectors whose sums of squares were computed as at most ``square``.

    A square may overflow where the number does not. NaN stays NaN.

    Example:
        >>> 5 < norm_of_square(25.0, 2, torch.float32) < 5.00001
        True
    """
    if math.isnan(square):
        return square
    return norm_above(math.sqrt(min(square, torch.finfo(dtype).max ** 2 * size)), size, dtype)


def _largest(vectors: Tensor) -> Tensor:
    """Return the largest 2-norm of ``vectors``, shape (..., N), as computed; 0 where there are none."""
    if not vectors.numel():
        return vectors.new_zeros(())
    fused = vectors.is_cuda and supports(vectors)
    return largest_square(vectors).sqrt() if fused else torch.linalg.vector_norm(vectors, dim=-1).max()


def _round_up(vectors: Tensor, largest: float) -> float:
    """Return a computed largest norm with what rounding may have taken from it."""
    size = vectors.shape[-1]
    if vectors.numel() == 0:
        return 0.0
    if math.isinf(largest):  # a square may overflow where the number does not
        return math.sqrt(size) * max(abs(float(edge)) for edge in torch.aminmax(vectors.detach())) * (1 + 2.0**-49)
    return norm_above(largest, size, vectors.dtype)
