"""The numerical radius of a scaled matrix, estimated, and the scaling that makes it small: the search behind MATH 5.3."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from .scaling import from_raw, raw_slopes, scaled

__all__ = ["COMPLETE", "STAGES", "Stage", "descend_radius", "estimated_radius"]

COMPLETE = 32
"""Up to this width every eigenvalue is computed, in float64; beyond, the outermost ones by Lanczos, in float32."""
KEPT = 8
"""How many eigenvectors an angle are differentiated: the others hardly count."""


class Stage(NamedTuple):
    """How sharply the largest of all eigenvalues is told from the others, at how many angles, by how many Lanczos steps."""

    sharpness: float
    angles: int
    steps: int


STAGES = (Stage(32, 6, 24), Stage(128, 10, 40), Stage(512, 16, 60), Stage(2048, 32, 80))


class _Outer(NamedTuple):
    """Outermost eigenpairs of the Hermitian parts of a matrix A turned by K angles."""

    turns: Tensor  # (K,): exp(i theta)
    values: Tensor  # (K, M), float64
    inner: Tensor  # (K, M, M): eigenvectors in the basis
    basis: Tensor  # (K, N, M)


@torch.no_grad()
def estimated_radius(matrix: Tensor) -> float:
    r"""Return an estimate, from below, of the numerical radius :math:`\max_{\lVert x \rVert = 1} |x^* A x|`.

    It is the largest eigenvalue of all Hermitian parts :math:`H_\theta = (e^{i\theta} A + e^{-i\theta} A^\top) / 2`. Of a
    real matrix a quarter of a turn is enough. A grid of angles is followed by a finer one around the best of it.

    Args:
        matrix: A, real, shape ``(N, N)``.

    Example:
        >>> round(estimated_radius(torch.tensor([[0.0, 2.0], [0.0, 0.0]], dtype=torch.float64)), 9)
        1.0
    """
    low, high, radius = 0.0, math.pi / 2, 0.0
    for _ in range(3 if len(matrix) <= COMPLETE else 2):
        angles = torch.linspace(low, high, 17, dtype=torch.float64, device="cpu")
        found = _outer(matrix, angles, 60).values.abs().amax(1)
        step, best = (high - low) / 16, float(angles[found.argmax()])
        low, high, radius = best - step, best + step, max(radius, float(found.max()))
    return radius


def descend_radius(wide: Tensor, raw: Tensor, limit: float, stage: Stage, steps: int) -> Tensor:
    r"""Return raw weights after quasi-Newton steps that lower the numerical radius of :math:`D W D^{-1}`.

    Lowered is the smooth :math:`\frac1\beta \log \sum |\mu|^\beta` over the outermost eigenvalues :math:`\mu` of the
    Hermitian parts at some angles, :math:`\beta` the sharpness. The logarithm of the radius is convex in
    :math:`\log d`: it is a maximum of logarithms of moduli of functions that are analytic in :math:`\log d`, and does not
    change with its imaginary part.

    Args:
        wide: W, shape ``(N, N)``.
        raw: To start from, shape ``(N,)``; ``d = from_raw(raw, limit)``.
        limit: Of the logarithms of d.
        stage: How sharp.
        steps: How many.
    """
    raw = raw.to(wide.dtype).clone()
    optimizer = torch.optim.LBFGS(
        [raw], max_iter=steps, max_eval=2 * steps, history_size=20, tolerance_change=1e-5, line_search_fn="strong_wolfe"
    )

    @torch.no_grad()
    def closure() -> Tensor:
        value, gradient = smooth_radius(scaled(wide, from_raw(raw, limit)), stage)
        raw.grad = gradient * raw_slopes(raw, limit)
        return raw.new_tensor(value)

    optimizer.step(closure)
    return raw


def smooth_radius(matrix: Tensor, stage: Stage) -> tuple[float, Tensor]:
    r"""Return the smooth logarithm of the radius of :math:`A = D W D^{-1}`, and its gradient in :math:`\log d`.

    An eigenvalue :math:`x^* H_\theta x` changes with :math:`\log d_j` by
    :math:`\operatorname{Re} e^{i\theta} (\bar x_j (Ax)_j - \overline{(A^\top x)_j} x_j)`.
    """
    angles = torch.linspace(0, math.pi / 2, stage.angles, dtype=torch.float64, device="cpu")
    turns, values, inner, basis = _outer(matrix, angles, stage.steps)
    size = values.abs()
    largest = float(size.max())
    shares = (size / largest) ** stage.sharpness
    total = float(shares.sum())
    kept, places = shares.topk(min(KEPT, shares.shape[1]), dim=1)
    chosen = places.unsqueeze(1).expand(-1, inner.shape[1], -1)
    vectors = (basis @ inner.to(basis.dtype).gather(2, chosen)).transpose(0, 1)  # (N, K, kept)
    flat = vectors.reshape(len(matrix), -1)
    forward, back = _both(matrix, flat)
    chosen_values = values.gather(1, places)
    weights = torch.where(kept > 0, kept / (chosen_values * total), 0)  # (K, kept); an eigenvalue 0 counts for nothing
    factors = (turns.unsqueeze(1) * weights).reshape(-1).to(flat.dtype)
    gradient = (factors * (flat.conj() * forward - back.conj() * flat)).real.sum(1)
    return math.log(largest) + math.log(total / stage.angles) / stage.sharpness, gradient.to(matrix.dtype)


def _both(matrix: Tensor, vectors: Tensor) -> tuple[Tensor, Tensor]:
    """Return ``A x`` and ``A^T x`` for complex columns and a real matrix."""
    parts = torch.cat([vectors.real, vectors.imag], 1)
    matrix = matrix.to(parts.dtype)
    products = torch.cat([matrix @ parts, matrix.mT @ parts])
    whole = torch.complex(*products.tensor_split(2, dim=1))
    forward, back = whole.split(len(matrix))
    return forward, back


def _outer(matrix: Tensor, angles: Tensor, steps: int) -> _Outer:
    """Return all eigenpairs of a small matrix's Hermitian parts, the outermost of a large one's."""
    turns = torch.polar(torch.ones_like(angles), angles).to(matrix.device)
    if len(matrix) > COMPLETE:
        return _lanczos(matrix.float(), turns.to(torch.complex64), steps)
    turned = turns.view(-1, 1, 1) * matrix.double()
    values, vectors = torch.linalg.eigh((turned + turned.mH) / 2)
    unit = torch.eye(len(matrix), dtype=vectors.dtype, device=matrix.device).expand_as(vectors)
    return _Outer(turns, values, vectors, unit)


def _lanczos(matrix: Tensor, turns: Tensor, steps: int) -> _Outer:
    """Return Ritz pairs after some steps of Lanczos at every angle at once, each vector made orthogonal to all before.

    The start is fixed, so that the same matrix has the same answer.
    """
    size, count = len(matrix), len(turns)
    steps = min(steps, size)
    generator = torch.Generator().manual_seed(0)
    vector = torch.randn(size, count, dtype=turns.dtype, generator=generator, device="cpu").to(matrix.device)
    vector = vector / torch.linalg.vector_norm(vector, dim=0)
    basis = torch.zeros(count, size, steps, dtype=turns.dtype, device=matrix.device)
    inner = torch.zeros(count, steps, steps, dtype=torch.float64, device=matrix.device)
    for step in range(steps):
        basis[:, :, step] = vector.mT
        forward, back = _both(matrix, vector)
        image = (turns * forward + turns.conj() * back) / 2
        inner[:, step, step] = (vector.conj() * image).real.sum(0).double()
        known = basis[:, :, : step + 1]
        rest = image.mT.unsqueeze(2)
        for _ in range(2):  # once is not enough where little is left
            rest = rest - known @ (known.mH @ rest)
        norm = torch.linalg.vector_norm(rest.squeeze(2), dim=1)
        left = norm > 1e-5 * float(inner.abs().max())  # where nothing is, zeros follow
        if step + 1 == steps or not bool(left.any()):
            break
        norm = torch.where(left, norm, 0)
        inner[:, step, step + 1] = inner[:, step + 1, step] = norm.double()
        vector = torch.where(left, rest.squeeze(2).mT / norm, 0)
    values, vectors = torch.linalg.eigh(inner[:, : step + 1, : step + 1])
    return _Outer(turns, values, vectors, known)
