"""Training, validation and test share no step, no series and no group; by time each date separates them."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from steadyrnn.errors import DataError
from steadyrnn.tasks.series.prepared import prepare
from steadyrnn.tasks.series.records import SeriesSet
from steadyrnn.tasks.series.settings import SeriesSettings
from steadyrnn.tasks.series.split import PARTS, Segments, split_by_series
from tests.tasks.series.made import classes, made, numbers

LENGTHS = st.lists(st.integers(1, 30), min_size=3, max_size=12)
FRACTIONS = st.sampled_from([0.05, 0.15, 0.2, 0.33, 0.45])
FEW = st.sampled_from([0.05, 0.15, 0.2, 0.33])


def rows_of(segments: Segments) -> list[int]:
    return [row for a, b in zip(segments.start.tolist(), segments.stop.tolist(), strict=True) for row in range(a, b)]


def split(series: SeriesSet, **settings: object) -> dict[str, Segments]:
    return prepare(series, SeriesSettings(**settings)).parts  # type: ignore[arg-type]


def unless_refused(make: Callable[[], dict[str, Segments]], why: str) -> dict[str, Segments] | None:
    """Return what is made, None where it is refused for this reason."""
    try:
        return make()
    except DataError as error:
        if why not in str(error):
            raise
        return None


@given(lengths=LENGTHS, seed=st.integers(0, 100), validation=FRACTIONS, test=FRACTIONS, kinds=st.integers(1, 4))
def test_by_series_each_series_is_in_one_part_whole(
    lengths: list[int], seed: int, validation: float, test: float, kinds: int
) -> None:
    labels = torch.arange(len(lengths)) % kinds
    series = made(lengths, target=numbers(len(lengths), each=False))
    settings = SeriesSettings(seed=seed, validation=validation, test=test, target="p", split="series")
    problem = prepare(series, settings).problem
    parts = unless_refused(lambda: split_by_series(series, problem, settings, labels), "too few series")
    if parts is None:
        assert kinds > 1  # each part gets one of them, where training may lose any
        return
    assert sorted(row for part in PARTS for row in rows_of(parts[part])) == [*range(sum(lengths))]
    for part in PARTS:
        assert parts[part].lengths.tolist() == [lengths[place] for place in parts[part].series.tolist()]
    assert {*labels[parts["train"].series].tolist()} == {*labels.tolist()}


@given(count=st.integers(6, 40), seed=st.integers(0, 100), validation=FEW, test=FEW)
def test_a_part_has_its_share_of_each_class_up_to_one_series(count: int, seed: int, validation: float, test: float) -> None:
    series = made([2] * 3 * count, target=classes(3 * count, 3, each=False))
    parts = split(series, target="kind", seed=seed, validation=validation, test=test)
    for part, share in (("validation", validation), ("test", test)):
        assert abs(len(parts[part]) - 3 * share * count) <= 0.5 + 1e-9
        for kind in "abc":
            found = sum(series.target.texts[row] == kind for row in parts[part].series.tolist())  # type: ignore
            assert abs(found - share * count) <= 1 + 1e-9, (part, kind)


@given(groups=st.lists(st.sampled_from("ABCDEF"), min_size=3, max_size=30), seed=st.integers(0, 50), test=FRACTIONS)
def test_a_group_is_never_divided(groups: list[str], seed: int, test: float) -> None:
    count = len(groups)
    series = made([3] * count, target=numbers(count, each=False), groups=tuple(groups))
    if len({*groups}) < 3:
        with pytest.raises(DataError, match="too few groups"):
            split(series, target="p", seed=seed, test=test)
        return
    parts = split(series, target="p", seed=seed, test=test)
    found = [{groups[row] for row in parts[part].series.tolist()} for part in PARTS]
    assert all(found)
    assert sum(map(len, found)) == len({*groups})
    assert sum(len(parts[part]) for part in PARTS) == count


@given(
    lengths=st.lists(st.integers(1, 30), min_size=1, max_size=6), begin=st.lists(st.integers(0, 60), min_size=6, max_size=6),
    validation=FRACTIONS, test=FRACTIONS,
)  # fmt: skip
def test_by_a_column_of_times_every_time_of_training_is_before_validation_and_that_before_the_test(
    lengths: list[int], begin: list[int], validation: float, test: float
) -> None:
    times = torch.cat([first + torch.arange(n, dtype=torch.float64) for first, n in zip(begin, lengths, strict=False)])
    series = made(lengths, target=numbers(sum(lengths)), times=times)
    parts = unless_refused(
        lambda: split(series, target="p", split="time", validation=validation, test=test), "leaves nothing for"
    )
    if parts is None:
        return
    train, held, last = (times[rows_of(parts[part])] for part in PARTS)
    assert train.max() < held.min() <= held.max() < last.min()
    assert sorted(row for part in PARTS for row in rows_of(parts[part])) == [*range(sum(lengths))]


@given(lengths=st.lists(st.integers(20, 60), min_size=1, max_size=5), validation=FRACTIONS, test=FRACTIONS)
def test_without_times_each_series_is_divided_at_its_own_fractions(lengths: list[int], validation: float, test: float) -> None:
    parts = split(made(lengths, target=numbers(sum(lengths))), target="p", split="time", validation=validation, test=test)
    starts = torch.tensor(lengths).cumsum(0) - torch.tensor(lengths)
    assert parts["train"].start.tolist() == starts.tolist()
    assert torch.equal(parts["train"].stop, parts["validation"].start)
    assert torch.equal(parts["validation"].stop, parts["test"].start)
    assert torch.equal(parts["test"].stop, starts + torch.tensor(lengths))
    shares = parts["test"].lengths / torch.tensor(lengths)
    assert bool((shares - test).abs().mul(torch.tensor(lengths)).le(0.5 + 1e-4).all())


def test_a_series_with_one_target_across_a_date_is_in_no_part_and_that_is_said() -> None:
    times = torch.cat([torch.arange(10.0 * n, 10.0 * n + 10, dtype=torch.float64) for n in range(10)])
    times[-20:-10] -= 13  # series 8 reaches into the validation part
    series = made([10] * 10, target=classes(10, each=False), times=times)
    prepared = prepare(series, SeriesSettings(target="kind", split="time", validation=0.2, test=0.2))
    used = {row for part in PARTS for row in prepared.parts[part].series.tolist()}
    lost = {*range(10)} - used
    assert lost
    assert f"{len(lost)} series across the dates of the split are left out" in prepared.problem.reasons


def test_two_series_with_one_target_each_are_too_few_and_more_steps_would_not_help() -> None:
    times = torch.arange(20, dtype=torch.float64)
    with pytest.raises(DataError, match=r"none of the 2 series, .*, lies in it as a whole\. Give more series"):
        split(made([10] * 2, target=classes(2, each=False), times=times), target="kind")


@pytest.mark.parametrize(("count", "kinds"), [(3, 1), (4, 1), (4, 2), (5, 2), (5, 3)])
def test_a_few_series_leave_one_for_each_part(count: int, kinds: int) -> None:
    target = numbers(count, each=False) if kinds == 1 else classes(count, kinds, each=False)
    parts = split(made([4] * count, target=target), target="p")
    assert all(len(parts[part]) for part in PARTS)


def test_three_series_of_two_classes_are_too_few() -> None:
    with pytest.raises(DataError, match="too few series"):
        split(made([4] * 3, target=classes(3, each=False)), target="kind")


def test_a_small_group_is_left_for_each_part_beside_a_large_one() -> None:
    groups = ("a", "b", *"c" * 8)
    for seed in range(10):
        parts = split(made([4] * 10, target=numbers(10, each=False), groups=groups), target="p", seed=seed)
        assert all(len(parts[part]) for part in PARTS)


def test_a_group_of_the_test_file_must_not_be_among_the_others() -> None:
    series, test = (
        made([4] * n, target=numbers(n, each=False), groups=own) for n, own in ((4, tuple("abcd")), (2, tuple("ed")))
    )
    with pytest.raises(DataError, match="The group 'd' is among the test series and among the others"):
        prepare(series, SeriesSettings(target="p", test_data="more.csv"), test)


def test_test_series_of_a_file_are_the_test_part_and_nothing_else_is() -> None:
    series, test = made([5] * 10, target=numbers(10, each=False)), made([6] * 3, target=numbers(3, each=False))
    parts = prepare(series, SeriesSettings(target="p", test_data="more.csv"), test).parts
    assert parts["test"].series.tolist() == [10, 11, 12]
    assert sorted(parts["train"].series.tolist() + parts["validation"].series.tolist()) == [*range(10)]


@pytest.mark.parametrize("each", [True, False])
def test_by_time_beside_a_test_file_validation_goes_on_to_the_last_date(each: bool) -> None:
    times = torch.arange(100, dtype=torch.float64)
    series = made([10] * 10, target=classes(100 if each else 10, each=each), times=times)
    test = made([6] * 2, target=classes(12 if each else 2, each=each), times=times[:12])
    settings = SeriesSettings(target="kind", split="time", validation=0.2, test_data="more.csv")
    parts = prepare(series, settings, test).parts
    assert [rows_of(parts[part]) for part in PARTS] == [[*range(80)], [*range(80, 100)], [*range(100, 112)]]


@given(seed=st.integers(0, 20))
def test_the_draw_depends_on_the_seed_alone(seed: int) -> None:
    series = made([3] * 20, target=classes(20, each=False))
    first, again = (split(series, target="kind", seed=seed) for _ in range(2))
    other = split(series, target="kind", seed=seed + 1)
    assert all(torch.equal(first[part].series, again[part].series) for part in PARTS)
    assert any(not torch.equal(first[part].series, other[part].series) for part in PARTS)
