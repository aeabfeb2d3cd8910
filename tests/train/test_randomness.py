"""Random states: seeded, saved, put back."""

import random

import numpy as np
import pytest
import torch

from steadyrnn.errors import CheckpointError
from steadyrnn.train.randomness import keep_random_state, random_state, restore_random_state, seed_everything


def draw() -> tuple[object, ...]:
    """Draw from every generator; a normal number leaves a second one waiting in some."""
    return torch.rand(3).tolist(), random.random(), random.gauss(0, 1), np.random.rand(), np.random.randn()


def test_one_seed_gives_one_sequence() -> None:
    seed_everything(3)
    first = draw()
    seed_everything(3)
    assert draw() == first
    seed_everything(4)
    assert draw() != first


def test_a_state_that_was_put_back_goes_on_as_before() -> None:
    draw()
    tensors, facts = random_state()
    first = [draw() for _ in range(3)]
    restore_random_state(tensors, facts)
    assert [draw() for _ in range(3)] == first


def test_what_is_undisturbed_leaves_no_trace() -> None:
    seed_everything(0)
    first = draw()
    seed_everything(0)
    with keep_random_state():
        draw()
    assert draw() == first


def test_an_error_leaves_no_trace_either() -> None:
    @keep_random_state()
    def fail() -> None:
        draw()
        raise KeyError

    seed_everything(0)
    first = draw()
    seed_everything(0)
    with pytest.raises(KeyError):
        fail()
    assert draw() == first


@pytest.mark.parametrize("name", ["cpu", "python", "numpy"])
def test_a_missing_or_short_state_is_refused(name: str) -> None:
    tensors, facts = random_state()
    with pytest.raises(CheckpointError, match="cannot be put back"):
        restore_random_state({key: tensor for key, tensor in tensors.items() if key != name}, facts)
    with pytest.raises(CheckpointError, match="cannot be put back"):
        restore_random_state(tensors | {name: tensors[name][:5]}, facts)
