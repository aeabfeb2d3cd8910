"""Hypothesis profiles, torch's random numbers under Hypothesis, and tests that need a GPU."""

import os

import hypothesis
import pytest
import torch

hypothesis.settings.register_profile("quick", deadline=None, derandomize=True, max_examples=20)
hypothesis.settings.register_profile("long", deadline=None, max_examples=500)
hypothesis.settings.load_profile(os.environ.get("STEADYRNN_HYPOTHESIS", "quick"))


class _TorchRandom:
    """Torch's generator as Hypothesis wants it, so that every example starts from the same random state."""

    def seed(self, value: int) -> None:
        torch.manual_seed(value)

    def getstate(self) -> torch.Tensor:
        return torch.get_rng_state()

    def setstate(self, state: torch.Tensor) -> None:
        torch.set_rng_state(state)


_TORCH_RANDOM = _TorchRandom()  # Hypothesis keeps a weak reference only
hypothesis.register_random(_TORCH_RANDOM)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if torch.cuda.is_available():
        return
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))
