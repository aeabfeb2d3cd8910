"""Complex unitary matrices of size M as real orthogonal ones of size 2M."""

import math
from typing import Any, Self

import torch
from torch import Tensor

from steadyrnn.checks import check_same_meta, is_traced
from steadyrnn.errors import ConversionError, ShapeError
from steadyrnn.linalg.exponential import exp_skew, log_orthogonal
from steadyrnn.linalg.projections import polar_factor
from steadyrnn.linalg.unitary import complexify, realify, restricted_unitary

from .base import Constraint, distance_from_interval, working_dtype
from .orthogonality import distance_to_orthogonal

__all__ = ["FullUnitary", "RestrictedUnitary"]


def _half(constraint: Constraint, rows: int, columns: int) -> int:
    """Fix the shape and return the complex size."""
    constraint.fix_shape(rows, columns, square=True)
    if rows % 2:
        raise ShapeError(
            f"{type(constraint).__name__} needs an even size, two real numbers for each complex one, but the shape is "
            f"{(rows, columns)}."
        )
    return rows // 2


def _to_complex_form(matrix: Tensor) -> Tensor:
    """Return the nearest matrix of the form ``[[A, -B], [B, A]]``, shape ``(2M, 2M)``."""
    return realify(complexify(matrix))


def _violation(matrix: Tensor) -> Tensor:
    """Return the distance to the complex form plus the distance of that form to orthogonality, both in spectral norm."""
    wide = matrix.detach().double()
    near = _to_complex_form(wide)
    return distance_to_orthogonal(near) + distance_from_interval(wide - near, 0.0, 0.0)


def _project(matrix: Tensor) -> Tensor:
    """Return the nearest member: the complex form is a linear space, and the polar factor of a member stays in it."""
    return _to_complex_form(polar_factor(_to_complex_form(matrix)))


class RestrictedUnitary(Constraint):
    r"""Unitary matrices as a product of cheap ones.

    .. math:: W = D_3 R_2 F^{-1} D_2 \Pi R_1 F D_1

    with diagonal phases :math:`D`, complex reflections :math:`R = I - 2vv^* / \lVert v \rVert^2`, the unitary Fourier
    matrix :math:`F` and a fixed permutation :math:`\Pi`, drawn once and saved with the weights. Every factor is
    unitary, so W is; as a real matrix of twice the size it is :math:`[[A, -B], [B, A]]`, orthogonal of determinant 1.
    Seven numbers a complex unit (3M phases, 4M of the reflectors) reach only some unitary matrices, so none can be
    assigned. Fresh phases are uniform in :math:`\pm\pi`, fresh reflectors random of unit length.

    Args:
        project: See :class:`Constraint`; without effect, as nothing can be assigned.

    Example:
        >>> unitary = sr.constraints.RestrictedUnitary()
        >>> sum(raw.numel() for raw in unitary.raw(8, 8))
        28

    References:
        Arjovsky, Shah, Bengio. Unitary Evolution Recurrent Neural Networks. ICML 2016.
        https://arxiv.org/abs/1511.06464
    """

    permutation: Tensor

    def __init__(self, *, project: bool = False) -> None:
        super().__init__(project=project)

    def _apply(self, fn: Any, recurse: bool = True) -> Self:
        before = self._buffers.get("permutation")
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        if before is not None and self.permutation.dtype != before.dtype:  # `type` casts integers too
            self.permutation = before.to(self.permutation.device)
        return self

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        """Take a permutation that was cast with the weights as the integers it was made of, or refuse it."""
        key = f"{prefix}permutation"
        given, size = state_dict.get(key), self.rows // 2
        if isinstance(given, Tensor) and not given.is_meta and given.shape == (size,):
            state_dict[key] = given.long()
            if not torch.equal(given.double().sort().values, torch.arange(size, dtype=torch.float64, device=given.device)):
                state_dict[key] = self.permutation.clone()
                rest[-1].append(f"`{key}` must hold each number from 0 to {size - 1} once, but does not ({given.dtype}).")
        super()._load_from_state_dict(state_dict, prefix, *rest)

    @property
    def invertible(self) -> bool:
        """Return False: most unitary matrices are not of this form."""
        return False

    @property
    def reflector_sizes(self) -> tuple[int | None, ...]:
        """Phases are no reflectors; a complex reflector has 2M real entries."""
        return None, self.rows

    def raw(self, rows: int, columns: int) -> tuple[Tensor, ...]:
        """Return phases, shape ``(3, M)``, and real and imaginary parts of the reflectors, shape ``(2, 2, M)``."""
        half = _half(self, rows, columns)
        self.register_buffer("permutation", torch.randperm(half))
        reflectors = torch.randn(2, 2, half, dtype=working_dtype())
        length = reflectors.norm(dim=(1, 2), keepdim=True)
        return torch.empty(3, half, dtype=working_dtype()).uniform_(-math.pi, math.pi), reflectors / length

    def forward(self, *raw: Tensor) -> Tensor:
        """Return the matrix, shape ``(2M, 2M)``."""
        if is_traced():
            raise ConversionError(
                "A trace of RestrictedUnitary is refused: TorchScript's derivatives of complex products are wrong from the "
                "second call on. Use `torch.export.export`, or trace `steadyrnn.to_torch(layer)`."
            )
        phases, reflectors = raw
        return restricted_unitary(phases, reflectors, check_same_meta("`permutation`", self.permutation, phases))

    def invert(self, matrix: Tensor) -> tuple[Tensor, ...]:
        """Never called: :meth:`right_inverse` refuses first."""
        raise NotImplementedError

    def violation(self, matrix: Tensor) -> Tensor:
        """Return the distance to the unitary matrices: to the complex form, and of that to orthogonality."""
        return _violation(matrix)

    def project(self, matrix: Tensor) -> Tensor:
        """Return the nearest unitary matrix (not all are of this constraint's form)."""
        return _project(matrix)


