"""Deep networks and language models of Zhang et al.: cells can be built and start, and their judges can say no."""

import copy
from pathlib import Path
from typing import Any

import pytest

from steadyrnn.experiments.base import Series
from steadyrnn.experiments.curves import Panel
from steadyrnn.experiments.multilabel_sizes import count_rows
from steadyrnn.experiments.registry import EXPERIMENTS
from steadyrnn.experiments.training import train_network
from steadyrnn.experiments.word_prediction import count_recurrent
from steadyrnn.jobs.configuration import Configuration
from steadyrnn.models.settings import complete
from steadyrnn.models.systems import build_model
from steadyrnn.tasks.base import Interface
from steadyrnn.train.arguments import check_settings
from tests.support.stored_data import make_folder

IDS = ("zhang-fig5", "zhang-fig7", "zhang-table3")
INTERFACES = {
    "mnist": Interface(784, 10, reads="row"),
    "bibtex": Interface(1836, 159, reads="row"),
    "ptb": Interface(400, 10_000, vocabulary=10_000, reads="each", carries_state=True),
}


def _series(name: str, quick: bool) -> tuple[Series, ...]:
    return EXPERIMENTS[name].quick if quick else EXPERIMENTS[name].full


TRAINED = {
    f"{name} {'quick' if quick else 'full'} {one.name}": one
    for name in IDS
    for quick in (True, False)
    for one in _series(name, quick)
    if one.resumable
}
DEEPEST = [
    f"zhang-{place} full {model}/{layers}"
    for place, layers in (("fig5", 100), ("fig7", 40))
    for model in ("mlp", "resnet", "spectral-mlp", "spectral-resnet")
]
TWO_LAYERS = [
    f"zhang-table3 full {model}/2/{reading}" for model in ("rnn", "lstm", "spectral-rnn") for reading in ("dropped", "tuned")
]


@pytest.mark.parametrize("key", TRAINED)
def test_settings_of_every_cell_are_accepted(key: str) -> None:
    arguments = TRAINED[key].arguments
    for candidate in arguments.get("candidates", [{}]):
        configuration = Configuration.from_dotted({**arguments["settings"], **candidate, "task.seed": 0})
        check_settings(configuration.train)
        complete(configuration.model)
    model = build_model(configuration.model, INTERFACES[configuration.task_name])
    assert sum(parameter.numel() for parameter in model.parameters()) > 0


