"""Optimizers by name; their state by parameter name."""

import pytest
import torch
from torch import nn

from steadyrnn.constraints import Spectral, SpectralBall
from steadyrnn.errors import ArgumentError, CheckpointError
from steadyrnn.layers.rnn import RNN
from steadyrnn.models.sequence import SequenceModel
from steadyrnn.train.optimizer_state import load_optimizer_state, optimizer_state
from steadyrnn.train.optimizers import OPTIMIZERS, make_optimizer, parameter_names
from steadyrnn.train.settings import OptimizerSettings
from tests.train.runs import same_bits

DIRECT = {
    "adam": lambda p: torch.optim.Adam(p, lr=0.01, betas=(0.8, 0.9), eps=1e-6, weight_decay=0.1),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, betas=(0.8, 0.9), eps=1e-6, weight_decay=0.1),
    "sgd": lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.5, weight_decay=0.1),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01, alpha=0.7, eps=1e-6, momentum=0.5, weight_decay=0.1),
}


def settings(name: str) -> OptimizerSettings:
    own = {"betas": (0.8, 0.9), "eps": 1e-6, "momentum": 0.5, "alpha": 0.7, "weight_decay": 0.1}
    return OptimizerSettings(name, lr=0.01, **own)  # type: ignore[arg-type]


def push(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int = 3) -> None:
    for step in range(steps):
        optimizer.zero_grad()
        x = torch.randn(4, 2, 3, generator=torch.Generator().manual_seed(step))
        model(x)[0].square().sum().backward()
        optimizer.step()


def build(transition: object = "spectral") -> nn.Module:
    torch.manual_seed(0)
    return SequenceModel(RNN(3, 4, transition=transition), 2)  # type: ignore[arg-type]


def test_every_optimizer_has_a_direct_twin_here() -> None:
    assert sorted(DIRECT) == sorted(OPTIMIZERS)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimizer_does_what_torchs_does(name: str) -> None:
    ours, theirs = build(), build()
    push(ours, make_optimizer(ours, settings(name)))
    push(theirs, DIRECT[name](theirs.parameters()))
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(a, b)


def test_transitions_have_their_own_rate() -> None:
    model = build()
    optimizer = make_optimizer(model, OptimizerSettings(lr=0.1, transition_lr=0.01))
    assert [group["lr"] for group in optimizer.param_groups] == [0.01, 0.1]
    assert all("transition" in name for name in parameter_names(model, optimizer)[: len(optimizer.param_groups[0]["params"])])


def test_projections_follow_every_step() -> None:
    model = build(SpectralBall(bound=0.5))
    push(model, make_optimizer(model, OptimizerSettings("sgd", lr=10.0)))
    assert float(torch.linalg.matrix_norm(model.rnn.weight_hh_l0.detach(), 2)) <= 0.5 + 1e-6  # type: ignore[operator, union-attr]


def test_a_model_without_parameters_is_refused() -> None:
    with pytest.raises(ArgumentError, match="no parameters"):
        make_optimizer(nn.Identity(), OptimizerSettings())


def test_a_model_whose_parameters_are_all_frozen_is_refused() -> None:
    with pytest.raises(ArgumentError, match="all are frozen"):
        make_optimizer(build().requires_grad_(False), OptimizerSettings())


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_state_goes_by_name_to_a_model_whose_parameters_stand_in_another_order(name: str) -> None:
    class Swapped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            model = build()
            self.readout, self.rnn = model.readout, model.rnn

    one, two = build(), Swapped()
    first, second = make_optimizer(one, settings(name)), make_optimizer(two, settings(name))
    push(one, first)
    tensors, keys = optimizer_state(one, first)
    assert any(tensor.any() for tensor in tensors.values())
    load_optimizer_state(two, second, tensors, keys)
    assert parameter_names(one, first) != parameter_names(two, second)
    again, more = optimizer_state(two, second)
    assert more == keys
    assert sorted(again) == sorted(tensors)
    assert all(same_bits(again[name], tensor) for name, tensor in tensors.items())


def saved() -> tuple[nn.Module, torch.optim.Optimizer, dict[str, torch.Tensor], dict[str, list[str]]]:
    model = build()
    optimizer = make_optimizer(model, OptimizerSettings())
    push(model, optimizer)
    return build(), make_optimizer(build(), OptimizerSettings()), *optimizer_state(model, optimizer)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda tensors, keys: tensors.pop("readout.bias.exp_avg"), "it lacks `readout.bias.exp_avg`"),
        (lambda tensors, keys: tensors.update({"readout.bias.more": torch.ones(2)}), "it has `readout.bias.more`"),
        (lambda tensors, keys: keys.pop("readout.bias"), "it lacks `readout.bias`"),
        (lambda tensors, keys: keys.update({"other": []}), "it has `other`"),
        (
            lambda tensors, keys: tensors.update({"readout.bias.exp_avg": torch.ones(3)}),
            r"`readout.bias.exp_avg` .* must have shape \(2,\), but the checkpoint has \(3,\)",
        ),
    ],
)
def test_state_that_does_not_fit_is_refused_by_name(change: object, message: str) -> None:
    torch.manual_seed(0)
    model, _, tensors, keys = saved()
    optimizer = make_optimizer(model, OptimizerSettings())
    change(tensors, keys)  # type: ignore[operator]
    with pytest.raises(CheckpointError, match=message):
        load_optimizer_state(model, optimizer, tensors, keys)
    assert optimizer_state(model, optimizer)[0] == {}


def test_a_parameter_without_gradients_has_no_state() -> None:
    model = build(Spectral(reflectors=(0, 2)))
    optimizer = make_optimizer(model, OptimizerSettings())
    push(model, optimizer)
    tensors, keys = optimizer_state(model, optimizer)
    twin = build(Spectral(reflectors=(0, 2)))
    load_optimizer_state(twin, make_optimizer(twin, OptimizerSettings()), tensors, keys)
    assert [] in keys.values()
