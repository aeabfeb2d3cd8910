"""What a readout reads: the final state of each row, the output of every step or their mean; and the inputs that go with it."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from steadyrnn.layers.sequence import open_sequence

__all__ = [
    *("READOUTS", "Readout", "Sequence", "final_states", "last_inputs", "mean_over_time", "run_padded", "zero_padding"),
]

Sequence = Tensor | PackedSequence


class Readout(NamedTuple):
    """A way to read a sequence; all three functions get and give the input's form (padded, unbatched or packed)."""

    states: Callable[[Sequence, Any, int, Tensor | None, bool], Sequence]
    """``(output, state, directions, lengths, batch_first)``: what the readout's weight is applied to."""
    inputs: Callable[[Sequence, Tensor | None, bool], Sequence]
    """``(input, lengths, batch_first)``: the inputs at the same places, zero where there is none."""
    finish: Callable[[Sequence, Tensor | None, bool], Sequence]
    """``(logits, lengths, batch_first)``: the logits as the user gets them."""


def final_states(
    output: Sequence, state: Any, directions: int, lengths: Tensor | None = None, batch_first: bool = False
) -> Tensor:
    """Return the top layer's final states, all directions side by side: (B, directions * H), or unbatched without B.

    A row ends at its own length, backwards at its first step; a row without any step has its initial state.

    Example:
        >>> final_states(torch.zeros(5, 2, 6), torch.zeros(4, 2, 3), directions=2).shape
        torch.Size([2, 6])
    """
    h = state[0] if isinstance(state, tuple) else state
    return torch.cat(tuple(h[-directions:]), dim=-1)


def last_inputs(input: Sequence, lengths: Tensor | None, batch_first: bool) -> Tensor:
    """Return the input at each row's last step, (B, D) or unbatched (D,); zero for a row without any step.

    Example:
        >>> last_inputs(torch.tensor([[[1.0], [2.0], [3.0]]]), torch.tensor([2]), batch_first=True)
        tensor([[2.]])
    """
    opened, batched = open_sequence(input, lengths, batch_first)
    steps, rows, width = opened.data.shape
    if steps == 0:
        last = opened.data.new_zeros(rows, width)
    elif opened.batch_sizes is None:
        last = opened.data[-1]
    else:
        running = opened.batch_sizes.to(opened.data.device).unsqueeze(1) > torch.arange(rows, device=opened.data.device)
        length = running.sum(0)  # (B,)
        place = (length - 1).clamp(min=0).view(1, rows, 1).expand(1, rows, width)
        last = torch.where(length.unsqueeze(-1) > 0, opened.data.gather(0, place).squeeze(0), 0)
    return opened.recover(last) if batched else last.squeeze(0)


def mean_over_time(sequence: Sequence, lengths: Tensor | None, batch_first: bool) -> Tensor:
    """Return the mean over the steps of each row, (B, H), or unbatched (H,); 0 for a row without any step.

    Example:
        >>> mean_over_time(torch.tensor([[[1.0], [2.0], [6.0]]]), torch.tensor([2]), batch_first=True)
        tensor([[1.5000]])
    """
    if isinstance(sequence, PackedSequence):
        sequence, lengths = pad_packed_sequence(sequence)
        batch_first = False
    data = zero_padding(sequence, None if lengths is None else lengths.to(sequence.device), batch_first)
    time = 1 if batch_first and sequence.dim() == 3 else 0
    total = data.sum(time) if isinstance(data, Tensor) else data.data
    if lengths is None:
        return total / max(sequence.shape[time], 1)
    return total / lengths.to(total).clamp(min=1).unsqueeze(-1)


def zero_padding(sequence: Sequence, lengths: Tensor | None, batch_first: bool) -> Sequence:
    """Return ``sequence``, padded (T, B, ...) or (B, T, ...) if ``batch_first``, with zeros behind each row's length.

    Example:
        >>> zero_padding(torch.tensor([[4, 5, 6], [7, 8, 9]]), torch.tensor([1, 3]), batch_first=True)
        tensor([[4, 0, 0],
                [7, 8, 9]])
    """
    if lengths is None or isinstance(sequence, PackedSequence):
        return sequence
    steps = sequence.shape[1 if batch_first else 0]
    running = torch.arange(steps, device=lengths.device) < lengths.unsqueeze(1)  # (B, T)
    running = running if batch_first else running.mT
    return torch.where(running.view(*running.shape, *(1,) * (sequence.dim() - 2)), sequence, 0)


def run_padded(rnn: nn.RNNBase, input: Tensor, hx: Any, lengths: Tensor) -> tuple[Tensor, Any]:
    """Run a layer of torch over rows that end apart, as ours does: outputs at padding are 0, states are each row's last.

    Torch packs no row without any step, so such a row runs one, on zeros; what comes of it is replaced.

    Example:
        >>> output, h_n = run_padded(torch.nn.RNN(1, 2), torch.ones(3, 2, 1), None, torch.tensor([2, 0]))
        >>> output[2].any(), h_n[0, 1].any()
        (tensor(False), tensor(False))
    """
    data, first = zero_padding(input, lengths, rnn.batch_first), rnn.batch_first
    if not isinstance(data, Tensor) or data.shape[1 if first else 0] == 0 or lengths.numel() == 0:
        output, state = rnn(data, hx)
        return output, state
    packed = pack_padded_sequence(data, lengths.clamp(min=1).cpu(), batch_first=first, enforce_sorted=False)
    output, state = rnn(packed, hx)
    padded, _ = pad_packed_sequence(output, batch_first=first, total_length=data.shape[1 if first else 0])
    cleared = zero_padding(padded, lengths, first)
    if hx is None:
        hx = tuple(torch.zeros_like(s) for s in state) if isinstance(state, tuple) else torch.zeros_like(state)
    ran = (lengths > 0).view(1, -1, 1)
    if isinstance(state, tuple):
        return cleared, tuple(torch.where(ran, last, start) for last, start in zip(state, hx, strict=True))  # type: ignore[return-value]
    return cleared, torch.where(ran, state, hx)  # type: ignore[return-value]


def _every_output(
    output: Sequence, state: Any, directions: int, lengths: Tensor | None = None, batch_first: bool = False
) -> Sequence:
    return output


def _mean_output(output: Sequence, state: Any, directions: int, lengths: Tensor | None, batch_first: bool) -> Sequence:
    return mean_over_time(output, lengths, batch_first)


def _as_they_are(logits: Sequence, lengths: Tensor | None, batch_first: bool) -> Sequence:
    return logits


READOUTS: dict[str, Readout] = {
    "last": Readout(final_states, last_inputs, _as_they_are),
    "each": Readout(_every_output, zero_padding, zero_padding),
    "mean": Readout(_mean_output, mean_over_time, _as_they_are),
}
"""Every way to read a sequence, by name."""
