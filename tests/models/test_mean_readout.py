"""``readout="mean"``: the mean of the logits of every step, in every form an input can have and in every equivalent."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

from steadyrnn.constraints import SpectralBall
from steadyrnn.convert.feedforward import to_feedforward
from steadyrnn.convert.torch_nn import to_torch
from steadyrnn.layers.gru import GRU
from steadyrnn.layers.lstm import LSTM
from steadyrnn.layers.rnn import RNN
from steadyrnn.models.description import describe_model, rebuild_model
from steadyrnn.models.group import group, ungroup
from steadyrnn.models.sequence import SequenceModel
from steadyrnn.parallel.module import to_parallel
from tests.support.errors import assert_equal_up_to_rounding

T, B, D, H, O = 7, 4, 3, 6, 5  # noqa: E741
LENGTHS = [4, 7, 2, 1]
LAYERS: dict[str, Callable[..., nn.Module]] = {
    "rnn": RNN, "gru": GRU, "lstm": LSTM, "rnn of torch": nn.RNN, "gru of torch": nn.GRU, "lstm of torch": nn.LSTM,
}  # fmt: skip


def pair(layer: str = "rnn", skip: bool = False, **own: Any) -> tuple[SequenceModel, SequenceModel]:
    """Return a model that reads the mean, and the same that reads each step."""
    torch.manual_seed(0)
    mean, each = (
        SequenceModel(LAYERS[layer](D, H, **own, dtype=torch.float64), O, readout=reads, skip=skip)
        for reads in ("mean", "each")
    )
    each.load_state_dict(mean.state_dict())
    return mean, each


def features(batch_first: bool = False) -> Tensor:
    x = torch.randn(T, B, D, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return x.transpose(0, 1) if batch_first else x


@pytest.mark.parametrize("skip", [False, True])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("layer", LAYERS)
def test_it_is_the_mean_of_the_logits_of_each_step(layer: str, batch_first: bool, bidirectional: bool, skip: bool) -> None:
    mean, each = pair(layer, skip, batch_first=batch_first, bidirectional=bidirectional, num_layers=2)
    x = features(batch_first)
    logits, state = mean(x)
    time = 1 if batch_first else 0
    assert logits.shape == (B, O)
    assert_equal_up_to_rounding(logits, each(x)[0].mean(time), T)
    ours, theirs = (found if isinstance(found, tuple) else (found,) for found in (state, each(x)[1]))
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


@pytest.mark.parametrize("skip", [False, True])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("form", ["lengths", "packed", "packed, sorted"])
def test_a_ragged_batch_is_its_rows_one_by_one(form: str, layer: str, bidirectional: bool, skip: bool) -> None:
    mean, _ = pair(layer, skip, bidirectional=bidirectional)
    x = features()
    for row, length in enumerate(LENGTHS):
        x[length:, row] = torch.nan  # what lies behind a row reaches nothing
    lengths = sorted(LENGTHS, reverse=True) if form == "packed, sorted" else LENGTHS
    order = [LENGTHS.index(length) for length in lengths]
    if form == "lengths":
        logits = mean(x, lengths=LENGTHS)[0]
    else:
        logits = mean(pack_padded_sequence(x[:, order], lengths, enforce_sorted=form == "packed, sorted"))[0]
    for place, row in enumerate(order):
        alone = mean(x[: LENGTHS[row], row])[0]  # unbatched
        assert alone.shape == (O,)
        assert_equal_up_to_rounding(logits[place], alone, T)


@pytest.mark.parametrize("layer", ["rnn", "gru", "lstm", "gru of torch"])
@pytest.mark.parametrize("skip", [False, True])
def test_a_row_without_a_step_gives_the_bias(layer: str, skip: bool) -> None:
    mean, _ = pair(layer, skip)
    logits = mean(features(), lengths=[7, 0, 3, 0])[0]
    bias = mean.readout.bias + (0 if mean.skip is None or mean.skip.bias is None else mean.skip.bias)
    for row in (1, 3):
        assert torch.equal(logits[row], bias)
    assert_equal_up_to_rounding(logits[0], mean(features()[:, 0])[0], T)


@pytest.mark.parametrize("layer", ["rnn", "gru", "lstm"])
def test_a_batch_without_a_step_gives_the_bias(layer: str) -> None:
    mean, _ = pair(layer)
    assert torch.equal(mean(torch.zeros(0, B, D, dtype=torch.float64))[0], mean.readout.bias.expand(B, O))


@pytest.mark.parametrize("layer", ["rnn", "gru", "lstm"])
def test_gradients_are_those_of_the_mean_of_each(layer: str) -> None:
    mean, each = pair(layer, skip=True)
    x, lengths = features(), torch.tensor(LENGTHS)
    mean(x, lengths=lengths)[0].sin().sum().backward()
    (each(x, lengths=lengths)[0].sum(0) / lengths.unsqueeze(1)).sin().sum().backward()
    for ours, theirs in zip(mean.parameters(), each.parameters(), strict=True):
        assert ours.grad is not None
        assert theirs.grad is not None
        assert_equal_up_to_rounding(ours.grad, theirs.grad, T * H)


def test_gradients_are_right_to_second_order() -> None:
    mean, _ = pair("gru", skip=True)
    x = features()[:3, :2].requires_grad_()
    assert torch.autograd.gradcheck(lambda x: mean(x, lengths=[3, 1])[0], x)
    assert torch.autograd.gradgradcheck(lambda x: mean(x, lengths=[3, 1])[0], x)


@pytest.mark.parametrize("layer", ["rnn", "gru", "lstm"])
def test_a_group_is_its_members(layer: str) -> None:
    torch.manual_seed(0)
    models = [SequenceModel(LAYERS[layer](D, H, dtype=torch.float64), O, readout="mean", skip=True) for _ in range(3)]
    many, x = group(models), torch.stack([features() + place for place in range(3)], 1)
    logits, _ = many(x)
    for place, model in enumerate(models):
        assert_equal_up_to_rounding(logits[place], model(x[:, place])[0], T * H)
    assert all(model.reads == "mean" for model in ungroup(many))
    empty = many(x[:0])[0]
    assert_equal_up_to_rounding(empty[1], models[1](x[:0, 1])[0])


@pytest.mark.parametrize("form", ["whole", "lengths", "unbatched", "packed"])
def test_windows_are_within_their_proven_bound(form: str) -> None:
    torch.manual_seed(0)
    layer = RNN(D, H, transition=SpectralBall(0.6), dtype=torch.float64)
    model = SequenceModel(layer, O, readout="mean")
    x = torch.nn.functional.normalize(torch.randn(40, B, D, dtype=torch.float64), dim=-1)
    net = to_feedforward(model, eps=1e-2, input_bound=1.0)
    assert net.window < 40
    lengths = [40, 3, net.window, 25]
    inputs = {
        "whole": (x, None), "lengths": (x, lengths), "unbatched": (x[:, 0], None),
        "packed": (pack_padded_sequence(x, lengths, enforce_sorted=False), None),
    }  # fmt: skip
    given, own = inputs[form]
    gap = (net(given, lengths=own) - model(given, lengths=own)[0]).detach().norm(dim=-1)
    assert float(gap.max()) <= net.bound
    assert float(gap.max()) > 0


def test_all_steps_at_once_are_within_their_bound() -> None:
    torch.manual_seed(0)
    model = SequenceModel(RNN(D, H, transition=SpectralBall(0.6), dtype=torch.float64), O, readout="mean")
    x = torch.randn(40, B, D, dtype=torch.float64)
    fast = to_parallel(model, tol=1e-3, chunk=5)
    gap = (fast(x)[0] - model(x)[0]).detach().norm(dim=-1).max()
    report = fast.rnn.report
    gain = torch.linalg.matrix_norm(model.readout.weight.detach(), 2)
    assert 0 < float(gap) <= float(gain) * (report.truncation + report.rounding)


@pytest.mark.parametrize("layer", ["rnn", "gru", "lstm"])
def test_layers_of_torch_give_the_same(layer: str) -> None:
    mean, _ = pair(layer, skip=True)
    twin = to_torch(mean)
    assert_equal_up_to_rounding(twin(features())[0], mean(features())[0], T * H)
    assert_equal_up_to_rounding(twin(features(), lengths=LENGTHS)[0], mean(features(), lengths=LENGTHS)[0], T * H)


@pytest.mark.parametrize("layer", ["rnn", "gru", "lstm"])
def test_a_description_gives_the_same_model_back(layer: str) -> None:
    mean, _ = pair(layer, skip=True)
    again = rebuild_model(describe_model(mean))
    again.load_state_dict(mean.state_dict())
    assert torch.equal(again(features())[0], mean(features())[0])
