"""The sequence model: embedding, recurrent layer, readout."""

from collections.abc import Sequence as Numbers
from typing import Any

from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from steadyrnn.checks import check_interval, check_positive_int
from steadyrnn.errors import ArgumentError, ArgumentTypeError, not_among
from steadyrnn.layers.base import RecurrentLayer
from steadyrnn.layers.linear import Linear
from steadyrnn.layers.sequence import check_lengths

from .readouts import READOUTS, Sequence, run_padded, zero_padding
from .tokens import check_tokens

__all__ = ["SequenceModel"]

Layer = RecurrentLayer | nn.RNN | nn.GRU | nn.LSTM


class SequenceModel(nn.Module):
    r"""A recurrent layer between an optional embedding and a linear readout.

    .. math:: \text{logits} = C h + d \quad (+\, D x \text{ with } \texttt{skip}), \qquad h, \cdot = \text{rnn}(x)

    ``readout="last"`` reads the top layer's final state, both directions side by side: the last valid step of each row
    (backwards its first), whatever its length; a row of length 0, or T = 0, reads the initial state.
    ``readout="each"`` reads the output of every step; logits at padding are 0. ``readout="mean"`` reads the mean of the
    outputs over the steps of each row, so that a network that forgets quickly still sees the whole sequence; the mean
    of no step is 0.

    The model holds ``rnn`` itself, not a copy; all else is made on its device and in its dtype. Dropout works in
    training only: ``dropout_embedding`` on embedded tokens, ``dropout_state`` on h where it is read (not inside the
    recurrence), ``dropout_logits`` on the result (what Lin and Wang do).

    Args:
        rnn: An RNN, GRU or LSTM of ours or of torch.
        out_features: Number of logits.
        vocab_size: Number of tokens; with it the input holds tokens, (T, B), (B, T) if the layer has ``batch_first``,
            or (T,). None means that the input holds feature vectors.
        embedding_size: Size of an embedded token; None is the layer's input size, which is the only one that fits.
        readout: ``"last"``, ``"each"`` or ``"mean"``.
        tied: Whether the embedding's weight is the readout's: needs ``out_features == vocab_size`` and an embedding as
            wide as h. Both start as the readout's first weight.
        skip: Whether the readout sees the input too (with ``"last"`` that of the last step, with ``"mean"`` the mean),
            through a weight D.
        bias: Whether the readout has the vector d.
        dropout_embedding: Probability.
        dropout_state: Probability.
        dropout_logits: Probability.

    Example:
        >>> model = sr.SequenceModel(sr.GRU(8, 16), 5, vocab_size=5, readout="each", dropout_logits=0.2)
        >>> logits, state = model(torch.randint(5, (7, 3)), lengths=[7, 2, 0])
        >>> logits.shape, state.shape
        (torch.Size([7, 3, 5]), torch.Size([1, 3, 16]))

    References:
        Lin, Wang. uRNN: An Approach to Bounded Gradients (section 3: embedding, layer, projection, dropout).
        Miller, Hardt. When Recurrent Models Don't Need To Be Recurrent (appendix A.5: the readout C h + D x).
    """

    def __init__(
        self,
        rnn: Layer,
        out_features: int,
        *,
        vocab_size: int | None = None,
        embedding_size: int | None = None,
        readout: str = "last",
        tied: bool = False,
        skip: bool = False,
        bias: bool = True,
        dropout_embedding: float = 0.0,
        dropout_state: float = 0.0,
        dropout_logits: float = 0.0,
    ) -> None:
        super().__init__()
        if not isinstance(rnn, Layer):
            raise ArgumentTypeError(f"`rnn` must be an RNN, GRU or LSTM, but is of type {type(rnn).__name__}.")
        if readout not in READOUTS:
            raise ArgumentError(not_among("readout", readout, READOUTS))
        check_positive_int("out_features", out_features)
        for name, flag in (("tied", tied), ("skip", skip), ("bias", bias)):
            if not isinstance(flag, bool):
                raise ArgumentTypeError(f"`{name}` must be True or False, but is of type {type(flag).__name__}.")
        self.rnn, self.reads, self.tied = rnn, readout, bool(tied)
        self.directions, self.batch_first = 2 if rnn.bidirectional else 1, bool(rnn.batch_first)
        width = self.directions * (getattr(rnn, "proj_size", 0) or rnn.hidden_size)
        like: dict[str, Any] = {"device": rnn.weight_ih_l0.device, "dtype": rnn.weight_ih_l0.dtype}
        size = _check_embedding(rnn.input_size, vocab_size, embedding_size, dropout_embedding)
        self.embedding = None if vocab_size is None else nn.Embedding(vocab_size, size, **like)
        self.readout = Linear(width, out_features, bias, weight="free", **like)
        self.skip = Linear(rnn.input_size, out_features, False, weight="free", **like) if skip else None
        if self.tied:
            _tie(self.embedding, self.readout).weight = self.readout.weight
        self.dropout_embedding = nn.Dropout(check_interval("dropout_embedding", dropout_embedding, 0.0, 1.0))
        self.dropout_state = nn.Dropout(check_interval("dropout_state", dropout_state, 0.0, 1.0))
        self.dropout_logits = nn.Dropout(check_interval("dropout_logits", dropout_logits, 0.0, 1.0))

    def forward(
        self,
        input: Sequence,
        hx: Any = None,
        lengths: Tensor | Numbers[int] | None = None,
    ) -> tuple[Sequence, Any]:
        """Run the model over a sequence.

        Args:
            input: Tokens or feature vectors, padded, unbatched or packed, as the layer takes them.
            hx: Initial state of the layer.
            lengths: Length of each row, shape (B,), each from 0 to T; what lies behind it is not looked at.

        Returns:
            Logits, shape (B, out_features) for ``"last"`` and ``"mean"``, else the layer's output with
            ``out_features`` in place of its width; and the layer's final state.
        """
        if not isinstance(input, Sequence):
            raise ArgumentTypeError(f"`input` must be a tensor or packed, but is of type {type(input).__name__}.")
        ragged = self._ragged(input, lengths)
        x = self._features(input, ragged)
        output, state = self._run(x, hx, lengths, ragged)
        read, first = READOUTS[self.reads], self.batch_first
        h = read.states(output, state, self.directions, ragged, first)
        seen = None if self.skip is None else read.inputs(x, ragged, first)
        return read.finish(self._logits(h, seen), ragged, first), state

    @property
    def report(self) -> Any:
        """What is proven of the layer, where a conversion made it; other layers have none."""
        return self.rnn.report

    def extra_repr(self) -> str:
        """Show what is read, and where a weight is shared."""
        return f"readout={self.reads!r}" + (", tied=True" if self.tied else "")

    def _ragged(self, input: Sequence, lengths: Tensor | Numbers[int] | None) -> Tensor | None:
        """Return checked lengths of a padded batch, else None: the layer refuses lengths that fit no batch."""
        if lengths is None:
            return None
        if isinstance(input, PackedSequence) or input.dim() != (3 if self.embedding is None else 2):
            return None
        return check_lengths(lengths, input.transpose(0, 1) if self.batch_first else input)

    def _run(self, x: Sequence, hx: Any, lengths: Tensor | Numbers[int] | None, ragged: Tensor | None) -> tuple[Sequence, Any]:
        """Return the layer's output and state; one of torch, which takes no lengths, gets a packed batch."""
        if lengths is None:
            output, state = self.rnn(x, hx)
        elif not isinstance(self.rnn, nn.RNNBase):
            output, state = self.rnn(x, hx, lengths=lengths)
        elif isinstance(x, Tensor) and ragged is not None:
            output, state = run_padded(self.rnn, x, hx, ragged)
        else:
            raise ArgumentError("`lengths` needs a padded batch, but `input` is unbatched or packed.")
        return output, state

    def _features(self, input: Sequence, lengths: Tensor | None) -> Sequence:
        """Return the layer's input, in the form of the user's: embedded tokens, or the input itself."""
        if self.embedding is None:
            return input
        tokens = zero_padding(input, lengths, self.batch_first)
        data = check_tokens(_data(tokens), self.embedding.num_embeddings)
        return _with_data(tokens, self.dropout_embedding(self.embedding(data)))

    def _logits(self, h: Sequence, x: Sequence | None) -> Sequence:
        """Return C h + d, plus D x where the readout sees the input."""
        logits = self.readout(self.dropout_state(_data(h)))
        if self.skip is not None and x is not None:
            logits = logits + self.skip(_data(x))
        return _with_data(h, self.dropout_logits(logits))


