"""Weights outside their sets: certifying, saving and loading notice, and `project_` puts them back."""

import copy

import pytest
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from steadyrnn.certificates.certify import certify
from steadyrnn.constraints import Constraint, PolarOrthogonal, Spectral, SpectralBall
from steadyrnn.constraints.attach import constrain
from steadyrnn.constraints.membership import check_inside, memberships, project_
from steadyrnn.constraints.optimizer import attach_projection
from steadyrnn.constraints.sites import sites
from steadyrnn.errors import ArgumentTypeError, ConstraintError, ConstraintWarning, NotFiniteError
from steadyrnn.layers.gru import GRU
from steadyrnn.layers.linear import Linear
from steadyrnn.layers.lstm import LSTM
from steadyrnn.layers.rnn import RNN
from steadyrnn.train.weights import weights_of
from tests.constraints.cases import CASES, PENALTIES, PROJECTIONS, RECENTRED, rounding

SIZE = 6
KEPT = [*PROJECTIONS, *RECENTRED, "stable-lstm"]
SIGNED = ["ornn", "spectral", "exp", "factorized", "cayley", "ornn-one", "spectral-one"]


def build(name: str) -> nn.Module:
    torch.manual_seed(0)
    return LSTM(3, SIZE, transition=name) if name == "stable-lstm" else RNN(3, SIZE, transition=CASES[name]())


def spoil(model: nn.Module) -> None:
    """Change in place, by hand, what a weight is made of: every raw tensor and every buffer of a constraint."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1)
        for site in sites(model):
            for buffer in site.constraint.buffers():
                if buffer.is_floating_point():
                    buffer.add_(1)


def train(model: nn.Module, *averages: AveragedModel, steps: int = 6) -> None:
    """Train on noise and update the averages after each step."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    attach_projection(optimizer, model)
    for _ in range(steps):
        optimizer.zero_grad()
        (model(torch.randn(7, 2, 3))[0] - torch.randn(7, 2, SIZE)).square().sum().backward()
        optimizer.step()
        for average in averages:
            average.update_parameters(model)


def assert_noticed(model: nn.Module, fresh: nn.Module) -> None:
    """Certifying and saving raise by name, and so does loading into a model that is inside."""
    with pytest.raises(ConstraintError, match=r"`.*(transition_l0|weight_hh_l0).*certified.*project_"):
        certify(model, input_bound=1.0)
    with pytest.raises(ConstraintError, match=r"`.*(transition_l0|weight_hh_l0).*saved.*project_"):
        weights_of(model)
    kept = copy.deepcopy(fresh.state_dict())
    with pytest.raises(ConstraintError, match="violation"):
        fresh.load_state_dict(model.state_dict())
    own = [name for name in kept if name.startswith("transition") or isinstance(fresh, LSTM)]
    assert own
    assert all(torch.equal(fresh.state_dict()[name], kept[name]) for name in own)


@pytest.mark.parametrize("name", KEPT)
def test_a_change_by_hand_is_noticed_and_put_back(name: str) -> None:
    model = build(name)
    spoil(model)
    assert_noticed(model, build(name))
    moved = project_(model)
    assert max(moved.values()) > 0.1
    assert all(found.violation <= found.allowed for found in memberships(model))
    certify(model, input_bound=1.0)
    build(name).load_state_dict(model.state_dict())
    assert max(project_(model).values()) <= SIZE * rounding(SIZE, torch.float32)


@pytest.mark.parametrize("name", SIGNED)
def test_a_sign_that_is_none_any_more_is_noticed_and_put_back(name: str) -> None:
    model = build(name)
    with torch.no_grad():
        for site in sites(model):
            for buffer in site.constraint.buffers():
                if buffer.is_floating_point():
                    buffer.mul_(0.4)
    assert_noticed(model, build(name))
    assert max(project_(model).values()) > 0.1
    check_inside(model, "is outside")
    assert torch.equal(model.weight_hh_l0, build(name).weight_hh_l0)


NONCONVEX = ["polar", *RECENTRED]


@pytest.mark.parametrize("kind", ["ema", "swa"])
@pytest.mark.parametrize("name", NONCONVEX)
def test_an_average_of_torchs_is_noticed_and_put_back(name: str, kind: str) -> None:
    model = build(name)
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.5) if kind == "ema" else None, use_buffers=True)
    train(model, average)
    assert_noticed(average.module, build(name))
    assert max(project_(average).values()) > 1e-3
    check_inside(average, "is outside")


@pytest.mark.parametrize("name", RECENTRED)
def test_an_average_of_torchs_that_averages_nothing_is_noticed(name: str) -> None:
    model = build(name)
    average = AveragedModel(model)
    train(model, average)
    bases = zip(average.module.buffers(), model.buffers(), strict=True)
    assert all(torch.equal(own, last) for own, last in bases)  # not the mean of the six
    for notice in (lambda: certify(average, input_bound=1.0), lambda: weights_of(average)):
        with pytest.raises(ConstraintError, match="is no average"):
            notice()


