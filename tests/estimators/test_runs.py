"""The run folder of an estimator, and the program on it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from steadyrnn.cli.main import main
from steadyrnn.jobs.loading import load_trained

from .waves import make_classifier, make_forecaster, make_regressor, ragged_waves, wave_table

X, Y = wave_table()
RAGGED, LABELS = ragged_waves()
HOLES = X.copy()
HOLES[::7, 3] = np.nan


def fit_with_run(kind: str, folder: Path) -> Any:
    runs = str(folder / "runs")
    match kind:
        case "classifier":
            return make_classifier(runs=runs, epochs=5, model="stable-spectral").fit(RAGGED, LABELS)
        case "weighted":
            return make_classifier(runs=runs, epochs=2, class_weight="balanced", missing="mask").fit(HOLES, Y)
        case "regressor":
            return make_regressor(runs=runs, epochs=2).fit(X, X[:, :2])
    return make_forecaster(runs=runs, epochs=2).fit(np.sin(np.arange(200) / 4))


KINDS = ("classifier", "weighted", "regressor", "forecaster")


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_has_the_weights_of_the_estimator(kind: str, tmp_path: Path) -> None:
    estimator = fit_with_run(kind, tmp_path)
    stored = load_trained(estimator.run_folder_).model.state_dict()
    assert all(torch.equal(tensor, stored[name]) for name, tensor in estimator.model_.state_dict().items())


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_does_not_change_what_is_learned(kind: str, tmp_path: Path) -> None:
    estimator = fit_with_run(kind, tmp_path)
    folder, estimator.runs = estimator.run_folder_, None
    history, weights = estimator.history_, [tensor.clone() for tensor in estimator.model_.state_dict().values()]
    data = {"classifier": (RAGGED, LABELS), "weighted": (HOLES, Y), "regressor": (X, X[:, :2])}
    estimator.fit(*data.get(kind, (np.sin(np.arange(200) / 4),)))
    assert all(map(torch.equal, weights, estimator.model_.state_dict().values()))
    assert estimator.history_ == history
    assert folder.is_dir()
    assert estimator.run_folder_ is None


@pytest.mark.parametrize("kind", KINDS)
def test_the_program_scores_a_run_as_it_was_scored(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    estimator = fit_with_run(kind, tmp_path)
    assert main(["eval", str(estimator.run_folder_), "--split", "validation", "--device", "cpu", "--json"]) == 0
    scores = json.loads(capsys.readouterr().out)["scores"]
    # batches are cut at other places than in training: sums of float32 numbers differ in the last digits
    assert scores == pytest.approx(estimator.validation_, rel=1e-4)


def test_the_program_certifies_converts_and_reports_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    classifier = fit_with_run("classifier", tmp_path)
    run = str(classifier.run_folder_)
    assert main(["certify", run, "--json"]) == 0
    certificate = json.loads(capsys.readouterr().out)
    assert "stable" in json.dumps(certificate)
    assert main(["certify", run, "--recheck"]) == 0
    assert main(["convert", run, "--to", "parallel", "--out", str(tmp_path / "plain")]) == 0
    assert main(["report", str(tmp_path / "runs"), "--out", str(tmp_path / "page.html")]) == 0
    assert "SequenceClassifier" in (tmp_path / "page.html").read_text()
