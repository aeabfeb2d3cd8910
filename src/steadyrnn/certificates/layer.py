"""One layer in one direction: its weights as a forward uses them, ours or torch's, and what a theory proves of them."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn

from steadyrnn.activations import as_activation
from steadyrnn.bounds.norms import Contraction, Norm
from steadyrnn.cells.base import Cell, State
from steadyrnn.cells.gru import GRUStep
from steadyrnn.cells.lstm import LSTMStep
from steadyrnn.cells.rnn import RNNStep
from steadyrnn.checks import autocasts, check_finite
from steadyrnn.constraints.slot import whole
from steadyrnn.errors import ArgumentTypeError, CertificateError
from steadyrnn.layers.base import RecurrentLayer
from steadyrnn.layers.cells import RecurrentStep
from steadyrnn.layers.saturation import refuse_saturation
from steadyrnn.layers.weights import Transition

from .tiers import LeftOut, Tier

__all__ = [
    "RECURRENT",
    "LayerCertificate",
    "Theory",
    "Weights",
    "dropout_scale",
    "is_recurrent",
    "read_weights",
    "used_tensors",
]


def _elman_step(module: Any) -> Cell:
    """Return the step of torch's RNN or RNNCell."""
    return RNNStep(as_activation("relu" if "relu" in str(module.nonlinearity).lower() else "tanh"))


_STEPS: dict[type[nn.Module], Callable[[Any], Cell]] = {
    RecurrentLayer: lambda module: module.cell,
    RecurrentStep: lambda module: module.cell,
    nn.RNN: _elman_step,
    nn.RNNCell: _elman_step,
    nn.GRU: lambda module: GRUStep(reset_after=True),
    nn.GRUCell: lambda module: GRUStep(reset_after=True),
    nn.LSTM: lambda module: LSTMStep(),
    nn.LSTMCell: lambda module: LSTMStep(),
}
"""The step that each class of module makes."""
RECURRENT = tuple(_STEPS)
"""Modules a certificate can be about."""


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
    """Return the weights of each layer, one list per layer with one entry per direction, cast as a forward would cast them.

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
    """Return how the names of the weights end, one list per layer with one entry per direction."""
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
    found: list[Tensor | None] = []
    cell = cell_of(module)
    for end in (end for ends in name_ends(module) for end in ends):
        gates = slots_of(module, end)
        for gate in (slot.gate() for slot in gates):
            found += [gate] if isinstance(gate, Tensor) else [*gate]
        found += [tensor_of(module, f"{name}{end}") for name in tensor_names(cell) if name != "weight_hh" or not gates]
    return [whole(tensor).detach() for tensor in found if tensor is not None]


def tensor_names(cell: Cell) -> tuple[str, ...]:
    """Return the names of a layer's tensors without their end, the recurrent weight first, learned initial states last."""
    states = (f"initial_{name}" for name in cell.record.state_names)
    return "weight_hh", "weight_ih", "bias_ih", "bias_hh", "activation", *states


def slots_of(module: nn.Module, end: str) -> list[Any]:
    """Return the slot of each gate of a constrained recurrent weight, in their order; none where it is a plain tensor."""
    transition = module._modules.get(f"transition{end}")
    return [*transition.children()] if isinstance(transition, Transition) else []


def tensor_of(module: nn.Module, name: str) -> Tensor | None:
    """Return a tensor of a module, None where there is none of this name.

    Pruning and parametrizing take a parameter away, and leave an attribute or a property under its name.
    """
    tensor: Any = module._parameters.get(name, module._buffers.get(name))
    if tensor is None and (name in vars(module) or hasattr(type(module), name)):
        tensor = getattr(module, name)
    return tensor if isinstance(tensor, Tensor) else None


def cell_of(module: nn.Module) -> Cell:
    """Return the step a module takes."""
    cell = next(_STEPS[kind](module) for kind in type(module).__mro__ if kind in _STEPS)
    if cell.record.theorem is None:
        refuse_saturation(module, CertificateError, "no theorem is about it")
    return cell


@torch.no_grad()
def read_one(module: nn.Module, cell: Cell, end: str) -> Weights:
    """Return the weights whose names finish in ``end``."""
    gates = slots_of(module, end)
    names = tensor_names(cell)[1:] if gates else tensor_names(cell)
    tensors = {name: tensor_of(module, f"{name}{end}") for name in names}
    first = tensors["weight_ih"]
    if first is None or (not gates and tensors["weight_hh"] is None):
        raise CertificateError(f"`module` has no tensors named weight_ih{end} and weight_hh{end}.")
    dtype = first.dtype
    if autocasts(first.device) and dtype != torch.float64:
        dtype = torch.get_autocast_dtype(first.device.type)
    wide: dict[str, Tensor | None] = {}
    for name, tensor in tensors.items():
        if tensor is not None and tensor.is_meta:
            raise CertificateError("A module on the meta device has no weights to certify.")
        found = None if tensor is None else check_finite(f"{name}{end}", whole(tensor)).detach().to(dtype).double().cpu()
        wide[name] = None if found is None else found.clone()  # the module may change later
    weight_hh, slack = read_gates([slot.gate() for slot in gates], dtype) if gates else (wide["weight_hh"], 0.0)
    bias_ih, bias_hh, theta, *states = (wide[name] for name in tensor_names(cell)[2:])
    initial = tuple(state for state in states if state is not None)
    both = cast(Tensor, wide["weight_ih"]), cast(Tensor, weight_hh)
    return Weights(end.removeprefix("_"), cell, *both, bias_ih, bias_hh, theta, initial, slack, dtype)


