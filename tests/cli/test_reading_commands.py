"""eval, certify, report, data, bench, completion: what each says of a run, and what it refuses."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

import steadyrnn as sr
from steadyrnn.jobs.weights_file import build_layer
from steadyrnn.tasks.locate import DATA_SETS
from tests.cli.program import QUICK, Program

needs_data = pytest.mark.skipif("STEADYRNN_DATA" not in os.environ, reason="needs the data folder that STEADYRNN_DATA names")


# eval


def test_eval_gives_the_scores_that_training_gave(program: Program, runs: Path) -> None:
    done = program("eval", str(runs / "addition" / "lstm"), "--json", "--device", "cpu")
    assert done.status == 0, done.err
    run = Path(done.json["run"])
    (test,) = [line for line in sr_metrics(run) if line["kind"] == "test"]
    assert done.json["scores"]["loss"] == pytest.approx(test["loss"], rel=1e-6)
    assert done.json["checkpoint"] == "best"


def sr_metrics(run: Path) -> list[dict[str, object]]:
    from steadyrnn.runs.folder import Run

    return Run.open(run).metrics()


def test_eval_accepts_a_split_and_a_checkpoint(program: Program, runs: Path) -> None:
    done = program("eval", str(runs / "addition" / "truncated"), "--split", "validation", "--checkpoint", "last")
    assert done.status == 0, done.err
    assert "validation, checkpoint last" in done.out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--checkpoint", "first"], "has no checkpoint 'first'"),
        (["--split", "all"], "'all'"),
        (["--generate", "3"], "`--generate` needs a language model"),
        (["--device", "tpu"], "`device` must be"),
    ],
)
def test_eval_refuses_what_there_is_not(program: Program, runs: Path, words: list[str], message: str) -> None:
    done = program("eval", str(runs), *words)
    assert done.status == 1
    assert message in done.err


@needs_data
@pytest.mark.slow
def test_a_language_model_writes_text(program: Program) -> None:
    words = ["--model.width", "8", "--model.embedding", "4", "--train.steps", "1", "--train.probe.every", "0"]
    assert program("train", "ptb", "--model", "truncated", "--model.context", "3", *words, "--quiet").status == 0
    done = program("eval", "runs", "--generate", "5", "--prompt", "the company", "--json")
    assert done.status == 0, done.err
    assert len(done.json["text"].split()) == 5
    done = program("eval", "runs", "--generate", "1", "--prompt", "the zyzzyva")
    assert done.err == "steadyrnn: not in the vocabulary, read as <unk>: zyzzyva\n"
    drawn = [program("eval", "runs", "--generate", "5", "--temperature", "1.5", "--json").json["text"] for _ in range(2)]
    assert drawn[0] == drawn[1]


# certify


def test_certify_says_what_the_library_says(program: Program, runs: Path) -> None:
    done = program("certify", str(runs / "addition" / "contractive"), "--input-bound", "2", "--json")
    assert done.status == 0, done.err
    certificate = done.json["certificate"]
    assert certificate["stable"]
    assert certificate["contraction"] <= 0.8 + 1e-6
    assert certificate["input_bound"] == 2
    assert done.json["input_bound"] == "as given"


def test_certify_takes_the_bound_measured_in_training(program: Program, runs: Path) -> None:
    done = program("certify", str(runs / "addition" / "lstm"), "--json")
    assert done.status == 0, done.err
    assert 0 < done.json["certificate"]["input_bound"] <= 2**0.5
    assert "validation split" in done.json["input_bound"]


def test_certify_says_how_long_a_stable_network_remembers(program: Program, runs: Path) -> None:
    done = program("certify", str(runs / "addition" / "contractive"), "--horizon", "1e-3")
    assert "steps the state differs by at most 0.001" in done.out


def test_certify_refuses_a_horizon_that_is_not_proven(program: Program, runs: Path) -> None:
    done = program("certify", str(runs / "addition" / "spectral"), "--horizon", "1e-3", "--effort", "fast", "--json")
    assert (done.status, done.out) == (1, "")


def test_a_stored_certificate_is_checked_against_the_weights(program: Program, runs: Path) -> None:
    assert program("certify", str(runs / "addition" / "contractive"), "--recheck", "--json").json["valid"] is True


def test_an_altered_certificate_is_refused(program: Program) -> None:
    program("train", "addition", "--model", "contractive", "--quiet", *QUICK)
    (file,) = Path("runs").rglob("certificate.json")
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace('"digest": "', '"digest": "0'), encoding="utf-8")
    done = program("certify", "runs", "--recheck")
    assert done.status == 1
    assert "checksums differ" in done.err


@pytest.mark.parametrize(
    "layer", [torch.nn.RNN(2, 3, 2), torch.nn.GRU(2, 3, bias=False), torch.nn.LSTM(2, 3, bidirectional=True)]
)
def test_certify_reads_plain_weights_from_a_file(program: Program, layer: torch.nn.Module) -> None:
    tensors = {f"encoder.rnn.{name}": tensor.clone() for name, tensor in layer.state_dict().items()}
    save_file({**tensors, "head.weight": torch.ones(1)}, "weights.safetensors")
    done = program("certify", "weights.safetensors", "--input-bound", "1", "--json")
    assert done.status == 0, done.err
    own = sr.certify(layer, input_bound=1.0)
    assert done.json["certificate"]["contraction"] == pytest.approx(own.contraction, rel=1e-6)


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({"weight": torch.ones(2)}, "must hold the weights of one recurrent layer"),
        ({"a.weight_hh_l0": torch.ones(2, 2), "b.weight_hh_l0": torch.ones(2, 2)}, "2: a., b."),
        ({"weight_hh_l0": torch.ones(2, 2)}, "lacks weight_ih_l0"),
        ({"weight_hh_l0": torch.ones(4, 2), "weight_ih_l0": torch.ones(4, 2)}, "G of 1 (RNN), 3 (GRU) or 4 (LSTM)"),
        ({"weight_hh_l0": torch.ones(2, 2), "weight_ih_l0": torch.ones(3, 2)}, "does not hold the weights of a layer"),
        ({"weight_hh_l0": torch.full((1, 1), torch.nan), "weight_ih_l0": torch.ones(1, 1)}, "NaN"),
    ],
)
def test_a_file_that_holds_no_layer_is_refused(program: Program, tensors: dict[str, torch.Tensor], message: str) -> None:
    save_file(tensors, "weights.safetensors")
    done = program("certify", "weights.safetensors")
    assert (done.status, done.out) == (1, "")
    assert message in done.err


def test_the_nonlinearity_that_a_file_does_not_say_is_said_to_be_assumed(program: Program) -> None:
    save_file(dict(torch.nn.RNN(2, 3).state_dict()), "weights.safetensors")
    assert "nonlinearity: tanh, assumed" in program("certify", "weights.safetensors").out
    assert program("certify", "weights.safetensors", "--nonlinearity", "relu", "--json").json["nonlinearity"] == "relu"


@pytest.mark.parametrize(
    ("words", "message"),
    [(["--nonlinearity", "relu"], "holds a GRU"), (["--checkpoint", "last"], "`--checkpoint` needs a RUN")],
)
def test_an_option_that_a_file_has_no_use_for_is_refused(program: Program, words: list[str], message: str) -> None:
    save_file(dict(torch.nn.GRU(2, 3).state_dict()), "weights.safetensors")
    done = program("certify", "weights.safetensors", *words)
    assert (done.status, done.out) == (1, "")
    assert message in done.err


def test_weights_of_a_file_are_certified_as_they_are_not_rounded(program: Program) -> None:
    tensors = {"weight_hh_l0": torch.ones(1, 1), "weight_ih_l0": torch.full((1, 1), 1 + 1e-9, dtype=torch.float64)}
    assert build_layer(tensors, None, "file").weight_ih_l0.item() == 1 + 1e-9


def test_a_learned_initial_state_in_a_file_is_not_passed_over(program: Program) -> None:
    layer = sr.RNN(2, 3, nonlinearity="relu", transition=sr.SpectralBall(0.5), learn_initial_state=True)
    with torch.no_grad():
        layer.initial_state_l0.fill_(1e3)
    plain = {name: tensor for name, tensor in layer.state_dict().items() if not name.startswith("transition")}
    save_file({**plain, "weight_hh_l0": layer.weight_hh_l0.detach().clone()}, "weights.safetensors")
    done = program("certify", "weights.safetensors", "--nonlinearity", "relu", "--input-bound", "1", "--json")
    (bound,) = [claim["value"] for claim in done.json["certificate"]["claims"] if "bound on states" in claim["name"]]
    assert bound >= 3**0.5 * 1e3


def test_a_damaged_file_is_refused(program: Program) -> None:
    Path("weights.safetensors").write_bytes(b"\x80\x04damaged")
    done = program("certify", "weights.safetensors")
    assert done.status == 1
    assert "no safetensors file" in done.err


# report


def test_a_report_is_written_where_requested(program: Program, runs: Path) -> None:
    pytest.importorskip("jinja2")
    done = program("report", str(runs), "--out", "pages/all.html", "--title", "All <of> them", "--json")
    assert done.status == 0, done.err
    assert len(done.json["runs"]) == 4
    page = Path("pages/all.html").read_text(encoding="utf-8")
    assert "All &lt;of&gt; them" in page
    assert "contractive" in page


def test_a_report_of_nothing_is_refused(program: Program) -> None:
    Path("empty").mkdir()
    done = program("report", "empty")
    assert done.status == 1
    assert "`empty` contains no run" in done.err


# data


def test_data_list_names_every_set_and_where_to_get_it(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STEADYRNN_DATA", raising=False)
    found = program("data", "list", "--json").json
    assert found["folder"] is None
    assert set(found["data"]) == set(DATA_SETS)
    assert not any(data["present"] for data in found["data"].values())
    assert "STEADYRNN_DATA" in program("data", "list").out


def test_data_check_without_a_folder_says_what_to_do(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STEADYRNN_DATA", raising=False)
    done = program("data", "check")
    assert done.status == 3
    assert "Set the environment variable STEADYRNN_DATA" in done.err


def test_data_check_tells_missing_and_wrong_files(program: Program) -> None:
    Path("data/ptb").mkdir(parents=True)
    Path("data/ptb/ptb.test.txt").write_text("altered", encoding="utf-8")
    done = program("data", "check", "ptb", "--data-dir", "data", "--json")
    assert done.status == 3
    problems = done.json["problems"]["ptb"]
    assert sum("is missing" in problem for problem in problems) == 2
    assert sum("must have" in problem for problem in problems) == 1


def test_an_unknown_data_set_is_refused_by_name(program: Program) -> None:
    done = program("data", "list", "imagenet")
    assert done.status == 2
    assert "there is no data set 'imagenet'. There are mnist" in done.err


# bench


def test_bench_measures_pairs(program: Program) -> None:
    words = ["--steps", "3", "--batch", "2", "--inputs", "2", "--width", "4", "--pairs", "1", "--device", "cpu"]
    found = program("bench", "stable-lstm", "unitary", *words, "--json").json["systems"]
    assert found["stable-lstm"]["beside"] == "torch.nn.LSTM"
    assert all(one["ratio"] == pytest.approx(one["ours"] / one["torch"]) for one in found.values())


@pytest.mark.parametrize(
    ("words", "message"), [(["mlp"], "no recurrent model 'mlp'"), (["rnn", "--pairs", "0"], "--pairs must be")]
)
def test_bench_refuses_what_it_cannot_measure(program: Program, words: list[str], message: str) -> None:
    done = program("bench", *words)
    assert done.status == 2
    assert message in done.err


# completion


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_completion_knows_commands_tasks_models_and_options(program: Program, shell: str) -> None:
    script = program("completion", shell).out
    for word in ("certify", "permuted-mnist", "spectral-resnet", "--train.optimizer.lr", "--task.delay"):
        assert word in script


def test_the_bash_script_is_one_that_bash_takes(program: Program) -> None:
    Path("steadyrnn.bash").write_text(program("completion", "bash").out, encoding="utf-8")
    ask = "source steadyrnn.bash; COMP_WORDS=(steadyrnn ce); COMP_CWORD=1; _shtab_steadyrnn; echo ${COMPREPLY[@]}"
    done = subprocess.run(["bash", "-c", ask], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["certify"], done.stderr


@pytest.mark.parametrize("legacy", [False, True])
def test_a_pickle_is_not_read_and_the_printed_line_turns_it_into_safetensors(program: Program, legacy: bool) -> None:
    rnn = torch.nn.RNN(2, 3)
    torch.nn.init.constant_(rnn.weight_hh_l0, 0.1)
    torch.save(rnn.state_dict(), "my w.pt", _use_new_zipfile_serialization=not legacy)
    done = program("certify", "my w.pt", "--input-bound", "1")
    assert (done.status, done.out) == (1, "")
    assert "a pickle, which can hold code" in done.err
    line = shlex.split(done.err.split("nothing executed: ")[1])[:3]
    assert line[:2] == ["python", "-c"]
    assert "weights_only=True" in line[2]
    subprocess.run([sys.executable, *line[1:]], check=True)
    assert program("certify", "my w.safetensors", "--input-bound", "1").status == 0
