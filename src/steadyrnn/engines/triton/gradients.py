"""The products outside the loop: the gradients of input, weights and biases from those of the gates."""

from typing import cast

import torch
from torch import Tensor

from steadyrnn.linalg.operators import DiagonalLowRank

from ..base import Gate, unflatten_weight
from ..loop.call import Call
from ..loop.family import History, flat, product_of
from .launch import Loop, inside, row_lengths
from .specs import CellSpec

__all__ = ["bias_gradients", "input_gradients", "start_gradient", "sum_products", "weight_gradients"]

DEPTH, WAYS = 1024, 8
"""Products over time: how many rows are added up one after the other, and how many such sums are made side by side."""


def sum_products(left: Tensor, right: Tensor) -> Tensor:
    r"""Return :math:`A^\top B` for ``left`` (R, M) and ``right`` (R, N), a sum over the many rows of all times; (M, N).

    On a GPU a product is a chain of R additions, or a few long ones, and errs by about their square root; so it is cut into
    short ones. 16-bit products are added up in float32, and parts of them would be rounded once more: they stay whole.

    Example:
        >>> sum_products(torch.ones(3000, 1), torch.ones(3000, 2))
        tensor([[3000., 3000.]])
    """
    if inside(left.dtype) != left.dtype:
        return left.t() @ right
    ways = max(1, min(WAYS, left.shape[0] // DEPTH))
    total = left.new_zeros(ways, left.shape[1], right.shape[1])
    for a, b in zip(left.split(ways * DEPTH), right.split(ways * DEPTH), strict=True):
        cut = a.shape[0] - a.shape[0] % ways
        total.baddbmm_(a[:cut].unflatten(0, (ways, cut // ways)).mT, b[:cut].unflatten(0, (ways, cut // ways)))
        if cut < a.shape[0]:
            total[0].addmm_(a[cut:].t(), b[cut:])
    return total.sum(0)


def first_steps(call: Call, adjoint: Tensor) -> Tensor:
    """Return ``adjoint`` (T, B, N) at each row's first step, zero for a row of length 0; shape (B, N)."""
    if call.sizes is None or not call.reverse:
        return adjoint[call.times[0]]
    batch, device = adjoint.shape[1], adjoint.device
    last = (row_lengths(call.sizes, batch) - 1).clamp(min=0)  # what a row of length 0 has at time 0 is zero
    return adjoint[last.to(device), torch.arange(batch, device=device)]


def history(call: Call, adjoint: Tensor, states: Tensor) -> History:
    """Return adjoints (T, B, N) beside the states (T, B, H) they came from, the initial ones apart."""
    late, early = (adjoint[:-1], states[1:]) if call.reverse else (adjoint[1:], states[:-1])
    return History(late, early, first_steps(call, adjoint), call.state[0])


def dense_gradient(history: History) -> Tensor:
    """Return the gradient of a dense recurrent weight."""
    late, early, first, start = history
    return sum_products(flat(late), flat(early)).addmm_(first.t(), start)


def weight_gradients(call: Call, spec: CellSpec, adjoint: Tensor, output: Tensor, extra: Tensor | None) -> list[Tensor]:
    """Return the gradient of the recurrent weight, or of each of its factors."""
    size = output.shape[2]
    if spec.step == "gru_after":  # slots are n behind the reset gate, r, z, and n before it
        grad = dense_gradient(history(call, adjoint[..., : 3 * size], output))
        return [torch.cat([grad[size:], grad[:size]])]
    if spec.step == "gru_before" and extra is not None:
        grad = dense_gradient(history(call, adjoint[..., : 2 * size], output))
        return [torch.cat([grad, sum_products(flat(adjoint[..., 2 * size :]), flat(extra))])]
    if len(call.recurrent) == 1:
        return [dense_gradient(history(call, adjoint, output))]
    return product_of(cast(Gate, unflatten_weight(call.recurrent))).gradient(history(call, adjoint, output))


def input_gradients(call: Call, adjoint: Tensor, needs_input: bool) -> tuple[Tensor | None, Tensor]:
    """Return the gradients of the input and of the input weight."""
    rows = flat(adjoint[..., adjoint.shape[2] - call.weight_ih.shape[0] :])
    grad_x = (rows @ call.weight_ih).view(call.input.shape) if needs_input else None
    return grad_x, sum_products(rows, flat(call.input))


def bias_gradients(call: Call, spec: CellSpec, adjoint: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """Return the gradients of both biases, None where there is none."""
    if call.bias_ih is None and call.bias_hh is None:
        return None, None
    total, size = adjoint.sum((0, 1)), call.state[0].shape[1]
    input_part = total[len(total) - call.weight_ih.shape[0] :]
    state_part = torch.cat([total[size : 3 * size], total[:size]]) if spec.step == "gru_after" else total
    return (
        None if call.bias_ih is None else input_part.clone(),
        None if call.bias_hh is None else state_part.clone(),
    )


def start_gradient(loop: Loop) -> Tensor:
    """Return the gradient of the initial state, (B, H): what the loop left, and what its last adjoints pull back."""
    call, count = loop.call, loop.spec.pulled
    wide = inside(call.input.dtype)
    left = [loop.result(loop.shared, part) for part in range(count)]
    adjoint = torch.cat(left, dim=1).to(wide)  # (B, count * H)
    weight = [tensor.to(wide) for tensor in call.recurrent]
    if len(weight) == 1:
        pulled = adjoint @ weight[0][: adjoint.shape[1]]
    else:
        diagonal, left_factor, right_factor = weight
        pulled = DiagonalLowRank(diagonal, right_factor, left_factor).apply(adjoint)  # of the transposed matrix
    return (loop.result(loop.carry, 0) + pulled).to(call.input.dtype)
