"""How far back training needs to look, from a certificate."""

from collections.abc import Callable

from torch import nn

from steadyrnn.bounds.norms import above
from steadyrnn.certificates.certify import certify
from steadyrnn.checks import check_number
from steadyrnn.errors import ArgumentError, CertificateError

__all__ = ["SMALLEST_GAIN", "check_positive", "suggest_bptt"]

SMALLEST_GAIN = 2.0**-100
"""The least that a readout is taken to multiply errors by."""
_LONGEST = 2**40
"""The longest window looked for."""


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
    proven to be within ``eps`` of those from all inputs (Note [mathematics], section 4.1):

    .. math:: L_f \lVert h_t - h_t^k \rVert_2 \le \epsilon, \qquad L_f \text{ the readout's spectral norm, 1 without one}

    ``of="gradient"``: the shortest k found for which the gradient of a loss :math:`p(h_T)` by the recurrent and input
    weights, through the last k steps from a zero state, is proven to be within ``eps`` of the full one in Frobenius norm
    (section 4.3). This needs one layer of an RNN with a smooth activation that contracts in the 2-norm.

    Promised is only this, for the weights as they are now and inputs within the bound. Not promised: that training with
    windows of this length reaches the same weights (section 4.5 bounds this, growing with every step), nor anything once
    the weights have left the contraction. Ask again during training, or keep the weights in a set where the answer
    stays the same (``SpectralBall``).

    Args:
        model: A recurrent layer of this package or of ``torch.nn``, a ``SequenceModel``, or a module with one such layer.
        eps: The error allowed.
        input_bound: Bound on the 2-norm of every input of the recurrent layer; of a model with an embedding, None
            means the longest row of that.
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
    check_positive("eps", eps)
    certificate = certify(model, input_bound)
    if of == "state":
        return max(certificate.horizon(eps / above(max(certificate.readout_gain, SMALLEST_GAIN))), 1)
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


def check_positive(name: str, value: float) -> None:
    """Refuse what is no finite number above 0.

    Example:
        >>> check_positive("eps", 0.1)
    """
    if not check_number(name, value, finite=True) > 0:
        raise ArgumentError(f"`{name}` must be greater than zero, but is {value}.")
