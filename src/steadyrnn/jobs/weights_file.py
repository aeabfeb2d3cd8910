"""Plain weights in a safetensors file: those of a model written, and a recurrent layer made of them."""

import os
import re
import shlex
from collections.abc import Mapping
from functools import reduce
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save
from torch import Tensor, nn

from steadyrnn.convert.plain_weights import plain_weights
from steadyrnn.errors import ArgumentError, ArgumentTypeError, CheckpointError
from steadyrnn.layers.base import RecurrentLayer
from steadyrnn.layers.gru import GRU
from steadyrnn.layers.lstm import LSTM
from steadyrnn.layers.rnn import RNN
from steadyrnn.runs.files import write_atomically

__all__ = ["build_layer", "load_layer", "save_weights"]

_NAME = re.compile(r"(?P<prefix>.*?)(?P<name>((weight|bias)_(ih|hh)|initial_(state|cell))_l\d+(_reverse)?)")
_CELLS: dict[int, Any] = {1: RNN, 3: GRU, 4: LSTM}


def save_weights(model: nn.Module | Mapping[str, Tensor], path: str | os.PathLike[str]) -> Path:
    """Write the weights of a model to a safetensors file, which holds numbers and nothing that could be executed.

    Of our layers the weights are written as they are used, computed from their raw parameters, under torch's names
    (``weight_hh_l0``): what ``steadyrnn certify FILE`` reads, and what a plain layer of torch or a free one of ours
    loads. A file from ``torch.save`` is turned into one by
    ``sr.save_weights(torch.load("w.pt", weights_only=True), "w.safetensors")``.

    Args:
        model: A module, or a state dict.
        path: The file to write; one that is there is replaced as a whole.

    Returns:
        The path.

    Raises:
        ArgumentTypeError: Something in the state dict is no tensor.
        ArgumentError: At ``path`` there is something else than a file.
        RunError: The system refused: the folder is not there, the disk is full, ... What was at ``path`` is whole.

    Example:
        >>> import tempfile
        >>> from safetensors.torch import load_file
        >>> rnn = sr.RNN(2, 3, transition="spectral")
        >>> path = sr.save_weights(rnn, tempfile.mkdtemp() + "/rnn.safetensors")
        >>> torch.equal(load_file(path)["weight_hh_l0"], rnn.weight_hh_l0)
        True
    """
    target = Path(path)
    tensors = _checked(plain_weights(model) if isinstance(model, nn.Module) else model)
    if target.is_symlink() or (target.exists() and not target.is_file()):
        raise ArgumentError(f"`path` must name a file, but at {str(target)!r} there is something else.")
    write_atomically(target, save(tensors))
    return target


def _checked(weights: Mapping[str, Any]) -> dict[str, Tensor]:
    """Return tensors as a file can hold them; refuse what is none."""
    if not isinstance(weights, Mapping):
        raise ArgumentTypeError(f"`model` must be a module or a state dict, but is of type {type(weights).__name__}.")
    for name, tensor in weights.items():
        if not isinstance(name, str) or not isinstance(tensor, Tensor):
            parts = [key for key, part in weights.items() if isinstance(part, Mapping)]
            hint = f" Give the part that holds the weights, such as model[{parts[0]!r}]." if parts else ""
            raise ArgumentTypeError(
                f"`model` must be a module, or map names to tensors, but {name!r} is of type {type(tensor).__name__}.{hint}"
            )
    return {name: tensor.detach().cpu().contiguous().clone() for name, tensor in weights.items()}


def load_layer(path: Path, nonlinearity: str | None = None) -> nn.Module:
    """Return the layer whose weights a file holds under torch's names; the file is never executed, only read.

    Args:
        path: The file.
        nonlinearity: Of an RNN; None is tanh, as in torch. LSTM and GRU have none to choose.
    """
    try:
        tensors = load_file(path)
    except Exception as error:  # the reader of safetensors raises many kinds
        if path.suffix != ".safetensors" and _is_pickle(path):
            raise CheckpointError(_way_out(path)) from error
        raise CheckpointError(f"`{path}` is no safetensors file that can be read: {error}.") from error
    return build_layer(tensors, nonlinearity, str(path))