CONVEX = [name for name in KEPT if name not in NONCONVEX]


@pytest.mark.parametrize("name", CONVEX)
def test_an_average_of_torchs_over_a_convex_set_stays_inside(name: str) -> None:
    model = build(name)
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.5))
    train(model, average)
    check_inside(average, "is outside")


def test_the_kinds_of_set_are_all_there() -> None:
    assert {"ball", "polar", "spectral-clip", "exp-lie", "factorized-lie", "stable-lstm"} <= set(KEPT)


@pytest.mark.parametrize("name", [*PROJECTIONS, *RECENTRED])
def test_parametrized_weights_linear_layers_and_single_gates_are_put_back(name: str) -> None:
    linear = constrain(nn.Linear(SIZE, SIZE), "weight", CASES[name]())
    own = Linear(SIZE, SIZE, weight=CASES[name]())
    model = nn.ModuleDict({"parametrized": linear, "linear": own, "gru": GRU(3, SIZE, transition={"r": CASES[name]()})})
    spoil(model)
    outside = {found.name for found in memberships(model) if found.violation > found.allowed}
    assert outside == {"parametrized.parametrizations.weight", "linear.slot", "gru.transition_l0.r"}
    assert set(project_(model)) == outside
    check_inside(model, "is outside")


@pytest.mark.parametrize("name", ["ball", "polar"])
def test_what_is_put_back_is_the_nearest_member(name: str) -> None:
    model = build(name)
    spoil(model)
    before = model.weight_hh_l0.detach().clone()
    moved = project_(model)["transition_l0.h"]
    weight, own = model.weight_hh_l0.detach(), CASES[name]()
    torch.testing.assert_close(weight, own.project(before))
    assert moved == pytest.approx(float((weight - before).norm()), rel=1e-5)


@pytest.mark.parametrize("name", ["free", "irnn", "unitary-full", "exp-printed", *PENALTIES])
def test_a_weight_that_cannot_leave_or_promises_nothing_is_left_alone(name: str) -> None:
    model = build(name)
    before = {key: tensor.clone() for key, tensor in model.state_dict().items()}
    assert project_(model) == {}
    assert all(torch.equal(tensor, before[key]) for key, tensor in model.state_dict().items())


def test_a_model_without_constraints_is_left_alone() -> None:
    assert project_(nn.Linear(2, 2)) == {}


@pytest.mark.parametrize("name", KEPT)
def test_weights_that_are_not_finite_are_named_and_nothing_changes(name: str) -> None:
    model = nn.Sequential(build(name))
    spoil(model)
    with torch.no_grad():
        list(model.parameters())[-1].view(-1)[-1] = torch.nan
        next(model.parameters()).view(-1)[-1] = torch.nan
    before = {key: tensor.clone() for key, tensor in model.state_dict().items()}
    with pytest.raises(NotFiniteError, match=r"`0\."):
        project_(model) if name == "stable-lstm" else project_(spoiled(model))
    assert name != "stable-lstm" or all(
        torch.equal(a.nan_to_num(), before[key].nan_to_num()) for key, a in model.state_dict().items()
    )


def spoiled(model: nn.Module) -> nn.Module:
    """Put NaN into the first raw tensor of a slot."""
    with torch.no_grad():
        next(iter(next(iter(sites(model))).raw.values())).view(-1)[0] = torch.nan
    return model


@pytest.mark.parametrize("bad", [None, 3, "model", {}])
def test_only_modules_are_put_back(bad: object) -> None:
    with pytest.raises(ArgumentTypeError, match="`model`"):
        project_(bad)  # type: ignore[arg-type]


@pytest.mark.parametrize("make", [SpectralBall, PolarOrthogonal, lambda **k: Spectral(sigma="clip", **k)])
def test_a_constraint_that_projects_takes_a_state_dict_from_outside(make: type[Constraint]) -> None:
    outside = RNN(3, SIZE, transition=make())
    spoil(outside)
    layer = RNN(3, SIZE, transition=make(project=True))
    with pytest.warns(ConstraintWarning, match=r"\d+% of its Frobenius norm"):
        layer.load_state_dict(outside.state_dict())
    check_inside(layer, "is outside")
    project_(outside)
    torch.testing.assert_close(layer.weight_hh_l0, outside.weight_hh_l0)


def test_a_wider_dtype_is_not_outside_by_the_rounding_of_the_one_before() -> None:
    model = RNN(3, SIZE, transition="polar").double()
    check_inside(model, "is outside")
    certify(model, input_bound=1.0)


def test_an_average_whose_permutation_is_none_any_more_has_no_way_back() -> None:
    model = build("unitary")
    site = next(iter(sites(model)))
    with torch.no_grad():
        next(iter(site.constraint.buffers())).zero_()
    with pytest.raises(ConstraintError, match="could not be put back"):
        project_(model)
