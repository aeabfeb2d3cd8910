"""A recurrent model that looks at the last k inputs only."""

import torch
from torch import Tensor, nn

from steadyrnn.checks import check_positive_int
from steadyrnn.errors import ArgumentError, ArgumentTypeError, ShapeError

from .readouts import zero_padding
from .sequence import SequenceModel

__all__ = ["Truncated", "recurrent_part"]


class Truncated(nn.Module):
    r"""A recurrent model, each output of which is computed from the last k inputs alone.

    .. math:: h_t^k = \Phi(x_{t-k+1}, \dots, x_t), \qquad \Phi: k \text{ steps of the layer from its initial state}

    A feed-forward network of depth k that slides over the sequence. Its weights are the recurrent model's; of a
    :math:`\lambda`-contraction its outputs differ by :math:`O(\lambda^k)` from the recurrent ones. All windows are one
    batch, so the cost is k times the recurrent model's, in k steps one after another instead of T. The first k - 1
    outputs of a sequence have only the inputs that there are.

    The state that goes on from one call to the next is the last k - 1 inputs: a sequence in chunks gives what it gives
    as a whole.

    Args:
        model: A ``SequenceModel`` with ``readout="last"`` of a layer that runs one way and takes (T, B, ...).
        context: k.
        reads: ``"last"``: (B, N) from the last k inputs. ``"each"``: (T, B, N).

    Example:
        >>> model = sr.SequenceModel(sr.RNN(2, 4), 3)
        >>> truncated = Truncated(model, context=5, reads="each")
        >>> x = torch.randn(9, 2, 2)
        >>> logits, state = truncated(x)
        >>> logits.shape, bool(torch.allclose(logits[-1], model(x[-5:])[0], atol=1e-6))
        (torch.Size([9, 2, 3]), True)

    References:
        Miller, Hardt. When Recurrent Models Don't Need To Be Recurrent (section 2: the truncated model).
        https://arxiv.org/abs/1805.10369
    """

    def __init__(self, model: SequenceModel, context: int, reads: str = "last") -> None:
        super().__init__()
        if not isinstance(model, SequenceModel):
            raise ArgumentTypeError(f"`model` must be a SequenceModel, but is of type {type(model).__name__}.")
        if model.reads != "last" or model.rnn.bidirectional or model.rnn.batch_first:
            raise ArgumentError("`model` must read the last state of a layer that runs one way, time first.")
        if reads not in ("last", "each"):
            raise ArgumentError(f"`reads` must be 'last' or 'each', but is {reads!r}.")
        self.model, self.context, self.reads = model, check_positive_int("context", context), reads

    def forward(self, input: Tensor, hx: Tensor | None = None, lengths: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """Run over a sequence, (T, B, D) or tokens (T, B).

        Args:
            input: The sequence.
            hx: The state of an earlier call: the inputs before this sequence, at most k - 1 steps.
            lengths: Length of each row, (B,); not together with ``hx``, and the state returned is then None.

        Returns:
            Logits, (B, N) or (T, B, N), and the state.
        """
        if input.dim() != (2 if self.model.embedding is not None else 3):
            raise ShapeError(f"`input` must be a batch, (T, B, D) or tokens (T, B), but has shape {tuple(input.shape)}.")
        if lengths is not None:
            if hx is not None:
                raise ArgumentError("`hx` cannot go with `lengths`: rows that end apart have no common last inputs.")
            return self._ragged(input, torch.as_tensor(lengths, device=input.device)), None
        seen = input if hx is None else torch.cat([hx, input])
        state = seen[max(seen.shape[0] - self.context + 1, 0) :]
        if self.reads == "last":
            return self._logits(seen[-self.context :]), state
        return self._each(seen, input.shape[0]), state

    def _logits(self, input: Tensor, lengths: Tensor | None = None) -> Tensor:
        logits: Tensor = self.model(input, lengths=lengths)[0]
        return logits

    def _each(self, seen: Tensor, steps: int) -> Tensor:
        """Return the logits of the last ``steps`` steps, each from a window of its own: (T, B, N)."""
        start, rows, k = seen.shape[0] - steps, seen.shape[1], self.context
        short = min(max(k - 1 - start, 0), steps)  # steps that have fewer than k inputs
        parts = []
        if short:
            ends = torch.arange(start + 1, start + short + 1, device=seen.device)
            prefix = seen[: start + short].unsqueeze(1).expand(-1, short, *seen.shape[1:])
            parts.append(self._logits(prefix.flatten(1, 2), ends.repeat_interleave(rows)))
        if steps > short:
            windows = seen[start + short - k + 1 :].unfold(0, k, 1).movedim(-1, 0)  # (k, W, B, ...)
            parts.append(self._logits(windows.flatten(1, 2)))
        if not parts:
            return self._logits(seen[:0]).unsqueeze(0)[:0]
        logits = torch.cat(parts)
        return logits.view(steps, rows, logits.shape[-1])

    def _ragged(self, input: Tensor, lengths: Tensor) -> Tensor:
        """Return the logits of rows that end apart; those behind a row's length are 0."""
        if self.reads == "each":
            logits = zero_padding(self._each(input, input.shape[0]), lengths, False)
            return logits if isinstance(logits, Tensor) else logits.data
        k = min(self.context, input.shape[0])
        first = (lengths - k).clamp(min=0)
        place = first + torch.arange(k, device=input.device).unsqueeze(1)  # (k, B)
        place = place.view(*place.shape, *(1,) * (input.dim() - 2)).expand(k, *input.shape[1:])
        return self._logits(input.gather(0, place), lengths.clamp(max=k))

    def extra_repr(self) -> str:
        """Show the context."""
        return f"context={self.context}, reads={self.reads!r}"


def recurrent_part(model: nn.Module) -> nn.Module:
    """Return the recurrent model inside a truncated one; another model is returned as it is.

    What is proven or measured through time is proven of the recurrent model, whose weights are the truncated one's.

    Example:
        >>> model = sr.SequenceModel(sr.RNN(2, 4), 3)
        >>> recurrent_part(Truncated(model, context=5)) is model
        True
    """
    return model.model if isinstance(model, Truncated) else model
