"""The gradient by the initial state, against products of Jacobians and against autograd row by row."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from steadyrnn.errors import ArgumentError, ArgumentTypeError
from steadyrnn.layers.gru import GRU
from steadyrnn.layers.lstm import LSTM
from steadyrnn.layers.rnn import RNN
from steadyrnn.models.sequence import SequenceModel
from steadyrnn.probes.gradient_flow import gradient_flow
from steadyrnn.probes.initial_state import initial_state_gradient, initial_states

BUILDERS: dict[str, Callable[[], nn.Module]] = {
    "rnn": lambda: RNN(2, 5, transition="spectral"),
    "learned state": lambda: LSTM(2, 4, num_layers=2, learn_initial_state=True),
    "both ways": lambda: GRU(2, 4, bidirectional=True),
    "torch": lambda: nn.LSTM(2, 4, num_layers=2),
}


def made(name: str) -> nn.Module:
    torch.manual_seed(0)
    module = BUILDERS[name]().double()
    for key, parameter in module.named_parameters():
        if key.startswith("initial"):
            nn.init.normal_(parameter)
    return module


def gaussian(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("name", BUILDERS)
def test_rows_and_the_shared_state_have_the_gradients_of_autograd(name: str) -> None:
    module, x = made(name), gaussian(6, 3, 2)
    found = initial_state_gradient(module, lambda hx: module(x, hx)[0].square().sum((0, 2)).mean(), rows=3)
    own, total = [], []
    for row in range(3):
        start = [state.requires_grad_() for state in initial_states(module, 1)]
        value = module(x[:, row : row + 1], tuple(start) if len(start) > 1 else start[0])[0].square().sum()
        gradient = torch.cat([g.flatten() for g in torch.autograd.grad(value, start)])
        own.append(gradient.norm())
        total.append(gradient)
    assert found.mean == pytest.approx(float(torch.stack(own).mean()), rel=1e-10)
    assert found.shared == pytest.approx(float(torch.stack(total).mean(0).norm()), rel=1e-10)
    assert found.shared <= found.mean


def test_it_starts_from_the_state_that_the_module_starts_from() -> None:
    module, x = made("learned state"), gaussian(6, 3, 2)
    states = initial_states(module, 3)
    torch.testing.assert_close(module(x, states)[0], module(x)[0])
    assert float(states[0].abs().min()) > 0


def test_it_is_the_gradient_flow_at_the_longest_lag() -> None:
    model, x = SequenceModel(made("rnn"), 2).double(), gaussian(7, 1, 2)
    found = initial_state_gradient(model, lambda hx: model(x, hx)[0].square().sum(), rows=1)
    flow = gradient_flow(model, x, lambda logits: logits.square().sum())
    assert found.mean == pytest.approx(float(flow.frobenius[-1]), rel=1e-9)


def test_parameters_get_no_gradient() -> None:
    module, x = made("rnn"), gaussian(4, 2, 2)
    initial_state_gradient(module, lambda hx: module(x, hx)[0].mean(), rows=2)
    assert all(parameter.grad is None for parameter in module.parameters())


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (lambda hx: hx, "must return one number"),
        (lambda hx: 3.0, "must return one number"),
        (lambda hx: torch.ones(()), "does not depend on the initial state"),
    ],
)
def test_a_loss_that_is_none_is_refused(loss: Any, message: str) -> None:
    with pytest.raises(ArgumentError, match=f"`loss` .*{message}"):
        initial_state_gradient(made("rnn"), loss, rows=2)


def test_a_module_without_a_state_is_refused() -> None:
    with pytest.raises(ArgumentTypeError, match=r"`module` must be an RNN, GRU or LSTM.*Linear"):
        initial_states(nn.Linear(2, 2), 1)
