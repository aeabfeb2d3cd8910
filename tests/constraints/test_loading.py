"""A refused state dict leaves a module as it was, and the state dict too, however it is loaded."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor, nn

import steadyrnn as sr
from steadyrnn.constraints.slot import Slot
from steadyrnn.errors import ConstraintError
from tests.constraints.cases import CASES, PROJECTIONS, RECENTRED
from tests.support.modules import swapping

CHECKED = [*RECENTRED, *PROJECTIONS, "stable-lstm"]
every_checked = pytest.mark.parametrize("name", CHECKED)
both_ways = pytest.mark.parametrize("assign", [False, True], ids=["copied", "assigned"])


@pytest.fixture(params=["plain", "swapped"])
def _conversions(request: pytest.FixtureRequest) -> Iterator[None]:
    if request.param == "plain":
        yield
        return
    with swapping():
        yield


def made(name: str, device: str | None = None) -> nn.Module:
    if name == "stable-lstm":
        return sr.LSTM(3, 4, transition=name, device=device)
    return Slot(CASES[name](), 6, 6, device)


def outside(name: str) -> dict[str, Tensor]:
    """Return a state whose weights are three times what they may be."""
    state = made(name).state_dict()
    return {key: (tensor + 0.1) * 9 if tensor.is_floating_point() else tensor for key, tensor in state.items()}


def weight(module: nn.Module) -> Tensor:
    return module.weight() if isinstance(module, Slot) else module.weight_hh_l0


@both_ways
@every_checked
@pytest.mark.usefixtures("_conversions")
def test_a_refused_load_changes_neither_module_nor_state_dict(name: str, assign: bool) -> None:
    module, given = made(name), outside(name)
    objects = dict(module.state_dict(keep_vars=True))
    before, copied = ({key: t.detach().clone() for key, t in state.items()} for state in (objects, given))
    with pytest.raises(ConstraintError, match="outside the set"):
        module.load_state_dict(given, assign=assign)
    after = module.state_dict(keep_vars=True)
    assert all(after[key] is tensor for key, tensor in objects.items())
    assert all(torch.equal(after[key], tensor) for key, tensor in before.items())
    assert all(torch.equal(given[key], tensor) for key, tensor in copied.items())
    memory = {tensor.data_ptr() for tensor in given.values() if tensor.numel()}
    assert not memory & {tensor.data_ptr() for tensor in after.values() if tensor.numel()}
    assert weight(module).isfinite().all()


@every_checked
@pytest.mark.usefixtures("_conversions")
def test_a_module_without_memory_refuses_a_weight_outside_and_takes_one_inside(name: str) -> None:
    module, source = made(name, "meta"), made(name)
    with pytest.raises(ConstraintError, match="outside the set"):
        module.load_state_dict(outside(name), assign=True)
    assert all(tensor.is_meta for tensor in module.state_dict().values())
    module.load_state_dict(source.state_dict(), assign=True)
    assert torch.equal(weight(module), weight(source))


@every_checked
def test_a_module_of_which_a_part_has_no_memory_yet_is_not_asked(name: str) -> None:
    module, source = made(name, "meta"), made(name)
    for key, tensor in source.state_dict().items():
        module.load_state_dict({key: tensor}, assign=True, strict=False)
    assert torch.equal(weight(module), weight(source))
