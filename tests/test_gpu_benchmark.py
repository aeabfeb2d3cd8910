"""The benchmark on a GPU, as far as it goes without one: rows, floors and the verdict."""

import json
import math
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch

FOLDER = Path(__file__).parents[1] / "benchmarks"

pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason="the benchmarks are not part of a source package")


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The modules ``gpu``, ``gpu_peers`` and ``gpu_targets`` as attributes."""
    monkeypatch.syspath_prepend(str(FOLDER))

    class Modules:
        gpu, peers, targets = (import_module(name) for name in ("gpu", "gpu_peers", "gpu_targets"))

    return Modules


def test_the_table_has_every_row_once_in_any_number_of_parts(bench: Any) -> None:
    rows = bench.gpu.cases(False)
    assert len(rows) == len({case.label for case in rows}) == 6 * 5 * 3 * 2 + 3 * 2
    parts = [bench.gpu.chosen(rows, None, f"{part}/4") for part in (1, 2, 3, 4)]
    assert sorted(case for part in parts for case in part) == sorted(rows)
    assert {case.label for case in bench.gpu.cases(True)} <= {case.label for case in rows}


@pytest.mark.parametrize("kind", ["rnn-relu", "rnn-tanh", "rnn-leaky_relu", "rnn-abs", "gru", "lstm"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_every_peer_of_a_row_computes_the_same(bench: Any, kind: str, dtype: str) -> None:
    row = bench.gpu.measure(bench.peers.Case(kind, 6, 20, dtype), "cpu", steps=4)
    assert row["wrong"] == {}
    has = kind not in ("rnn-leaky_relu", "rnn-abs")
    assert set(row["times"]) == {"ours", "cpu", "eager", "torch" if has else "torch-relu"}
    assert (row["ours_over_torch"] is not None) == has
    assert row["engine"] == {"forward": "cpu", "training": "cpu"}
    assert all(0 < row["errors"][name] < math.inf for name in ("reference", "ours", "eager"))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_factored_layer_stands_beside_a_dense_one(bench: Any, dtype: str) -> None:
    row = bench.gpu.measure(bench.peers.Case("rnn-relu", 64, 3, dtype, True), "cpu", steps=4)
    assert row["wrong"] == {}
    assert set(row["times"]) == {"ours", "torch", "cpu"}
    assert "torch" not in row["errors"]


def test_recurrent_weights_are_orthogonal(bench: Any) -> None:
    layer = bench.peers.our_layer(bench.peers.Case("gru", 8, 1, "float32"), "cpu")
    for gate in layer.weight_hh_l0.detach().chunk(3):
        assert float((gate @ gate.T - torch.eye(8)).abs().max()) < 1e-5


def test_a_peer_that_is_wrong_has_no_time(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench.peers.Loop, "step", lambda self, given, recurred, state: (given, state[1]))
    row = bench.gpu.measure(bench.peers.Case("rnn-tanh", 6, 3, "float32"), "cpu", steps=4)
    assert "eager" not in row["times"]
    assert row["wrong"]["eager"].startswith("off by")


def test_a_peer_that_fails_leaves_the_others_their_times(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[list[str]] = []

    def microseconds(peers: dict[str, Any], *_: Any) -> dict[str, dict[str, float]]:
        tried.append(list(peers))
        if "ours" in peers:
            raise torch.OutOfMemoryError("too large")
        return {name: {"forward": 1.0, "training": 2.0} for name in peers}

    monkeypatch.setattr(bench.gpu, "microseconds", microseconds)
    row = bench.gpu.measure(bench.peers.Case("rnn-tanh", 6, 3, "float32"), "cpu", steps=4, eager=False, named=[])
    assert tried == [["ours", "torch"], ["ours"], ["torch"]]
    assert row["wrong"] == {"ours": "too large"}
    assert set(row["times"]) == {"torch"}


def test_the_floor_is_the_larger_of_work_and_memory(bench: Any) -> None:
    found = bench.targets.floor("rnn-relu", 1024, 128, "float32", 64, False)
    assert found["forward"] == pytest.approx(1e6 * 2 * 128 * 1024 * (1024 + 64) / 67e12)
    assert found["training"] == pytest.approx(1e6 * 2 * 128 * 1024 * (3 * 1024 + 2 * 64) / 67e12)
    found = bench.targets.floor("lstm", 64, 16, "bfloat16", 64, False)
    assert found["forward"] == pytest.approx(1e6 * 16 * 5 * 64 * 2 / 4.8e12)


# the verdict


def measured(target: Any, figure: float, error: float = 1e-6) -> list[dict[str, Any]]:
    """Return rows in which every figure that a target speaks of is ``figure``."""
    rows: list[dict[str, Any]] = []
    for kind in target.kinds:
        for size in target.sizes:
            ours = dict.fromkeys(target.modes, 1.0 if target.figure == "faster" else figure)
            torchs = dict.fromkeys(target.modes, figure if target.figure == "faster" else 1.0)
            sizes = {"n": size, "B": target.batch, "dtype": target.dtype, "factored": target.factored}
            errors = {"reference": 1e-6, "ours": error}
            times = {"ours": ours, "torch-relu" if target.figure == "like_relu" else "torch": torchs}
            rows.append({"kind": kind, **sizes, "label": f"{kind}/n{size}", "times": times, "errors": errors})
    return rows


def judged(bench: Any, target: Any, rows: list[dict[str, Any]]) -> tuple[str, str]:
    """Return status and figure of a target."""
    (found,) = [(status, figure) for status, words, figure in bench.targets.verdict(rows) if words == target.words]
    return found


@pytest.mark.parametrize("place", range(8))
def test_a_target_is_met_missed_or_not_measured(bench: Any, place: int) -> None:
    target = bench.targets.TARGETS[place]
    better, worse = (1.01, 0.99) if target.figure == "faster" else (0.99, 1.01)
    assert len(bench.targets.TARGETS) == 8
    assert judged(bench, target, measured(target, better * target.limit))[0] == "met"
    assert judged(bench, target, measured(target, worse * target.limit))[0] == "MISSED"
    assert judged(bench, target, []) == ("not measured", "")


def test_one_row_that_misses_is_told_with_its_figure(bench: Any) -> None:
    target = bench.targets.TARGETS[2]
    rows = measured(target, 4.0)
    rows[1]["times"]["torch"]["training"] = 2.5
    assert judged(bench, target, rows) == ("MISSED", "2.50 (rnn-relu n=1024 training); 1 of 4 miss it")


def test_a_target_of_which_a_row_is_missing_is_not_met(bench: Any) -> None:
    target = bench.targets.TARGETS[2]
    assert judged(bench, target, measured(target, 4.0)[1:]) == ("in part", "4.00 (rnn-relu n=1024 training); 1 not measured")


@pytest.mark.parametrize(("error", "status"), [(1.9e-6, "met"), (2.1e-6, "MISSED")])
def test_errors_are_judged_beside_the_references(bench: Any, error: float, status: str) -> None:
    rows = measured(bench.targets.TARGETS[2], 4.0, error)
    assert bench.targets.verdict(rows)[-1][0] == status


def test_the_verdict_is_printed_without_a_gpu(bench: Any, tmp_path: Path) -> None:
    rows = measured(bench.targets.TARGETS[2], 2.0)
    (tmp_path / "gpu.json").write_text(json.dumps({"rows": rows}))
    words = [sys.executable, str(FOLDER / "gpu.py"), "--verdict", "--out", str(tmp_path / "gpu.json")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert "MISSED        wide layers: 3 times as fast" in done.stdout


def test_the_file_is_read_back_as_it_was_written(bench: Any, tmp_path: Path) -> None:
    path = tmp_path / "gpu.json"
    content = bench.gpu.contents(path)
    assert (content["T"], content["D"], content["rows"]) == (784, 64, [])
    content["rows"] = measured(bench.targets.TARGETS[2], 2.0)
    bench.gpu.write(path, content)
    assert bench.gpu.contents(path) == content
