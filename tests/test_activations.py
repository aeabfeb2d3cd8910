"""What an activation promises: values, derivatives, slopes, and nothing but finite numbers."""

import math
import pickle
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

import steadyrnn as sr
from steadyrnn.activations import (
    ACTIVATIONS,
    Absolute,
    Activation,
    LeakyReLU,
    ModReLU,
    Sigmoid,
    Tanh,
    activation_from_key,
    as_activation,
)
from steadyrnn.errors import ArgumentError, ArgumentTypeError
from tests.support.activations import Softsign, Swell
from tests.support.errors import assert_equal_up_to_rounding, unit_roundoff

ALL: dict[str, Activation] = {
    **{name: cls() for name, cls in ACTIVATIONS.items()},
    "leaky_relu(0.5)": LeakyReLU(0.5),
    "user": Softsign(),
    "user with numbers": Swell(0.25),
}
ELEMENTWISE = [name for name, activation in ALL.items() if activation.elementwise]
SMOOTH = [name for name in ELEMENTWISE if ALL[name].smoothness < torch.inf]
HARD = (0.0, -0.0, 44.0, 88.0, 1e4, 3e38, 1e-40, 1e-30)
STEP = 2.0**-8  # a power of two: the grid has no rounding


def grid() -> Tensor:
    """Return numbers from -8 to 8 in float64; 0 is among them."""
    return torch.arange(-8, 8 + STEP, STEP, dtype=torch.float64)


def autograd(activation: Activation, x: Tensor, theta: Tensor | None, grad: Tensor) -> tuple[Tensor, ...]:
    """Return the gradients of x and, where there is one, of theta."""
    leaves = [t.detach().clone().requires_grad_() for t in (x, theta) if t is not None]
    return torch.autograd.grad(activation.value(*leaves), leaves, grad)


def theta_for(activation: Activation, width: int, dtype: torch.dtype) -> Tensor | None:
    size = activation.parameter_size(width)
    return None if size is None else torch.randn(size, dtype=dtype)


def what_pullback_reads(activation: Activation, x: Tensor, theta: Tensor | None) -> Tensor:
    return activation.value(x, theta) if activation.from_output else x


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_derivative_is_autograds(name: str) -> None:
    activation, x = ALL[name], grid()
    (expected,) = autograd(activation, x, None, torch.ones_like(x))
    derivative = activation.derivative(what_pullback_reads(activation, x, None))
    torch.testing.assert_close(derivative, expected, rtol=0, atol=8 * torch.finfo(x.dtype).eps)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", ALL)
def test_value_in_place_is_value(name: str, dtype: torch.dtype) -> None:
    activation, x = ALL[name], torch.randn(3, 6).to(dtype)
    theta = theta_for(activation, 6, dtype)
    expected, given = activation.value(x, theta), x.clone()
    assert activation.value_(given, theta) is given
    assert torch.equal(given, expected)


@pytest.mark.parametrize("with_theta", [True, False])
@pytest.mark.parametrize("name", ALL)
def test_pullback_is_autograds(name: str, with_theta: bool) -> None:
    activation, x = ALL[name], torch.randn(5, 6, dtype=torch.float64)
    theta = theta_for(activation, 6, x.dtype) if with_theta else None
    grad, out = torch.randn_like(x), torch.full_like(x, torch.nan)
    change = activation.pullback(grad, what_pullback_reads(activation, x, theta), theta, out)
    expected = autograd(activation, x, theta, grad)
    assert_equal_up_to_rounding(out, expected[0])
    if theta is not None:
        assert change is not None
        assert_equal_up_to_rounding(change, expected[1], operations=x.shape[0])


@pytest.mark.parametrize("size", HARD)
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("name", ALL)
def test_hard_numbers_give_finite_values_and_gradients(name: str, sign: int, size: float) -> None:
    activation, x = ALL[name], torch.full((1, 4), sign * size)
    theta = None if activation.parameter_size(4) is None else torch.full((activation.parameter_size(4),), -0.5)
    out, ones = torch.empty_like(x), torch.ones_like(x)
    change = activation.pullback(ones, what_pullback_reads(activation, x, theta), theta, out)
    found = [activation.value(x, theta), out, *autograd(activation, x, theta, ones)]
    assert all(t.isfinite().all() for t in found if t.numel())
    assert change is None or change.isfinite().all()


@pytest.mark.parametrize("size", [44.0, 88.0, 1e4, 3e38])
@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("name", ["tanh", "sigmoid"])
def test_saturated_gradient_is_negligible(name: str, sign: int, size: float) -> None:
    activation, x = ALL[name], torch.full((1, 1), sign * size)
    out = torch.empty_like(x)
    activation.pullback(torch.ones_like(x), activation.value(x), None, out)
    assert 0 <= float(out) <= unit_roundoff(x.dtype)


@pytest.mark.parametrize("size", [0.0, 1e-30, 3e38])
def test_modrelu_with_a_positive_shift_stays_finite(size: float) -> None:
    x, theta = torch.full((1, 4), size), torch.full((2,), 0.5)
    value = ModReLU().value(x, theta)
    assert value.isfinite().all()
    assert all(g.isfinite().all() for g in autograd(ModReLU(), x, theta, torch.ones_like(x)))


