import math

import pytest
import torch

from steadyrnn.errors import ShapeError
from steadyrnn.tasks.scoring import class_loss, class_scores, class_summary, square_loss, square_scores, square_summary


def test_squared_errors_are_counted_by_entry() -> None:
    output, target = torch.tensor([[1.0, 2.0], [3.0, 5.0]]), torch.tensor([[1.0, 1.0], [1.0, 1.0]])
    assert square_loss(output, target) == (0 + 1 + 4 + 16) / 4
    sums = square_scores(output, target)
    assert (sums["squared_error"], sums["count"]) == (21, 4)
    assert square_summary({"squared_error": 21.0, "count": 4.0}) == {"loss": 5.25}


def test_classes_are_scored_by_nats_and_right_answers() -> None:
    logits = torch.log(torch.tensor([[0.5, 0.25, 0.25], [0.1, 0.8, 0.1]]))
    target = torch.tensor([1, 1])
    assert class_loss(logits, target).item() == pytest.approx((math.log(4) - math.log(0.8)) / 2)
    sums = {key: value.item() for key, value in class_scores(logits, target).items()}
    assert class_summary(sums) == pytest.approx({"loss": (math.log(4) - math.log(0.8)) / 2, "accuracy": 0.5})


def test_classes_of_every_step_are_scored_as_one_list() -> None:
    logits, target = torch.randn(5, 3, 4), torch.randint(4, (5, 3))
    assert class_loss(logits, target) == class_loss(logits.flatten(0, 1), target.flatten())
    assert class_scores(logits, target)["count"] == 15


def test_a_loss_has_a_gradient() -> None:
    output = torch.zeros(2, 3, requires_grad=True)
    class_loss(output, torch.tensor([0, 1])).backward()
    assert output.grad is not None
    torch.testing.assert_close(output.grad, torch.tensor([[1 / 3 - 1, 1 / 3, 1 / 3], [1 / 3, 1 / 3 - 1, 1 / 3]]) / 2)


def test_sums_are_taken_in_float64() -> None:
    many = torch.ones(2**24 + 1)  # a number that float32 does not have
    assert square_scores(many, torch.zeros_like(many))["squared_error"] == 2**24 + 1


def test_shapes_that_would_broadcast_are_refused() -> None:
    with pytest.raises(ShapeError, match=r"`output` must have shape \(3, 1\).*has \(3,\)"):
        square_loss(torch.zeros(3), torch.zeros(3, 1))
    with pytest.raises(ShapeError, match=r"`logits` must have shape \(3,\) and one more dimension"):
        class_loss(torch.zeros(4, 3), torch.zeros(3, dtype=torch.int64))
