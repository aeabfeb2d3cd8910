"""The exponential of a skew matrix of moderate norm, and its gradient, by products alone."""

from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from steadyrnn.checks import carries_transform, without_autocast
from steadyrnn.gpu.torch_private import BelowAutograd

from .packing import pack_difference, unpack_skew

__all__ = ["exp_by_products"]

# The coefficients of the docstring below, rounded one after the other to float32, the rest fitted again after each.
_REACH = 3.9  # the largest angle for which they were fitted
_D = (0.00014073503552936018, 0.029835673049092293)  # of X^2 and X in D
_U = (0.039703331887722015, 0.0019750529900193214)  # of D^2 and X in U
_EVEN = (-0.12529981136322021, 7.28595495223999, 11.676901817321777)  # of X, D and U in e
_INVERSE = (-0.002695229835808277, 0.6139149069786072, 2.071104049682617)  # of X, D and U in r
_TABLE = torch.tensor([_EVEN, _INVERSE, (0.0, 1.0, 1.0)], dtype=torch.float32, device="cpu")


def exp_by_products(packed: Tensor, size: int) -> Tensor | None:
    r"""Return the exponential of a real skew matrix in float32 if its norm is proven moderate, and None otherwise.

    .. math::
        e^B \approx p(-B)^{-1} p(B) = p(B)\,r(B^2)\,p(B), \qquad p(B) = e(B^2) + \tfrac12 B\,o(B^2)

    For a skew :math:`B` such a quotient, like Padé's, is orthogonal whatever the polynomial :math:`p`, since
    :math:`p(-B) = p(B)^\top`; only the angles have an error. There is nothing to solve: the inverse is
    :math:`p(B)\,r(B^2)` with :math:`r(-\theta^2) = |p(i\theta)|^{-2}`. No digits are lost, since
    :math:`1 \le |p(i\theta)|^2 < 1.4`. With

    .. math:: X = B^2, \quad D = d_1 X^2 + d_2 X, \quad U = u_1 D^2 + u_2 X, \qquad o = I + D + U

    :math:`e` and :math:`r` are :math:`I` plus combinations of :math:`X`, :math:`D` and :math:`U`. The ten coefficients are
    a minimax fit up to :math:`\theta = 3.9`: an angle has an error below :math:`4 \cdot 10^{-9}`, its derivative one below
    :math:`6 \cdot 10^{-8}`, and :math:`r |p|^2` one below :math:`7 \cdot 10^{-9}`. The norm is bounded by

    .. math::
        \lVert B \rVert \le \lVert B \rVert_1, \qquad \lVert B \rVert \le \lVert B^q \rVert_F^{1/q}, \quad q = 4, 8, 16, 32

    The gradient is that of the quotient, where the derivatives by :math:`X`, :math:`D` and :math:`U` are symmetric. Costs
    6 products (of dense matrices with large angles up to 9), and the gradient 7. That is less than half of an
    eigendecomposition, and more accurate.

    Args:
        packed: The entries of :math:`B` below its diagonal, row by row, shape ``(n(n-1)/2,)``, float32.
        size: :math:`n`.

    Returns:
        :math:`e^B`, shape ``(n, n)``; None where the norm is not proven to be at most 3.9.

    Example:
        >>> quarter = torch.tensor([torch.pi / 2])
        >>> exp_by_products(quarter, 2).round().abs(), exp_by_products(4 * quarter, 2)
        (tensor([[0., 1.],
                [1., 0.]]), None)

    References:
        Higham. Functions of Matrices, section 10.3. SIAM 2008.
        Najfeld, Havel. Derivatives of the matrix exponential and their computation. Adv. Appl. Math. 16, 1995.
    """
    value: Tensor | None = _Quotient.apply(packed, size)  # type: ignore[no-untyped-call]
    return value


def _powers(b: Tensor) -> Tensor | None:
    """Return X, D and U, shape (3, n, n), or None where the norm of B may be beyond the reach."""
    near = float(b.abs().sum(0).amax()) <= _REACH
    if not near and not float(torch.dot(b.flatten(), b.flatten())) <= _REACH**2 * len(b):
        return None  # the norm is larger, or NaN
    powers = b.new_empty(3, *b.shape)
    x, d, u = powers.unbind()
    torch.mm(b, b, out=x)
    torch.addmm(x, x, x, alpha=_D[0], beta=_D[1], out=d)
    if not near and not _is_within(d.sub(x, alpha=_D[1]) / _D[0]):
        return None
    torch.addmm(x, d, d, alpha=_U[0], beta=_U[1], out=u)
    return powers


