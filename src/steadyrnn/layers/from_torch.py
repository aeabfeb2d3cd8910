"""From a layer of torch to one of ours with the same function."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from steadyrnn.constraints.base import warn_of_change
from steadyrnn.constraints.registry import JOINT
from steadyrnn.constraints.slot import Slot
from steadyrnn.constraints.stable_lstm import StableLSTM
from steadyrnn.errors import ConversionError

from .cells import GRUCell, LSTMCell, RNNCell
from .gru import GRU
from .linear import Linear
from .lstm import LSTM
from .rnn import RNN
from .weights import RecurrentWeights, TransitionLike

__all__ = ["LAYER_OPTIONS", "PAIRS", "find_slots", "from_torch", "join_names", "keep_random_state", "read_place", "read_sizes"]

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

LAYER_OPTIONS = ("num_layers", "batch_first", "dropout", "bidirectional")
"""Arguments that layers over a sequence have, and cells have not."""


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
            f"`module` must be one of {join_names(PAIRS)} of torch.nn, but is {type(module).__qualname__}. "
            "Convert each layer of a larger module by itself; undo a parametrization first."
        )
    if getattr(module, "proj_size", 0):
        raise ConversionError(
            f"`module` has proj_size={module.proj_size}: a projected LSTM's recurrent weight is not square, and no "
            "layer of ours has one. Put a `steadyrnn.Linear` behind an LSTM without projection instead."
        )
    with keep_random_state(module):
        ours: Any = PAIRS[type(module)](*read_sizes(module), **_torch_options(module, transition))
    for name, parameter in module.named_parameters(recurse=False):
        _put(ours, name, parameter, project)
    if isinstance(transition, StableLSTM) or (isinstance(transition, str) and transition in JOINT):
        _settle(ours, project)
    ours.train(module.training)
    return ours  # type: ignore[no-any-return]


def _torch_options(module: Any, transition: TransitionLike | StableLSTM) -> dict[str, Any]:
    """Return the arguments of our layer behind its sizes."""
    if isinstance(module, nn.Linear):
        return {"bias": module.bias is not None, "weight": transition, **read_place(module)}
    options = {"bias": module.bias, "transition": transition, **read_place(module)}
    if isinstance(module, nn.RNNBase):
        options |= {name: getattr(module, name) for name in LAYER_OPTIONS}
    if hasattr(module, "nonlinearity"):
        options["nonlinearity"] = module.nonlinearity
    return options


@torch.no_grad()
def _put(ours: nn.Module, name: str, value: Tensor, project: bool) -> None:
    """Copy one weight into our layer, through the right inverse where it is constrained."""
    if not hasattr(ours, name):
        raise ConversionError(
            f"`module` has a parameter {name!r} that a plain torch.nn.{type(ours).__name__} does not have. "
            "Undo what put it there, such as a weight norm or pruning."
        )
    slots = find_slots(ours, name)
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


def find_slots(layer: nn.Module, name: str) -> list[Slot]:
    """Return the slots behind a weight that is computed; none behind a parameter."""
    if name in layer._parameters:
        return []
    owner = layer.get_submodule("slot" if name == "weight" else name.replace("weight_hh", "transition"))
    return [slot for slot in owner.modules() if isinstance(slot, Slot)]


def join_names(classes: dict[type[nn.Module], type[nn.Module]]) -> str:
    """Return the names of classes, as a message lists them."""
    return ", ".join(cls.__name__ for cls in classes)


def read_sizes(module: Any) -> tuple[int, int]:
    """Return the first two arguments of a layer of torch or ours."""
    if isinstance(module, nn.Linear | Linear):
        return module.in_features, module.out_features
    return module.input_size, module.hidden_size


@contextmanager
def keep_random_state(module: nn.Module) -> Iterator[None]:
    """Give back the random numbers that making a layer uses up."""
    device = next(module.parameters()).device
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        yield


def read_place(module: nn.Module) -> dict[str, Any]:
    """Return the arguments that say where a layer is, and in which dtype."""
    parameter = next(module.parameters())
    return {"device": parameter.device, "dtype": parameter.dtype}
