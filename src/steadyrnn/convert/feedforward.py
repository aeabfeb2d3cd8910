"""From a stable recurrent layer to a feed-forward one that looks at a window, with a proven error."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, overload

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from steadyrnn.bounds.norms import above, below, input_slack
from steadyrnn.certificates.base import format_above
from steadyrnn.certificates.certificate import Certificate
from steadyrnn.certificates.certify import certify, digest_of
from steadyrnn.certificates.layer import read_weights
from steadyrnn.checks import assert_async, check_finite, check_number, check_positive_int
from steadyrnn.errors import ArgumentError, ArgumentTypeError, CertificateError, ConversionError, ShapeError
from steadyrnn.layers.base import RecurrentLayer
from steadyrnn.layers.sequence import close_sequence, open_sequence
from steadyrnn.models.sequence import SequenceModel

from .bptt import SMALLEST_GAIN, check_positive
from .window_model import WindowModel, embedding_bound, readout_gain, refuse_dropout

__all__ = ["WindowNetwork", "WindowReport", "to_feedforward"]

Layer = RecurrentLayer | nn.RNN | nn.GRU | nn.LSTM
MEMORY = "Lemma 1 of Miller and Hardt (2019)"
STACK = "recursion over a stack (docs/notes/mathematics.md, 5.4)"
_NUMBERS = 2**24
"""About the largest number of entries in a block of windows, if the caller names no size."""


@dataclass(frozen=True)
class WindowReport:
    """What is proven of a conversion.

    Args:
        window: How many inputs an output looks at, k.
        bound: Proven bound on the 2-norm of every output's error, at most ``eps``.
        eps: The requested error.
        input_bound: What is assumed (and checked) of the 2-norm of every input.
        contraction: The proven rate; of a stack the largest.
        norm: The norm it holds in.
        state_bound: Proven bound on the 2-norm of every output.
        theorem: Where the proofs are.
        readout_gain: Of a model, the bound on the spectral norm of its readout that is part of ``bound``.
    """

    window: int
    bound: float
    eps: float
    input_bound: float
    contraction: float
    norm: str
    state_bound: float
    theorem: str
    readout_gain: float = 1.0

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON can hold it."""
        return asdict(self)

    def __str__(self) -> str:
        """Return the report in words."""
        readout = "" if self.readout_gain == 1 else f" Through a readout of norm {format_above(self.readout_gain)}."
        bound, states, rate = (format_above(number) for number in (self.bound, self.state_bound, self.contraction))
        return (
            f"feed-forward on windows of {self.window} inputs: every output within {bound} of the recurrent one "
            f"(asked: {self.eps:g}; outputs up to {states}), for inputs of norm up to {self.input_bound:g}.\n"
            f"Contraction {rate} in the {self.norm}. {self.theorem}.{readout} Exact arithmetic; rounding comes "
            "on top."
        )


