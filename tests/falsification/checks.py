"""The tests of every attack on a bound: no counterexample is found, and the bound is nearly met or its gap is on record."""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

import pytest

from tests.falsification.adversary import ROUNDING, Attack, reached

__all__ = ["Loose", "check_met", "check_recorded", "check_unbeaten", "with_loose"]

Attacks = Mapping[str, Callable[[], Attack]]
"""How to make attacks, by name."""


class Loose(NamedTuple):
    """An attack on a bound that is not met, and the share of the bound that it reaches."""

    share: float
    attack: Callable[[], Attack]


def with_loose(tight: Attacks, loose: Mapping[str, Loose]) -> tuple[Attacks, Mapping[str, float]]:
    """Return all attacks, those on bounds that are met first, and the shares that the others reach."""
    return {**tight, **{name: one.attack for name, one in loose.items()}}, {name: one.share for name, one in loose.items()}


def check_unbeaten(attacks: Attacks) -> Callable[[str], None]:
    """Return a test that no attack finds a counterexample to its bound."""

    @pytest.mark.parametrize("name", attacks)
    def test(name: str) -> None:
        assert reached(attacks[name]) <= 1 + ROUNDING

    return test


def check_met(attacks: Attacks, names: Iterable[str] | None = None, least: float = 0.99) -> Callable[[str], None]:
    """Return a test that attacks come close to their bounds: all of them, or those named."""

    @pytest.mark.parametrize("name", attacks if names is None else names)
    def test(name: str) -> None:
        assert reached(attacks[name]) >= least

    return test


def check_recorded(attacks: Attacks, gaps: Mapping[str, float]) -> Callable[[str], None]:
    """Return a test that attacks come as close to their bounds as was recorded, or nearly so."""

    @pytest.mark.parametrize("name", gaps)
    def test(name: str) -> None:
        assert reached(attacks[name]) >= 0.9 * gaps[name]

    return test
