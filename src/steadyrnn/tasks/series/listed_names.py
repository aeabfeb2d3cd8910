"""Names in a setting, separated by commas."""

from collections.abc import Iterable, Sequence

__all__ = ["first_repeated", "split_names"]


def split_names(given: str | None, known: Iterable[str]) -> list[str]:
    """Return the names in a setting: the whole of it if there is such a name, else its parts between commas.

    Example:
        >>> split_names("x, y", ["x", "y"]), split_names("x, y", ["x, y"])
        (['x', 'y'], ['x, y'])
    """
    if given is None:
        return []
    return [given] if given in {*known} else [name.strip() for name in given.split(",")]


def first_repeated(names: Sequence[str]) -> str | None:
    """Return the first name that was there before, or None.

    Example:
        >>> first_repeated(["a", "b", "a"]), first_repeated(["a"])
        ('a', None)
    """
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None
