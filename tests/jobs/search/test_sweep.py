"""A sweep in one process: what is chosen, what a failed trial leaves, what a second start repeats."""

import errno
import json
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from steadyrnn.errors import ArgumentError, DataError, RunError
from steadyrnn.jobs.certify import certify_run
from steadyrnn.jobs.configuration import Configuration
from steadyrnn.jobs.evaluate import evaluate_run
from steadyrnn.jobs.report import report_runs
from steadyrnn.jobs.search import trial as trials
from steadyrnn.jobs.search.folder import LOCK, SWEEP, SweepFolder, trial_folder
from steadyrnn.jobs.search.plan import Range, SweepPlan
from steadyrnn.jobs.search.plan_file import make_plan as plan_of
from steadyrnn.jobs.search.plan_file import read_sweep_file
from steadyrnn.jobs.search.result import Standing
from steadyrnn.jobs.sweep import SweepInterruptedError, run_sweep
from steadyrnn.jobs.train_seeds import train_seeds
from steadyrnn.runs import files
from steadyrnn.runs.lock import Lock
from tests.cli.series_files import waves
from tests.jobs.search.sweeps import LR, SMALL, curve, grid, make_plan, operations, records, snapshot


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def sweep(plan: SweepPlan | None = None, **more: Any) -> Standing:
    return run_sweep(plan, **{"jobs": 1, **more})


def ended(found: Standing) -> list[Any]:
    """Return what trials came to, without times."""
    return [replace(trial, seconds=0.0) for trial in found.trials]


def test_trials_are_ranked_by_validation_and_only_the_chosen_one_shows_its_test() -> None:
    found = sweep(grid(0.001, 0.1, models=("gru", "rnn"), seeds=(0, 1)))
    values = [trial.value for trial in found.trials]
    assert values == sorted(values)  # type: ignore[type-var]
    assert {trial.state for trial in found.trials} == {"finished"}
    for model, best in found.best.items():
        assert best.trial.value == min(
            trial.value for trial in found.trials if trial.model == model and trial.value is not None
        )
        runs = [json.loads((run / "metrics.jsonl").read_text().splitlines()[-2]) for run in best.runs]
        assert [line["kind"] for line in runs] == ["test", "test"]
        assert best.test["loss"] == pytest.approx(sum(line["loss"] for line in runs) / 2, rel=1e-15)
    header, *lines = (found.folder / "table.csv").read_text().splitlines()
    column = header.split(",").index("test loss")
    shown = [int(line.split(",")[0]) for line in lines if line.split(",")[column]]
    assert sorted(shown) == sorted(best.trial.number for best in found.best.values())


def test_a_value_is_the_mean_of_the_best_validation_of_each_seed() -> None:
    found = sweep(grid(0.01, seeds=(0, 1, 2)))
    (trial,) = found.trials
    for seed, value in trial.values.items():
        lines = curve(trial_folder(found.folder, 0) / f"seed-{seed}")
        assert value == min(line["loss"] for line in lines if line["kind"] == "validation")
    assert trial.value == pytest.approx(sum(trial.values.values()) / 3, rel=1e-15)


def test_a_higher_metric_is_better_where_the_task_says_so() -> None:
    waves()
    plan = make_plan(
        task="series", models=("gru",), search={}, trials=1, grid={LR: (0.0001, 0.03)},
        settings={**SMALL_SERIES, "task.data": "waves.csv", "task.series": "id", "task.target": "kind", "task.validation": 0.3},
    )  # fmt: skip
    found = sweep(plan)
    assert found.higher
    values = [trial.value for trial in found.trials]
    assert values == sorted(values, reverse=True)  # type: ignore[type-var]
    assert evaluate_run(found.best["gru"].runs[0]).scores["accuracy"] == found.best["gru"].test["accuracy"]
    Path("waves.csv").write_text(Path("waves.csv").read_text().replace("1", "2", 1))
    with pytest.raises(DataError, match="The data has changed since the sweep began"):
        sweep(resume=found.folder)


SMALL_SERIES = {name: value for name, value in SMALL.items() if not name.startswith("task.")}


