"""Checks of arguments that several packages need; each message names the argument, what was expected and what was given."""

import math
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import wraps
from typing import Any, NoReturn, ParamSpec, TypeVar

import numpy
import torch
from torch import Tensor
from torch._C import DisableTorchFunctionSubclass
from torch._C._functorch import is_legacy_batchedtensor, peek_interpreter_stack

from steadyrnn.errors import (
    ArgumentError,
    ArgumentTypeError,
    ConversionError,
    DeviceError,
    DtypeError,
    NotFiniteError,
    ShapeError,
)

__all__ = [
    "DisableTorchFunctionSubclass",
    "assert_async",
    "autocasts",
    "carries_transform",
    "check_count",
    "check_dense",
    "check_finite",
    "check_flag",
    "check_interval",
    "check_matrix",
    "check_number",
    "check_positive_int",
    "check_same_meta",
    "check_weight",
    "constant_in_onnx",
    "constant_result",
    "disable_compile",
    "has_forward_level",
    "is_legacy_batchedtensor",
    "is_traced",
    "multiplies_in_full_float32",
    "peek_interpreter_stack",
    "refuse_quantization",
    "refuse_script",
    "without_autocast",
    "writes_onnx",
]

P = ParamSpec("P")
R = TypeVar("R")

assert_async = torch._assert_async
"""Raise an error if a tensor is False, without waiting for its device: also in a compiled graph."""


def check_positive_int(name: str, value: object) -> int:
    """Return ``value`` if it is an integer above zero.

    Example:
        >>> check_positive_int("hidden_size", 3)
        3
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise ArgumentTypeError(f"`{name}` must be an integer, but is of type {type(value).__name__}.")
    if value <= 0:
        raise ArgumentError(f"`{name}` must be greater than zero, but is {value}.")
    return value


def check_interval(name: str, value: float, low: float, high: float) -> float:
    """Return ``value`` if ``low <= value <= high`` (so NaN is refused).

    Example:
        >>> check_interval("dropout", 0.5, 0.0, 1.0)
        0.5
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ArgumentTypeError(f"`{name}` must be a number, but is of type {type(value).__name__}.")
    if not low <= value <= high:
        raise ArgumentError(f"`{name}` must be a number from {low} to {high}, but is {value}.")
    return value


def check_flag(name: str, value: object) -> bool:
    """Return ``value`` as a bool if it is a bool of Python or numpy, or the number 0 or 1; a string is refused.

    Example:
        >>> check_flag("batch_first", True)
        True
    """
    if not isinstance(value, int | numpy.bool_) or value not in (0, 1):
        raise ArgumentTypeError(f"`{name}` must be True or False, but is {value!r}.")
    return bool(value)


def check_dense(name: str, tensor: Tensor) -> Tensor:
    """Return ``tensor`` if it is not sparse.

    Example:
        >>> check_dense("input", torch.ones(1))
        tensor([1.])
    """
    if tensor.layout != torch.strided:
        raise ArgumentTypeError(f"`{name}` must be a dense tensor, but has layout {tensor.layout}. Use `{name}.to_dense()`.")
    return tensor


def check_same_meta(name: str, tensor: Tensor, other: Tensor) -> Tensor:
    """Return ``tensor`` if both or none are on the meta device: mixing them would compute with uninitialized memory.

    Example:
        >>> check_same_meta("`base`", torch.ones(1), torch.ones(2))
        tensor([1.])
    """
    if tensor.is_meta is not other.is_meta:
        raise DeviceError(
            f"{name} is on {tensor.device}, but the tensor it is used with is on {other.device}. A tensor on the meta device "
            "has no values. Load what is missing (`load_state_dict(..., assign=True)` with all keys)."
        )
    return tensor


def check_weight(name: str, weight: Tensor) -> Tensor:
    """Return ``weight`` if it is dense and has a real floating dtype.

    Example:
        >>> check_weight("weight", torch.ones(1))
        tensor([1.])
    """
    if not weight.is_floating_point():
        raise DtypeError(f"`{name}` must have a real floating dtype, but has {weight.dtype}. Convert it, `.to(torch.float32)`.")
    return check_dense(name, weight)


