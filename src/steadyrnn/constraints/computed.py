"""The weight that a user reads off a constrained layer: a tensor like any other, but not to be written to."""

from collections.abc import Callable, Iterable
from typing import Any, NoReturn

import numpy
import torch
from torch import Tensor, nn

from steadyrnn.checks import DisableTorchFunctionSubclass, peek_interpreter_stack
from steadyrnn.errors import WeightError

__all__ = ["ComputedWeight", "as_computed"]

_WRITES = {"__setitem__", "__set__", "__delete__", "__delitem__"}


class _RelatedToParameters(type(Tensor)):  # type: ignore[misc]
    """``torch.testing`` compares tensors of related types only; a computed weight and a parameter are such."""

    def __instancecheck__(cls, instance: object) -> bool:
        return type(instance) in (ComputedWeight, nn.Parameter)


class ComputedWeight(Tensor, metaclass=_RelatedToParameters):
    """A weight computed from raw tensors; what is written to it would be lost, so writing to it raises.

    Every operation gives what it gives on a plain tensor, as a plain tensor, except that views (``w[0]``, ``w.T``,
    ``w.detach()``, ``w.data``), which share its memory, cannot be written to either. ``w.clone()`` is a tensor of
    the user's own. Saved, pickled or copied it is a plain tensor.
    """

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        with DisableTorchFunctionSubclass():
            if torch.compiler.is_compiling():
                return func(*args, **kwargs)
            if _writes(func, args, kwargs):
                _refuse(func)
            own: list[Tensor] = [tensor for tensor in _tensors((*args, *kwargs.values())) if type(tensor) is ComputedWeight]
            versions = [_version(tensor) for tensor in own]
            result = func(*args, **kwargs)
            if [_version(tensor) for tensor in own] != versions:  # an operation that does not say so in its name
                _refuse(func)
            return _guard(result, own)

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return repr(_plain(self))

    def __format__(self, spec: str) -> str:
        return format(_plain(self), spec)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _plain(self).__reduce_ex__(protocol)

    def __deepcopy__(self, memo: Any) -> Tensor:
        copied: Tensor = _plain(self).__deepcopy__(memo)
        return copied

    def set_(self, *_: Any, **__: Any) -> Tensor:
        """Refuse other memory: torch asks nobody about this one operation."""
        _refuse(Tensor.set_)

    @property
    def is_leaf(self) -> bool:  # type: ignore[override]
        """False: it is computed, so no optimizer can hold it."""
        return False


def as_computed(weight: Tensor) -> Tensor:
    """Return a computed weight as the user gets it: to read, not to write to.

    A weight that is its own raw tensor (a projection's) is a parameter, which a user may write to as to torch's.
    Nothing is changed inside a compiled graph or a ``torch.func`` transform.

    Example:
        >>> weight = as_computed(torch.eye(2))
        >>> (2 * weight).sum()
        tensor(4.)
        >>> weight.zero_()
        Traceback (most recent call last):
        ...
        steadyrnn.errors.WeightError: `zero_` would write to a weight that is computed from raw tensors, and be lost...
    """
    if torch.compiler.is_compiling() or isinstance(weight, nn.Parameter) or _is_transformed():
        return weight
    return weight.as_subclass(ComputedWeight)


def _is_transformed() -> bool:
    """Say whether a ``torch.func`` transform is at work: its tensors have no memory of their own, and it refuses writes."""
    return peek_interpreter_stack() is not None


def _plain(weight: Tensor) -> Tensor:
    with DisableTorchFunctionSubclass():
        return weight.as_subclass(Tensor)


def _tensors(values: Iterable[Any]) -> list[Tensor]:
    """Return the tensors among values and in lists of them."""
    flat = (item for value in values for item in (value if isinstance(value, list | tuple) else (value,)))
    return [item for item in flat if isinstance(item, Tensor)]


def _version(tensor: Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version


def _writes(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Say whether a function would write to a computed weight: by its name its first argument, or its output."""
    if any(type(tensor) is ComputedWeight for tensor in _tensors((kwargs.get("out"),))):
        return True
    name = getattr(func, "__name__", "")
    target = args[0] if args else kwargs.get("input", kwargs.get("tensor"))
    if not any(type(tensor) is ComputedWeight for tensor in _tensors((target,))):
        return False
    if name == "requires_grad_":
        wanted = args[1] if len(args) > 1 else kwargs.get("requires_grad", True)
        return bool(wanted) != _plain(args[0]).requires_grad
    if name == "__set__" and args[1] is None:  # ``w.grad = None`` is how gradients are cleared, and there is none
        return False
    in_place = name.endswith("_") and not name.endswith("__")
    return in_place or name in _WRITES or (name.startswith("__i") and name in _AUGMENTED)


_AUGMENTED = {f"__i{name}__" for name in ("add", "sub", "mul", "div", "truediv", "floordiv", "mod", "pow", "matmul")} | {
    f"__i{name}__" for name in ("and", "or", "xor", "lshift", "rshift")
}


def _guard(result: Any, own: list[Tensor]) -> Any:
    """Return a result that shares memory with a computed weight as one that cannot be written to either."""
    if isinstance(result, numpy.ndarray):
        result.flags.writeable = False
        return result
    if isinstance(result, list | tuple) and type(result) in (list, tuple):
        return type(result)(_guard(item, own) for item in result)
    if not isinstance(result, Tensor) or type(result) is ComputedWeight:
        return result
    if result.layout is not torch.strided or result.numel() == 0 or _is_transformed():
        return result
    memory = result.untyped_storage().data_ptr()
    shares = any(t.layout is torch.strided and t.untyped_storage().data_ptr() == memory for t in own)
    return result.as_subclass(ComputedWeight) if shares and memory else result


def _refuse(func: Callable[..., Any]) -> NoReturn:
    name = getattr(func, "__name__", str(func))
    raise WeightError(
        f"`{name}` would write to a weight that is computed from raw tensors, and be lost. Assign a whole matrix, "
        "`layer.weight_hh_l0 = matrix` (`layer.weight = matrix`), which goes through the constraint, or work on a copy, "
        "`.clone()`."
    )
