"""Parameters of a recurrent module under torch's names, the recurrent one free, constrained by gate, or jointly."""

import math
from abc import ABC
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from steadyrnn.cells.base import Cell, State
from steadyrnn.cells.lstm import LSTMStep
from steadyrnn.cells.rnn import RNNStep
from steadyrnn.checks import check_positive_int
from steadyrnn.constraints.base import Constraint
from steadyrnn.constraints.registry import JOINT
from steadyrnn.constraints.stable_lstm import StableLSTM
from steadyrnn.engines.base import Recurrence
from steadyrnn.linalg.operators import DiagonalLowRank

from .arguments import check_bias
from .transition import Transition, TransitionLike, by_gate

__all__ = ["RecurrentWeights"]


class RecurrentWeights(nn.Module, ABC):
    """The weights of one or more directions of one or more layers, told apart by the end of their names.

    Free weights are torch's parameters. With a constraint on a gate, ``weight_hh`` is no parameter: it is computed on
    read from the slots under ``transition``, and assigned through their right inverses. A joint constraint leaves
    torch's parameters and puts them back into its set after each optimizer step.
    """

    cell: Cell
    bias: bool | Literal["single"]

    def _prepare(self, cell: Cell, input_size: int, hidden_size: int, bias: bool | Literal["single"]) -> None:
        """Check and keep what every recurrent module has."""
        self.cell = cell
        self.input_size = check_positive_int("input_size", input_size)
        self.hidden_size = check_positive_int("hidden_size", hidden_size)
        self.bias = check_bias(bias)
        self._joint: dict[str, StableLSTM] = {}
        self._inits: dict[str, Constraint] = {}

    def _read_transition(self, transition: TransitionLike | StableLSTM) -> dict[str, Constraint] | StableLSTM:
        """Return a constraint a gate, or the joint one (of an LSTM)."""
        if isinstance(self.cell, LSTMStep):
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
        if isinstance(constraints, StableLSTM):
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
        theta = self.cell.activation.parameter_size(size) if isinstance(self.cell, RNNStep) else None
        if theta is not None:
            shapes["activation"] = (theta,)
        if learned:
            shapes |= dict.fromkeys(self._state_names(), (size,))
        for name, shape in shapes.items():
            self.register_parameter(f"{name}{end}", nn.Parameter(torch.empty(shape, **kwargs)))

    def _state_names(self) -> tuple[str, ...]:
        """Return the names of the learned initial states."""
        return ("initial_state", "initial_cell")[: self.cell.states]

    @torch.no_grad()
    def reset_parameters(self) -> None:
        r"""Draw every weight afresh: torch's uniform :math:`\pm 1/\sqrt{H}`; slots by their constraint; states zero."""
        bound = 1 / math.sqrt(self.hidden_size)
        for name, parameter in self.named_parameters(recurse=False):
            if name.startswith(("initial_", "activation")):
                parameter.zero_()
            else:
                parameter.uniform_(-bound, bound)
            if name.startswith("weight_hh"):
                for rows, constraint in zip(parameter.split(self.hidden_size), self._inits.values(), strict=False):
                    if constraint.init != "torch":
                        rows.copy_(constraint.sample(self.hidden_size, self.hidden_size))
        for child in self.children():
            if isinstance(child, Transition):
                child.reset()
        self.after_optimizer_step()

    @torch.no_grad()
    def after_optimizer_step(self) -> None:
        """Put jointly constrained weights back into their set; slots look after themselves."""
        for end, joint in self._joint.items():
            weight_ih, weight_hh = getattr(self, f"weight_ih{end}"), getattr(self, f"weight_hh{end}")
            biases = [self._parameters.get(f"{name}{end}") for name in ("bias_ih", "bias_hh")]
            projected = joint.project(weight_ih, weight_hh, *biases)
            for parameter, value in zip((weight_ih, weight_hh, *biases), projected, strict=True):
                if parameter is not None and value is not None:
                    parameter.copy_(value)

    def __getattr__(self, name: str) -> Any:
        """Compute ``weight_hh`` (with its end) on read, where it is constrained."""
        if name.startswith("weight_hh"):
            transition = self.__dict__.get("_modules", {}).get(f"transition{name[9:]}")
            if transition is not None:
                return transition.weight()
        return super().__getattr__(name)

    def __setattr__(self, name: str, value: Any) -> None:
        """Assign ``weight_hh`` (with its end) through the constraint's right inverse, where it is constrained."""
        if name.startswith("weight_hh"):
            transition = self.__dict__.get("_modules", {}).get(f"transition{name[9:]}")
            if transition is not None:
                transition.assign(value)
                return
        super().__setattr__(name, value)

    def _recurrence(
        self, data: Tensor, state: State, end: str, sizes: Tensor | None, reverse: bool, recompute: bool
    ) -> Recurrence:
        """Return one direction of one layer, with its constraint evaluated: the only place where that happens."""
        dtype = data.dtype
        transition = self._modules.get(f"transition{end}")
        weight: Tensor | DiagonalLowRank
        weight = transition.operator() if isinstance(transition, Transition) else getattr(self, f"weight_hh{end}")

        def optional(name: str) -> Tensor | None:
            # by attribute: torch's pruning and parametrization move parameters elsewhere and leave one under the name
            parameter: Tensor | None = getattr(self, f"{name}{end}", None)
            return None if parameter is None else parameter.to(dtype)

        return Recurrence(
            self.cell, data, state, getattr(self, f"weight_ih{end}").to(dtype), weight.to(dtype), optional("bias_ih"),
            optional("bias_hh"), optional("activation"), sizes, reverse, recompute,
        )  # fmt: skip
