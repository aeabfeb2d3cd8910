"""The program on a file of one's own: from what is understood of it to a network, its scores, its proof and other forms."""

import csv
import json
import os
import shlex
import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from steadyrnn.runs.folder import Run
from steadyrnn.train.step import Stepper
from tests.cli.program import Done, Program
from tests.cli.series_files import QUICK, WAVES, steps_of_one, waves

KINDS = {
    "classes of series": WAVES,
    "classes of steps": ["long.csv", "--target", "label", "--window", "8"],
    "classes of a stream": ["long.csv", "--target", "label", "--bptt", "8"],
    "numbers of steps": ["long.csv", "--target", "level"],
    "a forecast": ["long.csv", "--channels", "x,y", "--horizon", "2"],
    "a forecast of a stream": ["long.csv", "--channels", "x,y", "--horizon", "2", "--bptt", "8"],
}


@pytest.fixture(autouse=True)
def files(program: Program) -> None:
    waves()
    steps_of_one()


def trained(program: Program, *words: str) -> dict[str, Any]:
    done = program("train", *words, *QUICK, "--json")
    assert done.status == 0, done.err
    return done.json  # type: ignore[no-any-return]


def weights(folder: str | Path, name: str = "last") -> torch.Tensor:
    tensors = Run.open(Path(folder)).load(name).tensors
    return torch.cat([tensor.flatten().double() for _, tensor in sorted(tensors.items())])


def complains(done: Done, status: int, message: str) -> None:
    """Check for one sentence on stderr and nothing else."""
    assert (done.status, done.out) == (status, ""), done
    assert message in done.err, done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_is_evaluated_certified_and_reported(program: Program, kind: str) -> None:
    found = trained(program, *KINDS[kind])
    run = found["run"]
    scored = program("eval", run, "--json", "--device", "cpu").json
    assert scored["scores"] == pytest.approx(found["result"]["test"])
    assert scored["baselines"] == pytest.approx(found["baselines"])
    assert program("eval", run, "--split", "validation", "--json").status == 0
    assert program("certify", run, "--json").json["certificate"] is not None
    assert program("report", run, "--out", "page.html").status == 0
    assert Path("page.html").stat().st_size > 1000
    assert [*found["references"]][-1] == "linear model"


@pytest.mark.parametrize(
    ("model", "target"),
    [("gru", "torch"), ("lstm", "torch"), ("stable-spectral", "feedforward"), ("stable-spectral", "parallel")],
)
def test_a_run_is_converted(program: Program, model: str, target: str) -> None:
    run = trained(program, *WAVES, "--model", model, "--model.readout", "mean")["run"]
    assert Run.open(Path(run)).config["model"]["readout"] == "mean"
    done = program("convert", run, "--to", target, "--out", "converted")
    assert done.status == 0, done.err
    assert "self-check: outputs differ by at most" in done.out
    assert Path("converted/load.py").is_file()


@pytest.mark.parametrize(
    ("model", "target"), [("stable-spectral", "unitary"), ("stable-spectral", "torch"), ("gru", "unitary")]
)
def test_what_has_no_such_form_is_one_sentence(program: Program, model: str, target: str) -> None:
    run = trained(program, *WAVES, "--model", model)["run"]
    complains(program("convert", run, "--to", target, "--out", "converted"), 1, "`rnn`")
    assert not Path("converted").exists()


def test_a_network_of_units_that_clip_becomes_unitary(program: Program) -> None:
    run = trained(program, *WAVES, "--model", "contractive")["run"]
    done = program("convert", run, "--to", "unitary", "--out", "converted")
    assert done.status == 0, done.err


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_understood_is_described(program: Program, kind: str) -> None:
    done = program("data", "describe", *KINDS[kind], "--json")
    assert done.status == 0, done.err
    assert done.json["problem"] is None
    assert {*done.json["parts"]} == {"train", "validation", "test"}
    folder = Path(trained(program, *KINDS[kind])["run"])
    facts = json.loads((folder / "facts.json").read_text(encoding="utf-8"))
    assert done.json["interface"] == facts["interface"]
    for part, noted in facts["data"]["parts"].items():
        assert {name: done.json["parts"][part][name] for name in noted} == noted


def test_the_words_that_are_said_next_train(program: Program) -> None:
    done = program("data", "describe", *KINDS["classes of steps"])
    (line,) = (line for line in done.out.splitlines() if line.startswith("next: "))
    words = shlex.split(line.removeprefix("next: steadyrnn "))
    assert program(*words, *QUICK, "--quiet").status == 0


FAULTS = {
    "no file": (["nowhere.csv"], "nowhere.csv"),
    "no such column": (["waves.csv", "--target", "price"], "price"),
    "an empty file": (["empty.csv"], "empty.csv"),
    "no format": (["notes.xyz"], "notes.xyz"),
}


