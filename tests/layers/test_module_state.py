"""What torch's own tests ask of a module, of every layer and model with every constraint: copies, casts, files, devices."""

import copy
import io
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from steadyrnn.models.mlp import MLP
from steadyrnn.models.resnet import ResNet
from tests.support.modules import DTYPES, MODULES, ModuleCase, default_dtype, outputs, swapping, violations

every_module = pytest.mark.parametrize("case", MODULES.values(), ids=MODULES)


def made(case: ModuleCase, **more: Any) -> nn.Module:
    torch.manual_seed(0)
    return case.make(**more)


def assert_same(found: nn.Module, expected: nn.Module, case: ModuleCase, dtype: torch.dtype = torch.float32) -> None:
    """Check that two modules give the same numbers, and hold state of the same names, shapes and dtypes."""
    for a, b in zip(outputs(found(case.data(dtype))), outputs(expected(case.data(dtype))), strict=True):
        assert torch.equal(a, b)
    states = [{key: (t.shape, t.dtype) for key, t in module.state_dict().items()} for module in (found, expected)]
    assert states[0] == states[1]


def assert_member(module: nn.Module, dtype: torch.dtype, before: torch.dtype | None = None) -> None:
    """Check that all numbers are in a dtype, and weights in their sets up to its rounding, or that of the one before."""
    tensors = [*module.parameters(), *module.buffers()]
    assert all(tensor.dtype == dtype for tensor in tensors if tensor.is_floating_point())
    assert all(tensor.dtype == torch.int64 for tensor in tensors if not tensor.is_floating_point())
    assert all(violation <= allowed for violation, allowed in violations(module, before))


def assert_runs(module: nn.Module, case: ModuleCase, dtype: torch.dtype) -> None:
    for output in outputs(module(case.data(dtype))):
        assert output.dtype == dtype
        assert bool(output.isfinite().all())


def saved_whole(module: nn.Module) -> nn.Module:
    file = io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


COPIES: dict[str, Callable[[nn.Module], nn.Module]] = {
    "deepcopy": copy.deepcopy,
    "pickle": lambda module: pickle.loads(pickle.dumps(module)),
    "torch.save": saved_whole,
}


@pytest.mark.parametrize("way", COPIES.values(), ids=COPIES)
@every_module
def test_a_copy_gives_the_same_after_a_forward_and_a_backward(case: ModuleCase, way: Callable[..., nn.Module]) -> None:
    module = made(case)
    sum(output.sum() for output in outputs(module(case.data()))).backward()
    twin = way(module)
    assert_same(twin, module, case)
    shared = {p.data_ptr() for p in twin.parameters() if p.numel()} & {p.data_ptr() for p in module.parameters() if p.numel()}
    assert not shared


@every_module
def test_every_buffer_is_state_and_saved(case: ModuleCase) -> None:
    module = made(case)
    state = module.state_dict()
    assert [key for key, _ in module.named_buffers() if key not in state] == []
    assert [key for key, value in state.items() if not value.is_contiguous()] == []  # safetensors stores no others
    for part in module.modules():
        assert [name for name, value in vars(part).items() if isinstance(value, Tensor)] == []


@pytest.mark.parametrize("assign", [False, True], ids=["copied", "assigned"])
@every_module
def test_a_state_dict_brings_the_module_back(case: ModuleCase, assign: bool) -> None:
    source, other = made(case), case.make()
    file = io.BytesIO()
    torch.save(source.state_dict(), file)
    file.seek(0)
    other.load_state_dict(torch.load(file, weights_only=True), assign=assign)
    assert_same(other, source, case)


CASTS: dict[str, tuple[torch.dtype, Callable[[nn.Module], nn.Module]]] = {
    "to(float16)": (torch.float16, lambda module: module.to(torch.float16)),
    "bfloat16()": (torch.bfloat16, lambda module: module.bfloat16()),
    "type(bfloat16)": (torch.bfloat16, lambda module: module.type(torch.bfloat16)),
    "type(float64)": (torch.float64, lambda module: module.type(torch.float64)),
    "double().float()": (torch.float32, lambda module: module.double().float()),
}


