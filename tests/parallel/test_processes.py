"""One series over four processes of ``torch.distributed``: equal to the sequential run within the certificate."""

import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

import steadyrnn as sr
from steadyrnn.errors import ArgumentError
from tests.parallel.layers import rnn_of
from tests.parallel.processes import LOST, PARTS, SIZE, cases

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What each process found; they are started once."""
    return run_processes(tmp_path_factory.mktemp("ranks"), "cpu")


def run_processes(folder: Path, device: str) -> list[dict[str, Any]]:
    """Start the processes, and return what each found."""
    command = [sys.executable, "-m", "tests.parallel.processes", str(folder), device]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert (folder / "ends.json").exists(), done.stderr
    assert json.loads((folder / "ends.json").read_text()) == [0] * (SIZE - 1) + [LOST], done.stderr
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(SIZE)]


@pytest.mark.parametrize("name", cases())
def test_every_rank_has_the_sequential_run_within_its_certificate(name: str, found: list[dict[str, Any]]) -> None:
    reports = [one[name]["report"] for one in found]
    assert all(one[name]["error"] <= report["error"] for one, report in zip(found, reports, strict=True))
    assert all(report["truncation"] <= 1e-6 for report in reports)
    for number in ("truncation", "rounding", "verified", "error", "gradient"):
        assert len({report[number] for report in reports}) == 1
    assert reports[0]["error"] < 1e-3


@pytest.mark.parametrize("name", [name for name in cases() if name[:6] in ("tanh 1", "identi") and " 1 " in name])
def test_the_gradient_is_the_sequential_one_within_its_bound(name: str, found: list[dict[str, Any]]) -> None:
    """In exact arithmetic: of float64, its rounding is negligible; float32's is checked by size."""
    for one in found:
        rounding = one[name]["size"] * (1e-12 if "float64" in name else 1e-4)
        assert one[name]["wrong"] <= one[name]["report"]["gradient"] + rounding


@pytest.mark.parametrize("name", [name for name in cases() if "float64" in name])
def test_the_gradient_is_as_close_as_states_are(name: str, found: list[dict[str, Any]]) -> None:
    assert all(one[name]["wrong"] <= 1e-6 * one[name]["size"] for one in found)


@pytest.mark.gpu
@pytest.mark.slow
def test_processes_that_share_a_gpu_keep_the_promise(tmp_path: Path) -> None:
    for one in run_processes(tmp_path, "cuda"):
        for name in cases():
            test_every_rank_has_the_sequential_run_within_its_certificate(name, [one])
            assert one[name]["wrong"] <= (1e-6 if "float64" in name else 1e-3) * one[name]["size"]


@pytest.mark.parametrize("parts", PARTS)
def test_bytes_are_what_neighbours_send(parts: str, found: list[dict[str, Any]]) -> None:
    name = f"LSTM 1 float64 {parts}"
    sent = [one[name]["report"]["exchanged"] for one in found]
    state = 2 * 2 * 8 * 8  # h and c of two rows of 8 units
    times = [one[name]["report"]["layers"][0]["exchanges"] for one in found]
    members = [rank for rank in range(SIZE) if PARTS[parts][rank]]
    right = {rank: times[after] for rank, after in pairwise(members)}
    verified = [state * (rank in members[:-1]) for rank in range(SIZE)]
    ends = [state * ((rank == members[-1]) + (rank == 0)) for rank in range(SIZE)]  # the final state, and `hx` from rank 0
    assert [one["states"] for one in sent] == [right.get(r, 0) * state + verified[r] + ends[r] for r in range(SIZE)]
    assert [one["adjoints"] for one in sent] == [times[r] * state + state for r in range(SIZE)]


@pytest.mark.parametrize(
    ("mistake", "text"),
    [
        ("rows", "ShapeError: `input` must have the same number of rows on every rank, but has 3 on rank 2 and 2 on rank 0."),
        ("shape", "ShapeError: rank 1: `input` must have 5 features (input_size) in its last dimension, but has 6."),
        ("nan", "NotFiniteError: rank 2: `input` holds NaN or infinity"),
        ("weights", "ArgumentError: the weights must be the same on every rank, but those of rank 2 are not those of rank 0."),
        ("arguments", "ArgumentError: `rnn` and the arguments of `to_parallel` must be the same on every rank"),
        ("gradients", "ArgumentError: gradients must be on for every rank or for none, but rank 1 and rank 0 differ"),
        ("lengths", "ArgumentError: rank 1: `lengths` and packed sequences are not supported with `group`"),
        ("hx of another", "ArgumentError: `hx` is the state before the series, so rank 0 must give it, but rank 2 alone does."),
        ("hx differs", "ArgumentError: rank 2: `hx` is read from rank 0, and what another rank gives must equal it"),
    ],
)
def test_a_mistake_of_one_rank_is_the_same_error_on_all(mistake: str, text: str, found: list[dict[str, Any]]) -> None:
    errors = [one["errors"][mistake] for one in found]
    assert len(set(errors)) == 1
    assert errors[0].startswith(text)


def test_a_killed_process_is_an_error_of_torch_on_the_others(found: list[dict[str, Any]]) -> None:
    assert all("onnection" in one["lost"] or "imed out" in one["lost"] for one in found[:-1])


def test_a_group_of_some_processes_runs_by_itself(found: list[dict[str, Any]]) -> None:
    assert all(one["pair"]["error"] <= one["pair"]["allowed"] for one in found)
    assert all(one["pair"]["stranger"].startswith("ArgumentError: `group` must contain the process") for one in found)


@pytest.mark.parametrize("group", [True, 3, "nccl"])
def test_a_missing_process_group_is_refused(group: Any) -> None:
    with pytest.raises(ArgumentError, match=r"`group` needs the process group of torch\.distributed, and there is none"):
        sr.to_parallel(rnn_of(0.8), 1e-6, group=group)


def test_no_group_is_the_process_alone() -> None:
    x = torch.randn(30, 1, 5, dtype=torch.float64)
    for group in (None, False):
        fast = sr.to_parallel(rnn_of(0.8), 1e-6, group=group)
        fast(x)
        assert fast.report.exchanged is None