@pytest.mark.parametrize("case", FAULTS)
@pytest.mark.parametrize("command", ["describe", "train"])
def test_a_file_that_cannot_be_read_is_one_sentence(program: Program, command: str, case: str) -> None:
    Path("empty.csv").write_text("", encoding="utf-8")
    Path("notes.xyz").write_text("hello", encoding="utf-8")
    words, message = FAULTS[case]
    complains(program(*(["data", "describe"] if command == "describe" else ["train"]), *words), 3, message)
    assert not Path("runs").exists()


def test_what_hinders_training_is_said_before_it(program: Program) -> None:
    Path("holes.csv").write_text("x,y\n" + "".join(f"{n},{'' if n % 7 == 3 else n}\n" for n in range(60)), encoding="utf-8")
    done = program("data", "describe", "holes.csv", "--horizon", "1", "--json")
    assert done.status == 0
    assert "values are missing" in done.json["problem"]
    assert [channel["missing"] for channel in done.json["channels"]] == [0, 9]
    complains(program("train", "holes.csv", "--horizon", "1", *QUICK), 3, "missing")
    for way in ("mask", "interpolate"):
        assert program("data", "describe", "holes.csv", "--horizon", "1", "--missing", way, "--json").json["problem"] is None
        assert program("train", "holes.csv", "--horizon", "1", "--missing", way, *QUICK, "--quiet").status == 0
    open_target = program("data", "describe", "waves.csv", "--series", "id", "--json").json
    assert "`target`" in open_target["problem"]


@pytest.mark.parametrize(("want", "model"), [("memory", "spectral"), ("stability", "stable-spectral"), ("speed", "spectral")])
def test_a_wish_chooses_a_model_and_says_why(program: Program, want: str, model: str) -> None:
    found = trained(program, *WAVES, "--want", want)
    assert found["configuration"]["model"]["name"] == model
    assert f"--want {want}" in found["model_choice"]
    assert "of 4 units" in found["model_choice"]
    again = trained(program, *WAVES, "--model", "auto", "--want", want)
    assert again["configuration"]["model"] == found["configuration"]["model"]


