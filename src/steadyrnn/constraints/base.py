"""What a constraint is, and the laws of its kind."""

import copy
import inspect
import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import nullcontext
from enum import Enum
from typing import Any, NamedTuple, NoReturn

import torch
from torch import Tensor, nn

from steadyrnn.checks import (
    check_finite,
    check_matrix,
    check_same_meta,
    constant_in_onnx,
    is_traced,
    refuse_quantization,
    refuse_script,
    without_autocast,
    writes_onnx,
)
from steadyrnn.errors import (
    ArgumentError,
    ConstraintError,
    ConstraintWarning,
    ConversionError,
    NotInvertibleError,
    ShapeError,
)
from steadyrnn.linalg.operators import DiagonalLowRank

from .tolerance import membership_tolerance

__all__ = [
    "DTYPES",
    "Constraint",
    "Kind",
    "Membership",
    "Projected",
    "distance_from_interval",
    "warn_of_change",
    "widen",
    "working_dtype",
]

_HALF = (torch.float16, torch.bfloat16)
DTYPES = (*_HALF, torch.float32, torch.float64)
"""What a constrained weight may be stored in."""


def working_dtype() -> torch.dtype:
    """Return the dtype to draw fresh raw tensors in: torch's default one, float32 where that is a half precision.

    Example:
        >>> working_dtype()
        torch.float32
    """
    usual = torch.get_default_dtype()
    return torch.float32 if usual in _HALF else usual