class WindowNetwork(nn.Module):
    """A recurrent layer run on windows instead of on its own past; :func:`to_feedforward` makes it.

    It holds the layer itself, not a copy. The proof is about the weights, whose checksum is compared on every call: where
    they have changed (training, a loaded state, another dtype), the next call or reading of ``bound`` proves anew, and
    raises if ``window`` no longer suffices. Eager only.

    Args:
        rnn: The layer.
        eps: The error allowed.
        input_bound: Bound on the 2-norm of every input.
        window: k.
        block: How many windows run at once.

    Example:
        >>> net = to_feedforward(sr.RNN(2, 4, transition=sr.SpectralBall(0.5)), eps=1e-2, input_bound=1.0)
        >>> net(torch.zeros(20, 3, 2)).shape
        torch.Size([20, 3, 4])
    """

    def __init__(self, rnn: Layer, eps: float, input_bound: float, window: int, block: int | None = None) -> None:
        super().__init__()
        self.rnn = rnn
        self.eps, self.input_bound = float(eps), float(input_bound)
        self.window = check_positive_int("window", window)
        self.block = None if block is None else check_positive_int("block", block)
        self._proven: tuple[str, WindowReport] | None = None

    @property
    def report(self) -> WindowReport:
        """What is proven for the weights as they are now."""
        key = digest_of(read_weights(self.rnn))
        if self._proven is None or self._proven[0] != key:
            certificate = _certified(self.rnn, self.input_bound)
            bound = certificate.truncation_error(self.window)
            if not bound <= self.eps:
                raise ConversionError(
                    f"The weights have changed: with windows of {self.window} inputs the error is now bounded by "
                    f"{bound:.6g} only, not by {self.eps:g}. Convert the layer again."
                )
            self._proven = key, _report(certificate, self.window, bound, self.eps, self.input_bound)
        return self._proven[1]

    @property
    def bound(self) -> float:
        """Proven bound on the 2-norm of every output's error, in exact arithmetic; at most ``eps``."""
        return self.report.bound

    def forward(self, input: Tensor | PackedSequence, lengths: Tensor | Sequence[int] | None = None) -> Tensor | PackedSequence:
        """Return every output, from the ``window`` inputs up to its own.

        The first ``window`` outputs come from the layer's own initial state, so they are exact. A compiled or exported graph
        runs all windows at once and does not prove again that ``bound`` holds for its weights: read ``report`` before.

        Args:
            input: (T, B, D), (B, T, D) if the layer has ``batch_first``, (T, D), or a packed sequence.
            lengths: Length of each row, shape (B,), each from 0 to T; what lies behind it is not looked at.

        Returns:
            The outputs of the top layer, in the input's form with H in place of D; zero at padding.
        """
        opened, batched = open_sequence(input, lengths, self.rnn.batch_first)
        self.check(opened.data)
        output = self._outputs(opened.data)
        if opened.batch_sizes is not None:
            rows = torch.arange(output.shape[1], device=output.device)
            running = opened.batch_sizes.to(output.device).unsqueeze(1) > rows  # (T, B)
            output = torch.where(running.unsqueeze(-1), output, 0)
        return close_sequence(output, opened, input, batched, self.rnn.batch_first)

    def check(self, data: Tensor) -> None:
        """Refuse inputs (..., D) that the proof does not cover, and weights that it is no longer about."""
        _refuse_dropout(self.rnn, ArgumentError)
        if data.shape[-1] != self.rnn.input_size:
            raise ShapeError(f"`input` must have {self.rnn.input_size} features, but has {data.shape[-1]}.")
        _check_norms(data, self.input_bound, _covered(self.rnn, self.input_bound))
        if not torch.compiler.is_compiling():  # a graph has no weights to prove anything of
            _ = self.report  # the proof must be of the weights that are used

    def _outputs(self, data: Tensor) -> Tensor:
        """Return the outputs (T, B, H) of inputs (T, B, D)."""
        if data.shape[0] == 0:
            return data.new_zeros(*data.shape[:-1], self.rnn.hidden_size)
        outputs = [self._exact(data[: self.window])]
        if not torch.compiler.is_compiling():
            rows = self.block or _windows_at_once(self.rnn, self.window, data.shape[1])
            for start in range(1, data.shape[0] - self.window + 1, rows):
                outputs.append(self._windows(data[start : start + rows + self.window - 1]))
        elif data.shape[0] > self.window:  # a graph has no number of blocks
            outputs.append(self._windows(data[1:]))
        return torch.cat(outputs)

    def _exact(self, data: Tensor) -> Tensor:
        """Return the outputs of the first steps, (T, B, H), from the layer's own initial state."""
        output: Tensor = self.rnn(data.transpose(0, 1) if self.rnn.batch_first else data)[0]
        return output.transpose(0, 1) if self.rnn.batch_first else output

    def _windows(self, data: Tensor) -> Tensor:
        """Return the last output of every full window inside ``data`` (W + k - 1, B, D), each from the zero state."""
        steps, rows, width = data.shape
        count = steps - self.window + 1
        batch = data.unfold(0, self.window, 1).movedim(-1, 0).reshape(self.window, count * rows, width)
        _, last = self.rnn(batch.transpose(0, 1) if self.rnn.batch_first else batch, self.zero_state(count * rows))
        h: Tensor = last[0] if isinstance(last, tuple) else last
        return h[-1].view(count, rows, self.rnn.hidden_size)

    def zero_state(self, rows: int) -> Tensor | tuple[Tensor, Tensor]:
        """Return the state that a window starts from."""
        zero = self.rnn.all_weights[0][0].new_zeros(self.rnn.num_layers, rows, self.rnn.hidden_size)
        return (zero, zero) if self.rnn.mode == "LSTM" else zero

    def extra_repr(self) -> str:
        """Show the window and the requested error."""
        return f"window={self.window}, eps={self.eps:g}, input_bound={self.input_bound:g}"


