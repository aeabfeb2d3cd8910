"""Two processes that train one network: equal to one, whatever happens to either of them."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from steadyrnn.jobs.loading import load_trained
from steadyrnn.runs.folder import Run
from steadyrnn.train.trainer import train
from tests.cli.series_files import waves
from tests.tasks.small import small_task
from tests.train import rank_work
from tests.train.rank_group import launch
from tests.train.rank_work import LAYERS, SIGNALLED_AT, Choosy, carried, double_task, exact, model_of, only, trained
from tests.train.runs import differences, lines, same_bits, tiny

Reports = list[dict[str, Any]]

pytestmark = pytest.mark.slow


class Group:
    """What two processes did: their folder, their reports, what they printed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.killed = launch(2, "tests.train.rank_work:start_killed", folder)
        self.ended = launch(2, "tests.train.rank_work:check_all", folder)
        if any(status for status, _, _ in self.ended):
            pytest.fail("\n".join(err for _, _, err in self.ended))
        self.reports: Reports = [json.loads((folder / f"report-{rank}.json").read_text(encoding="utf-8")) for rank in range(2)]

    def run(self, name: str) -> Run:
        return Run.open(only(self.folder / name))


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Group:
    folder = tmp_path_factory.mktemp("ranks")
    waves(folder / "waves.csv")
    model, task = carried()
    task.step, task.happens = SIGNALLED_AT, lambda: os.kill(os.getpid(), signal.SIGTERM)  # type: ignore[attr-defined]
    rank_work.failure(lambda: trained(folder / "begun by one", model, task, exact(steps=16)))
    return Group(folder)


def without_state_of_ranks(run: Run) -> dict[str, Tensor]:
    return {name: tensor for name, tensor in run.load("last").tensors.items() if not name.startswith(("ranks.", "random."))}


def errors_of(group: Group, name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [report[name] for report in group.reports]
    return found


# Equal to one process


@pytest.mark.parametrize("name", [*LAYERS, "carried"])
def test_two_ranks_are_one_process_that_takes_a_batch_in_two_parts_bit_for_bit(group: Group, tmp_path: Path, name: str) -> None:
    """The parts are the same, and a sum of two numbers has one rounding. Shares of one process in parts of the whole batch
    are compared in ``test_trainer.py``."""
    model, task = carried() if name == "carried" else (model_of(name), double_task())
    trained(tmp_path, model, task, exact(accumulate=2))
    ours, theirs = Run.open(only(tmp_path)), group.run(name)
    assert lines(ours) == lines(theirs)
    a, b = without_state_of_ranks(ours), without_state_of_ranks(theirs)
    assert list(a) == list(b)
    assert [key for key in a if not same_bits(a[key], b[key])] == []


def test_a_gradient_that_only_one_rank_has_counts_as_zeros_on_the_other_and_one_that_none_has_as_none(group: Group) -> None:
    torch.manual_seed(1)
    alone = Choosy()
    settings = exact(
        clip=rank_work.ClipSettings(), batch_size=4, accumulate=2,
        optimizer=rank_work.OptimizerSettings("sgd", momentum=0.9, weight_decay=0.1),
    )  # fmt: skip
    train(alone, double_task(), settings)
    torch.manual_seed(1)
    untouched = Choosy().never.weight.tolist()
    for report in group.reports:
        assert report["choosy"] == {name: parameter.tolist() for name, parameter in alone.state_dict().items()}
        assert report["choosy"]["never.weight"] == untouched


def test_the_scale_of_float16_and_the_schedule_by_validation_are_the_same_on_both(group: Group) -> None:
    one, two = group.reports
    assert one["float16 weights"] == two["float16 weights"]
    assert group.run("float16").load("last").facts["standing"]["reductions"] >= 0


# Interrupted, killed, resumed


def test_a_killed_rank_ends_the_others_with_a_sentence_and_the_lock_is_free(group: Group) -> None:
    (first, out, err), (second, _, _) = group.killed
    assert second == -signal.SIGKILL
    assert first == 1
    assert out == ""
    assert "RanksError: Rank 0 has lost another rank of the run" in err
    with Run.open(only(group.folder / "killed"), write=True):
        pass


@pytest.mark.parametrize("name", ["killed", "SIGTERM", "SIGUSR1"])
def test_a_run_that_was_ended_on_any_rank_goes_on_bit_for_bit(group: Group, name: str) -> None:
    assert differences(group.run(name), group.run("whole")) == []


@pytest.mark.parametrize(("name", "code"), [("SIGTERM", 143), ("SIGUSR1", 138)])
def test_a_signal_to_one_rank_ends_all_after_the_same_step(group: Group, name: str, code: int) -> None:
    one, two = errors_of(group, name)
    assert one == two
    assert (one["kind"], one["code"]) == ("Interrupted", code)
    assert f"Stopped by {name} after {SIGNALLED_AT + 1} steps" in one["text"]


def test_nothing_but_times_depends_on_the_clocks(group: Group) -> None:
    assert differences(group.run("skewed"), group.run("whole")) == []


def test_both_ranks_draw_dropout_of_their_own(group: Group) -> None:
    last = group.run("whole").load("last")
    assert not torch.equal(last.tensors["random.cpu"], last.tensors["ranks.1.cpu"])


def assert_equal_to_rounding(run: Run, tmp_path: Path) -> None:
    """Compare with one process; runs that cut a batch into 2, 3 and 4 parts show how far rounding takes them from it."""
    weights = {}
    for parts in (1, 2, 3, 4):
        place = tmp_path / str(parts)
        trained(place, *carried(), exact(steps=16, accumulate=parts))
        weights[parts] = Run.open(only(place)).load("last").tensors
    found = run.load("last").tensors
    for name in [name for name in found if name.startswith(("model.", "carried."))]:
        growth = max(float((weights[parts][name] - weights[1][name]).abs().max()) for parts in (2, 3, 4))
        unit = torch.finfo(torch.float64).eps * float(weights[1][name].abs().max())
        assert float((found[name] - weights[1][name]).abs().max()) <= 4 * max(growth, unit), name


def test_a_run_begun_by_one_process_goes_on_with_two(group: Group, tmp_path: Path) -> None:
    run = group.run("begun by one")
    assert run.load("last").facts["step"] == 16
    assert_equal_to_rounding(run, tmp_path)


def test_a_run_begun_by_two_processes_goes_on_with_one(group: Group, tmp_path: Path) -> None:
    folder = only(group.folder / "begun by two")
    stored = Run.open(folder).load("last")
    assert stored.tensors["carried.0"].shape == (1, 7, 6)  # of the whole batch
    trained(folder, *carried(), exact(steps=16), resume=True)
    assert_equal_to_rounding(Run.open(folder), tmp_path)


# Failures


def test_a_full_disk_ends_all_ranks_and_the_checkpoint_before_is_whole(group: Group) -> None:
    one, two = errors_of(group, "full disk")
    assert "No space left on device" in one["text"]
    assert two["kind"] == "RanksError"
    assert "Rank 0 failed" in two["text"]
    assert "No space left on device" in two["text"]
    assert group.run("full disk").load("last").facts["step"] == 6  # of every third step; it was full from the seventh on


def test_weights_that_differ_end_all_ranks_and_are_named(group: Group) -> None:
    one, two = errors_of(group, "other weights")
    assert one == two
    assert one["kind"] == "RanksError"
    assert "After step 4 the weights of rank 1 differ from those of rank 0" in one["text"]


def test_batches_that_differ_end_all_ranks(group: Group) -> None:
    one, two = errors_of(group, "other batches")
    assert one == two
    assert one["kind"] == "RanksError"
    assert "The batch of step 3 on rank 1 differs from that of rank 0" in one["text"]


def test_buffers_that_are_not_stored_are_those_of_rank_0(group: Group) -> None:
    one, two = (report["hidden"] for report in group.reports)
    assert one == two


def test_a_batch_that_is_not_finite_on_one_rank_ends_both_before_that_step(group: Group) -> None:
    one, two = errors_of(group, "not finite")
    assert one["kind"] == two["kind"] == "TrainingError"
    assert "Step 5 is not finite" in one["text"]
    assert one["weights"] == two["weights"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("small batch", "`batch_size` must be at least the number of ranks, 2, but is 1"),
        ("normalized", "is a BatchNorm1d, which computes with all rows of a batch"),
    ],
)
def test_what_ranks_cannot_do_is_refused_on_all(group: Group, name: str, text: str) -> None:
    one, two = errors_of(group, name)
    assert one["kind"] == two["kind"] == "ArgumentError"
    assert text in one["text"]


