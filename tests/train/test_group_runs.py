"""The run folders of a group: what training each member alone would have written, also after an interruption."""

import math
import os
import signal
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from steadyrnn.errors import CheckpointError, RunError
from steadyrnn.layers.rnn import RNN
from steadyrnn.models.group import group
from steadyrnn.models.sequence import SequenceModel
from steadyrnn.runs.checkpoint import load_checkpoint, save_checkpoint
from steadyrnn.runs.folder import Run
from steadyrnn.tasks.base import Task
from steadyrnn.tasks.tensors import Part, TensorRegression
from steadyrnn.train.group_runs import GroupRuns
from steadyrnn.train.grouped import GroupResult, train_group
from steadyrnn.train.progress import Silent
from steadyrnn.train.result import read_result
from steadyrnn.train.settings import ClipSettings, OptimizerSettings, ProbeSettings, StopSettings, TrainSettings
from steadyrnn.train.signals import Interrupted
from steadyrnn.train.trainer import train
from tests.support.errors import distance, unit_roundoff
from tests.train.runs import BreakAt, Broken, addition, differences, lines, new_run, noisy_probe, tiny

SEEDS = (3, 0, 7)
SETTINGS = tiny(optimizer=OptimizerSettings(lr=1e-2), probe=ProbeSettings(every=7))
STOPPING = replace(SETTINGS, steps=30, validate_every=2, stop=StopSettings(patience=1), optimizer=OptimizerSettings(lr=0.3))
"""Settings with which the members stop at different steps."""
BROKEN = 1
"""The place of a member that fails, where one is to fail."""


def make_model(seed: int, transition: str = "spectral") -> SequenceModel:
    torch.manual_seed(seed)
    return SequenceModel(RNN(2, 6, transition=transition), 1)


def make_folders(root: Path, settings: TrainSettings) -> list[Path]:
    folders = []
    for seed in SEEDS:
        with new_run(root / str(seed), replace(settings, seed=seed)) as run:
            folders.append(run.folder)
    return folders


def make_runs(runs: Sequence[Run], seeds: Sequence[int], folder: Path) -> GroupRuns:
    return GroupRuns(runs, seeds, folder, [{"noise": noisy_probe}] * len(runs))


class Failing(Silent):
    """Spoils the weights of a member after a step, and may break the run off later."""

    def __init__(self, models: nn.Module, at: int, then: Silent | None = None) -> None:
        self.group, self.at, self.then = models, at, then

    def update(self, step: int, values: Any) -> None:
        if step == self.at:
            self.group.members[BROKEN].readout.weight.data.fill_(math.nan)  # type: ignore[union-attr]
        if self.then is not None:
            self.then.update(step, values)


def go(
    folders: Sequence[Path],
    settings: TrainSettings = SETTINGS,
    progress: Silent | None = None,
    transition: str = "spectral",
    fails: int | None = None,
    seeds: Sequence[int] = SEEDS,
) -> GroupResult:
    """Start or resume the group in some folders; where it resumes, first weights must not matter."""
    many = group([make_model(seed, transition) for seed in seeds])
    runs = [Run.open(folder, write=True) for folder in folders]
    shown = progress if fails is None else Failing(many, fails, progress)
    try:
        return train_group(
            many, addition(), settings, progress=shown, runs=make_runs(runs, seeds, folders[0].parents[3] / "group")
        )
    finally:
        for run in runs:
            run.close()


def alone(root: Path, seed: int, settings: TrainSettings, transition: str, dtype: torch.dtype) -> Run:
    settings = replace(settings, seed=seed)
    with new_run(root, settings) as run:
        train(make_model(seed, transition).to(dtype), drawn(dtype), settings, run=run, callbacks={"noise": noisy_probe})
    return run


def drawn(dtype: torch.dtype) -> Task:
    """Return a task in a dtype, with the same numbers in each."""
    x = torch.randn(7, 12, 2, generator=torch.Generator().manual_seed(0)).to(dtype)
    part = Part(x, x.sum(0)[:, :1].tanh())
    return TensorRegression(part, Part(x[:, :4], part.target[:4]))


