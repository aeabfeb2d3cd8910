"""The product with one recurrent matrix, its adjoint and its gradient: dense, or in factors."""

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from steadyrnn.linalg.operators import DiagonalLowRank

from ..base import Gate, as_gates, unflatten_weight
from .family import History, flat, scratch

__all__ = ["Dense", "Factored", "History", "Product", "flat", "gate_products", "product_of"]


class Product(ABC):
    """A recurrent matrix W, (N, H), as a step uses it."""

    size: int  # N

    @abstractmethod
    def add(self, gate: Tensor, before: Tensor) -> None:
        r"""Add :math:`h W^\top` to ``gate`` (rows, N) in place, for ``before`` (rows, H)."""

    @abstractmethod
    def write(self, before: Tensor, bias: Tensor | None, out: Tensor) -> None:
        r"""Write :math:`h W^\top`, plus a bias (N,) where given, to ``out`` (rows, N)."""

    @abstractmethod
    def pull(self, adjoint: Tensor, plus: Tensor | None, out: Tensor) -> None:
        """Write ``adjoint`` (rows, N) times W, plus ``plus`` where given, to ``out`` (rows, H); ``plus`` may be ``out``."""

    @abstractmethod
    def gradient(self, history: History) -> list[Tensor]:
        """Return the gradient of W, or of each of its factors, from products over all time."""


class Dense(Product):
    """A matrix multiplied out."""

    def __init__(self, weight: Tensor) -> None:
        self.weight = weight
        self.transposed = weight.t()
        self.size = weight.shape[0]

    def add(self, gate: Tensor, before: Tensor) -> None:
        """One product."""
        gate.addmm_(before, self.transposed)

    def write(self, before: Tensor, bias: Tensor | None, out: Tensor) -> None:
        """One product."""
        if bias is None:
            torch.mm(before, self.transposed, out=out)
        else:
            torch.addmm(bias, before, self.transposed, out=out)

    def pull(self, adjoint: Tensor, plus: Tensor | None, out: Tensor) -> None:
        """One product."""
        if plus is None:
            torch.mm(adjoint, self.weight, out=out)
        else:
            torch.addmm(plus, adjoint, self.weight, out=out)

    def gradient(self, history: History) -> list[Tensor]:
        r"""Return :math:`\sum_t a_t^\top h_{t-1}` as one product over all time, plus one for the initial state."""
        late, early, first, start = history
        return [(flat(late).t() @ flat(early)).addmm_(first.t(), start)]


class Factored(Product):
    """A diagonal and two thin factors: two thin products per step."""

    def __init__(self, weight: DiagonalLowRank) -> None:
        self.diagonal, self.left, self.right = weight
        self.size = weight.diagonal.shape[0]

    def thin(self, rows: Tensor, factor: Tensor) -> Tensor:
        """Return ``rows`` times a factor, in scratch memory."""
        return torch.mm(rows, factor, out=scratch("thin", (rows.shape[0], factor.shape[1]), rows))

    def add(self, gate: Tensor, before: Tensor) -> None:
        """Two thin products and a diagonal."""
        gate.addmm_(self.thin(before, self.right), self.left.t()).addcmul_(before, self.diagonal)

    def write(self, before: Tensor, bias: Tensor | None, out: Tensor) -> None:
        """Two thin products and a diagonal."""
        torch.mul(before, self.diagonal, out=out)
        if bias is not None:
            out.add_(bias)
        out.addmm_(self.thin(before, self.right), self.left.t())

    def pull(self, adjoint: Tensor, plus: Tensor | None, out: Tensor) -> None:
        """Two thin products and a diagonal."""
        thin = self.thin(adjoint, self.left)
        if plus is None:
            torch.mm(thin, self.right.t(), out=out)
        else:
            torch.addmm(plus, thin, self.right.t(), out=out)
        out.addcmul_(adjoint, self.diagonal)

    def gradient(self, history: History) -> list[Tensor]:
        """Return the gradients of the diagonal and of both factors."""
        late, early, first, start = history
        grad_left = (flat(late).t() @ (flat(early) @ self.right)).addmm_(first.t(), start @ self.right)
        grad_right = (flat(early).t() @ (flat(late) @ self.left)).addmm_(start.t(), first @ self.left)
        diagonal = (first * start).sum(0)
        for place in range(0, late.shape[0], 16):  # some steps at once: little memory
            diagonal += (late[place : place + 16] * early[place : place + 16]).sum((0, 1))
        return [diagonal, grad_left, grad_right]


def gate_products(tensors: list[Tensor]) -> list[tuple[slice, Product]]:
    """Return the product with each matrix, beside its columns among the gates (..., G * H)."""
    weight = unflatten_weight(tensors)
    products = [product_of(gate) for gate in as_gates(weight)]
    result, start = [], 0
    for product in products:
        result.append((slice(start, start + product.size), product))
        start += product.size
    return result


def product_of(weight: Gate) -> Product:
    """Return the product with a matrix."""
    return Factored(weight) if isinstance(weight, DiagonalLowRank) else Dense(weight)
