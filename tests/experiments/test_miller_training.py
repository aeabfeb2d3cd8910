"""Language models of Miller and Hardt: every cell can be built, judges say no to wrong numbers, cells keep their promises."""

import copy
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

from steadyrnn.experiments.miller_language import LANGUAGE
from steadyrnn.experiments.training import train_network
from steadyrnn.experiments.weight_distance import compare_windows
from steadyrnn.jobs.configuration import Configuration
from steadyrnn.jobs.loading import build_task
from steadyrnn.jobs.measurements import check_probes
from steadyrnn.models.systems import build_model
from steadyrnn.tasks.base import Interface
from steadyrnn.tasks.locate import is_there
from steadyrnn.train.arguments import check_settings

WORDS = {"ptb": 10_000, "wikitext-2": 33_278}
SERIES = [
    pytest.param(series, id=f"{one.id}-{mode}-{series.name}")
    for one in LANGUAGE
    for mode in ("quick", "full")
    for series in getattr(one, mode)
]


@pytest.mark.parametrize("series", SERIES)
def test_every_cell_can_be_built(series: Any) -> None:
    arguments = series.arguments
    for candidate in arguments.get("candidates", [{}]):
        window = {"task.bptt": arguments["longest"]} if "longest" in arguments else {}
        configuration = Configuration.from_dotted({**arguments["settings"], **window, **candidate})
        check_settings(configuration.train)
        check_probes(configuration.train.probe)
        words = WORDS[configuration.task_name]
        with torch.device("meta"):
            model = build_model(
                configuration.model, Interface(words, words, vocabulary=words, reads="each", carries_state=True)
            )
        embedding, width = configuration.model.embedding, configuration.model.width
        assert embedding is not None
        assert width is not None
        gates = 4 if configuration.model.name == "lstm" else 1
        layer = gates * (width * embedding + width * width + width)
        assert sum(parameter.numel() for parameter in model.parameters()) == words * embedding + layer + words * (width + 1)


@pytest.mark.parametrize("one", LANGUAGE, ids=lambda one: one.id)
def test_seeds_and_searches_follow_the_protocol(one: Any) -> None:
    names = [series.name for series in one.full]
    for series in one.full:
        assert series.resumable
        assert series.after is None or series.after in names
        assert len(series.seeds) >= 3 or (series.name.startswith("search/") and len(series.arguments["candidates"]) <= 4)


@pytest.mark.skipif(not is_there("wikitext-2"), reason="the data set wikitext-2 is not there")
def test_an_epoch_of_wikitext_has_as_many_steps_as_the_measurements_assume() -> None:
    (series,) = [series for series in LANGUAGE[1].full if series.name == "rnn"]
    configuration = Configuration.from_dotted(series.arguments["settings"])
    task = build_task(configuration)
    assert len(task.vocabulary) == WORDS["wikitext-2"]  # type: ignore[attr-defined]
    assert task.epoch_steps(20) == configuration.train.probe.every
    (search,) = [series for series in LANGUAGE[1].full if series.name == "search/lstm"]
    assert search.arguments["steps"] == 3 * task.epoch_steps(20)
    (distances,) = [series for series in LANGUAGE[2].full if series.name == "rnn"]
    assert distances.arguments["words"] == (len(task.texts["train"]) - 1) // 20 // 8  # type: ignore[attr-defined]


# Judges

_LAG = [*range(51)]


def _lags(factor: float, perplexity: float = 92.0) -> dict[str, Any]:
    flow = {"lag": _LAG, "mean": [factor**lag for lag in _LAG]}
    records = [{"step": 0, "value": flow}, {"step": 10, "value": flow}]
    return {"test": {"perplexity": perplexity}, "probes": {"input-gradient": records}}


def _distances(*ends: float) -> dict[str, Any]:
    distance = {k: [0.0, 0.8 * end, end] for k, end in zip(("5", "25", "64"), ends, strict=True)}
    return {"words": [0, 10, 20], "distance": distance, "norm": [1.0, 2.0, 3.0]}


def _converged(norm: float) -> dict[str, Any]:
    weights = [{"step": 0, "value": {"weight_hh_l0": 1.0}}, {"step": 9, "value": {"weight_hh_l0": norm}}]
    return {"test": {"perplexity": 140.0}, "probes": {"weights": weights}}