def _is_pickle(path: Path) -> bool:
    """Say whether a file begins as those of ``torch.save`` do: a zip archive, or a pickle by itself."""
    with path.open("rb") as file:
        return file.read(4)[:2] in (b"PK", *(b"\x80" + bytes([version]) for version in range(2, 6)))


def _way_out(path: Path) -> str:
    """Return what to do with a file of ``torch.save``."""
    new = str(path.with_suffix(".safetensors"))
    code = f"import torch, steadyrnn as sr; sr.save_weights(torch.load({str(path)!r}, weights_only=True), {new!r})"
    return (
        f"`{path}` is a file of torch.save, a pickle, which can hold code and is not read here. Turn it into safetensors, with "
        f"tensors alone and nothing executed: python -c {shlex.quote(code)} (or, where the model is at hand, "
        f"`steadyrnn.save_weights(model, {new!r})`); then certify {new!r}."
    )


def build_layer(tensors: Mapping[str, Tensor], nonlinearity: str | None, source: str) -> nn.Module:
    """Return the layer of weights under torch's names, all behind one prefix; what else there is is passed over."""
    found: dict[str, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        match = _NAME.fullmatch(name)
        if match:
            found.setdefault(match["prefix"], {})[match["name"]] = tensor
    if len(found) != 1:
        what = "none" if not found else f"{len(found)}: {', '.join(sorted(found))}"
        raise CheckpointError(f"`{source}` must hold the weights of one recurrent layer (weight_ih_l0, ...), but holds {what}.")
    weights = next(iter(found.values()))
    if "weight_ih_l0" not in weights or "weight_hh_l0" not in weights:
        raise CheckpointError(f"`{source}` lacks weight_ih_l0 or weight_hh_l0.")
    layer = _empty(weights, nonlinearity, source)
    try:
        layer.load_state_dict(weights)
    except RuntimeError as error:
        raise CheckpointError(f"`{source}` does not hold the weights of a layer: {' '.join(str(error).split())}") from error
    return layer.eval()


def _empty(weights: Mapping[str, Tensor], nonlinearity: str | None, source: str) -> RecurrentLayer:
    """Return a layer of the shapes of ``weights``, of a dtype that holds all of them as they are."""
    recurrent, input = weights["weight_hh_l0"], weights["weight_ih_l0"]
    gates = recurrent.shape[0] // max(recurrent.shape[-1], 1) if recurrent.dim() == 2 else 0
    if gates not in _CELLS or recurrent.shape[0] != gates * recurrent.shape[1] or input.dim() != 2:
        raise CheckpointError(
            f"`weight_hh_l0` of `{source}` must have shape (G * H, H) with G of 1 (RNN), 3 (GRU) or 4 (LSTM), but has "
            f"{tuple(recurrent.shape)}."
        )
    rows = recurrent.shape[0]
    for name, tensor in weights.items():  # of these a layer is made: what they do not bear out takes memory
        square = name.startswith("weight_hh") and tensor.shape != recurrent.shape
        if not tensor.is_floating_point() or square or (name == "weight_ih_l0" and tensor.shape[0] != rows):
            raise CheckpointError(
                f"`{source}` does not hold the weights of a layer: `{name}` has shape {tuple(tensor.shape)} and dtype "
                f"{tensor.dtype}, which does not fit `weight_hh_l0`, {tuple(recurrent.shape)}."
            )
    layers = sum(name.startswith("weight_hh") and not name.endswith("_reverse") for name in weights)
    bias: Any = True if "bias_hh_l0" in weights else "single" if "bias_ih_l0" in weights else False
    if nonlinearity is not None and gates != 1:
        raise ArgumentError(f"`nonlinearity` is of an RNN, but `{source}` holds a {_CELLS[gates].__name__}.")
    more: dict[str, Any] = {"nonlinearity": nonlinearity or "tanh"} if gates == 1 else {}
    more["learn_initial_state"] = any(name.startswith("initial_") for name in weights)
    layer: RecurrentLayer = _CELLS[gates](
        input.shape[1], recurrent.shape[1], layers, bias=bias, bidirectional="weight_hh_l0_reverse" in weights,
        dtype=reduce(torch.promote_types, (tensor.dtype for tensor in weights.values())), **more,
    )  # fmt: skip
    return layer
