"""The errors that this package raises for a user's mistake; each is also the builtin that torch raises in that case."""

import unicodedata
from collections.abc import Iterable
from difflib import get_close_matches

__all__ = [
    "ArgumentError",
    "ArgumentTypeError",
    "CertificateError",
    "CheckpointError",
    "ConstraintError",
    "ConstraintWarning",
    "ConversionError",
    "DataError",
    "DeviceError",
    "DtypeError",
    "EngineError",
    "LayoutWarning",
    "MissingExtraError",
    "NotFiniteError",
    "NotInvertibleError",
    "RunError",
    "ShapeError",
    "SteadyError",
    "TrainingError",
    "WeightError",
    "printable",
]

_LONGEST = 2000
_UNPRINTABLE = {"Cc", "Cf", "Cs", "Zl", "Zp"}
"""Unicode categories of characters that control a terminal, reorder or break a line, or cannot be encoded; ``\\n`` is kept."""


def printable(text: str) -> str:
    r"""Return a text that is safe to print: control, bidirectional and unencodable characters become escapes.

    Names and values in a file may contain escape sequences. Every error of this package and every line of the program is
    passed through this function. Line ends are kept.

    Example:
        >>> print(printable("a\x1b[2Jb"))
        a\x1b[2Jb
    """
    if text.isascii() and text.replace("\n", "").isprintable():
        return text
    return "".join(
        letter.encode("unicode_escape").decode() if letter != "\n" and unicodedata.category(letter) in _UNPRINTABLE else letter
        for letter in text
    )


class SteadyError(Exception):
    """The base class: ``except SteadyError`` catches every error of this package.

    Its text is safe to print, see :func:`printable`. The middle of a very long text is omitted.
    """

    def __str__(self) -> str:
        text = super().__str__()
        return printable(text if len(text) <= _LONGEST else f"{text[: _LONGEST // 2]} ... {text[-_LONGEST // 4 :]}")


class ArgumentError(SteadyError, ValueError):
    """An argument has a value that the function does not support."""


class ArgumentTypeError(SteadyError, TypeError):
    """An argument has the wrong type."""


class ShapeError(SteadyError, RuntimeError, ValueError):
    """A tensor has the wrong shape (torch raises either builtin, depending on the place)."""


class DtypeError(SteadyError, RuntimeError, ValueError):
    """A tensor's dtype does not fit the module's (torch raises either builtin, depending on the place)."""


class DeviceError(SteadyError, RuntimeError):
    """A tensor is on another device than the module."""


class ConstraintError(SteadyError, ValueError):
    """A matrix is outside the set of its constraint."""


class NotInvertibleError(SteadyError, ValueError):
    """A constraint's map has no right inverse, so no matrix can be assigned through it."""


class NotFiniteError(SteadyError, ValueError):
    """A number is NaN or infinite where a finite one is needed."""


class CertificateError(SteadyError, ValueError):
    """No theorem gives the requested bound, or an assumption is missing."""


class EngineError(SteadyError, RuntimeError):
    """The requested engine cannot run this layer."""


class LayoutWarning(UserWarning):
    """An input has a shape as if batch and time were exchanged."""


class MissingExtraError(SteadyError, ImportError):
    """An optional package is not installed."""


class ConversionError(SteadyError, ValueError):
    """A module cannot be converted to the requested form."""


class DataError(SteadyError, ValueError):
    """A data file is missing or damaged, or does not contain what its name says."""


class RunError(SteadyError, RuntimeError):
    """A run folder cannot be used: it is locked by another process, is not a run, or has another configuration."""


class CheckpointError(SteadyError, RuntimeError):
    """A checkpoint is missing or damaged, or does not fit the model."""


class TrainingError(SteadyError, RuntimeError):
    """Training cannot continue: the loss or a gradient is not finite."""


class RanksError(SteadyError, RuntimeError):
    """The processes of a distributed run cannot go on together: one has failed or ended, or they disagree."""


class WeightError(SteadyError, RuntimeError):
    """A constrained weight cannot be changed, replaced or copied in this way."""


class ConstraintWarning(UserWarning):
    """A requested projection changed a weight by more than half of its norm."""


def suggestion(name: object, known: Iterable[str]) -> str:
    """Return a sentence that suggests the nearest known name, or lists all of them.

    Example:
        >>> suggestion("lsmt", ["lstm", "gru"]), suggestion("x", ["lstm", "gru"])
        ('Did you mean `lstm`?', 'There are lstm, gru.')
    """
    names = [*known]
    near = get_close_matches(str(name), names, 1)
    return f"Did you mean `{near[0]}`?" if near else f"There are {', '.join(names)}."


def not_among(argument: str, value: object, known: Iterable[str]) -> str:
    """Return the message for an argument whose value is not one of the known names.

    Example:
        >>> not_among("readout", "lst", ["last", "each"])
        "`readout` must be one of last, each, but is 'lst'. Did you mean `last`?"
    """
    names = [*known]
    near = get_close_matches(str(value), names, 1)
    said = f"`{argument}` must be one of {', '.join(names)}, but is {value!r}."
    return f"{said} Did you mean `{near[0]}`?" if near else said