def test_modrelu_keeps_nan() -> None:
    value = ModReLU().value(torch.tensor([[torch.nan, 1.0, 0.0, 1.0]]), torch.tensor([-0.5, -0.5]))
    assert value.isnan().tolist() == [[True, False, True, False]]


def test_modrelu_moves_a_point_along_its_ray() -> None:
    x, theta = torch.tensor([[3.0, 0.3, 4.0, 0.4]], dtype=torch.float64), torch.tensor([-1.0, -1.0], dtype=torch.float64)
    expected = torch.tensor([[2.4, 0.0, 3.2, 0.0]], dtype=torch.float64)
    assert_equal_up_to_rounding(ModReLU().value(x, theta), expected)


def test_modrelu_with_a_shift_below_zero_is_not_expansive() -> None:
    x, y = torch.randn(2, 500, 6, dtype=torch.float64)
    theta = -torch.rand(3, dtype=torch.float64)
    moved = (ModReLU().value(x, theta) - ModReLU().value(y, theta)).norm(dim=1)
    assert (moved <= (x - y).norm(dim=1) * (1 + 32 * unit_roundoff(x.dtype))).all()


def test_modrelu_has_no_elementwise_derivative() -> None:
    with pytest.raises(ArgumentError, match="modrelu"):
        ModReLU().derivative(torch.ones(2))


def test_modrelu_needs_an_even_width() -> None:
    with pytest.raises(ArgumentError, match="hidden_size"):
        ModReLU().parameter_size(3)


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_slopes_hold(name: str) -> None:
    activation, x = ALL[name], grid()
    slope = autograd(activation, x, None, torch.ones_like(x))[0]
    low, high = activation.slopes
    assert low <= slope.min()
    assert slope.max() <= high


@pytest.mark.parametrize("name", [name for name in ELEMENTWISE if not name.startswith("user")])
def test_slopes_are_reached_or_approached(name: str) -> None:
    activation, x = ALL[name], torch.cat([grid(), torch.tensor([-50.0, 50.0], dtype=torch.float64)])
    slope = autograd(activation, x, None, torch.ones_like(x))[0]
    low, high = activation.slopes
    assert slope.min() <= low + 1e-20
    assert slope.max() == high


@pytest.mark.parametrize("name", ELEMENTWISE)
def test_steepness_is_the_range_of_the_slopes_size(name: str) -> None:
    activation, x = ALL[name], grid()
    size = autograd(activation, x, None, torch.ones_like(x))[0].abs()
    beta, gamma = activation.steepness
    assert beta <= size.min()
    assert size.max() <= gamma
    assert gamma == max(abs(slope) for slope in activation.slopes)


def second_derivative(activation: Activation, x: Tensor) -> Tensor:
    x = x.clone().requires_grad_()
    (slope,) = torch.autograd.grad(activation.value(x).sum(), x, create_graph=True)
    if not slope.requires_grad:
        return torch.zeros_like(x)
    return torch.autograd.grad(slope.sum(), x)[0]


@pytest.mark.parametrize("name", SMOOTH)
def test_smoothness_bounds_the_second_derivative(name: str) -> None:
    activation = ALL[name]
    largest = float(second_derivative(activation, grid()).abs().max())
    assert largest <= activation.smoothness * (1 + 8 * torch.finfo(torch.float64).eps)


@pytest.mark.parametrize(("activation", "printed"), [(Tanh(), 0.7698), (Sigmoid(), 0.0962)], ids=["tanh", "sigmoid"])
def test_smoothness_is_attained(activation: Activation, printed: float) -> None:
    largest = float(second_derivative(activation, grid()).abs().max())
    # near its maximum the curve is flat: a grid of step s misses at most the fraction s^2
    assert largest >= activation.smoothness * (1 - STEP**2)
    assert round(activation.smoothness, 4) == printed


@pytest.mark.parametrize("zero", [0.0, -0.0])
def test_absolute_value_has_slope_one_at_zero(zero: float) -> None:
    x = torch.tensor([zero], requires_grad=True)
    assert torch.autograd.grad(Absolute().value(x), x)[0].item() == 1.0
    assert Absolute().derivative(x.detach()).item() == 1.0


@pytest.mark.parametrize("name", ALL)
def test_key_gives_an_equal_activation(name: str) -> None:
    assert activation_from_key(ALL[name].key) == ALL[name]


@pytest.mark.parametrize("name", ALL)
def test_activation_survives_pickling(name: str) -> None:
    assert pickle.loads(pickle.dumps(ALL[name])) == ALL[name]