class FullUnitary(Constraint):
    r"""All unitary matrices, as exponentials of skew-Hermitian ones.

    .. math:: W = \exp(B), \qquad B = \frac{R - R^\top}{2} + i \, \frac{R + R^\top}{2}

    B is skew-Hermitian for every real R of shape ``(M, M)``, which is its raw tensor, and :math:`R = \Re B + \Im B`
    leads back, so no number is wasted; every unitary matrix has a skew-Hermitian logarithm. As a real matrix of twice
    the size W is :math:`[[A, -B], [B, A]]`; an orthogonal matrix of another form is outside the set. A fresh R is
    diagonal with entries uniform in :math:`\pm\pi`: every complex unit turns by its own angle.

    Args:
        project: See :class:`Constraint`.

    Example:
        >>> weight = sr.constraints.FullUnitary().sample(4, 4)
        >>> torch.allclose(weight.mT @ weight, torch.eye(4), atol=1e-6)
        True

    References:
        Wisdom, Powers, Hershey, Le Roux, Atlas. Full-Capacity Unitary Recurrent Neural Networks. NeurIPS 2016.
        https://arxiv.org/abs/1611.00035 (the set; there by multiplicative steps)
    """

    def __init__(self, *, project: bool = False) -> None:
        super().__init__(project=project)

    def raw(self, rows: int, columns: int) -> tuple[Tensor, ...]:
        """Return R, shape ``(M, M)``."""
        half = _half(self, rows, columns)
        return (torch.empty(half, dtype=working_dtype()).uniform_(-math.pi, math.pi).diag(),)

    def forward(self, *raw: Tensor) -> Tensor:
        """Return the matrix, shape ``(2M, 2M)``."""
        (r,) = raw
        return realify(exp_skew(torch.complex((r - r.mT) / 2, (r + r.mT) / 2)))

    def invert(self, matrix: Tensor) -> tuple[Tensor, ...]:
        """Return R of the logarithm."""
        logarithm = log_orthogonal(complexify(matrix))
        return (logarithm.real + logarithm.imag,)

    def violation(self, matrix: Tensor) -> Tensor:
        """Return the distance to the unitary matrices: to the complex form, and of that to orthogonality."""
        return _violation(matrix)

    def project(self, matrix: Tensor) -> Tensor:
        """Return the nearest unitary matrix."""
        return _project(matrix)
