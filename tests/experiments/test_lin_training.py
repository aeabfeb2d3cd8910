"""Trained tables and figures of Lin and Wang: every cell can be built, and every judge can say no."""

import math
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest
import torch

from steadyrnn.errors import ArgumentError
from steadyrnn.experiments.base import Claim, Experiment, Series
from steadyrnn.experiments.gradient_norms import draw_norms, judge_larger_norms, predict_band
from steadyrnn.experiments.loss_curves import draw_losses, draw_perplexities, judge_impossible_loss
from steadyrnn.experiments.registry import EXPERIMENTS
from steadyrnn.experiments.scores import judge_printed
from steadyrnn.experiments.sentences import count_words, find_phrases, write_sentences
from steadyrnn.experiments.step_times import compare_step_times
from steadyrnn.jobs.configuration import Configuration
from steadyrnn.jobs.loading import build_task
from steadyrnn.models.systems import build_model
from steadyrnn.tasks.base import Interface
from steadyrnn.tasks.largest import answer_distribution
from steadyrnn.train.arguments import check_settings
from tests.support.stored_data import make_folder

TRAINED = [one for one in EXPERIMENTS.values() if one.paper == "lin" and one.where == "gpu"]
MODES = [(one, quick) for one in TRAINED for quick in (False, True)]
SERIES = [
    pytest.param(series, id=f"{one.stem(quick)}:{series.name}")
    for one, quick in MODES
    for series in (one.quick if quick else one.full)
    if "settings" in series.arguments
]
CLAIMS = [
    pytest.param(claim, id=f"{one.stem(quick)}:{claim.name}") for one, quick in MODES for claim in one.select_claims(quick)
]
DATA = Path(os.environ.get("STEADYRNN_DATA") or "/nonexistent", "ptb")


def configurations(series: Series) -> Iterator[Configuration]:
    """Yield the configuration of each run that a series may start."""
    names = [series.arguments[key] for key in ("model", "beside") if key in series.arguments]
    choices = [*series.arguments.get("candidates", ()), *({"model.name": name} for name in names)] or [{}]
    return (Configuration.from_dotted({**series.arguments["settings"], **choice}) for choice in choices)


def read_interface(configuration: Configuration) -> Interface:
    """Return the task's interface; of Penn Treebank, which may be absent, one with fewer words."""
    if configuration.task_name == "ptb":
        return Interface(400, 50, vocabulary=50, reads="each", carries_state=True)
    return build_task(configuration).interface


@pytest.mark.parametrize("series", SERIES)
def test_every_run_can_be_built(series: Series) -> None:
    for configuration in configurations(series):
        check_settings(configuration.train)
        model: Any = build_model(configuration.model, read_interface(configuration))
        assert model.rnn.hidden_size == configuration.model.width


@pytest.mark.parametrize(("one", "quick"), MODES, ids=lambda value: getattr(value, "id", value))
def test_a_tuned_run_has_the_settings_of_its_search(one: Experiment, quick: bool) -> None:
    series = {part.name: part for part in (one.quick if quick else one.full)}
    for part in series.values():
        if part.after is not None:
            search = series[part.after]
            assert 2 <= len(search.arguments["candidates"]) <= 5
            free = {"task.length", "task.bptt"}
            shared, own = (
                {key: value for key, value in found.arguments["settings"].items() if key not in free}
                for found in (search, part)
            )
            assert shared == own


@pytest.mark.parametrize("one", TRAINED, ids=lambda one: one.id)
def test_a_full_run_has_three_seeds_or_more(one: Experiment) -> None:
    assert all(len(series.seeds) >= 3 for series in one.full if series.function.endswith(("train_network", "write_sentences")))


@pytest.mark.parametrize(("one", "quick"), MODES, ids=lambda value: getattr(value, "id", value))
def test_claims_name_series_that_are_run(one: Experiment, quick: bool) -> None:
    names = {series.name for series in (one.quick if quick else one.full)}
    for claim in one.select_claims(quick):
        named = claim.arguments.get("names", [])
        for key in ("model", "first", "then", "beat", "fail", "fast", "slow", "models", "steady", "other", "band"):
            value = claim.arguments.get(key, [])
            named = [*named, *([value] if isinstance(value, str) else value)]
        assert named, claim.name
        assert {*named} <= names, claim.name


