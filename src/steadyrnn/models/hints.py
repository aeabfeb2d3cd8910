"""Whether a value from a file is what an argument's type says, before anything is called with it."""

import types
from collections.abc import Mapping
from typing import Any, Literal, Union, get_args, get_origin

__all__ = ["fits"]

_LARGEST = 1 << 63


def fits(value: Any, hint: Any) -> bool:
    """Say whether a value is of a type; an integer is a number, True is neither.

    Example:
        >>> fits(3, float), fits(True, int), fits((1, 2), int | tuple[int, int] | None), fits({"i": 3}, dict[str, str])
        (True, False, True, False)
    """
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return any(fits(value, one) for one in parts)
    if origin is Literal:
        return any(type(value) is type(one) and value == one for one in parts)
    if origin is tuple:
        return isinstance(value, tuple) and len(value) == len(parts) and all(map(fits, value, parts))
    if origin is not None:
        inner = isinstance(value, Mapping) and all(fits(one, parts[-1]) for one in value.values())
        return inner and issubclass(origin, Mapping)
    if isinstance(value, int) and hint in (int, float):
        return not isinstance(value, bool) and -_LARGEST <= value < _LARGEST
    return isinstance(value, type(None) if hint is None else hint)