@pytest.mark.parametrize("name", ALL)
def test_value_is_differentiable_twice_and_forwards(name: str) -> None:
    activation = ALL[name]
    x = torch.randn(2, 6, dtype=torch.float64, requires_grad=True)
    theta = theta_for(activation, 6, x.dtype)
    leaves = [x] if theta is None else [x, theta.requires_grad_()]
    assert torch.autograd.gradcheck(activation.value, leaves, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(activation.value, leaves)


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_name_gives_the_activation(name: str) -> None:
    assert as_activation(name) == ACTIVATIONS[name]()


@pytest.mark.parametrize(
    ("given", "error"),
    [("gelu", ArgumentError), ("", ArgumentError), (torch.tanh, ArgumentTypeError), (None, ArgumentTypeError)],
)
def test_what_is_no_activation_is_refused_by_name(given: object, error: type[Exception]) -> None:
    with pytest.raises(error, match="`nonlinearity`"):
        as_activation(given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("slope", "error"), [(0.0, ArgumentError), (1.0, ArgumentError), (torch.nan, ArgumentError), ("a", ArgumentTypeError)]
)
def test_leaky_slope_outside_the_open_unit_interval_is_refused(slope: object, error: type[Exception]) -> None:
    with pytest.raises(error, match="`slope`"):
        LeakyReLU(slope)  # type: ignore[arg-type]


def test_name_of_another_activation_cannot_be_taken() -> None:
    with pytest.raises(ArgumentError, match="`name` 'relu'"):

        class Impostor(Softsign):
            name = "relu"

    assert activation_from_key("relu()") == ACTIVATIONS["relu"]()


def test_activation_without_a_name_of_its_own_is_refused() -> None:
    class Nameless(Tanh):
        pass

    with pytest.raises(ArgumentError, match=r"`nonlinearity` is a .*Nameless"):
        as_activation(Nameless())


def test_activation_defined_again_replaces_the_first() -> None:
    def define(factor: float) -> Activation:
        @dataclass(frozen=True)
        class Again(Softsign):
            name = "test_again"
            slopes = steepness = (0.0, 3.0)
            smoothness = 0.0

            def value(self, x: Tensor, theta: Tensor | None = None) -> Tensor:
                return factor * x

            def derivative(self, x: Tensor) -> Tensor:
                return torch.full_like(x, factor)

        return Again()

    for factor in (2.0, 3.0):
        key = define(factor).key
        assert activation_from_key(key).value(torch.ones(1)).item() == factor


def test_learned_parameter_without_a_pullback_is_refused() -> None:
    ones = torch.ones(1, 1)
    with pytest.raises(ArgumentError, match="pullback"):
        Softsign().pullback(ones, ones, ones[0], torch.empty(1, 1))


@dataclass(frozen=True)
class Halved(Tanh):
    """Another function than its base's; it restates what must be restated, and no fact that is optional."""

    name = "test_halved"
    slopes = steepness = (0.5, 1.0)
    smoothness = math.inf

    def value(self, x: Tensor, theta: Tensor | None = None) -> Tensor:
        return torch.where(x < 1, x / 2, x - 0.5)

    def derivative(self, x: Tensor) -> Tensor:
        return torch.where(x < 1, 0.5, torch.ones_like(x))


@pytest.mark.parametrize("engine", ["reference", "cpu", "auto"])
def test_another_value_is_what_every_engine_computes(engine: str) -> None:
    layer = sr.RNN(2, 3, nonlinearity=Halved(), engine=engine, dtype=torch.float64)
    torch.nn.init.zeros_(layer.weight_hh_l0)
    x = torch.randn(4, 2, 2, dtype=torch.float64, requires_grad=True)
    before = torch.nn.functional.linear(x, layer.weight_ih_l0, layer.bias_ih_l0 + layer.bias_hh_l0)
    output = layer(x)[0]
    torch.testing.assert_close(output, Halved().value(before))
    (gradient,) = torch.autograd.grad(output.sum(), x)
    torch.testing.assert_close(gradient, Halved().derivative(before) @ layer.weight_ih_l0)


def test_facts_of_another_function_are_not_inherited() -> None:
    assert (Halved().bounded_by, Halved().lower_limit, Halved().from_output, Halved().kernel) == (math.inf, None, False, None)
    near = Halved().steepest_near(torch.full((1,), 9.0), torch.zeros(1))  # far from zero tanh would say that it is flat
    assert float(near) == Halved.steepness[1]


def test_a_renamed_activation_keeps_its_facts() -> None:
    class Renamed(Tanh):
        name = "test_renamed"

    assert (Renamed().bounded_by, Renamed().from_output, Renamed().smoothness) == (1.0, True, Tanh.smoothness)


@pytest.mark.parametrize("missing", ["derivative", "slopes", "steepness", "smoothness"])
def test_another_value_with_the_derivative_or_slopes_of_its_base_is_refused(missing: str) -> None:
    given = {"value": Halved.value, "derivative": Halved.derivative, "slopes": (0.0, 1.0), "steepness": (0.0, 1.0)}
    given |= {"smoothness": math.inf, "name": f"test_without_{missing}"}
    del given[missing]
    with pytest.raises(ArgumentError, match=rf"overrides `value` of Tanh, so it must also define `{missing}`"):
        type("Careless", (Tanh,), given)
