"""From a layer of torch to one of ours with the same function, and back; of a larger module every layer in it."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from steadyrnn.constraints.base import Constraint, warn_of_change
from steadyrnn.constraints.registry import JOINT
from steadyrnn.constraints.slot import Slot, whole
from steadyrnn.constraints.stable_lstm import StableLSTM
from steadyrnn.errors import ConversionError
from steadyrnn.layers.base import RecurrentLayer
from steadyrnn.layers.cells import GRUCell, LSTMCell, RNNCell
from steadyrnn.layers.gru import GRU
from steadyrnn.layers.linear import Linear
from steadyrnn.layers.lstm import LSTM
from steadyrnn.layers.rnn import RNN
from steadyrnn.layers.weights import RecurrentWeights, TransitionLike
from steadyrnn.models.base import FeedForward
from steadyrnn.models.hidden import HiddenLayer
from steadyrnn.models.resnet import ResidualBlock
from steadyrnn.models.sequence import SequenceModel
from steadyrnn.models.truncated import Truncated

__all__ = ["PAIRS", "from_torch", "to_torch"]

PAIRS: dict[type[nn.Module], type[nn.Module]] = {
    nn.RNN: RNN,
    nn.GRU: GRU,
    nn.LSTM: LSTM,
    nn.RNNCell: RNNCell,
    nn.GRUCell: GRUCell,
    nn.LSTMCell: LSTMCell,
    nn.Linear: Linear,
}
"""Torch's layers and ours."""

_THEIRS = {ours: torchs for torchs, ours in PAIRS.items()}
_CONTAINERS = (SequenceModel, FeedForward, HiddenLayer, ResidualBlock, Truncated)
"""Modules of this package that run torch's layers as well as ours."""

_LAYER_OPTIONS = ("num_layers", "batch_first", "dropout", "bidirectional")


def from_torch(
    module: nn.Module, transition: TransitionLike | StableLSTM = "free", project: bool = False
) -> RecurrentWeights | Linear:
    """Return a layer of ours with the same function as a layer of torch.

    Weights are copied; device, dtype, training mode and ``requires_grad`` (of a constrained weight: of all its raw
    tensors) are kept, and no random number is used up. With ``transition="free"`` weights are the same to the last bit.

    Args:
        module: An RNN, GRU, LSTM, one of their cells, or a Linear, of ``torch.nn`` (not of a subclass).
        transition: The set for the recurrent weight, as the layer accepts it; of a Linear, for its weight.
        project: Whether a weight outside the set is replaced by its projection, which changes the function. A
            ``ConstraintWarning`` says so where that changes a recurrent weight by more than half of its norm.

    Raises:
        ConversionError: There is no such layer of ours (another class, or ``proj_size``).
        ConstraintError: A weight is outside the set, by the violation the message names, and ``project`` is False.
        NotInvertibleError: The constraint's map does not reach every matrix of its set.

    Example:
        >>> gru = torch.nn.GRU(3, 4)
        >>> ours = sr.from_torch(gru)
        >>> torch.equal(ours.weight_hh_l0, gru.weight_hh_l0)
        True
        >>> ours = sr.from_torch(gru, transition={"n": sr.Spectral(radius=0.0)}, project=True)
        >>> torch.linalg.svdvals(ours.weight_hh_l0[8:].detach()).round(decimals=4)
        tensor([1., 1., 1., 1.])
    """
    if type(module) not in PAIRS:
        raise ConversionError(
            f"`module` must be one of {_names(PAIRS)} of torch.nn, but is {type(module).__qualname__}. "
            "Convert each layer of a larger module by itself; undo a parametrization first."
        )
    if getattr(module, "proj_size", 0):
        raise ConversionError(
            f"`module` has proj_size={module.proj_size}: a projected LSTM's recurrent weight is not square, and no "
            "layer of ours has one. Put a `steadyrnn.Linear` behind an LSTM without projection instead."
        )
    with _random_state_kept(module):
        ours: Any = PAIRS[type(module)](*_sizes(module), **_torch_options(module, transition))
    for name, parameter in module.named_parameters(recurse=False):
        _put(ours, name, parameter, project)
    if isinstance(transition, StableLSTM) or (isinstance(transition, str) and transition in JOINT):
        _settle(ours, project)
    ours.train(module.training)
    return ours  # type: ignore[no-any-return]


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
            f"`{path or 'layer'}` must be one of {_names(_THEIRS)} of steadyrnn, or a module made of them and torch's, but is "
            f"{type(module).__qualname__}, which has no counterpart in torch.nn."
        )
    inner = [_ours(child, f"{path}.{name}" if path else name) for name, child in module.named_children()]
    found = {name: one for part in inner for name, one in part.items()}
    if not path and not found:
        raise ConversionError(
            f"`layer` must be one of {_names(_THEIRS)} of steadyrnn, or a module that holds some, but is "
            f"{type(module).__qualname__}, which holds none."
        )
    return found


