"""Learned saturation: what refuses such a layer, and the arguments that are refused."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import steadyrnn as sr
from steadyrnn.activations import as_activation
from steadyrnn.cells.base import Cell, Recur, State
from steadyrnn.cells.record import CellRecord
from steadyrnn.cells.rnn import RNNStep
from steadyrnn.convert.plain_weights import plain_weights
from steadyrnn.engines.reference import ReferenceEngine
from steadyrnn.errors import ArgumentError, ArgumentTypeError, CertificateError, ConversionError, DtypeError
from steadyrnn.layers.base import RecurrentLayer
from steadyrnn.layers.group import check_groupable
from steadyrnn.probes.dead_units import dead_units

STEPS, ROWS, WIDTH, HIDDEN = 5, 3, 3, 6


def make(basis: str = "full", **more: Any) -> sr.RNN:
    return sr.RNN(WIDTH, HIDDEN, nonlinearity=sr.AdaptiveTanh(basis), dtype=torch.float64, **more)


def data() -> Tensor:
    return torch.randn(STEPS, ROWS, WIDTH, dtype=torch.float64)


def test_network_without_learned_saturation_has_no_equivalent() -> None:
    with pytest.raises(ArgumentError, match="no learned saturation"):
        sr.RNN(2, 3).as_tanh()


REFUSALS: dict[str, tuple[type[Exception], Callable[[sr.RNN, Tensor], Any]]] = {
    "certify": (CertificateError, lambda rnn, x: sr.certify(rnn, input_bound=1.0)),
    "certify on inputs": (CertificateError, lambda rnn, x: sr.certify(rnn, inputs=x)),
    "certify a model": (CertificateError, lambda rnn, x: sr.certify(sr.SequenceModel(rnn, 1), input_bound=1.0)),
    "verify": (CertificateError, lambda rnn, x: sr.verify(rnn, x, rnn(x)[0])),
    "recheck": (CertificateError, lambda rnn, x: sr.recheck(sr.certify(rnn.as_tanh()).to_dict(), rnn)),
    "gradient flow": (CertificateError, lambda rnn, x: sr.gradient_flow(rnn, x)),
    "dead units": (CertificateError, lambda rnn, x: dead_units(rnn, x)),
    "suggest_bptt": (CertificateError, lambda rnn, x: sr.suggest_bptt(rnn, 1e-2, 1.0)),
    "to_parallel": (ConversionError, lambda rnn, x: sr.to_parallel(rnn, 1e-2)),
    "to_feedforward": (ConversionError, lambda rnn, x: sr.to_feedforward(rnn, 1e-2, 1.0)),
    "to_unitary": (ConversionError, lambda rnn, x: sr.to_unitary(rnn, 1.0)),
    "minimal_unitary_size": (ConversionError, lambda rnn, x: sr.minimal_unitary_size(rnn)),
    "change_basis": (ConversionError, lambda rnn, x: sr.change_basis(rnn, torch.eye(HIDDEN, dtype=torch.float64))),
    "to_torch": (ConversionError, lambda rnn, x: sr.to_torch(rnn)),
    "to_torch of a model": (ConversionError, lambda rnn, x: sr.to_torch(sr.SequenceModel(rnn, 1))),
    "save_weights": (ConversionError, lambda rnn, x: sr.save_weights(rnn, Path("never.safetensors"))),
    "weights of a model": (ConversionError, lambda rnn, x: plain_weights(sr.SequenceModel(rnn, 1))),
}


@pytest.mark.parametrize("name", REFUSALS)
@pytest.mark.parametrize("basis", ["full", "diagonal"])
def test_what_reads_the_weights_as_a_plain_networks_refuses(basis: str, name: str) -> None:
    error, call = REFUSALS[name]
    rnn = make(basis, transition=sr.SpectralBall(0.5))
    with pytest.raises(error, match=r"learned saturation.*`as_tanh\(\)` of an `RNN`"):
        call(rnn, data())
    assert not Path("never.safetensors").exists()


def test_certificate_of_a_cell_is_refused() -> None:
    with pytest.raises(CertificateError, match="learned saturation"):
        sr.certify(sr.RNNCell(2, 3, nonlinearity="adaptive_tanh"))


def test_group_refuses_it() -> None:
    with pytest.raises(ArgumentError, match=r"cannot run RNN\(.*adaptive_tanh"):
        check_groupable(sr.RNN(2, 3, nonlinearity="adaptive_tanh"))


@pytest.mark.parametrize(
    ("basis", "start", "error", "named"),
    [
        ("triangular", 0.05, ArgumentError, "`basis`"),
        (None, 0.05, ArgumentTypeError, "`basis`"),
        ("full", 0.0, ArgumentError, "`start`"),
        ("full", -1.0, ArgumentError, "`start`"),
        ("full", math.nan, ArgumentError, "`start`"),
        ("full", math.inf, ArgumentError, "`start`"),
        ("full", 1e-9, ArgumentError, "`start`"),
        ("full", "0.05", ArgumentTypeError, "`start`"),
        ("full", True, ArgumentTypeError, "`start`"),
    ],
)
def test_wrong_arguments_are_refused_by_name(basis: Any, start: Any, error: type[Exception], named: str) -> None:
    with pytest.raises(error, match=named):
        sr.AdaptiveTanh(basis, start)


def test_name_stands_for_the_default() -> None:
    assert as_activation("adaptive_tanh") == sr.AdaptiveTanh("full", 0.05)


@pytest.mark.parametrize("kind", [sr.GRU, sr.LSTM])
def test_gated_layers_have_no_place_for_it(kind: Any) -> None:
    with pytest.raises(TypeError, match="nonlinearity"):
        kind(2, 3, nonlinearity=sr.AdaptiveTanh())
    with pytest.raises(ArgumentTypeError, match="`transition`"):
        kind(2, 3, transition=sr.AdaptiveTanh())


@pytest.mark.parametrize("make_net", [sr.MLP, sr.ResNet])
def test_networks_without_time_refuse_it(make_net: Any) -> None:
    with pytest.raises(ArgumentError, match="`activation` 'adaptive_tanh'"):
        make_net(2, 3, 1, 2, activation=sr.AdaptiveTanh())


def test_it_has_no_value_by_itself() -> None:
    x = torch.zeros(2)
    for call in (sr.AdaptiveTanh().value, sr.AdaptiveTanh().derivative):
        with pytest.raises(ArgumentError, match="no value by itself"):
            call(x)
    rnn = make()
    run = rnn._recurrence(data(), (torch.zeros(ROWS, HIDDEN, dtype=torch.float64),), "_l0", None, False, False)
    assert isinstance(run.cell, RNNStep)
    assert run.cell.record.theorem is None
    with pytest.raises(ArgumentError, match="no value by itself"):
        ReferenceEngine().run(run)


@dataclass(frozen=True)
class LeakyStep(Cell):
    """A cell of a user's own, which is not the Elman cell."""

    record = CellRecord("leaky_step", gates="h", activation=sr.AdaptiveTanh())

    def step(self, gates_x: Tensor, state: State, recur: Recur, theta: Tensor | None) -> State:
        return ((state[0] + (gates_x + recur(state[0], "h")).tanh()) / 2,)


class LeakyRNN(RecurrentLayer):
    cell = LeakyStep()


def test_another_cell_is_refused() -> None:
    with pytest.raises(ArgumentError, match="only an Elman cell"):
        LeakyRNN(2, 3)


@pytest.mark.parametrize("basis", ["full", "diagonal"])
def test_float16_is_refused_as_dtype_and_under_autocast(basis: str) -> None:
    rnn = make(basis).float()
    with torch.autocast("cpu", torch.float16), pytest.raises(DtypeError, match="bfloat16 or float32"):
        rnn(data().float())
    with pytest.raises(DtypeError, match="bfloat16 or float32"):
        rnn.half()(data().half())
