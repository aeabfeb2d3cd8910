"""The slot: raw parameters, whole or spread over processes (FSDP2), with their constraint: read and assigned as a weight."""

import copy
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor, nn

from steadyrnn.checks import constant_in_onnx, without_autocast
from steadyrnn.errors import ConstraintError
from steadyrnn.linalg.operators import DiagonalLowRank

from .base import Constraint, Kind, Membership, Projected, warn_of_change, widen
from .gradient_limit import limit_gradient
from .held import Holder
from .loading import put_back, remember
from .tolerance import membership_tolerance

__all__ = ["RawTensors", "Slot", "cached", "can_leave", "is_sharded", "membership_of", "whole", "write"]

_Cached = dict[tuple["Slot", str], tuple[tuple[Tensor, ...], tuple[object, ...], Any]]
_CACHE: ContextVar[_Cached | None] = ContextVar("steadyrnn_cache", default=None)


@contextmanager
def cached() -> Iterator[None]:
    """Evaluate each constraint once inside this context: for a user's own loop over cells.

    The weight is computed again when a raw tensor was changed or gradients were switched on in between (a change in
    place through ``.data`` cannot be seen), and one backward pass uses its graph up. Nothing is kept on a module, so
    modules can be copied and saved meanwhile; all is forgotten when the outermost context ends.

    Example:
        >>> cell = sr.RNNCell(2, 3, transition="ornn")
        >>> h = torch.zeros(1, 3)
        >>> with sr.cached():
        ...     for x in torch.ones(4, 1, 2):
        ...         h = cell(x, h)
    """
    if _CACHE.get() is not None:
        yield
        return
    token = _CACHE.set({})
    try:
        yield
    finally:
        _CACHE.reset(token)


class RawTensors(ABC):
    """Raw tensors with their constraint, in a slot or in a parametrized weight: what is done to them by training."""

    constraint: Constraint

    @abstractmethod
    def raws(self) -> tuple[Tensor, ...]:
        """Return the raw tensors, in float32 where they are stored in half precision, whole where they are sharded."""

    @abstractmethod
    def write(self, raw: tuple[Tensor, ...] | None) -> None:
        """Set the raw tensors; None keeps them."""

    def penalty(self) -> Tensor | None:
        """Return what the constraint adds to the loss, or None."""
        return self.constraint.penalty(*self.raws())

    @torch.no_grad()
    def after_optimizer_step(self) -> None:
        """Put the raw tensors back where the constraint wants them after a step."""
        self.write(self.constraint.after_step(*self.raws()))

    @torch.no_grad()
    def put_back(self) -> None:
        """Put raw tensors and buffers that were changed from outside back to where they make a member of the set."""
        self.write(self.constraint.put_back(*self.raws()))