def test_an_error_on_one_rank_is_told_to_the_others(group: Group) -> None:
    one, two = errors_of(group, "one rank fails")
    assert two["kind"] == "ZeroDivisionError"
    assert (one["kind"], one["text"]) == ("RanksError", f"Rank 1 failed: {two['text']}")
    one, two = errors_of(group, "run on rank 1")
    assert two["kind"] == "ArgumentError"
    assert "`run` must be None on rank 1" in two["text"]
    assert two["text"] in one["text"]


# Jobs


def test_the_second_rank_prints_nothing(group: Group) -> None:
    _, (status, out, err) = group.ended
    assert (status, out, err) == (0, "", "")


def test_a_network_that_two_processes_trained_has_one_folder_that_can_be_worked_on(group: Group) -> None:
    one, two = (report["network"] for report in group.reports)
    assert one == two
    assert len([*(group.folder / "jobs" / "addition").rglob("config.json")]) == 1
    run = Run.open(one["folder"])
    environment = run.environment()
    assert environment is not None
    assert environment["ranks"] == 2
    assert run.read_json("certificate.json")["certificate"] is not None
    assert sum(parameter.numel() for parameter in load_trained(one["folder"]).model.parameters()) > 0


def test_own_models_are_all_that_of_rank_0(group: Group) -> None:
    one, two = (report["own model"] for report in group.reports)
    assert one == two
    torch.manual_seed(0)
    alone = rank_work.SequenceModel(rank_work.RNN(2, 4), 1)
    result = train(alone, small_task("addition"), tiny(accumulate=2))
    assert result.best["loss"] == pytest.approx(one["best"]["loss"], rel=16 * torch.finfo(torch.float32).eps)


def test_what_is_left_open_is_chosen_once(group: Group) -> None:
    one, two = (report["settled"] for report in group.reports)
    assert one["calls"] == {"model": 1, "rate": 1}
    assert two["calls"] == {"model": 0, "rate": 0}
    assert one["configuration"] == two["configuration"]
    assert one["notes"] == two["notes"]
