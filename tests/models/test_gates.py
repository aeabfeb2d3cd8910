"""The option that names the constrained gates of a gated system."""

import pytest
import torch

import steadyrnn as sr
from steadyrnn.errors import ArgumentError
from steadyrnn.models.gates import read_gates
from steadyrnn.models.registry import SYSTEMS
from steadyrnn.models.settings import ModelSettings, complete
from steadyrnn.models.systems import build_model
from steadyrnn.models.truncated import recurrent_part
from tests.models.test_systems import INTERFACES, small

GATED = [name for name, system in SYSTEMS.items() if "gates" in system.options]


def constrained(settings: ModelSettings) -> list[str]:
    """Return the gates whose weight is in the interval of the settings, by their singular values after a step."""
    torch.manual_seed(0)
    rnn = recurrent_part(build_model(settings, INTERFACES["last"])).rnn
    for parameter in rnn.parameters():
        parameter.data.add_(torch.randn_like(parameter))
    blocks = rnn.weight_hh_l0.detach().split(rnn.hidden_size)
    sigmas = {gate: torch.linalg.svdvals(block) for gate, block in zip(rnn.cell.gates, blocks, strict=True)}
    return [gate for gate, sigma in sigmas.items() if bool(((sigma - 1).abs() <= 0.1 + 1e-4).all())]


def test_both_spectral_gated_systems_have_gates_to_choose() -> None:
    assert GATED == ["spectral-lstm", "spectral-gru"]


@pytest.mark.parametrize("name", GATED)
def test_a_record_names_the_gates_of_its_layer(name: str) -> None:
    blueprint, model = SYSTEMS[name].blueprint, build_model(small(name), INTERFACES["last"])
    assert blueprint is not None
    assert isinstance(model, sr.SequenceModel)
    assert blueprint.gates == model.rnn.cell.gates
    assert SYSTEMS[name].options["gates"] == model.rnn.cell.candidate


@pytest.mark.parametrize(
    ("name", "gates", "expected"),
    [
        ("spectral-lstm", None, ["g"]), ("spectral-lstm", "g,i", ["i", "g"]),
        ("spectral-lstm", "i,f,g,o", ["i", "f", "g", "o"]),
        ("spectral-gru", None, ["n"]), ("spectral-gru", "r", ["r"]), ("spectral-gru", "n, r", ["r", "n"]),
    ],
)  # fmt: skip
def test_exactly_the_named_gates_stay_in_the_interval(name: str, gates: str | None, expected: list[str]) -> None:
    assert constrained(small(name, gates=gates)) == expected


def test_gates_reach_the_base_of_a_truncated_system() -> None:
    assert constrained(small("truncated", base="spectral-gru", gates="r,z")) == ["r", "z"]


def test_every_gate_has_parameters_of_its_own() -> None:
    rnn = build_model(small("spectral-gru", gates="r,n"), INTERFACES["last"]).rnn
    r, _, n = rnn.weight_hh_l0.split(rnn.hidden_size)
    assert not torch.allclose(r, n)


def test_the_default_gates_are_the_layer_s_own_constraint() -> None:
    torch.manual_seed(3)
    model = build_model(small("spectral-lstm"), INTERFACES["last"])
    torch.manual_seed(3)
    layer = sr.LSTM(2, 6, bias="single", transition=sr.Spectral(reflectors=6))
    assert all(torch.equal(a, b) for a, b in zip(model.rnn.parameters(), layer.parameters(), strict=True))


@pytest.mark.parametrize("text", ["x", "n,x", "", "n,", "nr", "h"])
def test_a_gate_that_is_not_there_is_refused_with_those_that_are(text: str) -> None:
    with pytest.raises(ArgumentError, match=r"`gates` must name some of the gates r, z, n, .* there is no gate"):
        complete(ModelSettings("spectral-gru", gates=text))


def test_a_gate_that_is_named_twice_is_refused() -> None:
    with pytest.raises(ArgumentError, match="`gates` must name every gate once, but is 'g,g'"):
        read_gates("g,g", "ifgo")
