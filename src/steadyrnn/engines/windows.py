"""The former place of windows, by which time-parallel modules that were pickled find them."""

from .base import Windows as Windows

__all__: list[str] = []
