"""Every error this package raises for a user's mistake; each is also the builtin torch raises in that case."""

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
"""Categories of characters that steer a terminal, reorder or break a line, or cannot be encoded; of ``Cc``, ``\\n`` is kept."""


def printable(text: str) -> str:
    r"""Return a text that no terminal obeys: control, bidirectional and unencodable characters written out as escapes.

    Names and values in a file may hold escape sequences. Every error of this package and every line of the program goes
    through here. Line ends stay.

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
    """The common ancestor: ``except SteadyError`` catches every error of this package.

    Its text is safe to print, whatever it quotes: see :func:`printable`. The middle of a very long one is left out.
    """

    def __str__(self) -> str:
        text = super().__str__()
        return printable(text if len(text) <= _LONGEST else f"{text[: _LONGEST // 2]} ... {text[-_LONGEST // 4 :]}")


class ArgumentError(SteadyError, ValueError):
    """An argument has a value outside what the function takes."""


class ArgumentTypeError(SteadyError, TypeError):
    """An argument has the wrong type."""


class ShapeError(SteadyError, RuntimeError, ValueError):
    """A tensor has the wrong shape (torch raises either builtin, depending on the place)."""


class DtypeError(SteadyError, RuntimeError, ValueError):
    """A tensor's dtype does not fit the module's (torch raises either builtin, depending on the place)."""


class DeviceError(SteadyError, RuntimeError):
    """A tensor lies on another device than the module."""


class ConstraintError(SteadyError, ValueError):
    """A matrix lies outside the set a constraint keeps it in."""


class NotInvertibleError(SteadyError, ValueError):
    """A constraint's map has no right inverse, so no matrix can be assigned through it."""


class NotFiniteError(SteadyError, ValueError):
    """NaN or infinity where a finite number is needed."""


class CertificateError(SteadyError, ValueError):
    """A bound was asked for that no theorem gives, or that lacks an assumption."""


class EngineError(SteadyError, RuntimeError):
    """The engine asked for cannot run this layer."""


class LayoutWarning(UserWarning):
    """An input has the shape that batch and time in each other's place would give."""


class ConversionError(SteadyError, ValueError):
    """A module has no equivalent of the form asked for."""


class DataError(SteadyError, ValueError):
    """A data file is missing, damaged or not what its name says."""


class RunError(SteadyError, RuntimeError):
    """A run folder cannot be used: held by another process, not a run, or of another configuration."""


class CheckpointError(SteadyError, RuntimeError):
    """A checkpoint is missing, damaged or does not fit the model."""


class TrainingError(SteadyError, RuntimeError):
    """Training cannot go on: the loss or a gradient is not finite."""


class WeightError(SteadyError, RuntimeError):
    """A weight that a constraint computes or keeps cannot be changed, replaced or copied in this way."""


class ConstraintWarning(UserWarning):
    """A projection that was asked for changed a weight by more than half of its norm."""


def suggestion(name: object, known: Iterable[str]) -> str:
    """Return a sentence that leads from a name that is not known to one that is: the nearest, or all of them.

    Example:
        >>> suggestion("lsmt", ["lstm", "gru"]), suggestion("x", ["lstm", "gru"])
        ('Did you mean `lstm`?', 'There are lstm, gru.')
    """
    names = [*known]
    near = get_close_matches(str(name), names, 1)
    return f"Did you mean `{near[0]}`?" if near else f"There are {', '.join(names)}."


def not_among(argument: str, value: object, known: Iterable[str]) -> str:
    """Return what to say of an argument whose value must be one of some names and is not.

    Example:
        >>> not_among("readout", "lst", ["last", "each"])
        "`readout` must be one of last, each, but is 'lst'. Did you mean `last`?"
    """
    names = [*known]
    near = get_close_matches(str(value), names, 1)
    said = f"`{argument}` must be one of {', '.join(names)}, but is {value!r}."
    return f"{said} Did you mean `{near[0]}`?" if near else said
