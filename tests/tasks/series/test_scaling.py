"""Scaling by the training part, and gaps filled from their own part."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from steadyrnn.errors import DataError
from steadyrnn.tasks.series.scaling import Scaling, fill_missing, fit_scaling
from steadyrnn.tasks.series.split import Segments
from tests.support.errors import assert_equal_up_to_rounding
from tests.tasks.series.made import made


@given(seed=st.integers(0, 999), rows=st.integers(2, 50), missing=st.sampled_from([0.0, 0.3]))
def test_scaled_training_rows_have_mean_zero_and_deviation_one(seed: int, rows: int, missing: float) -> None:
    values = 3 * made([2 * rows], 2, seed=seed, missing=missing).values + 10
    used = torch.arange(2 * rows) < rows
    values[:2] = torch.tensor([[1.0, 2.0], [3.0, 5.0]])  # two different values at least
    scaled = fit_scaling(values, used, "standard", ["x", "y"]).apply(values)[used]
    for column in scaled.T:
        there = column[~column.isnan()]
        assert_equal_up_to_rounding(there.mean(), torch.zeros(()).double(), 32 * rows)
        assert_equal_up_to_rounding(there.std(correction=0), torch.ones(()).double(), 32 * rows)


@given(seed=st.integers(0, 999))
def test_undo_is_the_inverse_and_a_stored_form_comes_back(seed: int) -> None:
    values = made([20], 3, seed=seed).values
    scaling = fit_scaling(values, None, "standard", "xyz")
    assert_equal_up_to_rounding(scaling.undo(scaling.apply(values)), values, 16)
    assert Scaling.from_dict(scaling.to_dict()) == scaling


@pytest.mark.parametrize("value", [0.0, 1e-300, 0.1, -7.25, 1e9])
def test_a_constant_channel_becomes_zero(value: float) -> None:
    values = torch.full((101, 1), value, dtype=torch.float64)
    scaling = fit_scaling(values, None, "standard", ["x"])
    assert scaling.deviation == (1.0,)
    assert float(scaling.apply(values).abs().max()) <= 1e-12 * abs(value)


def test_a_channel_without_a_value_in_training_is_refused_by_name() -> None:
    values = torch.tensor([[1.0, torch.nan], [2.0, torch.nan], [3.0, 4.0]], dtype=torch.float64)
    with pytest.raises(DataError, match="The channel 'y' has no value in the training part"):
        fit_scaling(values, torch.tensor([True, True, False]), "standard", ["x", "y"])


@pytest.mark.parametrize("scale", ["standard", "none"])
def test_values_too_large_to_scale_are_refused(scale: str) -> None:
    series = made([4])
    series.values.copy_(torch.tensor([[1e200], [-1e200], [3e200], [1.0]]))
    whole = Segments(torch.tensor([0]), torch.tensor([4]), torch.tensor([0]))
    with pytest.raises(DataError, match="Scale"):
        fill_missing(series, {"train": whole}, fit_scaling(series.values, None, scale, ["x"]), "refuse")


NAN = float("nan")
FILLED = {
    "inside": ([0.0, NAN, NAN, 3.0, 3.0, 3.0], [0, 1, 2, 3, 3, 3], [0, 0, 0, 3, 3, 3]),
    "at the boundary": ([1.0, 2.0, NAN, NAN, 9.0, 9.0], [1, 2, 2, 9, 9, 9], [1, 2, 2, 0, 9, 9]),
    "first": ([NAN, 2.0, 4.0, 5.0, 5.0, 5.0], [2, 2, 4, 5, 5, 5], [0, 2, 4, 5, 5, 5]),
    "a whole part": ([1.0, 2.0, 3.0, NAN, NAN, NAN], [1, 2, 3, 0, 0, 0], [1, 2, 3, 0, 0, 0]),
}


@pytest.mark.parametrize("case", FILLED)
@pytest.mark.parametrize("ahead", [True, False])
def test_a_gap_is_filled_within_its_part_alone(case: str, ahead: bool) -> None:
    values, on_a_line, from_before = FILLED[case]
    series = made([6])
    series.values.copy_(torch.tensor(values).unsqueeze(1))
    parts = {  # steps 0 to 2 and 3 to 5
        "train": Segments(torch.tensor([0]), torch.tensor([3]), torch.tensor([0])),
        "test": Segments(torch.tensor([3]), torch.tensor([6]), torch.tensor([0])),
    }
    if case == "inside":
        parts = {"train": Segments(torch.tensor([0]), torch.tensor([6]), torch.tensor([0]))}
    found = fill_missing(series, parts, Scaling((0.0,), (1.0,)), "interpolate", ahead)
    assert found.flatten().tolist() == (on_a_line if ahead else from_before)
