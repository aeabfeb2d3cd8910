"""The truncated model: every output is the recurrent model's on the last k inputs."""

import pytest
import torch
from torch import Tensor

from steadyrnn.errors import ArgumentError, ArgumentTypeError, ShapeError
from steadyrnn.layers.gru import GRU
from steadyrnn.layers.lstm import LSTM
from steadyrnn.layers.rnn import RNN
from steadyrnn.models.sequence import SequenceModel
from steadyrnn.models.truncated import Truncated
from tests.support.errors import assert_equal_up_to_rounding

T, B, D, H, N = 8, 3, 2, 5, 4
Layer = type[RNN] | type[GRU] | type[LSTM]


def make(layer: Layer, context: int, reads: str = "each", vocabulary: int | None = None, **kwargs: object) -> Truncated:
    return Truncated(SequenceModel(layer(D, H, dtype=torch.float64), N, vocab_size=vocabulary, **kwargs), context, reads)


def features(steps: int = T) -> Tensor:
    return torch.randn(steps, B, D, dtype=torch.float64)


def one_by_one(truncated: Truncated, x: Tensor) -> Tensor:
    return torch.stack([truncated.model(x[max(t + 1 - truncated.context, 0) : t + 1])[0] for t in range(x.shape[0])])


@pytest.mark.parametrize("layer", [RNN, GRU, LSTM])
@pytest.mark.parametrize("context", [1, 3, T, T + 5])
def test_every_output_comes_from_the_last_inputs_alone(layer: Layer, context: int) -> None:
    truncated, x = make(layer, context), features()
    assert_equal_up_to_rounding(truncated(x)[0], one_by_one(truncated, x), T * H)


@pytest.mark.parametrize("context", [1, 3, T + 5])
def test_tokens_and_a_readout_that_sees_the_input_are_windowed_too(context: int) -> None:
    truncated, tokens = make(RNN, context, vocabulary=6, skip=True), torch.randint(6, (T, B))
    assert_equal_up_to_rounding(truncated(tokens)[0], one_by_one(truncated, tokens), T * H)


def test_gradients_are_those_of_the_windows() -> None:
    truncated, x = make(RNN, 3), features()
    parameters = [*truncated.parameters()]
    ours = torch.autograd.grad(truncated(x)[0].square().sum(), parameters)
    theirs = torch.autograd.grad(one_by_one(truncated, x).square().sum(), parameters)
    for a, b in zip(ours, theirs, strict=True):
        assert_equal_up_to_rounding(a, b, T * T * H)


@pytest.mark.parametrize("reads", ["last", "each"])
@pytest.mark.parametrize("cuts", [(1, 7), (2, 2, 4), (0, 8), (5, 3)])
def test_chunks_that_carry_the_state_give_the_whole(reads: str, cuts: tuple[int, ...]) -> None:
    truncated, x = make(GRU, 4, reads), features()
    state, parts = None, []
    for chunk in x.split(cuts):
        logits, state = truncated(chunk, state)
        parts.append(logits)
    whole = truncated(x)[0]
    assert_equal_up_to_rounding(torch.cat(parts) if reads == "each" else parts[-1], whole, T * H)
    assert torch.equal(state, x[-3:])


def test_an_input_before_the_window_changes_nothing() -> None:
    truncated, x = make(LSTM, 3), features()
    other = x.clone()
    other[2] += 1
    same = (truncated(x)[0] == truncated(other)[0]).all(-1).all(-1)
    assert same.tolist() == [True, True, False, False, False, True, True, True]


@pytest.mark.parametrize("context", [1, 3, T + 5])
def test_ragged_rows_end_at_their_own_length(context: int) -> None:
    x, lengths = features(), torch.tensor([T, 2, 0])
    each, last = make(RNN, context, "each"), make(RNN, context, "last")
    logits, final = each(x, lengths=lengths)[0], last(x, lengths=lengths)[0]
    for row, length in enumerate(lengths.tolist()):
        assert_equal_up_to_rounding(
            logits[:length, row], one_by_one(each, x[:length, [row]])[:, 0] if length else logits[:0, row], T * H
        )
        assert logits[length:, row].abs().sum() == 0
        alone = last.model(x[max(length - context, 0) : length, [row]])[0]
        assert_equal_up_to_rounding(final[row], alone[0], T * H)


def test_no_steps_give_no_outputs() -> None:
    truncated = make(RNN, 3)
    logits, state = truncated(features(0))
    assert logits.shape == (0, B, N)
    assert state.shape == (0, B, D)


def test_bad_arguments_are_refused_by_name() -> None:
    model = SequenceModel(RNN(D, H), N)
    with pytest.raises(ArgumentTypeError, match="`model` must be a SequenceModel"):
        Truncated(model.rnn, 3)
    with pytest.raises(ArgumentError, match="`model` must read the last state"):
        Truncated(SequenceModel(RNN(D, H), N, readout="each"), 3)
    with pytest.raises(ValueError, match="`context` must be"):
        Truncated(model, 0)
    with pytest.raises(ArgumentError, match="`reads` must be"):
        Truncated(model, 3, "row")
    with pytest.raises(ShapeError, match="`input` must be a batch"):
        Truncated(model, 3)(torch.zeros(T, D))
    with pytest.raises(ArgumentError, match="`hx` cannot go with `lengths`"):
        Truncated(model, 3)(torch.zeros(T, B, D), torch.zeros(2, B, D), lengths=torch.tensor([1, 2, 3]))
