"""The optional package polars, which reads tables."""

from importlib.util import find_spec
from pathlib import Path

from steadyrnn.errors import DataError

__all__ = ["require_polars"]


def require_polars(path: Path) -> None:
    """Refuse to read a file if polars is not installed."""
    try:
        found = find_spec("polars") is not None
    except ValueError:  # a module without a specification, as tests put there
        found = False
    if not found:
        raise DataError(f"{path} is read with polars, which is not installed: `pip install 'steadyrnn[data]'`.")
