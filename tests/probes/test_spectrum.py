"""The spectrum of recurrent weights, gate by gate, and its distance from 1."""

from collections.abc import Callable

import pytest
import torch
from torch import nn

import steadyrnn as sr
from steadyrnn.errors import ArgumentError, ArgumentTypeError, NotFiniteError
from steadyrnn.layers.cells import GRUCell
from steadyrnn.layers.gru import GRU
from steadyrnn.layers.linear import Linear
from steadyrnn.layers.lstm import LSTM
from steadyrnn.layers.rnn import RNN
from steadyrnn.models.sequence import SequenceModel
from steadyrnn.probes.spectrum import spectral_margin, spectrum

D, H = 3, 5

KEYS: dict[str, tuple[Callable[[], nn.Module], list[str]]] = {
    "our rnn": (lambda: RNN(D, H), ["weight_hh_l0.h"]),
    "our gru": (lambda: GRU(D, H), [f"weight_hh_l0.{gate}" for gate in "rzn"]),
    "our lstm": (lambda: LSTM(D, H), [f"weight_hh_l0.{gate}" for gate in "ifgo"]),
    "our cell": (lambda: GRUCell(D, H), [f"weight_hh.{gate}" for gate in "rzn"]),
    "torch's rnn": (lambda: nn.RNN(D, H, 2), ["weight_hh_l0.h", "weight_hh_l1.h"]),
    "torch's gru": (
        lambda: nn.GRU(D, H, bidirectional=True),
        [f"weight_hh_l0{way}.{gate}" for way in ("", "_reverse") for gate in "rzn"],
    ),
    "torch's lstm": (lambda: nn.LSTM(D, H), [f"weight_hh_l0.{gate}" for gate in "ifgo"]),
    "torch's cell": (lambda: nn.LSTMCell(D, H), [f"weight_hh.{gate}" for gate in "ifgo"]),
    "a model": (lambda: SequenceModel(RNN(D, H), 2, vocab_size=7), ["rnn.weight_hh_l0.h"]),
    "a container": (
        lambda: nn.ModuleDict({"a": nn.Sequential(nn.RNN(D, H)), "b": nn.Linear(2, 2), "c": RNN(D, H)}),
        ["a.0.weight_hh_l0.h", "c.weight_hh_l0.h"],
    ),
    "no recurrent layer": (lambda: nn.Sequential(nn.Linear(2, 3), Linear(3, 2)), []),
}


@pytest.mark.parametrize("name", KEYS)
def test_every_recurrent_weight_is_listed_by_path_name_and_gate(name: str) -> None:
    make, keys = KEYS[name]
    assert list(spectrum(make())) == keys


@pytest.mark.parametrize("make", [lambda: GRU(D, H, 2, bidirectional=True), lambda: nn.LSTM(D, H)])
def test_the_values_are_the_singular_values_of_each_gate(make: Callable[[], nn.Module]) -> None:
    module = make()
    for key, values in spectrum(module).items():
        name, gate = key.rsplit(".", 1)
        gates = "ifgo" if isinstance(module, nn.LSTM) else "rzn"
        rows = getattr(module, name).detach().double().split(H)[gates.index(gate)]
        assert values.dtype == torch.float64
        assert torch.equal(values, values.sort(descending=True).values)
        gram = torch.linalg.eigvalsh(rows.mT @ rows).flip(0)  # another way to the squares
        assert torch.allclose(values.square(), gram, rtol=0, atol=64 * H * 2.0**-53 * float(gram[0]))


def test_a_constrained_weight_is_evaluated() -> None:
    layer = GRU(D, H, transition={"n": sr.Spectral(center=0.5, radius=0.0), "r": "ornn"}, dtype=torch.float64)
    found = spectrum(layer)
    assert torch.allclose(found["weight_hh_l0.n"], torch.full((H,), 0.5).double(), atol=1e-13, rtol=0)
    assert torch.allclose(found["weight_hh_l0.r"], torch.ones(H).double(), atol=1e-13, rtol=0)
    assert spectral_margin({"z": found["weight_hh_l0.z"]}) > 0.1  # torch's first weights are far from orthogonal


def test_no_gradient_and_no_change_comes_of_a_look() -> None:
    layer = RNN(D, H, transition="spectral")
    before = {name: tensor.clone() for name, tensor in layer.state_dict().items()}
    assert not any(values.requires_grad for values in spectrum(layer).values())
    assert all(torch.equal(tensor, before[name]) for name, tensor in layer.state_dict().items())


def test_a_projected_lstm_has_rectangular_weights_and_a_spectrum() -> None:
    found = spectrum(nn.LSTM(D, H, proj_size=2))
    assert all(values.shape == (2,) for values in found.values())


@pytest.mark.parametrize(
    ("values", "margin"),
    [([[1.0, 1.0]], 0.0), ([[1.25, 1.0]], 0.25), ([[1.25, 0.5]], 0.5), ([[1.0], [3.0, 0.0]], 2.0)],
)
def test_the_margin_is_the_largest_distance_from_one(values: list[list[float]], margin: float) -> None:
    assert spectral_margin({str(i): torch.tensor(v) for i, v in enumerate(values)}) == margin


@pytest.mark.parametrize("radius", [0.0, 0.1, 0.5])
def test_the_margin_of_a_spectral_constraint_is_at_most_its_radius(radius: float) -> None:
    layer = RNN(D, 8, transition=sr.Spectral(radius=radius), dtype=torch.float64)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_(std=3.0)
    margin = spectral_margin(spectrum(layer))
    assert margin <= radius + 1e-13
    assert margin >= 0.5 * radius  # random numbers of this size come close


def test_an_empty_spectrum_has_no_margin() -> None:
    with pytest.raises(ArgumentError, match="`spectrum` is empty"):
        spectral_margin({})


def test_a_weight_that_is_not_finite_is_named() -> None:
    layer = RNN(D, H)
    with torch.no_grad():
        layer.weight_hh_l0[0, 0] = torch.nan
    with pytest.raises(NotFiniteError, match="weight_hh_l0"):
        spectrum(layer)


def test_what_is_no_module_is_refused() -> None:
    with pytest.raises(ArgumentTypeError, match="`module` must be a module"):
        spectrum(torch.eye(2))  # type: ignore[arg-type]
