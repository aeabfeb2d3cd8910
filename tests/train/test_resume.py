"""A run that was broken off and resumed is, bit for bit, the run that was not."""

import functools
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from steadyrnn.errors import ArgumentError, CheckpointError, RunError
from steadyrnn.runs.folder import Run
from steadyrnn.tasks.registry import make_task
from steadyrnn.train.evaluation import evaluate
from steadyrnn.train.settings import OptimizerSettings
from steadyrnn.train.signals import Interrupted
from steadyrnn.train.trainer import train
from steadyrnn.train.weights import weights_of
from tests.train.runs import (
    CASES,
    BreakAt,
    Broken,
    addition,
    differences,
    lines,
    new_run,
    noisy_probe,
    sequence_model,
    spectral_model,
    start,
    tiny,
)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Run]:
    """Return the run of a case that nothing broke off, made once."""

    @functools.cache
    def made(case: str) -> Run:
        with new_run(tmp_path_factory.mktemp("whole"), CASES[case][2]) as run:
            start(case, run)
        return run

    return made


def broken(root: Path, case: str, *steps: int) -> Run:
    """Return a run that was broken off after each of some steps, and resumed to its end."""
    run = new_run(root / "broken", CASES[case][2])
    for place, step in enumerate(steps):
        with run, pytest.raises(Broken):
            start(case, run, BreakAt(step), resume=place > 0)
        run = Run.open(run.folder, write=True)
    with run:
        start(case, run, resume=True)
    return run


@pytest.mark.parametrize("case", CASES)
def test_a_resumed_run_is_the_uninterrupted_one(tmp_path: Path, whole: Callable[[str], Run], case: str) -> None:
    assert differences(whole(case), broken(tmp_path, case, 8)) == []


@pytest.mark.parametrize("step", [1, 2, 3, 4, 5, 9, 10, 12, 13, 14])
def test_it_does_not_matter_where_it_was_broken_off(tmp_path: Path, whole: Callable[[str], Run], step: int) -> None:
    assert differences(whole("spectral"), broken(tmp_path, "spectral", step)) == []


def test_a_run_may_be_broken_off_often(tmp_path: Path, whole: Callable[[str], Run]) -> None:
    assert differences(whole("carried"), broken(tmp_path, "carried", 4, 5, 7, 13)) == []


def test_the_comparison_sees_other_random_numbers(tmp_path: Path) -> None:
    build, make, settings = CASES["spectral"]
    runs = [new_run(tmp_path / str(seed), replace(settings, seed=seed)) for seed in range(2)]
    for seed, run in enumerate(runs):
        torch.manual_seed(0)
        with run:
            train(build(), make(), replace(settings, seed=seed), run=run)
    found = differences(*runs)
    assert "last: random.cpu" in found
    assert "last: model.readout.weight" in found
    assert any(line.startswith("line") for line in found)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_saves_ends_and_can_be_resumed(tmp_path: Path, whole: Callable[[str], Run], number: int, code: int) -> None:
    run = new_run(tmp_path, CASES["spectral"][2])
    with run, pytest.raises(Interrupted) as caught:
        start("spectral", run, BreakAt(7, lambda: os.kill(os.getpid(), number)))
    assert caught.value.exit_code == code
    assert run.load("last").facts["step"] == 7
    assert lines(run)[-1] == {"kind": "end", "step": 7, "reason": "interrupted"}
    with Run.open(run.folder, write=True) as again:
        start("spectral", again, resume=True)
    assert differences(whole("spectral"), again) == []


def test_a_signal_leaves_a_run_without_a_folder_alone() -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job starts with it ignored
    try:
        with pytest.raises(KeyboardInterrupt):
            start("spectral", None, BreakAt(2, lambda: os.kill(os.getpid(), signal.SIGINT)))
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_finished_run_returns_its_result_again(tmp_path: Path) -> None:
    run = new_run(tmp_path, CASES["spectral"][2])
    with run:
        first = start("spectral", run)
    before = run.metrics()
    with Run.open(run.folder, write=True) as again:
        second = start("spectral", again, resume=True)
    assert run.metrics() == before
    assert replace(first, seconds=0.0) == replace(second, seconds=0.0)


