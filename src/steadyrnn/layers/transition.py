"""The recurrent weight of a layer in one direction: one slot per gate."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from steadyrnn.checks import check_weight
from steadyrnn.constraints.base import Constraint
from steadyrnn.constraints.free import Free
from steadyrnn.constraints.registry import as_constraint
from steadyrnn.constraints.slot import Slot
from steadyrnn.engines.base import RecurrentWeight
from steadyrnn.errors import ArgumentError, ArgumentTypeError, ShapeError

__all__ = ["Transition", "TransitionLike", "by_gate"]

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
