"""The same recurrent network in other coordinates of its state."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from steadyrnn.activations import Activation
from steadyrnn.certificates.layer import Weights, read_weights
from steadyrnn.checks import check_finite, check_matrix, without_autocast
from steadyrnn.errors import ArgumentError, ConversionError, ShapeError
from steadyrnn.layers.rnn import RNN

from .rnn import as_rnn, fresh_rnn

__all__ = ["ChangedBasis", "change_basis"]


class ChangedBasis(NamedTuple):
    """A network whose states are ``T h``, and the way back.

    A readout C of the original becomes ``C @ inverse``; states and outputs ``y`` become ``y @ inverse.mT`` (of a
    bidirectional network, each half by itself).
    """

    rnn: RNN
    inverse: Tensor  # (H, H)


@torch.no_grad()
def change_basis(rnn: nn.Module, matrix: Tensor) -> ChangedBasis:
    r"""Return the RNN whose states are :math:`T h_t`, and :math:`T^{-1}` for whoever reads them.

    .. math:: (W, F, b, C, h_{-1}) \to (T W T^{-1}, T F, T b, C T^{-1}, T h_{-1})

    The input-output map stays if :math:`T \varphi(a) = \varphi(T a)`. That holds for every invertible T if
    :math:`\varphi` is the identity; for a permutation times a positive diagonal if :math:`\varphi(d a) = d \varphi(a)` for
    :math:`d > 0` (ReLU, leaky ReLU, the absolute value); and for a permutation if :math:`\varphi` acts on each unit alike.
    The bias is transformed too, which the paper's list leaves out; Note [mathematics], section 1.1.

    Weights are multiplied in float64 and cast back: with powers of two in T, or a permutation, nothing is rounded. Every
    layer and direction gets the same T, and the layers above read through :math:`T^{-1}`. The recurrent weight of the
    result is free.

    Args:
        rnn: An :class:`~steadyrnn.layers.rnn.RNN` or a :class:`torch.nn.RNN`.
        matrix: T, shape ``(H, H)``.

    Returns:
        The network and :math:`T^{-1}`, in the layer's dtype.

    Raises:
        ConversionError: T does not commute with the activation.
        ArgumentError: T is singular up to rounding.

    Example:
        >>> rnn = sr.RNN(2, 3, nonlinearity="relu")
        >>> changed, inverse = change_basis(rnn, torch.diag(torch.tensor([2.0, 0.5, 4.0])))
        >>> x = torch.randn(7, 1, 2)
        >>> torch.equal(changed(x)[0] @ inverse.mT, rnn(x)[0])
        True

    References:
        Emami, Sahraee-Ardakan, Fletcher, Rangan. Input-Output Equivalence of Unitary and Contractive RNNs.
        NeurIPS 2019. https://arxiv.org/abs/1910.13672
    """
    ours = as_rnn(rnn)
    check_finite("matrix", check_matrix("matrix", matrix, square=True))
    if len(matrix) != ours.hidden_size:
        raise ShapeError(f"`matrix` must have {ours.hidden_size} rows (hidden_size), but has shape {tuple(matrix.shape)}.")
    forth = matrix.detach().double().cpu()
    back = _inverse(forth, ours.activation)
    with without_autocast(ours.weight_ih_l0.device):
        layers = read_weights(ours)
        changed = fresh_rnn(ours, ours.hidden_size, ours.bias, ours.learn_initial_state)
        for depth, row in enumerate(layers):
            for way, weights in enumerate(row):
                _fill(changed, RNN.suffix(depth, way), weights, forth, back, depth > 0)
    return ChangedBasis(changed.train(rnn.training), back.to(ours.weight_ih_l0))


def _inverse(forth: Tensor, activation: Activation) -> Tensor:
    """Return the inverse of a matrix that commutes with the activation; refuse others."""
    links = forth != 0
    monomial = bool((links.sum(0) == 1).all()) and bool((links.sum(1) == 1).all()) and bool((forth >= 0).all())
    if monomial and activation.elementwise and activation.parameter_size(2) is None:
        if activation.homogeneous or bool((forth[links] == 1).all()):
            return torch.where(links, 1 / forth, 0.0).mT.contiguous()
    elif activation.homogeneous and activation.slopes == (1.0, 1.0):  # the identity
        values = torch.linalg.svdvals(forth)
        if not float(values[-1]) > 4 * len(forth) * 2.0**-53 * float(values[0]):
            raise ArgumentError("`matrix` is singular up to rounding, so it is no change of basis.")
        inverse: Tensor = torch.linalg.inv(forth)
        return inverse
    allowed = {
        True: "a permutation times a positive diagonal",
        False: "a permutation" if activation.elementwise else "no matrix that is known",
    }[activation.homogeneous]
    raise ConversionError(
        f"`matrix` must commute with the activation {activation.name}: {allowed} does, but `matrix` is something else. "
        " Any invertible matrix does with nonlinearity='identity'."
    )


def _fill(changed: RNN, end: str, weights: Weights, forth: Tensor, back: Tensor, above: bool) -> None:
    """Write one layer in one direction; ``above`` says whether its input is transformed too."""
    weight = weights.weight_ih
    if above:
        weight = torch.cat([columns @ back for columns in weight.split(len(back), dim=1)], dim=1)
    values = {"weight_ih": forth @ weight, "weight_hh": forth @ weights.weight_hh @ back}
    vectors = {"bias_ih": weights.bias_ih, "bias_hh": weights.bias_hh}
    if weights.initial:
        vectors["initial_state"] = weights.initial[0]
    values |= {name: forth @ vector for name, vector in vectors.items() if vector is not None}
    for name, value in values.items():
        getattr(changed, f"{name}{end}").copy_(value)
