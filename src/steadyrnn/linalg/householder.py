"""Products of Householder reflections: the compact WY form in blocks, with its gradient in closed form."""

from math import inf
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import Function
from torch.nn.functional import pad

from steadyrnn.checks import carries_transform, check_matrix, without_autocast
from steadyrnn.errors import DtypeError, ShapeError

__all__ = ["block_size", "householder_apply", "householder_factors", "householder_product"]


def householder_product(columns: Tensor) -> Tensor:
    r"""Multiply out a product of Householder reflections.

    .. math::
        Q = H_1 H_2 \cdots H_K, \qquad H_k = I - \frac{2}{\lVert u_k \rVert^2} u_k u_k^\top

    Each :math:`H_k` is orthogonal, so :math:`Q` is, with determinant :math:`(-1)^{K - \#\{u_k = 0\}}`. With the unit
    vectors :math:`y_k` as columns of :math:`Y`, :math:`S = \mathrm{striu}(Y^\top Y) + \tfrac12 \mathrm{diag}(Y^\top Y)`
    gives :math:`Q = I - Y S^{-1} Y^\top`, since :math:`S + S^\top = Y^\top Y`. Rounding is amplified by the square of
    the norm of :math:`S^{-1} Y^\top`, which is large when many columns are nearly parallel; so the form is used on
    short blocks of columns, and the blocks are multiplied. The gradient is exact, orthogonal to :math:`u_k` and
    proportional to :math:`1 / \lVert u_k \rVert`; a zero column is the identity, and its gradient is zero.
    Costs :math:`4 N^2 K` operations, the gradient :math:`10 N^2 K`, all in matrix products.

    Args:
        columns: The :math:`u_k`, shape ``(N, K)``, of any nonzero lengths, float32 or float64.

    Returns:
        The matrix :math:`Q`, shape ``(N, N)``; the identity if ``K`` is 0.

    Example:
        >>> householder_product(torch.tensor([[3.0], [0.0]]))
        tensor([[-1.,  0.],
                [ 0.,  1.]])

    References:
        Joffrain, Low, Quintana-Orti, van de Geijn, Van Zee. Accumulating Householder transformations, revisited.
        ACM TOMS 32(2), 2006. https://doi.org/10.1145/1141885.1141886
    """
    _check_columns(columns)
    return _reflect(columns, None, transpose=False)


def householder_apply(columns: Tensor, x: Tensor, transpose: bool = False) -> Tensor:
    r"""Apply a product of Householder reflections, or its inverse, to column vectors without forming it.

    .. math:: H_1 H_2 \cdots H_K x \qquad\text{or}\qquad H_K \cdots H_2 H_1 x

    As :func:`householder_product`, of which this is the product with ``x``: lengths of columns are kept.
    Costs :math:`4 N K C` operations, the gradient :math:`(10 N + 2K) K C`.

    Args:
        columns: The :math:`u_k`, shape ``(N, K)``; a zero column is the identity.
        x: Column vectors, shape ``(N, C)``.
        transpose: Apply :math:`Q^\top = Q^{-1}` instead of :math:`Q`.

    Returns:
        The reflected vectors, shape ``(N, C)``.

    Example:
        >>> householder_apply(torch.tensor([[2.0], [0.0]]), torch.tensor([[3.0], [4.0]]))
        tensor([[-3.],
                [ 4.]])
    """
    _check_columns(columns)
    check_matrix("x", x)
    if x.shape[0] != columns.shape[0]:
        raise ShapeError(
            f"`x` must have as many rows as `columns`, which has {columns.shape[0]}, but has shape {tuple(x.shape)}."
        )
    if x.dtype != columns.dtype:
        raise DtypeError(f"`x` must have the dtype of `columns`, which is {columns.dtype}, but has {x.dtype}.")
    return _reflect(columns, x, transpose)


