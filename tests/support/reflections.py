"""Reflections one at a time, with their gradients: slow, plain, and what the fast product is tested against."""

from collections.abc import Sequence

import torch
from torch import Tensor

from steadyrnn.errors import ShapeError

__all__ = ["hgrad", "hgrad_from_output", "hprod", "reflect", "svd_product", "svd_product_gradient"]


def reflect(x: Tensor, reflectors: Tensor) -> Tensor:
    r"""Apply a product of Householder reflections to row vectors.

    .. math::
        y = x H_1 H_2 \cdots H_K, \qquad
        H_k = I - \frac{2}{\lVert u_k \rVert^2} u_k u_k^\top

    Each :math:`H_k` is orthogonal, so :math:`\lVert y \rVert = \lVert x \rVert`.
    The matrix is never formed: the cost is :math:`O(KH)` per row, not :math:`O(H^2)`.

    Args:
        x: Row vectors, shape ``(..., H)``.
        reflectors: The :math:`u_k` as rows, shape ``(K, H)``; a zero row is the identity.

    Returns:
        The reflected rows, shape ``(..., H)``.

    Example:
        >>> reflect(torch.tensor([3.0, 4.0]), torch.tensor([[2.0, 0.0]]))
        tensor([-3.,  4.])

    References:
        Zhang, Lei, Dhillon. Stabilizing Gradients for Deep Neural Networks via
        Efficient SVD Parameterization. ICML 2018. https://arxiv.org/abs/1803.09327
    """
    for u in reflectors:  # (H,)
        x = hprod(x, u)
    return x


def hprod(h: Tensor, u: Tensor) -> Tensor:
    r"""Reflect the last coordinates of row vectors.

    .. math::
        \hat h = \mathcal{H}_k(u) h, \qquad
        \mathcal{H}_k(u) = \mathrm{blkdiag}\bigl(I_{n-k},\; I_k - \tfrac{2}{\lVert u \rVert^2} u u^\top\bigr)

    Only the direction of :math:`u` counts; at :math:`u = 0`, where it has none, the map is the identity.
    :math:`\mathcal{H}_k(u)` is symmetric and its own inverse. Costs :math:`4k` operations per row.

    Args:
        h: Row vectors, shape ``(..., n)``.
        u: The reflector, shape ``(k,)`` with ``k <= n``.

    Returns:
        The reflected rows, shape ``(..., n)``.

    Example:
        >>> hprod(torch.tensor([1.0, 3.0, 4.0]), torch.tensor([2.0, 0.0]))
        tensor([ 1., -3.,  4.])
    """
    rest, tail = _split(h, u)
    unit = _unit(u)
    return torch.cat([rest, tail - 2 * (tail @ unit).unsqueeze(-1) * unit], dim=-1)


def hgrad(h: Tensor, u: Tensor, g: Tensor) -> tuple[Tensor, Tensor]:
    r"""Return the gradients of a loss through :func:`hprod`, from its input.

    With :math:`\hat h = h - \alpha u`, :math:`\alpha = 2 (u \cdot h) / (u \cdot u)`,
    :math:`\beta = 2 (u \cdot g) / (u \cdot u)`,

    .. math::
        \frac{\partial L}{\partial h} = g - \beta u, \qquad
        \frac{\partial L}{\partial u} = -\alpha g - \beta h + \alpha \beta u

    by the product rule, on the last :math:`k` coordinates. Then :math:`u \cdot \partial L / \partial u = 0`, because
    the length of :math:`u` does not count. Costs :math:`9k` operations per row once the two products are known.

    Args:
        h: What was reflected, row vectors of shape ``(..., n)``.
        u: The reflector, shape ``(k,)``; the gradient of a zero one is zero.
        g: The gradient of the loss with respect to the reflected rows, shape ``(..., n)``.

    Returns:
        The gradients with respect to ``h``, shape ``(..., n)``, and to ``u``, summed over the rows, shape ``(k,)``.

    Example:
        >>> hgrad(torch.tensor([3.0, 4.0]), torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0]))
        (tensor([0., 1.]), tensor([ 0., -6.]))
    """
    unit = _unit(u)
    head, g_tail = _split(g, u)
    tail = _split(h, u)[1]
    alpha = 2 * (tail @ unit).unsqueeze(-1)
    beta = 2 * (g_tail @ unit).unsqueeze(-1)
    grad_unit = alpha * beta * unit - alpha * g_tail - beta * tail
    return torch.cat([head, g_tail - beta * unit], dim=-1), _over_length(_sum_rows(grad_unit), u)


def hgrad_from_output(h_out: Tensor, u: Tensor, g: Tensor) -> Tensor:
    r"""Return the gradient of the reflector from the *output* of :func:`hprod`.

    .. math::
        \frac{\partial L}{\partial u} = \frac{2}{u \cdot u} \bigl[(u \cdot \hat h)\, g - (u \cdot g)\, \hat h\bigr]

    Put :math:`h = \hat h + \alpha u` and :math:`u \cdot \hat h = - u \cdot h` into the form of :func:`hgrad`: one term
    drops out. Since a reflection is its own inverse, a chain of them needs no stored activations. Costs
    :math:`7k` operations per row.

    Args:
        h_out: The reflected rows, shape ``(..., n)``.
        u: The reflector, shape ``(k,)``; the gradient of a zero one is zero.
        g: The gradient of the loss with respect to ``h_out``, shape ``(..., n)``.

    Returns:
        The gradient with respect to ``u``, summed over the rows, shape ``(k,)``.

    Example:
        >>> hgrad_from_output(torch.tensor([-3.0, 4.0]), torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0]))
        tensor([ 0., -6.])
    """
    unit = _unit(u)
    out, g = _split(h_out, u)[1], _split(g, u)[1]
    terms = 2 * ((out @ unit).unsqueeze(-1) * g - (g @ unit).unsqueeze(-1) * out)
    return _over_length(_sum_rows(terms), u)


