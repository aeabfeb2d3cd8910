"""Parameters of a recurrent module under torch's names, the recurrent one free, constrained by gate, or jointly."""

import math
from abc import ABC
from collections.abc import Iterable, Mapping
from typing import Any, Literal, NoReturn, cast

import torch
from torch import Tensor, nn

from steadyrnn.cells.base import Cell, State
from steadyrnn.cells.rnn import RNNStep
from steadyrnn.checks import check_positive_int, check_weight, refuse_quantization, refuse_script
from steadyrnn.constraints.base import Constraint, Membership, Projected
from steadyrnn.constraints.computed import as_computed
from steadyrnn.constraints.free import Free
from steadyrnn.constraints.held import Holder
from steadyrnn.constraints.loading import put_back, remember
from steadyrnn.constraints.registry import JOINT, as_constraint
from steadyrnn.constraints.slot import Slot, is_sharded, whole, write
from steadyrnn.constraints.stable_lstm import StableLSTM
from steadyrnn.engines.base import Recurrence, RecurrentWeight
from steadyrnn.errors import ArgumentError, ArgumentTypeError, ConstraintError, DeviceError, ShapeError
from steadyrnn.linalg.operators import DiagonalLowRank

from .arguments import check_bias, check_dtype
from .saturation import Coordinates, Saturation

__all__ = ["RecurrentWeights", "Transition", "TransitionLike", "by_gate"]

TransitionLike = str | Constraint | Mapping[str, str | Constraint]


def by_gate(transition: TransitionLike, gates: str, candidate: str) -> dict[str, Constraint]:
    """Return a constraint for each gate: one alone is the candidate's, a mapping names gates, the rest are free.

    Example:
        >>> {gate: type(c).__name__ for gate, c in by_gate("spectral", "rzn", "n").items()}
        {'r': 'Free', 'z': 'Free', 'n': 'Spectral'}
    """
    named = dict(transition) if isinstance(transition, Mapping) else {candidate: transition}
    unknown = [str(gate) for gate in named if gate not in tuple(gates)]
    if unknown:
        raise ArgumentError(f"`transition` names the gate {unknown[0]!r}, but the gates are {', '.join(gates)}.")
    return {gate: as_constraint("transition", named.get(gate, "free")) for gate in gates}


