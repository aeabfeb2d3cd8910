"""Numbers as a reader wants them: short, and never more digits than they carry."""

import math
from collections.abc import Sequence
from typing import Any

__all__ = ["contraction", "count", "duration", "factor", "finite", "mean", "number", "spread", "with_spread"]

MINUS = "\N{MINUS SIGN}"


def finite(value: Any) -> float | None:
    """Return a finite number as a float, and None for everything else (JSON's null, text, a truth value, infinity)."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        return float(value) if math.isfinite(value) else None
    except OverflowError:  # an integer beyond the largest float
        return None


def number(value: float | None, digits: int = 4) -> str:
    """Return a number in a few significant digits, in powers of ten where it is far from 1; a dash for None.

    Example:
        >>> number(0.16666), number(1234.0), number(2.5e-7), number(None)
        ('0.1667', '1234', '2.5e-7', '–')
    """
    if value is None:
        return "–"
    text = f"{value:.{digits}g}"
    if "e" in text:
        mantissa, exponent = text.split("e")
        text = f"{mantissa}e{int(exponent)}"
    return text.replace("-", MINUS) if value < 0 and "e" not in text else text


def factor(value: float | None) -> str:
    """Return a contraction, on which side of 1 it lies being the point: in four digits, or as many as do not say 1.

    Example:
        >>> factor(0.8096123), factor(1.000372), factor(1.0)
        ('0.8096', '1.0004', '1')
    """
    written = (number(value, digits) for digits in range(4, 17))
    return next((text for text in written if text != "1" or value == 1), "1")


def contraction(value: float | None) -> str:
    """Return a proven constant as a contraction rate: from 1 up there is none, and the constant is shown beside it.

    Example:
        >>> contraction(0.8096123), contraction(22651600.0), contraction(None)
        ('0.8096', 'none (2.265e7)', 'none')
    """
    if value is None:
        return "none"
    return factor(value) if value < 1 else f"none ({factor(value)})"


def count(value: float | None) -> str:
    """Return a whole number with its thousands apart; a dash for None.

    Example:
        >>> count(12345), count(None)
        ('12,345', '–')
    """
    return "–" if value is None else f"{round(value):,}"


def duration(seconds: float | None) -> str:
    """Return a time in the two largest units that matter; a dash for None.

    Example:
        >>> duration(3.25), duration(75), duration(7384)
        ('3.2 s', '1 min 15 s', '2 h 3 min')
    """
    if seconds is None:
        return "–"
    if seconds < 59.95:
        return f"{seconds:.1f} s"
    minutes = round(seconds) // 60
    if minutes < 60:
        return f"{minutes} min {round(seconds) % 60} s"
    return f"{minutes // 60} h {minutes % 60} min"


def mean(values: Sequence[float]) -> float | None:
    """Return the mean, None of nothing."""
    return math.fsum(value / len(values) for value in values) if values else None


def spread(values: Sequence[float]) -> float | None:
    """Return the sample standard deviation (of n - 1), None of fewer than two values; infinite beyond the largest float."""
    middle = mean(values)
    if middle is None or len(values) < 2:
        return None
    largest = max(abs(value - middle) for value in values)
    if largest == 0 or not math.isfinite(largest):
        return largest
    return largest * math.sqrt(math.fsum(((value - middle) / largest) ** 2 for value in values) / (len(values) - 1))


def with_spread(values: Sequence[float]) -> str:
    """Return the mean of some seeds' values, and their standard deviation in two digits where there are two or more.

    Example:
        >>> with_spread([0.1, 0.2]), with_spread([0.1]), with_spread([1e-6, 1.2e-6])
        ('0.150 ± 0.071', '0.1', '(1.10 ± 0.14)e-6')
    """
    deviation, middle = spread(values), mean(values)
    if middle is None or not deviation or not math.isfinite(deviation):
        return number(middle)
    largest = max(abs(middle), deviation)
    exponent = 0 if 1e-3 <= largest < 1e5 else math.floor(math.log10(largest))
    middle, deviation = middle / 10.0**exponent, deviation / 10.0**exponent
    decimals = min(max(0, 1 - math.floor(math.log10(deviation))), 6)
    both = f"{middle:.{decimals}f} ± {deviation:.{decimals}f}".replace("-", MINUS)
    return f"({both})e{exponent}" if exponent else both