def householder_factors(columns: Tensor) -> tuple[Tensor, Tensor]:
    r"""Return thin factors of a product of reflections.

    .. math:: Q = I - Y Z, \qquad Z = S^{-1} Y^\top

    Applied as :math:`x - Y(Zx)` at :math:`4NK` operations per vector: for few reflections cheaper than the matrix, and
    the factors are computed once where the vectors come one after another. Row :math:`k` of :math:`Z` is
    :math:`2 y_k^\top H_{k+1} \cdots H_K`, so no entry exceeds 2; it is computed as such, block by block.
    Costs :math:`2 N K^2` operations.

    Args:
        columns: The :math:`u_k`, shape ``(N, K)``; a zero column gives a zero column of :math:`Y` and row of :math:`Z`.

    Returns:
        ``Y``, shape ``(N, K)``, with columns of length 1, and ``Z``, shape ``(K, N)``.

    Example:
        >>> y, z = householder_factors(torch.tensor([[2.0], [0.0]]))
        >>> torch.eye(2) - y @ z
        tensor([[-1.,  0.],
                [ 0.,  1.]])
    """
    _check_columns(columns)
    if columns.numel() == 0:
        return columns, columns.mT
    if carries_transform(columns):
        return _factors(columns)[:2]
    y, z, *_ = _Factors.apply(columns)  # type: ignore[no-untyped-call]
    return y, z