@pytest.mark.parametrize("cast", CASTS)
@every_module
def test_a_cast_module_runs_and_stays_in_its_set(case: ModuleCase, cast: str) -> None:
    dtype, change = CASTS[cast]
    module = change(made(case))
    assert_member(module, dtype, before=torch.float32)
    assert_runs(module, case, dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@every_module
def test_a_dtype_is_taken_as_an_argument_and_as_the_default(case: ModuleCase, dtype: torch.dtype) -> None:
    named = made(case, device="cpu", dtype=dtype)
    assert_member(named, dtype)
    assert_runs(named, case, dtype)
    with default_dtype(dtype):
        usual = made(case)
        assert_member(usual, dtype)
        assert_runs(usual, case, dtype)


@every_module
def test_a_module_on_the_meta_device_gives_shapes(case: ModuleCase) -> None:
    expected = [output.shape for output in outputs(made(case)(case.data()))]
    found = outputs(made(case).to("meta")(torch.empty(case.shape, device="meta")))
    assert all(output.is_meta for output in found)
    assert [output.shape for output in found] == expected


def on_meta(case: ModuleCase) -> nn.Module:
    with torch.device("meta"):
        return case.make()


def on_default_meta(case: ModuleCase) -> nn.Module:
    torch.set_default_device("meta")
    try:
        return case.make()
    finally:
        torch.set_default_device(None)


def by_accelerate(case: ModuleCase) -> nn.Module:
    accelerate = pytest.importorskip("accelerate")
    with accelerate.init_empty_weights(include_buffers=True):
        return case.make()


EMPTY: dict[str, Callable[[ModuleCase], nn.Module]] = {
    "device": lambda case: case.make(device="meta"),
    "context": on_meta,
    "default device": on_default_meta,
    "moved": lambda case: case.make().to("meta"),
    "accelerate": by_accelerate,
}


@pytest.mark.parametrize("empty", EMPTY.values(), ids=EMPTY)
@every_module
def test_a_module_without_memory_gets_its_weights_from_a_state_dict(case: ModuleCase, empty: Callable[..., nn.Module]) -> None:
    source = made(case)
    module = empty(case)
    assert all(parameter.is_meta for parameter in module.parameters())
    module.load_state_dict(source.state_dict(), assign=True)
    assert_same(module, source, case)


@every_module
def test_a_module_with_empty_memory_gets_its_weights_from_a_state_dict(case: ModuleCase) -> None:
    source, module = made(case), case.make(device="meta").to_empty(device="cpu")
    module.load_state_dict(source.state_dict())
    assert_same(module, source, case)
    module.to_empty(device="cpu").load_state_dict(source.state_dict(), assign=True)
    assert_same(module, source, case)


@every_module
def test_a_device_that_is_named_wins_over_the_default_one(case: ModuleCase) -> None:
    with torch.device("meta"):
        module = case.make(device="cpu")
        assert not any(tensor.is_meta for tensor in (*module.parameters(), *module.buffers()))
    assert_runs(module, case, torch.float32)
    assert_member(module, torch.float32)


@every_module
def test_parameters_that_are_exchanged_stay_the_same_objects(case: ModuleCase) -> None:
    source, module = made(case), made(case)
    before = {name: id(parameter) for name, parameter in module.named_parameters()}
    with swapping():
        module.to(torch.float64)
        assert_runs(module, case, torch.float64)
        assert_member(module, torch.float64, before=torch.float32)
        module.to(torch.float32).load_state_dict(source.state_dict())
        assert_same(module, source, case)
        module.load_state_dict(source.state_dict(), assign=True)
        assert_same(module, source, case)
    assert {name: id(parameter) for name, parameter in module.named_parameters()} == before


@every_module
def test_gradients_are_kept_where_torch_keeps_them(case: ModuleCase) -> None:
    module = made(case)
    assert all(parameter.requires_grad == (parameter.numel() > 0) for parameter in module.parameters())
    module.requires_grad_(False)
    assert not any(output.requires_grad for output in outputs(module(case.data())))
    module.requires_grad_(True)
    sum(output.sum() for output in outputs(module(case.data()))).backward()
    module.zero_grad()
    assert all(parameter.grad is None for parameter in module.parameters())


@pytest.mark.gpu
@every_module
def test_a_module_moves_to_a_gpu_and_back(case: ModuleCase) -> None:
    source, module = made(case), made(case).to("cuda")
    assert all(tensor.is_cuda for tensor in (*module.parameters(), *module.buffers()))
    assert_same(module.to("cpu"), source, case)
    with torch.device("cuda"):
        fresh = case.make()
    assert all(tensor.is_cuda for tensor in (*fresh.parameters(), *fresh.buffers()))
    fresh.load_state_dict(source.state_dict())
    assert_same(fresh.cpu(), source, case)


@pytest.mark.gpu
@every_module
def test_a_seed_gives_the_same_module_on_every_device_that_is_named(case: ModuleCase) -> None:
    if isinstance(made(case), MLP | ResNet):
        pytest.skip("free weights between the constrained ones are drawn on the device, as torch draws them")
    slots = [key for key in made(case).state_dict() if "raw" in key or "constraint" in key]
    here, there = made(case, device="cpu").state_dict(), made(case, device="cuda").state_dict()
    assert all(torch.equal(here[key], there[key].cpu()) for key in slots)


@every_module
def test_a_tensor_left_on_the_meta_device_is_refused_and_not_computed_with(case: ModuleCase) -> None:
    source = made(case)
    for key, tensor in source.state_dict().items():
        owner = source.get_submodule(key.rpartition(".")[0])
        if not tensor.numel() or type(owner) is nn.Linear:  # torch's own computes with anything
            continue
        module = case.make(device="meta")
        module.load_state_dict({name: t for name, t in source.state_dict().items() if name != key}, assign=True, strict=False)
        for grad in (True, False):
            with torch.set_grad_enabled(grad), pytest.raises(RuntimeError, match="meta"):
                module(case.data())
