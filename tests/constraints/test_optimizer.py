"""Projecting after each step, parameter groups and the penalty: slots, parametrized weights, joint constraints."""

import copy
import gc
import io
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from steadyrnn.constraints import ExpOrthogonal, Free, HouseholderOrthogonal, Spectral, SpectralBall, StableLSTM
from steadyrnn.constraints.attach import constrain
from steadyrnn.constraints.base import Membership, Projected
from steadyrnn.constraints.optimizer import attach_projection, parameter_groups, penalty
from steadyrnn.constraints.sites import sites
from steadyrnn.constraints.slot import Slot
from steadyrnn.errors import ArgumentError, ArgumentTypeError, NotFiniteError
from steadyrnn.layers.gru import GRU
from steadyrnn.layers.lstm import LSTM
from steadyrnn.layers.rnn import RNN
from tests.constraints.cases import CASES, PROJECTIONS, RECENTRED, rounding


class Model(nn.Module):
    """One weight in a slot, one parametrized, one plain."""

    def __init__(self, name: str = "ball") -> None:
        super().__init__()
        self.slot = Slot(CASES[name](), 6, 6)
        self.linear = constrain(nn.Linear(6, 6), "weight", CASES[name]())
        self.plain = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        return self.plain(self.linear(x @ self.slot.weight().mT))

    def violations(self) -> list[float]:
        own = self.linear.parametrizations["weight"][0]
        return [
            float(self.slot.constraint.violation(self.slot.weight())),
            float(own.violation(self.linear.weight)),
        ]


def push(model: nn.Module, optimizer: torch.optim.Optimizer, seed: int = 0) -> None:
    """Take one large step towards a random target."""
    generator = torch.Generator().manual_seed(seed)
    x, y = (torch.randn(8, 6, generator=generator) for _ in range(2))
    optimizer.zero_grad()
    (model(x) - 10 * y).square().sum().backward()
    optimizer.step()


@pytest.mark.parametrize("make", [torch.optim.SGD, torch.optim.Adam, torch.optim.RMSprop], ids=lambda o: o.__name__)
@pytest.mark.parametrize("name", PROJECTIONS)
def test_every_step_is_followed_by_the_projection(name: str, make: type[torch.optim.Optimizer]) -> None:
    torch.manual_seed(0)
    model = Model(name)
    optimizer = make(model.parameters(), lr=1e-2)  # type: ignore[call-arg]
    attach_projection(optimizer, model)
    for step in range(5):
        push(model, optimizer, step)
        assert max(model.violations()) <= rounding(6, torch.float32)


def test_without_attaching_the_weight_leaves_its_set() -> None:
    torch.manual_seed(0)
    model = Model()
    push(model, torch.optim.SGD(model.parameters(), lr=1e-2))
    assert max(model.violations()) > 0.01


@pytest.mark.parametrize("name", RECENTRED)
def test_every_step_is_followed_by_recentring(name: str) -> None:
    model = Model(name)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    attach_projection(optimizer, model)
    push(model, optimizer)
    assert not model.slot.raw0.any()
    assert not next(iter(model.linear.parametrizations["weight"].parameters())).any()
    assert max(model.violations()) <= rounding(6, torch.float32)


def test_a_removed_handle_projects_no_more() -> None:
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    handle = attach_projection(optimizer, model)
    handle.remove()
    handle.remove()
    push(model, optimizer)
    assert max(model.violations()) > 0.01
    push(*copy.deepcopy((model, optimizer)))