def test_every_trial_is_a_run_folder_that_the_program_reads() -> None:
    found = sweep(grid(0.01, models=("stable-rnn",)))
    (run,) = found.best["stable-rnn"].runs
    assert certify_run(run, input_bound=2.0).certificate.stable
    assert evaluate_run(run).scores["loss"] == found.best["stable-rnn"].test["loss"]
    assert "Learning" in report_runs([run], "run.html").path.read_text(encoding="utf-8")


def test_the_numbers_of_a_trial_follow_from_its_stored_configuration() -> None:
    found = sweep(make_plan(sampler="tpe", trials=2, seeds=(0, 1)))
    folder = trial_folder(found.folder, 1)
    stored = Configuration.from_dict(json.loads((folder / "seed-1" / "config.json").read_text()))
    again = train_seeds(stored, (0, 1), "again")
    assert curve(again.runs[1].folder) == curve(folder / "seed-1")


def test_a_failed_trial_is_recorded_with_its_reason_and_does_not_end_the_sweep() -> None:
    broken = {**SMALL, "train.optimizer.name": "sgd"}
    found = sweep(make_plan(settings=broken, grid={LR: (0.01, 1e30)}, search={}, trials=1, seeds=(0, 1)))
    assert {trial.number: trial.state for trial in found.trials} == {0: "finished", 1: "failed"}
    assert "not finite" in found.trials[1].reason
    assert ended(sweep(resume=found.folder)) == ended(found)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (MemoryError(), "out of memory: MemoryError"),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried 1 TB"), "out of memory: [enforce"),
        (ZeroDivisionError("division by zero"), "ZeroDivisionError: division by zero"),
        (RunError("`x` could not be written: No space left on device."), "`x` could not be written: No space left on device."),
    ],
)
def test_whatever_a_trial_raises_becomes_its_reason(monkeypatch: pytest.MonkeyPatch, error: Exception, reason: str) -> None:
    real = trials.train_seeds

    def fail(configuration: Configuration, *args: Any, **more: Any) -> Any:
        if configuration.train.optimizer.lr == 0.02:
            raise error
        return real(configuration, *args, **more)

    monkeypatch.setattr(trials, "train_seeds", fail)
    found = sweep(grid(0.01, 0.02, 0.03))
    assert {trial.number: trial.state for trial in found.trials} == {0: "finished", 1: "failed", 2: "finished"}
    assert found.trials[-1].reason.startswith(reason)


def test_a_full_disk_in_a_trial_is_recorded_and_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write

    def write(descriptor: int, data: Any) -> int:
        if "/trials/0001/" in os.readlink(f"/proc/self/fd/{descriptor}"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(descriptor, data)

    with monkeypatch.context() as patch:
        patch.setattr(files, "os", _Os(write))
        found = sweep(grid(0.01, 0.02, 0.03))
    assert {trial.number: trial.state for trial in found.trials} == {0: "finished", 1: "failed", 2: "finished"}
    assert "No space left on device" in found.trials[-1].reason
    assert sorted(records(found.folder)) == [0, 2]  # the folder could not take it: the journal has it
    assert ended(sweep(resume=found.folder)) == ended(found)


class _Os:
    """The module ``os`` with another ``write``."""

    def __init__(self, write: Callable[[int, Any], int]) -> None:
        self.write = write

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)


def test_a_second_start_repeats_nothing_and_changes_nothing_that_has_ended(two: Standing) -> None:
    before, journal = snapshot(two.folder, (0, 1)), operations(two.folder)
    again = sweep(resume=two.folder)
    assert ended(again) == ended(two)
    assert snapshot(two.folder, (0, 1)) == before
    assert operations(two.folder) == journal


def test_a_signal_saves_and_the_second_start_goes_on_bit_for_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = sweep(grid(0.01, 0.02, seeds=(0, 1)), out="whole")
    seen = list[int]()
    real = trials.train_seeds

    def interrupt(*args: Any, **more: Any) -> Any:
        seen.append(len(seen))
        if len(seen) == 2:
            more["progress"] = _Signal()
        return real(*args, **more)

    monkeypatch.setattr(trials, "train_seeds", interrupt)
    with pytest.raises(SweepInterruptedError) as stopped:
        sweep(grid(0.01, 0.02, seeds=(0, 1)))
    assert stopped.value.exit_code == 143
    folder = stopped.value.folder
    assert sorted(records(folder)) == [0]
    found = sweep(resume=folder)
    assert found.trials[0].values == whole.trials[0].values
    for seed in (0, 1):
        assert curve(trial_folder(folder, 1) / f"seed-{seed}") == curve(trial_folder(whole.folder, 1) / f"seed-{seed}")


