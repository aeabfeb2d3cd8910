"""Derivatives of layers in every mode: never silently wrong."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, vmap

import steadyrnn as sr
from steadyrnn.constraints.spectral import Spectral
from steadyrnn.errors import EngineError
from tests.support.errors import assert_equal_up_to_rounding
from tests.support.layers import KINDS, constrained

STEPS, ROWS, WIDTH, HIDDEN = 3, 2, 2, 4


def make(kind: str, transition: Any = "spectral", **more: Any) -> nn.Module:
    return KINDS[kind](WIDTH, HIDDEN, dtype=torch.float64, transition=transition, **more)


def data() -> Tensor:
    return torch.randn(STEPS, ROWS, WIDTH, dtype=torch.float64)


def plain_jacobian(layer: nn.Module, x: Tensor) -> Tensor:
    """Return the Jacobian by first-order reverse mode, which the engines' own tests have checked."""
    return torch.autograd.functional.jacobian(lambda t: layer(t)[0], x)


@pytest.mark.parametrize("kind", KINDS)
def test_layer_is_differentiable_twice(kind: str) -> None:
    layer, x = make(kind, bidirectional=True), data().requires_grad_()
    assert torch.autograd.gradcheck(lambda t: layer(t, lengths=[3, 1])[0], x, fast_mode=True)
    assert torch.autograd.gradgradcheck(lambda t: layer(t, lengths=[3, 1])[0], x, fast_mode=True)


@pytest.mark.parametrize("kind", KINDS)
def test_parameters_are_differentiable_twice(kind: str) -> None:
    layer, x = make(kind, learn_initial_state=True), data()
    named = {name: p.detach().requires_grad_() for name, p in layer.named_parameters() if p.numel()}

    def function(*tensors: Tensor) -> Tensor:
        return functional_call(layer, dict(zip(named, tensors, strict=True)), (x,))[0]

    assert torch.autograd.gradcheck(function, tuple(named.values()), fast_mode=True)
    assert torch.autograd.gradgradcheck(function, tuple(named.values()), fast_mode=True)


@pytest.mark.parametrize("name", constrained())
def test_gradient_penalty_reaches_the_raw_parameters_of_every_constraint(name: str) -> None:
    layer, x = make("rnn-tanh", name), data().requires_grad_()
    reference = make("rnn-tanh", name, engine="reference")
    reference.load_state_dict(layer.state_dict())

    def penalties(module: nn.Module) -> tuple[Tensor, ...]:
        (slope,) = torch.autograd.grad(module(x)[0].sum(), x, create_graph=True)
        return torch.autograd.grad(slope.square().sum(), list(module.parameters()), allow_unused=True)

    for found, expected in zip(penalties(layer), penalties(reference), strict=True):
        assert (found is None) == (expected is None)
        if found is not None and found.numel():
            assert_equal_up_to_rounding(found, expected, operations=64 * STEPS)


@pytest.mark.parametrize("kind", KINDS)
def test_kept_gradient_over_chunks_is_the_plain_one(kind: str) -> None:
    layer, x = make(kind, Spectral(reflectors=1)), data()

    def total() -> Tensor:
        _, state = layer(x)
        return layer(x, state)[0].square().sum()

    wanted = list(layer.parameters())
    kept, plain = (torch.autograd.grad(total(), wanted, create_graph=keep, allow_unused=True) for keep in (True, False))
    for a, b in zip(kept, plain, strict=True):
        if b is not None and b.numel():
            assert_equal_up_to_rounding(a.detach(), b, operations=8 * STEPS)


@pytest.mark.parametrize("kind", KINDS)
def test_forward_mode_by_the_input_is_the_jacobian(kind: str) -> None:
    layer, x, tangent = make(kind, num_layers=2), data(), data()
    _, found = jvp(lambda t: layer(t)[0], (x,), (tangent,))
    expected = torch.einsum("abcdef,def->abc", plain_jacobian(layer, x), tangent)
    assert_equal_up_to_rounding(found, expected, operations=STEPS)