def _plain_layer(layer: nn.Module, memo: dict[int, Any]) -> nn.Module:
    """Return torch's layer with the function of ours; ``memo`` learns which parameter stands for which."""
    with _random_state_kept(layer):
        plain: nn.Module = _THEIRS[type(layer)](*_sizes(layer), **_plain_options(layer))
    for name, parameter in [*plain.named_parameters(recurse=False)]:
        before = layer._parameters.get(name)
        if before is not None and id(before) in memo:
            setattr(plain, name, memo[id(before)])
            continue
        _fill(parameter, layer, name)
        if before is not None:
            memo[id(before)] = parameter
    return plain.train(layer.training)


def _names(classes: dict[type[nn.Module], type[nn.Module]]) -> str:
    return ", ".join(cls.__name__ for cls in classes)


def _sizes(module: Any) -> tuple[int, int]:
    """Return the first two arguments of a layer of torch or ours."""
    if isinstance(module, nn.Linear | Linear):
        return module.in_features, module.out_features
    return module.input_size, module.hidden_size


@contextmanager
def _random_state_kept(module: nn.Module) -> Iterator[None]:
    """Give back the random numbers that making a layer uses up."""
    device = next(module.parameters()).device
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        yield


def _place(module: nn.Module) -> dict[str, Any]:
    parameter = next(module.parameters())
    return {"device": parameter.device, "dtype": parameter.dtype}


def _torch_options(module: Any, transition: TransitionLike | StableLSTM) -> dict[str, Any]:
    """Return the arguments of our layer behind its sizes."""
    if isinstance(module, nn.Linear):
        return {"bias": module.bias is not None, "weight": transition, **_place(module)}
    options = {"bias": module.bias, "transition": transition, **_place(module)}
    if isinstance(module, nn.RNNBase):
        options |= {name: getattr(module, name) for name in _LAYER_OPTIONS}
    if hasattr(module, "nonlinearity"):
        options["nonlinearity"] = module.nonlinearity
    return options


def _plain_options(layer: Any) -> dict[str, Any]:
    """Return the arguments of torch's layer behind its sizes."""
    if isinstance(layer, Linear):
        return {"bias": layer.bias is not None, **_place(layer)}
    options = {"bias": bool(layer.bias), **_place(layer)}
    if isinstance(layer, RecurrentLayer):
        options |= {name: getattr(layer, name) for name in _LAYER_OPTIONS}
    activation = layer.cell.record.activation
    if activation is not None:
        options["nonlinearity"] = activation.torch_name
    return options


def _slots(layer: nn.Module, name: str) -> list[Slot]:
    """Return the slots behind a weight that is computed; none behind a parameter."""
    if name in layer._parameters:
        return []
    owner = layer.get_submodule("slot" if name == "weight" else name.replace("weight_hh", "transition"))
    return [slot for slot in owner.modules() if isinstance(slot, Slot)]


@torch.no_grad()
def _put(ours: nn.Module, name: str, value: Tensor, project: bool) -> None:
    """Copy one weight into our layer, through the right inverse where it is constrained."""
    if not hasattr(ours, name):
        raise ConversionError(
            f"`module` has a parameter {name!r} that a plain torch.nn.{type(ours).__name__} does not have. "
            "Undo what put it there, such as a weight norm or pruning."
        )
    slots = _slots(ours, name)
    if not slots:
        getattr(ours, name).copy_(value).requires_grad_(value.requires_grad)
        return
    before = [slot.constraint.projects for slot in slots]
    for slot in slots:
        slot.constraint.projects = slot.constraint.projects or project
        slot.requires_grad_(value.requires_grad)
    try:
        setattr(ours, name, value)
    finally:
        for slot, was in zip(slots, before, strict=True):
            slot.constraint.projects = was


@torch.no_grad()
def _settle(ours: RecurrentWeights, project: bool) -> None:
    """Put jointly constrained weights into their set, or refuse those outside."""
    if not project:
        ours.check_joint()
    before = {name: parameter.clone() for name, parameter in ours.named_parameters(recurse=False)}
    ours.after_optimizer_step()
    for name, parameter in ours.named_parameters(recurse=False):
        if project and name.startswith("weight_hh"):
            warn_of_change(name, before[name], parameter, next(iter(ours._joint.values())))


def _refuse_inexpressible(layer: Any, path: str) -> None:
    """Refuse what torch's layers have no argument for."""
    if isinstance(layer, Linear):
        return
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
    slots = _slots(layer, name)
    learned = any(raw.requires_grad for slot in slots for raw in slot.parameters()) if slots else value.requires_grad
    parameter.copy_(whole(value)).requires_grad_(learned)
