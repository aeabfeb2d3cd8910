"""Averages over constrained models: in the set, near the mean of the weights, and torch's own where nothing is constrained."""

import copy

import pytest
import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn, update_bn

from steadyrnn.certificates.certify import certify
from steadyrnn.constraints.attach import constrain
from steadyrnn.constraints.averaging import averaged
from steadyrnn.constraints.membership import check_inside
from steadyrnn.constraints.optimizer import attach_projection
from steadyrnn.errors import ArgumentError, ArgumentTypeError, NotFiniteError
from steadyrnn.layers.gru import GRU
from steadyrnn.layers.linear import Linear
from steadyrnn.layers.lstm import LSTM
from steadyrnn.layers.rnn import RNN
from tests.constraints.cases import CASES, INVERTIBLE, NOT_INVERTIBLE, PENALTIES, rounding, size_for

SIZE = 6
BY_MATRIX = [name for name in INVERTIBLE if name not in ("exp-printed", *PENALTIES)]
DECAYS = [None, 0.5, 0.0, 1.0]


def build(name: str, dtype: torch.dtype = torch.float32) -> nn.Module:
    torch.manual_seed(0)
    if name == "stable-lstm":
        return LSTM(3, SIZE, transition=name, dtype=dtype)
    return RNN(3, size_for(name, SIZE), transition=CASES[name](), dtype=dtype)


def updates(model: nn.Module, *averages: nn.Module, steps: int = 6) -> list[Tensor]:
    """Train on noise, update the averages after each step, and return the recurrent weights of all steps."""
    optimizer, weights = torch.optim.SGD(model.parameters(), lr=0.05), []
    attach_projection(optimizer, model)
    for _ in range(steps):
        optimizer.zero_grad()
        x = torch.randn(7, 2, 3, dtype=next(model.parameters()).dtype)
        (model(x)[0] - torch.randn(7, 2, SIZE).to(x)).square().sum().backward()
        optimizer.step()
        weights.append(model.weight_hh_l0.detach().clone())
        for average in averages:
            average.update_parameters(model)
    return weights


def mean_of(weights: list[Tensor], decay: float | None) -> Tensor:
    """Return the mean by its formula, in float64."""
    total = weights[0].double()
    for count, weight in enumerate(weights[1:], start=1):
        share = 1 / (count + 1) if decay is None else 1 - decay
        total = total + share * (weight.double() - total)
    return total


@pytest.mark.parametrize("decay", DECAYS)
@pytest.mark.parametrize("name", BY_MATRIX)
def test_the_average_is_the_projected_mean_of_the_weights(name: str, decay: float | None) -> None:
    model = build(name, torch.float64)
    average = averaged(model, decay)
    weights = updates(model, average)
    found, own = average.module.weight_hh_l0.detach(), CASES[name]()
    assert float(own.violation(found)) <= rounding(SIZE)
    wanted = own.project(mean_of(weights, decay))
    # a singular value at the border of an interval has no finite logit: it takes that of the nearest number inside
    torch.testing.assert_close(found, wanted, rtol=0, atol=64 * rounding(SIZE))
    assert int(average.n_averaged) == len(weights)


@pytest.mark.parametrize("name", BY_MATRIX)
def test_no_model_of_the_average_is_nearer_to_all_the_weights(name: str) -> None:
    model = build(name, torch.float64)
    average = averaged(model)
    weights = updates(model, average)

    def spread(weight: Tensor) -> float:
        return sum(float((weight - other).square().sum()) for other in weights)

    best = spread(average.module.weight_hh_l0.detach())
    others = [*weights, *(CASES[name]().sample(SIZE, SIZE).double() for _ in range(20))]
    assert all(best <= spread(other) * (1 + 1e-9) for other in others)


@pytest.mark.parametrize("decay", DECAYS)
@pytest.mark.parametrize("name", [*CASES, "stable-lstm"])
def test_the_average_is_in_the_set_and_can_be_certified_saved_and_loaded(name: str, decay: float | None) -> None:
    model = build(name)
    average = averaged(model, decay)
    updates(model, average)
    check_inside(average, "is outside")
    certify(average, input_bound=1.0)
    again = averaged(build(name), decay)
    again.load_state_dict(average.state_dict())
    updates(model, average, again, steps=2)
    for key, tensor in average.state_dict().items():
        torch.testing.assert_close(tensor, again.state_dict()[key], rtol=0, atol=0)


@pytest.mark.parametrize("name", [*NOT_INVERTIBLE, "exp-printed", *PENALTIES])
def test_without_a_right_inverse_raw_tensors_are_averaged(name: str) -> None:
    model = build(name)
    average = averaged(model, 0.5)
    plain = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.5))
    updates(model, average, plain)
    for own, theirs in zip(average.module.parameters(), plain.module.parameters(), strict=True):
        torch.testing.assert_close(own, theirs)