@pytest.mark.parametrize("kind", KINDS)
def test_dual_numbers_carry_the_tangent(kind: str) -> None:
    layer, x, tangent = make(kind), data(), data()
    with forward_ad.dual_level():
        output = layer(forward_ad.make_dual(x, tangent))[0]
        found = forward_ad.unpack_dual(output).tangent
    expected = torch.einsum("abcdef,def->abc", plain_jacobian(layer, x), tangent)
    assert_equal_up_to_rounding(found, expected, operations=STEPS)


@pytest.mark.parametrize("kind", KINDS)
def test_forward_mode_by_the_parameters_is_reverse_mode(kind: str) -> None:
    layer, x = make(kind), data()
    named = {name: p.detach() for name, p in layer.named_parameters()}
    tangents = {name: torch.randn_like(p) for name, p in named.items()}

    def function(parameters: dict[str, Tensor]) -> Tensor:
        return functional_call(layer, parameters, (x,))[0].square().sum()

    _, found = jvp(function, (named,), (tangents,))
    layer(x)[0].square().sum().backward()
    expected = sum((p.grad * tangents[name]).sum() for name, p in layer.named_parameters() if p.grad is not None)
    assert_equal_up_to_rounding(found, expected, operations=8 * STEPS)


@pytest.mark.parametrize("function", [jacrev, jacfwd])
@pytest.mark.parametrize("kind", KINDS)
def test_function_transforms_give_the_jacobian(kind: str, function: Any) -> None:
    layer, x = make(kind), data()
    assert_equal_up_to_rounding(function(lambda t: layer(t)[0])(x), plain_jacobian(layer, x), operations=STEPS)


@pytest.mark.parametrize("kind", KINDS)
def test_function_gradient_is_the_plain_one(kind: str) -> None:
    layer, x = make(kind), data()
    found = grad(lambda t: layer(t)[0].square().sum())(x)
    leaf = x.clone().requires_grad_()
    expected = torch.autograd.grad(layer(leaf)[0].square().sum(), leaf)[0]
    assert_equal_up_to_rounding(found, expected, operations=STEPS)


@pytest.mark.parametrize("kind", KINDS)
def test_hessian_is_the_jacobian_of_the_gradient(kind: str) -> None:
    layer, x = make(kind), data()[:2]
    found = hessian(lambda t: layer(t)[0].square().sum())(x)
    expected = torch.autograd.functional.hessian(lambda t: layer(t)[0].square().sum(), x)
    assert_equal_up_to_rounding(found, expected, operations=8 * STEPS)


@pytest.mark.parametrize("kind", KINDS)
def test_vmap_over_inputs_is_a_loop_over_them(kind: str) -> None:
    layer, xs = make(kind, num_layers=2, bidirectional=True), torch.stack([data() for _ in range(3)])
    found = vmap(lambda t: layer(t)[0])(xs)
    assert_equal_up_to_rounding(found, torch.stack([layer(x)[0] for x in xs]))


@pytest.mark.parametrize("kind", KINDS)
def test_vmap_over_parameters_is_a_loop_over_layers(kind: str) -> None:
    layers, x = [make(kind) for _ in range(2)], data()
    stacked, buffers = torch.func.stack_module_state(layers)

    def run(parameters: dict[str, Tensor], kept: dict[str, Tensor]) -> Tensor:
        return functional_call(layers[0], (parameters, kept), (x,))[0]

    found = vmap(run)(stacked, buffers)
    assert_equal_up_to_rounding(found, torch.stack([layer(x)[0] for layer in layers]), operations=4)


@pytest.mark.parametrize("kind", KINDS)
def test_gradients_by_sample_are_those_of_each_sample(kind: str) -> None:
    layer, x = make(kind, "free"), data()
    named = {name: p.detach() for name, p in layer.named_parameters()}

    def loss(parameters: dict[str, Tensor], row: Tensor) -> Tensor:
        return functional_call(layer, parameters, (row.unsqueeze(1),))[0].square().sum()

    found = vmap(grad(loss), in_dims=(None, 1))(named, x)
    for row in range(ROWS):
        layer.zero_grad()
        layer(x[:, row : row + 1])[0].square().sum().backward()
        for name, parameter in layer.named_parameters():
            assert_equal_up_to_rounding(found[name][row], parameter.grad, operations=STEPS)


