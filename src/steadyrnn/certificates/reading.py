"""What a certificate is about: the weights of a recurrent module as they are used, ours or torch's."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from steadyrnn.activations import ReLU, Tanh
from steadyrnn.cells.base import Cell
from steadyrnn.cells.gru import GRUStep
from steadyrnn.cells.lstm import LSTMStep
from steadyrnn.cells.rnn import RNNStep
from steadyrnn.checks import autocasts, check_finite
from steadyrnn.constraints.slot import whole
from steadyrnn.engines.base import as_gates, flattened, stacked
from steadyrnn.errors import ArgumentTypeError, CertificateError
from steadyrnn.layers.base import RecurrentLayer
from steadyrnn.layers.cells import RecurrentStep
from steadyrnn.layers.transition import Transition

__all__ = ["RECURRENT", "Weights", "is_recurrent", "read_weights", "used_tensors"]

RECURRENT = (RecurrentLayer, RecurrentStep, nn.RNN, nn.GRU, nn.LSTM, nn.RNNCell, nn.GRUCell, nn.LSTMCell)
"""Modules a certificate can be about."""
_NAMES = ("weight_ih", "bias_ih", "bias_hh", "activation", "initial_state", "initial_cell")


@dataclass(frozen=True)
class Weights:
    """One layer in one direction, in float64, on the CPU.

    ``slack`` bounds how far, in spectral norm, the recurrent matrix that an engine multiplies by may be from
    ``weight_hh``: a factored weight is rounded in one way as factors and in another as a matrix. ``dtype`` is the one that a
    forward uses the weights in.
    """

    name: str
    cell: Cell
    weight_ih: Tensor  # (G * H, D)
    weight_hh: Tensor  # (G * H, H)
    bias_ih: Tensor | None
    bias_hh: Tensor | None
    theta: Tensor | None
    initial: tuple[Tensor, ...]  # learned initial states, each (H,)
    slack: float = 0.0
    dtype: torch.dtype = torch.float64
    casts: dict[tuple[torch.device, torch.dtype], tuple[Tensor | None, ...]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    checksum: list[str] = field(default_factory=list, init=False, repr=False, compare=False)  # once it has been computed

    def cast(self, device: torch.device, dtype: torch.dtype) -> tuple[Tensor | None, ...]:
        """Return both weights, both biases and theta where and as they are wanted; each place and dtype is cast to once."""
        if (device, dtype) not in self.casts:
            given = (self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh, self.theta)
            self.casts[device, dtype] = tuple(None if t is None else t.to(device, dtype) for t in given)
        return self.casts[device, dtype]

    @property
    def size(self) -> int:
        """H."""
        return int(self.weight_hh.shape[1])

    @property
    def bias(self) -> Tensor:
        """The sum of both biases, (G * H,)."""
        total = self.weight_ih.new_zeros(self.weight_ih.shape[0])
        for bias in (self.bias_ih, self.bias_hh):
            total = total if bias is None else total + bias
        return total


def is_recurrent(module: nn.Module) -> bool:
    """Say whether a certificate can be about this module itself.

    Example:
        >>> is_recurrent(torch.nn.GRU(2, 3)), is_recurrent(torch.nn.Linear(2, 3))
        (True, False)
    """
    return isinstance(module, RECURRENT)


def read_weights(module: nn.Module) -> list[list[Weights]]:
    """Return the weights of each layer, a list a layer with one entry a direction, cast as a forward would cast them.

    Example:
        >>> [[w.name for w in layer] for layer in read_weights(sr.RNN(2, 3, num_layers=2, bidirectional=True))]
        [['l0', 'l0_reverse'], ['l1', 'l1_reverse']]
    """
    if not is_recurrent(module):
        raise ArgumentTypeError(f"`module` must be a recurrent layer or cell, but is of type {type(module).__name__}.")
    if getattr(module, "proj_size", 0):
        raise CertificateError("No theorem covers an LSTM with `proj_size`: its recurrent weight is not square.")
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        check_finite(name, tensor)  # under its own name, before a constraint makes a weight of it
    cell = cell_of(module)
    return [[read_one(module, cell, end) for end in ends] for ends in name_ends(module)]


def name_ends(module: nn.Module) -> list[list[str]]:
    """Return how the names of the weights end, a list a layer with one entry a direction."""
    layers = getattr(module, "num_layers", None)
    if layers is None:
        return [[""]]
    ways = ("", "_reverse") if getattr(module, "bidirectional", False) else ("",)
    return [[f"_l{layer}{way}" for way in ways] for layer in range(layers)]


@torch.no_grad()
def used_tensors(module: nn.Module) -> list[Tensor]:
    """Return every tensor that :func:`read_weights` would read, as a forward uses it: weights behind their constraints.

    Two modules of one kind for which these are equal have equal weights.

    Example:
        >>> [tuple(t.shape) for t in used_tensors(sr.RNN(2, 3, bias=False))]
        [(3, 3), (3, 2)]
    """
    found: list[Any] = []
    for end in (end for ends in name_ends(module) for end in ends):
        transition = module._modules.get(f"transition{end}")
        own = isinstance(transition, Transition)
        found += flattened(transition.gates()) if isinstance(transition, Transition) else []
        found += [getattr(module, f"{name}{end}", None) for name in (() if own else ("weight_hh",)) + _NAMES]
    return [whole(tensor).detach() for tensor in found if isinstance(tensor, Tensor)]


def cell_of(module: Any) -> Cell:
    """Return the step a module takes."""
    if isinstance(module, RecurrentLayer | RecurrentStep):
        return module.cell
    if isinstance(module, nn.GRU | nn.GRUCell):
        return GRUStep(reset_after=True)
    if isinstance(module, nn.LSTM | nn.LSTMCell):
        return LSTMStep()
    return RNNStep(ReLU() if "relu" in str(module.nonlinearity).lower() else Tanh())


@torch.no_grad()
def read_one(module: nn.Module, cell: Cell, end: str) -> Weights:
    """Return the weights whose names finish in ``end``."""
    first = getattr(module, f"weight_ih{end}")
    dtype = first.dtype
    if autocasts(first.device) and dtype != torch.float64:
        dtype = torch.get_autocast_dtype(first.device.type)

    def read(name: str) -> Tensor | None:
        tensor = getattr(module, f"{name}{end}", None)
        if not isinstance(tensor, Tensor):
            return None
        if tensor.is_meta:
            raise CertificateError("A module on the meta device has no weights to certify.")
        return (
            check_finite(f"{name}{end}", whole(tensor)).detach().to(dtype).double().cpu().clone()
        )  # the module may change later

    transition = module._modules.get(f"transition{end}")
    weight_hh, slack = read_recurrent(transition, dtype) if isinstance(transition, Transition) else (read("weight_hh"), 0.0)
    states = (read("initial_state"), read("initial_cell"))
    weight_ih = read("weight_ih")
    if weight_ih is None or weight_hh is None:
        raise CertificateError(f"`module` has no tensors named weight_ih{end} and weight_hh{end}.")
    return Weights(
        end.removeprefix("_"), cell, weight_ih, weight_hh, read("bias_ih"), read("bias_hh"), read("activation"),
        tuple(state for state in states if state is not None), slack, dtype,
    )  # fmt: skip


def read_recurrent(transition: Transition, dtype: torch.dtype) -> tuple[Tensor, float]:
    """Return a constrained weight in float64, and how far its matrix in ``dtype`` is from it."""
    weight = transition.gates()
    exact = stacked(tuple(gate.to(dtype).to(torch.float64) for gate in as_gates(weight)), torch.float64)
    exact = check_finite("weight_hh", exact).cpu().clone()
    rounded = stacked(weight, dtype).double().cpu()
    return exact, float((rounded - exact).norm()) * (1 + 1e-9)
