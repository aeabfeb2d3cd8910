"""Which weights of a feed-forward model a constraint is put on."""

from collections.abc import Mapping

from steadyrnn.constraints.base import Constraint
from steadyrnn.constraints.registry import as_constraint
from steadyrnn.errors import ArgumentError

__all__ = ["PLACES", "WeightLike", "by_place"]

PLACES = ("input", "hidden", "readout")
"""The input layer, the square layers behind it, and the last, linear layer."""

WeightLike = str | Constraint | Mapping[str, str | Constraint]


def by_place(weight: WeightLike) -> dict[str, Constraint]:
    """Return a constraint for each place: one alone is the hidden layers', a mapping names places, the rest are free.

    The hidden weights are the square ones, the only ones whose number grows with the depth: they alone decide
    whether a gradient survives a deep network, and every constraint fits them. The other two may be rectangular.

    Example:
        >>> {place: type(c).__name__ for place, c in by_place("spectral").items()}
        {'input': 'Free', 'hidden': 'Spectral', 'readout': 'Free'}
    """
    named = dict(weight) if isinstance(weight, Mapping) else {"hidden": weight}
    unknown = [str(place) for place in named if place not in PLACES]
    if unknown:
        raise ArgumentError(f"`weight` names the place {unknown[0]!r}, but the places are {', '.join(PLACES)}.")
    return {place: as_constraint("weight", named.get(place, "free")) for place in PLACES}