def read_gates(gates: list[Any], dtype: torch.dtype) -> tuple[Tensor, float]:
    """Return a constrained weight in float64, and how far its matrix in ``dtype`` is from it.

    A gate in factors is multiplied out after its factors have been cast, which is what an engine multiplies by, and before:
    a matrix is rounded in one way and its factors in another.
    """
    exact, rounded = [], []
    for gate in gates:
        used = gate.to(dtype).to(torch.float64)
        exact.append(used if isinstance(used, Tensor) else used.dense())
        rounded.append((gate if isinstance(gate, Tensor) else gate.dense()).to(dtype).double())
    weight = check_finite("weight_hh", torch.cat(exact)).cpu().clone()
    return weight, float((torch.cat(rounded).cpu() - weight).norm()) * (1 + 1e-9)


def dropout_scale(module: nn.Module) -> float:
    """Return what dropout multiplies kept entries by, between layers, in the mode the module is in."""
    rate = float(getattr(module, "dropout", 0.0) or 0.0)
    return 1 / (1 - rate) if module.training and 0 < rate < 1 else 1.0


@dataclass(frozen=True)
class LayerCertificate:
    """One layer in one direction.

    Args:
        weights: What the claims are about.
        tiers: Every contraction that was computed, cheapest first; at least one.
        state_bound: Bound on the 2-norm of every output h_t; infinite where none is proven.
        entry_bound: Bound on every entry of it.
        input_bound: What was assumed of the 2-norm of every x_t, None if nothing.
        left_out: The tiers that were not tried, each with the reason.
        input_entries: What was assumed of every entry of it.
    """

    weights: Weights
    tiers: tuple[Tier, ...]
    state_bound: float
    entry_bound: float
    input_bound: float | None
    left_out: tuple[LeftOut, ...] = ()
    input_entries: float | None = None

    @property
    def name(self) -> str:
        """The end of the names of its weights."""
        return self.weights.name

    @property
    def tier(self) -> Tier:
        """The tier of the smallest rate."""
        return min(self.tiers, key=lambda tier: tier.contraction.rate)

    def using(self, tier: Tier) -> "LayerCertificate":
        """Return the certificate without the other tiers; the first, an Elman layer's spectral norm, stays beside it."""
        return replace(self, tiers=(self.tiers[0], tier) if tier is not self.tiers[0] else (tier,))

    @property
    def best(self) -> Contraction:
        """The contraction of the smallest rate."""
        return self.tier.contraction

    @property
    def smoothness(self) -> float | None:
        """The activation's second derivative, of an RNN."""
        activation = self.weights.cell.record.activation
        return None if activation is None else activation.smoothness

    @property
    def spectral_rate(self) -> float | None:
        """The rate in the 2-norm, of an RNN."""
        return None if self.weights.cell.record.activation is None else self.tiers[0].contraction.rate

    def truncation_error(self, steps: int) -> float:
        """Return a bound on the 2-norm of what a start from zero ``steps`` steps ago changes, by the best tier for it.

        Never more than two states can be apart, as the run from zero is one of those the bound on states is about.
        """
        most = self.state_bound if steps == 0 else 2 * self.state_bound
        return min(most, *(tier.truncation_error(steps) for tier in self.tiers))


class Theory(ABC):
    """What is proven of all steps of one kind, as ``CellRecord.theorem`` names it."""

    needs_inputs: ClassVar[bool]
    """Whether a contraction is proven for inputs of bounded entries only."""
    states_theorem: ClassVar[str | None] = None
    """The theorem that bounds the states; None where it is that of the contraction."""

    @abstractmethod
    def certify(
        self, weights: Weights, input_bound: float | None, entry_bound: float | None, effort: str, keep: Sequence[Norm] = ()
    ) -> LayerCertificate:
        """Return every tier of a layer, cheapest first, and bounds on its outputs.

        Args:
            weights: The layer's.
            input_bound: Bound on the 2-norm of every x_t, or None.
            entry_bound: Bound on every entry of every x_t, or None.
            effort: How far to look for a norm: ``"auto"``, ``"full"``, ``"fast"``, or ``"keep"`` for none beyond ``keep``.
            keep: Norms found before.
        """

    def certify_stack(
        self, weights: Sequence[Weights], input_bound: float | None, effort: str, scale: float
    ) -> list[LayerCertificate]:
        """Return what is proven of each layer of a stack; ``scale`` is what dropout multiplies outputs by between layers."""
        found: list[LayerCertificate] = []
        bound, entries = input_bound, input_bound
        for one in weights:
            layer = self.certify(one, bound, bound if entries is None else entries, effort)
            found.append(layer)
            bound, entries = (
                scale * number if math.isfinite(scale * number) else None for number in (layer.state_bound, layer.entry_bound)
            )
        return found

    @abstractmethod
    def advise(self, layer: LayerCertificate) -> str:
        """Return in a sentence what makes a contraction of a layer that is not proven to be one."""

    @abstractmethod
    def box(self, weights: Weights, entry_bound: float) -> State | None:
        """Return bounds on the entries of every h (and c), each (H,), in which the contraction holds; None for everywhere."""

    @abstractmethod
    def weight_gain(self, weights: Weights, box: State | None) -> float:
        """Return by how much a step moves, in the 2-norm, for a recurrent weight moved by 1 at a state of norm 1."""
