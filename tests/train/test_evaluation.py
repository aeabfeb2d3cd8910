"""Scores of a model on a split."""

from dataclasses import replace

import pytest
import torch

from steadyrnn.errors import ArgumentError, DataError
from steadyrnn.models.sequence import SequenceModel
from steadyrnn.tasks.base import Batch
from steadyrnn.train.evaluation import evaluate
from tests.train.runs import RunningSum, addition, carrying_model, spectral_model


@pytest.mark.parametrize("batch_size", [1, 7, 24, 100])
def test_scores_do_not_depend_on_the_batch_size(batch_size: int) -> None:
    model = spectral_model()
    whole = evaluate(model, addition(), "validation", 24)
    assert evaluate(model, addition(), "validation", batch_size) == pytest.approx(whole, rel=1e-5)


def test_scores_are_those_computed_by_hand() -> None:
    model, task = spectral_model(), addition()
    (batch,) = task.batches("test", 24)
    model.eval()
    with torch.no_grad():
        loss = float(task.loss(model(batch.input)[0], batch))
    assert evaluate(model, task, "test", 24)["loss"] == pytest.approx(loss, rel=1e-6)


@pytest.mark.parametrize("training", [True, False])
def test_model_and_random_state_stay_as_they_are(training: bool) -> None:
    model = spectral_model().train(training)
    before, state = torch.get_rng_state(), {name: tensor.clone() for name, tensor in model.state_dict().items()}
    evaluate(model, addition(), "test", 8)
    assert model.training is training
    assert torch.equal(before, torch.get_rng_state())
    assert all(torch.equal(state[name], tensor) for name, tensor in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_a_part_in_a_mode_of_its_own_keeps_it() -> None:
    model = spectral_model().train()
    model.rnn.eval()  # type: ignore[operator, union-attr]
    evaluate(model, addition(), "test", 8)
    assert [module.training for module in (model, model.rnn, model.readout)] == [True, False, True]  # type: ignore[union-attr]


def test_states_are_carried_until_a_fresh_batch() -> None:
    class Cut(RunningSum):
        def batches(self, split: str, batch_size: int):  # type: ignore[no-untyped-def]
            return (replace(batch, fresh=True) for batch in super().batches(split, batch_size))

    model = carrying_model()
    assert evaluate(model, RunningSum(), "test", 4) != evaluate(model, Cut(), "test", 4)


def test_autocast_is_used_when_requested() -> None:
    class Watched(RunningSum):
        def scores(self, output: torch.Tensor, batch: Batch) -> dict[str, torch.Tensor]:
            seen.append(output.dtype)
            return super().scores(output, batch)

    seen: list[torch.dtype] = []
    evaluate(carrying_model(), Watched(), "test", 4, autocast="bfloat16")
    evaluate(carrying_model(), Watched(), "test", 4)
    assert set(seen) == {torch.bfloat16, torch.float32}


def test_each_constraint_is_evaluated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model = spectral_model()
    assert isinstance(model, SequenceModel)
    slot = model.rnn.transition_l0.h
    count = []
    evaluated = slot._evaluate_operator
    monkeypatch.setattr(slot, "_evaluate_operator", lambda: (count.append(1), evaluated())[1])
    evaluate(model, addition(), "test", 2)
    assert len(count) == 1


def test_an_empty_split_is_named() -> None:
    class Empty(RunningSum):
        def batches(self, split: str, batch_size: int):  # type: ignore[no-untyped-def]
            return iter(())

    with pytest.raises(DataError, match="'test' of the task has no examples"):
        evaluate(carrying_model(), Empty(), "test", 4)


def test_a_batch_size_of_zero_is_refused() -> None:
    with pytest.raises(ArgumentError, match="`batch_size`"):
        evaluate(carrying_model(), RunningSum(), "test", 0)
