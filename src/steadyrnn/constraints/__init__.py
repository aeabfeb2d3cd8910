"""Constraints: modules that map free parameters onto a set of matrices, and the slot that holds both."""

from .ball import SpectralBall
from .base import Constraint, Kind
from .cayley import CayleyOrthogonal
from .cayley_spectral import CayleySpectral
from .exponential import ExpOrthogonal
from .free import Free
from .householder import HouseholderOrthogonal
from .polar import PolarOrthogonal
from .spectral import Spectral
from .stable_lstm import StableLSTM
from .unitary import FullUnitary, RestrictedUnitary

__all__ = [
    "CayleyOrthogonal",
    "CayleySpectral",
    "Constraint",
    "ExpOrthogonal",
    "Free",
    "FullUnitary",
    "HouseholderOrthogonal",
    "Kind",
    "PolarOrthogonal",
    "RestrictedUnitary",
    "Spectral",
    "SpectralBall",
    "StableLSTM",
]
