"""The exponential of skew matrices by rotation angles, its gradient, and its inverse, the logarithm."""

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn import Parameter

from steadyrnn.checks import carries_transform, check_finite, without_autocast
from steadyrnn.errors import ConstraintError, DtypeError, ShapeError

from .packing import pack_skew, unpack_skew
from .pade import exp_by_products

__all__ = ["angles_of_skew", "exp_packed", "exp_skew", "log_orthogonal", "skew_part", "turn_planes"]


def skew_part(matrix: Tensor) -> Tensor:
    r"""Return the skew part of a square matrix, the nearest skew one in the Frobenius norm.

    .. math:: \mathrm{skew}(A) = \tfrac12 (A - A^*)

    The symmetric and the skew matrices are orthogonal complements, and this is the projection onto the latter; it is
    its own adjoint. Costs :math:`O(n^2)`.

    Args:
        matrix: :math:`A`, real or complex, shape ``(n, n)``.

    Returns:
        The skew (complex: skew-Hermitian) part, shape ``(n, n)``.

    Example:
        >>> skew_part(torch.tensor([[5.0, 2.0], [0.0, 5.0]]))
        tensor([[ 0.,  1.],
                [-1.,  0.]])
    """
    _check("matrix", matrix)
    return (matrix - matrix.mH) / 2


def exp_skew(skew: Tensor) -> Tensor:
    r"""Return the exponential of a skew matrix, a rotation.

    .. math:: e^B = V e^{i\theta} V^*, \qquad B = V \,\mathrm{diag}(i\theta)\, V^*

    from the eigenvectors of the Hermitian matrix :math:`iB`; they are orthonormal to rounding whatever the angles, so
    the result is orthogonal for every :math:`\lVert B \rVert`, with determinant 1 if :math:`B` is real. Of a real
    :math:`B` with angles so large that rounding tells the two of a pair :math:`\pm\theta` apart, only the positive ones
    are used, in planes that a QR decomposition makes orthogonal. The gradient, in the Frobenius metric on skew matrices, is

    .. math::
        \nabla_B = V \bigl[\Phi \circ (V^* S V)\bigr] V^*, \qquad S = \mathrm{skew}(G W^*), \qquad
        \Phi_{jk} = e^{-i\Delta_{jk}/2}\, \frac{\sin(\Delta_{jk}/2)}{\Delta_{jk}/2}, \quad
        \Delta_{jk} = \theta_j - \theta_k

    without a division by gaps between angles: repeated ones and :math:`B = 0` are harmless. Where :math:`B` comes from
    :func:`skew_part`, this is the gradient there too. Costs one Hermitian eigendecomposition,
    and four complex products for the gradient. In float32, and for angles up to 3.9, both come from
    :func:`~steadyrnn.linalg.pade.exp_by_products` instead, which is faster and closer; a compiled graph, which must hold for
    all angles, has the eigendecomposition.

    Args:
        skew: :math:`B`, real skew or complex skew-Hermitian (what lies above the diagonal is taken for granted),
            shape ``(n, n)``, in single or double precision.

    Returns:
        :math:`e^B`, orthogonal or unitary, shape ``(n, n)``; NaN where an entry of ``skew`` is not finite.

    Example:
        >>> quarter = torch.tensor([[0.0, -torch.pi / 2], [torch.pi / 2, 0.0]])
        >>> exp_skew(quarter).round().abs()
        tensor([[0., 1.],
                [1., 0.]])

    References:
        Lin, Wang. uRNN: An Approach to Bounded Gradients (the gradient there is this one at B = 0).
        Najfeld, Havel. Derivatives of the matrix exponential and their computation. Adv. Appl. Math. 16, 1995.
    """
    _check("skew", skew)
    if skew.dtype not in (torch.float32, torch.float64, torch.complex64, torch.complex128):
        raise DtypeError(
            f"`skew` must be in single or double precision, but is {skew.dtype}: with fewer digits the result is not "
            "orthogonal. Compute it in float32 and cast the result."
        )
    if carries_transform(skew) or skew.numel() == 0:
        return torch.matrix_exp(skew)
    # what is said of the norm, and of the inverse, holds for skew matrices alone
    moderate = skew.dtype == torch.float32 and _has_numbers(skew) and torch.equal(skew, -skew.mT)
    value = exp_by_products(pack_skew(skew_part(skew)), len(skew)) if moderate else None  # its gradient is skew, too
    return _ExpSkew.apply(skew)[0] if value is None else value  # type: ignore[no-untyped-call]


