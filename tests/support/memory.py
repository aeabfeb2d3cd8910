"""Uninitialised memory that shows: every ``torch.empty`` and every piece of scratch is full of NaN."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor

from steadyrnn.engines.cpu import gru, lstm
from steadyrnn.engines.loop import family

__all__ = ["poisoned_memory"]


@contextmanager
def poisoned_memory() -> Iterator[None]:
    """Fill all memory handed out uninitialised, fresh or kept, with NaN."""

    plain = family.scratch

    def poisoned(name: str, shape: Sequence[int], like: Tensor) -> Tensor:
        return plain(name, shape, like).fill_(torch.nan)

    was_on, was_filled = torch.are_deterministic_algorithms_enabled(), torch.utils.deterministic.fill_uninitialized_memory
    with pytest.MonkeyPatch.context() as patch:
        for module in (family, gru, lstm):
            patch.setattr(module, "scratch", poisoned)
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.utils.deterministic.fill_uninitialized_memory = True
        try:
            yield
        finally:
            torch.use_deterministic_algorithms(was_on)
            torch.utils.deterministic.fill_uninitialized_memory = was_filled
