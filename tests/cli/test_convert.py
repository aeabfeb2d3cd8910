"""steadyrnn convert: what it writes can be loaded, and computes what the run's layer computes."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import steadyrnn as sr
from steadyrnn.jobs.conversions import FORMS, ConversionOptions
from steadyrnn.jobs.loading import load_trained
from steadyrnn.models.truncated import recurrent_part
from tests.cli.program import QUICK, Program
from tests.support.conversions import loaded


def logits(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    found = model(x)
    return (found[0] if isinstance(found, tuple) else found).detach()


@pytest.mark.parametrize("form", FORMS)
def test_a_converted_model_loads_whole_and_computes_the_same(program: Program, runs: Path, form: str) -> None:
    run = runs / "addition" / "contractive"
    own = ["--eps", "1e-4"] if form == "feedforward" else []
    done = program("convert", str(run), "--to", form, "--input-bound", "1.5", *own, "--json")
    assert done.status == 0, done.err
    made, model = loaded(Path(done.json["folder"])), load_trained(run).model
    assert isinstance(made, nn.Module)
    assert not made.training
    x = torch.nn.functional.normalize(torch.randn(40, 2, 2), dim=-1)
    assert (logits(made, x) - logits(model, x)).norm(dim=-1).max() <= 2e-4
    assert done.json["self_check"] <= 2e-4
    assert json.loads(Path(done.json["folder"], "report.json").read_text())["form"] == form
    written = {name for name in os.listdir(done.json["folder"]) if name != "__pycache__"}  # of running `load.py`
    assert written == {"load.py", "model.safetensors", "report.json"}


@pytest.mark.parametrize("form", ["torch", "parallel", "unitary"])
@pytest.mark.parametrize("model", ["lstm", "truncated", "tokens", "each"])
def test_other_models_convert_whole_too(program: Program, runs: Path, model: str, form: str) -> None:
    """A gated layer, a truncated model, an embedding with skip and tied weights, a readout of every step."""
    trains = {
        "lstm": ["addition", "--model", "stable-lstm", "--task.length", "10"],
        "truncated": ["addition", "--model", "truncated", "--model.base", "contractive", "--task.length", "10"],
        "tokens": ["recall", "--model", "contractive", "--model.skip", "true", "--model.tied", "true", "--task.length", "10"],
        "each": ["contractive", "--task.length", "20", "--task.train", "20"],
    }
    quick = ["--train.steps", "3", "--train.batch_size", "4", "--task.validation", "10", "--task.test", "10"]
    more = ["--model.width", "8", "--train.device", "cpu", *(["--model.bound", "0.9"] if model != "lstm" else [])]
    run = program("train", *trains[model], *quick, *more, "--quiet")
    assert run.status == 0, run.err
    done = program("convert", "runs", "--to", form, "--out", "made")
    if (model, form) == ("lstm", "unitary"):
        assert done.status == 1
        return
    assert done.status == 0, done.err
    assert "self-check" in done.out
    trained = load_trained("runs")
    made, task = loaded(Path("made")), trained.origin.make_task()
    x = next(iter(task.batches("validation", 10))).input
    x = x.double() if x.is_floating_point() else x
    expected = logits(trained.model.double(), x)
    gain = torch.linalg.matrix_norm(recurrent_part(trained.model).readout.weight.detach(), 2)
    rounding = 16 * len(x) * 8 * torch.finfo(torch.float64).eps * max(float(expected.norm(dim=-1).max()), 1.0)
    allowed = rounding + (1e-5 * float(gain) if form == "parallel" else 0.0)  # --tol
    assert (logits(made.double(), x) - expected).norm(dim=-1).max() <= allowed


def test_the_torch_form_needs_nothing_but_torch(program: Program, runs: Path) -> None:
    assert program("convert", str(runs / "addition" / "lstm"), "--to", "torch", "--out", "plain").status == 0
    text = Path("plain/load.py").read_text()
    assert "steadyrnn" not in text
    code = "import sys; sys.path.insert(0, 'plain'); from load import load; load(); sys.exit('steadyrnn' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_stack_with_learned_initial_states_becomes_unitary(program: Program) -> None:
    words = ["--model", "contractive", "--model.bound", "0.9", "--model.layers", "2", "--model.learn_initial_state", "true"]
    assert program("train", "addition", *words, "--quiet", *QUICK).status == 0
    done = program("convert", "runs", "--to", "unitary", "--json")
    assert done.status == 0, done.err
    x = torch.nn.functional.normalize(torch.randn(20, 2, 2), dim=-1)
    assert torch.allclose(logits(loaded(Path("converted/unitary")), x), logits(load_trained("runs").model, x), atol=1e-5)


def test_a_unitary_network_of_scaled_units_gives_unscaled_outputs(tmp_path: Path) -> None:
    rnn = sr.RNN(3, 8, nonlinearity="relu")
    rnn.weight_hh_l0 = torch.nn.Parameter(0.5 * torch.eye(8).roll(1, dims=0))
    model = sr.SequenceModel(rnn, 2, readout="each")
    converted = FORMS["unitary"](model, ConversionOptions(input_bound=1.0))
    assert converted.report["size_after"] == 9
    save_file(converted.tensors, tmp_path / "model.safetensors")
    (tmp_path / "report.json").write_text(json.dumps({"report": converted.report}))
    names: dict[str, Any] = {"torch": torch, "folder": tmp_path, "load_file": load_file}
    exec("\n".join([*converted.imports, *converted.code]).replace("\n    ", "\n"), names)
    x = torch.nn.functional.normalize(torch.randn(20, 2, 3), dim=-1)
    assert torch.allclose(logits(names["model"], x), logits(model, x), atol=1e-6)


def test_a_second_conversion_does_not_overwrite_the_first(program: Program, runs: Path) -> None:
    words = ["convert", str(runs / "addition" / "contractive"), "--to", "torch", "--out", "plain"]
    assert program(*words).status == 0
    before = {path.name: path.stat().st_mtime_ns for path in Path("plain").iterdir()}
    done = program(*words)
    assert (done.status, done.out) == (1, "")
    assert "'plain' holds a conversion already" in done.err
    assert "--force" in done.err
    assert before == {path.name: path.stat().st_mtime_ns for path in Path("plain").iterdir()}
    assert program(*words, "--force").status == 0
    assert before != {path.name: path.stat().st_mtime_ns for path in Path("plain").iterdir()}


@pytest.mark.parametrize(
    ("words", "owner"),
    [
        ("--eps -1", "feedforward"),
        ("--eps 0", "feedforward"),
        ("--tol 1e-3", "parallel"),
        ("--horizon 9", "unitary"),
        ("--approximate", "unitary"),
    ],
)
@pytest.mark.parametrize("form", FORMS)
def test_an_option_of_another_form_is_refused(program: Program, form: str, words: str, owner: str) -> None:
    option, *value = words.split()
    done = program("convert", "nowhere", "--to", form, option, *value)
    refused = f"{option} belongs to --to {owner}, but the form is {form}" in done.err
    assert refused == (form != owner)
    assert done.status == (2 if refused else 1)  # of its own form it is read, and the run is not there


def test_a_file_in_the_way_is_not_touched(program: Program, runs: Path) -> None:
    Path("plain").write_text("mine")
    done = program("convert", str(runs / "addition" / "contractive"), "--to", "torch", "--out", "plain", "--force")
    assert (done.status, Path("plain").read_text()) == (1, "mine")
    assert "`--out` must name a folder" in done.err


@pytest.mark.parametrize(
    ("model", "form", "message"),
    [
        ("lstm", "unitary", "none is known for gated networks"),
        ("spectral", "feedforward", "no feed-forward equivalent that is proven"),
        ("spectral", "torch", "leaky_relu"),
        ("truncated", "unitary", "Theorem 3"),
        ("truncated", "feedforward", "feed-forward already"),
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
    made, model = loaded(Path("unitary")), load_trained(run).model
    x = torch.nn.functional.normalize(torch.randn(9, 2, 2), dim=-1)
    first = made(x[:4])
    again, whole = made(x[4:], first[1]), model(x)
    assert torch.allclose(again[0], whole[0], atol=1e-5)
    assert torch.allclose(again[1], whole[1], atol=1e-5)
    assert torch.allclose(made(x, lengths=[9, 3])[0], model(x, lengths=[9, 3])[0], atol=1e-5)
    with pytest.raises(ValueError, match="`input` must have 2-norm at most"):
        made(2 * x)
