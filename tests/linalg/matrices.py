"""Random matrices from a seed, and the measures that tests of `linalg` share."""

import torch
from torch import Tensor

from steadyrnn.linalg.exponential import skew_part


def gaussian(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def gaussian_complex(*shape: int, seed: int = 0) -> Tensor:
    return torch.complex(gaussian(*shape, seed=seed), gaussian(*shape, seed=seed + 1))


def orthogonal(n: int, determinant: int | None = None, seed: int = 0) -> Tensor:
    q: Tensor = torch.linalg.qr(gaussian(n, n, seed=seed))[0]
    if determinant is not None and torch.linalg.det(q) * determinant < 0:
        q[:, 0] *= -1
    return q


def unitary(n: int, seed: int = 0) -> Tensor:
    q: Tensor = torch.linalg.qr(gaussian_complex(n, n, seed=seed))[0]
    return q


def skew(n: int, norm: float, seed: int = 0) -> Tensor:
    b = skew_part(gaussian(n, n, seed=seed))
    return b * (norm / torch.linalg.matrix_norm(b, 2))


def rotation(angles: list[float], n: int, seed: int = 0) -> Tensor:
    """Turn by each angle in a plane of its own; the rest of the ``n`` dimensions stays."""
    turn = torch.eye(n, dtype=torch.float64)
    for index, angle in enumerate(torch.tensor(angles, dtype=torch.float64)):
        plane = slice(2 * index, 2 * index + 2)
        turn[plane, plane] = torch.stack([angle.cos(), -angle.sin(), angle.sin(), angle.cos()]).reshape(2, 2)
    basis = orthogonal(n, seed=seed)
    return basis @ turn @ basis.mT


def rounding(*shape: int, dtype: torch.dtype = torch.float64) -> float:
    """What entries of moderate size may be off by after sums over these dimensions."""
    size = 1
    for length in shape:
        size *= max(length, 1)
    return 16 * size * torch.finfo(dtype).eps


def orthogonality(q: Tensor) -> float:
    """Return LAPACK's ratio norm1(I - Q'Q) / (n u), computed in float64; below 30 passes."""
    n = len(q)
    wide = q.to(torch.complex128 if q.is_complex() else torch.float64)
    excess = torch.eye(n, dtype=wide.dtype) - wide.mH @ wide
    return float(torch.linalg.matrix_norm(excess, 1)) / (n * torch.finfo(q.dtype).eps / 2)


def root_mean_defect(q: Tensor) -> float:
    """Return the Frobenius norm of Q'Q - I over the root of n, computed in float64."""
    wide = q.double()
    return float((wide.mT @ wide - torch.eye(len(q), dtype=torch.float64)).norm()) / len(q) ** 0.5


def distance(a: Tensor, b: Tensor) -> float:
    return float((a - b).abs().max()) if a.numel() else 0.0


def relative(a: Tensor, truth: Tensor) -> float:
    return float((a.to(truth.dtype) - truth).norm() / truth.norm())