class Transition(nn.Module):
    """The recurrent weight, shape (G * H, H), as one slot per gate; each gate is in its set by itself.

    Args:
        constraints: The constraint of each gate, in the order of the gates.
        size: H.
        device: Where the raw tensors live.
        dtype: Their dtype.

    Example:
        >>> transition = Transition({"h": Free()}, 3)
        >>> transition.weight().shape
        torch.Size([3, 3])
    """

    def __init__(
        self,
        constraints: Mapping[str, Constraint],
        size: int,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        for gate, constraint in constraints.items():
            self.add_module(gate, Slot(constraint, size, size, device, dtype))

    def slots(self) -> dict[str, Slot]:
        """Return the slot of each gate."""
        return {gate: slot for gate, slot in self._modules.items() if isinstance(slot, Slot)}

    def weight(self) -> Tensor:
        """Return the weights of all gates, stacked: (G * H, H)."""
        weights = [slot.weight() for slot in self.slots().values()]
        return weights[0] if len(weights) == 1 else torch.cat(weights)

    def gates(self) -> RecurrentWeight:
        """Return the weight of each gate, in factored form where it has one."""
        gates = tuple(slot.gate() for slot in self.slots().values())
        return gates[0] if len(gates) == 1 else gates

    def assign(self, weight: Tensor) -> None:
        """Set every gate from the stacked weight (G * H, H); either all gates take theirs, or none changes."""
        slots = self.slots()
        size = next(iter(slots.values())).constraint.columns
        if not isinstance(weight, Tensor):
            raise ArgumentTypeError(f"`weight_hh` must be a tensor, but is of type {type(weight).__name__}.")
        if tuple(weight.shape) != (len(slots) * size, size):
            raise ShapeError(f"`weight_hh` must have shape {(len(slots) * size, size)}, but has {tuple(weight.shape)}.")
        check_weight("weight_hh", weight)
        kept = {name: tensor.clone() for name, tensor in self.state_dict().items()}
        try:
            for slot, part in zip(slots.values(), weight.split(size), strict=True):
                slot.assign(part)
        except Exception:
            self.restore(kept)
            raise

    @torch.no_grad()
    def restore(self, kept: Mapping[str, Tensor]) -> None:
        """Put back raw tensors, and what constraints note in buffers beside them."""
        for name, tensor in self.state_dict().items():
            tensor.copy_(kept[name])

    def reset(self) -> None:
        """Draw every gate afresh."""
        for slot in self.slots().values():
            slot.reset()

    @staticmethod
    def is_free(constraints: Mapping[str, Constraint]) -> bool:
        """Say whether no gate is constrained, so that a plain parameter does."""
        return all(isinstance(constraint, Free) for constraint in constraints.values())


class RecurrentWeights(Holder, Projected, ABC):
    """The weights of one or more directions of one or more layers, told apart by the end of their names.

    Free weights are torch's parameters. With a constraint on a gate, ``weight_hh`` is no parameter: it is computed on
    read from the slots under ``transition``, and assigned through their right inverses. A joint constraint leaves
    torch's parameters and puts them back into its set after each optimizer step.
    """

    cell: Cell
    bias: bool | Literal["single"]

    def _prepare(self, input_size: int, hidden_size: int, bias: bool | Literal["single"]) -> None:
        """Check and keep what every recurrent module has."""
        if "cell" not in self.__dict__ and not hasattr(type(self), "cell"):
            raise ArgumentTypeError(f"A {type(self).__name__} has no cell. Subclass it, with a cell as the attribute `cell`.")
        self.input_size = check_positive_int("input_size", input_size)
        self.hidden_size = check_positive_int("hidden_size", hidden_size)
        self.bias = check_bias(bias)
        self._joint: dict[str, StableLSTM] = {}
        self._inits: dict[str, Constraint] = {}

    @property
    def directions(self) -> int:
        """Return 2 if bidirectional, else 1."""
        return 2 if getattr(self, "bidirectional", False) else 1

    @staticmethod
    def suffix(layer: int, direction: int) -> str:
        """Return the end of the parameter names of a layer in a direction, as torch writes it."""
        return f"_l{layer}{'_reverse' if direction else ''}"

    def __prepare_scriptable__(self) -> NoReturn:
        """Refuse ``torch.jit.script``, which asks this before anything else."""
        refuse_script(self)

    def _read_transition(self, transition: TransitionLike | StableLSTM) -> dict[str, Constraint] | StableLSTM:
        """Return one constraint per gate, or the joint one (of an LSTM)."""
        if self.cell.record.theorem == "lstm":  # what joint constraints are about
            if isinstance(transition, str) and transition in JOINT:
                return JOINT[transition]()
            if isinstance(transition, StableLSTM):
                return transition
        return by_gate(cast(TransitionLike, transition), self.cell.gates, self.cell.candidate)

    def _add(
        self,
        end: str,
        width: int,
        constraints: dict[str, Constraint] | StableLSTM,
        learned: bool,
        kwargs: dict[str, Any],
    ) -> None:
        """Make the parameters whose names finish in ``end``, in torch's order; ``width`` is the size of the input."""
        gates, size = len(self.cell.gates) * self.hidden_size, self.hidden_size
        shapes: dict[str, tuple[int, ...]] = {"weight_ih": (gates, width)}
        check_dtype(kwargs.get("dtype"))
        if isinstance(constraints, StableLSTM):
            if not self._joint:
                self.register_load_state_dict_pre_hook(_remember)  # type: ignore[no-untyped-call]
                self.register_load_state_dict_post_hook(_refuse_outside)  # type: ignore[no-untyped-call]
            self._joint[end] = constraints
        if isinstance(constraints, StableLSTM) or Transition.is_free(constraints):
            shapes["weight_hh"] = (gates, size)
            self._inits = {} if isinstance(constraints, StableLSTM) else constraints
        else:
            self.add_module(f"transition{end}", Transition(constraints, size, **kwargs))
        if self.bias:
            shapes["bias_ih"] = (gates,)
        if self.bias is True:
            shapes["bias_hh"] = (gates,)
        activation = self.cell.record.activation
        theta = None if activation is None else activation.parameter_size(size)
        if theta is not None:
            shapes["activation"] = (theta,)
        if activation is not None and activation.coordinates is not None:
            if self.cell != RNNStep(activation):
                raise ArgumentError(f"`cell` {self.cell.key!r} cannot have learned saturation: only an Elman cell can.")
            self.add_module(f"saturation{end}", Saturation(activation.coordinates, size, **kwargs))
        if learned:
            shapes |= dict.fromkeys(self._state_names(), (size,))
        for name, shape in shapes.items():
            self.register_parameter(f"{name}{end}", nn.Parameter(torch.empty(shape, **kwargs)))

    def _state_names(self) -> tuple[str, ...]:
        """Return the names of the learned initial states."""
        return tuple(f"initial_{name}" for name in self.cell.record.state_names)

    def _states(self, hx: Any) -> State | None:
        """Return the user's state, a tensor or a tuple of them, as a tuple, or None."""
        names = self.cell.record.state_names
        if hx is None or len(names) == 1:
            return None if hx is None else (hx,)
        if not isinstance(hx, tuple | list) or len(hx) != len(names):
            wanted = "a pair (h, c)" if len(names) == 2 else f"a tuple of {len(names)} tensors"
            came = f"has {len(hx)} entries" if isinstance(hx, tuple | list) else f"is of type {type(hx).__name__}"
            raise ArgumentTypeError(f"`hx` must be {wanted} for this {type(self).__name__}, but {came}.")
        return tuple(hx)

    def _final(self, states: State) -> Any:
        """Return states in the form the user gets them: a tensor, or a tuple of several."""
        return states[0] if len(states) == 1 else states

    def reset_parameters(self) -> None:
        r"""Draw every weight afresh: torch's uniform :math:`\pm 1/\sqrt{H}`; slots by their constraint; states zero."""
        for child in self.children():
            if isinstance(child, Transition | Saturation):
                child.reset()
        self._draw()

    @torch.no_grad()
    def _draw(self) -> None:
        """Draw the parameters that no slot holds (a fresh slot has drawn its own)."""
        bound = 1 / math.sqrt(self.hidden_size)
        for name, parameter in self.named_parameters(recurse=False):
            if name.startswith(("initial_", "activation")):
                parameter.zero_()
            else:
                parameter.uniform_(-bound, bound)
            if name.startswith("weight_hh"):
                for rows, constraint in zip(parameter.split(self.hidden_size), self._inits.values(), strict=False):
                    if constraint.init != "torch" and not rows.is_meta:
                        rows.copy_(constraint.sample(self.hidden_size, self.hidden_size, rows.device))
        self.after_optimizer_step()

    @torch.no_grad()
    def after_optimizer_step(self) -> None:
        """Put jointly constrained weights back into their set; slots look after themselves."""
        for end, joint in self._joint.items():
            given = self._jointly(end)
            if given[0].is_meta:
                continue
            for parameter, value in zip(given, joint.project(*map(_whole, given)), strict=True):
                if parameter is not None and value is not None:
                    write(parameter, value)

    @torch.no_grad()
    def memberships(self) -> list[Membership]:
        """Return where jointly constrained weights are; slots look after themselves."""
        found = []
        for end, joint in self._joint.items():
            weight_ih, weight_hh, *biases = given = [_whole(tensor) for tensor in self._jointly(end)]
            if not any(tensor is not None and tensor.is_meta for tensor in given):
                found.append(Membership(f"weight_hh{end}", str(joint), *joint.worst_row(weight_ih, weight_hh, *biases)))
        return found

    def _hold(self) -> None:
        """Let no tool replace what a constraint computes or keeps."""
        for name, child in self._modules.items():
            if isinstance(child, Transition):
                self.hold([f"weight_hh{name.removeprefix('transition')}"], f"it is computed from the raw tensors of `{name}`")
        for end, joint in self._joint.items():
            names = (f"{name}{end}" for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh"))
            self.hold((name for name in names if name in self._parameters), f"{joint} keeps it in its set")

    def _jointly(self, end: str) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:
        """Return what a joint constraint constrains: both weights and both biases, None where there is none."""
        bias_ih, bias_hh = (self._parameters.get(f"{name}{end}") for name in ("bias_ih", "bias_hh"))
        return getattr(self, f"weight_ih{end}"), getattr(self, f"weight_hh{end}"), bias_ih, bias_hh

    def check_joint(self) -> None:
        """Refuse weights outside the set of a joint constraint."""
        for found in self.memberships():
            if not found.violation <= found.allowed:
                raise ConstraintError(
                    f"`{found.name}` and the weights beside it are outside the set of {found.constraint}: violation "
                    f"{found.violation:.3g}, allowed for rounding {found.allowed:.3g}. Give weights inside the set "
                    "(`sr.project_(model)` before saving); `from_torch(..., project=True)` projects."
                )

    def __getattr__(self, name: str) -> Any:
        """Compute ``weight_hh`` (with its end) on read, where it is constrained."""
        if name.startswith("weight_hh"):
            transition = self.__dict__.get("_modules", {}).get(f"transition{name[9:]}")
            if transition is not None:
                return as_computed(transition.weight())
        return super().__getattr__(name)

    def __setattr__(self, name: str, value: Any) -> None:
        """Assign ``weight_hh`` (with its end) through the constraint's right inverse, where it is constrained."""
        if name.startswith("weight_hh"):
            transition = self.__dict__.get("_modules", {}).get(f"transition{name[9:]}")
            if transition is not None:
                transition.assign(value)
                return
        if name == "qconfig":  # what torch.ao.quantization sets on every module it walks over
            refuse_quantization(self)
        before = self.__dict__.get("_parameters", {}).get(name)
        if before is not None and isinstance(value, Tensor):
            check_weight(name, value)
        super().__setattr__(name, value)
        loading = "_before_load" in self.__dict__  # which checks all weights together at its end
        gathering = is_sharded(before) or is_sharded(value)  # FSDP puts whole and sharded ones in turn
        if before is not None and name.startswith(("weight_", "bias_")) and self._joint and not (loading or gathering):
            try:
                self.check_joint()
            except ConstraintError:
                super().__setattr__(name, before)
                raise

    def _coordinates(self, end: str) -> Coordinates | None:
        """Return the coordinates of learned saturation, evaluated; None where the activation is applied as it is."""
        saturation = self._modules.get(f"saturation{end}")
        return saturation.evaluate() if isinstance(saturation, Saturation) else None

    def _recurrence(
        self, data: Tensor, state: State, end: str, sizes: Tensor | None, reverse: bool, recompute: bool,
        coordinates: Coordinates | None = None,
    ) -> Recurrence:  # fmt: skip
        """Return one direction of one layer, with its constraint evaluated: the only place where that happens.

        With ``coordinates`` it is the recurrence in S h, of the inner activation.
        """
        transition, dtype = self._modules.get(f"transition{end}"), data.dtype if coordinates is None else coordinates.dtype
        weight: RecurrentWeight | None
        weight = transition.gates() if isinstance(transition, Transition) else self._tensor(f"weight_hh{end}", dtype)
        if isinstance(weight, Tensor):
            weight = weight.to(dtype)  # factors are left to the engine, which multiplies out before it rounds
        weight_ih, bias_ih, bias_hh, theta = (
            self._tensor(f"{name}{end}", dtype) for name in ("weight_ih", "bias_ih", "bias_hh", "activation")
        )
        tensors = (weight_ih, bias_ih, bias_hh, theta, *state, *_parts(weight), *(coordinates or ())[:1])
        if not data.is_meta and [tensor for tensor in tensors if tensor is not None and tensor.is_meta]:
            self._refuse_meta(data)
        needed = cast(Tensor, weight_ih), cast(RecurrentWeight, weight)
        run = Recurrence(self.cell, data, state, *needed, bias_ih, bias_hh, theta, sizes, reverse, recompute)
        return run if coordinates is None else coordinates.enter_run(run)

    def _refuse_meta(self, data: Tensor) -> NoReturn:
        """Refuse to compute with weights without numbers, which torch does on data that has them: the result is anything."""
        names = [name for name, parameter in self.named_parameters() if parameter.is_meta]
        raise DeviceError(
            f"`input` is on {data.device}, but on the meta device, where they hold no numbers, are {', '.join(names)} of this "
            f"{type(self).__name__}. Load them (`load_state_dict(..., assign=True)` with all keys)."
        )

    def _tensor(self, name: str, dtype: torch.dtype) -> Tensor | None:
        """Return a weight in ``dtype``, or None where there is none of this name."""
        tensor: Tensor | None = self._parameters.get(name)
        if tensor is None:  # torch's pruning and parametrization move parameters elsewhere and leave one under the name
            tensor = getattr(self, name, None)
        return tensor if tensor is None or tensor.dtype == dtype else tensor.to(dtype)


def _parts(weight: RecurrentWeight | None) -> Iterable[Tensor | None]:
    """Return tensors that tell where a recurrent weight is: the weight, or of each gate its diagonal or weight."""
    if not isinstance(weight, tuple):
        return (weight,)
    gates: Iterable[Any] = (weight,) if isinstance(weight, DiagonalLowRank) else weight
    return (gate.diagonal if isinstance(gate, DiagonalLowRank) else gate for gate in gates)


def _whole(tensor: Tensor | None) -> Any:
    return None if tensor is None else whole(tensor)


def _remember(weights: RecurrentWeights, *_: object) -> None:
    """Keep what a refused load must put back."""
    weights.__dict__["_before_load"] = remember(weights, recurse=False)


def _refuse_outside(weights: RecurrentWeights, _: object) -> None:
    """Refuse loaded weights outside the set of a joint constraint, and put back those before."""
    before = weights.__dict__.pop("_before_load", [])
    try:
        weights.check_joint()
    except ConstraintError:
        put_back(before)
        raise