@pytest.mark.parametrize("kind", KINDS)
def test_fast_engine_by_name_refuses_forward_mode(kind: str) -> None:
    layer, x = make(kind, "free", engine="cpu"), data()
    with pytest.raises(EngineError, match="`engine` 'cpu'"):
        jvp(lambda t: layer(t)[0], (x,), (x,))


@pytest.mark.parametrize("kind", KINDS)
def test_checkpointing_gives_the_same_gradients(kind: str) -> None:
    layer, x = make(kind), data().requires_grad_()
    wanted = [x, *layer.parameters()]
    plain = torch.autograd.grad(layer(x)[0].square().sum(), wanted, allow_unused=True)
    output = torch.utils.checkpoint.checkpoint(lambda t: layer(t)[0], x, use_reentrant=False)
    again = torch.autograd.grad(output.square().sum(), wanted, allow_unused=True)
    assert all(torch.equal(a, b) for a, b in zip(again, plain, strict=True) if b is not None)


@pytest.mark.parametrize("kind", KINDS)
def test_output_changed_in_place_is_right_or_refused(kind: str) -> None:
    layer, x = make(kind, "free"), data().requires_grad_()
    expected = torch.autograd.grad((layer(x)[0] * 2).sum(), x)[0]
    output, _ = layer(x)
    output.mul_(2)
    try:
        found = torch.autograd.grad(output.sum(), x)[0]
    except RuntimeError as refusal:
        if "modified by an inplace operation" not in str(refusal):
            raise
    else:
        assert_equal_up_to_rounding(found, expected)


@pytest.mark.parametrize("kind", ["RNN", "GRU", "LSTM"])
def test_many_cotangents_at_once_give_the_jacobian(kind: str) -> None:
    layer = getattr(sr, kind)(2, 3, dtype=torch.float64)
    x = torch.randn(3, 1, 2, dtype=torch.float64)
    one_by_one, at_once = (
        torch.autograd.functional.jacobian(lambda x: layer(x)[0], x, vectorize=vectorize) for vectorize in (False, True)
    )
    torch.testing.assert_close(at_once, one_by_one, rtol=0, atol=16 * torch.finfo(x.dtype).eps)


@pytest.mark.filterwarnings("ignore:.*performance drop.*:UserWarning")
@pytest.mark.parametrize("transition", ["free", Spectral(1)], ids=["free", "factors"])
@pytest.mark.parametrize("kind", KINDS)
def test_vmap_over_cotangents_gives_the_gradients_of_each(kind: str, transition: Any) -> None:
    layer = KINDS[kind](WIDTH, 8, transition=transition)
    named = [p for p in layer.parameters() if p.numel()]
    output = layer(data().float())[0]
    cotangents = torch.randn(3, *output.shape)

    def pull_back(cotangent: Tensor) -> tuple[Tensor, ...]:
        return torch.autograd.grad(output, named, cotangent, retain_graph=True)

    each = zip(*(pull_back(one) for one in cotangents), strict=True)
    for got, ones in zip(vmap(pull_back)(cotangents), each, strict=True):
        assert_equal_up_to_rounding(got, torch.stack(ones))


@pytest.mark.parametrize("transition", ["exp", "exp-lie", "cayley", "ornn", "spectral", "factorized"])
def test_the_tangent_of_an_input_reaches_the_gradient_of_raw_parameters(transition: str) -> None:
    torch.manual_seed(0)
    layer = sr.RNN(3, 6, transition=transition)
    x, tangent = torch.randn(5, 2, 3), torch.randn(5, 2, 3)
    raw = [parameter for name, parameter in layer.named_parameters() if "raw" in name]

    def gradient(t: Tensor) -> tuple[Tensor, ...]:
        return torch.autograd.grad(layer(t)[0].pow(2).sum(), raw)

    with forward_ad.dual_level():
        found = [forward_ad.unpack_dual(one).tangent for one in gradient(forward_ad.make_dual(x, tangent))]
    wide = layer.double()
    x, tangent, step = x.double(), tangent.double(), 1e-6
    raw = [parameter for name, parameter in wide.named_parameters() if "raw" in name]
    ahead, behind = gradient(x + step * tangent), gradient(x - step * tangent)
    for one, first, second in zip(found, ahead, behind, strict=True):
        exact = (first - second) / (2 * step)
        assert one is not None
        assert (one - exact).norm() <= 1e-4 * exact.norm()