def widen(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Return the tensors, in float32 where they are stored in half precision: there is no linear algebra in it.

    Example:
        >>> widen(torch.ones(1, dtype=torch.bfloat16))
        (tensor([1.]),)
    """
    return tuple(tensor.float() if tensor.dtype in _HALF else tensor for tensor in tensors)


class Kind(Enum):
    """How a constraint keeps its promise.

    A ``MAP`` lands in the set whatever the raw tensors are. A ``PROJECTION`` is put back into the set after each
    optimizer step. A ``RECENTRED`` map moves its base point there. A ``BASELINE`` promises nothing.
    """

    MAP = "map"
    PROJECTION = "projection"
    RECENTRED = "recentred"
    BASELINE = "baseline"


def distance_from_interval(matrix: Tensor, low: float, high: float) -> Tensor:
    r"""Return how far the farthest singular value (float64 SVD) is outside ``[low, high]``.

    .. math:: \max_i \max(\sigma_i - \text{high}, \text{low} - \sigma_i, 0)

    This is the distance, in spectral norm, to the matrices whose singular values are all inside; infinite where an
    entry is not finite. With ``low = high = 1`` it is the distance to the orthogonal matrices.

    Example:
        >>> distance_from_interval(torch.diag(torch.tensor([2.0, 1.0])), 1.0, 1.0)
        tensor(1., dtype=torch.float64)
    """
    wide = matrix.detach().double()
    if matrix.numel() == 0:
        return wide.new_zeros(())
    if not bool(wide.isfinite().all()):
        return wide.new_full((), math.inf)
    sigma = torch.linalg.svdvals(wide)
    return torch.maximum(sigma.max() - high, low - sigma.min()).clamp(min=0)


def warn_of_change(name: str, before: Tensor, after: Tensor, constraint: object) -> None:
    r"""Warn where a projection that was requested changed a matrix by more than half of its Frobenius norm.

    The share is :math:`\lVert W - P(W) \rVert_F / \lVert W \rVert_F`: at 1 nothing of the function can be expected to
    be left.

    Example:
        >>> warn_of_change("weight", torch.eye(2), 0.9 * torch.eye(2), "a set")
    """
    size, moved, left = (float(tensor.double().norm()) for tensor in (before, before - after, after))
    if moved > size / 2:
        share = f"{moved / size:.0%} of its Frobenius norm" if size else "more than its Frobenius norm, which is 0"
        warnings.warn(
            f"Projecting `{name}` onto the set of {constraint} changed it by {share} ({size:.3g} before, {left:.3g} after): "
            "what the layer computed before is lost. Train on from here, or choose a set that holds more of the weight.",
            ConstraintWarning,
            stacklevel=2,
        )


class Membership(NamedTuple):
    """Where a weight is: how far outside its set, and how far rounding alone may leave it.

    Attributes:
        name: The weight's name.
        constraint: What keeps it in its set, for messages.
        violation: How far outside the set it is.
        allowed: How far rounding may leave it outside; may be 0 for a weight that is not outside.
    """

    name: str
    constraint: str
    violation: float
    allowed: float


class Projected(ABC):
    """A module that puts its own parameters back into a set after each optimizer step.

    A module that may have no such set keeps its constraints in ``_joint``, which is then empty.
    """

    def has_set(self) -> bool:
        """Say whether there is a set to put anything back into."""
        return bool(vars(self).get("_joint", True))

    @abstractmethod
    def after_optimizer_step(self) -> None:
        """Put the parameters back."""

    @abstractmethod
    def memberships(self) -> list[Membership]:
        """Return where each weight that could leave its set is."""


class Constraint(nn.Module, ABC):
    """A map from free parameters onto a set of matrices.

    One object serves one matrix: :meth:`raw` (or :meth:`right_inverse`) fixes its shape. Usable by itself through
    :func:`torch.nn.utils.parametrize.register_parametrization` on any module, and in a layer through a slot.

    Args:
        project: Whether a matrix outside the set that is assigned is projected onto it, instead of refused.

    Example:
        >>> class Symmetric(sr.Constraint):
        ...     def raw(self, rows, columns):
        ...         self.fix_shape(rows, columns, square=True)
        ...         return (torch.randn(rows, columns),)
        ...     def forward(self, *raw):
        ...         return (raw[0] + raw[0].mT) / 2
        ...     def invert(self, matrix):
        ...         return (matrix.clone(),)
        ...     def violation(self, matrix):
        ...         return (matrix - matrix.mT).abs().max()
        >>> rnn = sr.RNN(3, 4, transition=Symmetric())
        >>> torch.equal(rnn.weight_hh_l0, rnn.weight_hh_l0.mT)
        True
    """

    kind: Kind = Kind.MAP

    def __init__(self, *, project: bool = False) -> None:
        super().__init__()
        self.projects = project
        self.rows = self.columns = 0
        self._start: tuple[Tensor, ...] | None = None

    def __repr__(self) -> str:
        """Show the class and its arguments on one line, whatever parts it holds."""
        return f"{type(self).__name__}({self.extra_repr()})"

    def arguments(self) -> dict[str, Any]:
        """Return the arguments that make such a constraint: attributes of their names, and ``project``."""
        names = [name for name in inspect.signature(type(self)).parameters if name != "project"]
        return {name: getattr(self, name) for name in names} | {"project": self.projects}

    def __call__(self, *raw: Tensor) -> Tensor:
        """Evaluate ``forward`` with autocast off, and half precision in float32: a product in bfloat16 has left the set."""
        wide = widen(*raw)
        for tensor in raw[1:]:
            check_same_meta("A raw tensor", tensor, raw[0])
        with without_autocast(raw[0].device):
            value: Tensor = super().__call__(*wide) if not is_traced() else self._in_trace(*wide)
        if value is not wide[0] and torch.compiler.is_exporting():  # else the raw tensor is the weight
            self.refuse_onnx()
        return value if wide[0] is raw[0] else value.to(raw[0].dtype)

    def _in_trace(self, *wide: Tensor) -> Tensor:
        with constant_in_onnx():
            value: Tensor = super().__call__(*wide)
            return value

    def refuse_onnx(self) -> None:
        """Refuse to be written to ONNX by torch's exporter of compiled graphs, which has no constants."""
        if writes_onnx():
            raise ConversionError(
                f"A weight in the set of {self} has operations that ONNX lacks. Pass `dynamo=False`, or write "
                "`steadyrnn.to_torch(layer)` instead of a layer."
            )

    def __prepare_scriptable__(self) -> NoReturn:
        """Refuse ``torch.jit.script`` by name."""
        refuse_script(self)

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "qconfig":  # what torch.ao.quantization sets on every module it walks over
            refuse_quantization(self)
        super().__setattr__(name, value)

    @abstractmethod
    def raw(self, rows: int, columns: int) -> tuple[Tensor, ...]:
        """Return first raw tensors, however many and however packed, and fix the shape ``(M, N)``."""

    def draw(
        self, rows: int, columns: int, device: torch.device | str | None = None, dtype: torch.dtype | None = None
    ) -> tuple[Tensor, ...]:
        """Return :meth:`raw` on a device and in a dtype, and move the constraint there.

        Where a device is named they are drawn on the CPU: a seed then gives the same on every device, and a default
        device that holds no numbers (``with torch.device("meta"):``) does not matter.
        """
        with nullcontext() if device is None else torch.device("cpu"):
            raw = self.raw(rows, columns)
        self.to(device=device, dtype=dtype)
        return tuple(tensor.to(device=device, dtype=dtype) for tensor in raw)

    @abstractmethod
    def forward(self, *raw: Tensor) -> Tensor:
        """Map any raw tensors to a member of the set, shape ``(M, N)``.

        NaN or infinity in a raw tensor gives a matrix that is not finite, not an error: what guards a training sees it.
        """

    @abstractmethod
    def invert(self, matrix: Tensor) -> tuple[Tensor, ...]:
        """Return raw tensors of a member of the set; :meth:`right_inverse` has checked that it is one."""

    @abstractmethod
    def violation(self, matrix: Tensor) -> Tensor:
        """Return how far ``matrix`` is outside the set: a scalar, 0 for a member."""

    @property
    def invertible(self) -> bool:
        """Whether every member of the set has raw tensors, so that :meth:`right_inverse` can find them."""
        return True

    @property
    def reflector_sizes(self) -> tuple[int | None, ...]:
        """Entries of a reflector in each raw tensor, None for a raw tensor of something else; empty without reflectors."""
        return ()

    def right_inverse(self, matrix: Tensor, allowed: float | None = None) -> tuple[Tensor, ...]:
        """Return raw tensors that ``forward`` maps to ``matrix``, a member of the set.

        Raises:
            NotInvertibleError: The map has no right inverse.
            ConstraintError: ``matrix`` is outside the set, by more than rounding, and ``project`` was not requested.
        """
        if self._start is not None:
            return self._start
        check_matrix("matrix", matrix)
        check_finite("matrix", matrix)
        if (self.rows, self.columns) == (0, 0):
            self.draw(matrix.shape[0], matrix.shape[1], matrix.device)
        if tuple(matrix.shape) != (self.rows, self.columns):
            raise ShapeError(
                f"`matrix` must have shape {(self.rows, self.columns)}, which this constraint was made for, "
                f"but has {tuple(matrix.shape)}."
            )
        if not self.invertible:
            raise NotInvertibleError(
                f"{self} has no right inverse, so no matrix can be assigned through it: its map does not reach every "
                "matrix of its set. Let it start from its own sample (`init='sample'`), or give it all its parameters."
            )
        allowed = membership_tolerance(matrix) if allowed is None else allowed  # of the dtype that came
        (wide,) = widen(matrix.detach())
        return tuple(tensor.to(matrix.dtype) for tensor in self.invert(self.admit(wide, allowed)))

    def admit(self, matrix: Tensor, allowed: float | None = None) -> Tensor:
        """Return ``matrix`` if it is a member up to rounding, its projection if that was requested, or raise."""
        violation, allowed = float(self.violation(matrix)), membership_tolerance(matrix) if allowed is None else allowed
        if violation <= allowed:
            return matrix
        if self.projects:
            projected = self.project(matrix)
            warn_of_change("matrix", matrix, projected, self)
            return projected
        raise ConstraintError(
            f"`matrix` is outside the set of {self}: violation {violation:.3g}, allowed for rounding {allowed:.3g}. "
            "Pass a member, or make the constraint with `project=True` to have it projected."
        )

    def sample(self, rows: int, columns: int, device: torch.device | str | None = None) -> Tensor:
        """Return a random member of the set, shape ``(M, N)``, drawn as a fresh layer's weight is."""
        fresh = copy.deepcopy(self)  # drawing raw tensors fixes shapes and buffers, which belong to the weight in use
        return fresh(*fresh.draw(rows, columns, device)).detach()

    def project(self, matrix: Tensor) -> Tensor:
        """Return the nearest member (Frobenius norm), shape ``(M, N)``; idempotent, and the identity on members."""
        raise ArgumentError(f"{self} has no projection.")

    def penalty(self, *raw: Tensor) -> Tensor | None:
        """Return what this constraint adds to the loss, a scalar, or None."""
        return None

    def operator(self, *raw: Tensor) -> DiagonalLowRank | None:
        """Return the matrix in a form that is cheaper to apply than a dense one, or None."""
        return None

    def after_step(self, *raw: Tensor) -> tuple[Tensor, ...] | None:
        """Return the raw tensors to go on with after an optimizer step, or None to keep them."""
        return None

    def forward_stack(self, members: Sequence["Constraint"], *raw: Tensor) -> Tensor | None:
        """Return what :meth:`forward` returns for R members at once, (R, M, N), or None where that is done one by one.

        Args:
            members: Constraints of the same form, this one being the first.
            raw: Raw tensors with R in front of their shapes.
        """
        return None

    def after_steps(self, *raw: Tensor) -> tuple[Tensor, ...] | None:
        """Return what :meth:`after_step` returns for R members at once, or None where that is done one by one.

        Args:
            raw: Raw tensors with R in front of their shapes, finite.
        """
        return None

    def put_back(self, *raw: Tensor) -> tuple[Tensor, ...] | None:
        """Return raw tensors that make a member again, or None to keep them, after a change from outside.

        Raw tensors and buffers may have been changed by anything, such as an average over models; buffers are put
        right in place.
        """
        self.mend()
        return self.after_step(*raw)

    def mend(self) -> None:
        """Put buffers back onto the values they may have: signs, base points. Most constraints have none."""

    def fix_shape(self, rows: int, columns: int, *, square: bool = False) -> None:
        """Remember the shape; refuse a rectangular one where only a square one makes sense."""
        if square and rows != columns:
            raise ShapeError(
                f"{type(self).__name__} needs a square matrix, but the shape is {(rows, columns)}. "
                "For a rectangular matrix use `Spectral`."
            )
        if square and rows < 1:
            raise ShapeError(f"{type(self).__name__} needs at least one row, but the shape is {(rows, columns)}.")
        self.rows, self.columns = rows, columns
