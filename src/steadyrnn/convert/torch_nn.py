"""From a layer of ours to one of torch with the same function; of a larger module every layer in it."""

import copy
from typing import Any

import torch
from torch import nn
from torch.nn.utils import parametrize

from steadyrnn.constraints.base import Constraint
from steadyrnn.constraints.slot import whole
from steadyrnn.errors import ConversionError
from steadyrnn.layers.base import RecurrentLayer
from steadyrnn.layers.from_torch import LAYER_OPTIONS, PAIRS, find_slots, join_names, keep_random_state, read_place, read_sizes
from steadyrnn.layers.linear import Linear
from steadyrnn.layers.saturation import refuse_saturation
from steadyrnn.models.base import FeedForward
from steadyrnn.models.hidden import HiddenLayer
from steadyrnn.models.resnet import ResidualBlock
from steadyrnn.models.sequence import SequenceModel
from steadyrnn.models.truncated import Truncated

__all__ = ["to_torch"]

_THEIRS = {ours: torchs for torchs, ours in PAIRS.items()}
_CONTAINERS = (SequenceModel, FeedForward, HiddenLayer, ResidualBlock, Truncated)
"""Modules of this package that run torch's layers as well as ours."""


def to_torch(layer: nn.Module) -> nn.Module:
    """Return the plain layer of torch with the same function, its weights computed once and stored.

    Of a larger module, a ``SequenceModel``, ``MLP``, ``ResNet`` or one of your own, return a copy in which every layer of
    ours is one of torch: embedding, readout and all that was torch's already are copied as they are, and parameters that
    were one stay one. Where a layer cannot be expressed, nothing is converted.

    Device, dtype, training mode and ``requires_grad`` are kept, and no random number is used up. Of ``bias="single"``
    the second vector is zero and does not require a gradient. The constraint, ``engine`` and ``recompute`` have no
    counterpart; they do not change the function. Torch's recurrent layers take no ``lengths``: a ``SequenceModel`` packs
    the batch for them, a module of your own has to.

    Args:
        layer: An RNN, GRU, LSTM, one of their cells, or a Linear of ours, or a module that holds some.

    Raises:
        ConversionError: Torch has no such layer: another activation than tanh and relu, ``reset_after=False``, a
            learned initial state, or another class; or a module runs layers of ours alone.

    Example:
        >>> ours = sr.RNN(3, 4, transition="spectral")
        >>> plain = sr.to_torch(ours)
        >>> type(plain), torch.equal(plain.weight_hh_l0, ours.weight_hh_l0)
        (<class 'torch.nn.modules.rnn.RNN'>, True)
        >>> model = sr.SequenceModel(ours, 2)
        >>> whole = sr.to_torch(model)
        >>> type(whole.rnn), type(whole.readout), torch.allclose(whole(torch.ones(5, 1, 3))[0], model(torch.ones(5, 1, 3))[0])
        (<class 'torch.nn.modules.rnn.RNN'>, <class 'torch.nn.modules.linear.Linear'>, True)
    """
    found = _ours(layer)
    for path, one in found.items():
        _refuse_inexpressible(one, path)
    memo: dict[int, Any] = {}  # what deepcopy puts in place of a layer, and of a parameter that it shares with others
    for one in found.values():
        if id(one) not in memo:
            memo[id(one)] = _plain_layer(one, memo)
    plain: nn.Module = copy.deepcopy(layer, memo)
    return plain


def _constrained(module: nn.Module) -> list[str]:
    """Return the weights of a module that ``sr.constrain`` keeps in a set."""
    if not parametrize.is_parametrized(module):
        return []
    chains: Any = module.parametrizations
    return [name for name, chain in chains.items() if any(isinstance(one, Constraint) for one in chain)]


