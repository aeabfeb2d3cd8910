"""The singular values of every recurrent weight of a module, and how far they are from 1."""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

from steadyrnn.checks import check_finite
from steadyrnn.errors import ArgumentError, ArgumentTypeError
from steadyrnn.layers.base import RecurrentLayer
from steadyrnn.layers.weights import RecurrentWeights

__all__ = ["recurrent_weights", "spectral_margin", "spectrum"]

_TORCH_GATES: dict[type[nn.Module], str] = {
    nn.RNN: "h",
    nn.GRU: "rzn",
    nn.LSTM: "ifgo",
    nn.RNNCell: "h",
    nn.GRUCell: "rzn",
    nn.LSTMCell: "ifgo",
}
"""The gates of torch's layers, in the order in which they are stacked."""


@torch.no_grad()
def spectrum(module: nn.Module) -> dict[str, Tensor]:
    r"""Return the singular values of every recurrent weight inside a module, gate by gate.

    .. math:: W_g = U \operatorname{diag}(\sigma_1 \ge \dots \ge \sigma_H) V^\top

    A constrained weight is evaluated and taken as the layer uses it. Each gate stands by itself: the stack of all gates
    is no map of the state to itself, and its singular values say nothing of the recurrence. The values come from an SVD
    in float64; each is off by at most a small multiple of :math:`H u \sigma_1`.

    Args:
        module: A recurrent layer or cell of this package or of ``torch.nn``, or any module that contains some.

    Returns:
        For every gate the values in descending order, shape (H,), float64, on the weight's device. Keys are the path of
        the layer, the weight's name and the gate: ``rnn.weight_hh_l0_reverse.n``; the only gate of an RNN is ``h``. A
        module without recurrent weights has an empty spectrum.

    Raises:
        NotFiniteError: A weight holds NaN or infinity.

    Example:
        >>> model = sr.SequenceModel(sr.GRU(3, 2, transition=sr.Spectral(center=0.5, radius=0.0)), 1)
        >>> values = spectrum(model)
        >>> list(values)
        ['rnn.weight_hh_l0.r', 'rnn.weight_hh_l0.z', 'rnn.weight_hh_l0.n']
        >>> values["rnn.weight_hh_l0.n"].round(decimals=4)
        tensor([0.5000, 0.5000], dtype=torch.float64)
    """
    if not isinstance(module, nn.Module):
        raise ArgumentTypeError(f"`module` must be a module, but is of type {type(module).__name__}.")
    values = {}
    for name, (weight, gates) in recurrent_weights(module).items():
        stacked = check_finite(name.rpartition(".")[2], weight).double()
        for gate, rows in zip(gates, stacked.chunk(len(gates)), strict=True):
            values[f"{name}.{gate}"] = torch.linalg.svdvals(rows)
    return values


@torch.no_grad()
def recurrent_weights(module: nn.Module) -> dict[str, tuple[Tensor, str]]:
    """Return every recurrent weight inside a module as its layer uses it, gates stacked, and the letters of its gates.

    Example:
        >>> {name: (weight.shape, gates) for name, (weight, gates) in recurrent_weights(sr.LSTM(3, 2)).items()}
        {'weight_hh_l0': (torch.Size([8, 2]), 'ifgo')}
    """
    found = {}
    for path, part in module.named_modules():
        for name, gates in _recurrent_weights(part):
            found[f"{path}.{name}" if path else name] = getattr(part, name).detach(), gates
    return found


def spectral_margin(spectrum: Mapping[str, Tensor]) -> float:
    r"""Return how far the singular values are from 1.

    .. math:: \max_{g, i} |\sigma_i(W_g) - 1|

    Zero for orthogonal weights; at most ``radius`` for a ``Spectral`` constraint around 1.

    Args:
        spectrum: What :func:`spectrum` returned, or the part of it that is of interest.

    Example:
        >>> spectral_margin({"weight_hh_l0.h": torch.tensor([1.25, 1.0, 0.5])})
        0.5

    References:
        Zhang, Lei, Dhillon. Stabilizing Gradients for Deep Neural Networks via Efficient SVD Parameterization.
        ICML 2018 (Figure 4 plots it). https://arxiv.org/abs/1803.09327
    """
    if not spectrum:
        raise ArgumentError("`spectrum` is empty: there is no recurrent weight to take a margin of.")
    return max(float((check_finite(name, values) - 1).abs().max()) for name, values in spectrum.items())


def _recurrent_weights(part: nn.Module) -> Iterator[tuple[str, str]]:
    """Yield the name of every recurrent weight of a layer or cell, with its gates; nothing for another module."""
    gates = part.cell.gates if isinstance(part, RecurrentWeights) else _torch_gates(part)
    if gates is None:
        return
    if not isinstance(part, RecurrentLayer | nn.RNNBase):
        yield "weight_hh", gates
        return
    for layer in range(part.num_layers):
        for way in ("", "_reverse")[: 2 if part.bidirectional else 1]:
            yield f"weight_hh_l{layer}{way}", gates


def _torch_gates(part: nn.Module) -> str | None:
    return next((gates for cls, gates in _TORCH_GATES.items() if isinstance(part, cls)), None)