def exp_packed(packed: Tensor, size: int) -> Tensor:
    """Return the exponential of the real skew matrix with the packed entries below its diagonal, as :func:`exp_skew`.

    That the matrix is skew is known here and need not be checked.

    Args:
        packed: The entries, row by row, shape ``(n(n-1)/2,)``.
        size: n.

    Returns:
        The rotation, shape ``(n, n)``.

    Example:
        >>> exp_packed(torch.tensor([torch.pi / 2]), 2).round().abs()
        tensor([[0., 1.],
                [1., 0.]])
    """
    if packed.dtype != torch.float32 or not _has_numbers(packed) or carries_transform(packed):
        return exp_skew(unpack_skew(packed, size))
    value = exp_by_products(packed, size)
    return _ExpSkew.apply(unpack_skew(packed, size))[0] if value is None else value  # type: ignore[no-untyped-call]


@torch.no_grad()
def log_orthogonal(matrix: Tensor) -> Tensor:
    r"""Return the principal logarithm of a rotation or of a unitary matrix.

    .. math:: \log Q = V \,\mathrm{diag}(i\theta)\, V^*, \qquad \theta \in [-\pi, \pi], \qquad e^{\log Q} = Q

    The space is divided by the eigenvectors of :math:`\tfrac12(Q + Q^*)`, at a gap between the cosines of angles, into
    a part with small angles and one with large ones. On the first the Cayley transform :math:`(I - Q)(I + Q)^{-1}` is
    skew and its orthonormal eigenvectors are those of :math:`Q`; on the second the same holds for :math:`-Q`,
    and half a turn is added. An eigenvalue -1 of a real matrix comes in pairs; any real plane of its eigenspace can be
    turned by :math:`\pi`, and one is chosen. Computed in float64; costs a few eigendecompositions.

    Args:
        matrix: :math:`Q`, real orthogonal with determinant 1 or complex unitary, shape ``(n, n)``.

    Returns:
        :math:`\log Q`, skew, of norm at most :math:`\pi`, shape ``(n, n)``.

    Example:
        >>> log_orthogonal(-torch.eye(2)).abs()
        tensor([[0.0000, 3.1416],
                [3.1416, 0.0000]])
    """
    check_finite("matrix", _check("matrix", matrix))
    if matrix.numel() == 0:
        return matrix.clone()
    q = _nearest_unitary(matrix.to(torch.complex128 if matrix.is_complex() else torch.float64))
    small, large = _split_by_angle(q)
    if large.shape[1] % 2 and not q.is_complex():
        raise ConstraintError(
            "`matrix` has determinant -1, but the exponential of a real skew matrix has determinant 1. "
            "Multiply one of its columns by -1 first."
        )
    log = small @ _log_of_small_angles(small.mH @ q @ small) @ small.mH
    log += large @ _add_half_turn(_log_of_small_angles(-(large.mH @ q @ large))) @ large.mH
    return skew_part(log).to(matrix.dtype)


def _check(name: str, matrix: Tensor) -> Tensor:
    if matrix.dim() != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ShapeError(f"`{name}` must be a square matrix, but has shape {tuple(matrix.shape)}.")
    if not (matrix.is_floating_point() or matrix.is_complex()):
        raise DtypeError(f"`{name}` must have a floating dtype, real or complex, but has {matrix.dtype}.")
    return matrix


