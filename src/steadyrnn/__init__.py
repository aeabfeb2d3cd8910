"""steadyrnn: recurrent networks with guarantees."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import constraints as constraints
    from .constraints.ball import SpectralBall as SpectralBall
    from .constraints.slot import cached as cached
    from .constraints.spectral import Spectral as Spectral
    from .layers.gru import GRU as GRU
    from .layers.rnn import RNN as RNN

__version__ = "0.1.0"

_PUBLIC: dict[str, str] = {
    "GRU": "steadyrnn.layers.gru",
    "RNN": "steadyrnn.layers.rnn",
    "Spectral": "steadyrnn.constraints.spectral",
    "SpectralBall": "steadyrnn.constraints.ball",
    "cached": "steadyrnn.constraints.slot",
}
"""Every public name and the file it lives in: nothing is imported before it is used."""

__all__ = [*_PUBLIC, "constraints"]


def __getattr__(name: str) -> Any:
    if name == "constraints":
        return import_module("steadyrnn.constraints")
    if name in _PUBLIC:
        return getattr(import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'steadyrnn' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