class _Signal(trials.Silent):
    """Ends the process politely at the third step."""

    def update(self, step: int, values: Any) -> None:
        if step == 3:
            os.kill(os.getpid(), signal.SIGTERM)


def test_a_folder_that_was_killed_before_the_first_step_is_started_anew() -> None:
    found = sweep(grid(0.01, seeds=(0, 1)))
    folder, numbers = trial_folder(found.folder, 0), found.trials[0].values
    cut = [line for line in (found.folder / "journal.log").read_bytes().splitlines(keepends=True) if b'"state": 1' not in line]
    (found.folder / "journal.log").write_bytes(b"".join(cut))
    for path in [folder / "trial.json", folder / "seed-1" / "config.json"]:
        path.unlink()
    for seed in (0, 1):
        for name in ("best", "last"):
            for file in (folder / f"seed-{seed}" / "checkpoints" / name).iterdir():
                file.unlink()
            (folder / f"seed-{seed}" / "checkpoints" / name).rmdir()
    assert sweep(resume=found.folder).trials[0].values == numbers


def test_two_sweeps_in_one_folder_are_refused_and_readers_are_not() -> None:
    found = sweep(grid(0.01))
    lock = Lock(found.folder / LOCK)
    try:
        with pytest.raises(RunError, match=f"is being written by process {os.getpid()} "):
            sweep(resume=found.folder)
        assert "Sweep on addition" in report_runs([found.folder], "page.html").path.read_text(encoding="utf-8")
    finally:
        lock.release()


def test_a_trial_that_another_process_trains_is_not_counted(two: Standing) -> None:
    folder = trial_folder(two.folder, 1)
    cut = [
        line
        for line in (two.folder / "journal.log").read_bytes().splitlines(keepends=True)
        if b'"trial_id": 1, "state": 1' not in line
    ]
    (two.folder / "journal.log").write_bytes(b"".join(cut))
    (folder / "trial.json").unlink()
    lock = Lock(folder / LOCK)
    try:
        busy = sweep(resume=two.folder)
    finally:
        lock.release()
    assert [trial.number for trial in busy.trials] == [0]
    assert "is being written by process" in busy.unfinished[1]
    assert ended(sweep(resume=two.folder)) == ended(two)


def test_a_trial_that_ended_without_the_journal_knowing_is_told_and_not_repeated(two: Standing) -> None:
    path = two.folder / "journal.log"
    path.write_bytes(path.read_bytes()[:-20])  # the last line says that trial 1 has ended
    before, told = snapshot(two.folder, (0, 1)), list[str]()
    again = sweep(resume=two.folder, note=told.append)
    assert ended(again) == ended(two)
    assert snapshot(two.folder, (0, 1)) == before
    assert any("half written" in line for line in told)
    assert any("trial 1 had ended (finished) without the journal knowing" in line for line in told)


def lose_record(folder: Path) -> None:
    (trial_folder(folder, 1) / "trial.json").unlink()


def lose_journal(folder: Path) -> None:
    (folder / "journal.log").unlink()


def alter_value(folder: Path) -> None:
    path = trial_folder(folder, 1) / "trial.json"
    record = json.loads(path.read_text())
    path.write_text(json.dumps({**record, "value": record["value"] / 2}))


def alter_settings(folder: Path) -> None:
    path = trial_folder(folder, 1) / "trial.json"
    path.write_text(path.read_text().replace("0.02", "0.5"))


def exchange_trials(folder: Path) -> None:
    one, other = trial_folder(folder, 0), trial_folder(folder, 1)
    one.rename(folder / "moved")
    other.rename(one)
    (folder / "moved").rename(other)


def wrong_types(folder: Path) -> None:
    (trial_folder(folder, 1) / "trial.json").write_text('{"format": 1, "number": "1"}')


