"""A whole model on windows: embedding and readout around a recurrent layer that looks at a window."""

from collections.abc import Sequence as Numbers
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence

from steadyrnn.bounds.norms import above, spectral_norm_bound
from steadyrnn.checks import check_finite
from steadyrnn.errors import ArgumentError, ConversionError
from steadyrnn.layers.sequence import check_lengths
from steadyrnn.models.converted import with_layer
from steadyrnn.models.readouts import Sequence, zero_padding
from steadyrnn.models.sequence import SequenceModel

if TYPE_CHECKING:
    from .feedforward import WindowNetwork, WindowReport

__all__ = ["WindowModel", "embedding_bound", "readout_gain"]


class WindowModel(nn.Module):
    r"""A ``SequenceModel`` run on windows instead of on its own past; :func:`steadyrnn.to_feedforward` makes it.

    .. math:: \lVert y_t - y_t^k \rVert_2 = \lVert C (h_t - h_t^k) \rVert_2 \le \lVert C \rVert \lVert h_t - h_t^k \rVert_2

    The term :math:`D x` of a readout that sees the input is the same in both. It holds the model itself, not a copy; what
    is proven is proven anew where weights have changed.

    Args:
        model: The model, shared.
        network: Its layer on windows.
        eps: The error allowed in the 2-norm of every vector of logits.

    Example:
        >>> model = sr.SequenceModel(sr.RNN(2, 4, transition=sr.SpectralBall(0.5)), 3, readout="each")
        >>> net = sr.to_feedforward(model, eps=1e-2, input_bound=1.0)
        >>> net(torch.zeros(20, 5, 2), lengths=[20, 3, 0, 1, 9]).shape
        torch.Size([20, 5, 3])
    """

    def __init__(self, model: SequenceModel, network: "WindowNetwork", eps: float) -> None:
        super().__init__()
        self.model, self.network, self.eps = model, network, float(eps)
        self._gain: tuple[Tensor, float] | None = None

    @property
    def window(self) -> int:
        """How many inputs an output looks at."""
        return self.network.window

    @property
    def report(self) -> "WindowReport":
        """What is proven for the weights as they are now; its bound is on logits."""
        layer, gain = self.network.report, self._readout_gain()
        bound = above(gain * layer.bound)
        if not bound <= self.eps:
            raise ConversionError(
                f"The weights have changed: with windows of {self.window} inputs the error is now bounded by {bound:.6g} only, "
                f"not by {self.eps:g}. Convert the model again."
            )
        return replace(layer, bound=bound, eps=self.eps, readout_gain=gain)

    @property
    def bound(self) -> float:
        """Proven bound on the 2-norm of the error of every vector of logits, in exact arithmetic; at most ``eps``."""
        return self.report.bound

    def forward(self, input: Sequence, lengths: Tensor | Numbers[int] | None = None) -> Sequence:
        """Return the logits, each from the ``window`` inputs up to it; those of the first ``window`` steps are exact.

        Args:
            input: Tokens or feature vectors, padded, unbatched or packed, as the model accepts them.
            lengths: Length of each row, shape (B,), each from 0 to T; what lies behind it is not looked at.

        Returns:
            Logits as the model gives them, without a state.
        """
        refuse_dropout(self.model, ArgumentError)
        _ = self.report  # the proof must be of the weights used below
        if self.model.reads != "last":  # a mean of vectors is no further off than they are
            logits: Sequence = with_layer(self.model, _Stateless(self.network))(input, lengths=lengths)[0]
            return logits
        return self._last(input, lengths)

    def _last(self, input: Sequence, lengths: Tensor | Numbers[int] | None) -> Tensor:
        """Return the logits behind each row's last step, (B, N), or (N,) of an unbatched input."""
        model, first = self.model, self.model.batch_first
        if isinstance(input, PackedSequence):
            if lengths is not None:
                raise ArgumentError("`lengths` cannot be given beside a PackedSequence, which knows its own.")
            input, lengths = pad_packed_sequence(input)
            first = False
        elif input.dim() == (2 if model.embedding is None else 1):
            if lengths is not None:
                raise ArgumentError("`lengths` needs a batch, but `input` is unbatched.")
            return self._last(input.unsqueeze(0 if first else 1), None).squeeze(0)
        data = input.transpose(0, 1) if first else input
        whole = [data.shape[0]] * data.shape[1]
        count = check_lengths(whole if lengths is None else lengths, data)
        data = _tensor(zero_padding(data, count, False))
        if model.embedding is None:
            self.network.check(data)
        steps = min(self.window, data.shape[0])
        place = (count - steps).clamp(min=0) + torch.arange(steps, device=data.device).unsqueeze(1)  # (k, B)
        windows = data.gather(0, place.view(*place.shape, *(1,) * (data.dim() - 2)).expand(steps, *data.shape[1:]))
        windows = windows.transpose(0, 1) if model.batch_first else windows
        short: Tensor = model(windows, lengths=count.clamp(max=steps))[0]  # from the initial state: exact
        if data.shape[0] <= self.window:
            return short
        long = model(windows, self.network.zero_state(data.shape[1]))[0]
        return torch.where((count > self.window).unsqueeze(-1), long, short)

    def _readout_gain(self) -> float:
        """Return the readout's gain, computed anew where its weight has changed."""
        weight = self.model.readout.weight.detach()
        if self._gain is None or not torch.equal(self._gain[0], weight):
            self._gain = weight.clone(), readout_gain(self.model)
        return self._gain[1]

    def extra_repr(self) -> str:
        """Show the window and the requested error."""
        return f"window={self.window}, eps={self.eps:g}"


class _Stateless(nn.Module):
    """A network on windows, called as a layer; it has no state to give."""

    def __init__(self, network: "WindowNetwork") -> None:
        super().__init__()
        self.network = network

    def forward(self, input: Sequence, hx: Any = None, lengths: Any = None) -> tuple[Sequence, None]:
        return self.network(input, lengths=lengths), None


def _tensor(sequence: Sequence) -> Tensor:
    return sequence.data if isinstance(sequence, PackedSequence) else sequence


def readout_gain(model: SequenceModel) -> float:
    """Return a bound on the spectral norm of the weight that reads the state.

    Example:
        >>> model = sr.SequenceModel(sr.RNN(2, 2), 1)
        >>> readout_gain(model) >= float(model.readout.weight.detach().norm())
        True
    """
    return above(spectral_norm_bound(check_finite("readout.weight", model.readout.weight.detach())))


def embedding_bound(model: SequenceModel) -> float | None:
    """Return a bound on the 2-norm of every embedded token; None of a model without embedding.

    Example:
        >>> embedding_bound(sr.SequenceModel(sr.RNN(2, 2), 1)) is None
        True
    """
    if model.embedding is None:
        return None
    table = check_finite("embedding.weight", model.embedding.weight.detach()).double()
    return above(float(torch.linalg.vector_norm(table, dim=1).max()), 16 + table.shape[1])


def refuse_dropout(model: SequenceModel, error: type[ArgumentError] | type[ConversionError]) -> None:
    """Refuse random outputs: nothing is equal to them."""
    parts = {"embedding": model.dropout_embedding, "state": model.dropout_state, "logits": model.dropout_logits}
    for name, part in parts.items():
        if model.training and part.p:
            raise error(
                f"`rnn` is in training mode with dropout_{name}={part.p}: its outputs are random. Call `.eval()` first."
            )
