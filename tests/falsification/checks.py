"""The tests of every attack on a bound: no counterexample is found, and the bound is nearly met or its gap is on record."""

from collections.abc import Callable, Iterable, Mapping

import pytest

from tests.falsification.adversary import ROUNDING, Attack, reached

__all__ = ["check_met", "check_recorded", "check_unbeaten"]

Attacks = Mapping[str, Callable[[], Attack]]
"""How to make attacks, by name."""


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
