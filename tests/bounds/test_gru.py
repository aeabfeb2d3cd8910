"""The box of a GRU and its contraction there (Note [mathematics], sections 7.2, 7.3)."""

import itertools
import math
from dataclasses import dataclass, replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from steadyrnn.bounds.gates import box_radius
from steadyrnn.bounds.gru import GRUBox, gru_box, gru_contraction, gru_input_gain, gru_rate, gru_scalar_test
from steadyrnn.bounds.norms import MaxNorm
from steadyrnn.errors import ShapeError
from tests.bounds import gated
from tests.linalg.matrices import gaussian, orthogonal

H, D = 5, 3
SLACK = 1 + 1e-12  # of the measurement itself
FORMS = [pytest.param(True, id="after"), pytest.param(False, id="before")]
FIELDS = ("reset", "update_low", "update_high", "candidate", "hidden", "gated")
seeds = st.integers(0, 2**31)


@dataclass(frozen=True)
class Net(gated.GatedNet):
    """A GRU in float64, gates in torch's order, with a bound on its inputs."""

    bias_ih: Tensor
    bias_hh: Tensor
    reset_after: bool = True
    input_bound: float = 1.0

    def step(self, h: Tensor, x: Tensor) -> Tensor:
        if self.reset_after:
            return torch.gru_cell(x, h, self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
        r, z, n = (x @ self.weight_ih.mT + self.bias_ih + self.bias_hh).chunk(3, dim=-1)
        for_r, for_z, for_n = self.weight_hh.chunk(3)
        r, z = (r + h @ for_r.mT).sigmoid(), (z + h @ for_z.mT).sigmoid()
        return z * h + (1 - z) * (n + (r * h) @ for_n.mT).tanh()

    def largest_input(self) -> float:
        return self.input_bound

    def box(self, **options: object) -> GRUBox:
        weights = (self.weight_ih, self.weight_hh, self.bias_ih, self.bias_hh)
        return gru_box(*weights, self.input_bound, self.reset_after, **options)  # type: ignore[arg-type]


def random_net(seed: int = 0, scale: float = 1.0, reset_after: bool = True, input_bound: float = 1.0) -> Net:
    shapes = ((3 * H, D), (3 * H, H), (3 * H,), (3 * H,))
    weights = (scale * gaussian(*shape, seed=seed + k) for k, shape in enumerate(shapes))
    return Net(*weights, reset_after=reset_after, input_bound=input_bound)


def net_of_row_sums(total: float, reset_after: bool, seed: int) -> Net:
    """Return a GRU whose recurrent weights have this largest absolute row sum in every gate, and 8 units."""
    gates = [gaussian(8, 8, seed=seed + k) for k in range(3)]
    weight_hh = torch.cat([total * w / w.abs().sum(1).max() for w in gates])
    weight_ih, bias, inner = (gaussian(*shape, seed=seed + 5 + k) / 5 for k, shape in enumerate([(24, D), (24,), (24,)]))
    return Net(weight_ih, weight_hh, bias, inner, reset_after)


def states(box: GRUBox, count: int, seed: int) -> Tensor:
    """Return states of the box, half of them in a corner."""
    h = 2 * torch.rand(count, len(box.hidden), generator=torch.Generator().manual_seed(seed)).double() - 1
    h[::2] = h[::2].sign()
    return h * box.hidden


def jacobian(net: Net, h: Tensor, x: Tensor) -> Tensor:
    found = torch.autograd.functional.jacobian(lambda s: net.step(s.unsqueeze(0), x.unsqueeze(0))[0], h)
    assert isinstance(found, Tensor)
    return found


def weighted_norm(jacobians: Tensor, weights: Tensor) -> float:
    return float(((jacobians.abs() * weights).sum(-1) / weights).max())


def within(box: GRUBox, h: Tensor) -> bool:
    return bool((h.abs() <= box.hidden * SLACK).all())


@pytest.mark.parametrize("reset_after", FORMS)
@pytest.mark.parametrize("scale", [0.1, 1.0, 3.0])
@pytest.mark.parametrize("input_bound", [0.0, 1.0, 4.0])
def test_no_trajectory_leaves_the_box(reset_after: bool, scale: float, input_bound: float) -> None:
    net = random_net(3, scale, reset_after, input_bound)
    box = net.box()
    h = torch.zeros(200, H, dtype=torch.float64)
    constant = net.inputs(200, seed=1)
    for t in range(100):
        x = constant.clone()
        x[100:] = net.inputs(100, seed=t)
        h = net.step(h, x)
        assert within(box, h)


@pytest.mark.parametrize("reset_after", FORMS)
@given(seed=seeds, scale=st.sampled_from([0.1, 1.0, 3.0]))
def test_no_state_of_the_box_leaves_it_and_its_gates_are_bounded(reset_after: bool, seed: int, scale: float) -> None:
    net = random_net(seed, scale, reset_after)
    box = net.box()
    h, x = states(box, 100, seed), net.inputs(100, seed + 1)
    assert within(box, net.step(h, x))
    r, z, _ = (x @ net.weight_ih.mT + h @ net.weight_hh.mT + net.bias_ih + net.bias_hh).chunk(3, dim=-1)
    assert bool((r.sigmoid() <= box.reset * SLACK).all())
    assert bool((z.sigmoid() <= box.update_high * SLACK).all())
    assert bool((z.sigmoid() * SLACK >= box.update_low).all())


@pytest.mark.parametrize("reset_after", FORMS)
def test_the_box_is_reached(reset_after: bool) -> None:
    ones, zeros = torch.ones(3, 1, dtype=torch.float64), torch.zeros(3, dtype=torch.float64)
    net = Net(ones, 0.5 * ones, zeros, zeros, reset_after, input_bound=0.7)
    h = torch.zeros(1, 1, dtype=torch.float64)
    for _ in range(500):
        h = net.step(h, torch.full((1, 1), 0.7, dtype=torch.float64))
    assert float(h) == pytest.approx(float(net.box(rounds=200).hidden), rel=1e-9)


@pytest.mark.parametrize("reset_after", FORMS)
def test_each_round_makes_the_box_smaller(reset_after: bool) -> None:
    boxes = [random_net(2, 0.2, reset_after).box(rounds=rounds) for rounds in range(5)]
    for wide, narrow in itertools.pairwise(boxes):
        for name in FIELDS:
            before, after = getattr(wide, name), getattr(narrow, name)
            assert bool(((after >= before) if name == "update_low" else (after <= before)).all())
    assert float(boxes[4].hidden.max()) < 0.9 < float(boxes[0].hidden.max())


@pytest.mark.parametrize("reset_after", FORMS)
@pytest.mark.parametrize("initial", [0.4, 3.0, torch.linspace(0, 2, H)])
def test_a_given_initial_state_is_covered(reset_after: bool, initial: float | Tensor) -> None:
    net = random_net(5, 0.3, reset_after)
    box = net.box(initial_bound=initial)
    h = gaussian(200, H, seed=8).sign() * initial
    for t in range(50):
        assert within(box, h)
        h = net.step(h, net.inputs(200, seed=t))


def test_without_its_bound_an_initial_state_may_lie_outside_the_box() -> None:
    net = random_net(5, 0.3)
    assert not within(net.box(), net.step(torch.full((1, H), 3.0, dtype=torch.float64), net.inputs(1, seed=0)))


@pytest.mark.parametrize("reset_after", FORMS)
def test_small_row_sums_are_certified_and_the_entrywise_test_is_sharper(reset_after: bool) -> None:
    nets = [net_of_row_sums(0.3, reset_after, seed=10 * k) for k in range(8)]
    boxes = [net.box() for net in nets]
    scalar = [gru_scalar_test(net.weight_hh, box) for net, box in zip(nets, boxes, strict=True)]
    entrywise = [gru_contraction(net.weight_hh, box).rate for net, box in zip(nets, boxes, strict=True)]
    assert all(sharp < plain - 0.02 for sharp, plain in zip(entrywise, scalar, strict=True))
    assert max(entrywise) < 1
    assert sum(entrywise) / 8 <= 0.9


@pytest.mark.parametrize("reset_after", FORMS)
@pytest.mark.parametrize(("total", "test"), [(0.6, "scalar"), (1.2, "scalar"), (1.2, "entrywise")])
def test_larger_row_sums_are_not_certified(reset_after: bool, total: float, test: str) -> None:
    nets = [net_of_row_sums(total, reset_after, seed=10 * k) for k in range(8)]
    tests = {"scalar": gru_scalar_test, "entrywise": lambda weight_hh, box: gru_contraction(weight_hh, box).rate}
    assert min(tests[test](net.weight_hh, net.box()) for net in nets) >= 1


@given(seed=seeds, total=st.floats(0.05, 0.6))
def test_the_scalar_test_on_the_unit_box_is_the_published_condition(seed: int, total: float) -> None:
    net = net_of_row_sums(total, False, seed)
    box = net.box(rounds=0)
    r, z, n = (float(part.abs().sum(1).max()) for part in net.weight_hh.chunk(3))
    reset, update, candidate = (float(bound.max()) for bound in (box.reset, box.update_high, box.candidate))
    gap = 1 - (1 + candidate) / (1 - update) * z / 4 - n * (r / 4 + reset)
    if abs(gap) > 1e-9:
        assert (gap > 0) == (gru_scalar_test(net.weight_hh, box) < 1)


@pytest.mark.parametrize("reset_after", FORMS)
@pytest.mark.parametrize("scale", [0.1, 0.3, 1.0])
def test_no_jacobian_in_the_box_is_larger_than_the_rates(reset_after: bool, scale: float) -> None:
    net = random_net(6, scale, reset_after)
    box = net.box()
    found = gru_contraction(net.weight_hh, box)
    assert isinstance(found.norm, MaxNorm)
    cases = zip(states(box, 60, seed=1), net.inputs(60, seed=2), strict=True)
    jacobians = torch.stack([jacobian(net, *case) for case in cases])
    assert weighted_norm(jacobians, found.norm.weights) <= found.rate * SLACK
    assert weighted_norm(jacobians, torch.ones(H).double()) <= gru_scalar_test(net.weight_hh, box) * SLACK


@pytest.mark.parametrize("reset_after", FORMS)
@given(seed=seeds, scale=st.sampled_from([0.05, 0.3, 1.0]))
def test_two_states_never_come_apart_faster_than_the_rate(reset_after: bool, seed: int, scale: float) -> None:
    net = random_net(seed, scale, reset_after)
    box = net.box()
    found = gru_contraction(net.weight_hh, box)
    h, other, x = states(box, 100, seed), states(box, 100, seed + 1), net.inputs(100, seed + 2)
    moved = found.norm(net.step(h, x) - net.step(other, x))
    assert bool((moved <= found.rate * found.norm(h - other) * SLACK).all())


@pytest.mark.parametrize("reset_after", FORMS)
@given(seed=seeds, scale=st.sampled_from([0.1, 1.0]))
def test_any_weights_give_a_valid_rate_and_none_a_better_one(reset_after: bool, seed: int, scale: float) -> None:
    net = random_net(seed, scale, reset_after)
    box, weights = net.box(), gaussian(H, seed=seed).exp()
    rate = gru_rate(net.weight_hh, box, weights)
    assert rate >= gru_contraction(net.weight_hh, box).rate * (1 - 1e-6)
    cases = zip(states(box, 5, seed), net.inputs(5, seed), strict=True)
    assert weighted_norm(torch.stack([jacobian(net, *case) for case in cases]), weights) <= rate * SLACK


@pytest.mark.parametrize("reset_after", FORMS)
def test_without_recurrent_weights_the_rate_is_the_update_gate_and_is_reached(reset_after: bool) -> None:
    net = replace(random_net(4, 1.0, reset_after), weight_hh=torch.zeros(3 * H, H, dtype=torch.float64))
    found = gru_contraction(net.weight_hh, net.box())
    gate = slice(H, 2 * H)
    unit = int((net.weight_ih[gate].abs().sum(1) + net.bias_ih[gate] + net.bias_hh[gate]).argmax())
    x = net.weight_ih[gate][unit].sign().unsqueeze(0)
    h = torch.zeros(1, H, dtype=torch.float64)
    h[0, unit] = 1e-3
    moved = net.step(h, x) - net.step(0 * h, x)
    assert float(moved[0, unit]) / 1e-3 == pytest.approx(found.rate, rel=1e-9)


@pytest.mark.parametrize("reset_after", FORMS)
def test_the_candidate_alone_reaches_the_rate_at_rest(reset_after: bool) -> None:
    weight_hh = torch.zeros(3 * H, H, dtype=torch.float64)
    weight_hh[2 * H :] = 0.8 * orthogonal(H, seed=1)
    bias = torch.cat([torch.full((H,), 2.0), torch.full((H,), -3.0), torch.zeros(H)]).double()
    net = Net(torch.zeros(3 * H, D, dtype=torch.float64), weight_hh, bias, torch.zeros_like(bias), reset_after)
    found = gru_contraction(net.weight_hh, net.box())
    assert isinstance(found.norm, MaxNorm)
    at_rest = jacobian(net, torch.zeros(H).double(), torch.zeros(D).double())
    assert weighted_norm(at_rest, found.norm.weights) >= 0.9 * found.rate


def small_candidate_net(reset_after: bool) -> Net:
    """Return a GRU of one unit whose candidate is almost linear, and whose reset gate is steepest at the state 1."""
    weight_ih = torch.tensor([[0.8], [0.0], [0.0]], dtype=torch.float64)
    weight_hh = torch.tensor([[2.0], [0.0], [0.02]], dtype=torch.float64)
    bias_ih, bias_hh = torch.tensor([-2.0, -20.0, 0.0]).double(), torch.tensor([0.0, 0.0, 0.02 * reset_after]).double()
    return Net(weight_ih, weight_hh, bias_ih, bias_hh, reset_after, input_bound=0.0)


@pytest.mark.parametrize("reset_after", FORMS)
def test_the_rate_is_reached_through_the_reset_gate(reset_after: bool) -> None:
    net, one, zero = small_candidate_net(reset_after), torch.ones(1).double(), torch.zeros(1).double()
    rate = gru_rate(net.weight_hh, net.box(initial_bound=1.0), one)
    assert float(jacobian(net, one, zero)) == pytest.approx(rate, rel=1e-2)
    assert rate > 1.5 * 0.5 * 0.02  # more than what passes with the gate held


@pytest.mark.parametrize("reset_after", FORMS)
def test_the_input_gain_is_reached_through_the_reset_gate(reset_after: bool) -> None:
    net, one = small_candidate_net(reset_after), torch.ones(1, 1).double()
    gain = gru_input_gain(net.weight_ih, net.weight_hh, net.box(initial_bound=1.0), MaxNorm(torch.ones(1)))
    moved = net.step(one, 1e-4 * one) - net.step(one, 0 * one)
    assert float(moved) / 1e-4 == pytest.approx(gain, rel=1e-2)


def test_the_bias_inside_the_reset_gate_stays_there() -> None:
    net = random_net(7, 0.2)
    bias = net.bias_hh.clone()
    bias[2 * H :] += 3.0
    inside = replace(net, bias_hh=bias)
    outside = replace(net, bias_ih=net.bias_ih + bias - net.bias_hh)
    assert bool((inside.box().candidate < outside.box().candidate).all())  # the gate lets part of it through
    assert bool((inside.box().gated > outside.box().gated).all())
    assert gru_contraction(inside.weight_hh, inside.box()).rate > gru_contraction(outside.weight_hh, outside.box()).rate


def test_before_the_product_only_the_sum_of_both_biases_counts() -> None:
    net = random_net(7, 0.2, reset_after=False)
    moved = replace(net, bias_ih=net.bias_ih + net.bias_hh, bias_hh=0 * net.bias_hh)
    for name in FIELDS:
        assert torch.allclose(getattr(net.box(), name), getattr(moved.box(), name), rtol=1e-14)


@pytest.mark.parametrize("n", [8, 64, 256])
def test_an_orthogonal_candidate_has_large_row_sums(n: int) -> None:
    q = orthogonal(n, seed=n)
    total = float(q.abs().sum(1).max())
    assert 1 <= total <= math.sqrt(n)
    assert total == pytest.approx({8: 2.5, 64: 6.8, 256: 13.4}[n], rel=0.1)


def ugru(candidate: Tensor, reset: float) -> Net:
    """Return a GRU with this candidate weight, a reset gate of this height, and no other recurrent weights."""
    n = len(candidate)
    weight_hh = torch.cat([torch.zeros(2 * n, n, dtype=torch.float64), candidate])
    bias = torch.zeros(3 * n, dtype=torch.float64)
    bias[:n] = math.log(reset / (1 - reset))
    return Net(torch.zeros(3 * n, 1, dtype=torch.float64), weight_hh, bias, 0 * bias, reset_after=False)


@pytest.mark.parametrize(("n", "reset"), [(8, 0.40), (64, 0.15), (256, 0.075)])
def test_a_ugru_is_certified_only_behind_an_almost_closed_reset_gate(n: int, reset: float) -> None:
    q = orthogonal(n, seed=n)
    rates = []
    for height in (0.5 * reset, 3 * reset if 3 * reset < 1 else 0.95):
        net = ugru(q, height)
        box = net.box(rounds=0)
        rates.append(gru_scalar_test(net.weight_hh, box))
    assert rates[0] < 1 < rates[1]


def test_a_permutation_as_candidate_is_certified_behind_any_reset_gate() -> None:
    net = ugru(torch.eye(16, dtype=torch.float64).roll(1, 0), 0.95)
    assert gru_contraction(net.weight_hh, net.box()).rate < 1


@pytest.mark.parametrize("reset_after", FORMS)
def test_the_radius_is_the_corner_of_the_box(reset_after: bool) -> None:
    box, weights = random_net(7, 0.5, reset_after).box(), gaussian(H, seed=3).exp()
    radius, corner = box_radius(box, MaxNorm(weights)), float((box.hidden / weights).max())
    assert corner <= radius <= corner * (1 + 1e-14)
    assert bool((MaxNorm(weights)(states(box, 100, seed=1)) <= radius).all())


@pytest.mark.parametrize("reset_after", FORMS)
@given(seed=seeds, scale=st.sampled_from([0.1, 1.0]))
def test_no_step_moves_further_with_its_input_than_the_gain(reset_after: bool, seed: int, scale: float) -> None:
    net = random_net(seed, scale, reset_after)
    box, norm = net.box(), MaxNorm(gaussian(H, seed=seed).exp())
    h, x, other = states(box, 100, seed), net.inputs(100, seed + 1), net.inputs(100, seed + 2)
    gain = gru_input_gain(net.weight_ih, net.weight_hh, box, norm)
    assert bool((norm(net.step(h, x) - net.step(h, other)) <= gain * (x - other).norm(dim=1) * SLACK).all())


@pytest.mark.parametrize("reset_after", FORMS)
def test_the_input_gain_is_reached_through_the_candidate(reset_after: bool) -> None:
    weight_ih = torch.zeros(3, 2, dtype=torch.float64)
    weight_ih[2] = torch.tensor([0.3, -0.4])
    zeros = torch.zeros(3, dtype=torch.float64)
    net = Net(weight_ih, torch.zeros(3, 1, dtype=torch.float64), torch.tensor([1.0, -1.0, 0.0]).double(), zeros, reset_after)
    h, x = torch.zeros(1, 1, dtype=torch.float64), 1e-4 * torch.tensor([[0.6, -0.8]], dtype=torch.float64)
    gain = gru_input_gain(net.weight_ih, net.weight_hh, net.box(), MaxNorm(torch.ones(1)))
    assert float(net.step(h, x) - net.step(h, 0 * x)) / 1e-4 == pytest.approx(gain, rel=1e-6)


@pytest.mark.parametrize("reset_after", FORMS)
def test_missing_biases_are_zero(reset_after: bool) -> None:
    net = random_net(1)
    without = gru_box(net.weight_ih, net.weight_hh, None, None, 1.0, reset_after)
    zeros = gru_box(net.weight_ih, net.weight_hh, torch.zeros(3 * H), torch.zeros(3 * H), 1.0, reset_after)
    assert all(torch.equal(getattr(without, name), getattr(zeros, name)) for name in FIELDS)


def test_the_weights_of_a_module_in_float32_are_taken_as_stored() -> None:
    gru = torch.nn.GRU(D, H)
    weights = (gru.weight_ih_l0, gru.weight_hh_l0, gru.bias_ih_l0, gru.bias_hh_l0)
    box, wide = gru_box(*weights, 1.0), gru_box(*(w.double() for w in weights), 1.0)
    assert all(torch.equal(getattr(box, name), getattr(wide, name)) for name in FIELDS)
    assert box.hidden.dtype == torch.float64
    assert not box.hidden.requires_grad


@pytest.mark.parametrize("reset_after", FORMS)
@pytest.mark.parametrize("scale", [1e-300, 1e300])
def test_tiny_and_huge_weights_give_numbers(reset_after: bool, scale: float) -> None:
    net = random_net(2, scale, reset_after)
    rate = gru_contraction(net.weight_hh, net.box()).rate
    assert rate == pytest.approx(0.5, abs=1e-6) if scale < 1 else rate >= 1


@pytest.mark.parametrize("reset_after", FORMS)
def test_a_unit_that_never_updates_has_no_contraction_and_no_error(reset_after: bool) -> None:
    net = random_net(2, 0.1, reset_after)
    bias = net.bias_ih.clone()
    bias[H : 2 * H] += 1e3
    assert gru_contraction(net.weight_hh, replace(net, bias_ih=bias).box()).rate >= 1


test_nothing_is_said_of_what_is_not_finite = gated.make_finite_test(
    random_net, ["weight_ih", "weight_hh", "bias_ih", "bias_hh"]
)
test_unbounded_inputs_have_no_certificate = gated.make_unbounded_test(random_net)
test_the_bound_on_inputs_is_not_negative = gated.make_bound_test(random_net)
test_the_shapes_are_those_of_torch = gated.make_shape_test(
    random_net,
    [("weight_hh", (3 * H, H + 1)), ("weight_ih", (2 * H, D)), ("bias_ih", (H,)), ("bias_hh", (3 * H, 1))],
)
test_a_bound_on_the_initial_state_has_the_size_of_the_state = gated.make_initial_bound_test(random_net, -1.0)


def test_a_norm_of_another_size_is_refused() -> None:
    net = random_net()
    with pytest.raises(ShapeError, match="5 entries of the state"):
        box_radius(net.box(), MaxNorm(torch.ones(H + 1)))
    with pytest.raises(ShapeError, match="5 entries of the state"):
        gru_rate(net.weight_hh, net.box(), torch.ones(H + 1))
    with pytest.raises(ShapeError, match="5 entries of the state"):
        gru_input_gain(net.weight_ih, net.weight_hh, net.box(), MaxNorm(torch.ones(H + 1)))


def test_the_weight_fits_the_box() -> None:
    with pytest.raises(ShapeError, match="`weight_hh`"):
        gru_contraction(torch.zeros(6, 2), random_net().box())
    with pytest.raises(ShapeError, match="`weight_ih`"):
        gru_input_gain(torch.zeros(6, 2), random_net().weight_hh, random_net().box(), MaxNorm(torch.ones(H)))