@pytest.mark.parametrize("decay", [None, 0.5])
def test_free_layers_get_torchs_average(decay: float | None) -> None:
    model = GRU(3, SIZE)
    average = averaged(model, decay)
    plain = AveragedModel(model, multi_avg_fn=None if decay is None else get_ema_multi_avg_fn(decay))
    updates(model, average, plain)
    for own, theirs in zip(average.module.parameters(), plain.module.parameters(), strict=True):
        torch.testing.assert_close(own, theirs)


def test_reflectors_of_either_sign_are_the_same_matrix_to_the_average() -> None:
    model = RNN(3, SIZE, transition="ornn")
    average = averaged(model)
    for _ in range(4):
        average.update_parameters(model)
        with torch.no_grad():
            model.transition_l0.h.raw0.neg_()  # the same weight
    torch.testing.assert_close(average.module.weight_hh_l0, model.weight_hh_l0)
    plain = AveragedModel(model)
    for _ in range(2):
        plain.update_parameters(model)
        with torch.no_grad():
            model.transition_l0.h.raw0.neg_()
    assert not plain.module.transition_l0.h.raw0.any()  # what torch makes of it


class Mixed(nn.Module):
    """A slot, a parametrized weight, a plain one and a batch norm."""

    def __init__(self) -> None:
        super().__init__()
        self.first = Linear(SIZE, SIZE, weight="polar")
        self.second = constrain(nn.Linear(SIZE, SIZE), "weight", "exp-lie")
        self.norm = nn.BatchNorm1d(SIZE)
        self.plain = nn.Linear(SIZE, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.plain(self.norm(self.second(self.first(x))))


def test_a_model_of_many_kinds_is_averaged_whole() -> None:
    model = Mixed()
    average, optimizer = averaged(model, 0.9), torch.optim.SGD(model.parameters(), lr=0.1)
    attach_projection(optimizer, model)
    for _ in range(4):
        optimizer.zero_grad()
        model(torch.randn(8, SIZE)).square().sum().backward()
        optimizer.step()
        average.update_parameters(model)
    check_inside(average, "is outside")
    assert torch.equal(average.module.norm.running_mean, model.norm.running_mean)
    assert not torch.equal(average.module.plain.weight, model.plain.weight)
    update_bn([torch.randn(8, SIZE) for _ in range(3)], average)
    assert not torch.equal(average.module.norm.running_mean, model.norm.running_mean)
    twin = copy.deepcopy(average)
    assert torch.equal(twin(torch.ones(2, SIZE)), average(torch.ones(2, SIZE)))


def test_a_wrapped_model_updates_the_average() -> None:
    model = RNN(3, SIZE, transition="polar")
    average = averaged(model)
    updates(model)
    average.update_parameters(nn.Sequential(model))
    torch.testing.assert_close(average.module.weight_hh_l0, model.weight_hh_l0)


def test_an_average_takes_nothing_from_the_model_after_its_update() -> None:
    model = RNN(3, SIZE, transition="polar")
    average = averaged(model)
    average.update_parameters(model)
    before = average.module.weight_hh_l0.detach().clone()
    updates(model)
    assert torch.equal(average.module.weight_hh_l0, before)


@pytest.mark.parametrize(
    "other", [RNN(3, SIZE), RNN(3, SIZE + 1, transition="polar"), nn.Linear(2, 2)], ids=["free", "wide", "linear"]
)
def test_a_model_of_another_layout_is_refused_and_changes_nothing(other: nn.Module) -> None:
    average = averaged(RNN(3, SIZE, transition="polar"))
    before = copy.deepcopy(average.state_dict())
    with pytest.raises(ArgumentError, match="`model`"):
        average.update_parameters(other)
    assert all(torch.equal(tensor, before[key]) for key, tensor in average.state_dict().items())


@pytest.mark.parametrize("name", ["polar", "exp-lie", "spectral"])
def test_weights_that_are_not_finite_are_refused_and_change_nothing(name: str) -> None:
    model = build(name)
    average = averaged(model)
    average.update_parameters(model)
    before = copy.deepcopy(average.state_dict())
    with torch.no_grad():
        next(iter(model.transition_l0.h.parameters())).view(-1)[0] = torch.nan
    with pytest.raises(NotFiniteError):
        average.update_parameters(model)
    assert all(torch.equal(tensor, before[key]) for key, tensor in average.state_dict().items())


@pytest.mark.parametrize("decay", [-0.1, 1.1, float("nan")])
def test_a_decay_outside_its_interval_is_refused(decay: float) -> None:
    with pytest.raises(ArgumentError, match="`decay`"):
        averaged(nn.Linear(2, 2), decay)


@pytest.mark.parametrize(("model", "decay"), [(None, None), (3, 0.5), (nn.Linear(2, 2), "0.9")])
def test_other_types_are_refused(model: object, decay: object) -> None:
    with pytest.raises(ArgumentTypeError):
        averaged(model, decay)  # type: ignore[arg-type]