def angles_of_skew(skew: Tensor) -> tuple[Tensor, Tensor]:
    """Return the angles (n,), in descending order, and eigenvectors (n, n) of a skew matrix: ``B = V diag(i theta) V^*``.

    Example:
        >>> angles_of_skew(torch.tensor([[0.0, -1.0], [1.0, 0.0]]))[0]
        tensor([ 1., -1.])
    """
    minus_angles, vectors = torch.linalg.eigh(1j * skew)
    return -minus_angles, vectors


def _has_numbers(tensor: Tensor) -> bool:
    """Say whether the entries of a tensor can be looked at: not in a graph, where they are not known."""
    return not (torch.compiler.is_compiling() or tensor.is_meta or type(tensor) not in (Tensor, Parameter))


def _tells_pairs_apart(angles: Tensor) -> bool:
    r"""Say whether the two angles of a pair may differ by so much that the real part of the product is not orthogonal.

    They differ by some :math:`d = u \lVert B \rVert`, which takes :math:`d^2 / 8` off a singular value. In a graph, whose
    numbers are not known, the answer is yes: the way for large angles is right for all.
    """
    if not _has_numbers(angles):
        return True
    largest = float(angles[0])  # they come in descending order
    return torch.finfo(angles.dtype).eps * largest * largest > len(angles)


def turn_planes(angles: Tensor, vectors: Tensor) -> Tensor:
    r"""Return the rotation by the positive angles, each in the plane of its eigenvector, shape (n, n).

    With :math:`v = (a + ib) / \sqrt2`, :math:`e^B` takes a to :math:`a \cos\theta - b \sin\theta` and b to
    :math:`b \cos\theta + a \sin\theta`. The largest angles, whose planes are determined best, choose theirs first.

    Args:
        angles: In descending order, as of :func:`angles_of_skew` of a real matrix, shape (n,); those below 0 are not used.
        vectors: The eigenvectors, shape (n, n).

    Example:
        >>> _, vectors = angles_of_skew(torch.tensor([[0.0, -1.0], [1.0, 0.0]]))
        >>> turn_planes(torch.tensor([torch.pi / 2, -torch.pi / 2]), vectors).round().abs()
        tensor([[0., 1.],
                [1., 0.]])
    """
    pairs = len(angles) // 2
    planes = torch.view_as_real(vectors[:, :pairs].resolve_conj()).flatten(1)  # a, b, a, b, ... (n, 2 pairs)
    q, r = torch.linalg.qr(planes, mode="complete")
    signs = torch.where(r.diagonal() < 0, -1.0, 1.0).to(q.dtype)
    (a, b), rest = (q[:, : 2 * pairs] * signs).unflatten(1, (pairs, 2)).unbind(2), q[:, 2 * pairs :]
    cos, sin = angles[:pairs].cos(), angles[:pairs].sin()
    turned: Tensor = (a * cos - b * sin) @ a.mT + (b * cos + a * sin) @ b.mT + rest @ rest.mT
    return turned


class _ExpSkew(Function):
    """``exp(B)``; angles and eigenvectors are kept for the backward pass only."""

    @staticmethod
    def forward(skew: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        finite = skew.isfinite().all()
        angles, vectors = angles_of_skew(torch.where(finite, skew, 0.0))  # which has no eigenvectors where there is a NaN,
        angles = torch.where(finite, angles, math.nan)  # and what follows from the angles is NaN then
        if not skew.is_complex() and _tells_pairs_apart(angles):
            return turn_planes(angles, vectors), angles, vectors
        turned = (vectors * torch.polar(torch.ones_like(angles), angles)) @ vectors.mH
        return turned if skew.is_complex() else turned.real.contiguous(), angles, vectors

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: tuple[Tensor, ...]) -> None:
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs, *output)

    @staticmethod
    def backward(ctx: Any, g: Tensor | None, *_: None) -> Tensor | None:
        if g is None:
            return None
        with without_autocast(g.device):  # a backward may be run, or traced, under it
            return _ExpSkew.pull_back(ctx, g)

    @staticmethod
    def pull_back(ctx: Any, g: Tensor) -> Tensor:
        """Return the gradient of ``forward``'s argument."""
        skew, value, angles, vectors = ctx.saved_tensors
        if torch.is_grad_enabled():  # a second derivative is wanted: eigenvectors have none where angles coincide
            alias = skew.view_as(skew)  # hooks on the tensor itself would run here, too
            return skew_part(torch.autograd.grad(torch.matrix_exp(alias), alias, g, create_graph=True)[0])
        half = (angles.unsqueeze(1) - angles) / 2  # Delta / 2, (n, n)
        weight = torch.polar(torch.sinc(half / math.pi), -half)
        inside = vectors.mH @ skew_part(g @ value.mH).to(vectors.dtype) @ vectors
        grad = vectors @ (weight * inside) @ vectors.mH
        return skew_part(grad if skew.is_complex() else grad.real)


