"""The SVD parametrisation with few reflectors as diagonal plus low rank, in one node of autograd."""

from math import inf
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from steadyrnn.checks import carries_transform, without_autocast
from steadyrnn.errors import DtypeError, ShapeError
from steadyrnn.gpu.torch_private import is_legacy_batchedtensor

from .householder import householder_factors
from .operators import DiagonalLowRank, spectral_operator
from .packing import packed_size, trapezoid_index, unpack
from .spectral_kernel import can_launch, launch_backward, launch_forward

__all__ = ["spectral_factors"]

_LARGEST = 32  # reflectors per side in one block: see `block_size` in householder.py


def spectral_factors(left: Tensor, right: Tensor, sigma: Tensor, count: int) -> DiagonalLowRank:
    r"""Write :math:`U \Sigma V^\top` with as many packed reflectors on either side as diagonal plus low rank.

    .. math::
        W = U \Sigma V^\top, \qquad U = H(u_1) \cdots H(u_K), \quad V = H(v_1) \cdots H(v_K), \qquad
        H(u) = I - \frac{2}{\lVert u \rVert^2} u u^\top

    With unit columns :math:`Y` and :math:`S = \mathrm{striu}(Y^\top Y) + \tfrac12 I` on each side,
    :math:`U = I - Y_u Z_u` and :math:`V = I - Y_v Z_v` for :math:`Z = S^{-1} Y^\top`, and these are multiplied out as
    in :func:`spectral_operator`. U and V are orthogonal, so the singular values of W are :math:`|\sigma_i|`.

    The sizes are small and the operations many, so what costs time is their number: in float32, with 1 to 32
    reflectors per side, both sides go together, and the gradient is written out. All between the arguments and the
    results is then computed in float64, where the square of a float32 number neither over- nor underflows. Other
    dtypes and counts are put together from :func:`householder_factors`. On a GPU of compute capability 9.0 each of the
    two is one kernel (for up to 1024 rows and 24 reflectors).
    Costs :math:`10 H K^2` operations, the gradient :math:`22 H K^2`.

    Args:
        left: The :math:`u_k` as :func:`pack` leaves them, shape ``(packed_size(H, K),)``; a zero column is the
            identity, and its gradient is zero.
        right: The :math:`v_k` likewise, same shape.
        sigma: Diagonal of :math:`\Sigma`, of any signs, shape ``(H,)``.
        count: :math:`K`.

    Returns:
        The operator: ``diagonal`` is ``sigma``, ``left`` and ``right`` are ``(H, 2K)``.

    Example:
        >>> u = torch.tensor([1.0, 0.0, 0.0])
        >>> v = torch.tensor([0.0, 0.0, 5.0])
        >>> spectral_factors(u, v, torch.tensor([1.0, 2.0, 3.0]), 1).dense()
        tensor([[-1.,  0.,  0.],
                [ 0.,  2.,  0.],
                [ 0.,  0., -3.]])

    References:
        Zhang, Lei, Dhillon. Stabilizing Gradients for Deep Neural Networks via Efficient SVD Parameterization.
        ICML 2018. https://arxiv.org/abs/1803.09327
    """
    _check(left, right, sigma, count)
    if sigma.dtype != torch.float32 or not 1 <= count <= _LARGEST or carries_transform(left, right, sigma):
        return _compose(left, right, sigma, count)
    node: type[Function] = _Launched if can_launch((left, right, sigma), sigma.shape[0], count) else _SpectralFactors
    lower, upper = node.apply(left, right, sigma, count)
    return DiagonalLowRank(sigma, lower, upper)


def _check(left: Tensor, right: Tensor, sigma: Tensor, count: int) -> None:
    if sigma.dim() != 1:
        raise ShapeError(f"`sigma` must be a vector, but has shape {tuple(sigma.shape)}.")
    size = packed_size(sigma.shape[0], count)
    for name, packed in (("left", left), ("right", right)):
        if packed.shape != (size,):
            raise ShapeError(
                f"`{name}` must have shape {(size,)} for {count} reflectors of length {sigma.shape[0]}, "
                f"but has shape {tuple(packed.shape)}."
            )
    for name, packed in (("left", left), ("right", right)):
        if packed.dtype != sigma.dtype:
            raise DtypeError(f"`{name}` must have the dtype of `sigma`, which is {sigma.dtype}, but has {packed.dtype}.")


def _compose(left: Tensor, right: Tensor, sigma: Tensor, count: int) -> DiagonalLowRank:
    """Return the operator by functions of which each knows its own gradients, of any order."""
    u, v = (unpack(packed, sigma.shape[0], count) for packed in (left, right))
    return spectral_operator(householder_factors(u), sigma, householder_factors(v))