@pytest.mark.parametrize("key", DEEPEST + TWO_LAYERS)
def test_a_full_cell_starts(key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_folder(tmp_path / "data", monkeypatch)
    small: dict[str, Any] = {"train.steps": 1, "train.batch_size": 4, "train.validate_every": 1, "train.log_every": 1}
    small |= {"task.validation": 6} if "fig5" in key else {}
    done = train_network({**TRAINED[key].arguments["settings"], **small}, 0, tmp_path / "run")
    assert done["steps"] == 1
    assert done["test"] is not None


@pytest.mark.parametrize("name", IDS)
@pytest.mark.parametrize("quick", [False, True])
def test_a_search_comes_before_what_needs_it(name: str, quick: bool) -> None:
    cells = EXPERIMENTS[name].work(quick).cells
    order = [cell.name for cell in cells]
    assert all(order.index(cell.after) < order.index(cell.name) for cell in cells if cell.after is not None)
    assert quick or any(cell.after for cell in cells)


@pytest.mark.parametrize("name", IDS)
def test_a_full_run_has_three_seeds_and_at_most_four_candidates(name: str) -> None:
    for one in EXPERIMENTS[name].full:
        if one.resumable:
            assert len(one.seeds) >= 3 or len(one.arguments["candidates"]) <= 4


@pytest.mark.parametrize(
    ("row", "count"),
    [
        *(("rnn/1", 128**2), ("lstm/1", 4 * 128**2), ("spectral-rnn/1", 32_288)),
        *(("rnn/2", 2 * 128**2), ("lstm/2", 8 * 128**2), ("spectral-rnn/2", 2 * 32_288)),
    ],
)
def test_recurrent_parameters_are_those_of_table_3(row: str, count: int) -> None:
    (one,) = [one for one in EXPERIMENTS["zhang-table3"].full if one.name == f"count/{row}"]
    assert count_recurrent(**one.arguments) == {"recurrent": count}


def test_sizes_are_read_from_the_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_folder(tmp_path, monkeypatch)
    assert count_rows("bibtex") == {"features": 4, "labels": 6, "train": 12, "test": 7}
    assert count_rows("mediamill") == {"features": 3, "labels": 7, "train": 9, "test": 6}
    (tmp_path / "mediamill" / "Mediamill_data.txt").unlink()
    assert count_rows("mediamill") is None


def _run(
    score: str, value: float, curve: str = "validation accuracy", heights: tuple[float, ...] = (0.5, 0.9)
) -> dict[str, Any]:
    points = [[step, height] for step, height in enumerate(heights, 1)]
    facts = {"best_step": 2, "baselines": {"perplexity": 700.0}}
    return {"test": {score: value}, "curve": {curve: points}, **facts}


def _digits(quick: bool) -> dict[str, Any]:
    deep = {"mlp": 35, "resnet": 70}
    cells = {}
    for one in _series("zhang-fig5", quick):
        model, _, layers = one.name.partition("/")
        if one.seeds:
            fails = int(layers) > (deep.get(model, 1000) if not quick else {"mlp": 6, "resnet": 30}.get(model, 1000))
            heights = (0.1, 0.9) if model == "mlp" else (0.5, 0.9)
            cells |= {f"{one.name}/seed{seed}": _run("accuracy", 0.1 if fails else 0.96, heights=heights) for seed in one.seeds}
    return cells


def _tags(quick: bool) -> dict[str, Any]:
    best = {True: 0.6, False: 0.5}
    return {
        f"{one.name}/seed{seed}": _run("precision@1", best[one.name.startswith("spectral-resnet")], "validation loss")
        for one in _series("zhang-fig7", quick)
        for seed in one.seeds
    }


def _words(quick: bool) -> dict[str, Any]:
    """Return numbers as printed: of the test, and of training in the second of two epochs."""
    printed = {
        **{"rnn/1": (144.7, 4.22), "lstm/1": (130.7, 4.23), "spectral-rnn/1": (130.2, 4.18)},
        **{"rnn/2": (142.5, 4.13), "lstm/2": (122.7, 3.26), "spectral-rnn/2": (121.3, 3.58)},
    }
    counts = {"rnn/1": 16_384, "lstm/1": 65_536, "spectral-rnn/1": 32_288}
    counts |= {"rnn/2": 32_768, "lstm/2": 131_072, "spectral-rnn/2": 64_576}
    cells: dict[str, Any] = {f"count/{row}": {"recurrent": count} for row, count in counts.items()}
    for one in _series("zhang-table3", quick):
        test, loss = printed.get("/".join(one.name.split("/")[:2]), (0.0, 0.0))
        cells |= {f"{one.name}/seed{seed}": _run("perplexity", test, "train loss", (9.0, loss)) for seed in one.seeds}
    return cells


def _sizes(quick: bool) -> dict[str, Any]:
    return {
        "bibtex": {"features": 1836, "labels": 159, "train": 4880, "test": 2515},
        "mediamill": {"features": 120, "labels": 101, "train": 30993, "test": 12914},
    }


MADE_UP = {"zhang-fig5": _digits, "zhang-fig7": _tags, "zhang-table3": _words, "zhang-table5": _sizes}

WRONG: list[tuple[str, bool, str, str, list[Any], Any]] = [
    ("zhang-fig5", False, "shallow", "spectral-mlp/30/seed0", ["test", "accuracy"], 0.9),
    ("zhang-fig5", False, "slower", "mlp/30/seed0", ["curve", "validation accuracy", 0, 1], 2.0),
    ("zhang-fig5", False, "mlp", "mlp/35/seed0", ["test"], None),
    ("zhang-fig5", False, "resnet", "resnet/70/seed0", ["test"], None),
    ("zhang-fig5", False, "spectral", "spectral-mlp/80/seed0", ["test"], None),
    ("zhang-fig5", False, "precision", "spectral-resnet/100/seed0", ["test"], None),
    ("zhang-fig5", True, "mlp", "mlp/30/seed0", ["test", "accuracy"], 0.6),
    ("zhang-fig5", True, "resnet", "resnet/100/seed0", ["test", "accuracy"], 0.9),
    ("zhang-fig5", True, "spectral", "spectral-mlp/30/seed0", ["test", "accuracy"], 0.4),
    ("zhang-fig5", True, "precision", "spectral-mlp/30/seed0", ["test", "accuracy"], 0.1),
    *(("zhang-fig7", False, f"layers-{n}", f"mlp/{n}/seed0", ["test", "precision@1"], 1.0) for n in (4, 16, 40)),
    *(("zhang-fig7", True, f"layers-{n}", f"spectral-resnet/{n}/seed0", ["test"], None) for n in (4, 24)),
    ("zhang-table5", False, "bibtex", "bibtex", ["labels"], 160),
    ("zhang-table5", False, "mediamill", "mediamill", ["train"], 30992),
    ("zhang-table3", False, "generalization", "spectral-rnn/2/tuned/seed0", ["curve", "train loss", 1, 1], 1.0),
    *(
        ("zhang-table3", quick, f"{row.replace('/', '-')}-parameters", f"count/{row}", ["recurrent"], 1024)
        for row in ("rnn/1", "lstm/1", "spectral-rnn/1", "rnn/2", "lstm/2", "spectral-rnn/2")
        for quick in (False, True)
    ),
    *(
        ("zhang-table3", False, f"{model}-{row.replace('/', '-')}-{part}", f"{model}/{row}/seed0", path, value)
        for model in ("rnn", "lstm", "spectral-rnn")
        for row in ("1/printed", "1/tuned", "2/dropped", "2/kept", "2/tuned")
        for part, path, value in (("test", ["test", "perplexity"], 200.0), ("train", ["curve", "train loss", 1, 1], 5.0))
    ),
    *(
        ("zhang-table3", quick, f"order-{row.replace('/', '-')}", f"lstm/{row}/seed0", ["test", "perplexity"], 1.0)
        for quick in (False, True)
        for row in (("1/small", "2/dropped", "2/kept") if quick else ("1/printed", "1/tuned", "2/dropped", "2/kept", "2/tuned"))
    ),
]  # fmt: skip


def _verdict(name: str, quick: bool, claim: str, cells: dict[str, Any]) -> str:
    (one,) = [one for one in EXPERIMENTS[name].select_claims(quick) if one.name == claim]
    return str(one.decide("zhang", cells)["verdict"])


@pytest.mark.parametrize(("name", "quick", "claim", "cell", "path", "value"), WRONG)
def test_a_wrong_number_changes_the_verdict(name: str, quick: bool, claim: str, cell: str, path: list[Any], value: Any) -> None:
    cells = MADE_UP[name](quick)
    assert _verdict(name, quick, claim, cells) == "seen"
    holder, keys = cells, [cell, *path]
    for key in keys[:-1]:
        holder = holder[key]
    holder[keys[-1]] = value
    assert _verdict(name, quick, claim, cells) == "not seen"


def test_absent_data_is_not_measured() -> None:
    found = EXPERIMENTS["zhang-table5"].work().finish({**_sizes(False), "mediamill": None})
    assert found["verdict"] == "1 seen, 1 not measured"


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("name", MADE_UP)
def test_every_claim_is_given_a_wrong_number(name: str, quick: bool) -> None:
    tried = {row[2] for row in WRONG if row[:2] == (name, quick and EXPERIMENTS[name].quick_claims is not None)}
    assert tried == {claim.name for claim in EXPERIMENTS[name].select_claims(quick)}


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("name", IDS)
def test_pictures_have_every_model_and_a_gap_for_a_run_that_diverged(name: str, quick: bool) -> None:
    cells = MADE_UP[name](quick)
    first, *others = [Panel.from_dict(panel) for panel in EXPERIMENTS[name].work(quick).finish(cells)["curves"]]
    assert all(value is not None for line in first.lines for value in line.y)
    assert others or name == "zhang-table3"  # whose made-up runs have no validation curve
    broken = copy.deepcopy(cells)
    last = [key for key in broken if "/seed" in key][-1]
    broken[last] |= {"test": None, "curve": {}}
    first, *_ = [Panel.from_dict(panel) for panel in EXPERIMENTS[name].work(quick).finish(broken)["curves"]]
    assert [value for line in first.lines for value in line.y].count(None) == 1
