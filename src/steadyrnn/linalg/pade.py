"""The exponential of a skew matrix of moderate norm, and its gradient, by products alone."""

import math
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from steadyrnn.checks import carries_transform, without_autocast
from steadyrnn.gpu.torch_private import BelowAutograd

__all__ = ["exp_by_products"]

_DEGREE = 7
_C = [
    math.comb(_DEGREE, k) * math.factorial(2 * _DEGREE - k) / math.factorial(2 * _DEGREE) for k in range(_DEGREE + 1)
]  # of the polynomial p, from the constant up
_R = [1.0, 0.019230768662596178, 0.00016810071271611453, 9.098395560091955e-07, 3.4023352241593572e-09, 9.415239076228087e-12]
"""Of the polynomial r of B^2, from the constant up: the Chebyshev fit of 1 / |p|^2, to 3.6e-10 up to the reach."""
_REACH = 3.9  # the largest angle at which the error of the quotient, 2.2e-16 theta^15, is of the size of float32's rounding


def exp_by_products(skew: Tensor) -> Tensor | None:
    r"""Return the exponential of a real skew matrix in float32 if its norm is proven moderate, and None otherwise.

    .. math:: e^B \approx p(-B)^{-1} p(B) = K\,p(B), \qquad K = p(B)\,\bigl(p(B)^\top p(B)\bigr)^{-1} = p(B)\,r(B^2)

    is the diagonal Padé quotient of degree 7. For a skew :math:`B` it is orthogonal whatever its degree, since
    :math:`p(-B) = p(B)^\top`; only the angles have an error, of :math:`2.2 \cdot 10^{-16}\,\theta^{15}` each, below
    :math:`1.3 \cdot 10^{-7}` up to :math:`\theta = 3.9`. There :math:`p(B)` is well conditioned, as
    :math:`1 \le |p(i\theta)|^2 < 1.4`, so that the inverse costs no digits, and is a polynomial :math:`r` of degree 5 in
    :math:`B^2` up to :math:`3.6 \cdot 10^{-10}`: there is nothing to solve. The norm is bounded by

    .. math:: \lVert B \rVert \le \lVert B \rVert_1, \qquad \lVert B \rVert \le \lVert B^q \rVert_F^{1/q}, \quad q = 6, 12, 24

    The gradient is that of the quotient, where the derivatives of even powers of :math:`B` are symmetric and those of
    odd ones skew. Costs 7 products (of dense matrices with large angles up to 9), and the gradient 7. That is less than
    half of an eigendecomposition, and more accurate.

    Args:
        skew: :math:`B`, shape ``(n, n)``, float32.

    Returns:
        :math:`e^B`, shape ``(n, n)``; None where the norm is not proven to be at most 3.9.

    Example:
        >>> quarter = torch.tensor([[0.0, -torch.pi / 2], [torch.pi / 2, 0.0]])
        >>> exp_by_products(quarter).round().abs(), exp_by_products(4 * quarter)
        (tensor([[0., 1.],
                [1., 0.]]), None)

    References:
        Higham. Functions of Matrices, section 10.3. SIAM 2008.
        Najfeld, Havel. Derivatives of the matrix exponential and their computation. Adv. Appl. Math. 16, 1995.
    """
    powers = _even_powers(skew.detach())
    if powers is None:
        return None
    value: Tensor = _Quotient.apply(skew, *powers)  # type: ignore[no-untyped-call]
    return value


@torch.no_grad()
def _even_powers(b: Tensor) -> tuple[Tensor, Tensor, Tensor] | None:
    """Return the second, fourth and sixth power, or None where the norm may be beyond the reach."""
    with without_autocast(b.device):
        near = not len(b) or float(b.abs().sum(0).amax()) <= _REACH
        if not near and not float(torch.dot(b.flatten(), b.flatten())) <= _REACH**2 * len(b):
            return None  # the norm is larger, or NaN
        if not torch.equal(b, -b.mT):  # what is said of the norm, and of the inverse, holds for skew matrices alone
            return None
        b2 = b @ b
        b4 = b2 @ b2
        b6 = b4 @ b2
        return (b2, b4, b6) if near or _is_within(b, b6) else None


