"""steadyrnn train: what is in a run, what is printed, going on with a run."""

import json
import os
import shlex
from pathlib import Path

import pytest
import torch

from steadyrnn.jobs.loading import load_trained
from steadyrnn.runs.folder import Run
from tests.cli.program import QUICK, Program

needs_data = pytest.mark.skipif("STEADYRNN_DATA" not in os.environ, reason="needs the data folder that STEADYRNN_DATA names")


def only_run(root: str = "runs") -> Run:
    (folder,) = Path(root).glob("*/*/*")
    return Run.open(folder)


def weights(run: Run, name: str = "best") -> dict[str, torch.Tensor]:
    return {key: tensor for key, tensor in run.load(name).tensors.items() if key.startswith("model.")}


def test_a_run_holds_all_that_belongs_to_it(program: Program) -> None:
    done = program("train", "addition", "--model", "gru", "--train.probe.every", "3", *QUICK)
    assert done.status == 0, done.err
    run = only_run()
    assert run.folder.parts[-3:-1] == ("addition", "gru")
    assert run.config["command"][:3] == ["steadyrnn", "train", "addition"]
    assert run.config["model"] == {"name": "gru", "width": 8}
    assert run.config["task"]["length"] == 10
    assert sorted(run.checkpoints()) == ["best", "last"]
    facts = run.read_json("facts.json")
    assert (facts["metric"], facts["higher_is_better"], facts["model"]["layers"]) == ("loss", False, 1)
    assert facts["parameters"] == 3 * 8 * (2 + 8 + 1) + 9
    certificate = run.read_json("certificate.json")
    assert certificate["certificate"]["regime"]
    assert certificate["checkpoint"] == "best"
    assert 0 < certificate["input_bound"]["value"] <= 2**0.5
    assert "validation split" in certificate["input_bound"]["source"]
    assert str(run.folder) in done.out
    assert "next: steadyrnn report" in done.out


def test_probes_are_logged_in_the_forms_that_the_report_reads(program: Program) -> None:
    program("train", "addition", "--train.probe.every", "3", *QUICK)
    probes = [record for record in only_run().metrics() if record["kind"] == "probe"]
    assert {record["step"] for record in probes} == {0, 3, 6}
    by_name = {record["name"]: record for record in probes}
    spectrum, flow, certificate = (by_name[name] for name in ("spectrum", "gradient-flow", "certificate"))
    assert list(spectrum["value"]) == ["weight_hh_l0"]
    assert len(spectrum["value"]["weight_hh_l0"]) == 8
    assert 0 <= spectrum["margin"]["weight_hh_l0"] <= 0.1
    assert flow["value"]["lag"] == [*range(11)]
    assert {len(column) for column in flow["value"].values()} == {11}
    assert all(
        low is None or low <= norm * (1 + 1e-9)
        for low, norm in zip(flow["value"]["low"], flow["value"]["spectral"], strict=True)
    )
    assert set(certificate["value"]) == {"contraction", "stable", "regime"}


def test_an_unknown_probe_is_refused_by_name(program: Program) -> None:
    done = program("train", "addition", "--train.probe.every", "3", "--train.probe.names", "[sprectrum]", *QUICK)
    assert done.status == 1
    assert "`probe.names` must be one of spectrum, gradient-flow, certificate, gradient-h0" in done.err
    assert "but is 'sprectrum'" in done.err


def test_chosen_probes_are_logged_and_reported(program: Program) -> None:
    words = ["--probe", "gradient-h0,dead-units", "--probe", "state-jacobian,margin", "--train.probe.every", "3"]
    program("train", "addition", *words, *QUICK)
    probes = [record for record in only_run().metrics() if record["kind"] == "probe"]
    assert {record["name"] for record in probes} == {"gradient-h0", "dead-units", "state-jacobian", "margin"}
    assert all(record["value"] for record in probes)
    assert program("report", str(only_run().folder), "--out", "page.html").status == 0
    assert "Gradient of the loss by the initial state" in Path("page.html").read_text(encoding="utf-8")


def test_json_is_all_that_stdout_holds(program: Program) -> None:
    done = program("train", "addition", "--json", *QUICK)
    found = done.json
    assert found["result"]["steps"] == 6
    assert found["result"]["test"]["loss"] > 0
    assert found["baselines"]["loss"] == pytest.approx(1 / 6)
    assert found["model"]["radius"] == 0.1
    assert Path(found["run"], "config.json").is_file()
    assert "run runs" in done.err


def test_the_command_to_go_on_with_can_be_typed_as_it_stands(program: Program) -> None:
    done = program("train", "addition", "--out", "my runs", *QUICK)
    words = shlex.split(done.out.split("next: steadyrnn ")[1].splitlines()[0])
    assert Path(words[1]).is_dir()


def test_quiet_prints_the_folder_of_the_run_and_nothing_else(program: Program) -> None:
    done = program("train", "addition", "--quiet", *QUICK)
    (run,) = Path("runs/addition/spectral").iterdir()
    assert (done.status, done.err, done.out) == (0, "", f"{run}\n")