def _is_within(b4: Tensor) -> bool:
    """Say whether the norm of B is proven to be within the reach by that of a power."""
    power, exponent = b4, 4
    while True:
        bound = float(power.norm()) ** (1 / exponent)
        if bound <= _REACH:
            return True
        if exponent == 32 or not bound <= _REACH * len(b4) ** (0.5 / exponent):  # then the norm is larger, or NaN
            return False
        power, exponent = power @ power, 2 * exponent


class _Quotient(Function):
    """The quotient; a transform of ``torch.func`` never gets here, so that the context can be filled in at once."""

    @staticmethod
    def forward(ctx: Any, packed: Tensor, size: int) -> Tensor | None:
        with without_autocast(packed.device), BelowAutograd():
            b = unpack_skew(packed, size)
            powers = _powers(b)
            if powers is None:
                return None
            polynomials = (_TABLE.to(b.device) @ powers.flatten(1)).view_as(powers)
            polynomials.diagonal(0, 1, 2).add_(1)
            p, r, odd = polynomials.unbind()
            p.addmm_(b, odd, alpha=0.5)
            inverse = torch.mm(p, r, out=powers[2])  # of p(-B), in the place of U, which is not needed again
            value: Tensor = inverse @ p
            odd = odd.clone()  # so that the two others are not kept
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(packed, b, powers, value, odd)
        return value

    @staticmethod
    def backward(ctx: Any, g: Tensor | None) -> tuple[Tensor | None, None]:
        if g is None:
            return None, None
        with without_autocast(g.device):
            return _Quotient.pull_back(ctx, g), None

    @staticmethod
    def pull_back(ctx: Any, g: Tensor) -> Tensor:
        """Return the gradient of the packed entries, differentiable where that is wanted."""
        packed, b, powers, value, odd = ctx.saved_tensors
        if torch.is_grad_enabled():  # a second derivative is wanted
            alias = packed.view_as(packed)  # hooks on the tensor itself would run here, too
            again = torch.matrix_exp(unpack_skew(alias, len(b)))
            slope: Tensor = torch.autograd.grad(again, alias, g, create_graph=True)[0]
            return slope
        # a tangent of the cotangent is followed by autograd: below it, it would be lost
        with nullcontext() if carries_transform(g) else BelowAutograd():
            return pack_difference(_pull_back(g, b, powers, value, odd))


def _pull_back(g: Tensor, b: Tensor, powers: Tensor, value: Tensor, odd: Tensor) -> Tensor:
    r"""Return a gradient of B, not made skew; a name ends in what it is the gradient of.

    A symmetric gradient Y of the square of a symmetric S gives :math:`YS + SY = YS + (YS)^\top` at S.
    """
    x, d, inverse = powers.unbind()
    to_p = inverse.mT @ g
    both = torch.addmm(to_p, to_p, value.mT)  # and, with a minus, that of p(-B)
    to_half = both - both.mT.contiguous()  # twice that of the odd half of p
    to_even = _plus_transpose(to_p.sub_(both, alpha=0.5))
    to_odd = _plus_transpose(b @ to_half)  # -8 times that of o, as are all that follow
    to_u = to_odd.sub(to_even, alpha=8 * _EVEN[2])
    to_d = _plus_transpose(torch.addmm(to_odd, to_u, d, beta=0.5, alpha=_U[0])).sub_(to_even, alpha=8 * _EVEN[1])
    to_x = _plus_transpose(torch.addmm(to_d, to_d, x, beta=_D[1] / 2, alpha=_D[0]))
    to_x = to_x.add_(to_u, alpha=_U[1]).sub_(to_even, alpha=8 * _EVEN[0])
    return (to_half @ odd).addmm_(to_x, b, beta=0.25, alpha=0.25)


def _plus_transpose(matrix: Tensor) -> Tensor:
    """Return the sum of a matrix, which nobody needs after, and its transpose: copied first, it is read in blocks."""
    return matrix.mT.contiguous().add_(matrix)