@overload
def to_feedforward(  # type: ignore[overload-overlap]
    rnn: SequenceModel, eps: float, input_bound: float | None = None, *, block: int | None = None
) -> WindowModel: ...
@overload
def to_feedforward(rnn: nn.Module, eps: float, input_bound: float, *, block: int | None = None) -> WindowNetwork: ...


def to_feedforward(
    rnn: nn.Module, eps: float, input_bound: float | None = None, *, block: int | None = None
) -> WindowNetwork | WindowModel:
    r"""Return a feed-forward network with the outputs of a stable recurrent one, up to a proven error.

    .. math:: \lVert h_t - h_t^k \rVert_2 \le \text{bound} \le \epsilon, \qquad
        h_t^k \text{ from } x_{t-k+1}, \dots, x_t \text{ and a zero state}

    A layer that contracts at a rate :math:`\lambda < 1` forgets: after k steps two runs on the same inputs are
    :math:`\lambda^k` times their first distance apart, which is at most the bound on its states (Note [mathematics],
    section 4.1; a stack by the recursion of 5.4, an LSTM or GRU by 7.1 and 7.2). The window is the shortest for which this
    is proven. The first k outputs are computed from the layer's own initial state and are exact.

    Each output is a function of its window alone, so all of them run in parallel, k steps deep. The price is work: k times
    the recurrent run's. For one long sequence :func:`steadyrnn.to_parallel` shares warm-ups and is cheaper. Windows run
    ``block`` at a time, which bounds the memory of evaluation; a graph for the backward pass keeps all of them.

    The bound holds in exact arithmetic. Rounding, of either run, comes on top; section 6.5.

    Args:
        rnn: An RNN, GRU or LSTM of this package or of ``torch.nn``, in one direction, of any number of layers; or a
            ``SequenceModel`` of one.
        eps: The error allowed, in the 2-norm of every output; of a model, of every vector of logits, which differ by at
            most the spectral norm of the readout's weight times as much as the states do.
        input_bound: Bound on the 2-norm of every :math:`x_t`; checked on every call. None only of a model with an
            embedding: then its longest vector.
        block: How many windows run at once, with all rows of the batch; None chooses for about 2^24 numbers.

    Returns:
        A module with ``forward(input, lengths=None) -> output``, ``window``, ``bound`` and ``report``.

    Raises:
        ConversionError: The layer is not proven to be stable, has two directions, or is no recurrent layer.

    Example:
        >>> rnn = sr.RNN(2, 4, transition=sr.SpectralBall(0.5))
        >>> net = to_feedforward(rnn, eps=1e-3, input_bound=1.0)
        >>> x = torch.nn.functional.normalize(torch.randn(50, 3, 2), dim=-1) / 2
        >>> error = (net(x) - rnn(x)[0]).norm(dim=-1).max()
        >>> bool(error <= net.bound <= 1e-3)
        True

    References:
        Miller, Hardt. When Recurrent Models Don't Need To Be Recurrent (Proposition 1).
        https://arxiv.org/abs/1805.10369
    """
    check_positive("eps", eps)
    if isinstance(rnn, SequenceModel):
        refuse_dropout(rnn, ConversionError)
        share = below(eps / max(readout_gain(rnn), SMALLEST_GAIN), 64)
        bound = embedding_bound(rnn) if input_bound is None else input_bound
        return WindowModel(rnn, _windows_of(rnn.rnn, share, bound, block), eps)
    return _windows_of(rnn, eps, input_bound, block)


