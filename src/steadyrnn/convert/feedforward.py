"""From a stable recurrent layer to a feed-forward one that looks at a window, with a proven error."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from steadyrnn.bounds.norms import above
from steadyrnn.certificates.certificate import Certificate
from steadyrnn.certificates.certify import certify, digest_of
from steadyrnn.certificates.reading import read_weights
from steadyrnn.checks import check_finite, check_number, check_positive_int
from steadyrnn.errors import ArgumentError, ArgumentTypeError, CertificateError, ConversionError, ShapeError
from steadyrnn.layers.base import RecurrentLayer

from .unitary_rnn import input_slack

__all__ = ["WindowNetwork", "WindowReport", "suggest_bptt", "to_feedforward"]

Layer = RecurrentLayer | nn.RNN | nn.GRU | nn.LSTM
_NUMBERS = 2**24
"""How many numbers a block of windows may hold, about, where the caller names no size."""
_LONGEST = 2**40
"""The longest window looked for."""


@dataclass(frozen=True)
class WindowReport:
    """What is proven of a conversion.

    Args:
        window: How many inputs an output looks at, k.
        bound: Proven bound on the 2-norm of every output's error, at most ``eps``.
        eps: What was asked for.
        input_bound: What is assumed (and checked) of the 2-norm of every input.
        contraction: The proven rate; of a stack the largest.
        norm: The norm it holds in.
        state_bound: Proven bound on the 2-norm of every output.
        theorem: Where the proofs are.
    """

    window: int
    bound: float
    eps: float
    input_bound: float
    contraction: float
    norm: str
    state_bound: float
    theorem: str

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON can hold it."""
        return asdict(self)

    def __str__(self) -> str:
        """Return the report in words."""
        return (
            f"feed-forward on windows of {self.window} inputs: every output within {self.bound:.6g} of the recurrent one "
            f"(asked: {self.eps:g}; outputs up to {self.state_bound:.6g}), for inputs of norm up to {self.input_bound:g}.\n"
            f"Contraction {self.contraction:.6g} in the {self.norm}. {self.theorem}. Exact arithmetic; rounding comes on top."
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

    def forward(self, input: Tensor) -> Tensor:
        """Return every output, from the ``window`` inputs up to its own.

        The first ``window`` outputs come from the layer's own initial state, so they are exact. A compiled or exported graph
        runs all windows at once and does not prove again that ``bound`` holds for its weights: read ``report`` before.

        Args:
            input: (T, B, D), (B, T, D) if the layer has ``batch_first``, or (T, D).

        Returns:
            The outputs of the top layer, in the input's form with H in place of D.
        """
        _refuse_dropout(self.rnn, ArgumentError)
        data, batched = _as_batch(input, self.rnn)
        if data.shape[-1] != self.rnn.input_size:
            raise ShapeError(f"`input` must have {self.rnn.input_size} features, but has {data.shape[-1]}.")
        _check_norms(data, self.input_bound, _covered(self.rnn, self.input_bound))
        if data.shape[0] == 0:
            return input.new_zeros(*input.shape[:-1], self.rnn.hidden_size)
        compiled = torch.compiler.is_compiling()  # a graph has no weights to prove anything of, nor a number of blocks
        if not compiled:
            _ = self.report  # the proof must be of the weights used below
        outputs = [self._exact(data[: self.window])]
        if not compiled:
            rows = self.block or _windows_at_once(self.rnn, self.window, data.shape[1])
            for start in range(1, data.shape[0] - self.window + 1, rows):
                outputs.append(self._windows(data[start : start + rows + self.window - 1]))
        elif data.shape[0] > self.window:
            outputs.append(self._windows(data[1:]))
        output = torch.cat(outputs)
        if not batched:
            return output.squeeze(1)
        return output.transpose(0, 1) if self.rnn.batch_first else output

    def _exact(self, data: Tensor) -> Tensor:
        """Return the outputs of the first steps, (T, B, H), from the layer's own initial state."""
        output: Tensor = self.rnn(data.transpose(0, 1) if self.rnn.batch_first else data)[0]
        return output.transpose(0, 1) if self.rnn.batch_first else output

    def _windows(self, data: Tensor) -> Tensor:
        """Return the last output of every full window inside ``data`` (W + k - 1, B, D), each from the zero state."""
        steps, rows, width = data.shape
        count = steps - self.window + 1
        batch = data.unfold(0, self.window, 1).movedim(-1, 0).reshape(self.window, count * rows, width)
        zero = batch.new_zeros(self.rnn.num_layers, count * rows, self.rnn.hidden_size)
        first = (zero, zero) if self.rnn.mode == "LSTM" else zero
        _, last = self.rnn(batch.transpose(0, 1) if self.rnn.batch_first else batch, first)
        h: Tensor = last[0] if isinstance(last, tuple) else last
        return h[-1].view(count, rows, self.rnn.hidden_size)

    def extra_repr(self) -> str:
        """Show the window and what was asked for."""
        return f"window={self.window}, eps={self.eps:g}, input_bound={self.input_bound:g}"


def to_feedforward(rnn: nn.Module, eps: float, input_bound: float, *, block: int | None = None) -> WindowNetwork:
    r"""Return a feed-forward network with the outputs of a stable recurrent one, up to a proven error.

    .. math:: \lVert h_t - h_t^k \rVert_2 \le \text{bound} \le \epsilon, \qquad
        h_t^k \text{ from } x_{t-k+1}, \dots, x_t \text{ and a zero state}

    A layer that contracts at a rate :math:`\lambda < 1` forgets: after k steps two runs on the same inputs are
    :math:`\lambda^k` times their first distance apart, which is at most the bound on its states (MATH 4.1; a stack by
    the recursion of 5.4, an LSTM or GRU by 7.1 and 7.2). The window is the shortest for which this is proven. The first
    k outputs are computed from the layer's own initial state and are exact.

    Each output is a function of its window alone, so all of them run in parallel, k steps deep. The price is work: k times
    the recurrent run's. For one long sequence :func:`steadyrnn.to_parallel` shares warm-ups and is cheaper. Windows run
    ``block`` at a time, which bounds the memory of evaluation; a graph for the backward pass keeps all of them.

    The bound holds in exact arithmetic. Rounding, of either run, comes on top (MATH 6.5).

    Args:
        rnn: An RNN, GRU or LSTM of this package or of ``torch.nn``, in one direction, of any number of layers.
        eps: The error allowed, in the 2-norm of every output.
        input_bound: Bound on the 2-norm of every :math:`x_t`; checked on every call.
        block: How many windows run at once, with all rows of the batch; None chooses for about 2^24 numbers.

    Returns:
        A module with ``forward(input) -> output``, ``window``, ``bound`` and ``report``.

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
    if not isinstance(rnn, Layer):
        raise ConversionError(
            "`rnn` must be an RNN, GRU or LSTM, of this package or of torch.nn, but is of type "
            f"{type(rnn).__name__}. Convert the recurrent layer of a larger model."
        )
    _check_positive("eps", eps)
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


def suggest_bptt(
    model: nn.Module,
    eps: float,
    input_bound: float | None = None,
    *,
    of: str = "state",
    loss_gain: float = 1.0,
    loss_smoothness: float = 0.0,
) -> int:
    r"""Return how many steps back training needs to look, from a model's certificate.

    ``of="state"``: the shortest k for which states, or the outputs of a model with a readout, from the last k inputs are
    proven to be within ``eps`` of those from all inputs (MATH 4.1):

    .. math:: L_f \lVert h_t - h_t^k \rVert_2 \le \epsilon, \qquad L_f \text{ the readout's spectral norm, 1 without one}

    ``of="gradient"``: the shortest k found for which the gradient of a loss :math:`p(h_T)` by the recurrent and input
    weights, through the last k steps from a zero state, is proven to be within ``eps`` of the full one in Frobenius norm
    (MATH 4.3). This needs one layer of an RNN with a smooth activation that contracts in the 2-norm.

    Promised is only this, for the weights as they are now and inputs within the bound. Not promised: that training with
    windows of this length reaches the same weights (MATH 4.5 bounds this, growing with every step), nor anything once
    the weights have left the contraction. Ask again during training, or keep the weights in a set where the answer
    stays the same (``SpectralBall``).

    Args:
        model: A recurrent layer of this package or of ``torch.nn``, a ``SequenceModel``, or a module with one such layer.
        eps: The error allowed.
        input_bound: Bound on the 2-norm of every input of the recurrent layer; of a model with an embedding None takes
            the longest row of that.
        of: ``"state"`` or ``"gradient"``.
        loss_gain: For ``"gradient"``, bound on the norm of the loss's gradient by the last state (readout included).
        loss_smoothness: For ``"gradient"``, Lipschitz constant of that gradient.

    Returns:
        The length k, at least 1; of a bidirectional layer, to both sides.

    Raises:
        CertificateError: The model is not proven to forget, or no theorem bounds its gradient.

    Example:
        >>> rnn = sr.RNN(1, 1, nonlinearity="identity", bias=False)
        >>> rnn.weight_hh_l0.data.fill_(0.75), rnn.weight_ih_l0.data.fill_(10.0)
        (tensor([[0.7500]]), tensor([[10.]]))
        >>> suggest_bptt(rnn, eps=1e-3, input_bound=1.0)
        37

    References:
        Miller, Hardt. When Recurrent Models Don't Need To Be Recurrent (Proposition 1, Lemma 2).
        https://arxiv.org/abs/1805.10369
    """
    if of not in ("state", "gradient"):
        raise ArgumentError(f"`of` must be 'state' or 'gradient', but is {of!r}.")
    _check_positive("eps", eps)
    certificate = certify(model, input_bound)
    if of == "state":
        return max(certificate.horizon(eps / above(max(certificate.readout_gain, 2.0**-100))), 1)
    gain, smoothness = check_number("loss_gain", loss_gain), check_number("loss_smoothness", loss_smoothness)
    return _shortest(lambda k: certificate.gradient_truncation_error(k, gain, smoothness), eps)


def _shortest(error: Callable[[int], float], eps: float) -> int:
    """Return a length whose error is proven to be small enough, while that of one step less is not (or there is none)."""
    high = 1
    while not error(high) <= eps:
        high *= 2
        if high > _LONGEST:
            raise CertificateError(f"No window of up to {_LONGEST} steps has an error of at most {eps:g}.")
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if error(middle) <= eps else (middle, high)
    return high


def _certified(rnn: Layer, input_bound: float) -> Certificate:
    """Return the certificate of a layer in one direction, for inputs a rounding beyond the bound too."""
    if rnn.bidirectional:
        raise ConversionError(
            "`rnn` is bidirectional: an output depends on the whole future (MATH 5.4), and a window into the past cannot "
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
    theorems = dict.fromkeys([layer.best.theorem for layer in certificate.layers] + ["MATH 4.1"])
    if len(certificate.layers) > 1:
        theorems["MATH 5.4"] = None
    return WindowReport(
        window, bound, float(eps), float(input_bound), certificate.contraction, certificate.norm,
        certificate.state_bound, "; ".join(theorems),
    )  # fmt: skip


def _refuse_dropout(rnn: Layer, error: type[ArgumentError] | type[ConversionError]) -> None:
    """Refuse random outputs: nothing is equal to them."""
    if rnn.training and rnn.dropout and rnn.num_layers > 1:
        raise error(f"`rnn` is in training mode with dropout={rnn.dropout}: its outputs are random. Call `.eval()` first.")


def _check_positive(name: str, value: float) -> None:
    """Refuse what is no finite number above 0."""
    if not check_number(name, value, finite=True) > 0:
        raise ArgumentError(f"`{name}` must be greater than zero, but is {value}.")


def _as_batch(input: Tensor, rnn: Layer) -> tuple[Tensor, bool]:
    """Return the input as (T, B, D), and whether it had a batch dimension."""
    if not isinstance(input, Tensor):
        raise ArgumentTypeError(f"`input` must be a tensor, but is of type {type(input).__name__}.")
    if input.dim() not in (2, 3):
        raise ShapeError(f"`input` must have 2 dimensions (unbatched) or 3, but has shape {tuple(input.shape)}.")
    if input.dim() == 2:
        return input.unsqueeze(1), False
    return input.transpose(0, 1) if rnn.batch_first else input, True


def _covered(rnn: Layer, input_bound: float) -> float:
    """Return the bound the proof is made for: a vector scaled to the user's bound is rounded, and must still be inside."""
    first: Tensor = rnn.all_weights[0][0]
    return float(input_bound) * input_slack(rnn.input_size, first.dtype)


def _check_norms(data: Tensor, input_bound: float, covered: float) -> None:
    """Refuse inputs that the proof does not cover."""
    if torch.compiler.is_compiling():
        norms = torch.linalg.vector_norm(data.detach().double(), dim=-1)
        torch._assert_async((norms <= covered).all(), "`input` must have vectors of 2-norm up to `input_bound`")
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
