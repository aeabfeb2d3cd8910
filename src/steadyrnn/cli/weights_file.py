"""A recurrent layer from plain weights in a safetensors file."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from steadyrnn.errors import CheckpointError
from steadyrnn.layers.base import RecurrentLayer
from steadyrnn.layers.gru import GRU
from steadyrnn.layers.lstm import LSTM
from steadyrnn.layers.rnn import RNN

__all__ = ["layer_of_file", "layer_of_weights"]

_NAME = re.compile(r"(?P<prefix>.*?)(?P<name>(weight|bias)_(ih|hh)_l\d+(_reverse)?)")
_CELLS: dict[int, Any] = {1: RNN, 3: GRU, 4: LSTM}


def layer_of_file(path: Path, nonlinearity: str = "tanh") -> nn.Module:
    """Return the layer whose weights a file holds under torch's names; the file is never executed, only read."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        tensors = load_file(path)
    except (SafetensorError, OSError, ValueError) as error:
        raise CheckpointError(f"`{path}` is no safetensors file that can be read: {error}.") from error
    return layer_of_weights(tensors, nonlinearity, str(path))


def layer_of_weights(tensors: Mapping[str, Tensor], nonlinearity: str, source: str) -> nn.Module:
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


def _empty(weights: Mapping[str, Tensor], nonlinearity: str, source: str) -> RecurrentLayer:
    """Return a layer of the shapes of ``weights``."""
    recurrent, input = weights["weight_hh_l0"], weights["weight_ih_l0"]
    gates = recurrent.shape[0] // max(recurrent.shape[-1], 1) if recurrent.dim() == 2 else 0
    if gates not in _CELLS or recurrent.shape[0] != gates * recurrent.shape[1] or input.dim() != 2:
        raise CheckpointError(
            f"`weight_hh_l0` of `{source}` must have shape (G * H, H) with G of 1 (RNN), 3 (GRU) or 4 (LSTM), but has "
            f"{tuple(recurrent.shape)}."
        )
    layers = sum(name.startswith("weight_hh") and not name.endswith("_reverse") for name in weights)
    bias: Any = True if "bias_hh_l0" in weights else "single" if "bias_ih_l0" in weights else False
    more = {"nonlinearity": nonlinearity} if gates == 1 else {}
    layer: RecurrentLayer = _CELLS[gates](
        input.shape[1], recurrent.shape[1], layers, bias=bias, bidirectional="weight_hh_l0_reverse" in weights,
        dtype=recurrent.dtype, **more,
    )  # fmt: skip
    return layer