class Slot(Holder, RawTensors, Projected):
    """A weight that is kept in a set of matrices.

    Holds a copy of the constraint and its raw tensors as parameters ``raw0``, ``raw1``, ...; no tensor that autograd
    made is ever stored, so a slot can be copied after a forward and saved whole.

    Args:
        constraint: The template; the slot takes a copy.
        rows: Rows of the weight.
        columns: Columns of the weight.
        device: Where the raw tensors live.
        dtype: Their dtype. In half precision the weight is computed in float32 and cast.

    Attributes:
        gradient_limit: The largest absolute entry of the gradient that goes from the layer back into the constraint, a
            scalar tensor on the device; None is no limit.
        dense: Whether its module reads :meth:`weight`, not :meth:`gate`.
        held: What its module is given in place of a weight that it would compute, for a while: see :meth:`hold_weight`.

    Example:
        >>> slot = Slot(sr.Spectral(), 3, 3)
        >>> slot.weight().shape
        torch.Size([3, 3])
    """

    raw0: nn.Parameter
    gradient_limit: Tensor | None = None
    dense: bool = False
    held: Tensor | DiagonalLowRank | None = None

    def __init__(
        self,
        constraint: Constraint,
        rows: int,
        columns: int,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.constraint = copy.deepcopy(constraint)
        raw = self.constraint.draw(rows, columns, device, dtype or torch.get_default_dtype())
        self.count = len(raw)
        for place, tensor in enumerate(raw):
            # one that is empty never gets a gradient, for which DistributedDataParallel would wait
            self.register_parameter(f"raw{place}", nn.Parameter(tensor, requires_grad=tensor.numel() > 0))
        self._settle()
        self.hold((f"raw{place}" for place in range(self.count)), f"{self.constraint} makes a weight of it")
        self.register_load_state_dict_pre_hook(_remember)  # type: ignore[no-untyped-call]
        self.register_load_state_dict_post_hook(_refuse_outside)  # type: ignore[no-untyped-call]

    def __getstate__(self) -> dict[str, Any]:
        """Return what is copied and stored: not what is there for a while and for this slot only."""
        return {name: value for name, value in self.__dict__.items() if name not in ("gradient_limit", "held")}

    def raws(self) -> tuple[Tensor, ...]:
        """Return the raw tensors, in float32 where they are stored in half precision, whole where they are sharded."""
        return widen(*(whole(getattr(self, f"raw{place}")) for place in range(self.count)))

    def weight(self) -> Tensor:
        """Return the weight, shape ``(M, N)``, in the dtype of the raw tensors; autocast does not touch it."""
        if self.dense and isinstance(self.held, Tensor):
            return self.held
        weight: Tensor = self._recall("weight", self._evaluate)
        return weight

    def _recall(self, what: str, evaluate: Callable[[], Any]) -> Any:
        """Return what ``evaluate`` gives, inside :func:`cached` from memory while the raw tensors are the same."""
        store = None if torch.compiler.is_compiling() else _CACHE.get()
        if store is None:
            return evaluate()
        limit = () if self.gradient_limit is None else (self.gradient_limit,)
        raw = (*(getattr(self, f"raw{place}") for place in range(self.count)), *limit)
        # a move (``to``, ``.data =``) and ``requires_grad_`` leave tensor and version as they were
        state = ((r._version, r.data_ptr(), r.dtype, r.requires_grad) for r in raw)
        stamp = (torch.is_grad_enabled(), torch.is_inference_mode_enabled(), *state)
        known = store.get((self, what))
        # the tensors themselves are kept, not their ids: another tensor may get the id of one that is gone
        if known is None or known[1] != stamp or any(a is not b for a, b in zip(known[0], raw, strict=True)):
            known = store[self, what] = (raw, stamp, evaluate())
        return known[2]

    def _evaluate(self) -> Tensor:
        with without_autocast(self.raw0.device):
            return self.constraint(*self.raws()).to(self.raw0.dtype)

    def _evaluate_limited(self) -> Tensor:
        weight, limit = self.weight(), self.gradient_limit
        return weight if limit is None else limit_gradient(weight, limit)

    def operator(self) -> DiagonalLowRank | None:
        """Return the weight in factored form, or None where it has none that is faster."""
        operator: DiagonalLowRank | None = self._recall("operator", self._evaluate_operator)
        return operator

    def _evaluate_operator(self) -> DiagonalLowRank | None:
        with constant_in_onnx(), without_autocast(self.raw0.device):
            operator = self.constraint.operator(*self.raws())
            if operator is None:
                return None
            self.constraint.refuse_onnx()
            return operator.to(self.raw0.dtype)

    def gate(self) -> Tensor | DiagonalLowRank:
        """Return the weight as a layer gets it: in factored form where it has one, else dense.

        With a ``gradient_limit`` it is dense: through factors a gradient goes back without the weight's ever being formed.
        """
        if self.held is not None:
            return self.held
        if self.gradient_limit is not None:
            limited: Tensor = self._recall("limited", self._evaluate_limited)
            return limited
        operator = self.operator()
        return self.weight() if operator is None else operator

    def hold_weight(self) -> list[tuple[Tensor, Tensor]]:
        """Compute what the module reads once, and give it a copy without history until ``held`` is None again.

        So several forward and backward passes evaluate the constraint once. Each adds to the gradients of the copies, which
        then go back through the constraint once.

        Returns:
            What was computed, each with its copy, of those that have a gradient.

        Example:
            >>> slot = Slot(sr.ExpOrthogonal(), 3, 3)
            >>> [(weight, copy)] = slot.hold_weight()
            >>> for _ in range(2):
            ...     slot.gate().sum().backward()
            >>> torch.autograd.backward(weight, copy.grad)
            >>> slot.held = None
        """
        found = self.weight() if self.dense else self.gate()
        parts = (found,) if isinstance(found, Tensor) else tuple(found)
        copies = tuple(part.detach().requires_grad_(part.requires_grad) for part in parts)
        self.held = copies[0] if isinstance(found, Tensor) else DiagonalLowRank(*copies)
        return [(part, own) for part, own in zip(parts, copies, strict=True) if part.requires_grad]

    @torch.no_grad()
    def assign(self, matrix: Tensor) -> None:
        """Set the raw tensors so that the weight is ``matrix``, which must be a member of the set."""
        wide = matrix.detach().to(self.raw0.device)
        self.write(self.constraint.right_inverse(widen(wide)[0], membership_tolerance(wide, self.raw0.dtype)))

    @torch.no_grad()
    def reset(self) -> None:
        """Draw fresh raw tensors."""
        shape = self.constraint.rows, self.constraint.columns
        self.write(self.constraint.draw(*shape, self.raw0.device, self.raw0.dtype))
        self._settle()

    @torch.no_grad()
    def memberships(self) -> list[Membership]:
        """Return where the weight is: nothing for a constraint that promises none, or whose raw tensors cannot leave."""
        if not can_leave(self.constraint) or any(tensor.is_meta for tensor in self.state_dict().values()):
            return []
        return [membership_of(self.constraint, self.weight())]

    def _settle(self) -> None:
        """Project fresh raw tensors: a member in one dtype is outside the set by its rounding in a wider one."""
        if self.constraint.kind is Kind.PROJECTION and not self.raw0.is_meta:
            self.after_optimizer_step()

    def write(self, raw: tuple[Tensor, ...] | None) -> None:
        """Set the raw tensors; None keeps them."""
        for place, tensor in enumerate(raw or ()):
            write(getattr(self, f"raw{place}"), tensor)


def is_sharded(tensor: object) -> bool:
    """Say whether a tensor is a ``DTensor``; the class is not imported, which would take long.

    Example:
        >>> is_sharded(torch.ones(2))
        False
    """
    return isinstance(tensor, Tensor) and hasattr(tensor, "full_tensor")


def whole(tensor: Tensor) -> Tensor:
    """Return all of a tensor, gathered from every process where it is spread over them: then all must ask for it.

    Example:
        >>> whole(torch.ones(2))
        tensor([1., 1.])
    """
    if not is_sharded(tensor):
        return tensor
    full: Tensor = tensor.full_tensor()  # type: ignore[attr-defined]
    return full


@torch.no_grad()
def write(target: Tensor, value: Tensor) -> None:
    """Copy a whole tensor into one that may be spread over processes, each of which keeps its part of the first's.

    Example:
        >>> target = torch.zeros(2)
        >>> write(target, torch.ones(2))
        >>> target
        tensor([1., 1.])
    """
    if is_sharded(target):
        spread = torch.distributed.tensor.distribute_tensor  # loaded, since there is such a tensor
        value = spread(value.to(target.device, target.dtype), target.device_mesh, target.placements)  # type: ignore[attr-defined]
    target.copy_(value)


def can_leave(constraint: Constraint) -> bool:
    """Say whether a weight can be outside its set: by its raw tensors, or by buffers that somebody changed.

    Example:
        >>> can_leave(sr.SpectralBall()), can_leave(sr.Free()), can_leave(sr.HouseholderOrthogonal())
        (True, False, True)
    """
    if constraint.kind is Kind.MAP:
        return any(True for _ in constraint.buffers())
    return constraint.kind is not Kind.BASELINE


def membership_of(constraint: Constraint, weight: Tensor) -> Membership:
    """Return where a weight is; one in float64 may have been stored in float32, and be outside by that rounding."""
    violation = float(constraint.violation(weight))
    narrow = torch.float32 if weight.dtype == torch.float64 else weight.dtype
    allowed = membership_tolerance(weight, narrow) if violation > 0 else 0.0  # whose decomposition a member does not need
    return Membership("", str(constraint), violation, allowed)


def _remember(slot: Slot, *_: object) -> None:
    """Keep what a refused load must put back."""
    slot.__dict__["_before_load"] = remember(slot)


def _refuse_outside(slot: Slot, _: object) -> None:
    """Refuse a loaded weight outside the set, or project it where the constraint was asked to."""
    constraint, before = slot.constraint, slot.__dict__.pop("_before_load", [])
    for found in slot.memberships():
        with torch.no_grad():
            weight = slot._evaluate().clone()
        if found.violation <= found.allowed:
            if found.violation > membership_tolerance(weight):  # the rounding of a narrower dtype, which projecting undoes
                slot._settle()
        elif constraint.projects and found.violation < math.inf:
            slot.put_back()
            with torch.no_grad():
                warn_of_change("a loaded weight", weight, slot._evaluate(), constraint)
        else:
            put_back(before)
            raise ConstraintError(
                f"A loaded weight is outside the set of {constraint}: violation {found.violation:.3g}, allowed for rounding "
                f"{found.allowed:.3g}. Load a state dict that was saved from inside the set (`sr.project_(model)` before "
                "saving; averages by `sr.averaged`), or make the constraint with `project=True` to have it projected."
            )