def _is_within(b: Tensor, b6: Tensor) -> bool:
    """Say whether the norm of B is proven to be within the reach by that of a power."""
    power, exponent = b6, 6
    while True:
        bound = float(power.norm()) ** (1 / exponent)
        if bound <= _REACH:
            return True
        if exponent == 24 or not bound <= _REACH * len(b) ** (0.5 / exponent):  # then the norm is larger, or NaN
            return False
        power, exponent = power @ power, 2 * exponent


class _Quotient(Function):
    """The Padé quotient; a transform of ``torch.func`` never gets here, so that the context can be filled in at once."""

    @staticmethod
    def forward(ctx: Any, skew: Tensor, b2: Tensor, b4: Tensor, b6: Tensor) -> Tensor:
        with without_autocast(skew.device), BelowAutograd():
            odd = (_C[7] * b6).add_(b4, alpha=_C[5]).add_(b2, alpha=_C[3])
            p = (_C[6] * b6).add_(b4, alpha=_C[4]).add_(b2, alpha=_C[2])  # the even part
            odd.diagonal().add_(_C[1])
            p.diagonal().add_(_C[0])
            p.addmm_(skew, odd)
            r = (_R[3] * b6).add_(b4, alpha=_R[2]).add_(b2, alpha=_R[1])
            r.diagonal().add_(_R[0])
            inverse = p @ r.addmm_(b4, (_R[4] * b4).add_(b6, alpha=_R[5]))  # of p(-B)
            value = inverse @ p
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(skew, b2, value, odd, inverse)
        return value

    @staticmethod
    def backward(ctx: Any, g: Tensor | None) -> tuple[Tensor | None, None, None, None]:
        if g is None:
            return None, None, None, None
        with without_autocast(g.device):
            return _Quotient.pull_back(ctx, g), None, None, None

    @staticmethod
    def pull_back(ctx: Any, g: Tensor) -> Tensor:
        """Return the gradient of the skew matrix, differentiable where that is wanted."""
        b, b2, value, odd, inverse = ctx.saved_tensors
        if torch.is_grad_enabled():  # a second derivative is wanted
            alias = b.view_as(b)  # hooks on the tensor itself would run here, too
            return _minus_transpose(torch.autograd.grad(torch.matrix_exp(alias), alias, g, create_graph=True)[0]) / 2
        # a tangent of the cotangent is followed by autograd: below it, it would be lost
        with nullcontext() if carries_transform(g) else BelowAutograd():
            return _pull_back(g, b, b2, value, odd, inverse)


def _pull_back(g: Tensor, b: Tensor, b2: Tensor, value: Tensor, odd: Tensor, inverse: Tensor) -> Tensor:
    r"""Return the gradient of the skew matrix; a name ends in what it is the gradient of.

    With symmetric :math:`X = B^2`, :math:`A_2` and :math:`A_3`, what :math:`A_2` at :math:`X^2` and :math:`A_3` at
    :math:`X^3` give at X is the sum of :math:`(Z + Z^\top / 2 + A_2) X` and its transpose, with :math:`Z = A_3 X`.
    """
    to_p = inverse.mT @ g
    both = torch.addmm(to_p, to_p, value.mT)  # and, with a minus, that of p(-B)
    to_u, to_v = _minus_transpose(both), _plus_transpose(to_p.sub_(both, alpha=0.5))  # of the parts of p; the first twice
    to_odd = _plus_transpose(b @ to_u)  # minus four times that of the factor of B, as are all that follow
    to_b6 = (_C[7] * to_odd).sub_(to_v, alpha=4 * _C[6])
    z = to_b6 @ b2
    to_b4 = (_C[5] * to_odd).sub_(to_v, alpha=4 * _C[4]).add_(z).add_(z.mT, alpha=0.5)
    to_b2 = _plus_transpose(to_b4 @ b2).add_(to_odd, alpha=_C[3]).sub_(to_v, alpha=4 * _C[2])
    return _minus_transpose((to_u @ odd).addmm_(to_b2, b, beta=0.25, alpha=0.25))


def _minus_transpose(matrix: Tensor) -> Tensor:
    return matrix - matrix.mT


def _plus_transpose(matrix: Tensor) -> Tensor:
    return matrix + matrix.mT