def scored(models: Any, score: str, value: float, split: str = "test") -> dict[str, Any]:
    names = [models] if isinstance(models, str) else models
    return {f"{name}/seed0": {split: {score: value}} for name in names}


def normed(model: str, *norms: tuple[int, list[float]]) -> dict[str, Any]:
    records = [{"step": step, "value": {"mean": sum(one) / len(one), "lag": 9, "batches": one}} for step, one in norms]
    return {f"{model}/seed0": {"probes": {"state-jacobian": records}}}


def losses(model: str, *points: list[float]) -> dict[str, Any]:
    return {f"{model}/seed0": {"curve": {"validation loss": [*points]}, "baselines": {"loss": 1.0}}}


def fabricate(judge: str, given: Mapping[str, Any], good: bool) -> dict[str, Any]:
    """Return cells that show what a claim says, or do not."""
    match judge:
        case "judge_printed":
            number, higher = given["published"] / given.get("factor", 1.0), given.get("higher", True)
            return scored(
                given["model"], given["score"], number * (1 if good else 0.5 if higher else 2), given.get("split", "test")
            )
        case "judge_impossible_loss":
            return {"urnn/400/seed0": {}, f"{given['model']}/seed0": {"test": {"loss": 1.0 if good else 0.1, "accuracy": 0.6}}}
        case "judge_order":
            better = 0.9 if given.get("higher", True) == good else 0.1
            return scored(given["first"], given["score"], better) | scored(given["then"], given["score"], 1 - better)
        case "judge_baseline":
            beyond = 1.5 if given.get("higher", False) == good else 0.5
            beat, fail = (scored(given[key], given["score"], given["baseline"]) for key in ("beat", "fail"))
            for cells, factor in ((beat, beyond), (fail, 1.0 if good else 1.5)):
                for cell in cells.values():
                    cell["test"][given["score"]] *= factor
            return beat | fail
        case "judge_speed":
            fast, slow = losses(given["fast"], [5, 0.5], [9, 0.1]), losses(given["slow"], [5, 0.9], [9, 0.5 if good else 0.05])
            return fast | slow
        case "judge_length":
            return {f"{given['model']}/seed0": {"sentences": [{"text": "", "words": 46 if good else 45, "known": 1.0}]}}
        case "judge_phrases":
            return {f"{given['model']}/seed0": {"sentences": [{"text": "", "words": 9, "known": 0.6 if good else 0.4}]}}
        case "judge_constant_norm":
            return normed(given["model"], (0, [4.0, 4.00002 if good else 4.001])) | {given["band"]: predict_band(16, 1.0, 9)}
        case "judge_band":
            return normed(given["model"], (0, [3.9, 3.5 if good else 1.0])) | {given["band"]: predict_band(16, 0.95, 9)}
        case "judge_fluctuation":
            steady = normed(given["steady"], (given["step"], [4.0, 4.00001]))
            return steady | normed(given["other"], (given["step"], [4.0, 3.0 if good else 4.00001]))
        case "judge_larger_norms":
            first = normed(given["first"], *((step, [1.0]) for step in given["steps"]))
            return first | normed(given["then"], *((step, [0.001 if good else 0.5]) for step in given["steps"]))
        case "judge_decay":
            early, late = given["steps"]
            kept = [normed(model, (early, [1.0]), (late, [0.5])) for model in given["models"]]
            last = normed(given["models"][-1], (early, [1.0]), (late, [0.5 if good else 2.0]))
            return kept[0] | last
        case "judge_dead_units":
            record = {"step": given["step"], "value": {"dead": 0.6 if good else 0.4, "inactive": 0.9}}
            return {f"{given['model']}/seed0": {"probes": {"dead-units": [record]}}}
        case "judge_times":
            return {name: {"ratio": given["most"] * (1.0 if good else 1.1)} for name in given["names"]}
    raise AssertionError(f"no numbers for {judge}")


@pytest.mark.parametrize("claim", CLAIMS)
def test_a_wrong_number_changes_the_verdict(claim: Claim) -> None:
    judge, name = resolve_name(claim.judge), claim.judge.partition(":")[2]
    verdicts = [judge(fabricate(name, claim.arguments, good), **claim.arguments).verdict for good in (True, False)]
    assert verdicts == (["different", "seen"] if name == "judge_impossible_loss" else ["seen", "not seen"])