def svd_product(h: Tensor, us: Sequence[Tensor], sigma: Tensor, vs: Sequence[Tensor]) -> Tensor:
    r"""Multiply row vectors by a matrix given by its singular values and two sets of reflectors.

    .. math::
        C = W h, \qquad W = \mathcal{H}_n(u_n) \cdots \mathcal{H}_{k_1}(u_{k_1}) \,\mathrm{diag}(\sigma)\,
        \mathcal{H}_{k_2}(v_{k_2}) \cdots \mathcal{H}_n(v_n)

    Both products of reflections are orthogonal, so the :math:`|\sigma_i|` are the singular values of :math:`W`.
    Costs :math:`O((m_1 + m_2) n)` a row for :math:`m_1` and :math:`m_2` reflectors.

    Args:
        h: Row vectors, shape ``(..., n)``.
        us: The left reflectors :math:`u_n, u_{n-1}, \dots, u_{k_1}`, in that order; a tensor's length is its index.
        sigma: The singular values, shape ``(n,)``.
        vs: The right reflectors :math:`v_n, v_{n-1}, \dots, v_{k_2}`, in that order.

    Returns:
        The products, shape ``(..., n)``.

    Example:
        >>> u = torch.tensor([1.0, 0.0])
        >>> svd_product(torch.tensor([1.0, 1.0]), [u], torch.tensor([2.0, 3.0]), [])
        tensor([-2.,  3.])

    References:
        Zhang, Lei, Dhillon. Stabilizing Gradients for Deep Neural Networks via
        Efficient SVD Parameterization. ICML 2018, Algorithm 1. https://arxiv.org/abs/1803.09327
    """
    return _svd_states(h, us, sigma, vs)[1][-1]


def svd_product_gradient(
    h: Tensor, us: Sequence[Tensor], sigma: Tensor, vs: Sequence[Tensor], g: Tensor
) -> tuple[Tensor, list[Tensor], Tensor, list[Tensor]]:
    r"""Return the gradients of a loss through :func:`svd_product`.

    The reflections are taken back one by one, outermost first: each hands :func:`hgrad` the state it was *given*, not
    the one it returned, and the gradient of the singular values, :math:`g \circ h^{(v)}`, is read off
    before :math:`g` passes through them. Costs :math:`O((m_1 + m_2) n)` a row.

    Args:
        h: Row vectors, shape ``(..., n)``.
        us: The left reflectors, as in :func:`svd_product`.
        sigma: The singular values, shape ``(n,)``.
        vs: The right reflectors, as in :func:`svd_product`.
        g: The gradient of the loss with respect to the products, shape ``(..., n)``.

    Returns:
        The gradients with respect to ``h``, to each of ``us``, to ``sigma`` and to each of ``vs``, all but the first
        summed over the rows.

    Example:
        >>> one = torch.tensor([1.0])
        >>> svd_product_gradient(one, [one], torch.tensor([2.0]), [], one)
        (tensor([-2.]), [tensor([0.])], tensor([-1.]), [])

    References:
        Zhang, Lei, Dhillon. Stabilizing Gradients for Deep Neural Networks via
        Efficient SVD Parameterization. ICML 2018, Algorithm 1. https://arxiv.org/abs/1803.09327
    """
    inner, outer = _svd_states(h, us, sigma, vs)
    grad_us, grad_vs = [], []
    for u, state in zip(us, reversed(outer[:-1]), strict=True):
        g, grad = hgrad(state, u, g)
        grad_us.append(grad)
    grad_sigma = _sum_rows(g * inner[-1])
    g = sigma * g
    for v, state in zip(reversed(vs), reversed(inner[:-1]), strict=True):
        g, grad = hgrad(state, v, g)
        grad_vs.append(grad)
    return g, grad_us, grad_sigma, grad_vs[::-1]


def _svd_states(h: Tensor, us: Sequence[Tensor], sigma: Tensor, vs: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    """Return every state from ``h`` to ``V^T h``, and every state from there, times ``sigma``, to ``W h``."""
    inner = [h]
    for v in vs:
        inner.append(hprod(inner[-1], v))
    outer = [sigma * inner[-1]]
    for u in reversed(us):
        outer.append(hprod(outer[-1], u))
    return inner, outer


def _split(h: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
    if u.dim() != 1 or len(u) > h.shape[-1]:
        raise ShapeError(
            f"`u` must be a vector of at most {h.shape[-1]} entries, the length of a row, but has shape {tuple(u.shape)}."
        )
    head, tail = h.split([h.shape[-1] - len(u), len(u)], dim=-1)
    return head, tail


def _scale(u: Tensor) -> Tensor:
    """Return the largest absolute entry, infinite for zero, so that a division by it keeps zero at zero."""
    largest = u.detach().abs().amax() if u.numel() else u.new_zeros(())
    return torch.where(largest == 0, torch.inf, largest)


def _unit(u: Tensor) -> Tensor:
    scaled = u / _scale(u)  # the square of an entry may over- or underflow
    square = scaled @ scaled
    return scaled / torch.where(square == 0, 1.0, square).sqrt()


def _over_length(grad_unit: Tensor, u: Tensor) -> Tensor:
    scaled = u / _scale(u)
    square = scaled @ scaled
    return grad_unit / torch.where(square == 0, 1.0, square).sqrt() / _scale(u)


def _sum_rows(rows: Tensor) -> Tensor:
    return rows.reshape(-1, rows.shape[-1]).sum(dim=0)