def _nearest_unitary(matrix: Tensor) -> Tensor:
    """Return the polar factor, so that the digits beyond the caller's dtype are right; refuse what is far from it."""
    left, sigma, right = torch.linalg.svd(matrix)
    distance = float((sigma - 1).abs().max())
    if distance > 0.1:
        raise ConstraintError(f"`matrix` must be orthogonal or unitary, but a singular value is {distance:.3g} away from 1.")
    factor: Tensor = left @ right
    return factor


def _split_by_angle(q: Tensor) -> tuple[Tensor, Tensor]:
    """Return orthonormal bases of two invariant subspaces: of angles below and above about 90 degrees."""
    cosines, vectors = torch.linalg.eigh((q + q.mH) / 2)
    inner = cosines.clamp(-0.5, 0.5)
    edges = torch.cat([inner.new_tensor([-0.5]), inner, inner.new_tensor([0.5])])
    cut = int(edges.diff().argmax())  # at the widest gap between cosines, both bases are best determined
    return vectors[:, cut:], vectors[:, :cut]


def _log_of_small_angles(q: Tensor) -> Tensor:
    identity = torch.eye(len(q), dtype=q.dtype, device=q.device)
    tangents, vectors = angles_of_skew(skew_part(torch.linalg.solve(identity + q, q - identity)))
    return _from_angles(2 * tangents.atan(), vectors, real=not q.is_complex())


def _from_angles(angles: Tensor, vectors: Tensor, real: bool) -> Tensor:
    skew: Tensor = (vectors * (1j * angles)) @ vectors.mH
    return skew.real if real else skew


def _add_half_turn(skew: Tensor) -> Tensor:
    """Return ``L`` with ``exp(L) = -exp(skew)`` and angles up to 180 degrees.

    Every angle moves by 180 degrees towards the other side. The two eigenvectors of a pair of angles that are small
    against the others are determined up to mixing only, and then what they span is treated by itself, in a real basis.
    """
    if len(skew) == 0:
        return skew
    angles, vectors = angles_of_skew(skew)
    turned = torch.where(angles > 0, angles - math.pi, angles + math.pi)  # half a turn itself is +180 degrees
    if skew.is_complex():
        return _from_angles(turned, vectors, real=False)
    largest = float(angles.abs().max())
    if largest <= torch.finfo(skew.dtype).eps * len(skew):
        quarter = skew.new_tensor([[0.0, -1.0], [1.0, 0.0]])
        return math.pi * torch.kron(torch.eye(len(skew) // 2, dtype=skew.dtype, device=skew.device), quarter)
    order = angles.abs().argsort()
    count = int((angles.abs() < 1e-7 * largest).sum())
    mixed, clear = order.tensor_split([count + count % 2])  # both of a pair, always
    basis = _real_basis(vectors[:, mixed])
    result = _from_angles(turned[clear], vectors[:, clear], real=True)
    return result + basis @ _add_half_turn(basis.mT @ skew @ basis) @ basis.mT


def _real_basis(vectors: Tensor) -> Tensor:
    """Return real orthonormal columns with the span of these, which must hold the conjugate of each of its vectors."""
    columns: Tensor = torch.linalg.eigh((vectors @ vectors.mH).real)[1]
    return columns[:, len(vectors) - vectors.shape[1] :]
