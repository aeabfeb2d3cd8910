"""Axes: from numbers to places, with ticks at round numbers."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from .numbers import MINUS, number

__all__ = ["Scale", "linear", "logarithmic", "wants_logarithm", "whole"]

SUPERSCRIPTS = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")
TINY, HUGE = 1e-280, 1e300
ROUNDING = 1e-5  # values that differ by no more, relatively, are one value: a picture of rounding errors says nothing


@dataclass(frozen=True)
class Scale:
    """An axis from ``low`` to ``high``; ``at`` gives the place of a value, 0 at the low end and 1 at the high one."""

    low: float
    high: float
    log: bool
    ticks: tuple[tuple[float, str], ...]

    def at(self, value: float) -> float:
        """Return the place of a value; on a logarithmic axis 0 and what is below it lie far under the low end."""
        if not self.log:
            return (value / 2 - self.low / 2) / (
                self.high / 2 - self.low / 2
            )  # halves: the difference of two floats may overflow
        if value <= TINY:
            return -1.0
        return (math.log10(value) - math.log10(self.low)) / (math.log10(self.high) - math.log10(self.low))


def wants_logarithm(values: Iterable[float]) -> bool:
    """Return whether values are all positive and span more than a factor of 20."""
    values = list(values)
    return bool(values) and min(values) > TINY and max(values) > 20 * min(values)


def linear(values: Iterable[float], ticks: int = 5, margin: float = 0.05) -> Scale:
    """Return a linear axis around values, with about so many ticks at 1, 2 or 5 times a power of ten.

    Example:
        >>> [label for _, label in linear([0, 1000]).ticks]
        ['0', '200', '400', '600', '800', '1000']
    """
    found = [min(max(value, -HUGE), HUGE) if abs(value) > TINY else 0.0 for value in values] or [0.0, 1.0]
    low, high = min(found), max(found)
    if high - low <= ROUNDING * max(abs(low), abs(high)):
        half = abs(high) / 10 or 0.5
        low, high = low - half, high + half
    step = round_step((high - low) / ticks)
    edge = margin * (high - low)
    low, high = low - edge, high + edge
    first = math.ceil(low / step - 1e-9)
    places = [i * step for i in range(first, math.floor(high / step + 1e-9) + 1)]
    return Scale(low, high, False, tuple((place, tick_label(place, step)) for place in places))


def whole(scale: Scale) -> Scale:
    """Return an axis with those ticks that stand at whole numbers: of steps and lags there are no others.

    Example:
        >>> [label for _, label in whole(linear([0.0])).ticks]
        ['0']
    """
    ticks = [(place, label) for place, label in scale.ticks if abs(place - round(place)) < 1e-9]
    return replace(scale, ticks=tuple((place, tick_label(round(place), 1)) for place, _ in ticks))


def round_step(rough: float) -> float:
    """Return the least of 1, 2, 5 times a power of ten that is at least ``rough``."""
    power = 10.0 ** math.floor(math.log10(rough))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= rough * (1 - 1e-9))


def tick_label(place: float, step: float) -> str:
    """Return a tick's number, with the decimals that tell it from its neighbours."""
    if place == 0:
        return "0"
    if abs(place) >= 1e6 or abs(place) < 1e-3 > 10 * step:
        return number(place, max(4, math.ceil(math.log10(abs(place) / step)) + 1))
    decimals = max(0, -math.floor(math.log10(step) + 1e-9))
    return f"{place:.{decimals}f}".replace("-", MINUS)


def logarithmic(values: Iterable[float], ticks: int = 5) -> Scale:
    """Return a logarithmic axis around the positive ones of some values, with ticks at powers of ten.

    Within less than two powers, ticks stand at 1, 2 and 5 times a power.

    Example:
        >>> [label for _, label in logarithmic([1e-4, 0.9]).ticks]
        ['10⁻⁴', '10⁻³', '0.01', '0.1', '1']
    """
    found = [math.log10(min(value, HUGE)) for value in values if value > TINY] or [0.0, 1.0]
    low, high = min(found), max(found)
    edge = max(0.03 * (high - low), 0.35 - (high - low) / 2)
    low, high = max(low - edge, math.log10(TINY)), min(high + edge, 307.0)
    first, last = math.ceil(low - 1e-9), math.floor(high + 1e-9)
    if last - first >= 2:
        step = max(1, math.ceil((last - first + 1) / (ticks + 1)))
        places = [10.0**i for i in range(first, last + 1) if i % step == 0]
    else:
        decades = range(math.floor(low), last + 1)
        places = [f * 10.0**i for i in decades for f in (1, 2, 5) if low <= math.log10(f * 10.0**i) <= high]
    return Scale(10**low, 10**high, True, tuple((place, power_label(place)) for place in places))


def power_label(place: float) -> str:
    """Return a tick of a logarithmic axis: a plain number near 1, else a power of ten."""
    if 0.009 < place < 2000:
        return number(place, 3)
    exponent = math.floor(math.log10(place) + 1e-9)
    factor = round(place / 10.0**exponent)
    power = "10" + str(exponent).translate(SUPERSCRIPTS)
    return power if factor == 1 else f"{factor}·{power}"
