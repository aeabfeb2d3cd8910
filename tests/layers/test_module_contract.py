"""What torch's own tests ask of a module, of every layer and model with every constraint: numbers and derivatives."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

from tests.support.errors import assert_equal_up_to_rounding
from tests.support.modules import MODULES, ModuleCase, gradients, outputs

pytestmark = pytest.mark.filterwarnings("ignore:There is a performance drop:UserWarning")

every_module = pytest.mark.parametrize("case", MODULES.values(), ids=MODULES)
OPERATIONS = 64  # roundings on the way to an entry, in all the steps of such small modules


def loaded_peer(case: ModuleCase, module: nn.Module) -> nn.Module:
    """Return torch's module with the weights that ours shows under the same names."""
    peer = case.peer().double()
    with torch.no_grad():
        for name, parameter in peer.named_parameters():
            parameter.copy_(getattr(module, name))
    return peer


@pytest.mark.parametrize("name", [name for name, case in MODULES.items() if case.peer is not None])
def test_outputs_are_those_of_torch_with_the_weights_that_are_shown(name: str) -> None:
    case = MODULES[name]
    module, x = case.make(dtype=torch.float64), case.data(torch.float64)
    peer = loaded_peer(case, module)
    for found, expected in zip(outputs(module(x)), outputs(peer(x)), strict=True):
        assert_equal_up_to_rounding(found, expected, OPERATIONS)


@every_module
def test_outputs_are_finite_and_of_the_modules_dtype(case: ModuleCase) -> None:
    for output in outputs(case.make()(case.data())):
        assert output.dtype == torch.float32
        assert output.shape[-2] == case.shape[-2]
        assert bool(output.isfinite().all())


def as_function(case: ModuleCase) -> tuple[Callable[[Tensor], Tensor], Tensor]:
    """Return all outputs in a vector, as a function of input and parameters in one, and that vector.

    Of the input alone where the gradient is a paper's direction: by choice it is no derivative then.
    """
    module, x = case.make(dtype=torch.float64), case.data(torch.float64)
    named = {name: p.detach() for name, p in module.named_parameters() if p.requires_grad} if case.exact else {}
    tensors = (x, *named.values())

    def function(flat: Tensor) -> Tensor:
        parts = flat.split([tensor.numel() for tensor in tensors])
        data, *given = (part.view_as(tensor) for part, tensor in zip(parts, tensors, strict=True))
        made = outputs(functional_call(module, dict(zip(named, given, strict=True)), (data,)))
        return torch.cat([output.reshape(-1) for output in made])

    return function, torch.cat([tensor.reshape(-1) for tensor in tensors]).requires_grad_()


@every_module
def test_first_derivatives_are_right_one_by_one_and_many_at_once(case: ModuleCase) -> None:
    assert torch.autograd.gradcheck(*as_function(case), fast_mode=True, check_batched_grad=True)


@every_module
def test_second_derivatives_are_right_one_by_one_and_many_at_once(case: ModuleCase) -> None:
    assert torch.autograd.gradgradcheck(*as_function(case), fast_mode=True, check_batched_grad=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@every_module
def test_gradients_of_many_cotangents_at_once_are_those_of_each(case: ModuleCase, dtype: torch.dtype) -> None:
    module, x = case.make(dtype=dtype), case.data(dtype).requires_grad_()
    made, wanted = outputs(module(x)), [x, *(p for p in module.parameters() if p.requires_grad)]
    generator = torch.Generator().manual_seed(2)
    many = [torch.randn(3, *output.shape, dtype=dtype, generator=generator) for output in made]
    together = torch.autograd.grad(
        made, wanted, many, is_grads_batched=True, retain_graph=True, allow_unused=True, materialize_grads=True
    )
    each = [
        torch.autograd.grad(made, wanted, list(one), retain_graph=True, allow_unused=True, materialize_grads=True)
        for one in zip(*many, strict=True)
    ]
    for found, expected in zip(together, zip(*each, strict=True), strict=True):
        assert_equal_up_to_rounding(found, torch.stack(expected), OPERATIONS)


@every_module
def test_an_input_that_is_not_contiguous_gives_the_same(case: ModuleCase) -> None:
    module, x = case.make(dtype=torch.float64), case.data(torch.float64)
    strided = torch.stack([x, torch.full_like(x, torch.nan)], dim=-1)[..., 0]
    assert not strided.is_contiguous()
    for found, expected in zip(outputs(module(strided)), outputs(module(x)), strict=True):
        assert_equal_up_to_rounding(found, expected)
    for found, expected in zip(gradients(module, strided), gradients(module, x), strict=True):
        assert_equal_up_to_rounding(found, expected, OPERATIONS)


@every_module
def test_training_and_evaluation_are_modes_of_all_parts(case: ModuleCase) -> None:
    module, x = case.make(), case.data()
    trained = outputs(module(x))
    assert all(part.training for part in module.modules())
    assert module.eval() is module
    assert not any(part.training for part in module.modules())
    for found, expected in zip(outputs(module(x)), trained, strict=True):  # there is no dropout
        assert torch.equal(found, expected)


@pytest.mark.parametrize("name", MODULES)
def test_repr_names_the_layer_and_its_constraint(name: str) -> None:
    text = repr(MODULES[name].make())
    assert name.split("-")[0] in text
    for part in MODULES[name].make().modules():
        if isinstance(getattr(part, "constraint", None), nn.Module):
            assert repr(part.constraint) in text


@pytest.mark.gpu
@every_module
def test_results_and_gradients_on_a_gpu_are_those_of_the_cpu(case: ModuleCase) -> None:
    module, x = case.make(dtype=torch.float64), case.data(torch.float64)
    expected = [t.detach() for t in outputs(module(x))] + gradients(module, x)
    moved = module.cuda()
    found = [t.detach() for t in outputs(moved(x.cuda()))] + gradients(moved, x.cuda())
    for got, want in zip(found, expected, strict=True):
        assert got.is_cuda
        assert_equal_up_to_rounding(got.cpu(), want, OPERATIONS)