def _data(sequence: Sequence) -> Tensor:
    return sequence.data if isinstance(sequence, PackedSequence) else sequence


def _with_data(sequence: Sequence, data: Tensor) -> Sequence:
    """Return a sequence of the same form with other entries."""
    if isinstance(sequence, PackedSequence):
        return PackedSequence(data, sequence.batch_sizes, sequence.sorted_indices, sequence.unsorted_indices)
    return data


def _check_embedding(input_size: int, vocab_size: int | None, embedding_size: int | None, dropout: float) -> int:
    """Return the size of an embedded token."""
    if vocab_size is None:
        for name, value in (("embedding_size", embedding_size), ("dropout_embedding", dropout)):
            if value:
                raise ArgumentError(f"`{name}` needs an embedding, but is {value} and `vocab_size` is None.")
        return input_size
    check_positive_int("vocab_size", vocab_size)
    if embedding_size is not None and check_positive_int("embedding_size", embedding_size) != input_size:
        raise ArgumentError(
            f"`embedding_size` must be the layer's input size, {input_size}, but is {embedding_size}. "
            f"Make the layer with input_size={embedding_size}."
        )
    return input_size


def _tie(embedding: nn.Embedding | None, readout: Linear) -> nn.Embedding:
    """Return the embedding if its weight fits the readout."""
    if embedding is None:
        raise ArgumentError("`tied` needs an embedding, but `vocab_size` is None.")
    shapes = (embedding.num_embeddings, embedding.embedding_dim), (readout.out_features, readout.in_features)
    if shapes[0] != shapes[1]:
        raise ArgumentError(
            f"`tied` needs an embedding and a readout of one shape, but the embedding has {shapes[0]} "
            f"(vocab_size, embedding_size) and the readout {shapes[1]} (out_features, width of the state)."
        )
    return embedding