class Counting(nn.Module, Projected):
    """Counts how often it is put back."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))
        self.count = 0

    def after_optimizer_step(self) -> None:
        self.count += 1

    def memberships(self) -> list[Membership]:
        return []


@pytest.mark.parametrize("part", [False, True])
def test_attaching_twice_projects_once(part: bool) -> None:
    inner = Counting()
    model = nn.Sequential(inner)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    first = attach_projection(optimizer, model)
    second = attach_projection(optimizer, inner if part else model)
    assert first is second
    optimizer.step()
    assert inner.count == 1
    first.remove()
    optimizer.step()
    assert inner.count == 1


def test_attaching_again_after_removing_projects() -> None:
    model = Counting()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    attach_projection(optimizer, model).remove()
    attach_projection(optimizer, model)
    optimizer.step()
    assert model.count == 1


def test_a_module_used_twice_is_projected_once() -> None:
    inner = Counting()
    model = nn.ModuleList([inner, inner])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    attach_projection(optimizer, model)
    optimizer.step()
    assert inner.count == 1


@pytest.mark.parametrize("order", ["model first", "optimizer first"])
def test_a_copy_of_both_projects_the_copy(order: str) -> None:
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    attach_projection(optimizer, model)
    if order == "model first":
        twin, other = copy.deepcopy((model, optimizer))
    else:
        other, twin = copy.deepcopy((optimizer, model))
    before = [parameter.clone() for parameter in model.parameters()]
    push(twin, other)
    assert max(twin.violations()) <= rounding(6, torch.float32)
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    push(model, optimizer)
    assert max(model.violations()) <= rounding(6, torch.float32)


def test_a_copy_of_the_optimizer_alone_projects_what_it_steps() -> None:
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    handle = attach_projection(optimizer, model)
    twin = copy.deepcopy(optimizer)
    copied = twin.__dict__["_steadyrnn_handles"][0].model
    assert copied is not handle.model
    push(copied, twin)
    assert max(copied.violations()) <= rounding(6, torch.float32)


def test_a_copy_of_a_copy_projects_too_and_only_once() -> None:
    model = Counting()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    attach_projection(optimizer, model)
    twin, other = copy.deepcopy(copy.deepcopy((model, optimizer)))
    other.step()
    assert (model.count, twin.count) == (0, 1)


def test_a_copy_keeps_the_state_of_the_optimizer() -> None:
    model = Model()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    attach_projection(optimizer, model)
    push(model, optimizer)
    twin, other = copy.deepcopy((model, optimizer))
    push(model, optimizer, 1)
    push(twin, other, 1)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), twin.parameters(), strict=True))


def test_an_attached_optimizer_is_saved_without_its_model() -> None:
    model = Model()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    attach_projection(optimizer, model)
    file = io.BytesIO()
    torch.save(optimizer, file)
    file.seek(0)
    again = torch.load(file, weights_only=False)
    assert "_steadyrnn_handles" not in again.__dict__
    torch.optim.Adam(Model().parameters()).load_state_dict(optimizer.state_dict())


def test_the_handle_does_not_keep_a_dropped_optimizer_alive() -> None:
    model = Model()
    freed = []

    class Watched(torch.optim.SGD):
        def __del__(self) -> None:
            freed.append(True)

    attach_projection(Watched(model.parameters(), lr=0.1), model)
    gc.collect()
    assert freed == [True]


def test_weights_that_are_not_finite_are_named() -> None:
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    attach_projection(optimizer, model)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    model.slot.raw0.grad[0, 0] = torch.nan  # type: ignore[index]
    with pytest.raises(NotFiniteError, match=r"`slot\.raw0` holds NaN or infinity after an optimizer step"):
        optimizer.step()


def test_weights_of_a_joint_constraint_that_are_not_finite_are_named() -> None:
    model = nn.ModuleDict({"rnn": LSTM(3, 4, transition=StableLSTM())})
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    attach_projection(optimizer, model)
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, torch.inf)
    with pytest.raises(NotFiniteError, match=r"In `rnn` after an optimizer step: `weight_ih` holds NaN"):
        optimizer.step()


def test_a_joint_constraint_is_put_back() -> None:
    stable = StableLSTM()
    lstm = LSTM(3, 4, num_layers=2, transition=stable)
    optimizer = torch.optim.SGD(lstm.parameters(), lr=10.0)
    attach_projection(optimizer, lstm)
    lstm(torch.randn(7, 2, 3))[0].sum().backward()
    optimizer.step()
    for layer in range(2):
        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        assert float(stable.violation(*(getattr(lstm, f"{name}_l{layer}") for name in names))) == 0.0


@pytest.mark.parametrize("name", ["exp-lie", "ball", "polar", "factorized"])
def test_a_layer_is_put_back(name: str) -> None:
    rnn = RNN(3, 6, num_layers=2, bidirectional=True, transition=name)
    optimizer = torch.optim.SGD(rnn.parameters(), lr=0.5)
    attach_projection(optimizer, rnn)
    rnn(torch.randn(7, 2, 3))[0].sum().backward()
    optimizer.step()
    found = list(sites(rnn))
    assert len(found) == 4
    for site in found:
        assert isinstance(site.holder, Slot)
        assert site.constraint.violation(site.holder.weight()) <= rounding(6, torch.float32)


@pytest.mark.parametrize("name", ["ornn", "exp", "free"])
def test_a_model_with_nothing_to_project_is_left_alone(name: str) -> None:
    model = Model(name)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    twin, other = copy.deepcopy((model, optimizer))
    attach_projection(optimizer, model)
    push(model, optimizer)
    push(twin, other)
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), twin.parameters(), strict=True))


def test_an_optimizer_of_another_model_is_refused() -> None:
    with pytest.raises(ArgumentError, match="`optimizer` holds none of the parameters of `model`"):
        attach_projection(torch.optim.SGD(Model().parameters(), lr=0.1), Model())


def test_an_optimizer_of_the_other_parameters_is_refused() -> None:
    model = Model()
    with pytest.raises(ArgumentError, match="`optimizer` holds none"):
        attach_projection(torch.optim.SGD(model.plain.parameters(), lr=0.1), model)


def test_an_optimizer_of_a_head_on_a_model_with_nothing_to_project_is_fine() -> None:
    model = nn.Sequential(RNN(3, 4, transition="ornn"), nn.Linear(4, 1))
    attach_projection(torch.optim.SGD(model[1].parameters(), lr=0.1), model)


def test_an_optimizer_built_before_the_constraint_is_refused() -> None:
    linear = nn.Linear(4, 4)
    optimizer = torch.optim.SGD(linear.parameters(), lr=0.1)
    constrain(linear, "weight", "ball")
    with pytest.raises(ArgumentError, match="after all constraints are in place"):
        attach_projection(optimizer, linear)


def test_something_else_than_an_optimizer_is_refused() -> None:
    with pytest.raises(ArgumentTypeError, match="`optimizer` must be a torch optimizer, but is of type Model"):
        attach_projection(Model(), Model())  # type: ignore[arg-type]


def test_two_optimizers_of_one_model_both_project() -> None:
    model = Model()
    first = torch.optim.SGD(model.slot.parameters(), lr=1e-2)
    rest = [parameter for name, parameter in model.named_parameters() if not name.startswith("slot")]
    second = torch.optim.SGD(rest, lr=1e-2)
    attach_projection(first, model)
    attach_projection(second, model)
    push(model, first)
    push(model, second)
    assert max(model.violations()) <= rounding(6, torch.float32)


@pytest.mark.parametrize("name", CASES)
def test_groups_hold_every_parameter_once(name: str) -> None:
    model = Model(name)
    groups = parameter_groups(model, lr=0.1, transition_lr=0.01)
    assert [group["lr"] for group in groups] == [0.01, 0.1]
    held = [id(parameter) for group in groups for parameter in group["params"]]
    assert sorted(held) == sorted({id(parameter) for parameter in model.parameters()})
    constrained = [*model.slot.parameters(), *model.linear.parametrizations["weight"].parameters()]
    expected = set() if isinstance(model.slot.constraint, Free) else {id(parameter) for parameter in constrained}
    assert {id(parameter) for parameter in groups[0]["params"]} == expected


def test_free_gates_of_a_constrained_layer_learn_at_the_plain_rate() -> None:
    gru = GRU(2, 3, transition="spectral")
    slow = {id(parameter) for parameter in parameter_groups(gru, lr=0.1, transition_lr=0.01)[0]["params"]}
    names = {name for name, parameter in gru.named_parameters() if id(parameter) in slow}
    assert names == {f"transition_l0.n.raw{place}" for place in range(3)}


def test_groups_of_one_learning_rate() -> None:
    assert [group["lr"] for group in parameter_groups(Model(), lr=0.1)] == [0.1, 0.1]


def test_groups_of_a_layer_hold_its_raw_tensors_apart() -> None:
    rnn = RNN(3, 6, num_layers=2, transition=Spectral(reflectors=2))
    groups = parameter_groups(rnn, lr=0.1, transition_lr=0.01)
    assert [len(group["params"]) for group in groups] == [6, 6]
    torch.optim.Adam(groups).step()


def test_groups_count_tied_parameters_once() -> None:
    model = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3), Slot(HouseholderOrthogonal(), 3, 3)])
    model[1].weight = model[0].weight
    model.append(model[2])
    groups = parameter_groups(model, lr=0.1)
    assert [len(group["params"]) for group in groups] == [1, 3]


def test_groups_of_a_model_without_constraints_train() -> None:
    model = nn.Linear(3, 3)
    optimizer = torch.optim.Adam(parameter_groups(model, lr=0.1))
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    assert [len(group["params"]) for group in optimizer.param_groups] == [0, 2]


@pytest.mark.parametrize(
    ("transition", "sizes"),
    [
        ("ornn", ["reflectors_16"]),
        (Spectral(reflectors=2), ["reflectors_16", "reflectors_16", "transition"]),
        ("unitary", ["transition", "reflectors_16"]),
        ("exp", ["transition"]),
        (Spectral(reflectors=(3, 0)), ["reflectors_16", "transition", "transition"]),
    ],
    ids=str,
)
def test_reflectors_of_each_length_have_a_scaled_rate(transition: Any, sizes: list[str]) -> None:
    model = nn.ModuleList([RNN(3, 16, transition=transition), constrain(nn.Linear(4, 9, bias=False), "weight", Spectral())])
    groups = parameter_groups(model, lr=0.1, transition_lr=0.4, transition_scale="sqrt")
    names = {id(parameter): group["name"] for group in groups for parameter in group["params"]}
    rates = {group["name"]: group["lr"] for group in groups}
    assert sorted(names) == sorted(id(parameter) for parameter in model.parameters())
    assert [names[id(raw)] for raw in model[0].transition_l0.h.parameters()] == sizes  # type: ignore[union-attr, operator]
    rest = [names[id(raw)] for raw in model[1].parameters()]
    assert rest == ["reflectors_9", "reflectors_4", "transition"]
    assert rates["reflectors_9"] == pytest.approx(0.4 / 3, rel=1e-12)
    assert (rates["reflectors_4"], rates["transition"], rates["other"]) == (0.2, 0.4, 0.1)
    assert rates.get("reflectors_16", 0.1) == 0.1


@pytest.mark.parametrize("n", [4, 64, 400])
def test_a_scaled_rate_turns_a_reflector_by_the_same_angle_at_any_width(n: int) -> None:
    torch.manual_seed(0)
    slot = Slot(HouseholderOrthogonal(reflectors=1), n, n, dtype=torch.float64)
    before = slot.raw0.detach().clone()
    optimizer = torch.optim.Adam(parameter_groups(slot, lr=1e-3, transition_scale="sqrt"))
    (slot.weight() * torch.randn(n, n, dtype=torch.float64)).sum().backward()
    optimizer.step()
    moved = (slot.raw0.detach() - before).norm()
    assert float(before.norm()) == pytest.approx(1.0)
    assert float(moved) == pytest.approx(1e-3, rel=1e-4)  # at the plain rate it is sqrt(n) times this


def test_an_unknown_scale_is_refused() -> None:
    with pytest.raises(ArgumentError, match=r"`transition_scale` must be one of none, sqrt"):
        parameter_groups(nn.Linear(1, 1), lr=0.1, transition_scale="cube")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_the_penalty_of_a_model_without_any_is_zero(dtype: torch.dtype) -> None:
    value = penalty(nn.Linear(3, 3, dtype=dtype))
    assert float(value) == 0.0
    assert value.dtype == dtype


def test_the_penalty_of_a_model_without_parameters_is_zero() -> None:
    assert float(penalty(nn.ReLU())) == 0.0


def test_the_penalty_adds_up_slots_and_parametrized_weights() -> None:
    model = Model("spectral-penalty")
    with torch.no_grad():
        model.slot.raw2.add_(1.0)
        model.linear.parametrizations["weight"].original2.add_(2.0)  # type: ignore[operator, union-attr]
    value = penalty(model)
    assert float(value.detach()) == pytest.approx(6 * 1 + 6 * 4)
    value.backward()
    torch.testing.assert_close(model.slot.raw2.grad, torch.full((6,), 2.0))


def test_sites_are_named_by_their_raw_tensors() -> None:
    names = [list(site.raw) for site in sites(Model("spectral"))]
    assert names == [
        ["slot.raw0", "slot.raw1", "slot.raw2"],
        [f"linear.parametrizations.weight.original{place}" for place in range(3)],
    ]


def test_sites_of_a_module_itself_have_plain_names() -> None:
    (site,) = sites(Slot(SpectralBall(), 2, 2))
    assert list(site.raw) == ["raw0"]


def test_a_foreign_parametrization_is_no_site() -> None:
    linear = torch.nn.utils.parametrizations.orthogonal(nn.Linear(3, 3))
    assert list(sites(linear)) == []
    attach_projection(torch.optim.SGD(linear.parameters(), lr=0.1), linear)


def test_learning_with_adam_keeps_moments_while_the_base_moves() -> None:
    torch.manual_seed(0)
    target = torch.linalg.qr(torch.randn(8, 8)).Q
    slot = Slot(ExpOrthogonal(gradient="lie"), 8, 8)
    if torch.linalg.det(target) * torch.linalg.det(slot.weight()) < 0:
        target[:, 0] *= -1
    optimizer = torch.optim.Adam(slot.parameters(), lr=0.02)
    attach_projection(optimizer, slot)
    for _ in range(800):
        optimizer.zero_grad()
        loss = (slot.weight() - target).square().sum()
        loss.backward()
        optimizer.step()
    assert float(loss.detach()) < 1e-3


def test_a_method_of_the_users_that_happens_to_have_the_name_is_not_called() -> None:
    class Mine(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(1))

        def after_optimizer_step(self, step: int) -> None:
            raise AssertionError("called")

    model = Mine()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    attach_projection(optimizer, model)
    model.weight.grad = torch.ones(1)
    optimizer.step()
