"""steadyrnn convert: what it writes can be loaded, and computes what the run's layer computes."""

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import steadyrnn as sr
from steadyrnn.cli.forms import FORMS, Wish
from steadyrnn.cli.loading import load_trained
from tests.cli.program import QUICK, Program


def loaded(folder: Path) -> tuple[Callable[..., Any], dict[str, torch.Tensor]]:
    """Run the file that a conversion wrote."""
    spec = importlib.util.spec_from_file_location("load", folder / "load.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.load()


@pytest.mark.parametrize("form", ["unitary", "feedforward", "parallel", "torch"])
def test_a_converted_layer_loads_and_computes_the_same(program: Program, runs: Path, form: str) -> None:
    run = runs / "addition" / "contractive"
    done = program("convert", str(run), "--to", form, "--input-bound", "1.5", "--eps", "1e-4", "--json")
    assert done.status == 0, done.err
    layer, rest = loaded(Path(done.json["folder"]))
    model = load_trained(run).model
    x = torch.nn.functional.normalize(torch.randn(40, 2, 2), dim=-1)
    output = layer(x)
    output = output[0] if isinstance(output, tuple) else output
    assert (output - model.rnn(x)[0]).norm(dim=-1).max() <= 2e-4
    assert torch.equal(rest["readout.weight"], model.readout.weight)
    assert done.json["self_check"] <= 2e-4
    assert json.loads(Path(done.json["folder"], "report.json").read_text())["form"] == form


@pytest.mark.parametrize("model", ["lstm", "truncated"])
def test_other_systems_convert_too(program: Program, runs: Path, model: str) -> None:
    done = program("convert", str(runs / "addition" / model), "--to", "torch", "--out", "plain")
    assert done.status == 0, done.err
    assert "self-check" in done.out
    layer, _ = loaded(Path("plain"))
    x = torch.randn(5, 2, 2)
    trained = load_trained(runs / "addition" / model).model
    rnn = trained.model.rnn if model == "truncated" else trained.rnn
    assert torch.allclose(layer(x)[0], rnn(x)[0], atol=1e-6)


def test_a_stack_with_learned_initial_states_becomes_unitary(program: Program) -> None:
    words = ["--model", "contractive", "--model.bound", "0.9", "--model.layers", "2", "--model.learn_initial_state", "true"]
    assert program("train", "addition", *words, "--quiet", *QUICK).status == 0
    done = program("convert", "runs", "--to", "unitary", "--json")
    assert done.status == 0, done.err
    layer, _ = loaded(Path("converted/unitary"))
    x = torch.nn.functional.normalize(torch.randn(20, 2, 2), dim=-1)
    assert torch.allclose(layer(x)[0], load_trained("runs").model.rnn(x)[0], atol=1e-5)


def test_a_unitary_network_of_scaled_units_gives_unscaled_outputs() -> None:
    rnn = sr.RNN(3, 8, nonlinearity="relu")
    rnn.weight_hh_l0 = torch.nn.Parameter(0.5 * torch.eye(8).roll(1, dims=0))
    converted = FORMS["unitary"](rnn, Wish(input_bound=1.0))
    names: dict[str, Any] = {"sr": sr, "torch": torch}
    names["layer"] = eval(converted.code, names)
    names["layer"].load_state_dict(converted.tensors)
    exec("\n".join(converted.wrap), names)
    assert converted.report["size_after"] == 9
    x = torch.nn.functional.normalize(torch.randn(20, 2, 3), dim=-1)
    assert torch.allclose(names["module"](x)[0], rnn(x)[0], atol=1e-6)


@pytest.mark.parametrize(
    ("model", "form", "message"),
    [
        ("lstm", "unitary", "none is known for gated networks"),
        ("spectral", "feedforward", "no feed-forward equivalent that is proven"),
        ("spectral", "torch", "leaky_relu"),
        ("truncated", "unitary", "Theorem 3"),
    ],
)
def test_what_is_impossible_is_refused_in_the_conversions_own_words(
    program: Program, runs: Path, model: str, form: str, message: str
) -> None:
    done = program("convert", str(runs / "addition" / model), "--to", form, "--input-bound", "1")
    assert (done.status, done.out) == (1, "")
    assert message in done.err
    assert not Path("converted").exists()


def test_what_a_unitary_file_loads_keeps_the_call_and_refuses_what_is_not_proven(program: Program, runs: Path) -> None:
    run = runs / "addition" / "contractive"
    assert program("convert", str(run), "--to", "unitary", "--input-bound", "1.0", "--out", "unitary").status == 0
    layer, _ = loaded(Path("unitary"))
    rnn = load_trained(run).model.rnn
    x = torch.nn.functional.normalize(torch.randn(9, 2, 2), dim=-1)
    assert torch.allclose(layer(x)[1], rnn(x)[1], atol=1e-5)
    with pytest.raises(ValueError, match=r"2-norm above 1\.0"):
        layer(2 * x)