def _factors(columns: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return both factors, and the lengths of the columns, (K, 1), infinite for zero ones."""
    y, scale, inverse, lead = _compact_form(columns)
    block, count = inverse.shape[-1], columns.shape[1]
    z = lead[:block]
    for start in range(block, len(y), block):
        later = slice(start, start + block)
        z = torch.cat([z - (z @ y[later].mT) @ lead[later], lead[later]])
    length = (2 / inverse.diagonal(dim1=1, dim2=2)).sqrt().reshape(-1, 1)  # of the rows of y
    return (y / length)[:count].mT, (z * length)[:count], (scale * length)[:count]


def _check_columns(columns: Tensor) -> None:
    check_matrix("columns", columns)
    if columns.dtype not in (torch.float32, torch.float64):
        raise DtypeError(
            f"`columns` must be float32 or float64, but is {columns.dtype}: a product of reflections computed with "
            "fewer digits is not orthogonal. Compute it in float32 and cast the result."
        )


def _reflect(columns: Tensor, x: Tensor | None, transpose: bool) -> Tensor:
    if columns.numel() == 0:
        rows = columns.shape[0]
        return torch.eye(rows, dtype=columns.dtype, device=columns.device) if x is None else x.clone()
    if carries_transform(columns, x):
        return _sweep(_compact_form(columns), x, transpose, in_place=False)[0]
    return _Reflect.apply(columns, x, transpose)[0]  # type: ignore[no-any-return, no-untyped-call]


def block_size(count: int, dtype: torch.dtype) -> int:
    """Return the number of columns in a block, at most ``count``.

    A block's orthogonality error grows faster than its size where columns are nearly parallel. For float32 its
    triangle is computed in float64 and 32 is safe; float64 has no such reserve. Blocks of about equal size need
    the least padding.

    Example:
        >>> block_size(40, torch.float32)
        20
    """
    blocks = -(-count // (32 if dtype == torch.float32 else 8))
    return -(-count // blocks)


class _CompactForm(NamedTuple):
    """What the reflections are computed from; ``K' = b k`` is ``K`` rounded up to ``b`` whole blocks by zero rows.

    ``y``: reflectors as rows with largest entry 1, (K', N). ``scale``: what they were divided by, infinite for zero
    ones, (K', 1). ``inverse``: the inverse triangles of the blocks, (b, k, k). ``lead``: ``S_i^{-1} Y_i^T``, (K', N).
    """

    y: Tensor
    scale: Tensor
    inverse: Tensor
    lead: Tensor


def _compact_form(columns: Tensor) -> _CompactForm:
    count = columns.shape[1]
    block = block_size(count, columns.dtype)
    u = pad(columns.mT, (0, 0, 0, -count % block))  # (K', N)
    scale = u.detach().abs().amax(dim=1, keepdim=True)
    live = scale != 0  # not `> 0`: NaN must stay visible
    scale = torch.where(live, scale, inf)  # a zero row stays zero, and so does its gradient
    y = u / scale  # S^{-1} takes care of lengths, but the square of an entry must neither over- nor underflow
    blocks = y.reshape(-1, block, y.shape[1]).double()  # (b, k, N)
    gram = blocks.bmm(blocks.mT) if y.dtype == torch.float32 else _exact_gram(blocks)
    # Half the computed square, not 1/2 of what it should be: then S + S^T is the Gram matrix of what is stored.
    half = torch.where(live.view(-1, block), gram.diagonal(dim1=1, dim2=2) / 2, 0.5)
    triangle = torch.diagonal_scatter(gram, half, dim1=1, dim2=2)  # what is below the diagonal is never read
    identity = torch.eye(block, dtype=gram.dtype, device=gram.device)
    inverse = torch.linalg.solve_triangular(triangle, identity, upper=True)
    # in float64 there are no digits to spare for the rounding of the inverse
    spare = y.dtype == torch.float32
    lead = inverse.bmm(blocks) if spare else torch.linalg.solve_triangular(triangle, blocks, upper=True)
    return _CompactForm(y, scale, inverse.to(y.dtype), lead.flatten(0, 1).to(y.dtype))


def _exact_gram(blocks: Tensor) -> Tensor:
    """Return ``blocks @ blocks.mT`` rounded once, for entries up to 1 and at most 2^11 columns.

    The leading 21 binary places are split off: their products are multiples of 2^-42, and sums of those below 2^11 are
    exact in float64; what is left over is 2^21 times smaller, and so is its rounding.
    """
    shift = 1.5 * 2.0**31
    high = (blocks + shift) - shift
    low = blocks - high
    return high.bmm(high.mT) + (high.bmm(low.mT) + low.bmm(blocks.mT))


def _sweep(form: _CompactForm, x: Tensor | None, transpose: bool, in_place: bool) -> tuple[Tensor, Tensor]:
    """Multiply ``x`` (the identity if None) by one block ``I - Y_i S_i^{-1} Y_i^T`` after the other.

    Returns the product (N, C) and the coefficients ``S^{-1} Y^T x`` (``S^{-T} Y^T x`` if ``transpose``), (K', C).
    """
    y, _, inverse, lead = form
    block = inverse.shape[-1]
    read, write = (y, lead) if transpose else (lead, y)
    out = torch.eye(y.shape[1], dtype=y.dtype, device=y.device) if x is None else x
    if in_place and x is not None:
        out = x.clone()
    update = Tensor.addmm_ if in_place else torch.addmm
    blocks = list(zip(read.split(block), write.mT.split(block, dim=1), strict=True))
    parts: list[Tensor] = []
    for rows, columns in blocks if transpose else reversed(blocks):
        parts.append(rows if x is None and not parts else rows.mm(out))
        out = update(out, columns, parts[-1], alpha=-1)
    if transpose:
        return out, inverse.mT.bmm(torch.stack(parts)).reshape(-1, out.shape[1])
    return out, torch.cat(parts[::-1])


class _Reflect(Function):
    """``Q x`` or ``Q^T x``; the further outputs are kept for the backward pass only."""

    @staticmethod
    def forward(columns: Tensor, x: Tensor | None, transpose: bool) -> tuple[Tensor, ...]:
        form = _compact_form(columns)
        # torch 2.11's compiler loses the gradient through an update in place
        return *_sweep(form, x, transpose, in_place=not torch.compiler.is_compiling()), *form

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        columns, x, ctx.transpose = inputs
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(columns, x, *output[1:])

    @staticmethod
    def backward(ctx: Any, g: Tensor | None, *_: None) -> tuple[Tensor | None, ...]:
        if g is None:
            return None, None, None
        with without_autocast(g.device):  # a backward may be run, or traced, under it
            return _Reflect.pull_back(ctx, g)

    @staticmethod
    def pull_back(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        """Return the gradients of ``forward``'s arguments."""
        columns, x, coefficients, *rest = ctx.saved_tensors
        form = _CompactForm(*rest)
        again = torch.is_grad_enabled()
        if again:  # what was saved has no history; the second derivative needs one
            form = _compact_form(columns)
            coefficients = _sweep(form, x, ctx.transpose, in_place=False)[1]
        grad_x, dual = _sweep(form, g, not ctx.transpose, in_place=not again)
        if not ctx.needs_input_grad[0]:
            return None, grad_x, None
        upper, lower = (coefficients, dual) if ctx.transpose else (dual, coefficients)
        grad_s = upper @ lower.mT  # (K', K')
        update, divide = (torch.addmm, torch.div) if again else (Tensor.addmm_, Tensor.div_)
        grad_y = update(dual if x is None else dual @ x.mT, coefficients, g.mT)  # (K', N)
        grad_y = update(grad_y, grad_s.triu() + grad_s.triu(1).mT, form.y, beta=-1)
        # Q does not change with the length of y, so grad_y is orthogonal to y and needs no projection.
        grad_u = divide(grad_y, form.scale)
        return grad_u[: columns.shape[1]].mT, grad_x if x is not None else None, None


class _Factors(Function):
    r"""Both factors; the lengths are kept for the backward pass only.

    With unit rows :math:`y_k` and :math:`S = \mathrm{striu}(Y^\top Y) + \tfrac12 I`, from :math:`S Z = Y^\top`: the gradient of
    :math:`Y^\top` is :math:`P = S^{-\top} \bar Z`, that of S above its diagonal :math:`-P Z^\top`, and what goes along
    :math:`y_k` is lost where the length of a column is divided out.
    """

    @staticmethod
    def forward(columns: Tensor) -> tuple[Tensor, ...]:
        return _factors(columns)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        ctx.mark_non_differentiable(output[2])
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*inputs, *output)

    @staticmethod
    def backward(ctx: Any, g_y: Tensor | None, g_z: Tensor | None, _: None) -> Tensor | None:
        if g_y is None and g_z is None:
            return None
        columns, y, z, length = ctx.saved_tensors
        with without_autocast(columns.device):
            if torch.is_grad_enabled():  # what was saved has no history; the second derivative needs one
                alias = columns.view_as(columns)  # hooks on the tensor itself would run here, too
                pairs = [(f, g) for f, g in zip(_factors(alias), (g_y, g_z), strict=False) if g is not None]
                outputs, given = zip(*pairs, strict=True)
                found: Tensor = torch.autograd.grad(outputs, alias, given, create_graph=True)[0]
                return found
            return _Factors.pull_back(y.mT, z, length, None if g_y is None else g_y.mT, g_z).mT

    @staticmethod
    def pull_back(y: Tensor, z: Tensor, length: Tensor, g_y: Tensor | None, g_z: Tensor | None) -> Tensor:
        """Return the gradient of the columns as rows, (K, N), from those of ``y`` and ``z``, likewise (K, N)."""
        grad = torch.zeros_like(y) if g_y is None else g_y
        if g_z is not None:
            wide = y.double()
            triangle = (wide @ wide.mT).triu_(1)
            triangle.diagonal().fill_(0.5)
            p = torch.linalg.solve_triangular(triangle.mT, g_z.double(), upper=False).to(y.dtype)  # (K, N)
            grad_s = (p @ z.mT).triu_(1)
            grad = torch.addmm(grad + p, grad_s + grad_s.mT, y, alpha=-1)
        return (grad - (grad * y).sum(1, keepdim=True) * y) / length
