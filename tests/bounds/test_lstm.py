"""The box of an LSTM and its contraction there (Note [mathematics], section 7.1)."""

import itertools
import math
from dataclasses import astuple, dataclass, replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from steadyrnn.bounds.gates import box_radius
from steadyrnn.bounds.lstm import (
    LSTMBox,
    lstm_box,
    lstm_contraction,
    lstm_input_gain,
    lstm_rate,
    lstm_rates,
)
from steadyrnn.bounds.norms import MaxNorm
from steadyrnn.constraints import StableLSTM
from steadyrnn.errors import ShapeError
from tests.bounds import gated
from tests.linalg.matrices import gaussian

H, D = 5, 3
SLACK = 1 + 1e-12  # of the measurement itself
seeds = st.integers(0, 2**31)


@dataclass(frozen=True)
class Net(gated.GatedNet):
    """An LSTM in float64, gates in torch's order, with a bound on its inputs."""

    bias: Tensor
    input_bound: float = 1.0

    def step(self, c: Tensor, h: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        h, c = torch.lstm_cell(x, (h, c), self.weight_ih, self.weight_hh, self.bias, torch.zeros_like(self.bias))
        return c, h

    def largest_input(self) -> float:
        return self.input_bound

    def box(self, **options: object) -> LSTMBox:
        return lstm_box(self.weight_ih, self.weight_hh, self.bias, self.input_bound, **options)  # type: ignore[arg-type]


def random_net(seed: int = 0, scale: float = 1.0, input_bound: float = 1.0) -> Net:
    shapes = ((4 * H, D), (4 * H, H), (4 * H,))
    return Net(*(scale * gaussian(*shape, seed=seed + k) for k, shape in enumerate(shapes)), input_bound=input_bound)


def rows(kind: str, size: int, total: float, seed: int) -> Tensor:
    """Return a matrix of some pattern whose absolute row sums are all ``total``."""
    w = gaussian(size, size, seed=seed)
    pattern = {
        "dense": torch.ones(size, size),
        "sparse": (gaussian(size, size, seed=seed + 50) > 0.8).float() + torch.eye(size),
        "diagonal": torch.eye(size),
        "one column": torch.eye(size)[:1].expand(size, size),
    }
    w = w * pattern[kind]
    return total * w / w.abs().sum(1, keepdim=True)


def boundary_net(kind: str, forget: float, seed: int = 0, size: int = 8) -> Net:
    """Return an LSTM for which each inequality of the printed proposition is an equality."""
    gap = 1 - forget
    parts = [rows(kind, size, total, seed + k) for k, total in enumerate((gap, gap**2, gap / 4, gap))]
    weight_ih, bias = gaussian(4 * size, D, seed=seed + 10) / D, gaussian(4 * size, seed=seed + 11)
    gate = slice(size, 2 * size)
    bias[gate] = math.log(forget / gap) - gap**2 - weight_ih[gate].abs().sum(1)
    return Net(weight_ih, torch.cat(parts), bias)


def states(box: LSTMBox, count: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return states of the box, half of them in a corner."""
    size = len(box.hidden)
    s = 2 * torch.rand(count, 2 * size, generator=torch.Generator().manual_seed(seed)).double() - 1
    s[::2] = s[::2].sign()
    return s[:, :size] * box.cell, s[:, size:] * box.hidden


def jacobian(net: Net, c: Tensor, h: Tensor, x: Tensor) -> Tensor:
    def flat(s: Tensor) -> Tensor:
        new = net.step(s[: net.size].unsqueeze(0), s[net.size :].unsqueeze(0), x.unsqueeze(0))
        return torch.cat(new, dim=1)[0]

    found = torch.autograd.functional.jacobian(flat, torch.cat([c, h]))
    assert isinstance(found, Tensor)
    return found


def weighted_norm(jacobians: Tensor, weights: Tensor) -> float:
    return float(((jacobians.abs() * weights).sum(-1) / weights).max())


def within(box: LSTMBox, c: Tensor, h: Tensor) -> bool:
    return bool((c.abs() <= box.cell * SLACK).all()) and bool((h.abs() <= box.hidden * SLACK).all())


@pytest.mark.parametrize("scale", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("input_bound", [0.0, 1.0, 4.0])
@pytest.mark.parametrize("rounds", [0, 1, 20])
def test_no_trajectory_leaves_the_box(scale: float, input_bound: float, rounds: int) -> None:
    net = random_net(3, scale, input_bound)
    box = net.box(rounds=rounds)
    c = h = torch.zeros(200, H, dtype=torch.float64)
    constant = net.inputs(200, seed=1)
    for t in range(100):
        x = constant.clone()
        x[100:] = net.inputs(100, seed=t)
        c, h = net.step(c, h, x)
        assert within(box, c, h)


@given(seed=seeds, scale=st.sampled_from([0.1, 1.0, 3.0]))
def test_no_state_of_the_box_leaves_it(seed: int, scale: float) -> None:
    net = random_net(seed, scale)
    box = net.box()
    assert within(box, *net.step(*states(box, 100, seed), net.inputs(100, seed + 1)))


def test_the_box_is_reached() -> None:
    net = Net(torch.ones(4, 1).double(), torch.zeros(4, 1).double(), gaussian(4).abs(), input_bound=0.7)
    box = net.box()
    c = h = torch.zeros(1, 1, dtype=torch.float64)
    for _ in range(500):
        c, h = net.step(c, h, torch.full((1, 1), 0.7, dtype=torch.float64))
    assert float(c) == pytest.approx(float(box.cell), rel=1e-12)
    assert float(h) == pytest.approx(float(box.hidden), rel=1e-12)


def test_each_round_makes_the_box_smaller() -> None:
    boxes = [random_net(2, 0.1).box(rounds=rounds) for rounds in range(5)]
    for wide, narrow in itertools.pairwise(boxes):
        for before, after in zip(astuple(wide), astuple(narrow), strict=True):
            assert bool((after <= before).all())
    assert float(boxes[4].hidden.max()) < 0.9 < float(boxes[0].hidden.max())


@pytest.mark.parametrize("initial", [(0.4, 2.0), (3.0, 50.0), (torch.linspace(0, 2, H), torch.linspace(9, 0, H)), 1.5])
def test_a_given_initial_state_is_covered(initial: object) -> None:
    net = random_net(5, 0.1)
    box = net.box(initial_bound=initial)
    assert float(net.box().cell.max()) < 2
    first_h, first_c = initial if isinstance(initial, tuple) else (initial, initial)
    signs = gaussian(2, 200, H, seed=8).sign()
    c, h = signs[0] * first_c, signs[1] * first_h
    for t in range(50):
        assert within(box, c, h)
        c, h = net.step(c, h, net.inputs(200, seed=t))


def test_without_its_bound_an_initial_state_may_leave_the_box() -> None:
    net = random_net(5, 0.1)
    c, h = torch.full((1, H), 50.0, dtype=torch.float64), torch.full((1, H), 3.0, dtype=torch.float64)
    assert not within(net.box(), *net.step(c, h, net.inputs(1, seed=0)))


def test_an_initial_bound_inside_the_box_changes_nothing() -> None:
    net = random_net(5, 0.7)
    box = net.box()
    same = net.box(initial_bound=(box.hidden * 0.5, box.cell * 0.5))
    assert all(torch.equal(a, b) for a, b in zip(astuple(box), astuple(same), strict=True))


@pytest.mark.parametrize("kind", ["dense", "sparse", "diagonal", "one column"])
@pytest.mark.parametrize("forget", [0.30, 0.64, 0.90])
def test_on_the_printed_boundary_each_test_is_sharper_than_the_one_before(kind: str, forget: float) -> None:
    net = boundary_net(kind, forget)
    box = net.box(rounds=0)
    rates, entrywise = lstm_rates(net.weight_hh, box), lstm_contraction(net.weight_hh, box).rate
    assert rates.printed == pytest.approx(1.0, abs=1e-12)
    assert entrywise <= rates.paired * (1 + 1e-6) < rates.printed
    tighter = net.box()
    assert lstm_contraction(net.weight_hh, tighter).rate <= entrywise
    assert lstm_rates(net.weight_hh, tighter).paired <= rates.paired


@pytest.mark.parametrize(("forget", "paired", "entrywise"), [(0.30, 0.80, 0.70), (0.64, 0.90, 0.85), (0.90, 0.97, 0.96)])
def test_dense_networks_on_the_boundary_are_well_inside_by_the_sharper_tests(
    forget: float, paired: float, entrywise: float
) -> None:
    nets = [boundary_net("dense", forget, seed=100 * k) for k in range(8)]
    boxes = [net.box() for net in nets]
    pairs = list(zip(nets, boxes, strict=True))
    assert sum(lstm_rates(net.weight_hh, box).paired for net, box in pairs) / 8 <= paired
    assert sum(lstm_contraction(net.weight_hh, box).rate for net, box in pairs) / 8 <= entrywise


@pytest.mark.parametrize("kind", ["dense", "sparse", "diagonal", "one column"])
@pytest.mark.parametrize("forget", [0.30, 0.64, 0.90])
def test_no_jacobian_in_the_box_is_larger_than_the_rates(kind: str, forget: float) -> None:
    net = boundary_net(kind, forget)
    box = net.box()
    found, rates = lstm_contraction(net.weight_hh, box), lstm_rates(net.weight_hh, box)
    assert isinstance(found.norm, MaxNorm)
    cases = zip(*states(box, 60, seed=1), net.inputs(60, seed=2), strict=True)
    jacobians = torch.stack([jacobian(net, *case) for case in cases])
    assert weighted_norm(jacobians, found.norm.weights) <= found.rate * SLACK
    assert weighted_norm(jacobians, torch.ones(2 * net.size).double()) <= rates.printed
    blocks = jacobians.abs().unflatten(2, (2, net.size)).sum(-1).unflatten(1, (2, net.size)).amax(2).amax(0)
    assert float(torch.linalg.eigvals(blocks).abs().max()) <= rates.paired * SLACK


@given(seed=seeds, scale=st.sampled_from([0.05, 0.3, 1.0]))
def test_two_states_never_come_apart_faster_than_the_rate(seed: int, scale: float) -> None:
    net = random_net(seed, scale)
    box = net.box()
    found = lstm_contraction(net.weight_hh, box)
    (c, h), (c2, h2) = states(box, 100, seed), states(box, 100, seed + 1)
    x = net.inputs(100, seed + 2)
    before, after = torch.cat([c - c2, h - h2], 1), torch.cat(net.step(c, h, x), 1) - torch.cat(net.step(c2, h2, x), 1)
    assert bool((found.norm(after) <= found.rate * found.norm(before) * SLACK).all())


@given(seed=seeds, scale=st.sampled_from([0.1, 1.0]))
def test_any_weights_give_a_valid_rate_and_none_a_better_one(seed: int, scale: float) -> None:
    net = random_net(seed, scale)
    box = net.box()
    best, weights = lstm_contraction(net.weight_hh, box).rate, gaussian(2 * H, seed=seed).exp()
    rate = lstm_rate(net.weight_hh, box, weights)
    assert rate >= best * (1 - 1e-6)
    cases = zip(*states(box, 5, seed), net.inputs(5, seed), strict=True)
    assert weighted_norm(torch.stack([jacobian(net, *case) for case in cases]), weights) <= rate * SLACK


def test_the_rate_is_the_perron_root_of_the_comparison_matrix() -> None:
    net = random_net(1, 0.5)
    box = net.box()
    i, f, g, o = net.weight_hh.abs().split(H)
    column = {name: getattr(box, name).unsqueeze(1) for name in ("input", "candidate", "cell", "output")}
    top = column["candidate"] * i / 4 + column["input"] * g + column["cell"] * f / 4
    low = column["output"] * top + column["cell"].tanh() * o / 4
    m = torch.cat([torch.cat([box.forget.diag(), top], 1), torch.cat([(box.output * box.forget).diag(), low], 1)])
    root = float(torch.linalg.eigvals(m).abs().max())
    assert lstm_contraction(net.weight_hh, box).rate == pytest.approx(root, rel=1e-8)


def test_without_recurrent_weights_the_rate_is_the_forget_gate_and_is_reached() -> None:
    net = replace(random_net(4, 1.0), weight_hh=torch.zeros(4 * H, H, dtype=torch.float64))
    found = lstm_contraction(net.weight_hh, net.box())
    gate = slice(H, 2 * H)
    unit = int((net.weight_ih[gate].abs().sum(1) + net.bias[gate]).argmax())
    x = net.weight_ih[gate][unit].sign().unsqueeze(0)
    zero = torch.zeros(1, H, dtype=torch.float64)
    c = torch.zeros(1, H, dtype=torch.float64)
    c[0, unit] = 1e-3
    moved = net.step(c, zero, x)[0] - net.step(zero, zero, x)[0]
    assert float(moved[0, unit]) / 1e-3 == pytest.approx(found.rate, rel=1e-9)


def test_one_step_of_a_contraction_may_expand_the_two_norm() -> None:
    size, forget = 1024, 0.5
    weight_hh = torch.zeros(4 * size, size, dtype=torch.float64)
    weight_hh[2 * size : 3 * size, 0] = (1 - forget) / 4
    bias = torch.zeros(4 * size, dtype=torch.float64)
    bias[:size] = bias[3 * size :] = 4.0
    net = Net(torch.zeros(4 * size, 1, dtype=torch.float64), weight_hh, bias)
    rate = lstm_rates(net.weight_hh, net.box()).printed
    assert rate == pytest.approx(0.625, abs=1e-12)
    zero, x = torch.zeros(1, size, dtype=torch.float64), torch.zeros(1, 1, dtype=torch.float64)
    h = zero.clone()
    h[0, 0] = 1e-4
    moved = (torch.cat(net.step(zero, h, x)) - torch.cat(net.step(zero, zero, x))) / 1e-4
    assert 5.4 <= float(moved.norm()) <= 5.7
    assert float(moved.abs().max()) <= 0.125
    counts = [math.floor(math.log(math.sqrt(entries)) / math.log(1 / rate)) + 1 for entries in (2 * size, size)]
    assert counts == [9, 8]  # the printed root of d would promise one step too early


def test_after_many_steps_the_two_norm_contracts_with_the_root_of_twice_the_size() -> None:
    net = boundary_net("one column", 0.5)
    net = replace(net, weight_hh=0.5 * net.weight_hh)
    box = net.box()
    rate = lstm_rates(net.weight_hh, box).printed
    assert rate < 0.8
    (c, h), (c2, h2) = states(box, 200, seed=3), states(box, 200, seed=4)
    first = torch.cat([c - c2, h - h2], 1).norm(dim=1)
    for step in range(1, 20):
        x = net.inputs(200, seed=step)
        (c, h), (c2, h2) = net.step(c, h, x), net.step(c2, h2, x)
        gap = torch.cat([c - c2, h - h2], 1).norm(dim=1)
        assert bool((gap <= math.sqrt(2 * net.size) * rate**step * first).all())


@pytest.mark.parametrize("stable", [StableLSTM(), StableLSTM(0.3, margin=0.1), StableLSTM(0.9, input_bound=2.0)], ids=str)
def test_members_of_the_stable_set_are_certified(stable: StableLSTM) -> None:
    net = random_net(6, 2.0)
    weight_ih, weight_hh, bias, _ = stable.project(net.weight_ih, net.weight_hh, net.bias)
    assert bias is not None
    box = lstm_box(weight_ih, weight_hh, bias, stable.input_bound)
    assert float(box.forget.max()) <= stable.forget_bound * SLACK
    assert lstm_contraction(weight_hh, box).rate < lstm_rates(weight_hh, box).printed <= stable.contraction * SLACK


def test_the_radius_is_the_corner_of_the_box() -> None:
    net = random_net(7, 0.5)
    box, weights = net.box(), gaussian(2 * H, seed=3).exp()
    radius = box_radius(box, MaxNorm(weights))
    corner = torch.cat([box.cell, box.hidden]) / weights
    assert float(corner.max()) <= radius <= float(corner.max()) * (1 + 1e-14)
    assert bool((MaxNorm(weights)(torch.cat(states(box, 100, seed=1), 1)) <= radius).all())


@given(seed=seeds, scale=st.sampled_from([0.1, 1.0]))
def test_no_step_moves_further_with_its_input_than_the_gain(seed: int, scale: float) -> None:
    net = random_net(seed, scale)
    box = net.box()
    norm = MaxNorm(gaussian(2 * H, seed=seed).exp())
    (c, h), x, other = states(box, 100, seed), net.inputs(100, seed + 1), net.inputs(100, seed + 2)
    moved = norm(torch.cat(net.step(c, h, x), 1) - torch.cat(net.step(c, h, other), 1))
    gain = lstm_input_gain(net.weight_ih, box, norm)
    assert bool((moved <= gain * (x - other).norm(dim=1) * SLACK).all())


def test_the_input_gain_is_reached_through_the_candidate() -> None:
    weight_ih = torch.zeros(4, 2, dtype=torch.float64)
    weight_ih[2] = torch.tensor([0.3, -0.4])
    net = Net(weight_ih, torch.zeros(4, 1, dtype=torch.float64), torch.tensor([1.0, -1.0, 0.0, -20.0]).double())
    norm = MaxNorm(torch.ones(2))
    zero = torch.zeros(1, 1, dtype=torch.float64)
    x = 1e-4 * torch.tensor([[0.6, -0.8]], dtype=torch.float64)
    moved = norm(torch.cat(net.step(zero, zero, x), 1) - torch.cat(net.step(zero, zero, 0 * x), 1))
    assert float(moved) / 1e-4 == pytest.approx(lstm_input_gain(net.weight_ih, net.box(), norm), rel=1e-6)


def test_a_missing_bias_is_zero() -> None:
    net = random_net(1)
    without = lstm_box(net.weight_ih, net.weight_hh, None, 1.0)
    zeros = lstm_box(net.weight_ih, net.weight_hh, torch.zeros(4 * H), 1.0)
    assert all(torch.equal(a, b) for a, b in zip(astuple(without), astuple(zeros), strict=True))


def test_the_weights_of_a_module_in_float32_are_taken_as_stored() -> None:
    lstm = torch.nn.LSTM(D, H)
    bias = lstm.bias_ih_l0.double() + lstm.bias_hh_l0.double()
    box = lstm_box(lstm.weight_ih_l0, lstm.weight_hh_l0, bias, 1.0)
    wide = lstm_box(lstm.weight_ih_l0.double(), lstm.weight_hh_l0.double(), bias, 1.0)
    assert all(torch.equal(a, b) and a.dtype == torch.float64 for a, b in zip(astuple(box), astuple(wide), strict=True))
    assert not box.cell.requires_grad


@pytest.mark.parametrize("push", [40.0, 1e3, 1e30])
def test_a_cell_that_never_forgets_has_no_contraction_and_no_error(push: float) -> None:
    net = random_net(2, 0.1)
    bias = net.bias.clone()
    bias[H : 2 * H] += push
    net = replace(net, bias=bias)
    box = net.box()
    found = lstm_contraction(net.weight_hh, box)
    assert found.rate >= 1
    assert lstm_rates(net.weight_hh, box).printed >= 1
    assert lstm_rates(net.weight_hh, box).paired >= 1
    assert isinstance(found.norm, MaxNorm)
    assert box_radius(box, found.norm) > 1e6
    assert lstm_input_gain(net.weight_ih, box, found.norm) > 1e4


@pytest.mark.parametrize("scale", [1e-300, 1e300])
def test_tiny_and_huge_weights_give_numbers(scale: float) -> None:
    net = random_net(2, scale)
    rate = lstm_contraction(net.weight_hh, net.box()).rate
    assert rate == pytest.approx(0.5, abs=1e-6) if scale < 1 else rate >= 1


test_nothing_is_said_of_what_is_not_finite = gated.make_finite_test(random_net, ["weight_ih", "weight_hh", "bias"])
test_unbounded_inputs_have_no_certificate = gated.make_unbounded_test(random_net)
test_the_bound_on_inputs_is_not_negative = gated.make_bound_test(random_net)
test_the_shapes_are_those_of_torch = gated.make_shape_test(
    random_net,
    [
        ("weight_hh", (4 * H, H + 1)),
        ("weight_hh", (3 * H, H)),
        ("weight_ih", (3 * H, D)),
        ("bias", (H,)),
        ("weight_hh", (0, 0)),
    ],
)
test_a_bound_on_the_initial_state_has_the_size_of_the_state = gated.make_initial_bound_test(random_net, (0.0, -1.0))


def test_a_norm_of_another_size_is_refused() -> None:
    net = random_net()
    with pytest.raises(ShapeError, match="10 entries of the state"):
        box_radius(net.box(), MaxNorm(torch.ones(H)))
    with pytest.raises(ShapeError, match=r"10 entries of \(c, h\)"):
        lstm_rate(net.weight_hh, net.box(), torch.ones(H))
    with pytest.raises(ShapeError, match=r"10 entries of \(c, h\)"):
        lstm_input_gain(net.weight_ih, net.box(), MaxNorm(torch.ones(H)))


def test_the_weight_fits_the_box() -> None:
    with pytest.raises(ShapeError, match="`weight_hh`"):
        lstm_contraction(torch.zeros(8, 2), random_net().box())
    with pytest.raises(ShapeError, match="`weight_ih`"):
        lstm_input_gain(torch.zeros(8, 2), random_net().box(), MaxNorm(torch.ones(2 * H)))
