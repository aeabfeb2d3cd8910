"""The exponential of a skew matrix, with its exact gradient, and the logarithm of a rotation."""

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from steadyrnn.checks import carries_transform, check_finite
from steadyrnn.errors import ConstraintError, ShapeError

__all__ = ["exp_skew", "log_orthogonal", "skew_part"]


def skew_part(matrix: Tensor) -> Tensor:
    r"""Return :math:`(A - A^H)/2`, the skew (skew-Hermitian, if complex) part; shape ``(n, n)``.

    Example:
        >>> skew_part(torch.tensor([[1.0, 2.0], [0.0, 1.0]]))
        tensor([[ 0.,  1.],
                [-1.,  0.]])
    """
    return (matrix - matrix.mH) / 2


def exp_skew(skew: Tensor) -> Tensor:
    r"""Return the exponential of a skew or skew-Hermitian matrix: a rotation, or a unitary matrix.

    .. math:: B = V \operatorname{diag}(i\theta) V^H \quad\Rightarrow\quad \exp(B) = V \operatorname{diag}(e^{i\theta}) V^H

    from one eigendecomposition of the Hermitian :math:`iB`. The gradient, in the Frobenius metric on skew matrices, is

    .. math:: V [\Phi \circ (V^H S V)] V^H, \qquad S = \operatorname{skew}(G W^H), \quad
        \Phi_{jk} = e^{-i\Delta/2} \operatorname{sinc}(\Delta/2), \quad \Delta = \theta_j - \theta_k

    It divides by no gap between angles, so repeated angles and B = 0 are harmless; differentiating through the
    eigendecomposition would give NaN there (MATH 3.5, 3.7). Where B is not exactly skew, pass it through
    :func:`skew_part` first: the gradient is skew.

    Args:
        skew: Shape ``(n, n)``, real skew-symmetric or complex skew-Hermitian.

    Example:
        >>> exp_skew(torch.zeros(2, 2))
        tensor([[1., 0.],
                [0., 1.]])

    References:
        Lin, Wang. uRNN: An Approach to Bounded Gradients (whose printed gradient is exact at B = 0 only).
    """
    if skew.dim() != 2 or skew.shape[0] != skew.shape[1]:
        raise ShapeError(f"`skew` must be a square matrix, but has shape {tuple(skew.shape)}.")
    if carries_transform(skew):
        return torch.linalg.matrix_exp(skew)
    return _ExpSkew.apply(skew)[0]  # type: ignore[no-any-return, no-untyped-call]