def _windows_of(rnn: nn.Module, eps: float, input_bound: float | None, block: int | None) -> WindowNetwork:
    """Return a layer on windows."""
    if not isinstance(rnn, Layer):
        raise ConversionError(
            "`rnn` must be an RNN, GRU or LSTM, of this package or of torch.nn, or a SequenceModel of one, but is of type "
            f"{type(rnn).__name__}. Convert the recurrent layer of a larger model."
        )
    if input_bound is None:
        raise ArgumentTypeError("`input_bound` must be a number, a bound on the 2-norm of every input, but is None.")
    check_number("input_bound", input_bound, finite=True)
    _refuse_dropout(rnn, ConversionError)
    certificate = _certified(rnn, input_bound)
    try:
        window = max(certificate.horizon(eps), 1)
    except CertificateError as error:
        raise ConversionError(f"`rnn` has no feed-forward equivalent that is proven: {error}") from error
    while not certificate.truncation_error(window) <= eps:  # a zero output may be good enough, and yet one step not
        window += 1
    net = WindowNetwork(rnn, eps, input_bound, window, block)
    bound = certificate.truncation_error(window)
    net._proven = certificate.digest, _report(certificate, window, bound, eps, input_bound)
    return net


def _certified(rnn: Layer, input_bound: float) -> Certificate:
    """Return the certificate of a layer in one direction, for inputs a rounding beyond the bound too."""
    if rnn.bidirectional:
        raise ConversionError(
            "`rnn` is bidirectional: an output depends on the whole future, and a window into the past cannot "
            "give it. Convert a one-directional layer."
        )
    try:
        certificate = certify(rnn, above(_covered(rnn, input_bound), 16 + rnn.input_size))
    except CertificateError as error:
        raise ConversionError(f"`rnn` has no feed-forward equivalent that is proven: {error}") from error
    if not isinstance(certificate, Certificate):
        raise ConversionError(f"`rnn` has a {type(certificate).__name__}, which is not about one direction and every input.")
    return certificate


def _report(certificate: Certificate, window: int, bound: float, eps: float, input_bound: float) -> WindowReport:
    theorems = dict.fromkeys([layer.best.theorem for layer in certificate.layers] + [MEMORY])
    if len(certificate.layers) > 1:
        theorems[STACK] = None
    return WindowReport(
        window, bound, float(eps), float(input_bound), certificate.contraction, certificate.norm,
        certificate.state_bound, "; ".join(theorems),
    )  # fmt: skip


def _refuse_dropout(rnn: Layer, error: type[ArgumentError] | type[ConversionError]) -> None:
    """Refuse random outputs: nothing is equal to them."""
    if rnn.training and rnn.dropout and rnn.num_layers > 1:
        raise error(f"`rnn` is in training mode with dropout={rnn.dropout}: its outputs are random. Call `.eval()` first.")


def _covered(rnn: Layer, input_bound: float) -> float:
    """Return the bound the proof is made for: a vector scaled to the user's bound is rounded, and must still be inside."""
    first: Tensor = rnn.all_weights[0][0]
    return float(input_bound) * input_slack(rnn.input_size, first.dtype)


def _check_norms(data: Tensor, input_bound: float, covered: float) -> None:
    """Refuse inputs that the proof does not cover."""
    if torch.compiler.is_compiling():
        norms = torch.linalg.vector_norm(data.detach().double(), dim=-1)
        assert_async((norms <= covered).all(), "`input` must have vectors of 2-norm up to `input_bound`")
        return
    check_finite("input", data)
    longest = float(torch.linalg.vector_norm(data.detach().double(), dim=-1).max()) if data.numel() else 0.0
    if not longest <= covered:
        raise ArgumentError(
            f"`input` must have vectors of 2-norm up to `input_bound`, {input_bound:g}, but the longest has {longest:.9g}. "
            "Scale the input, or convert the layer for a larger bound."
        )


def _windows_at_once(rnn: Layer, window: int, rows: int) -> int:
    """Return how many windows hold about ``_NUMBERS`` numbers with what the layer makes of them."""
    width = rnn.input_size + rnn.num_layers * 5 * rnn.hidden_size
    return max(_NUMBERS // max(window * rows * width, 1), 1)
