"""Whole modules, state dicts and optimizers that an earlier version stored load, and give what they gave."""

from importlib import import_module
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.layers.stored_modules import KINDS, attached, example, read, results, step

CASES = [(kind, name) for kind, makers in KINDS.items() for name in makers]


def assert_same(found: list[Tensor], stored: list[Tensor]) -> None:
    for one, other in zip(found, stored, strict=True):
        torch.testing.assert_close(one, other)


@pytest.fixture(scope="module")
def numbers() -> Any:
    """Return the stored state dicts and outputs: tensors and nothing that could be executed."""
    return read("numbers", weights_only=True)


@pytest.mark.parametrize("kind", KINDS)
def test_whole_modules_load_and_give_what_they_gave(kind: str, numbers: Any) -> None:
    modules = read(kind, weights_only=False)
    assert set(modules) == set(KINDS[kind])
    for name, module in modules.items():
        assert_same(results(module, example(kind, name)), numbers[kind][name]["output"])


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_a_state_dict_loads_and_gives_what_it_gave(kind: str, name: str, numbers: Any) -> None:
    module = KINDS[kind][name]()
    module.load_state_dict(numbers[kind][name]["state"])
    assert_same(results(module, example(kind, name)), numbers[kind][name]["output"])


def test_the_state_of_a_projected_optimizer_loads_and_takes_the_same_step(numbers: Any) -> None:
    stored, (model, optimizer) = numbers["training"], attached()
    model.load_state_dict(stored["model"])
    optimizer.load_state_dict(stored["optimizer"])
    step(model, optimizer)
    assert_same([*model.state_dict().values()], [*stored["next"].values()])


FORMER = {
    "steadyrnn.certificates.reading": ("Weights", "steadyrnn.certificates.layer"),
    "steadyrnn.convert.model": ("with_layer", "steadyrnn.models.converted"),
    "steadyrnn.engines.windows": ("Windows", "steadyrnn.engines.base"),
    "steadyrnn.layers.transition": ("Transition", "steadyrnn.layers.weights"),
}


@pytest.mark.parametrize("former", FORMER)
def test_what_pickles_and_converted_models_name_is_still_at_its_former_place(former: str) -> None:
    name, place = FORMER[former]
    assert getattr(import_module(former), name) is getattr(import_module(place), name)
