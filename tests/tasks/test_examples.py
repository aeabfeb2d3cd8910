"""Stored examples: how many are held out, and which."""

from pathlib import Path

import pytest
import torch

from steadyrnn.errors import ArgumentError, ArgumentTypeError, DataError
from steadyrnn.tasks.examples import Examples, Splits, as_float32, count_held_out


@pytest.mark.parametrize(
    ("validation", "rows", "wanted"),
    [(0.2, 30, 6), (0.2, 36, 7), (0.2, 23, 5), (0.2, 450, 90), (0.01, 30, 1), (0.99, 20, 19), (5, 30, 5), (29, 30, 29)],
)
def test_a_fraction_is_rounded_to_the_nearest_and_leaves_something_on_both_sides(
    validation: float, rows: int, wanted: int
) -> None:
    assert count_held_out(validation, rows) == wanted


@pytest.mark.parametrize(
    ("validation", "error"),
    [(0, ArgumentError), (30, ArgumentError), (-0.1, ArgumentError), (1.0, ArgumentError), (True, ArgumentTypeError)],
)
def test_what_leaves_nothing_on_one_side_is_refused(validation: float, error: type[Exception]) -> None:
    with pytest.raises(error, match="`validation`"):
        count_held_out(validation, 30)


def test_held_out_examples_are_spread_over_the_file_and_keep_their_targets() -> None:
    numbers = torch.arange(1000)
    rows = Examples(numbers.unsqueeze(1), numbers * 2)
    parts = Splits(rows, rows.take(slice(0, 3)), 200, seed=0).parts
    assert {name: len(part) for name, part in parts.items()} == {"train": 800, "validation": 200, "test": 3}
    assert all(part.targets.equal(2 * part.features[:, 0]) for part in parts.values())
    assert torch.cat([parts[name].features[:, 0] for name in ("train", "validation")]).sort().values.equal(numbers)
    assert abs(float(parts["validation"].features.double().mean()) - 499.5) < 4.5 * 289 / 200**0.5


def test_a_number_too_large_for_float32_is_refused_with_its_file() -> None:
    largest = torch.finfo(torch.float32).max
    assert as_float32(torch.tensor([largest], dtype=torch.float64), Path("a.txt")).tolist() == [largest]
    with pytest.raises(DataError, match=r"a\.txt .*float32"):
        as_float32(torch.tensor([1e39], dtype=torch.float64), Path("a.txt"))
