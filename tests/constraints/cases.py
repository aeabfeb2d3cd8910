"""Every constraint the contract suite runs over: the registry and variants of it, with members made without it."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from steadyrnn.constraints import (
    CayleyOrthogonal,
    CayleySpectral,
    Constraint,
    ExpOrthogonal,
    Free,
    FullUnitary,
    HouseholderOrthogonal,
    Kind,
    PolarOrthogonal,
    RestrictedUnitary,
    Spectral,
    SpectralBall,
)
from steadyrnn.constraints.registry import CONSTRAINTS

__all__ = [
    "CASES",
    "DTYPES",
    "INVERTIBLE",
    "MAPS",
    "NOT_INVERTIBLE",
    "PENALTIES",
    "PROJECTIONS",
    "RECENTRED",
    "gaussian_like",
    "lapack_ratio",
    "member",
    "orthogonal",
    "outside",
    "rounding",
    "signed_identities",
    "size_for",
]

CASES: dict[str, Callable[[], Constraint]] = CONSTRAINTS | {
    "ornn-one": lambda: HouseholderOrthogonal(reflectors=1),
    "spectral-one": lambda: Spectral(reflectors=1),
    "spectral-uneven": lambda: Spectral(reflectors=(1, 0), radius=0.5),
    "spectral-orthogonal": lambda: Spectral(radius=0.0),
    "spectral-contraction": lambda: Spectral(center=0.5, radius=0.4),
    "spectral-zero": lambda: Spectral(center=0.0, radius=0.5),
    "spectral-zero-few": lambda: Spectral(reflectors=1, center=0.0, radius=0.5),
    "spectral-zero-clip": lambda: Spectral(center=0.0, radius=0.3, sigma="clip"),
    "spectral-zero-penalty": lambda: Spectral(center=0.0, sigma="penalty"),
    "spectral-clip": lambda: Spectral(sigma="clip", radius=0.3),
    "spectral-penalty": lambda: Spectral(sigma="penalty"),
    "factorized-lie": lambda: CayleySpectral(radius=0.3, gradient="lie"),
    "ball-small": lambda: SpectralBall(bound=0.1),
}

DTYPES = [torch.float32, torch.float64]


def _of(*kinds: Kind) -> list[str]:
    return [name for name, make in CASES.items() if make().kind in kinds]


PENALTIES = ["spectral-penalty", "spectral-zero-penalty"]  # promise nothing about their weight
MAPS, PROJECTIONS, RECENTRED = _of(Kind.MAP), _of(Kind.PROJECTION), _of(Kind.RECENTRED)
NOT_INVERTIBLE = ["ornn-one", "spectral-one", "spectral-uneven", "spectral-zero-few", "unitary"]
INVERTIBLE = [name for name in CASES if name not in NOT_INVERTIBLE]


def size_for(name: str, size: int) -> int:
    """Return the size, or the next even one where the constraint needs it."""
    return size + size % 2 if name.startswith("unitary") else size


def rounding(size: int, dtype: torch.dtype = torch.float64) -> float:
    """Return how far rounding may move the singular values of a matrix of this size."""
    return 16 * size * torch.finfo(dtype).eps


def gaussian_like(
    raw: tuple[Tensor, ...], seed: int, scale: float = 1.0, dtype: torch.dtype = torch.float64
) -> tuple[Tensor, ...]:
    """Return Gaussian tensors of the same shapes."""
    generator = torch.Generator().manual_seed(seed)
    normal = (torch.randn(tensor.shape, generator=generator, dtype=torch.float64) for tensor in raw)
    return tuple(scale * tensor.to(dtype) for tensor in normal)


def orthogonal(size: int, seed: int, determinant: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """Return a random orthogonal matrix of that determinant, through a QR decomposition."""
    generator = torch.Generator().manual_seed(seed)
    q = torch.linalg.qr(torch.randn(size, size, generator=generator, dtype=torch.float64)).Q
    q[:, 0] *= determinant * torch.linalg.det(q).sign()
    return q.to(dtype)


def _unitary(size: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    half = size // 2
    z = torch.linalg.qr(torch.randn(half, half, generator=generator, dtype=torch.complex128)).Q
    return torch.cat([torch.cat([z.real, -z.imag], dim=1), torch.cat([z.imag, z.real], dim=1)])


def _between(size: int, seed: int, determinant: int, low: float, high: float) -> Tensor:
    """Return a matrix with singular values in an interval and a determinant of that sign."""
    generator = torch.Generator().manual_seed(seed)
    sigma = low + (high - low) * torch.rand(size, generator=generator, dtype=torch.float64)
    return orthogonal(size, seed, 1) @ sigma.diag() @ orthogonal(size, seed + 1, determinant).mT


def member(name: str, size: int, seed: int, determinant: int = 1, dtype: torch.dtype = torch.float64) -> Tensor:
    """Return a random member of a constraint's set, made without the constraint.

    ``size`` is any number from 1. ``determinant`` is the sign of the determinant; where the members of the set cannot have
    both signs it is ignored: unitary matrices have determinant 1 as real ones, and so has every Cayley transform.
    """
    constraint = CASES[name]()
    match constraint:
        case Spectral(center=center, radius=radius) | CayleySpectral(center=center, radius=radius):
            matrix = _between(size, seed, determinant, max(center - radius, 0.0), center + radius)
        case SpectralBall(bound=bound):
            matrix = _between(size, seed, determinant, 0.0, bound)
        case RestrictedUnitary() | FullUnitary():
            matrix = _unitary(size, seed)
        case Free() | CayleyOrthogonal() | ExpOrthogonal() | HouseholderOrthogonal() | PolarOrthogonal():
            matrix = orthogonal(size, seed, 1 if name == "cayley" else determinant)
        case _:
            raise KeyError(f"add a case for {name} to `member`")
    return matrix.to(dtype)


def outside(name: str, size: int, seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """Return a matrix far outside a constraint's set, also where the set contains every multiple of a member."""
    return 5 * member(name, size, seed, dtype=dtype) + torch.ones(size, size, dtype=dtype).triu(1)


def signed_identities(size: int) -> Iterator[Tensor]:
    """Yield the identity with the signs of its first 0, 1, ..., ``size`` diagonal entries changed."""
    for changed in range(size + 1):
        matrix = torch.eye(size, dtype=torch.float64)
        matrix[range(changed), range(changed)] = -1.0
        yield matrix


def lapack_ratio(matrix: Tensor) -> float:
    """Return LAPACK's test ratio norm1(I - Q'Q) / (n u), computed in float64."""
    wide = matrix.detach().double()
    gap = torch.eye(wide.shape[1], dtype=torch.float64) - wide.mT @ wide
    return float(torch.linalg.matrix_norm(gap, 1)) / (wide.shape[0] * torch.finfo(matrix.dtype).eps / 2)