class _ExpSkew(Function):
    """Value and eigendecomposition; the latter is kept for the backward pass only."""

    @staticmethod
    def forward(skew: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        negative, vectors = torch.linalg.eigh(1j * skew)
        angles = -negative
        result = (vectors * torch.exp(1j * angles)) @ vectors.mH
        return (result if skew.is_complex() else result.real.contiguous()), angles, vectors

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.mark_non_differentiable(*output[1:])
        ctx.save_for_backward(inputs[0], *output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor, *_: Tensor) -> Tensor:  # type: ignore[override]
        skew, result, angles, vectors = ctx.saved_tensors
        if torch.is_grad_enabled():  # a second derivative is wanted: torch's exponential has one
            return skew_part(_differentiable_gradient(skew, grad))
        s = skew_part(grad @ result.mH).to(vectors.dtype)
        gap = angles.unsqueeze(1) - angles.unsqueeze(0)
        phi = torch.exp(-0.5j * gap) * torch.sinc(gap / (2 * math.pi))
        full = vectors @ (phi * (vectors.mH @ s @ vectors)) @ vectors.mH
        return full if skew.is_complex() else full.real


def _differentiable_gradient(skew: Tensor, grad: Tensor) -> Tensor:
    """Return the gradient of the exponential as a block of a larger one, which autograd differentiates further."""
    size, adjoint = skew.shape[0], skew.mH
    upper = torch.cat([adjoint, grad], dim=1)
    lower = torch.cat([torch.zeros_like(skew), adjoint], dim=1)
    return torch.linalg.matrix_exp(torch.cat([upper, lower]))[:size, size:]


def log_orthogonal(matrix: Tensor) -> Tensor:
    r"""Return the principal logarithm of a rotation (real skew) or a unitary matrix (skew-Hermitian).

    .. math:: Q = V \operatorname{diag}(e^{i\theta}) V^H \quad\Rightarrow\quad V \operatorname{diag}(i\theta) V^H,
        \qquad |\theta| \le \pi

    The Cayley transform of :math:`e^{-i\alpha} Q`, with :math:`\alpha` in the largest gap between the angles, is Hermitian with
    eigenvalues monotone in the angle, so that its eigenvectors are orthonormal even for repeated angles. In the real
    case each conjugate pair becomes a plane with a real basis, and the eigenvalues -1, of which a rotation has an even number,
    are paired in any such basis.

    Args:
        matrix: Orthogonal with determinant 1, or unitary; shape ``(n, n)``.

    Example:
        >>> log_orthogonal(torch.tensor([[0.0, -1.0], [1.0, 0.0]])).round(decimals=4)
        tensor([[ 0.0000, -1.5708],
                [ 1.5708,  0.0000]])
    """
    if matrix.dim() != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ShapeError(f"`matrix` must be square, but has shape {tuple(matrix.shape)}.")
    check_finite("matrix", torch.view_as_real(matrix) if matrix.is_complex() else matrix)
    if matrix.numel() == 0:
        return matrix.clone()
    wide = matrix.detach().to(torch.complex128)
    angles, vectors = _eigen(wide)
    if matrix.is_complex():
        return skew_part((vectors * (1j * angles)) @ vectors.mH).to(matrix.dtype)
    if float(torch.linalg.det(wide.real)) < 0:
        raise ConstraintError("`matrix` has determinant -1, so it has no real logarithm; reflect one column first.")
    return _real_log(wide.real, angles, vectors).to(matrix.dtype)


def _eigen(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Return angles and orthonormal eigenvectors of a unitary matrix."""
    around = torch.linalg.eigvals(matrix).angle().sort().values
    gaps = torch.cat([around[1:], around[:1] + 2 * math.pi]) - around
    widest = gaps.argmax()
    turn = torch.exp(1j * (math.pi - (around[widest] + gaps[widest] / 2)))
    eye = torch.eye(matrix.shape[0], dtype=matrix.dtype, device=matrix.device)
    turned = turn * matrix
    hermitian = 1j * torch.linalg.solve(eye + turned, eye - turned)
    vectors = torch.linalg.eigh((hermitian + hermitian.mH) / 2).eigenvectors
    return (vectors.mH @ matrix @ vectors).diagonal().angle(), vectors


def _real_log(matrix: Tensor, angles: Tensor, vectors: Tensor) -> Tensor:
    """Return the real logarithm from planes: one a conjugate pair, and pairs within the eigenvalues near -1."""
    near = angles.abs() > math.pi - 1e-6  # the two of a pair cannot be told apart here; as a plane they need not be
    proper = (angles > 1e-12) & ~near
    planes = [math.sqrt(2) * torch.stack([v.real, -v.imag], dim=1) for v in vectors[:, proper].unbind(1)]
    turns = list(angles[proper])
    if near.any():
        projector = (vectors[:, near] @ vectors[:, near].mH).real
        basis = torch.linalg.eigh(projector).eigenvectors[:, -int(near.sum()) :]
        small = -(basis.mT @ matrix @ basis)  # close to the identity
        rates, inner = torch.linalg.eigh(1j * skew_part(small))
        order = rates.argsort(descending=True)[: basis.shape[1] // 2]
        for place in order:
            plane = _plane(basis, inner[:, place], planes[-(len(planes) - int(proper.sum())) :] if len(planes) > int(proper.sum()) else [])
            planes.append(plane)
            turned = plane.mT @ matrix @ plane
            turns.append(torch.atan2(turned[1, 0] - turned[0, 1], turned[0, 0] + turned[1, 1]))
    result = torch.zeros_like(matrix)
    for plane, turn in zip(planes, turns, strict=True):
        a, b = plane.unbind(1)
        result += turn * (torch.outer(b, a) - torch.outer(a, b))
    return skew_part(result)


def _plane(basis: Tensor, vector: Tensor, taken: list[Tensor]) -> Tensor:
    """Return an orthonormal real basis (n, 2) of a plane near ``vector``'s, perpendicular to those already taken."""
    used = torch.cat(taken, dim=1) if taken else basis[:, :0]
    candidates = torch.cat([used, basis @ vector.real.unsqueeze(1), basis @ vector.imag.unsqueeze(1), basis], dim=1)
    kept: list[Tensor] = list(used.unbind(1))
    for column in candidates[:, used.shape[1] :].unbind(1):
        for _ in range(2):  # twice is enough for orthogonality to rounding
            for other in kept:
                column = column - other.dot(column) * other
        if column.norm() > 1e-3 and len(kept) < used.shape[1] + 2:
            kept.append(column / column.norm())
    return torch.stack(kept[used.shape[1] :], dim=1)
