"""The gradient of the loss at one step by the input at an earlier one: how far back a prediction looks."""

from torch import Tensor, nn

from .adjoint import walk_back
from .losses import Loss, loss_partials
from .unrolled import unroll

__all__ = ["input_gradient"]


def input_gradient(module: nn.Module, input: Tensor, loss: Loss) -> tuple[Tensor, Tensor]:
    r"""Measure how sensitive the loss at a step is to earlier inputs.

    .. math:: g_i = \operatorname{mean}_{t, b} \lVert \nabla_{x_t^b} p_{t+i}^b \rVert_2, \qquad i = 0, \dots, T - 1

    This is the mean of ``gradient_flow(module, input, loss, wrt="input")`` without the certified band, which costs more than
    the measurement where a network is wide. Token inputs are differentiated behind the embedding. States are those of the
    module in its dtype, derivatives are in float64. :math:`O(T^2 B G H^2)` operations.

    Args:
        module: An RNN, GRU or LSTM of this package or of ``torch.nn``, in one direction, or a ``SequenceModel`` of one.
        input: As the module takes it, (T, B, D), or tokens (T, B).
        loss: From the outputs (logits of a ``SequenceModel``) to one value per step and row, (T, B), each a function of the
            output at its own step and row.

    Returns:
        The means by lag i, and of how many pairs of steps each is the mean; both (T,), float64.

    Example:
        >>> rnn = sr.RNN(1, 1, nonlinearity="identity")
        >>> for weight, value in ((rnn.weight_ih_l0, 1.0), (rnn.weight_hh_l0, 0.5)):
        ...     _ = torch.nn.init.constant_(weight, value)
        >>> means, counts = input_gradient(rnn, torch.randn(4, 3, 1), lambda h: h.sum(-1))
        >>> means.tolist(), counts.tolist()
        ([1.0, 0.5, 0.25, 0.125], [12.0, 9.0, 6.0, 3.0])

    References:
        Miller, Hardt. When Recurrent Models Don't Need To Be Recurrent (Figure 2). https://arxiv.org/abs/1805.10369
    """
    run = unroll(module, input)
    tally = walk_back(run, loss_partials(run, loss), "input")
    return tally.mean[0], tally.count