def test_a_run_killed_before_its_first_checkpoint_starts_again(tmp_path: Path, whole: Callable[[str], Run]) -> None:
    run = new_run(tmp_path / "broken", CASES["probed"][2])
    with run:
        run.log({"kind": "probe", "step": 0, "name": "noise", "value": whole("probed").metrics()[0]["value"]})
    build, make, settings = CASES["probed"]
    torch.manual_seed(0)
    with Run.open(run.folder, write=True) as again:
        train(build(), make(), settings, run=again, resume=True, callbacks={"noise": noisy_probe})
    assert differences(whole("probed"), again) == []


def test_times_are_summed_over_resumes(tmp_path: Path) -> None:
    run = broken(tmp_path, "spectral", 9)
    times = [record["time"] for record in run.metrics() if "time" in record]
    assert times == sorted(times)
    assert run.load("last").facts["times"]["elapsed"] >= times[-1]


def test_the_scores_of_the_best_weights_are_theirs_wherever_they_come_from(tmp_path: Path) -> None:
    """A run killed between two saves, resumed where it does not come to the same weights again."""
    settings = tiny(optimizer=OptimizerSettings("sgd", lr=0.0))
    run = new_run(tmp_path, settings)
    with run, pytest.raises(Broken):
        train(spectral_model(), addition(), settings, run=run, progress=BreakAt(7))
    lucky = spectral_model()
    with Run.open(run.folder, write=True) as again:
        again.save("best", weights_of(lucky), {"step": 10, "validation": {"loss": 0.0}})
        result = train(spectral_model(), addition(), settings, run=again, resume=True)
    assert (result.best_step, result.best) == (10, {"loss": 0.0})
    assert result.test == evaluate(lucky, addition(), "test", 8)
    assert again.load("last").facts["best"] == {"loss": 0.0}


@pytest.fixture
def stopped(tmp_path: Path) -> Run:
    run = new_run(tmp_path, CASES["spectral"][2])
    with run, pytest.raises(Broken):
        start("spectral", run, BreakAt(8))
    return Run.open(run.folder, write=True)


def test_other_settings_are_refused_by_name(stopped: Run) -> None:
    settings = replace(CASES["spectral"][2], optimizer=OptimizerSettings(lr=0.5), seed=3)
    with stopped, pytest.raises(RunError, match=r"`train.seed` is 0 there and 3 here.*`train.optimizer.lr` is 0.001"):
        train(spectral_model(), addition(), settings, run=stopped, resume=True)


def test_a_run_does_not_start_with_other_settings_than_it_notes(tmp_path: Path) -> None:
    with new_run(tmp_path, tiny()) as run, pytest.raises(RunError, match=r"`train.seed` is 0 there and 3 here"):
        train(spectral_model(), addition(), tiny(seed=3), run=run)
    assert run.checkpoints() == []


def test_another_task_is_refused_by_name(stopped: Run) -> None:
    task = make_task("addition", length=12, validation=24, test=24)
    with stopped, pytest.raises(RunError, match=r"`task.length` is 10 there and 12 here"):
        train(spectral_model(), task, CASES["spectral"][2], run=stopped, resume=True)


def test_another_model_is_refused_and_left_alone(stopped: Run) -> None:
    model = sequence_model("free")
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with stopped, pytest.raises(CheckpointError, match=r"it has .*`rnn.transition_l0.h.raw0`.*it lacks `rnn.weight_hh_l0`"):
        train(model, addition(), CASES["spectral"][2], run=stopped, resume=True)
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())


def test_a_run_with_a_checkpoint_is_not_started_over(stopped: Run) -> None:
    with stopped, pytest.raises(RunError, match="Resume it"):
        train(spectral_model(), addition(), CASES["spectral"][2], run=stopped)


def test_resuming_needs_a_run() -> None:
    with pytest.raises(ArgumentError, match="`resume` needs a run"):
        train(spectral_model(), addition(), tiny(), resume=True)


def test_a_checkpoint_of_something_else_is_refused(tmp_path: Path) -> None:
    run = new_run(tmp_path, tiny())
    with run:
        run.save("last", {"weight": torch.ones(1)}, {"step": 1})
        with pytest.raises(CheckpointError, match="not written by the trainer"):
            train(spectral_model(), addition(), tiny(), run=run, resume=True)