WRONG = {
    "a wish and a model": ([*WAVES, "--want", "memory", "--model", "gru"], "--want and --model cannot both be given"),
    "no such wish": ([*WAVES, "--want", "beauty"], "beauty"),
    "a wish for a task": (["addition", "--want", "memory"], "--want belongs to data of your own"),
    "no such model": ([*WAVES, "--model", "transformer"], "transformer"),
    "models twice": ([*WAVES, "--models", "gru,gru"], "--models must name different models"),
    "an empty name": ([*WAVES, "--models", "gru,"], "there is no model ''"),
    "models and a wish": ([*WAVES, "--models", "gru,lstm", "--want", "speed"], "--models and --want cannot both be given"),
    "models to print": ([*WAVES, "--models", "gru,lstm", "--print_config"], "cannot both be given"),
    "seeds of a seed": ([*WAVES, "--seed", "0..1", "--train.seed", "3"], "cannot both be given"),
    "horizon in words": ([*WAVES, "--horizon", "two"], "horizon"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_words_are_refused_with_status_2(program: Program, case: str) -> None:
    words, message = WRONG[case]
    complains(program("train", *words), 2, message)
    assert not Path("runs").exists()


CONTRADICTIONS = {
    "horizon of classes": (
        ["long.csv", "--target", "level", "--horizon", "2", "--task.kind", "classification"],
        "`horizon` belongs to forecasting",
    ),
    "bptt and window": (["long.csv", "--target", "label", "--bptt", "4", "--window", "4"], "cannot both be given"),
    "nothing to train on": ([*WAVES, "--task.validation", "0.6", "--task.test", "0.6"], "leave something to train on"),
    "no such kind": ([*WAVES, "--task.kind", "magic"], "magic"),
}


@pytest.mark.parametrize("case", CONTRADICTIONS)
def test_settings_that_contradict_the_data_are_one_sentence(program: Program, case: str) -> None:
    words, message = CONTRADICTIONS[case]
    complains(program("train", *words, *QUICK), 1, message)
    assert not Path("runs").exists()


def test_printed_settings_train_the_same_network(program: Program) -> None:
    done = program("train", *WAVES, *QUICK, "--print_config")
    assert done.status == 0
    Path("waves.yaml").write_text(done.out, encoding="utf-8")
    again = program("train", "--config", "waves.yaml", "--json")
    assert again.status == 0, again.err
    first = trained(program, *WAVES)
    assert again.json["configuration"] == first["configuration"]
    assert torch.equal(weights(again.json["run"]), weights(first["run"]))
    stored = Path(first["run"], "config.json")
    assert program("train", "--config", str(stored), "--quiet").status == 0


def test_only_the_answer_is_on_stdout(program: Program) -> None:
    quiet = program("train", *WAVES, *QUICK, "--quiet")
    assert quiet.err == ""
    assert Path(quiet.out.strip()).is_dir()
    loud = program("train", *WAVES, *QUICK)
    assert "split by series" in loud.err + loud.out
    assert "stable-spectral" in loud.out


def test_a_file_that_moved_is_named_and_one_that_changed_is_refused(program: Program) -> None:
    found = trained(program, *WAVES)
    Path("elsewhere").mkdir()
    Path("waves.csv").rename("elsewhere/data.csv")
    complains(program("eval", found["run"]), 3, "waves.csv")
    moved = program("eval", found["run"], "--data", "elsewhere/data.csv", "--json").json
    assert moved["split"] == "test"
    assert moved["scores"] == pytest.approx(found["result"]["test"])
    waves(seed=1)
    complains(program("eval", found["run"]), 1, "was trained on other data")
    other = program("eval", found["run"], "--data", "waves.csv", "--json").json
    assert other["split"] == "all of waves.csv"
    for command in (["certify", found["run"]], ["report", found["run"], "--out", "page.html"]):
        assert program(*command).status == 0


def test_other_data_must_have_the_channels_and_classes_of_the_training(program: Program) -> None:
    run = trained(program, *WAVES)["run"]
    text = Path("waves.csv").read_text(encoding="utf-8")
    Path("other.csv").write_text(text.replace("x,y", "x,z"), encoding="utf-8")
    refusal = "other.csv must have the channels of the training series, x, y, but has 'z' and no 'y'"
    complains(program("eval", run, "--data", "other.csv"), 3, refusal)
    Path("other.csv").write_text(text.replace(",a\n", ",c\n"), encoding="utf-8")
    complains(program("eval", run, "--data", "other.csv"), 3, "other.csv` has the class 'c'")
    one = [text.splitlines()[0], *(line for line in text.splitlines() if line.endswith(",a"))]
    Path("other.csv").write_text("\n".join(one) + "\n", encoding="utf-8")
    assert program("eval", run, "--data", "other.csv", "--json").status == 0  # one class alone can be scored
    addition = program("train", "addition", "--task.length", "5", *QUICK[:-2], "--quiet").out.strip()
    complains(program("eval", addition, "--data", "waves.csv"), 1, "was not trained on a file of your own")


def interrupt(monkeypatch: pytest.MonkeyPatch, at: int) -> None:
    step = Stepper.step

    def cut(self: Stepper, number: int, *arguments: Any, **more: Any) -> Any:
        if number == at:
            os.kill(os.getpid(), signal.SIGINT)
        return step(self, number, *arguments, **more)

    monkeypatch.setattr(Stepper, "step", cut)


@pytest.mark.parametrize("kind", ["classes of series", "classes of a stream", "a forecast"])
def test_a_run_that_was_cut_off_goes_on_bit_for_bit(program: Program, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    whole = trained(program, *KINDS[kind], "--out", "whole")
    with monkeypatch.context() as patch:
        interrupt(patch, 3)
        done = program("train", *KINDS[kind], *QUICK)
    assert done.status == 130
    (folder,) = (path.parent for path in Path("runs").rglob("config.json"))
    again = program("train", "--resume", str(folder), "--json")
    assert again.status == 0, again.err
    assert again.json["result"]["test"] == whole["result"]["test"]
    assert torch.equal(weights(folder), weights(whole["run"]))
    ours, theirs = (json.loads((Path(path) / "facts.json").read_text()) for path in (folder, whole["run"]))
    assert ours == theirs


def test_a_run_does_not_go_on_with_a_changed_file(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        interrupt(patch, 3)
        assert program("train", *WAVES, *QUICK).status == 130
    (folder,) = (path.parent for path in Path("runs").rglob("config.json"))
    waves(seed=1)
    complains(program("train", "--resume", str(folder), "--quiet"), 1, "was trained on other data")


def test_several_seeds_go_on_bit_for_bit_and_not_with_a_changed_file(program: Program, monkeypatch: pytest.MonkeyPatch) -> None:
    words = [*WAVES, *QUICK, "--seed", "0..1", "--train.accumulate", "2"]
    whole = program("train", *words, "--json", "--out", "whole").json
    with monkeypatch.context() as patch:
        interrupt(patch, 3)
        done = program("train", *words)
    assert done.status == 130, done.err
    (folder,) = Path("runs/waves/stable-spectral").iterdir()
    text = Path("waves.csv").read_text(encoding="utf-8")
    waves(seed=1)
    complains(program("train", "--resume", str(folder), "--quiet"), 1, "was trained on other data")
    Path("waves.csv").write_text(text, encoding="utf-8")
    again = program("train", "--resume", str(folder), "--json")
    assert again.status == 0, again.err
    for seed in ("0", "1"):
        assert torch.equal(weights(again.json["runs"][seed]["run"]), weights(whole["runs"][seed]["run"]))


def test_several_seeds_as_a_group_each_have_their_own_run(program: Program) -> None:
    done = program("train", *WAVES, *QUICK, "--seed", "0..1", "--json")
    assert done.status == 0, done.err
    runs = done.json["runs"]
    assert [*runs] == ["0", "1"]
    alone = trained(program, *WAVES, "--seed", "1", "--out", "alone")
    own = weights(alone["run"])  # that a member ends as it would alone, up to rounding, has a test of its own
    near, far = (float((weights(runs[seed]["run"]) - own).norm()) for seed in ("1", "0"))
    assert near < far * torch.finfo(torch.float32).eps ** 0.5
    assert done.json["references"] == alone["references"]
    assert "linear" in program("train", *WAVES, *QUICK, "--seed", "0..1").out


@pytest.mark.parametrize("command", ["train", "compare"])
def test_models_are_compared_in_one_table_and_one_page(program: Program, command: str) -> None:
    done = program(command, *WAVES, *QUICK, "--models", "gru,spectral", "--seed", "0..1", "--json")
    assert done.status == 0, done.err
    folder = Path(done.json["folder"])
    names = [row["name"] for row in done.json["rows"]]
    assert {*names[:2]} == {"gru", "spectral"}
    assert names[2:] == ["commonest class", "linear model"]
    with (folder / "table.csv").open(encoding="utf-8", newline="") as file:
        table = list(csv.DictReader(file))
    assert [line["model"] for line in table] == names
    for line, row in zip(table, done.json["rows"], strict=True):
        assert float(line["test accuracy"]) == pytest.approx(row["test"]["accuracy"], rel=1e-5)
        assert line["seeds"] == (str(len(row["runs"])) if row["runs"] else "")
    tests = [program("eval", run, "--json").json["scores"]["accuracy"] for run in done.json["rows"][0]["runs"]]
    assert done.json["rows"][0]["test"]["accuracy"] == pytest.approx(sum(tests) / 2)
    latex = (folder / "table.tex").read_text(encoding="utf-8")
    assert latex.count(r"\\") == len(names) + 1
    assert all(line.count("&") == latex.splitlines()[2].count("&") for line in latex.splitlines()[4:-2])
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "gru" in page
    assert "spectral" in page
    assert json.loads((folder / "table.json").read_text(encoding="utf-8"))["metric"] == done.json["metric"]


def test_models_after_one_option_are_compared_too(program: Program) -> None:
    done = program("train", *WAVES, *QUICK, "--model", "lstm,auto", "--json")
    assert done.status == 0, done.err
    assert {row["name"] for row in done.json["rows"] if row["runs"]} == {"lstm", "stable-spectral"}


@pytest.mark.parametrize("name", ["héllo wörld.csv", "..hidden.csv", "a,b=c.csv", "日本.csv", "-dash.csv"])
def test_a_file_may_have_any_name(program: Program, name: str) -> None:
    waves(name)
    found = trained(program, f"./{name}", *WAVES[1:])
    assert Path(found["run"]).is_relative_to("runs")
    assert program("eval", found["run"], "--json").json["scores"] == pytest.approx(found["result"]["test"])


def test_test_series_of_a_file_of_their_own(program: Program) -> None:
    waves("more.csv", 6, seed=3)
    found = trained(program, *WAVES, "--test-data", "more.csv")
    facts = json.loads(Path(found["run"], "facts.json").read_text(encoding="utf-8"))
    assert facts["data"]["parts"]["test"] == {"runs": 6, "steps": 54}
    assert [Path(file["path"]).name for file in facts["data"]["files"]] == ["waves.csv", "more.csv"]
    again = program("eval", found["run"], "--data", "waves.csv", "--json").json
    assert (again["split"], again["scores"]) == ("test", pytest.approx(found["result"]["test"]))
    whole = program("eval", found["run"], "--data", "more.csv", "--json").json
    assert (whole["split"], whole["scores"]) == ("all of more.csv", pytest.approx(found["result"]["test"]))


def test_scores_of_training_are_not_called_validation(program: Program) -> None:  # there are too few series to hold some out
    assert "training accuracy" in program("train", *WAVES, *QUICK).out
    assert "training accuracy" in program("compare", *WAVES, *QUICK, "--models", "gru").out
    _, table = program("train", *WAVES, *QUICK, "--seeds", "0,1").out.split("2 of 2 seeds")
    assert "training" in table
    assert "validation" not in table
    held_out = program("train", *WAVES, *QUICK, "--task.validation", "0.2").out
    assert "validation accuracy" in held_out
    assert "training accuracy" not in held_out
