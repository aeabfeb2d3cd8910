"""Gradient flow: what is measured is autograd's, lies inside the certified band, and meets the papers' figures."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import steadyrnn as sr
from steadyrnn.errors import ArgumentError, ArgumentTypeError, DtypeError, NotFiniteError, ShapeError
from steadyrnn.layers.gru import GRU
from steadyrnn.layers.lstm import LSTM
from steadyrnn.layers.rnn import RNN
from steadyrnn.models.sequence import SequenceModel
from steadyrnn.probes.gradient_flow import GradientFlow, gradient_flow
from tests.linalg.matrices import orthogonal
from tests.support.activations import Softsign

T, B, D, H = 5, 3, 2, 4
DOUBLE = {"dtype": torch.float64}

MODULES: dict[str, Callable[[], Any]] = {
    "tanh": lambda: RNN(D, H, **DOUBLE),
    "relu": lambda: RNN(D, H, nonlinearity="relu", **DOUBLE),
    "leaky relu": lambda: RNN(D, H, nonlinearity="leaky_relu", transition="spectral", **DOUBLE),
    "abs": lambda: RNN(D, H, nonlinearity="abs", transition="exp", **DOUBLE),
    "sigmoid": lambda: RNN(D, H, nonlinearity="sigmoid", bias="single", **DOUBLE),
    "identity": lambda: RNN(D, H, nonlinearity="identity", bias=False, **DOUBLE),
    "modrelu": lambda: RNN(D, H, nonlinearity="modrelu", transition="unitary", **DOUBLE),
    "an activation of the user's": lambda: RNN(D, H, nonlinearity=Softsign(), **DOUBLE),
    "rnn from a learned state": lambda: moved(RNN(D, H, learn_initial_state=True, **DOUBLE)),
    "stack of rnn": lambda: RNN(D, H, 3, **DOUBLE),
    "gru": lambda: GRU(D, H, **DOUBLE),
    "gru, reset before": lambda: GRU(D, H, reset_after=False, **DOUBLE),
    "lstm": lambda: LSTM(D, H, **DOUBLE),
    "lstm from a learned state": lambda: moved(LSTM(D, H, learn_initial_state=True, **DOUBLE)),
    "stack of lstm": lambda: LSTM(D, H, 2, **DOUBLE),
    "torch's rnn": lambda: nn.RNN(D, H, 2, nonlinearity="relu", **DOUBLE),
    "torch's gru": lambda: nn.GRU(D, H, **DOUBLE),
    "torch's lstm": lambda: nn.LSTM(D, H, **DOUBLE),
}


def moved(module: nn.Module) -> nn.Module:
    """Return a module whose learned states are not zero."""
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if name.startswith("initial_"):
                parameter.normal_()
    return module


def rounding(steps: int = T, size: int = H) -> float:
    """Relative error of a product of that many matrices, taken in two ways."""
    return 64 * steps * size * 2.0**-53


def parts(state: Any) -> tuple[Tensor, ...]:
    return state if isinstance(state, tuple) else (state,)


def states(module: Any, x: Tensor) -> list[tuple[Tensor, ...]]:
    """Return the state after 0, 1, ..., T steps, each tensor (L, B, H)."""
    found: list[tuple[Tensor, ...]] = []
    state = None
    for t in range(len(x)):
        if t == 0:
            names = ("initial_state", "initial_cell")[: 2 if "LSTM" in type(module).__name__ else 1]
            zero = x.new_zeros(module.num_layers, x.shape[1], module.hidden_size)
            rows = [getattr(module, f"{name}_l0", None) for name in names]
            found.append(tuple(zero if row is None else row.detach().expand_as(zero) for row in rows))
        state = module(x[t : t + 1], state)[1]
        found.append(tuple(part.detach() for part in parts(state)))
    return found


def with_top(below: tuple[Tensor, ...], top: Tensor) -> Any:
    """Return a state whose top layer's part is ``top`` (B, S), for the layer's call."""
    pieces = top.split(below[0].shape[-1], dim=-1)
    full = tuple(torch.cat([part[:-1], piece.unsqueeze(0)]) for part, piece in zip(below, pieces, strict=True))
    return full if len(full) > 1 else full[0]


def top_of(state: Any) -> Tensor:
    return torch.cat([part[-1] for part in parts(state)], dim=-1)


def norms(jacobian: Tensor) -> tuple[Tensor, Tensor]:
    """Return Frobenius and spectral norms of (B, K, S)."""
    return torch.linalg.matrix_norm(jacobian), torch.linalg.matrix_norm(jacobian, 2)


def rows_of(jacobian: Tensor) -> Tensor:
    """Return the derivative of each row of the batch by itself, (B, K, S), of (K, B, S) summed over the batch."""
    return jacobian.transpose(0, 1)


def assert_close(found: Tensor, expected: Tensor, allowed: float = rounding()) -> None:
    assert found.shape == expected.shape
    assert torch.allclose(found, expected, rtol=allowed, atol=allowed * float(expected.max()))


# What is measured is what autograd says.


@pytest.mark.parametrize("name", MODULES)
def test_jacobians_by_the_state_are_those_of_autograd(name: str) -> None:
    module, x = MODULES[name](), torch.randn(T, B, D, **DOUBLE)
    flow, seen = gradient_flow(module, x), states(module, x)
    assert flow.lag.tolist() == list(range(T + 1))
    for t in range(T):

        def final(top: Tensor, t: int = t) -> Tensor:
            return top_of(module(x[t:], with_top(seen[t], top))[1]).sum(0)

        jacobian = torch.autograd.functional.jacobian(final, top_of(seen[t]))  # (S, B, S)
        frobenius, spectral = norms(rows_of(jacobian))
        lag = T - t
        found = [flow.frobenius[lag], flow.frobenius_mean[lag], flow.frobenius_least[lag]]
        assert_close(torch.stack(found), torch.stack([frobenius.max(), frobenius.mean(), frobenius.min()]))
        found = [flow.spectral[lag], flow.spectral_mean[lag], flow.spectral_least[lag]]
        assert_close(torch.stack(found), torch.stack([spectral.max(), spectral.mean(), spectral.min()]))


@pytest.mark.parametrize("name", MODULES)
def test_jacobians_by_the_input_are_those_of_autograd(name: str) -> None:
    module, x = MODULES[name](), torch.randn(T, B, D, **DOUBLE)
    flow = gradient_flow(module, x, wrt="input")
    jacobian = torch.autograd.functional.jacobian(lambda v: top_of(module(v)[1]).sum(0), x)  # (S, T, B, D)
    frobenius, spectral = norms(jacobian.permute(1, 2, 0, 3))  # (T, B)
    assert flow.lag.tolist() == list(range(T))
    assert_close(flow.frobenius, frobenius.amax(1).flip(0))
    assert_close(flow.spectral, spectral.amax(1).flip(0))
    assert_close(flow.spectral_mean, spectral.mean(1).flip(0))


@pytest.mark.parametrize("name", MODULES)
def test_the_gradient_of_a_loss_by_the_state_is_autograds(name: str) -> None:
    module, x = MODULES[name](), torch.randn(T, B, D, **DOUBLE)
    target = torch.randn(T, B, H, **DOUBLE)

    def loss(outputs: Tensor) -> Tensor:
        return (outputs - target).square().sum() / 2

    flow, seen, outputs = gradient_flow(module, x, loss), states(module, x), module(x)[0].detach()
    for t in range(T + 1):
        top = top_of(seen[t]).clone().requires_grad_()
        rest = module(x[t:], with_top(seen[t], top))[0] if t < T else outputs[:0]
        here = [top[:, :H].unsqueeze(0)] if t > 0 else []
        loss(torch.cat([outputs[: max(t - 1, 0)], *here, rest])).backward()
        gradient = torch.linalg.vector_norm(top.grad, dim=-1)
        assert_close(flow.frobenius[T - t], gradient.max())
        assert_close(flow.frobenius_mean[T - t], gradient.mean())
    assert torch.equal(flow.spectral, flow.frobenius)


@pytest.mark.parametrize("name", MODULES)
def test_the_gradient_of_a_loss_by_the_input_is_autograds(name: str) -> None:
    module, x = MODULES[name](), torch.randn(T, B, D, **DOUBLE).requires_grad_()
    module(x)[0].square().sum().backward()
    flow = gradient_flow(module, x, lambda outputs: outputs.square().sum(), wrt="input")
    assert_close(flow.frobenius, x.grad.norm(dim=-1).amax(1).flip(0))


@pytest.mark.parametrize("shape", ["a value a step", "a value a step and row"])
@pytest.mark.parametrize("name", ["tanh", "stack of lstm", "torch's gru"])
def test_losses_a_step_are_taken_by_their_distance_from_the_input(name: str, shape: str) -> None:
    module, x = MODULES[name](), torch.randn(T, B, D, **DOUBLE)
    dims = (-2, -1) if shape == "a value a step" else (-1,)
    flow = gradient_flow(module, x, lambda outputs: outputs.square().sum(dims), wrt="input")
    jacobian = torch.autograd.functional.jacobian(lambda v: module(v)[0].square().sum((-2, -1)), x)  # (T, T, B, D)
    sizes = jacobian.norm(dim=-1)  # of the loss at u by the input at t: (u, t, B)
    for distance in range(T):
        expected = torch.stack([sizes[t + distance, t] for t in range(T - distance)])
        assert_close(flow.frobenius[distance], expected.max())
        assert_close(flow.frobenius_mean[distance], expected.mean())
        assert_close(flow.frobenius_least[distance], expected.min())


def test_a_loss_of_the_last_step_alone_agrees_with_the_losses_a_step() -> None:
    module, x = MODULES["gru"](), torch.randn(T, 1, D, **DOUBLE)
    each = gradient_flow(module, x, lambda outputs: outputs.sum(-1))
    last = gradient_flow(module, x, lambda outputs: outputs[-1].sum())
    assert each.lag.tolist() == last.lag.tolist()
    assert torch.all(each.frobenius >= last.frobenius * (1 - rounding()))
    assert_close(each.frobenius[-1], last.frobenius[-1])  # only the last step lies T behind the initial state


# Forms of input.


@pytest.mark.parametrize("wrt", ["state", "input"])
@pytest.mark.parametrize("kind", [RNN, nn.GRU, LSTM])
def test_batch_first_and_unbatched_input_give_the_same_numbers(kind: Callable[..., Any], wrt: str) -> None:
    plain, first = kind(D, H, **DOUBLE), kind(D, H, batch_first=True, **DOUBLE)
    first.load_state_dict(plain.state_dict())
    x = torch.randn(T, 1, D, **DOUBLE)
    flow = gradient_flow(plain, x, wrt=wrt)
    for module, data in ((first, x.transpose(0, 1)), (plain, x.squeeze(1))):
        assert_close(gradient_flow(module, data, wrt=wrt).spectral, flow.spectral)


@pytest.mark.parametrize("batch_first", [False, True])
def test_a_loss_sees_outputs_in_the_form_of_the_input(batch_first: bool) -> None:
    module = RNN(D, H, batch_first=batch_first)
    shape = (B, T) if batch_first else (T, B)
    seen: list[tuple[int, ...]] = []

    def loss(outputs: Tensor) -> Tensor:
        seen.append(tuple(outputs.shape))
        return outputs.square().sum(-1)

    gradient_flow(module, torch.randn(*shape, D), loss)
    gradient_flow(module, torch.randn(T, D), loss)
    assert seen == [(*shape, H), (T, H)]


@pytest.mark.parametrize("skip", [False, True])
@pytest.mark.parametrize("readout", ["last", "each"])
def test_a_sequence_model_is_probed_through_its_embedding_and_readout(readout: str, skip: bool) -> None:
    rnn = GRU(D, H, 2, dropout=0.5, **DOUBLE)
    model = SequenceModel(rnn, 3, vocab_size=7, readout=readout, skip=skip, dropout_embedding=0.5, dropout_logits=0.5)
    tokens = torch.randint(7, (T, B))
    flow = gradient_flow(model, tokens, lambda logits: logits.square().sum(), wrt="input")
    assert model.training
    model.eval()
    x = model.embedding(tokens).detach().requires_grad_()
    outputs, _ = rnn(x)
    h, seen = (outputs[-1], x[-1]) if readout == "last" else (outputs, x)
    (model.readout(h) + (model.skip(seen) if skip else 0)).square().sum().backward()
    assert_close(flow.frobenius, x.grad.norm(dim=-1).amax(1).flip(0))
    assert_close(gradient_flow(model, tokens).spectral, gradient_flow(rnn, x.detach()).spectral)


def test_a_look_changes_neither_weights_nor_gradients_nor_the_input() -> None:
    module, x = LSTM(D, H, 2, transition="spectral"), torch.randn(T, B, D)
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    copy = x.clone()
    with torch.no_grad():
        gradient_flow(module, x, lambda outputs: outputs.sum())
    assert torch.equal(x, copy)
    assert all(torch.equal(tensor, before[name]) for name, tensor in module.state_dict().items())
    assert all(parameter.grad is None for parameter in module.parameters())


@pytest.mark.parametrize("kind", [RNN, GRU, LSTM])
def test_a_float32_module_is_differentiated_in_float64(kind: Callable[..., Any]) -> None:
    module, x = kind(D, H), torch.randn(T, B, D)
    flow, wide = gradient_flow(module, x), gradient_flow(module.double(), x.double())
    assert flow.spectral.dtype == torch.float64
    assert torch.allclose(flow.spectral, wide.spectral, rtol=64 * T * H * 2.0**-24, atol=0)  # the states are rounded


# Inside the band.


def assert_inside(flow: GradientFlow, steps: int, size: int) -> None:
    """Check every row against the band, up to the rounding of what is measured."""
    slack = rounding(steps, size)
    for low, least, largest, high in (
        (flow.low, flow.spectral_least, flow.spectral, flow.high),
        (flow.frobenius_low, flow.frobenius_least, flow.frobenius, flow.frobenius_high),
    ):
        assert not low.isnan().any()
        assert torch.all(low <= high)
        assert torch.all(least >= low * (1 - slack))
        assert torch.all(largest <= high * (1 + slack))


LOSSES: dict[str, Callable[[Tensor], Tensor] | None] = {
    "none": None,
    "last": lambda outputs: (outputs[-1] - 1).square().sum(),
    "all": lambda outputs: outputs.square().sum(),
    "each": lambda outputs: outputs.square().sum(-1),
}


@pytest.mark.parametrize("wrt", ["state", "input"])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("name", MODULES)
def test_what_is_measured_lies_in_the_certified_band(name: str, loss: str, wrt: str) -> None:
    module, x = MODULES[name](), torch.randn(12, B, D, **DOUBLE)
    flow = gradient_flow(module, x, LOSSES[loss], wrt)
    if wrt == "input" and module.num_layers > 1:
        assert flow.high.isnan().all()
        assert "every layer of the stack" in flow.source
    else:
        assert_inside(flow, 12, 2 * H)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("nonlinearity", ["tanh", "relu", "leaky_relu", "abs", "identity", "sigmoid"])
def test_random_recurrent_weights_of_any_size_keep_inside_the_band(nonlinearity: str, seed: int) -> None:
    torch.manual_seed(seed)
    module = RNN(D, 9, nonlinearity=nonlinearity, **DOUBLE)
    with torch.no_grad():
        module.weight_hh_l0.normal_(std=(0.1, 0.3, 1.0)[seed % 3])
    assert_inside(gradient_flow(module, torch.randn(20, 2, D, **DOUBLE)), 20, 9)


def test_the_band_of_a_contracting_gru_falls_with_the_lag() -> None:
    module = nn.GRU(D, H, **DOUBLE)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.mul_(0.3)
    flow = gradient_flow(module, torch.randn(60, B, D, **DOUBLE))
    assert "mathematics.md, 7.2" in flow.source
    assert flow.high[60] < 1e-3 * flow.high[1]
    assert_inside(flow, 60, H)


def test_the_band_is_sharp_for_a_multiple_of_an_orthogonal_matrix_without_activation() -> None:
    module = RNN(D, H, nonlinearity="identity", **DOUBLE)
    with torch.no_grad():
        module.weight_hh_l0.copy_(0.9 * orthogonal(H))
    lags = torch.arange(T + 1)
    for loss in (None, lambda outputs: outputs[-1, :, 0].sum()):
        flow = gradient_flow(module, torch.randn(T, B, D, **DOUBLE), loss)
        for values in (flow.low, flow.spectral_least, flow.spectral, flow.high):
            assert torch.allclose(values, 0.9 ** lags.double(), rtol=1e-6, atol=0)


def test_a_modrelu_that_jumps_has_no_band_and_says_why() -> None:
    module = RNN(D, H, nonlinearity="modrelu")
    with torch.no_grad():
        module.activation_l0.fill_(0.5)
    flow = gradient_flow(module, torch.randn(T, B, D))
    assert flow.low.isnan().all()
    assert flow.frobenius_high.isnan().all()
    assert "positive shift" in flow.source
    assert flow.spectral.isfinite().all()


# Figures.


def test_the_absolute_value_with_an_orthogonal_weight_keeps_the_gradient_norm() -> None:
    module = RNN(10, 100, nonlinearity="abs", **DOUBLE)
    with torch.no_grad():
        module.weight_hh_l0.copy_(orthogonal(100))
    flow = gradient_flow(module, torch.randn(30, 2, 10, **DOUBLE))
    assert float((flow.frobenius - 10).abs().max()) <= 1e-12  # Note [mathematics], section 3.4: sqrt(100), at every lag
    assert float((flow.frobenius_least - 10).abs().max()) <= 1e-12
    assert torch.allclose(flow.frobenius_low, torch.tensor(10.0).double(), rtol=1e-9)
    assert torch.allclose(flow.frobenius_high, torch.tensor(10.0).double(), rtol=1e-9)
    assert_inside(flow, 30, 100)


def test_a_zero_state_does_not_kill_the_gradient_of_the_absolute_value() -> None:
    module = RNN(2, 100, nonlinearity="abs", bias=False, **DOUBLE)
    with torch.no_grad():
        module.weight_hh_l0.copy_(orthogonal(100))
    flow = gradient_flow(module, torch.zeros(30, 1, 2, **DOUBLE))
    assert float((flow.frobenius - 10).abs().max()) <= 1e-12  # with sign(0) = 0 it would be 0 (Note [mathematics], section 3.4)


def test_the_leaky_rectifier_has_the_corrected_bounds_of_table_6() -> None:
    module = RNN(4, 200, nonlinearity=sr.LeakyReLU(0.5), **DOUBLE)
    with torch.no_grad():
        module.weight_hh_l0.copy_(orthogonal(200))
    x = torch.randn(30, 1, 4, **DOUBLE)
    flow = gradient_flow(module, x)
    assert float(flow.frobenius_low[30]) == pytest.approx(1.317e-8, rel=1e-3)  # the paper prints 9.3e-10
    assert float(flow.frobenius_low[29]) == pytest.approx(2.63e-8, rel=2e-3)
    assert float(flow.low[30]) == pytest.approx(9.3e-10, rel=2e-3)  # the printed number is the spectral one
    assert float(flow.frobenius_high[30]) == pytest.approx(math.sqrt(200), rel=1e-9)
    assert_inside(flow, 30, 200)
    # the determinant form of Note [mathematics], section 3.3, with the slopes met: far above the bound for any slopes
    active = (module(x)[0] > 0).double().mean(-1)  # (T, 1): slope 1, the rest has 0.5
    determinant = math.sqrt(200) * float((0.5 ** (1 - active)).prod())
    assert 1e-5 < determinant <= float(flow.frobenius[30])


@pytest.mark.parametrize(("lag", "norm", "printed"), [(1, 10.02, 0.5), (6, 1.15, 0.0156)])
def test_the_printed_upper_bound_with_eigenvalues_fails(lag: int, norm: float, printed: float) -> None:
    module = RNN(2, 2, nonlinearity="identity", **DOUBLE)
    weight = torch.tensor([[0.5, 10.0], [0.0, 0.4]], **DOUBLE)
    with torch.no_grad():
        module.weight_hh_l0.copy_(weight)
    flow = gradient_flow(module, torch.randn(6, 1, 2, **DOUBLE))
    assert float(flow.spectral[lag]) == pytest.approx(norm, rel=5e-3)  # Note [mathematics], section 3.3
    assert float(torch.linalg.eigvals(weight).abs().max()) ** lag == pytest.approx(printed, rel=5e-3)
    assert float(flow.high[lag]) >= norm


def test_gradients_explode_where_the_printed_bound_says_they_vanish() -> None:
    weight = torch.tensor([[1.0, -1.5], [0.9, -1.0]], **DOUBLE)
    module = RNN(2, 2, nonlinearity="abs", bias=False, **DOUBLE)
    with torch.no_grad():
        module.weight_hh_l0.copy_(weight)
        module.weight_ih_l0.copy_(torch.eye(2))
    held = torch.tensor([1.0, -1.0], **DOUBLE)  # pre-activations of these signs at every step
    x = (held - weight @ torch.ones(2, **DOUBLE)).repeat(60, 1)
    x[0] = held
    flow = gradient_flow(module, x)
    assert float(flow.spectral[60]) == pytest.approx(1.3e20, rel=0.05)  # Note [mathematics], section 3.3
    assert float(torch.linalg.eigvals(weight).abs().max()) ** 60 < 1e-13
    assert_inside(flow, 60, 2)


# At the edges of the range.


def test_what_overflows_is_infinite_not_nan() -> None:
    module = RNN(1, 2, nonlinearity="identity", bias=False, **DOUBLE)
    with torch.no_grad():
        module.weight_hh_l0.copy_(torch.tensor([[1e10, 0.0], [1e10, -1e10]]))
    flow = gradient_flow(module, torch.zeros(40, 1, 1, **DOUBLE))
    assert float(flow.spectral[20]) == pytest.approx(1e200, rel=100)
    assert flow.spectral[-1] == flow.frobenius[-1] == flow.high[-1] == math.inf


def test_what_is_tiny_is_neither_lost_nor_above_its_bound() -> None:
    module = RNN(1, 2, nonlinearity="identity", bias=False, **DOUBLE)
    with torch.no_grad():
        module.weight_hh_l0.copy_(1e-20 * torch.eye(2))
    flow = gradient_flow(module, torch.zeros(20, 1, 1, **DOUBLE))
    assert float(flow.spectral[15]) == pytest.approx(1e-300, rel=1e-12)  # whose square is 0 in float64
    assert float(flow.spectral[20]) <= float(flow.high[20])
    assert float(flow.low[20]) <= float(flow.spectral[20])


def test_one_unit_and_one_step_are_enough() -> None:
    module = RNN(1, 1, nonlinearity="identity", bias=False, **DOUBLE)
    with torch.no_grad():
        module.weight_hh_l0.fill_(-3.0)
    flow = gradient_flow(module, torch.zeros(1, 1, 1, **DOUBLE))
    assert flow.spectral.tolist() == [1.0, 3.0]


# Pictures.


@pytest.mark.parametrize("norm", ["spectral", "frobenius"])
@pytest.mark.parametrize("name", ["tanh", "abs", "torch's lstm"])
def test_a_picture_shows_what_was_measured_and_the_band(name: str, norm: str, tmp_path: Path) -> None:
    flow = gradient_flow(MODULES[name](), torch.randn(T, B, D, **DOUBLE))
    figure = flow.plot(tmp_path / "flow.png", norm)
    assert (tmp_path / "flow.png").read_bytes().startswith(b"\x89PNG")
    (axes,) = figure.axes
    assert axes.get_yscale() == "log"
    assert norm in axes.get_title()
    lines = {line.get_label(): line for line in axes.get_lines()}
    assert lines["measured, largest"].get_ydata().tolist() == getattr(flow, norm).tolist()
    assert len(axes.collections) == 1


def test_a_picture_without_a_band_has_none(tmp_path: Path) -> None:
    flow = gradient_flow(RNN(D, H, 2), torch.randn(T, B, D), wrt="input")
    assert len(flow.plot().axes[0].collections) == 0


def test_a_picture_of_another_norm_is_refused() -> None:
    flow = gradient_flow(RNN(D, H), torch.randn(T, B, D))
    with pytest.raises(ArgumentError, match="`norm` must be 'spectral' or 'frobenius', but is 'max'"):
        flow.plot(norm="max")


# Refusals.


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: nn.Linear(D, H), ArgumentTypeError, "but is of type Linear"),
        (lambda: RNN(D, H, bidirectional=True), ArgumentError, "is bidirectional"),
        (lambda: nn.LSTM(D, H, proj_size=2), ArgumentError, "proj_size=2"),
    ],
)
def test_a_module_that_cannot_be_probed_is_refused(make: Callable[[], nn.Module], error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        gradient_flow(make(), torch.randn(T, B, D))


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        ([1.0], ArgumentTypeError, "`input` must be a tensor"),
        (torch.randn(T), ShapeError, "2 dimensions"),
        (torch.randn(0, B, D), ArgumentError, "at least one step and one row"),
        (torch.randn(T, 0, D), ArgumentError, "at least one step and one row"),
        (torch.randn(T, B, D + 1), ShapeError, "features"),
        (torch.randn(T, B, D).double(), DtypeError, "dtype"),
        (torch.full((T, B, D), torch.nan), NotFiniteError, "`input`"),
        (torch.full((T, B, D), torch.inf), NotFiniteError, "`input`"),
    ],
)
def test_a_bad_input_is_named(data: Any, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        gradient_flow(RNN(D, H), data)


def test_a_token_outside_the_vocabulary_is_refused() -> None:
    with pytest.raises(ArgumentError, match="tokens from 0 to 6"):
        gradient_flow(SequenceModel(RNN(D, H), 1, vocab_size=7), torch.full((T, B), 7))


def test_a_weight_that_is_not_finite_is_named() -> None:
    module = RNN(D, H)
    with torch.no_grad():
        module.weight_hh_l0[0, 0] = torch.inf
    with pytest.raises(NotFiniteError, match="weight_hh_l0"):
        gradient_flow(module, torch.randn(T, B, D))


def test_states_that_leave_the_range_have_no_gradient() -> None:
    module = RNN(D, H, nonlinearity="identity")
    with torch.no_grad():
        module.weight_hh_l0.copy_(1e30 * torch.eye(H))
    with pytest.raises(NotFiniteError, match="not finite after 5 steps"):
        gradient_flow(module, torch.randn(T, B, D))


def test_another_variable_is_refused() -> None:
    with pytest.raises(ArgumentError, match="`wrt` must be 'state' or 'input', but is 'weights'"):
        gradient_flow(RNN(D, H), torch.randn(T, B, D), wrt="weights")


@pytest.mark.parametrize(
    ("loss", "error", "message"),
    [
        ("mse", ArgumentTypeError, "`loss` must be a function"),
        (lambda outputs: 1.0, ArgumentTypeError, "must return a tensor"),
        (lambda outputs: torch.tensor(1.0), ArgumentError, "does not depend on the outputs"),
        (lambda outputs: outputs.detach().sum(), ArgumentError, "does not depend on the outputs"),
        (lambda outputs: outputs, ArgumentError, r"returned shape \(5, 3, 4\)"),
        (lambda outputs: outputs.sum((0, 2)), ArgumentError, r"shape \(5,\) or \(5, 3\), but returned shape \(3,\)"),
        (lambda outputs: outputs.cumsum(0).sum(-1), ArgumentError, "depends on the output of another"),
        (lambda outputs: outputs.flip(0).sum(-1), ArgumentError, "depends on the output of another"),
        (lambda outputs: outputs.roll(1, 1).sum(-1), ArgumentError, "depends on the output of another"),
        (lambda outputs: outputs.sum() * torch.nan, NotFiniteError, "gradient"),
    ],
)
def test_a_bad_loss_is_named(loss: Any, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        gradient_flow(RNN(D, H), torch.randn(T, B, D), loss)


def test_a_model_that_reads_the_last_state_has_one_loss() -> None:
    model = SequenceModel(RNN(D, H), 2)
    with pytest.raises(ArgumentError, match=r"must return one number, but returned shape \(3,\)"):
        gradient_flow(model, torch.randn(3, 3, D), lambda logits: logits.sum(-1))
