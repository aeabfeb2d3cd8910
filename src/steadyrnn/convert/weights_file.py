"""Weights as they are used, under torch's names, in a safetensors file."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor, nn

from steadyrnn.errors import ArgumentError, ArgumentTypeError
from steadyrnn.layers.linear import Linear
from steadyrnn.layers.weights import RecurrentWeights
from steadyrnn.runs.files import write_atomically

__all__ = ["plain_weights", "save_weights"]


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
        ArgumentTypeError: Something in the state dict is not a tensor.
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


@torch.no_grad()
def plain_weights(model: nn.Module) -> dict[str, Tensor]:
    """Return the state dict of a module with computed weights in place of raw parameters.

    Example:
        >>> list(plain_weights(sr.RNN(2, 3, transition="spectral", bias=False)))
        ['weight_ih_l0', 'weight_hh_l0']
    """
    weights = dict(model.state_dict())
    for path, module in model.named_modules():
        start = f"{path}." if path else ""
        for child, name in _computed(module).items():
            weights = {key: tensor for key, tensor in weights.items() if not key.startswith(f"{start}{child}.")}
            weights[f"{start}{name}"] = getattr(module, name).detach()
    return weights


def _computed(module: nn.Module) -> dict[str, str]:
    """Return the weights of a layer that are computed, by the submodule that holds their raw parameters."""
    names = [name for name, _ in module.named_children()]
    if isinstance(module, RecurrentWeights):
        return {name: name.replace("transition", "weight_hh") for name in names if name.startswith("transition")}
    return {"slot": "weight"} if isinstance(module, Linear) and "slot" in names else {}


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
