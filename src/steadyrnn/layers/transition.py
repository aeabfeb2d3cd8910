"""Where modules that were saved whole by version 0.1 look for the class of their recurrent weight."""

from .weights import Transition

__all__ = ["Transition"]
