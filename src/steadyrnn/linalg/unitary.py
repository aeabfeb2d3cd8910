"""Complex unitary matrices as real ones of twice the size."""

import torch
from torch import Tensor

from steadyrnn.errors import ShapeError

__all__ = ["complexify", "realify", "restricted_unitary"]


def realify(matrix: Tensor) -> Tensor:
    r"""Return :math:`\begin{pmatrix} A & -B \\ B & A \end{pmatrix}` for the complex matrix A + iB.

    Acting on (re z, im z) it is the complex product; it is orthogonal exactly if A + iB is unitary.

    Args:
        matrix: Complex, shape ``(m, m)``.

    Example:
        >>> realify(torch.tensor([[1j]]))
        tensor([[0., -1.],
                [1., 0.]])
    """
    a, b = matrix.real, matrix.imag
    return torch.cat([torch.cat([a, -b], dim=1), torch.cat([b, a], dim=1)])


def complexify(matrix: Tensor) -> Tensor:
    """Return the complex matrix (m, m) whose real form is nearest to ``matrix`` (2m, 2m): the mean of both copies.

    Example:
        >>> complexify(torch.tensor([[0.0, -1.0], [1.0, 0.0]]))
        tensor([[0.+1.j]])
    """
    if matrix.dim() != 2 or matrix.shape[0] != matrix.shape[1] or matrix.shape[0] % 2:
        raise ShapeError(f"`matrix` must be square with an even size, but has shape {tuple(matrix.shape)}.")
    half = matrix.shape[0] // 2
    re = (matrix[:half, :half] + matrix[half:, half:]) / 2
    im = (matrix[half:, :half] - matrix[:half, half:]) / 2
    return torch.complex(re, im)


def restricted_unitary(phases: Tensor, reflectors: Tensor, permutation: Tensor) -> Tensor:
    r"""Return Arjovsky's product of unitary factors in real form.

    .. math:: D_3 R_2 F^{-1} D_2 \Pi R_1 F D_1, \qquad R = I - 2 v v^H / \lVert v \rVert^2

    with D diagonal phases, F the unitary Fourier matrix and :math:`\Pi` a permutation: each factor is unitary. It has 7m real
    parameters and does not reach all of U(m) for m > 7 (which has :math:`m^2` dimensions). A zero reflector is the identity.

    Args:
        phases: Angles of the three diagonals, shape ``(3, m)``.
        reflectors: Real and imaginary parts of both reflectors, shape ``(2, 2, m)``.
        permutation: Indices, shape ``(m,)``.

    Returns:
        Real form, shape ``(2m, 2m)``.

    Example:
        >>> restricted_unitary(torch.zeros(3, 1), torch.zeros(2, 2, 1), torch.arange(1))
        tensor([[1., -0.],
                [0., 1.]])

    References:
        Arjovsky, Shah, Bengio. Unitary Evolution Recurrent Neural Networks. ICML 2016.
    """
    size = phases.shape[1]
    d1, d2, d3 = torch.polar(torch.ones_like(phases), phases).unsqueeze(-1)
    eye = torch.eye(size, dtype=phases.dtype, device=phases.device)
    out = torch.fft.fft(d1 * torch.complex(eye, torch.zeros_like(eye)), dim=0, norm="ortho")
    out = d2 * _reflected(reflectors[0], out)[permutation]
    out = _reflected(reflectors[1], torch.fft.ifft(out, dim=0, norm="ortho"))
    return realify(d3 * out)


def _reflected(parts: Tensor, matrix: Tensor) -> Tensor:
    """Apply the complex reflection of ``parts`` (2, m) to the columns of ``matrix``; the scale of the reflector is free."""
    scale = parts.detach().abs().max()
    unit = parts / torch.where(scale > 0, scale, torch.ones_like(scale))
    v = torch.complex(unit[0], unit[1]).unsqueeze(1)  # (m, 1)
    square = unit.square().sum()
    return matrix - (2 / torch.where(square > 0, square, torch.ones_like(square))) * v * (v.mH @ matrix)