def alter_plan(folder: Path) -> None:
    stored = json.loads((folder / SWEEP).read_text())
    stored["plan"]["grid"][LR] = [0.01, 0.5]
    (folder / SWEEP).write_text(json.dumps(stored))


def huge_plan(folder: Path) -> None:
    stored = json.loads((folder / SWEEP).read_text())
    stored["plan"]["grid"]["task.length"] = list(range(2, 20_000))
    (folder / SWEEP).write_text(json.dumps(stored))


def broken_plan(folder: Path) -> None:
    stored = json.loads((folder / SWEEP).read_text())
    stored["plan"]["models"] = [["gru"]]
    (folder / SWEEP).write_text(json.dumps(stored))


def link_trials(folder: Path) -> None:
    (folder / "trials").rename(folder.parent / "elsewhere")
    (folder / "trials").symlink_to(folder.parent / "elsewhere")


@pytest.mark.parametrize(
    "change",
    [
        *(lose_record, lose_journal, alter_value, alter_settings, exchange_trials, wrong_types, alter_plan, huge_plan),
        *(broken_plan, link_trials),
    ],
)
def test_a_folder_whose_parts_disagree_is_refused_and_nothing_is_trained(
    two: Standing, change: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    change(two.folder)
    monkeypatch.setattr(trials, "train_seeds", lambda *args, **more: pytest.fail("trained"))
    with pytest.raises((RunError, ArgumentError)):
        sweep(resume=two.folder)


def test_the_copy_of_the_users_file_is_kept_with_its_checksum() -> None:
    Path("mine.yaml").write_text(json.dumps({"task": "addition", "models": ["gru"], "settings": SMALL, "grid": {LR: [0.01]}}))
    file = read_sweep_file(Path("mine.yaml"))
    found = sweep(plan_of(file), file=file)
    assert (found.folder / "configuration.yaml").read_bytes() == Path("mine.yaml").read_bytes()
    assert SweepFolder.open(found.folder).facts["file"]["sha256"] == file.sha256
    (found.folder / "configuration.yaml").write_text("task: copy")
    with pytest.raises(RunError, match="it was altered"):
        sweep(resume=found.folder)


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        (make_plan(search={"model.width": Range(-2, 4, whole=True)}), "gru, model.width -2: "),
        (make_plan(search={"train.batch_size": (4, 0)}), "gru, train.batch_size 0: `batch_size` must be"),
        (make_plan(search={"train.optimizer.name": ("adam", "adma")}), "train.optimizer.name 'adma': .* Did you mean `adam`"),
        (make_plan(search={"task.length": (5, 0)}), "gru, task.length 0: "),
        (make_plan(metric="accuracy"), "`metric` must be one of loss"),
        (make_plan(direction="maximize"), "`direction` of loss is minimize: leave it out."),
        (make_plan(settings={**SMALL, "train.device": "cuda:99"}), "gru, .*`device` is 'cuda:99'"),
    ],
)  # fmt: skip
def test_a_setting_that_cannot_be_is_refused_before_anything_starts(plan: SweepPlan, message: str, place: Path) -> None:
    with pytest.raises(ArgumentError, match=message):
        sweep(plan)
    assert not [*place.iterdir()]


@pytest.mark.parametrize("seeds", [(0,), (0, 1)])  # alone, and as a group
def test_a_pruner_ends_a_trial_that_is_worse_and_keeps_what_it_has(seeds: tuple[int, ...]) -> None:
    steps = {**SMALL, "train.steps": 6, "train.validate_every": 1, "train.optimizer.name": "sgd"}
    found = sweep(grid(0.1, 0.11, 0.12, 0.13, 0.14, 1e-9, settings=steps, pruner="median", seeds=seeds))
    (pruned,) = [trial for trial in found.trials if trial.state == "pruned"]
    assert pruned.number == 5
    assert "worse there than other trials" in pruned.reason
    run = trial_folder(found.folder, 5) / "seed-0"
    lines = curve(run)
    assert not any(line["kind"] == "test" for line in lines)
    told = {line["step"] for line in operations(found.folder) if line["op_code"] == 7 and line["trial_id"] == 5}
    assert told == {line["step"] for line in lines if line["kind"] == "validation"}
    assert evaluate_run(run).scores["loss"] > 0
    assert ended(sweep(resume=found.folder)) == ended(found)
