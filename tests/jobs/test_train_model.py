"""A run folder that was made in Python: every command of the program works on it."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from steadyrnn.certificates.certify import certify
from steadyrnn.errors import ArgumentError, ArgumentTypeError, RunError, SteadyError
from steadyrnn.jobs.certify import certify_run
from steadyrnn.jobs.evaluate import evaluate_run
from steadyrnn.jobs.loading import load_trained
from steadyrnn.jobs.recipes import configure
from steadyrnn.jobs.train import TrainedRun, train_network
from steadyrnn.jobs.train_model import train_model
from steadyrnn.layers.gru import GRU
from steadyrnn.layers.lstm import LSTM
from steadyrnn.layers.rnn import RNN
from steadyrnn.models.description import describe_model
from steadyrnn.models.mlp import MLP
from steadyrnn.models.sequence import SequenceModel
from steadyrnn.models.truncated import Truncated
from steadyrnn.runs.folder import Run
from steadyrnn.tasks.base import StoredData, Task
from steadyrnn.tasks.stored import restore_task
from steadyrnn.tasks.tensors import Part, TensorClassification
from steadyrnn.train.evaluation import evaluate
from steadyrnn.train.settings import ProbeSettings, TrainSettings
from steadyrnn.train.trainer import train
from tests.cli.program import Done, Program
from tests.jobs.python_runs import SETTINGS, D, N, Own, OwnTask, T, classes, model, numbers, part, rows
from tests.support.conversions import loaded

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> TrainedRun:
    """A run that nobody killed; nobody writes to it."""
    return train_model(model(), classes(), SETTINGS, tmp_path_factory.mktemp("runs"), name="waves", label="ball")


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Program:
    monkeypatch.chdir(tmp_path)
    return Program(capsys)


def on(program: Program, folder: Path, *words: str) -> Done:
    """Run a command on a folder: its first word is the command."""
    command, *rest = words
    return program(command, os.fspath(folder), *rest)


def test_the_folder_has_what_a_run_of_the_program_has(whole: TrainedRun) -> None:
    names = {path.name for path in whole.folder.iterdir()}
    wanted = {
        "config.json",
        "environment.json",
        "facts.json",
        "metrics.jsonl",
        "checkpoints",
        "certificate.json",
        "data",
        "lock",
    }
    assert names == wanted
    assert whole.folder.parent.name == "ball"
    facts = json.loads((whole.folder / "facts.json").read_text())
    assert (facts["metric"], facts["model"]) == ("accuracy", {"name": "ball"})
    assert "calibration" in json.loads((whole.folder / "environment.json").read_text())


@pytest.mark.parametrize("split", ["train", "validation", "test"])
def test_eval_scores_every_split(whole: TrainedRun, program: Program, split: str) -> None:
    done = on(program, whole.folder, "eval", "--split", split, "--json", "--device", "cpu")
    assert done.status == 0, done.err
    trained = load_trained(whole.folder)
    assert done.json["scores"] == evaluate(trained.model, classes(), split, SETTINGS.batch_size)
    assert split != "test" or done.json["scores"] == whole.result.test


def test_certify_proves_what_training_noted_and_proves_it_anew(whole: TrainedRun, program: Program) -> None:
    done = on(program, whole.folder, "certify", "--json")
    assert done.status == 0, done.err
    assert done.json["certificate"] == json.loads(json.dumps(whole.certificate["certificate"]))
    again = on(program, whole.folder, "certify", "--recheck")
    assert "proven anew of the weights in checkpoint best" in again.out


@pytest.mark.parametrize("form", ["unitary", "feedforward", "parallel", "torch"])
def test_convert_writes_every_form(whole: TrainedRun, program: Program, form: str) -> None:
    own = {"feedforward": ["--eps", "1e-6"], "parallel": ["--tol", "1e-6"]}.get(form, [])
    done = on(program, whole.folder, "convert", "--to", form, "--out", "made", *own)
    assert done.status == 0, done.err
    x, trained = classes().parts["validation"].input.double(), load_trained(whole.folder).model.double()
    expected = trained(x)[0].detach()
    found = loaded(Path("made")).double()(x)
    found = (found[0] if isinstance(found, tuple) else found).detach()
    gain = max(1.0, float(torch.linalg.matrix_norm(trained.readout.weight.detach(), 2)))
    rounding = 16 * T * 10 * torch.finfo(torch.float64).eps * max(float(expected.norm(dim=-1).max()), 1.0)
    assert (found - expected).norm(dim=-1).max() <= rounding + (1e-6 * gain if own else 0.0)


def test_report_shows_it(whole: TrainedRun, program: Program) -> None:
    assert on(program, whole.folder, "report").status == 0
    page = Path("report.html").read_text()
    assert "waves" in page
    assert "contraction" in page


def test_train_resume_says_where_it_goes_on(whole: TrainedRun, program: Program) -> None:
    done = program("train", "--resume", os.fspath(whole.folder))
    assert done.status == 1
    assert "train_model(model, task, settings, resume=folder)" in done.err
    assert "made in Python" in program("train", "addition", "--config", os.fspath(whole.folder / "config.json")).err


def test_a_name_of_the_program_is_not_taken_for_its_task(tmp_path: Path, program: Program) -> None:
    made = train_model(model(), classes(), SETTINGS, tmp_path, name="addition", label="rnn")
    assert on(program, made.folder, "eval", "--json").json["scores"] == made.result.test
    assert "made in Python" in program("train", "--resume", os.fspath(made.folder)).err


MODELS: dict[str, Callable[[], tuple[nn.Module, Task]]] = {
    "numbers of each step": lambda: (model(D, "each"), numbers()),
    "rows": lambda: (MLP(D, 5, D, 2, weight="spectral"), rows()),
    "truncated": lambda: (Truncated(model(), 3), classes()),
    "a layer of torch": lambda: (SequenceModel(nn.GRU(D, 4, bidirectional=True), N), classes()),
    "an LSTM": lambda: (SequenceModel(LSTM(D, 4, 2, transition="stable-lstm"), N), classes()),
    "a GRU before": lambda: (SequenceModel(GRU(D, 4, reset_after=False, transition={"n": "exp-lie"}), N), classes()),
    "a layer alone": lambda: (RNN(D, D, transition="ball"), numbers()),
    "double precision": lambda: (SequenceModel(RNN(D, 4, dtype=torch.float64), D, readout="each"), doubled()),
}


@pytest.mark.parametrize("name", ["spectral", "gru"])
def test_the_certificate_of_a_run_in_bfloat16_is_that_of_its_float32_weights(name: str, tmp_path: Path) -> None:
    settings = {"model.width": 4, "task.length": 5, "train.steps": 2, "train.batch_size": 8, "train.autocast": "bfloat16"}
    made = train_network(configure("addition", name, settings), tmp_path)
    model = load_trained(made.folder).model
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    bound = made.certificate["certificate"]["input_bound"]
    assert made.certificate["certificate"] == json.loads(json.dumps(certify(model, bound).to_dict()))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(parameter.bfloat16())
    assert made.certificate["certificate"] != json.loads(json.dumps(certify(model, bound).to_dict()))


def doubled() -> Task:
    task = numbers()
    task.parts = {name: Part(one.input.double(), one.target.double()) for name, one in task.parts.items()}
    return task


@pytest.mark.parametrize("kind", MODELS)
def test_other_models_and_tasks_are_scored_and_certified_too(kind: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    made = train_model(*MODELS[kind](), SETTINGS, tmp_path)
    assert evaluate_run(made.folder, device="cpu").scores == made.result.test
    if made.certificate["certificate"] is not None:
        found = certify_run(made.folder).certificate.to_dict()
        assert json.loads(json.dumps(found)) == json.loads(json.dumps(made.certificate["certificate"]))
    else:
        assert "without time" in made.certificate["reason"]
        with pytest.raises(SteadyError, match="is a network without time, model"):
            certify_run(made.folder)


def test_a_layer_alone_is_not_converted(tmp_path: Path, program: Program) -> None:
    made = train_model(*MODELS["a layer alone"](), SETTINGS, tmp_path)
    assert "is a RNN alone, but a whole model is converted" in on(program, made.folder, "convert", "--to", "torch").err


@pytest.mark.parametrize("readout", ["last", "each"])
@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("layer", [RNN, nn.LSTM])
def test_layouts_survive_a_conversion_to_torch(
    layer: Any, batch_first: bool, bidirectional: bool, readout: str, tmp_path: Path, program: Program
) -> None:
    x = torch.randn(T, T, D, dtype=torch.float64)  # of which T or N comes first cannot be told
    target = torch.zeros((T, T) if readout == "each" else T, dtype=torch.int64)
    task = TensorClassification(Part(x, target), Part(x, target), classes=N)
    whole_batch = replace(SETTINGS, steps=2, batch_size=T)
    rnn = layer(D, 4, batch_first=batch_first, bidirectional=bidirectional, dtype=torch.float64)
    made = train_model(SequenceModel(rnn, N, readout=readout, skip=True), task, whole_batch, tmp_path)
    done = on(program, made.folder, "convert", "--to", "torch", "--out", "made")
    assert done.status == 0, done.err
    x = torch.randn((3, 11, D) if batch_first else (11, 3, D), dtype=torch.float64)
    found, expected = loaded(Path("made"))(x)[0], load_trained(made.folder).model(x)[0]
    assert found.shape == expected.shape
    assert float((found - expected).norm()) <= 16 * 11 * torch.finfo(torch.float64).eps * float(expected.norm())


def test_a_model_of_ones_own_is_trained_and_the_folder_says_why_that_is_all(tmp_path: Path, program: Program) -> None:
    made = train_model(Own(), classes(), SETTINGS, tmp_path)
    assert made.certificate["certificate"]["stable"]  # of the layer inside, for any inputs of its own
    assert made.certificate["certificate"]["input_bound"] is None
    for command in (["certify"], ["convert", "--to", "torch"], ["eval"], ["certify", "--recheck"]):
        done = on(program, made.folder, *command)
        assert done.status == 1
        assert "tests.jobs.python_runs.Own, which can be made in Python only" in done.err
        assert "load_weights(model" in done.err
    assert on(program, made.folder, "report").status == 0


def test_a_task_of_ones_own_is_not_stored_and_eval_says_so(tmp_path: Path, program: Program) -> None:
    made = train_model(model(), OwnTask(), SETTINGS, tmp_path)
    assert not (made.folder / "data").exists()
    done = on(program, made.folder, "eval")
    assert done.status == 1
    assert "its task, tests.jobs.python_runs.OwnTask, was in memory and was not stored" in done.err
    for command in (["certify"], ["convert", "--to", "torch"], ["report"]):
        assert on(program, made.folder, *command).status == 0


class Renamed(TensorClassification):
    """A subclass, which may score otherwise."""


def test_a_subclass_of_a_task_is_not_stored_as_its_base() -> None:
    assert Renamed(part(4, 0), part(4, 0)).stored() is None


def test_data_are_left_out_on_request(tmp_path: Path) -> None:
    made = train_model(model(), classes(), SETTINGS, tmp_path, keep_data=False)
    assert not (made.folder / "data").exists()
    with pytest.raises(RunError, match=r"train on a TensorClassification .* with `keep_data=True`"):
        evaluate_run(made.folder)


def test_equal_splits_are_stored_once(tmp_path: Path) -> None:
    one = part(6, 0)
    made = train_model(model(), TensorClassification(one, one), SETTINGS, tmp_path)
    table = json.loads((made.folder / "data" / "checkpoint.json").read_text())["content"]["tensors"]
    assert sum("alias" in entry for entry in table.values()) == 6
    assert evaluate_run(made.folder, "validation", device="cpu").scores == made.result.best


@pytest.mark.parametrize("make", [classes, numbers, rows], ids=lambda make: make.__name__)
def test_a_stored_task_comes_back(make: Callable[[], Task]) -> None:
    task = make()
    stored = task.stored()
    assert stored is not None
    again = restore_task(stored)
    assert (type(again), again.interface, again.baselines) == (type(task), task.interface, task.baselines)
    for step in (0, 3):
        a, b = task.train_batch(step, 4), again.train_batch(step, 4)
        assert torch.equal(a.input, b.input)
        assert torch.equal(a.target, b.target)
        assert (a.lengths is None) == (b.lengths is None)


def stored_with(**changes: Any) -> StoredData:
    stored = classes().stored()
    assert stored is not None
    tensors: dict[str, Tensor] = {**stored.tensors, **changes.pop("tensors", {})}
    return replace(stored, tensors={k: v for k, v in tensors.items() if v is not None}, **changes)


HOSTILE_DATA: dict[str, dict[str, Any]] = {
    "another kind": {"kind": "os:system"},
    "facts missing": {"facts": {"seed": 0}},
    "facts too many": {"facts": {"seed": 0, "classes": N, "path": "/"}},
    "facts of another type": {"facts": {"seed": 0, "classes": "many"}},
    "a negative seed": {"facts": {"seed": -1, "classes": N}},
    "a tensor missing": {"tensors": {"train.input": None}},
    "a tensor too many": {"tensors": {"other": torch.zeros(1)}},
    "another shape": {"tensors": {"test.input": torch.zeros(1)}},
    "another dtype": {"tensors": {"test.target": torch.zeros(9)}},
    "an entry that is no number": {"tensors": {"test.input": torch.full((T, 9, D), torch.nan)}},
    "classes out of range": {"tensors": {"test.target": torch.full((9,), 10**12)}},
}


@pytest.mark.parametrize("case", HOSTILE_DATA)
def test_data_that_are_those_of_no_task_are_refused(case: str) -> None:
    with pytest.raises(SteadyError):
        restore_task(stored_with(**HOSTILE_DATA[case]))


def test_damaged_data_are_refused(whole: TrainedRun, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(whole.folder, tmp_path / "copy"))
    (file,) = (copy / "data").glob("*.safetensors")
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    with pytest.raises(SteadyError, match="is damaged: its checksum does not fit"):
        evaluate_run(copy)
    shutil.rmtree(copy / "data")
    with pytest.raises(RunError, match="has lost its data"):
        evaluate_run(copy)


def test_data_of_another_run_are_refused(whole: TrainedRun, tmp_path: Path) -> None:
    other = train_model(model(), classes(), replace(SETTINGS, steps=2), tmp_path)
    shutil.rmtree(other.folder / "data")
    shutil.copytree(whole.folder / "data", other.folder / "data")
    with pytest.raises(SteadyError, match=r"The folder `data` of .* was not saved with the `config.json`"):
        evaluate_run(other.folder)


def forge(tmp_path: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """Make a run whose configuration came from somebody else: its checkpoint fits its config.json."""
    made = model()
    config: dict[str, Any] = {
        "made_by": "train_model", "task": {"name": "waves", "class": "x", "data": "stored"},
        "model": {"name": "ball", **describe_model(made)}, "train": asdict(SETTINGS),
    }  # fmt: skip
    change(config)
    with Run.create(tmp_path, "waves", "ball", config) as run:
        run.save("best", {f"model.{name}": tensor for name, tensor in made.state_dict().items()}, {"step": 1})
    return run.folder


def put(path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    """Return a change of one value at a dotted place."""

    def change(config: dict[str, Any]) -> None:
        *parts, last = path.split(".")
        for one in parts:
            config = config[one]
        config[last] = value

    return change


def nested(depth: int) -> Any:
    return [nested(depth - 1)] if depth else 1


LAYER = "model.arguments.rnn.arguments"
FORGED: dict[str, Callable[[dict[str, Any]], None]] = {
    "an unknown class": put("model.module", "os.system"),
    "a class of another type": put("model.module", {"a": 1}),
    "no arguments": put("model.arguments", None),
    "a huge size": put(f"{LAYER}.hidden_size", 10**12),
    "many layers": put(f"{LAYER}.num_layers", 10**8),
    "text as a size": put(f"{LAYER}.hidden_size", "5"),
    "deep nesting": put(f"{LAYER}.bias", nested(60)),
    "another model": put("model.arguments.skip", True),
    "no format": put("model.format", None),
    "a reason that is no text": put("model.reason", [1]),
    "settings of another type": put("train.steps", "all"),
    "settings that are none": put("train.other", 1),
    "a mark of another type": put("made_by", ["train_model"]),
}


@pytest.mark.parametrize("case", FORGED)
def test_a_hostile_configuration_is_refused_in_a_sentence(case: str, tmp_path: Path) -> None:
    with pytest.raises(SteadyError) as raised:
        load_trained(forge(tmp_path, FORGED[case]))
    assert len(str(raised.value)) < 1200


def test_a_forged_run_with_no_change_loads(tmp_path: Path) -> None:
    load_trained(forge(tmp_path, lambda config: None))


@pytest.mark.parametrize("step", [0, 1, 5])
def test_a_killed_run_ends_as_the_run_that_nobody_killed(whole: TrainedRun, step: int, tmp_path: Path) -> None:
    paths = os.pathsep.join([str(ROOT), str(ROOT / "src")])
    words = [sys.executable, "-m", "tests.jobs.python_runs", os.fspath(tmp_path), str(step)]
    done = subprocess.run(words, cwd=ROOT, env={**os.environ, "PYTHONPATH": paths}, check=False, timeout=300)
    assert done.returncode == -signal.SIGKILL
    (folder,) = (tmp_path / "waves" / "ball").iterdir()
    if step == 0:
        shutil.rmtree(folder / "data")  # as if the kill had come before
    again = train_model(model(), classes(), SETTINGS, resume=folder)
    assert (again.result.test, again.result.best, again.certificate) == (
        whole.result.test,
        whole.result.best,
        whole.certificate,
    )
    ours, theirs = (Run.open(one).load("best").tensors for one in (again.folder, whole.folder))
    assert all(torch.equal(tensor, theirs[name]) for name, tensor in ours.items())
    assert evaluate_run(folder, device="cpu").scores == whole.result.test


OTHERS: dict[str, tuple[Callable[[], dict[str, Any]], str]] = {
    "another model": (
        lambda: {"model": model(bias=False)},
        r"is another one: `model.arguments.*bias`",
    ),
    "another order": (lambda: {"task": TensorClassification(part(12, 0), part(6, 1), part(9, 2))}, "`task.seed` is 3 there"),
    "other data": (lambda: {"task": TensorClassification(part(12, 5), part(6, 1), part(9, 2), seed=3)}, "data of .* are other"),
    "another task": (lambda: {"task": OwnTask()}, "The task of the run to resume is another one"),
    "other settings": (lambda: {"settings": replace(SETTINGS, steps=9)}, "`train.steps` is 8 there and 9 here"),
}


@pytest.mark.parametrize("case", OTHERS)
def test_a_run_goes_on_with_its_own_objects_only(case: str, whole: TrainedRun) -> None:
    make, message = OTHERS[case]
    given: dict[str, Any] = {"model": model(), "task": classes(), "settings": SETTINGS, **make()}
    with pytest.raises(RunError, match=message):
        train_model(**given, resume=whole.folder)


def test_a_run_of_another_origin_is_not_resumed(tmp_path: Path) -> None:
    with Run.create(tmp_path, "a", "b", by_hand()) as run:
        pass
    with pytest.raises(RunError, match="was not made by `train_model`"):
        train_model(model(), classes(), SETTINGS, resume=run.folder)


def test_a_mistake_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(ArgumentTypeError, match="`task` must be a Task"):
        train_model(model(), None, SETTINGS, tmp_path)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="`penalty` has no effect"):
        train_model(model(), classes(), replace(SETTINGS, penalty=2.0), tmp_path)
    with pytest.raises(SteadyError, match="must have shape"):
        train_model(model(D), numbers(), SETTINGS, tmp_path)
    with pytest.raises(ArgumentError, match="`task` must be a name"):
        train_model(model(), classes(), SETTINGS, tmp_path, name="../up")
    assert not list(tmp_path.iterdir())


def test_probes_measure_as_in_runs_of_the_program(tmp_path: Path) -> None:
    settings = replace(SETTINGS, probe=ProbeSettings(every=4, names=("spectrum",)))
    made = train_model(model(), classes(), settings, tmp_path)
    assert [line["step"] for line in Run.open(made.folder).metrics() if line["kind"] == "probe"] == [0, 4, 8]


def by_hand(**names: str) -> dict[str, Any]:
    return {"task": {"name": "waves"}, "model": {"name": "spectral"}, "train": asdict(SETTINGS)} | {
        part: {"name": name} for part, name in names.items()
    }


@pytest.mark.parametrize("names", [{}, {"task": "addition", "model": "own"}, {"task": "addition", "model": "rnn"}], ids=str)
def test_a_folder_made_by_hand_says_what_it_lacks(names: dict[str, str], tmp_path: Path, program: Program) -> None:
    with Run.create(tmp_path, "waves", "spectral", by_hand(**names)) as run:
        train(model(), classes(), SETTINGS, run=run)
    for command in (["eval"], ["certify"], ["convert", "--to", "torch"]):
        done = on(program, run.folder, *command)
        assert done.status == 1
        assert "steadyrnn.jobs.train_model.train_model(model, task, settings)" in done.err
    assert on(program, run.folder, "report").status == 0
    if not names:
        assert "Run.open(folder, write=True), resume=True)" in program("train", "--resume", os.fspath(run.folder)).err


def test_settings_have_defaults(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("steadyrnn.jobs.train_model.TrainSettings", lambda: TrainSettings(steps=1, device="cpu"))
    assert train_model(model(), classes(), out=tmp_path).result.steps == 1
