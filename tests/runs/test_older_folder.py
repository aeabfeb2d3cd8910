"""A run folder that an older version wrote still loads, evaluates, certifies, reports and resumes."""

import shutil
from pathlib import Path

import pytest

from steadyrnn.jobs.certify import certify_run
from steadyrnn.jobs.evaluate import evaluate_run
from steadyrnn.jobs.loading import load_trained, read_configuration
from steadyrnn.jobs.report import report_runs
from steadyrnn.jobs.train import train_network
from steadyrnn.runs.folder import Run

OLDER = Path(__file__).with_name("folder-0.1.0")
VALIDATION, FINAL_VALIDATION, FINAL_TEST = 0.6968584402464331, 0.6962824943475425, 0.8403559720609337
"""What that version computed: at step 4, and in the end when it resumed the run itself."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return Path(shutil.copytree(OLDER, tmp_path / "run"))


def test_it_loads(folder: Path) -> None:
    trained = load_trained(folder)
    assert (trained.checkpoint, trained.step, trained.origin.task_name) == ("best", 4, "addition")
    assert sum(parameter.numel() for parameter in trained.model.parameters()) == 39


@pytest.mark.parametrize("checkpoint", ["best", "last"])
def test_it_evaluates_to_what_it_noted(folder: Path, checkpoint: str) -> None:
    scores = evaluate_run(folder, "validation", checkpoint=checkpoint, device="cpu").scores
    assert scores["loss"] == pytest.approx(VALIDATION, rel=1e-5)


def test_it_certifies(folder: Path) -> None:
    certificate = certify_run(folder, input_bound=2.0).certificate
    assert 1.0 <= certificate.contraction < 1.1  # center 1, radius 0.1
    assert not certificate.stable


def test_it_is_reported(folder: Path, tmp_path: Path) -> None:
    assert report_runs([folder], tmp_path / "page.html").path.stat().st_size > 1000


def test_it_resumes_as_it_did_then(folder: Path) -> None:
    before = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    run = train_network(read_configuration(Run.open(folder)), resume=folder)
    assert (run.folder, run.result.steps, run.result.reason) == (folder, 6, "finished")
    assert run.result.best["loss"] == pytest.approx(FINAL_VALIDATION, rel=1e-5)
    assert run.result.test["loss"] == pytest.approx(FINAL_TEST, rel=1e-5)
    assert (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()[: len(before) - 1] == before[:-1]
    assert evaluate_run(folder, device="cpu").scores == run.result.test
