"""Complex matrices as real ones of twice the size, and unitary matrices as a product of cheap ones."""

import torch
from torch import Tensor

from steadyrnn.checks import check_matrix
from steadyrnn.errors import ArgumentTypeError, ShapeError

__all__ = ["complexify", "realify", "restricted_unitary"]


def realify(matrix: Tensor) -> Tensor:
    r"""Write a complex matrix as a real one that acts on real and imaginary parts.

    .. math:: A + iB \;\mapsto\; \begin{pmatrix} A & -B \\ B & A \end{pmatrix}

    acting on :math:`(\mathrm{Re}\, z;\; \mathrm{Im}\, z)`. Products go to products and adjoints to transposes, so the
    image is orthogonal exactly if the matrix is unitary; its determinant is :math:`|\det|^2`. Costs :math:`O(m^2)`.

    Args:
        matrix: :math:`A + iB`, complex, shape ``(m, m)``.

    Returns:
        The real matrix, shape ``(2m, 2m)``.

    Example:
        >>> realify(torch.tensor([[1j]]))
        tensor([[ 0., -1.],
                [ 1.,  0.]])
    """
    if matrix.dim() != 2:
        raise ShapeError(f"`matrix` must have two dimensions, but has shape {tuple(matrix.shape)}.")
    if not matrix.is_complex():
        raise ArgumentTypeError(f"`matrix` must have a complex dtype, but has {matrix.dtype}.")
    a, b = matrix.real, matrix.imag
    return torch.cat([torch.cat([a, -b], dim=1), torch.cat([b, a], dim=1)])


def complexify(matrix: Tensor) -> Tensor:
    r"""Read a complex matrix off its real form, the inverse of :func:`realify`.

    .. math::
        \begin{pmatrix} P & Q \\ R & S \end{pmatrix} \;\mapsto\; \tfrac12 (P + S) + \tfrac{i}{2} (R - Q)

    Of a matrix that is not of the form, this is the complex matrix whose real form is nearest in the Frobenius norm,
    since the mean is the nearest number to two. Costs :math:`O(m^2)`.

    Args:
        matrix: The real form, shape ``(2m, 2m)``.

    Returns:
        The complex matrix, shape ``(m, m)``.

    Example:
        >>> complexify(torch.tensor([[0.0, -1.0], [1.0, 0.0]]))
        tensor([[0.+1.j]])
    """
    check_matrix("matrix", matrix)
    if matrix.shape[0] % 2 or matrix.shape[1] % 2:
        raise ShapeError(
            f"`matrix` must have an even number of rows and columns, two for each complex one, "
            f"but has shape {tuple(matrix.shape)}."
        )
    top, bottom = matrix.chunk(2, dim=0) if matrix.numel() else (matrix, matrix)
    (p, q), (r, s) = top.tensor_split(2, dim=1), bottom.tensor_split(2, dim=1)
    return torch.complex((p + s) / 2, (r - q) / 2)


def restricted_unitary(phases: Tensor, reflectors: Tensor, permutation: Tensor) -> Tensor:
    r"""Return the real form of a unitary matrix made of cheap ones.

    .. math:: D_3 R_2 F^{-1} D_2 \Pi R_1 F D_1, \qquad D_k = \mathrm{diag}(e^{i\phi_k}), \qquad
        R_k = I - \frac{2}{\lVert v_k \rVert^2} v_k v_k^*

    with :math:`F` the unitary Fourier matrix and :math:`(\Pi z)_j = z_{p_j}`. Every factor is unitary, so the product
    is; its :math:`7m` real parameters are too few to reach every unitary matrix. Costs :math:`O(m^2 \log m)`.

    Args:
        phases: :math:`\phi_1, \phi_2, \phi_3` in radians, shape ``(3, m)``.
        reflectors: :math:`v_1, v_2`, complex of shape ``(2, m)``, or real of shape ``(2, 2, m)`` with real and
            imaginary parts along the second dimension; a zero one is the identity.
        permutation: :math:`p`, the indices 0 to ``m - 1`` in some order, int64, shape ``(m,)``.

    Returns:
        The real form of the matrix, as of :func:`realify`, shape ``(2m, 2m)``.

    Example:
        >>> phases, v = torch.tensor([[0.0], [0.0], [torch.pi / 2]]), torch.zeros(2, 2, 1)
        >>> restricted_unitary(phases, v, torch.tensor([0])).round().int()
        tensor([[ 0, -1],
                [ 1,  0]], dtype=torch.int32)

    References:
        Arjovsky, Shah, Bengio. Unitary Evolution Recurrent Neural Networks. ICML 2016. https://arxiv.org/abs/1511.06464
    """
    v1, v2 = _complex_reflectors(phases, reflectors, permutation)
    d1, d2, d3 = torch.polar(torch.ones_like(phases), phases)
    z = torch.fft.fft(torch.diag(d1), dim=0, norm="ortho")
    z = d2.unsqueeze(1) * _reflect_columns(z, v1)[permutation]
    z = torch.fft.ifft(z, dim=0, norm="ortho")
    return realify(d3.unsqueeze(1) * _reflect_columns(z, v2))


def _complex_reflectors(phases: Tensor, reflectors: Tensor, permutation: Tensor) -> Tensor:
    if phases.dim() != 2 or len(phases) != 3 or phases.shape[1] == 0:
        raise ShapeError(f"`phases` must have shape (3, m) with m at least 1, but has shape {tuple(phases.shape)}.")
    size = phases.shape[1]
    if permutation.shape != (size,):
        raise ShapeError(f"`permutation` must have shape ({size},), but has shape {tuple(permutation.shape)}.")
    expected = (2, size) if reflectors.is_complex() else (2, 2, size)
    if reflectors.shape != expected:
        raise ShapeError(
            f"`reflectors` must have shape (2, {size}) if complex and (2, 2, {size}) if real, "
            f"but has shape {tuple(reflectors.shape)} and dtype {reflectors.dtype}."
        )
    return reflectors if reflectors.is_complex() else torch.complex(reflectors[:, 0], reflectors[:, 1])


def _reflect_columns(z: Tensor, v: Tensor) -> Tensor:
    parts = torch.view_as_real(v)  # (m, 2)
    scale = parts.detach().abs().amax()  # the square of an entry may over- or underflow
    parts = parts / torch.where(scale == 0, torch.inf, scale)
    square = parts.square().sum()
    unit = torch.view_as_complex(parts / torch.where(square == 0, 1.0, square).sqrt())
    return z - 2 * torch.outer(unit, unit.conj() @ z)
