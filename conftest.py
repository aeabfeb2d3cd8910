"""What tests and doctests share: one thread, a fixed seed, a clean default dtype, and names for doctests."""

import importlib
from collections.abc import Iterator
from typing import Any

import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _steady_torch() -> Iterator[None]:
    dtype = torch.get_default_dtype()
    torch.manual_seed(0)
    yield
    torch.set_default_dtype(dtype)


@pytest.fixture(autouse=True)
def _doctest_names(doctest_namespace: dict[str, Any]) -> None:
    doctest_namespace["torch"] = torch
    doctest_namespace["sr"] = importlib.import_module("steadyrnn")