def check_number(name: str, value: float, *, low: float = 0.0, finite: bool = False) -> float:
    """Return ``value`` as a float if it is a number and at least ``low``; infinity is allowed unless ``finite`` is set.

    Example:
        >>> check_number("rate", 1)
        1.0
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ArgumentTypeError(f"`{name}` must be a number, but is of type {type(value).__name__}.")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if math.isnan(number) or (finite and math.isinf(number)):
        raise NotFiniteError(f"`{name}` must be a finite number, but is {number}.")
    if number < low:
        raise ArgumentError(f"`{name}` must be a number of at least {low:g}, but is {value}.")
    return number


def check_count(name: str, value: int, *, low: int = 0) -> int:
    """Return ``value`` if it is an integer of at least ``low``.

    Example:
        >>> check_count("steps", 3)
        3
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise ArgumentTypeError(f"`{name}` must be an integer, but is of type {type(value).__name__}.")
    if value < low:
        raise ArgumentError(f"`{name}` must be an integer of at least {low}, but is {value}.")
    return value


def check_matrix(name: str, matrix: Tensor, *, square: bool = False) -> Tensor:
    """Return ``matrix`` if it has two dimensions, of one size if ``square`` is set, and real floating entries.

    Example:
        >>> check_matrix("weight", torch.zeros(2, 3)).shape
        torch.Size([2, 3])
    """
    if matrix.dim() != 2:
        raise ShapeError(f"`{name}` must have two dimensions, but has shape {tuple(matrix.shape)}.")
    if not matrix.is_floating_point():
        raise ArgumentTypeError(f"`{name}` must have a real floating dtype, but has {matrix.dtype}.")
    if square and matrix.shape[0] != matrix.shape[1]:
        raise ShapeError(
            f"`{name}` must be square, but has shape {tuple(matrix.shape)}. For a rectangular matrix use `Spectral`."
        )
    return matrix


def check_finite(name: str, tensor: Tensor) -> Tensor:
    """Return ``tensor`` if it holds neither NaN nor infinity.

    Example:
        >>> check_finite("weight", torch.ones(2)).sum()
        tensor(2.)
    """
    if tensor.is_meta or tensor.numel() == 0:
        return tensor
    if tensor.device.type == "cpu" and tensor.dtype == torch.float64:  # of a few numbers a quarter of the time
        finite = all(math.isfinite(edge) for edge in torch.aminmax(tensor.detach()))  # both are NaN where there is one
    else:
        finite = bool(tensor.isfinite().all())
    if not finite:
        raise NotFiniteError(f"`{name}` holds NaN or infinity, but must be finite.")
    return tensor


def autocasts(device: torch.device) -> bool:
    """Return whether autocast is on for this device; some devices, such as meta, do not have it.

    Example:
        >>> autocasts(torch.device("cpu"))
        False
    """
    return device.type != "meta" and torch.is_autocast_enabled(device.type)


def without_autocast(device: torch.device) -> AbstractContextManager[Any]:
    """Return a context without autocast, for code that must not be cast, also in a backward pass under autocast.

    Example:
        >>> with torch.autocast("cpu", dtype=torch.bfloat16), without_autocast(torch.device("cpu")):
        ...     (torch.ones(1, 1) @ torch.ones(1, 1)).dtype
        torch.float32
    """
    # while a graph is compiled, what is off now may be on where its backward is traced; an exported graph has no backward,
    # and a context without operations in it could not be saved
    traced = torch.compiler.is_compiling() and not torch.compiler.is_exporting()
    on = autocasts(device) or (traced and device.type != "meta")
    return torch.autocast(device.type, enabled=False) if on else nullcontext()


def multiplies_in_full_float32() -> bool:
    """Return whether products of float32 matrices are known to have full precision; torch does not say if backends differ.

    Example:
        >>> multiplies_in_full_float32()
        True
    """
    try:
        return torch.get_float32_matmul_precision() == "highest"
    except RuntimeError:
        return False