class _SpectralFactors(Function):
    r"""Both factors and their gradient in closed form.

    Here :math:`Z` is the negative of that of :func:`householder_factors`, as columns, so that no sign is left:
    :math:`U = I + Y_u Z_u^\top`, and with :math:`A = \Sigma Z_v`, :math:`B = \Sigma Z_u`, :math:`C = Z_u^\top A`

    .. math:: W = \Sigma + [\,A + Y_u C, \; Y_u\,] \, [\,Y_v, \; B\,]^\top

    From :math:`T Z^\top = Y^\top` with :math:`T = -S`: the gradient of :math:`Y^\top` is :math:`P = T^{-\top} \bar Z^\top`,
    that of T above its diagonal :math:`-P Z`, and what goes along :math:`y_k` is lost where the length is divided out.
    """

    # With a `setup_context`, torch would bind the signature of `forward` at every call: the time of ten operations.
    @staticmethod
    def forward(ctx: Any, left: Tensor, right: Tensor, sigma: Tensor, count: int) -> tuple[Tensor, Tensor]:
        rows, index = sigma.shape[0], trapezoid_index(sigma.shape[0], count, sigma.device)
        # torch 2.11's compiler loses the gradient through an update in place
        columns = left.new_zeros(2, rows * count).index_copy(1, index, torch.stack([left, right])).view(2, rows, count)
        length = torch.linalg.vector_norm(columns, dim=1, keepdim=True, dtype=torch.float64)
        length = torch.threshold(length, 0, inf)  # a zero column stays zero, and so does its gradient; NaN stays NaN
        y = columns / length  # (2, H, K), float64 from here on
        # -S, as a unit column has square 1; for a zero one 1/2 is as good as -1/2. Below the diagonal it is never read.
        triangle = torch.baddbmm(torch.eye(count, dtype=y.dtype, device=y.device), y.mT, y, beta=0.5, alpha=-1)
        z = torch.linalg.solve_triangular(triangle, y.mT, upper=True).mT  # (2, H, K)
        (y_u, y_v), (b, a) = y, z * sigma.unsqueeze(1)  # each (H, K)
        core = z[0].mT.mm(a)  # (K, K), C
        factors = torch.stack([a.addmm(y_u, core), y_u, y_v, b]).view(2, 2, rows, count).transpose(1, 2)
        factors = factors.to(left.dtype, memory_format=torch.contiguous_format).view(2, rows, 2 * count)
        ctx.count = count
        ctx.save_for_backward(left, right, sigma, y, z, length, triangle, core)
        return factors[0], factors[1]

    @staticmethod
    def backward(ctx: Any, *given: Tensor) -> tuple[Tensor | None, ...]:
        left, right, sigma, *kept = ctx.saved_tensors
        many = not torch.compiler.is_compiling() and any(is_legacy_batchedtensor(g) for g in given)
        if torch.is_grad_enabled() or many:
            return _again(ctx, left, right, sigma, given)
        with without_autocast(sigma.device):  # a backward may be run, or traced, under it
            return *_pull_back(given, sigma, *kept), None


class _Launched(Function):
    """The same in two kernels of a GPU, where launching as many operations would take longer than a recurrence."""

    @staticmethod
    def forward(ctx: Any, left: Tensor, right: Tensor, sigma: Tensor, count: int) -> tuple[Tensor, Tensor]:
        factors, kept = launch_forward(left, right, sigma, count)
        ctx.count = count
        ctx.save_for_backward(left, right, sigma, kept)
        return factors[0], factors[1]

    @staticmethod
    def backward(ctx: Any, *given: Tensor) -> tuple[Tensor | None, ...]:
        left, right, sigma, kept = ctx.saved_tensors
        if torch.is_grad_enabled() or not can_launch(given, sigma.shape[0], ctx.count):
            return _again(ctx, left, right, sigma, given)
        return *launch_backward(given, sigma, kept, ctx.count, left.shape[0]), None


def _again(ctx: Any, left: Tensor, right: Tensor, sigma: Tensor, given: tuple[Tensor, ...]) -> tuple[Tensor | None, ...]:
    """Return gradients of any order, or for many cotangents at once, through functions that know their own."""
    again = torch.is_grad_enabled()
    with without_autocast(sigma.device), torch.enable_grad():
        # aliases: hooks on the tensors themselves would run here, too
        leaves = [t.view_as(t) if again else t.detach().requires_grad_(t.requires_grad) for t in (left, right, sigma)]
        made = _compose(leaves[0], leaves[1], leaves[2], ctx.count)
        wanted = [t for t, needed in zip(leaves, ctx.needs_input_grad, strict=False) if needed]
        found = iter(torch.autograd.grad(made[1:], wanted, given, create_graph=again))
    return tuple(next(found) if needed else None for needed in ctx.needs_input_grad)


def _pull_back(
    given: tuple[Tensor, ...],
    sigma: Tensor,
    y: Tensor,
    z: Tensor,
    length: Tensor,
    triangle: Tensor,
    core: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of the packed reflectors of both sides and of ``sigma`` from those of both factors."""
    (g_first, g_y_u), (g_y_v, g_b) = (g.chunk(2, dim=1) for g in given)
    g_y, g_scaled = torch.stack([g_y_u, g_y_v, g_b, g_first]).double().view(2, *y.shape)  # each (2, H, K)
    (z_u, z_v), (g_b, g_a) = z, g_scaled
    g_core = y[0].mT.mm(g_a)
    g_y[0].addmm_(g_a, core.mT)
    g_a.addmm_(z_u, g_core)  # of A + Y_u C until here, of A from here on
    g_sigma = (g_scaled * z).sum((0, 2))
    g_b.addmm_(z_v, g_core.mT)  # C is Z_u' Sigma Z_v: now times sigma the gradient of Z_u
    p = torch.linalg.solve_triangular(triangle.mT, (g_scaled * sigma.unsqueeze(1)).mT, upper=False)  # (2, K, H)
    g_gram = p.bmm(z).triu_()  # the diagonal goes along y, which is lost below
    g_y = torch.baddbmm(g_y + p.mT, y, g_gram + g_gram.mT)
    along = g_y.mT.bmm(y).diagonal(dim1=1, dim2=2).unsqueeze(1)  # (2, 1, K)
    g_columns = torch.addcmul(g_y, along, y, value=-1) / length
    index = trapezoid_index(y.shape[1], y.shape[2], y.device)
    g_left, g_right = g_columns.flatten(1).index_select(1, index).to(sigma.dtype)
    return g_left, g_right, g_sigma.to(sigma.dtype)