def numbers(run: Run) -> Tensor:
    """Return all numbers of a run's lines and of its checkpoints, times and random states apart."""
    told = [value for line in lines(run) for value in (*line.values(), *line.get("value", {}).values())]
    found = [value for value in told if isinstance(value, float)]
    tensors = [
        tensor for name in ("best", "last") for key, tensor in sorted(run.load(name).tensors.items()) if "random" not in key
    ]
    return torch.cat([torch.tensor(found, dtype=torch.float64), *(tensor.double().flatten() for tensor in tensors)])


def form(run: Run) -> Any:
    """Return the names of all that a run holds, and what is no number."""
    told = [{key: None if isinstance(value, float | dict) else value for key, value in line.items()} for line in lines(run)]
    stored = [run.load(name) for name in ("best", "last")]
    named = [{key: (tensor.dtype, tensor.shape) for key, tensor in sorted(one.tensors.items())} for one in stored]
    files = sorted(path.name for path in run.folder.iterdir())
    return told, named, [(one.facts.keys(), one.facts["settings"]) for one in stored], files


WAYS = {
    **{f"{name}, to the end": (name, SETTINGS) for name in ("free", "spectral", "polar", "exp-lie")},
    **{f"{name}, early stops": (name, STOPPING) for name in ("free", "spectral", "polar", "exp-lie")},
    **{f"{name}, clipped": (name, replace(SETTINGS, clip=ClipSettings(recurrent=0.01))) for name in ("free", "polar", "ball")},
}


@pytest.mark.parametrize(("transition", "settings"), WAYS.values(), ids=WAYS)
def test_a_folder_is_what_training_alone_would_have_written(tmp_path: Path, transition: str, settings: TrainSettings) -> None:
    """How much a run makes of its roundings is measured, float32 against float64, as in the tests of the group."""
    folders = make_folders(tmp_path / "group", settings)
    many = group([make_model(seed, transition).double() for seed in SEEDS])
    runs = [Run.open(folder, write=True) for folder in folders]
    train_group(many, drawn(torch.float64), settings, runs=make_runs(runs, SEEDS, tmp_path / "checkpoint"))
    for seed, run in zip(SEEDS, runs, strict=True):
        run.close()
        narrow, truth = (
            alone(tmp_path / str(dtype), seed, settings, transition, dtype) for dtype in (torch.float32, torch.float64)
        )
        assert form(run) == form(truth)
        grown = distance(numbers(narrow), numbers(truth)) / unit_roundoff(torch.float32)
        allowed = 2 * max(grown, 16.0 * settings.steps) * unit_roundoff(torch.float64)  # type: ignore[operator]
        assert distance(numbers(run), numbers(truth)) <= allowed


@pytest.fixture(scope="module", params=["to the end", "early stops", "a failure"])
def whole(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, TrainSettings, list[Run]]:
    """Return a group that nobody interrupted."""
    settings = STOPPING if request.param == "early stops" else SETTINGS
    folders = make_folders(tmp_path_factory.mktemp("whole"), settings)
    go(folders, settings, fails=8 if request.param == "a failure" else None)
    return request.param, settings, [Run.open(folder) for folder in folders]


@pytest.mark.parametrize("step", [1, 3, 4, 7, 10, 11, 13, 14])
def test_a_group_that_was_cut_off_ends_as_the_one_that_was_not(
    tmp_path: Path, whole: tuple[str, TrainSettings, list[Run]], step: int
) -> None:
    kind, settings, truth = whole
    folders, fails = make_folders(tmp_path, settings), 8 if kind == "a failure" else None
    ended = False
    try:
        go(folders, settings, BreakAt(step), fails=fails)
        ended = True  # all members have stopped before
    except Broken:
        go(folders, settings, fails=fails)
    assert not ended or kind == "early stops"
    for place, (run, folder) in enumerate(zip(truth, folders, strict=True)):
        if kind == "a failure" and place == BROKEN:
            assert lines(run) == lines(Run.open(folder))
            assert run.load("last").facts["step"] == Run.open(folder).load("last").facts["step"] == 6
        else:
            assert differences(run, Run.open(folder)) == []


