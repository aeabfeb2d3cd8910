"""The gradient of a loss by the initial state: what arrives of it at the first step."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from steadyrnn.checks import check_positive_int
from steadyrnn.errors import ArgumentError, ArgumentTypeError
from steadyrnn.layers.base import RecurrentLayer
from steadyrnn.models.sequence import SequenceModel

from .unrolled import Layer

__all__ = ["StateGradient", "initial_state_gradient", "initial_states"]


class StateGradient(NamedTuple):
    """Norms of the gradient of a loss by the initial state; see :func:`initial_state_gradient`."""

    mean: float
    shared: float


def initial_state_gradient(module: nn.Module, loss: Callable[[Any], Tensor], rows: int) -> StateGradient:
    r"""Measure :math:`\lVert \partial L / \partial h_0 \rVert` of a recurrent module.

    For a loss :math:`L = \frac1B \sum_b L_b`, a mean over rows that start from :math:`h_0^b`, the result holds

    .. math:: \texttt{mean} = \frac1B \sum_b \lVert \partial L_b / \partial h_0^b \rVert_2, \qquad
        \texttt{shared} = \Bigl\lVert \sum_b \partial L / \partial h_0^b \Bigr\rVert_2 :

    the mean norm of a row's own gradient, and the norm of the gradient by the one vector that all rows start from, which
    is what a learned initial state is trained by. Rows may cancel in ``shared``, so it is at most ``mean``. The state of an
    LSTM is the pair (h, c), that of a stack the states of all layers. It is zero or the learned one.

    One forward and one backward pass, on the module's own engine and in its dtype; norms are taken in float64. Gradients of
    parameters are neither computed nor changed.

    Args:
        module: An RNN, GRU or LSTM of this package or of ``torch.nn``, or a ``SequenceModel`` of one.
        loss: From the initial state ``hx``, as the module takes it, to the loss, one number: the mean over the rows.
        rows: B.

    Example:
        >>> model = sr.SequenceModel(sr.RNN(2, 4, nonlinearity="identity", transition="ornn"), 1)
        >>> x = torch.randn(50, 3, 2)
        >>> found = initial_state_gradient(model, lambda hx: model(x, hx)[0].mean(), rows=3)
        >>> bool(torch.isclose(torch.tensor(found.mean), model.readout.weight.norm()))  # an orthogonal map keeps its length
        True

    References:
        Zhang, Lei, Dhillon. Stabilizing Gradients for Deep Neural Networks via Efficient SVD Parameterization.
        ICML 2018 (Figure 4). https://arxiv.org/abs/1803.09327
    """
    states = tuple(state.requires_grad_() for state in initial_states(module, rows))
    with torch.enable_grad():
        value = loss(states[0] if len(states) == 1 else states)
    if not isinstance(value, Tensor) or value.dim() != 0:
        raise ArgumentError("`loss` must return one number, a tensor without dimensions: the mean over the rows.")
    if not value.requires_grad:
        raise ArgumentError("`loss` returned a number that does not depend on the initial state: hand `hx` to the module.")
    found = torch.autograd.grad(value, states, allow_unused=True, materialize_grads=True)
    gradients = torch.cat([gradient.double().transpose(0, 1).flatten(1) for gradient in found], dim=1)  # (B, S)
    return StateGradient(float(rows * gradients.norm(dim=1).mean()), float(gradients.sum(0).norm()))


def initial_states(module: nn.Module, rows: int) -> tuple[Tensor, ...]:
    """Return the state that a module starts from in every row, zero or learned, each (layers * directions, B, H).

    Example:
        >>> [state.shape for state in initial_states(sr.LSTM(2, 4, num_layers=2), rows=3)]
        [torch.Size([2, 3, 4]), torch.Size([2, 3, 4])]
    """
    check_positive_int("rows", rows)
    rnn = module.rnn if isinstance(module, SequenceModel) else module
    if not isinstance(rnn, Layer):
        raise ArgumentTypeError(
            "`module` must be an RNN, GRU or LSTM, of this package or of torch.nn, or a SequenceModel, but is of type "
            f"{type(module).__name__}."
        )
    own = rnn.cell.record.state_names if isinstance(rnn, RecurrentLayer) else ("state", "cell")[: 1 + isinstance(rnn, nn.LSTM)]
    directions = 2 if rnn.bidirectional else 1
    first = next(rnn.parameters())
    zero = torch.zeros(rnn.hidden_size, dtype=first.dtype, device=first.device)
    made = []
    for name in own:
        ends = [f"_l{layer}{'_reverse' * way}" for layer in range(rnn.num_layers) for way in range(directions)]
        learned: list[Tensor] = [getattr(rnn, f"initial_{name}{end}", zero).detach() for end in ends]
        made.append(torch.stack(learned).unsqueeze(1).repeat(1, rows, 1))
    return tuple(made)