RIGHT: dict[str, dict[str, Any]] = {
    "miller-stable": {
        **{f"unconstrained/seed{i}": {"test": {"perplexity": 146.0 + i}} for i in (0, 1)},
        **{
            f"stable/seed{i}": {"test": {"perplexity": 142.0 + i}, "certificate": {"contraction": 0.99, "stable": True}}
            for i in (0, 1)
        },
    },
    "miller-fig2": {"search/lstm": {"chosen": {}}, "rnn/seed0": _lags(0.5, 146.0), "lstm/seed0": _lags(0.8)},
    "miller-fig3": {
        "search/lstm": {"chosen": {}},
        "rnn/seed0": _distances(3.0, 1.0, 0.5),
        "lstm/seed0": _distances(6.0, 2.0, 0.5),
        **{f"converged/rnn/seed{i}": _converged(norm) for i, norm in enumerate((2.9, 3.1))},
        **{f"converged/lstm/seed{i}": _converged(norm) for i, norm in enumerate((5.3, 5.6))},
    },
}

WRONG: list[tuple[str, str, str, dict[str, Any]]] = [
    ("miller-stable", "unconstrained", "unconstrained/seed0", {"test": {"perplexity": 175.0}}),
    ("miller-stable", "unconstrained", "unconstrained/seed0", {"test": None}),
    ("miller-stable", "stable", "stable/seed1", {"test": {"perplexity": 175.0}}),
    ("miller-stable", "unhurt", "stable/seed0", {"test": {"perplexity": 160.0}}),
    ("miller-stable", "unhurt", "stable/seed0", {"test": None}),
    ("miller-stable", "certified", "stable/seed0", {"certificate": {"contraction": 1.01, "stable": False}}),
    ("miller-stable", "certified", "stable/seed0", {"certificate": None}),
    ("miller-fig2", "rnn", "rnn/seed0", {"test": {"perplexity": 155.0}}),
    ("miller-fig2", "lstm", "lstm/seed0", {"test": {"perplexity": 97.5}}),
    ("miller-fig2", "vanishing", "lstm/seed0", _lags(0.95)),
    ("miller-fig2", "slower", "lstm/seed0", _lags(0.4)),
    ("miller-fig3", "windows", "rnn/seed0", _distances(1.0, 3.0, 0.5)),
    ("miller-fig3", "windows", "lstm/seed0", _distances(3.0, 0.5, 1.0)),
    ("miller-fig3", "windows", "rnn/seed0", {"distance": {"5": [0.0], "25": [0.0, 1.0], "64": [0.0, 0.5]}}),
    ("miller-fig3", "returns", "rnn/seed0", _distances(3.0, 2.9, 0.0)),
    ("miller-fig3", "growth", "rnn/seed0", {"distance": {"5": [0.0, 1.0, 2.5], "64": [0.0, 1.0, 1.5]}}),
    ("miller-fig3", "norm-rnn", "converged/rnn/seed0", _converged(2.0)),
    ("miller-fig3", "norm-lstm", "converged/lstm/seed1", _converged(4.0)),
    ("miller-fig3", "norm-lstm", "converged/lstm/seed1", {"test": None}),
]

EVERY = {one.id: one for one in LANGUAGE}


def _judge(name: str, claim: str, cells: dict[str, Any]) -> str:
    (one,) = [one for one in EVERY[name].claims if one.name == claim]
    return str(one.decide("miller", cells)["verdict"])


@pytest.mark.parametrize(("name", "claim", "cell", "change"), WRONG)
def test_a_wrong_number_changes_the_verdict(name: str, claim: str, cell: str, change: dict[str, Any]) -> None:
    cells = copy.deepcopy(RIGHT[name])
    assert _judge(name, claim, cells) == "seen"
    cells[cell] = {**cells[cell], **change}
    assert _judge(name, claim, cells) == "not seen"


def test_every_claim_is_given_a_wrong_number() -> None:
    assert {row[:2] for row in WRONG} == {(one.id, claim.name) for one in LANGUAGE for claim in one.claims}


@pytest.mark.parametrize("one", LANGUAGE, ids=lambda one: one.id)
def test_quick_claims_are_among_those_of_the_full_run(one: Any) -> None:
    assert one.quick_claims
    assert all(claim in one.claims for claim in one.quick_claims)


