"""Recurrent layers of one form as a group: all of them run at once."""

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor

from steadyrnn.cells.base import State
from steadyrnn.constraints.group import Group
from steadyrnn.engines.base import Recurrence
from steadyrnn.engines.cpu.group.run import group_refusal, run_group
from steadyrnn.errors import ArgumentError
from steadyrnn.linalg.batched import map_rows

from .base import RecurrentLayer
from .weights import Transition

__all__ = ["check_groupable", "map_linear", "run_layers"]


def check_groupable(layer: RecurrentLayer) -> None:
    """Refuse a layer that cannot be a member of a group.

    Example:
        >>> check_groupable(sr.RNN(2, 3, bidirectional=True))
        Traceback (most recent call last):
        ...
        steadyrnn.errors.ArgumentError: A group cannot run RNN(2, 3, bidirectional=True, ...): `bidirectional` must be...
    """
    wanted = {"bidirectional": False, "batch_first": False, "recompute": False, "dropout": 0.0}
    faults = [f"`{name}` must be {value}" for name, value in wanted.items() if getattr(layer, name) != value]
    weight = layer.weight_ih_l0.detach()
    zero, theta = weight.new_zeros(1, layer.hidden_size), getattr(layer, "activation_l0", None)
    state = tuple(zero for _ in layer.cell.record.state_names)
    refusal = group_refusal(Recurrence(layer.cell, weight.new_zeros(1, 1, layer.input_size), state, weight, zero, theta=theta))
    faults += [refusal] if refusal is not None else []
    if faults:
        shown = f"{type(layer).__name__}({layer.extra_repr()})"
        raise ArgumentError(f"A group cannot run {shown}: {', and '.join(faults)}. Train such networks one by one.")


def run_layers(group: Group, prefix: str, layers: Sequence[RecurrentLayer], input: Tensor) -> tuple[Tensor, State]:
    """Run the layers of all running members of a group, each on its own input from its own weights.

    Args:
        group: What holds the stacked parameters.
        prefix: What the names of the layers' parameters begin with there, e.g. ``"rnn."``.
        layers: The layer of each running member.
        input: Shape (T, R, B, D).

    Returns:
        Outputs of the last layer in each stack, (T, R, B, H), and final states, each (L, R, B, H).
    """
    first, known = layers[0], cast(dict[str, Tensor], dict(group.named_parameters()))
    data, finals = input, []
    for place in range(first.num_layers):
        end = first.suffix(place, 0)
        weight_ih, weight_hh, bias_ih, bias_hh = (
            known.get(f"{prefix}{name}{end}") for name in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        )
        if weight_hh is None:
            weight_hh = _constrained(group, prefix, layers, end)
        state = _first_states(group, prefix, first, end, data)
        data, final = run_group(Recurrence(first.cell, data, state, cast(Tensor, weight_ih), weight_hh, bias_ih, bias_hh))
        finals.append(final)
    return data, tuple(torch.stack(each) for each in zip(*finals, strict=True))


def map_linear(group: Group, name: str, x: Tensor) -> Tensor:
    """Return the images of ``x`` (..., R, B, H) under each running member's linear layer of this name, (..., R, B, N)."""
    known = dict(group.named_parameters())
    rows = x.movedim(-3, 0).flatten(1, -2)  # (R, T * B, H), without a copy where x is in memory by network
    image = map_rows(rows, known[f"{name}.weight"], known.get(f"{name}.bias"))
    return image.view(image.shape[0], *x.shape[:-3], x.shape[-2], image.shape[-1]).movedim(0, -3)


def _constrained(group: Group, prefix: str, layers: Sequence[RecurrentLayer], end: str) -> Tensor:
    """Return the recurrent weights that slots make, (R, G * H, H)."""
    transitions = [layer.get_submodule(f"transition{end}") for layer in layers]
    slots = [transition.slots() for transition in transitions if isinstance(transition, Transition)]
    gates = []
    for gate, slot in slots[0].items():
        path = f"{prefix}transition{end}.{gate}"
        raw = [f"{path}.raw{place}" for place in range(slot.count)]
        gates.append(group.evaluate([own[gate].constraint for own in slots], raw))
    return gates[0] if len(gates) == 1 else torch.cat(gates, dim=1)


def _first_states(group: Group, prefix: str, layer: RecurrentLayer, end: str, data: Tensor) -> State:
    """Return initial states, each (R, B, H): zero, or each member's learned one."""
    names = [f"{prefix}initial_{name}{end}" for name in layer.cell.record.state_names]
    if not layer.learn_initial_state:
        return tuple(data.new_zeros(*data.shape[1:3], layer.hidden_size) for _ in names)
    return tuple(group.get_parameter(name).unsqueeze(1).expand(-1, data.shape[2], -1) for name in names)