def _ours(module: nn.Module, path: str = "") -> dict[str, nn.Module]:
    """Return the layers of ours in a module by their names; refuse what needs them to be ours."""
    if type(module) in _THEIRS:
        return {path or "layer": module}
    for name in _constrained(module):
        raise ConversionError(
            f"`{path or 'layer'}` has a {name!r} that `constrain` keeps in a set. Store it as it is first, in a copy if you "
            f"want to go on training: `torch.nn.utils.parametrize.remove_parametrizations(module, {name!r})`."
        )
    own = type(module).__module__.startswith("steadyrnn.") or isinstance(module, tuple(_THEIRS))
    if own and not isinstance(module, _CONTAINERS):
        raise ConversionError(
            f"`{path or 'layer'}` must be one of {join_names(_THEIRS)} of steadyrnn, or a module made of them and torch's, "
            f"but is {type(module).__qualname__}, which has no counterpart in torch.nn."
        )
    inner = [_ours(child, f"{path}.{name}" if path else name) for name, child in module.named_children()]
    found = {name: one for part in inner for name, one in part.items()}
    if not path and not found:
        raise ConversionError(
            f"`layer` must be one of {join_names(_THEIRS)} of steadyrnn, or a module that holds some, but is "
            f"{type(module).__qualname__}, which holds none."
        )
    return found


def _plain_layer(layer: nn.Module, memo: dict[int, Any]) -> nn.Module:
    """Return torch's layer with the function of ours; ``memo`` learns which parameter stands for which."""
    with keep_random_state(layer):
        plain: nn.Module = _THEIRS[type(layer)](*read_sizes(layer), **_plain_options(layer))
    for name, parameter in [*plain.named_parameters(recurse=False)]:
        before = layer._parameters.get(name)
        if before is not None and id(before) in memo:
            setattr(plain, name, memo[id(before)])
            continue
        _fill(parameter, layer, name)
        if before is not None:
            memo[id(before)] = parameter
    return plain.train(layer.training)


def _plain_options(layer: Any) -> dict[str, Any]:
    """Return the arguments of torch's layer behind its sizes."""
    if isinstance(layer, Linear):
        return {"bias": layer.bias is not None, **read_place(layer)}
    options = {"bias": bool(layer.bias), **read_place(layer)}
    if isinstance(layer, RecurrentLayer):
        options |= {name: getattr(layer, name) for name in LAYER_OPTIONS}
    activation = layer.cell.record.activation
    if activation is not None:
        options["nonlinearity"] = activation.torch_name
    return options


def _refuse_inexpressible(layer: Any, path: str) -> None:
    """Refuse what torch's layers have no argument for."""
    if isinstance(layer, Linear):
        return
    refuse_saturation(layer, ConversionError, f"torch has no layer for `{path}`")
    record = layer.cell.record
    if record.activation is not None and record.activation.torch_name is None:
        raise ConversionError(
            f"torch.nn.{type(layer).__name__} has the activations tanh and relu only, but `{path}` has "
            f"{record.activation.name}. Keep the layer, or train one with nonlinearity='tanh' or 'relu'."
        )
    if record.reset_after is False:
        raise ConversionError(
            f"torch.nn.{type(layer).__name__} applies the reset gate behind the recurrent product, but `{path}` has "
            "reset_after=False, another function. Keep the layer, or train one with reset_after=True."
        )
    if getattr(layer, "learn_initial_state", False):
        raise ConversionError(
            f"torch.nn.{type(layer).__name__} has no learned initial state, but `{path}` has one. Load the state dict, "
            "strict=False, into a layer made with learn_initial_state=False, convert that one, and pass the learned state "
            "as `hx`."
        )


@torch.no_grad()
def _fill(parameter: nn.Parameter, layer: nn.Module, name: str) -> None:
    """Copy one weight out of our layer; the second vector of a single bias is zero."""
    value = getattr(layer, name, None)
    if value is None:
        parameter.zero_().requires_grad_(False)
        return
    slots = find_slots(layer, name)
    learned = any(raw.requires_grad for slot in slots for raw in slot.parameters()) if slots else value.requires_grad
    parameter.copy_(whole(value)).requires_grad_(learned)
