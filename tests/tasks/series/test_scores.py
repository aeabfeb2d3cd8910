"""Losses and scores of series: by hand, and whatever the size of a batch."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from steadyrnn.errors import ShapeError
from steadyrnn.tasks.series.scaling import Scaling
from steadyrnn.tasks.series.scores import (
    class_scores,
    class_summary,
    number_loss,
    number_scores,
    number_summary,
    weighted_class_loss,
)
from tests.support.errors import assert_equal_up_to_rounding
from tests.tasks.series.made import classes, made, make, numbers


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@given(seed=st.integers(0, 999), kinds=st.integers(2, 6))
def test_the_weighted_loss_is_that_of_torch_over_the_steps_that_count(seed: int, kinds: int) -> None:
    logits = drawn(5, 4, kinds, seed=seed)
    target = torch.randint(-1, kinds, (5, 4), generator=torch.Generator().manual_seed(seed))
    target[0, 0] = 0
    counts, marked = target >= 0, torch.where(target >= 0, target, -100)
    for weight in (None, drawn(kinds, seed=seed + 1).abs() + 0.1):
        wanted = torch.nn.functional.cross_entropy(logits[counts], target[counts], weight=weight)
        assert_equal_up_to_rounding(weighted_class_loss(logits, marked, weight), wanted, 40)


@given(seed=st.integers(0, 999), kinds=st.integers(2, 5))
def test_accuracy_and_balanced_accuracy_are_those_counted_by_hand(seed: int, kinds: int) -> None:
    logits = drawn(30, kinds, seed=seed)
    target = torch.randint(0, kinds, (30,), generator=torch.Generator().manual_seed(seed))
    found = class_summary({name: float(value) for name, value in class_scores(logits, target).items()})
    right = logits.argmax(-1) == target
    assert found["accuracy"] == pytest.approx(float(right.double().mean()))
    recalls = [float(right[target == kind].double().mean()) for kind in target.unique().tolist()]
    assert found["balanced_accuracy"] == pytest.approx(sum(recalls) / len(recalls))


@given(seed=st.integers(0, 999), horizon=st.integers(1, 4), columns=st.integers(1, 3))
def test_errors_are_in_the_units_of_the_file(seed: int, horizon: int, columns: int) -> None:
    scaling = Scaling(tuple(drawn(columns, seed=1).tolist()), tuple((drawn(columns, seed=2).abs() + 0.5).tolist()))
    truth, guess = (drawn(9, horizon, columns, seed=seed + place) for place in range(2))
    scaled = [scaling.apply(each).flatten(1) for each in (guess, truth)]
    sums = {name: float(value) for name, value in number_scores(*scaled).items()}
    found = number_summary(sums, scaling, "pqr", columns)
    assert found["loss"] == pytest.approx(float(number_loss(*scaled)))
    error = guess - truth
    for column in range(columns):
        mark = "" if columns == 1 else f" {'pqr'[column]}"
        assert found[f"rmse{mark}"] == pytest.approx(float(error[..., column].square().mean().sqrt()))
        assert found[f"mae{mark}"] == pytest.approx(float(error[..., column].abs().mean()))


def test_what_is_missing_has_no_gradient_and_no_score() -> None:
    output = torch.tensor([[1.0, 5.0]], requires_grad=True)
    target = torch.tensor([[2.0, float("nan")]])
    number_loss(output, target).backward()
    assert output.grad is not None
    assert output.grad.tolist() == [[-2.0, 0.0]]
    assert float(number_scores(output, target)["count:1"]) == 0
    logits = torch.zeros(1, 3, requires_grad=True)
    weighted_class_loss(logits, torch.tensor([-100]), None).backward()
    assert logits.grad is not None
    assert not logits.grad.any()


@pytest.mark.parametrize("size", [1, 3, 64])
@pytest.mark.parametrize(
    "settings",
    [{"target": "kind", "window": 8}, {"target": "kind", "bptt": 5}, {"target": "p"}, {"horizon": 3, "window": 4}],
    ids=["windows", "stream", "numbers", "forecast"],
)
def test_scores_of_a_part_do_not_depend_on_the_size_of_a_batch(settings: dict[str, object], size: int) -> None:
    target = {"kind": classes(240, 3), "p": numbers(240, columns=2)}.get(str(settings.get("target")))
    task = make(made([80] * 3, 2, target), **settings)

    def score(batch_size: int) -> dict[str, float]:
        sums: dict[str, float] = {}
        for batch in task.batches("test", batch_size):
            steps = batch.input[..., :1] if task.interface.reads == "each" else batch.input[-1, :, :1]
            output = torch.cat([steps * (place + 1) for place in range(task.interface.outputs)], -1)
            for name, value in task.scores(output, batch).items():
                sums[name] = sums.get(name, 0.0) + float(value)
        return task.summary(sums)

    assert score(size) == pytest.approx(score(7))


def test_outputs_of_another_shape_are_refused() -> None:
    with pytest.raises(ShapeError, match="`output` must have shape"):
        number_loss(torch.zeros(2, 2), torch.zeros(2, 1))
    with pytest.raises(ShapeError, match="one more dimension, of classes"):
        weighted_class_loss(torch.zeros(2, 3, 4), torch.zeros(2).long(), None)