@pytest.mark.parametrize("claim", [one for one in CLAIMS if "larger" in one.id or "fluctuates" in one.id or "decay" in one.id])
def test_a_run_that_diverged_shows_nothing(claim: Claim) -> None:
    judge, name = resolve_name(claim.judge), claim.judge.partition(":")[2]
    cells = fabricate(name, claim.arguments, good=True)
    last = cells[[*cells][-1]]["probes"]["state-jacobian"]
    last[-1]["value"] = {}  # a weight that is not a number has no derivative
    found = judge(cells, **claim.arguments)
    assert found.verdict == "not seen"
    assert "diverged" in found.ours


def test_a_loss_below_what_its_accuracy_allows_is_no_reason() -> None:
    cells = {"urnn/seed0": {"test": {"loss": 0.2, "accuracy": 0.6}}}
    assert judge_impossible_loss(cells, "urnn", 0.1, 0.5673).verdict == "not seen"  # 0.277 or more, says the bound


def test_norms_that_are_all_zero_are_not_larger() -> None:
    cells = normed("urnn", (1, [0.0])) | normed("rnn", (1, [0.0]))
    assert judge_larger_norms(cells, "urnn", "rnn", [1], 100.0).verdict == "not seen"


@pytest.mark.parametrize(
    ("accuracy", "verdict"), [(0.0421, "not seen"), (0.0423, "seen"), (0.1621, "seen"), (0.1623, "different")]
)
def test_an_accuracy_is_judged_up_to_the_error_of_counting(accuracy: float, verdict: str) -> None:
    cells = scored("rnn", "accuracy", accuracy)  # two standard errors of 10.22 % in 102 examples are 5.9985 points
    found = judge_printed(cells, "rnn", "accuracy", 10.22, factor=100.0, examples=102)
    assert found.verdict == verdict
    assert ("within the error of counting" in found.ours) == (verdict == "seen")


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize(
    ("score", "value", "verdict"),
    [
        ("accuracy", 0.58, "not seen"), ("accuracy", 0.585, "seen"), ("accuracy", 0.615, "seen"),
        ("accuracy", 0.63, "different"), ("accuracy", 1.0, "different"), ("perplexity", 63.1, "not seen"),
        ("perplexity", 62.9, "seen"), ("perplexity", 57.1, "seen"), ("perplexity", 56.9, "different"),
    ],
)  # fmt: skip
def test_a_score_far_from_the_printed_one_is_not_seen_on_either_side(score: str, value: float, verdict: str, own: bool) -> None:
    higher = score == "accuracy"
    found = judge_printed(
        scored("rnn", score, value), "rnn", score, 60.3 if higher else 60.0, higher, 100.0 if higher else 1.0, own=own
    )
    assert found.verdict == ("seen" if own and verdict == "different" else verdict)
    assert ("better than printed" in found.ours) == (value > 0.603 if higher else value < 60)


def test_only_proposed_models_may_be_better_than_printed() -> None:
    claims = [(one, claim) for one in EXPERIMENTS.values() for claim in one.claims if "own" in claim.arguments]
    proposed = {"lin": ("urnn", "ugru"), "zhang": ("spectral-rnn",), "miller": ("stable",)}
    assert {one.paper for one, _ in claims} == {*proposed}
    for one, claim in claims:
        assert claim.judge.endswith(":judge_printed")
        assert any(part.startswith(proposed[one.paper]) for part in claim.arguments["model"].split("/"))
        assert claim.text.endswith("at least as good as printed")


def test_a_margin_is_one_at_each_length() -> None:
    (claim,) = [one for one in EXPERIMENTS["lin-table4"].claims if one.name == "margin"]
    scores = {"urnn": {100: 0.95, 200: 0.8, 400: 0.6}, "rnn": {100: 0.55, 200: 0.4, 400: 0.2}}
    cells = {f"{model}/{n}/seed0": {"test": {"accuracy": x}} for model, own in scores.items() for n, x in own.items()}
    assert claim.decide("lin", cells)["verdict"] == "seen"
    cells["rnn/400/seed0"]["test"]["accuracy"] = 0.51
    assert claim.decide("lin", cells)["verdict"] == "not seen"


@pytest.mark.parametrize(("one", "quick"), [mode for mode in MODES if "progress" in {c.name for c in mode[0].claims}])
def test_progress_is_above_the_best_constant_answer(one: Experiment, quick: bool) -> None:
    series = (one.quick if quick else one.full)[0].arguments["settings"]
    chance = max(answer_distribution(series["task.length"], series["task.k"]))
    (claim,) = [claim for claim in one.select_claims(quick) if claim.name == "progress"]
    error = math.sqrt(chance * (1 - chance) / series.get("task.test", 1000))
    assert claim.arguments["baseline"] == pytest.approx(chance + 3 * error, abs=2e-4)  # chances have four digits


