"""Tests that the boxes of both gated cells have in common."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from steadyrnn.errors import ArgumentError, CertificateError, NotFiniteError

__all__ = ["make_bound_test", "make_finite_test", "make_unbounded_test"]


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
