"""Named tensors as bytes and back, bit for bit: tied ones stored once, every one with its checksum."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from steadyrnn.errors import ArgumentError, ArgumentTypeError

__all__ = ["Packed", "pack", "unpack"]

_STORED = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2),
        *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint64, torch.uint32, torch.uint16, torch.uint8, torch.bool),
    )
}
_COMPLEX = {"complex128": torch.float64, "complex64": torch.float32, "complex32": torch.float16}
"""Stored as pairs of real numbers: not every release of safetensors knows complex ones."""


@dataclass(frozen=True)
class Packed:
    """Tensors as bytes.

    Args:
        data: The content of a safetensors file.
        table: By name, in the order given: ``{"dtype", "shape", "sha256"}`` of a stored tensor, ``{"alias": name}`` of one
            that is another by a second name.
    """

    data: bytes
    table: dict[str, dict[str, Any]]


def pack(tensors: Mapping[str, Tensor]) -> Packed:
    """Return tensors as the bytes of a safetensors file and a table that says what is in it.

    Two names are tied when they have the same storage, offset, shape, strides and dtype; the tensor is stored under the
    first. Other views of one storage are stored apart. A tensor on another device is copied to the CPU once.

    Args:
        tensors: Dense tensors by name, of any shape and strides.

    Raises:
        ArgumentTypeError: A value is no dense tensor, or of a dtype that cannot be stored.
        ArgumentError: A name cannot be stored.

    Example:
        >>> weight = torch.zeros(2, 3)
        >>> packed = pack({"encoder": weight, "decoder": weight})
        >>> packed.table["encoder"]["shape"], packed.table["decoder"]
        ([2, 3], {'alias': 'encoder'})
    """
    first: dict[tuple[object, ...], str] = {}
    table: dict[str, dict[str, Any]] = {}
    stored: dict[str, Tensor] = {}
    storages: set[int] = set()
    for name, tensor in tensors.items():
        _check(name, tensor)
        original = first.setdefault(_identity(name, tensor), name)
        if original != name:
            table[name] = {"alias": original}
            continue
        flat = _on_cpu(tensor)
        if flat.numel() and flat.untyped_storage().data_ptr() in storages:
            flat = flat.clone()  # safetensors refuses views of one storage
        storages.add(flat.untyped_storage().data_ptr())
        stored[name] = flat
        table[name] = {"dtype": _dtype_name(tensor), "shape": list(tensor.shape), "sha256": _digest(flat)}
    return Packed(safetensors.torch.save(stored), table)


def unpack(data: bytes, table: Mapping[str, Mapping[str, Any]]) -> dict[str, Tensor]:
    """Return the tensors that :func:`pack` was given, contiguous and on the CPU; tied names share one tensor.

    Args:
        data: The content of the file.
        table: The table that came with it; its types are not trusted.

    Raises:
        ValueError: Anything is missing, left over or not as the table says; the message says what.

    Example:
        >>> packed = pack({"a": torch.tensor([1 + 2j])})
        >>> unpack(packed.data, packed.table)
        {'a': tensor([1.+2.j])}
    """
    try:
        stored = safetensors.torch.load(data)
    except Exception as error:  # the reader of safetensors raises many kinds
        raise ValueError(f"no safetensors content ({error})") from error
    expected = {name for name, entry in table.items() if "alias" not in entry}
    if expected != set(stored):
        raise ValueError(f"tensors are missing or left over: {', '.join(sorted(expected ^ set(stored)))}")
    tensors: dict[str, Tensor] = {}
    for name, entry in table.items():
        tensors[name] = (
            _resolve_alias(name, entry["alias"], tensors) if "alias" in entry else _restore(name, stored[name], entry)
        )
    return tensors


def _check(name: object, tensor: object) -> None:
    if not isinstance(name, str):
        raise ArgumentTypeError(f"`tensors` must have strings as names, but has one of type {type(name).__name__}.")
    if name == "__metadata__" or any("\ud800" <= letter <= "\udfff" for letter in name):
        raise ArgumentError(f"`tensors` has the name {name!r}, which the file format cannot store.")
    if not isinstance(tensor, Tensor):
        raise ArgumentTypeError(f"`tensors[{name!r}]` must be a tensor, but is of type {type(tensor).__name__}.")
    if tensor.layout != torch.strided or tensor.is_meta or tensor.is_quantized:
        raise ArgumentTypeError(
            f"`tensors[{name!r}]` must be dense and hold data, but has layout {tensor.layout} on device {tensor.device}."
        )
    if _dtype_name(tensor) not in _STORED | _COMPLEX:
        raise ArgumentTypeError(f"`tensors[{name!r}]` has dtype {tensor.dtype}, which cannot be stored.")


def _identity(name: str, tensor: Tensor) -> tuple[object, ...]:
    """Return what two names of one tensor have in common; an empty tensor has no memory to share."""
    if tensor.numel() == 0:
        return (name,)
    place = (tensor.device, tensor.untyped_storage().data_ptr(), tensor.storage_offset())
    return (*place, tensor.shape, tensor.stride(), tensor.dtype, tensor.is_conj(), tensor.is_neg())


def _on_cpu(tensor: Tensor) -> Tensor:
    """Return the tensor as contiguous real numbers on the CPU, without a copy where it is that already."""
    tensor = tensor.detach().cpu().resolve_conj().resolve_neg()
    return (torch.view_as_real(tensor) if tensor.is_complex() else tensor).contiguous()


def _dtype_name(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _digest(flat: Tensor) -> str:
    return hashlib.sha256(flat.reshape(-1).view(torch.uint8).numpy().data).hexdigest()


def _resolve_alias(name: str, original: object, tensors: Mapping[str, Tensor]) -> Tensor:
    if not isinstance(original, str) or original not in tensors:
        raise ValueError(f"`{name}` is tied to a tensor that is not there")
    return tensors[original]


def _restore(name: str, flat: Tensor, entry: Mapping[str, Any]) -> Tensor:
    """Return one stored tensor after a check of its dtype, shape and bytes against the table."""
    dtype = entry.get("dtype")
    if not isinstance(dtype, str) or (_STORED | _COMPLEX).get(dtype) != flat.dtype:
        raise ValueError(f"`{name}` is of dtype {flat.dtype}, which is not what the table says")
    found = list(flat.shape[:-1] if dtype in _COMPLEX else flat.shape)
    if entry.get("shape") != found or (dtype in _COMPLEX and flat.shape[-1:] != (2,)):
        raise ValueError(f"`{name}` has shape {found}, which is not what the table says")
    if entry.get("sha256") != _digest(flat):
        raise ValueError(f"`{name}` is damaged: its checksum does not fit")
    return torch.view_as_complex(flat) if dtype in _COMPLEX else flat