@pytest.mark.parametrize("name", RIGHT)
def test_pictures_show_what_was_measured(name: str) -> None:
    cells = copy.deepcopy(RIGHT[name])
    for key, cell in cells.items():
        if name == "miller-stable" and "/seed" in key:
            cell["curve"] = {"validation perplexity": [[10, 300.0], [20, 200.0]]}
    record = EVERY[name].work().finish(cells)
    assert record["curves"]
    lines = {line["label"]: line["y"] for line in record["curves"][0]["lines"]}
    expected = {
        "miller-stable": ("stable", [300.0, 200.0]),
        "miller-fig2": ("before training", [float(f"{0.5**lag:.6g}") for lag in _LAG[1:]]),
        "miller-fig3": ("k = 5", [0.0, 2.4, 3.0]),
    }
    label, y = expected[name]
    assert lines[label] == pytest.approx(y, rel=1e-5)


# Cells, on a text of a few hundred words

_TEXT = {
    "task.name": "ptb", "task.evaluation_rows": 2, "model.embedding": 3, "model.width": 4, "train.batch_size": 2,
    "train.device": "cpu", "train.optimizer.name": "sgd", "train.optimizer.lr": 1.0,
}  # fmt: skip


@pytest.fixture
def text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Settings of a small text in place of the Penn Treebank."""
    monkeypatch.setattr("steadyrnn.tasks.locate.CHECKSUMS", {})
    generator = torch.Generator().manual_seed(0)
    (tmp_path / "data" / "ptb").mkdir(parents=True)
    for split, count in (("train", 800), ("valid", 100), ("test", 100)):
        numbers = torch.randint(5, (count,), generator=generator).tolist()
        lines = " ".join(f"w{number}" for number in [*range(5), *numbers])
        (tmp_path / "data" / "ptb" / f"ptb.{split}.txt").write_text(f" {lines} \n")
    return {**_TEXT, "task.data_dir": str(tmp_path / "data")}


def test_distances_are_those_of_the_recurrent_weights_at_the_same_text(text: dict[str, Any], tmp_path: Path) -> None:
    found = compare_windows({**text, "model.name": "lstm"}, [4, 8], 8, 16, 3, 0, tmp_path / "cell")
    assert found["words"] == [0, 16, 32, 48]
    assert found["distance"]["8"] == [0.0] * 4  # the same run again
    assert found["distance"]["4"][0] == 0.0  # the same start
    assert min(found["distance"]["4"][1:]) > 0
    weights = []
    for window in (4, 8):
        ends = {"task.bptt": window, "train.steps": 48 // window, "train.probe.every": 48 // window, "model.name": "lstm"}
        folder = tmp_path / f"alone{window}"
        train_network({**text, **ends, "train.probe.names": ["weights"]}, 0, folder)
        (file,) = folder.glob(f"*/*/*/weights/{48 // window}.safetensors")
        weights.append(safetensors.torch.load_file(file)["weight_hh_l0"].double())
    norms = [float(torch.linalg.matrix_norm(weight, 2)) for weight in (weights[0] - weights[1], weights[1])]
    assert [found["distance"]["4"][-1], found["norm"][-1]] == pytest.approx(norms, rel=1e-9)


def test_a_cell_that_was_finished_in_part_gives_the_same_distances(text: dict[str, Any], tmp_path: Path) -> None:
    arguments: dict[str, Any] = {"settings": {**text, "model.name": "rnn"}, "longest": 8, "words": 16, "times": 2, "seed": 1}
    whole = compare_windows(**arguments, windows=[4, 2], folder=tmp_path / "one")
    compare_windows(**arguments, windows=[4], folder=tmp_path / "two")
    assert compare_windows(**arguments, windows=[4, 2], folder=tmp_path / "two") == whole


def test_a_cell_certifies_the_weights_it_tests(text: dict[str, Any], tmp_path: Path) -> None:
    settings = {**text, "model.name": "stable-rnn", "model.bound": 0.5, "train.steps": 2}
    found = train_network(settings, 0, tmp_path / "stable", certified=True)["certificate"]
    assert found["stable"]
    assert found["contraction"] <= 0.5 * (1 + 1e-6)
    assert "certificate" not in train_network(settings, 0, tmp_path / "other")


def test_a_network_that_diverged_has_no_certificate(text: dict[str, Any], tmp_path: Path) -> None:
    settings = {**text, "model.name": "rnn", "train.steps": 9, "train.optimizer.lr": 1e38, "train.clip.norm": None}
    done = train_network(settings, 0, tmp_path, certified=True)
    assert done["test"] is None
    assert done["certificate"] is None
