"""Weights of a checkpoint: loaded whole or not at all."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from steadyrnn.constraints import SpectralBall
from steadyrnn.errors import CheckpointError, ConstraintError
from steadyrnn.layers.rnn import RNN
from steadyrnn.models.sequence import SequenceModel
from steadyrnn.train.weights import clones, load_weights, weights_of
from tests.train.runs import same_bits


def build(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    layer = RNN(4, 4, transition=SpectralBall(bound=0.9))
    return SequenceModel(layer, 5, vocab_size=5, readout="each", tied=True)


def equal(a: nn.Module, b: nn.Module) -> bool:
    return all(same_bits(x, y) for x, y in zip(a.state_dict().values(), b.state_dict().values(), strict=True))


def test_weights_come_back_bit_for_bit_and_tied_ones_stay_tied() -> None:
    a, b = build(0), build(1)
    load_weights(a, weights_of(b) | {"optimizer.other": torch.ones(1)})
    assert equal(a, b)
    assert a.embedding.weight is a.readout.weight


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.pop("model.readout.bias"), "it lacks `readout.bias`"),
        (lambda t: t.update({"model.more": torch.ones(1)}), "it has `more`, which the model lacks"),
        (lambda t: t.update({"model.readout.bias": torch.ones(4)}), r"`readout.bias` .* \(5,\) .* \(4,\)"),
        (lambda t: t.update({"model.readout.bias": torch.ones(5).double()}), "dtype torch.float32, but .* torch.float64"),
    ],
)
def test_weights_that_do_not_fit_are_refused_by_name(change: Callable[[dict[str, Tensor]], object], message: str) -> None:
    model, tensors = build(0), clones(weights_of(build(1)))
    change(tensors)
    with pytest.raises(CheckpointError, match=message):
        load_weights(model, tensors)
    assert equal(model, build(0))


def test_a_weight_outside_its_set_leaves_the_whole_model_as_it_was() -> None:
    model, tensors = build(0), clones(weights_of(build(1)))
    tensors["model.rnn.transition_l0.h.raw0"].mul_(10)
    with pytest.raises(ConstraintError, match="outside the set"):
        load_weights(model, tensors)
    assert equal(model, build(0))


def test_clones_do_not_change_with_what_they_were_made_from() -> None:
    model = build(0)
    kept = clones(weights_of(model))
    with torch.no_grad():
        model.readout.bias.add_(1)
    assert not torch.equal(kept["model.readout.bias"], model.readout.bias)
