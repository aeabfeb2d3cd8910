"""Removing what a killed process began inside a folder of ours."""

import shutil
from pathlib import Path

from steadyrnn.errors import RunError
from steadyrnn.runs.files import remove_quietly
from steadyrnn.runs.regular import kind_of

__all__ = ["remove_folder"]


def remove_folder(path: Path) -> None:
    """Remove a folder with all that is in it, or a file; a link is removed, and what it leads to stays.

    Raises:
        RunError: The system refused.
    """
    if kind_of(path) != "a folder":
        remove_quietly(path)
        return
    try:
        shutil.rmtree(path)  # which follows no link
    except OSError as error:
        raise RunError(f"`{path}` could not be removed: {error.strerror}.") from error
