"""Our own targets: each is complete, can be trained, keeps its budget, and is missed where its goal is."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from torch import nn

from steadyrnn.experiments.base import PLACES, TARGET_VERDICTS, VERDICTS, Claim, Experiment
from steadyrnn.experiments.goals import judge_budget, judge_goal, judge_leader, judge_proven
from steadyrnn.experiments.registry import EXPERIMENTS
from steadyrnn.experiments.targets import TARGETS
from steadyrnn.jobs.configuration import Configuration
from steadyrnn.jobs.reproduce import reproduce
from steadyrnn.models.systems import build_model
from steadyrnn.tasks.base import Interface
from steadyrnn.tasks.registry import make_task
from steadyrnn.train.arguments import check_settings
from steadyrnn.train.effects import check_effects

MODES = [pytest.param(one, quick, id=one.stem(quick)) for one in TARGETS.values() for quick in (True, False)]
INTERFACES = {
    "pixel-mnist": Interface(1, 10), "permuted-mnist": Interface(1, 10), "addition": Interface(2, 1),
    "copy": Interface(10, 10, reads="each"),
}  # fmt: skip
WORDS = Interface(8, 50, vocabulary=50, reads="each", carries_state=True)


def configurations(one: Experiment, quick: bool) -> Iterator[Configuration]:
    """Yield every configuration that a target may train."""
    series = one.quick if quick else one.full
    searched = {part.name: part.arguments["candidates"] for part in series if "candidates" in part.arguments}
    for part in series:
        for chosen in searched.get(part.after or part.name, [{}]):
            yield Configuration.from_dotted({**part.arguments["settings"], **chosen})


def test_names_are_ours_alone() -> None:
    assert {one.paper for one in TARGETS.values()} == {"ours"}
    assert not {*TARGETS} & {*EXPERIMENTS}
    assert not {*VERDICTS} & {*TARGET_VERDICTS}


@pytest.mark.parametrize(("one", "quick"), MODES)
def test_a_target_is_complete(one: Experiment, quick: bool) -> None:
    assert one.runnable
    assert one.where in PLACES
    assert one.minutes > 0
    work = one.work(quick)
    assert (work.header["paper"], work.name) == ("Targets of this package, beyond the papers", one.stem(quick))
    names = [cell.name for cell in work.cells]
    assert len({*names}) == len(names)
    judged = {claim.arguments["model"] for claim in one.select_claims(quick) if "model" in claim.arguments}
    assert judged <= {part.name for part in (one.quick if quick else one.full)}


@pytest.mark.parametrize("one", TARGETS.values(), ids=TARGETS)
def test_a_target_has_three_seeds(one: Experiment) -> None:
    trained = [part for part in one.full if part.seeds]
    assert trained
    assert all(part.seeds == (0, 1, 2) for part in trained)


@pytest.mark.parametrize(("one", "quick"), MODES)
def test_every_candidate_can_be_trained(one: Experiment, quick: bool) -> None:
    for configuration in configurations(one, quick):
        check_settings(configuration.train)
        check_effects(configuration.train, nn.Identity(), make_task("addition", length=4))
        build_model(configuration.model, INTERFACES.get(configuration.task_name, WORDS))


@pytest.mark.parametrize(
    ("one", "most"),
    [
        pytest.param(one, claim.arguments["most"], id=one.id)
        for one in TARGETS.values()
        for claim in one.claims
        if "most" in claim.arguments
    ],
)
def test_every_candidate_keeps_the_budget(one: Experiment, most: int) -> None:
    for configuration in configurations(one, quick=False):
        model = build_model(configuration.model, INTERFACES[configuration.task_name])
        count = sum(parameter.numel() for parameter in model.parameters())
        assert 0.75 * most <= count <= most  # a much smaller one would be another target's


@pytest.mark.parametrize("name", ["ours-rivals-pixel", "ours-rivals-permuted"])
def test_rivals_are_of_one_size(name: str) -> None:
    models = [build_model(one.model, INTERFACES[one.task_name]) for one in configurations(TARGETS[name], quick=False)]
    assert all(67_000 <= sum(parameter.numel() for parameter in model.parameters()) <= 70_000 for model in models)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ours-addition-1000", "ours-copy-2000"])
def test_a_quick_run_meets_its_goal(name: str, tmp_path: Path) -> None:
    record = reproduce(TARGETS[name].work(quick=True), tmp_path).record
    assert record["verdict"] == "1 met"
    assert record["id"] == name


# Judges


def runs(model: str, *scores: float | None, **more: Any) -> dict[str, Any]:
    """Return cells of a series with these accuracies and losses; None diverged."""
    made = [None if score is None else {"accuracy": score, "loss": score} for score in scores]
    return {f"{model}/seed{seed}": {"test": test, **more} for seed, test in enumerate(made)}


@pytest.mark.parametrize(
    ("scores", "higher", "verdict"),
    [
        ([0.98, 0.99], True, "met"), ([0.98], True, "met"), ([0.98, 0.97], True, "missed"), ([0.999, None], True, "missed"),
        ([0.98, 0.97], False, "met"), ([0.99], False, "missed"), ([], True, "missed"), ([None, None], False, "missed"),
    ],
)  # fmt: skip
def test_the_mean_of_all_seeds_must_reach_the_goal(scores: list[float | None], higher: bool, verdict: str) -> None:
    assert judge_goal(runs("a", *scores) | runs("ab", 0.5), "a", "accuracy", 98.0, higher, 100.0).verdict == verdict


@pytest.mark.parametrize(("count", "verdict"), [(3, "met"), (4, "met"), (2, "missed"), (1, "missed")])
def test_fewer_seeds_than_wanted_meet_no_goal(count: int, verdict: str) -> None:
    assert judge_goal(runs("a", *[0.99] * count), "a", "accuracy", 98.0, True, 100.0, seeds=3).verdict == verdict


@pytest.mark.parametrize("one", TARGETS.values(), ids=TARGETS)
def test_every_goal_wants_three_seeds_in_full_and_one_in_quick(one: Experiment) -> None:
    for quick, seeds in ((False, 3), (True, 1)):
        goals = [claim.arguments["seeds"] for claim in one.select_claims(quick) if "goal" in claim.arguments]
        assert goals == [seeds] * len(goals)


def test_a_goal_is_compared_before_it_is_rounded() -> None:
    found = judge_goal(runs("a", 0.97399), "a", "accuracy", 97.4, True, 100.0, "%")
    assert found.verdict == "missed"
    assert "short of the goal" in found.ours


@pytest.mark.parametrize(("counts", "verdict"), [((10, 10), "met"), ((9, 11), "missed"), ((11,), "missed")])
def test_the_largest_network_must_keep_the_budget(counts: tuple[int, ...], verdict: str) -> None:
    cells = {f"a/seed{seed}": {"parameters": count} for seed, count in enumerate(counts)}
    assert judge_budget(cells, "a", 10).verdict == verdict
    assert judge_budget({}, "a", 10).verdict == "missed"


@pytest.mark.parametrize(
    ("ours", "theirs", "verdict"),
    [(0.9, 0.8, "met"), (0.9, 0.9, "missed"), (0.8, 0.9, "missed"), (None, 0.1, "missed"), (0.1, None, "met")],
)
def test_the_leader_is_ahead_of_every_rival(ours: float | None, theirs: float | None, verdict: str) -> None:
    cells = runs("a", ours) | runs("b", theirs) | runs("c", 0.05)
    assert judge_leader(cells, "a", ["b", "c"], "accuracy").verdict == verdict


@pytest.mark.parametrize(
    ("ours", "theirs", "verdict"),
    [
        ([0.5, 0.5, 0.5], [0.99, None, 0.99], "missed"), ([0.9, 0.9], [0.8, None], "met"), ([0.9, None], [0.8, 0.8], "missed"),
        ([0.9], [0.8, 0.8], "missed"), ([], [0.8], "missed"),
    ],
)  # fmt: skip
def test_a_rival_counts_by_the_seeds_that_it_finished(
    ours: list[float | None], theirs: list[float | None], verdict: str
) -> None:
    found = judge_leader(runs("a", *ours) | runs("b", *theirs), "a", ["b"], "accuracy")
    assert found.verdict == verdict
    assert ("diverged" in found.ours) == (None in [*ours, *theirs])


@pytest.mark.parametrize(
    ("certificates", "verdict"),
    [
        ([(0.9, True), (0.95, True)], "met"), ([(0.9, True), (1.2, False)], "missed"), ([(0.9, True), None], "missed"),
        ([(1.0, True)], "missed"), ([], "missed"),
    ],
)  # fmt: skip
def test_every_network_must_be_proven(certificates: list[tuple[float, bool] | None], verdict: str) -> None:
    found = [None if one is None else {"contraction": one[0], "stable": one[1]} for one in certificates]
    cells = {f"a/seed{seed}": {"certificate": one} for seed, one in enumerate(found)}
    assert judge_proven(cells, "a").verdict == verdict


@pytest.mark.parametrize("one", TARGETS.values(), ids=TARGETS)
def test_a_target_whose_runs_diverged_is_missed(one: Experiment) -> None:
    facts = {"parameters": 1, "certificate": None, "test": None}
    cells = {cell.name: facts for cell in one.work().cells if "/seed" in cell.name}

    def about_runs(claim: Claim) -> bool:
        return "most" not in claim.arguments

    decided = [claim.decide(one.paper, cells) for claim in one.claims if about_runs(claim)]
    assert decided
    assert {claim["verdict"] for claim in decided} == {"missed"}