def test_pictures_of_losses_have_a_panel_per_length_and_way() -> None:
    cells = losses("rnn/20", [1, 0.5]) | losses("tuned/urnn/20", [1, 0.5]) | losses("urnn/20", [1, 0.4]) | {"search/rnn": {}}
    panels = draw_losses(cells)
    assert [(panel.title, [line.label for line in panel.lines]) for panel in panels] == [
        ("N = 20", ["RNN", "uRNN"]), ("N = 20, tuned", ["uRNN"]),
    ]  # fmt: skip


def test_pictures_of_perplexities_have_a_panel_per_column_and_way() -> None:
    cell = {"curve": {"validation perplexity": [[1, 9.0]]}, "baselines": {"perplexity": 99.0}}
    names = ("gru/35/seed0", "ugru/35/seed0", "table6/urnn/abs/seed0")
    panels = draw_perplexities(dict.fromkeys(names, cell) | {"time/35": {"ratio": 1}})
    assert [(panel.title, len(panel.lines), panel.marks[0].y) for panel in panels] == [
        ("35", 2, 99.0),
        ("abs, table6", 1, 99.0),
    ]


def test_pictures_of_norms_have_the_band_and_gaps_for_zero() -> None:
    cells = normed("rnn/relu", (0, [1.0, 0.0])) | normed("urnn/relu", (0, [2.0, 2.0])) | {"band/relu": predict_band(4, 0.0, 9)}
    (panel,) = draw_norms(cells)
    assert [mark.y for mark in panel.marks] == [2.0]
    assert [[*line.y] for line in panel.lines] == [[1.0, None], [2.0, 2.0]]


def test_words_are_counted_to_the_end_or_to_a_repetition() -> None:
    assert count_words(["a", "b", "c", "<eos>", "d"]) == 3
    assert count_words(["a", "b", "c", "d", "a", "b", "c"]) == 4
    assert count_words([]) == 0


def test_short_texts_have_no_phrase() -> None:
    assert find_phrases(torch.tensor([1, 2]), 10).tolist() == []
    assert find_phrases(torch.tensor([3, 2, 1]), 10).tolist() == [321]


SMALL = {"model.name": "urnn", "model.width": 16, "model.embedding": 16, "train.steps": 2, "train.batch_size": 2}


def test_sentences_are_written_by_the_trained_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_folder(tmp_path / "data", monkeypatch)
    settings = {**SMALL, "task.name": "ptb", "task.bptt": 3}
    done = [write_sentences(settings, ["the"], 5, 0, tmp_path / name) for name in ("one", "other")]
    (sentence,) = done[0]["sentences"]
    assert done[0] == done[1]
    assert len(sentence["text"].split()) == sentence["words"] <= 6
    assert 0 <= sentence["known"] <= 1


def test_sentences_of_a_task_without_words_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="must have a text as task, but have 'addition'"):
        write_sentences({**SMALL, "task.name": "addition"}, ["the"], 5, 0, tmp_path)
    assert not [*tmp_path.iterdir()]


def test_the_ratio_of_times_is_that_of_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([9.0, 9.0, 3.0, 2.0, 8.0, 4.0, 5.0, 1.0])  # to warm up, then pairs of ratio 1.5, 2 and 5

    def take(call: Callable[[], object], calls: int, device: torch.device) -> float:
        call()
        return next(clock)

    monkeypatch.setattr("steadyrnn.experiments.step_times.seconds_per_call", take)
    sizes = {"task.name": "recall", "task.length": 3, "model.width": 4, "train.batch_size": 2}
    assert compare_step_times(sizes, "urnn", "rnn", pairs=3) == {"ratio": 2.0}


@pytest.mark.skipif(not DATA.is_dir(), reason="ptb is not in STEADYRNN_DATA")
@pytest.mark.parametrize(("bptt", "steps"), [(30, 388), (35, 332)])
def test_epochs_of_the_penn_treebank_are_as_declared(bptt: int, steps: int) -> None:
    assert build_task(Configuration.from_dotted({"task.name": "ptb", "task.bptt": bptt})).epoch_steps(80) == steps
