"""Many small sequence models at once: ``group`` puts them together, ``ungroup`` takes them apart."""

from collections.abc import Callable, Sequence
from typing import cast

import torch
from torch import Tensor, nn

from steadyrnn.constraints.group import Group
from steadyrnn.errors import ArgumentError, ArgumentTypeError, DtypeError, ShapeError
from steadyrnn.layers.base import RecurrentLayer
from steadyrnn.layers.group import check_groupable, run_layers, run_linear

from .sequence import SequenceModel

__all__ = ["SequenceGroup", "group", "ungroup"]

_READ: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "last": lambda steps, final: final[-1],
    "each": lambda steps, final: steps,
    "mean": lambda steps, final: steps.sum(0) / max(len(steps), 1),
}
"""What each readout sees of the outputs of all steps, (T, R, B, H), and the final states, (L, R, B, H)."""


class SequenceGroup(Group):
    r"""R sequence models of one form, which run and train at once and stay independent.

    Each operation of a time step is started once for all models, with batched products, instead of R times. For models of
    about 14 units that start is most of the time. Outputs and gradients equal those of the separate models up to rounding.
    No number of one model reaches another, also where it is NaN or infinite.

    The layer is an ``RNN`` with an activation that works entry by entry, a ``GRU`` or an ``LSTM`` of this package, stacked
    or not, with any transition. Projections and free weights are used as they are, products of reflections are computed
    for all members at once, and other constraints are evaluated member by member in each call. Refused, each in a
    sentence: embeddings, dropout, both directions, ``batch_first``, ``recompute``, learned activations and layers of torch.

    Args:
        members: The models; the group takes copies.

    Example:
        >>> models = [sr.SequenceModel(sr.RNN(2, 4, transition="polar"), 3) for _ in range(5)]
        >>> many = group(models)
        >>> logits, state = many(torch.randn(7, 5, 6, 2))
        >>> logits.shape, state.shape, many.rnn.weight_ih_l0.shape
        (torch.Size([5, 6, 3]), torch.Size([1, 5, 6, 4]), torch.Size([5, 4, 2]))
    """

    def __init__(self, members: Sequence[SequenceModel]) -> None:
        for place, member in enumerate(members if isinstance(members, Sequence) else ()):
            _check_model(place, member)
        super().__init__(members)

    def forward(self, input: Tensor) -> tuple[Tensor, Tensor | tuple[Tensor, ...]]:
        """Run every model over its own sequences.

        Args:
            input: Shape (T, R, B, D), R being the running members: ``torch.stack(inputs, dim=1)`` of inputs (T, B, D).

        Returns:
            Logits, (R, B, N), or (T, R, B, N) where every step is read; and the final states, each (L, R, B, H).
        """
        models = [cast(SequenceModel, self.members[place]) for place in self.running]
        self._check_input(input, models[0])
        layers = [cast(RecurrentLayer, model.rnn) for model in models]
        output, states = run_layers(self, "rnn.", layers, input)
        read = _READ[models[0].reads]
        logits = run_linear(self, "readout", read(output, states[0]))
        if models[0].skip is not None:
            last = input if len(input) else input.new_zeros(1, *input.shape[1:])
            logits = logits + run_linear(self, "skip", read(input, last))
        return logits, states[0] if len(states) == 1 else states

    def _check_input(self, input: Tensor, model: SequenceModel) -> None:
        weight, width = next(self.parameters()), model.rnn.input_size
        if not isinstance(input, Tensor):
            raise ArgumentTypeError(f"`input` must be a tensor, but is of type {type(input).__name__}.")
        if input.dim() != 4 or input.shape[1] != len(self.running) or input.shape[-1] != width:
            raise ShapeError(
                f"`input` must have shape (T, {len(self.running)}, B, {width}), time by member by row by feature, but has "
                f"{tuple(input.shape)}. Stack the members' inputs along dimension 1."
            )
        if (input.dtype, input.device) != (weight.dtype, weight.device):
            raise DtypeError(
                f"`input` must have dtype {weight.dtype} on {weight.device}, as the weights, but has {input.dtype} on "
                f"{input.device}. Convert it, input.to({weight.dtype}), or the group."
            )


def group(models: Sequence[SequenceModel]) -> SequenceGroup:
    """Return models of one form as a group, which runs and trains all of them at once.

    The models stay as they are: the group takes copies, which :func:`ungroup` gives back.

    Args:
        models: At least one; all with the same layers, sizes, constraints, dtype and device. Weights may differ.

    Raises:
        ArgumentError: There is none, they differ in form, or a group cannot run them; the message names what and why.

    Example:
        >>> models = [sr.SequenceModel(sr.GRU(2, 4), 1) for _ in range(3)]
        >>> trained = ungroup(group(models))
        >>> all(torch.equal(a.rnn.weight_hh_l0, b.rnn.weight_hh_l0) for a, b in zip(models, trained))
        True
    """
    return SequenceGroup(models)


def ungroup(many: SequenceGroup) -> list[SequenceModel]:
    """Return the members of a group as ordinary models, with state dicts of their own."""
    return [cast(SequenceModel, member) for member in many.ungroup()]


def _check_model(place: int, model: nn.Module) -> None:
    """Refuse a model that cannot be a member."""
    if not isinstance(model, SequenceModel):
        raise ArgumentTypeError(f"`models` must hold SequenceModels, but number {place} is of type {type(model).__name__}.")
    if not isinstance(model.rnn, RecurrentLayer):
        raise ArgumentTypeError(
            f"`models` must have layers of this package, but number {place} has one of torch, {type(model.rnn).__name__}. "
            "Convert it with `sr.from_torch`."
        )
    dtype = model.rnn.weight_ih_l0.dtype
    if dtype not in (torch.float32, torch.float64):
        raise DtypeError(f"`models` must be in float32 or float64 to run as a group, but number {place} has dtype {dtype}.")
    drops = [name for name in ("dropout_embedding", "dropout_state", "dropout_logits") if getattr(model, name).p > 0]
    faults = [f"`{name}` must be 0" for name in drops] + ["it must have no embedding"] * (model.embedding is not None)
    if faults:
        raise ArgumentError(f"A group cannot run number {place} of `models`: {', and '.join(faults)}. Train it by itself.")
    check_groupable(model.rnn)