def constant_result(function: Callable[P, R]) -> Callable[P, R]:
    """Mark a function whose result the compiler treats as a constant, because it calls a driver or reads a file.

    The mark is the one that :func:`torch.compiler.assume_constant_result` sets, which imports the compiler.

    Example:
        >>> @constant_result
        ... def answer() -> int:
        ...     return 42
        >>> answer()
        42
    """
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


def disable_compile(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function that no compiler traces, as :func:`torch.compiler.disable` does.

    Torch's own decorator imports the compiler, which takes seconds. While that is not loaded nothing can trace, and the
    function is called as it is.

    Example:
        >>> disable_compile(len)("abc")
        3
    """

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        run: Any = torch.compiler.disable(function) if "torch._dynamo" in sys.modules else function
        result: R = run(*args, **kwargs)
        return result

    call._torchdynamo_disable = True  # type: ignore[attr-defined]
    return call


@constant_result
def writes_onnx() -> bool:
    """Return whether torch is writing an ONNX file now; the exporter is not imported for this check.

    Example:
        >>> writes_onnx()
        False
    """
    onnx = sys.modules.get("torch.onnx")
    return onnx is not None and bool(onnx.is_in_onnx_export())


def is_traced() -> bool:
    """Return whether ``torch.jit.trace``, or the ONNX exporter that uses it, records the current computation.

    Example:
        >>> is_traced()
        False
    """
    return torch._C._get_tracing_state() is not None  # of `torch.jit.is_tracing` what a compiler knows too, in one call


def constant_in_onnx() -> AbstractContextManager[Any]:
    """Return a context whose results become constants of an ONNX file written by tracing; otherwise it does nothing.

    The parametrization of a weight has operations that ONNX lacks, and the weight does not change in the file.

    Example:
        >>> with constant_in_onnx():
        ...     torch.ones(1)
        tensor([1.])
    """
    return _pause_tracing() if is_traced() and writes_onnx() else nullcontext()


@contextmanager
def _pause_tracing() -> Iterator[None]:
    state = torch._C._get_tracing_state()
    torch._C._set_tracing_state(None)  # type: ignore[attr-defined]
    try:
        with torch.no_grad():
            yield
    finally:
        torch._C._set_tracing_state(state)  # type: ignore[attr-defined]


def has_forward_level() -> bool:
    """Return whether a level of forward-mode AD is open.

    Example:
        >>> has_forward_level()
        False
    """
    return torch.autograd.forward_ad._current_level >= 0


def carries_transform(*tensors: Tensor | None) -> bool:
    """Return whether forward-mode AD, a ``torch.func`` transform or a trace (``torch.jit.trace``) is active on ``tensors``.

    A custom op, an ``autograd.Function`` or an in-place write would be silently wrong or raise an error there. Code that
    has one calls this function first and uses plain tensor operations instead. In a compiled graph the result is ``False``.

    Example:
        >>> carries_transform(torch.ones(2))
        False
    """
    if torch.compiler.is_compiling():
        return False
    if peek_interpreter_stack() is not None or is_traced():
        return True
    if torch.autograd.forward_ad._current_level < 0:  # no level is open, so nothing carries a tangent
        return False
    return any(tensor is not None and torch.autograd.forward_ad.unpack_dual(tensor).tangent is not None for tensor in tensors)


def refuse_script(module: torch.nn.Module) -> NoReturn:
    """Refuse ``torch.jit.script``: constraints and engines use Python that TorchScript does not support."""
    raise ConversionError(
        f"`torch.jit.script` cannot compile a {type(module).__name__} of steadyrnn. Use `torch.export.export` or "
        "`torch.jit.trace`, or script `steadyrnn.to_torch(layer)`."
    )


def refuse_quantization(module: torch.nn.Module) -> NoReturn:
    """Refuse ``torch.ao.quantization``, which supports only the classes of torch and skips others silently."""
    name = type(module).__name__
    raise ConversionError(
        f"`torch.ao.quantization` would silently skip a {name} of steadyrnn. Quantize a model with "
        "`steadyrnn.to_torch(layer)` in its place, or its other modules one by one."
    )
