"""The former place of the class of weights, by which certificates and time-parallel modules that were pickled find it."""

from .layer import Weights as Weights

__all__: list[str] = []
