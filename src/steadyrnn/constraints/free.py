"""No constraint at all, with the first weights that the papers' baselines use."""

import math

import torch
from torch import Tensor

from steadyrnn.errors import ArgumentError, not_among

from .base import Constraint, working_dtype

__all__ = ["Free"]

_INITS = ("torch", "identity", "orthogonal")


class Free(Constraint):
    r"""Any matrix.

    Args:
        init: First weight: ``"torch"`` uniform in :math:`\pm 1/\sqrt{N}`; ``"identity"`` (the IRNN); ``"orthogonal"``
            a random orthogonal matrix (orthonormal rows or columns if rectangular).

    Example:
        >>> sr.constraints.Free(init="identity").sample(2, 2)
        tensor([[1., 0.],
                [0., 1.]])

    References:
        Le, Jaitly, Hinton. A Simple Way to Initialize Recurrent Networks of Rectified Linear Units. 2015 (identity).
    """

    def __init__(self, init: str = "torch", *, project: bool = False) -> None:
        super().__init__(project=project)
        if init not in _INITS:
            raise ArgumentError(not_among("init", init, _INITS))
        self.init = init

    def extra_repr(self) -> str:
        """Show the first weight's name."""
        return f"init={self.init!r}"

    def raw(self, rows: int, columns: int) -> tuple[Tensor, ...]:
        """Return the first weight, shape ``(M, N)``."""
        self.fix_shape(rows, columns)
        dtype = working_dtype()
        if self.init == "identity":
            return (torch.eye(rows, columns, dtype=dtype),)
        if self.init == "orthogonal":
            return (torch.nn.init.orthogonal_(torch.empty(rows, columns, dtype=dtype)),)
        return (torch.empty(rows, columns, dtype=dtype).uniform_(-1, 1) / math.sqrt(max(columns, 1)),)

    def forward(self, *raw: Tensor) -> Tensor:
        """Return the raw tensor itself."""
        return raw[0]

    def invert(self, matrix: Tensor) -> tuple[Tensor, ...]:
        """Return the matrix itself."""
        return (matrix.clone(),)

    def violation(self, matrix: Tensor) -> Tensor:
        """Return 0: every matrix is a member."""
        return matrix.new_zeros(())

    def project(self, matrix: Tensor) -> Tensor:
        """Return the matrix itself."""
        return matrix