@pytest.mark.parametrize("whole", ["to the end", "early stops"], indirect=True)
@pytest.mark.parametrize("place", range(1, 14, 2))
def test_a_group_killed_between_two_writes_ends_as_the_one_that_was_not(
    tmp_path: Path, whole: tuple[str, TrainSettings, list[Run]], place: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever checkpoint of a member is the last to be written, at a save, a validation or the end."""
    _, settings, truth = whole
    folders, saves, save = make_folders(tmp_path, settings), [0], Run.save
    most = len(SEEDS) + 3 * place

    def dying(run: Run, *arguments: Any) -> None:
        saves[0] += 1
        if saves[0] == most:
            raise Broken
        save(run, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Run, "save", dying)
        try:
            go(folders, settings)
        except Broken:
            patch.setattr(Run, "save", save)
            go(folders, settings)
    for run, folder in zip(truth, folders, strict=True):
        assert differences(run, Run.open(folder)) == []


def test_a_signal_saves_every_member_and_the_group_goes_on(tmp_path: Path) -> None:
    folders, others = make_folders(tmp_path / "a", SETTINGS), make_folders(tmp_path / "b", SETTINGS)
    with pytest.raises(Interrupted) as interrupted:
        go(folders, progress=BreakAt(8, lambda: os.kill(os.getpid(), signal.SIGTERM)))
    assert (interrupted.value.exit_code, interrupted.value.step) == (143, 8)
    for folder in folders:
        run = Run.open(folder)
        assert lines(run)[-1] == {"kind": "end", "step": 8, "reason": "interrupted"}
        assert run.load("last").facts["step"] == 8
    go(folders)
    go(others)
    assert [differences(Run.open(a), Run.open(b)) for a, b in zip(folders, others, strict=True)] == [[]] * len(SEEDS)


def test_a_failed_member_is_left_as_training_alone_leaves_it_and_the_others_end(tmp_path: Path) -> None:
    folders = make_folders(tmp_path, SETTINGS)
    done = go(folders, fails=8)
    assert [*done.failures] == [BROKEN]
    assert [result is None for result in done.results] == [place == BROKEN for place in range(len(SEEDS))]
    run = Run.open(folders[BROKEN])
    assert max(line["step"] for line in lines(run)) <= 8
    assert not any(line["kind"] in ("test", "end") for line in lines(run))
    assert read_result(run) is None
    results = [read_result(Run.open(folder)) for place, folder in enumerate(folders) if place != BROKEN]
    assert [result.reason for result in results if result is not None] == ["finished", "finished"]


def test_a_finished_group_leaves_no_checkpoint_of_its_own(tmp_path: Path) -> None:
    folders = make_folders(tmp_path, SETTINGS)
    done = go(folders)
    assert not (folders[0].parents[3] / "group").exists()
    for folder, result in zip(folders, done.results, strict=True):
        stored = read_result(Run.open(folder))
        assert stored is not None
        assert result is not None
        assert (stored.test, stored.best, stored.best_step) == (result.test, result.best, result.best_step)


def test_a_member_can_be_continued_alone_and_then_the_group_is_refused(tmp_path: Path) -> None:
    folders = make_folders(tmp_path, SETTINGS)
    with pytest.raises(Broken):
        go(folders, progress=BreakAt(8))
    settings = replace(SETTINGS, seed=SEEDS[1])
    with Run.open(folders[1], write=True) as run:
        result = train(make_model(99), addition(), settings, run=run, resume=True, callbacks={"noise": noisy_probe})
    assert (result.steps, result.reason) == (14, "finished")
    before = lines(run)
    with pytest.raises(RunError, match="stands at step 14, but the group at 6: it was continued alone"):
        go(folders)
    assert lines(run) == before


def test_lost_and_altered_parts_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    folders = make_folders(tmp_path, SETTINGS)
    with pytest.raises(Broken):
        go(folders, progress=BreakAt(11))
    before = [(folder / "metrics.jsonl").read_bytes() for folder in folders]
    with pytest.raises(RunError, match=r"`train.seed` is 3 there and 4 here"):
        go(folders, seeds=(4, 0, 7))
    with pytest.raises(RunError, match=r"`train.optimizer.lr` is 0.01 there and 0.5 here"):
        go(folders, replace(SETTINGS, optimizer=OptimizerSettings(lr=0.5)))
    (folders[2] / "metrics.jsonl").write_bytes(b"")
    with pytest.raises(RunError, match="does not begin with the lines"):
        go(folders)
    (folders[2] / "metrics.jsonl").write_bytes(before[2])
    document = folders[0].parents[3] / "group" / "checkpoint.json"
    text = document.read_text(encoding="utf-8")
    document.write_text(text.replace('"step": 9', '"step": 8', 1), encoding="utf-8")
    with pytest.raises(CheckpointError, match="checksum"):
        go(folders)
    document.unlink()
    with pytest.raises(RunError, match="the checkpoint of the group, but"):
        go(folders)
    for path in document.parent.iterdir():
        path.unlink()
    document.parent.rmdir()
    with pytest.raises(RunError, match="the checkpoint of the group, but"):
        go(folders)
    assert [(folder / "metrics.jsonl").read_bytes() for folder in folders] == before


def with_first(facts: dict[str, Any], first: dict[str, Any]) -> dict[str, Any]:
    return facts | {"members": [first, *facts["members"][1:]]}


FORGED: dict[str, tuple[str, Any]] = {
    "a step past the end": ("`step` is 1000", lambda facts: facts | {"step": 1000}),
    "half a step": (r"`step` is 3\.5", lambda facts: facts | {"step": 3.5}),
    "a member elsewhere": ("member 0 is at step 2", lambda facts: with_first(facts, facts["members"][0] | {"step": 2})),
    "a failure without words": ("`failed` of member 0", lambda facts: with_first(facts, {"failed": None})),
}


@pytest.mark.parametrize("forged", FORGED)
def test_a_forged_checkpoint_is_refused_before_anything_is_written(tmp_path: Path, forged: str) -> None:
    folders = make_folders(tmp_path, SETTINGS)
    with pytest.raises(Broken):
        go(folders, progress=BreakAt(11))
    place = folders[0].parents[3] / "group"
    stored = load_checkpoint(place)
    words, change = FORGED[forged]
    save_checkpoint(place, stored.tensors, change(stored.facts), stored.run)
    before = [(folder / "metrics.jsonl").read_bytes() for folder in folders]
    with pytest.raises(CheckpointError, match=words):
        go(folders)
    assert [(folder / "metrics.jsonl").read_bytes() for folder in folders] == before


def test_a_link_in_the_place_of_the_checkpoint_is_refused(tmp_path: Path) -> None:
    folders = make_folders(tmp_path / "runs", SETTINGS)
    with pytest.raises(Broken):
        go(folders, progress=BreakAt(11))
    place = folders[0].parents[3] / "group"
    outside = place.rename(tmp_path / "outside")
    place.symlink_to(outside)
    before = sorted((path.name, path.read_bytes()) for path in outside.iterdir())
    with pytest.raises(RunError, match="group"):
        go(folders)
    assert sorted((path.name, path.read_bytes()) for path in outside.iterdir()) == before


def test_a_group_killed_before_its_first_checkpoint_starts(tmp_path: Path) -> None:
    folders = make_folders(tmp_path, SETTINGS)
    (folders[0].parents[3] / "group").mkdir()
    assert [result is not None for result in go(folders).results] == [True] * len(SEEDS)


def test_the_stored_settings_have_the_seed_of_their_own_run(tmp_path: Path) -> None:
    folders = make_folders(tmp_path, SETTINGS)
    go(folders)
    stored = [Run.open(folder).load("last").facts["settings"]["train"] for folder in folders]
    assert [settings["seed"] for settings in stored] == [*SEEDS]
    assert {**stored[0], "seed": 0}.keys() == asdict(SETTINGS).keys()
