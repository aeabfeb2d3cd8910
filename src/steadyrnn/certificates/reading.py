"""The former place of :class:`Weights`, by which certificates and time-parallel modules that were pickled find it."""

from .layer import Weights

__all__ = ["Weights"]