@pytest.mark.parametrize(
    ("words", "path"), [(["convert", "--to", "torch"], "converted/torch"), (["report", "--out", "page.html"], "page.html")]
)
def test_quiet_prints_the_path_of_what_was_written_and_nothing_else(
    program: Program, runs: Path, words: list[str], path: str
) -> None:
    done = program(words[0], str(runs / "addition" / "contractive"), *words[1:], "--quiet")
    assert (done.status, done.err, done.out) == (0, "", f"{path}\n")
    assert Path(path).exists()


def test_the_same_seed_gives_the_same_run_and_another_another(program: Program) -> None:
    found = []
    for root, seed in (("a", "1"), ("b", "1"), ("c", "2")):
        program("train", "addition", "--seed", seed, "--out", root, "--quiet", *QUICK)
        found.append(weights(only_run(root)))
    first, second, third = found
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not all(torch.equal(first[name], third[name]) for name in first)


def test_the_configuration_of_a_run_makes_the_run_again(program: Program) -> None:
    program("train", "addition", "--model", "ornn", "--out", "a", "--quiet", *QUICK)
    first = only_run("a")
    assert program("train", "--config", str(first.folder / "config.json"), "--out", "b", "--quiet").status == 0
    second = only_run("b")
    assert {**first.config, "command": []} == {**second.config, "command": []}
    assert all(torch.equal(tensor, weights(second)[name]) for name, tensor in weights(first).items())


def test_printed_settings_make_the_same_run(program: Program) -> None:
    printed = program("train", "addition", "--model", "ornn", *QUICK, "--print_config")
    assert not Path("runs").exists()
    Path("ornn.yaml").write_text(printed.out, encoding="utf-8")
    again = program("train", "--config", "ornn.yaml", "--print_config")
    assert (again.status, again.out) == (0, printed.out)


def test_a_run_that_was_cut_off_goes_on_to_the_same_end(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["train", "addition", "--model", "stable-rnn", "--quiet", "--train.save_every", "2", *QUICK]
    assert program(*words, "--out", "whole").status == 0
    with monkeypatch.context() as patch:
        patch.setattr("steadyrnn.train.step.Stepper.step", _dies_at(4))
        assert program(*words, "--out", "cut").status == 1
    cut = only_run("cut")
    assert program("train", "--resume", str(cut.folder), "--quiet").status == 0
    whole, resumed = weights(only_run("whole"), "last"), weights(cut, "last")
    assert all(torch.equal(tensor, resumed[name]) for name, tensor in whole.items())
    assert cut.metrics()[-1]["reason"] == "finished"
    assert (cut.folder / "certificate.json").is_file()


def _dies_at(number: int):
    from steadyrnn.train.step import Stepper

    step = Stepper.step

    def dying(self: Stepper, at: int, *args: object, **kwargs: object) -> object:
        if at == number:
            raise MemoryError
        return step(self, at, *args, **kwargs)

    return dying


@pytest.mark.parametrize(
    ("words", "name"),
    [(["--model.width", "9"], "model.width"), (["--task.length", "9"], "task.length"), (["--train.steps", "9"], "train.steps")],
)
def test_a_run_is_not_resumed_with_other_settings(program: Program, words: list[str], name: str) -> None:
    program("train", "addition", "--quiet", *QUICK)
    done = program("train", "--resume", str(only_run().folder), *words)
    assert done.status == 1
    assert f"`{name}`" in done.err


def test_event_files_are_written_where_requested(program: Program) -> None:
    pytest.importorskip("tensorboard")
    assert program("train", "addition", "--tensorboard", *QUICK).status == 0
    assert list(only_run().folder.glob("events.out.tfevents*"))


def test_a_task_of_tokens_trains_and_is_certified_by_its_embedding(program: Program) -> None:
    done = program("train", "recall", "--model", "stable-rnn", "--model.tied", "false", "--json", *QUICK)
    assert done.status == 0, done.err
    assert done.json["certificate"]["input_bound"] is None
    assert done.json["certificate"]["certificate"]["stable"] is True


@needs_data
def test_a_network_without_time_trains_and_says_that_it_has_no_certificate(program: Program) -> None:
    words = ["--model.width", "8", "--model.depth", "2", "--train.steps", "2", "--train.batch_size", "16"]
    done = program("train", "mnist", "--model", "spectral-mlp", "--json", *words)
    assert done.status == 0, done.err
    assert done.json["certificate"]["certificate"] is None
    assert "without time" in done.json["certificate"]["reason"]


def test_a_model_that_does_not_fit_the_task_leaves_no_run_behind(program: Program) -> None:
    done = program("train", "addition", "--model", "mlp", "--task.length", "10")
    assert done.status == 1
    assert "which takes rows" in done.err
    assert not Path("runs").exists()


def test_a_run_loads_without_its_task(program: Program, runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("steadyrnn.jobs.loading.make_task", lambda *args, **kwargs: pytest.fail("the task was made"))
    trained = load_trained(runs / "addition" / "lstm")
    assert json.loads((trained.run.folder / "facts.json").read_text())["interface"]["outputs"] == 1
    assert not trained.model.training
