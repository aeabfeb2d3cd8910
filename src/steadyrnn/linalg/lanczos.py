"""Outermost eigenpairs of many Hermitian matrices at once, by Lanczos."""

from collections.abc import Callable

import torch
from torch import Tensor

__all__ = ["ritz_pairs"]

_NOTHING = 1e-5
"""What is left of a vector, relative to the largest entry so far, that counts as nothing: float32 has no more digits."""


def ritz_pairs(apply: Callable[[Tensor], Tensor], start: Tensor, steps: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return Ritz pairs after some steps of Lanczos on K matrices at once, each vector made orthogonal to all before.

    Args:
        apply: Multiplies column k of (N, K) by the k-th matrix, which is Hermitian.
        start: First vectors, complex, shape (N, K), not zero.
        steps: M, at most N.

    Returns:
        Ritz values (K, M), float64; their vectors in the basis (K, M, M); the basis (K, N, M).

    Example:
        >>> matrix = torch.diag(torch.tensor([3.0, 1.0, -2.0])).to(torch.complex64)
        >>> values, _, _ = ritz_pairs(lambda v: matrix @ v, torch.ones(3, 1, dtype=torch.complex64), steps=3)
        >>> values.round(decimals=4)
        tensor([[-2.,  1.,  3.]], dtype=torch.float64)
    """
    size, count = start.shape
    steps = min(steps, size)
    vector = start / torch.linalg.vector_norm(start, dim=0)
    basis = torch.zeros(count, size, steps, dtype=start.dtype, device=start.device)
    inner = torch.zeros(count, steps, steps, dtype=torch.float64, device=start.device)
    for step in range(steps):
        basis[:, :, step] = vector.mT
        image = apply(vector)
        inner[:, step, step] = (vector.conj() * image).real.sum(0).double()
        known = basis[:, :, : step + 1]
        rest = image.mT.unsqueeze(2)
        for _ in range(2):  # once is not enough where little is left
            rest = rest - known @ (known.mH @ rest)
        norm = torch.linalg.vector_norm(rest.squeeze(2), dim=1)
        left = norm > _NOTHING * float(inner.abs().max())  # where nothing is, zeros follow
        if step + 1 == steps or not bool(left.any()):
            break
        norm = torch.where(left, norm, 0)
        inner[:, step, step + 1] = inner[:, step + 1, step] = norm.double()
        vector = torch.where(left, rest.squeeze(2).mT / norm, 0)
    values, vectors = torch.linalg.eigh(inner[:, : step + 1, : step + 1])
    return values, vectors, known
