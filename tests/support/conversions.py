"""Loading what a conversion wrote."""

import importlib.util
from pathlib import Path

from torch import nn


def loaded(folder: Path) -> nn.Module:
    """Return the model that the ``load.py`` of a conversion loads."""
    spec = importlib.util.spec_from_file_location("load", folder / "load.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    made: nn.Module = module.load()
    return made
