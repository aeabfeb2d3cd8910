"""What the tests of both gated cells have in common."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from steadyrnn.errors import ArgumentError, CertificateError, NotFiniteError, ShapeError

__all__ = [
    "GatedNet",
    "make_bound_test",
    "make_finite_test",
    "make_initial_bound_test",
    "make_shape_test",
    "make_unbounded_test",
]


@dataclass(frozen=True)
class GatedNet(ABC):
    """A gated cell in float64, gates in torch's order, whose inputs are bounded by ``input_bound``."""

    weight_ih: Tensor
    weight_hh: Tensor

    @abstractmethod
    def largest_input(self) -> float:
        """Return the bound on the entries of inputs."""

    @property
    def size(self) -> int:
        """The number of units."""
        return self.weight_hh.shape[1]

    def inputs(self, count: int, seed: int) -> Tensor:
        """Return inputs, half of them in a corner of what is allowed."""
        x = 2 * torch.rand(count, self.weight_ih.shape[1], generator=torch.Generator().manual_seed(seed)).double() - 1
        x[::2] = x[::2].sign()
        return x * self.largest_input()


def make_finite_test(build: Callable[[], Any], names: list[str]) -> Callable[[str, float], None]:
    """Return the test that no box is given for weights that are not finite; ``build`` makes a network with a ``box``."""

    @pytest.mark.parametrize("name", names)
    @pytest.mark.parametrize("bad", [math.nan, math.inf])
    def test(name: str, bad: float) -> None:
        net = build()
        broken = getattr(net, name).clone()
        broken.view(-1)[3] = bad
        with pytest.raises(NotFiniteError, match=f"`{name}`"):
            replace(net, **{name: broken}).box()

    return test


def make_unbounded_test(build: Callable[[], Any]) -> Callable[[], None]:
    """Return the test that unbounded inputs have no certificate."""

    def test() -> None:
        with pytest.raises(CertificateError, match="`input_bound`"):
            replace(build(), input_bound=math.inf).box()

    return test


def make_bound_test(build: Callable[[], Any]) -> Callable[[float], None]:
    """Return the test that a bound on inputs is not negative."""

    @pytest.mark.parametrize("bound", [-1.0, math.nan])
    def test(bound: float) -> None:
        with pytest.raises(ArgumentError, match="`input_bound`"):
            replace(build(), input_bound=bound).box()

    return test


def make_shape_test(
    build: Callable[[], Any], cases: list[tuple[str, tuple[int, ...]]]
) -> Callable[[str, tuple[int, ...]], None]:
    """Return the test that a tensor of a shape that torch would not have is refused by its name."""

    @pytest.mark.parametrize(("name", "shape"), cases)
    def test(name: str, shape: tuple[int, ...]) -> None:
        with pytest.raises(ShapeError, match=f"`{name}`"):
            replace(build(), **{name: torch.zeros(shape)}).box()

    return test


def make_initial_bound_test(build: Callable[[], Any], negative: object) -> Callable[[], None]:
    """Return the test that a bound on the initial state has the size of the state, and is not ``negative``."""

    def test() -> None:
        net = build()
        with pytest.raises(ShapeError, match="`initial_bound`"):
            net.box(initial_bound=torch.ones(net.size + 1))
        with pytest.raises(ArgumentError, match="`initial_bound`"):
            net.box(initial_bound=negative)

    return test
