"""SequenceModel: what the readout reads, in every form an input can have."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from steadyrnn.errors import ArgumentError, ArgumentTypeError, DtypeError, ShapeError, SteadyError
from steadyrnn.layers.cells import RNNCell
from steadyrnn.layers.gru import GRU
from steadyrnn.layers.lstm import LSTM
from steadyrnn.layers.rnn import RNN
from steadyrnn.models.sequence import SequenceModel
from tests.models.copies import COPIES
from tests.support.errors import assert_equal_up_to_rounding
from tests.support.layers import Counting

LAYERS = [RNN, GRU, LSTM]
READS = ["last", "each"]
LENGTHS = [4, 7, 0, 1]
T, B, D, H, V, O = 7, 4, 3, 6, 9, 5  # noqa: E741

Layer = type[RNN] | type[GRU] | type[LSTM]


def hidden(state: Any) -> Tensor:
    """Return the h of a state."""
    return state[0] if isinstance(state, tuple) else state


def features(batch_first: bool = False, **kwargs: Any) -> Tensor:
    x = torch.randn(T, B, D, **kwargs)
    return x.transpose(0, 1) if batch_first else x


# What is read.


@pytest.mark.parametrize("layer", LAYERS)
def test_last_reads_the_final_state_of_the_top_layer(layer: Layer) -> None:
    model, x = SequenceModel(layer(D, H, 2), O), features()
    logits, state = model(x)
    assert_equal_up_to_rounding(logits, model.readout(model.rnn(x)[0][-1]), T * H)
    assert_equal_up_to_rounding(hidden(state), hidden(model.rnn(x)[1]), T * H)


@pytest.mark.parametrize("layer", LAYERS)
def test_each_reads_the_output_of_every_step(layer: Layer) -> None:
    model, x = SequenceModel(layer(D, H, 2), O, readout="each"), features()
    assert_equal_up_to_rounding(model(x)[0], model.readout(model.rnn(x)[0]), T * H)


@pytest.mark.parametrize("layer", LAYERS)
def test_last_reads_both_directions_at_their_own_ends(layer: Layer) -> None:
    model, x = SequenceModel(layer(D, H, 2, bidirectional=True), O), features()
    output, _ = model.rnn(x)
    ends = torch.cat([output[-1, :, :H], output[0, :, H:]], dim=-1)
    assert_equal_up_to_rounding(model(x)[0], model.readout(ends), T * H)


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("layer", LAYERS)
def test_each_row_is_read_as_if_it_came_alone(layer: Layer, bidirectional: bool, batch_first: bool) -> None:
    rnn = layer(D, H, bidirectional=bidirectional, batch_first=batch_first, dtype=torch.float64)
    model, x = SequenceModel(rnn, O, skip=True), features(batch_first, dtype=torch.float64)
    logits, _ = model(x, lengths=LENGTHS)
    rows = x if batch_first else x.transpose(0, 1)
    alone = torch.stack([model(row[:length])[0] for row, length in zip(rows, LENGTHS, strict=True)])
    assert_equal_up_to_rounding(logits, alone, T * H)


@pytest.mark.parametrize("reads", READS)
@pytest.mark.parametrize("skip", [False, True])
def test_what_lies_behind_a_length_is_not_looked_at(reads: str, skip: bool) -> None:
    model, x = SequenceModel(RNN(D, H), O, readout=reads, skip=skip), features()
    behind = torch.arange(T).unsqueeze(1) >= torch.tensor(LENGTHS)
    spoiled = x.masked_fill(behind.unsqueeze(-1), torch.nan)
    logits, _ = model(spoiled, lengths=LENGTHS)
    logits.sum().backward()
    assert torch.equal(logits, model(x, lengths=LENGTHS)[0])
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


@pytest.mark.parametrize("batch_first", [False, True])
def test_logits_at_padding_are_zero(batch_first: bool) -> None:
    model = SequenceModel(RNN(D, H, batch_first=batch_first), O, readout="each", skip=True)
    logits, _ = model(features(batch_first), lengths=LENGTHS)
    rows = logits if batch_first else logits.transpose(0, 1)
    assert not any(row[length:].any() for row, length in zip(rows, LENGTHS, strict=True))


@pytest.mark.parametrize("layer", LAYERS)
def test_a_row_without_steps_reads_its_initial_state(layer: Layer) -> None:
    model = SequenceModel(layer(D, H), O)
    h = torch.randn(1, B, H)
    hx = (h, torch.zeros_like(h)) if layer is LSTM else h
    assert_equal_up_to_rounding(model(features(), hx, lengths=LENGTHS)[0][2], model.readout(h[0])[2], H)


@pytest.mark.parametrize("skip", [False, True])
@pytest.mark.parametrize("reads", READS)
def test_no_steps_at_all_read_the_learned_initial_state(reads: str, skip: bool) -> None:
    model = SequenceModel(RNN(D, H, learn_initial_state=True), O, readout=reads, skip=skip)
    nn.init.normal_(model.rnn.initial_state_l0)
    logits, _ = model(torch.zeros(0, B, D))
    expected = model.readout(model.rnn.initial_state_l0.expand(B, H)) if reads == "last" else torch.zeros(0, B, O)
    assert_equal_up_to_rounding(logits, expected, H)


@pytest.mark.parametrize(("reads", "shape"), [("last", (0, O)), ("each", (T, 0, O))])
def test_an_empty_batch_has_no_logits(reads: str, shape: tuple[int, ...]) -> None:
    assert SequenceModel(RNN(D, H), O, readout=reads, skip=True)(torch.zeros(T, 0, D))[0].shape == shape


@pytest.mark.parametrize("reads", READS)
@pytest.mark.parametrize("vocab_size", [None, V])
def test_an_unbatched_sequence_is_a_batch_of_one(reads: str, vocab_size: int | None) -> None:
    model = SequenceModel(RNN(D, H), O, readout=reads, vocab_size=vocab_size, skip=True)
    x = features() if vocab_size is None else torch.randint(V, (T, B))
    logits, state = model(x[:, 0])
    batch, batch_state = model(x[:, :1])
    assert_equal_up_to_rounding(logits, batch.squeeze(-2), T * H)
    assert_equal_up_to_rounding(state, batch_state.squeeze(1), T * H)


@pytest.mark.parametrize("reads", READS)
def test_a_carried_state_goes_on_where_it_was(reads: str) -> None:
    model, x = SequenceModel(GRU(D, H, dtype=torch.float64), O, readout=reads), features(dtype=torch.float64)
    _, state = model(x[:3])
    rest, whole = model(x[3:], state)[0], model(x)[0]
    assert_equal_up_to_rounding(rest, whole if reads == "last" else whole[3:], T * H)


# Packed sequences.


@pytest.mark.parametrize("sort", [False, True])
@pytest.mark.parametrize("vocab_size", [None, V])
@pytest.mark.parametrize("bidirectional", [False, True])
def test_packed_equals_padded_in_the_last_readout(sort: bool, vocab_size: int | None, bidirectional: bool) -> None:
    model = SequenceModel(LSTM(D, H, bidirectional=bidirectional), O, vocab_size=vocab_size, skip=True)
    lengths = [7, 4, 2, 1] if sort else [4, 7, 1, 2]
    x = features() if vocab_size is None else torch.randint(V, (T, B))
    packed = pack_padded_sequence(x, lengths, enforce_sorted=sort)
    assert_equal_up_to_rounding(model(packed)[0], model(x, lengths=lengths)[0], T * H)


@pytest.mark.parametrize("vocab_size", [None, V])
def test_packed_in_means_packed_out_for_each_step(vocab_size: int | None) -> None:
    model = SequenceModel(LSTM(D, H), O, vocab_size=vocab_size, readout="each", skip=True)
    lengths = [4, 7, 1, 2]
    x = features() if vocab_size is None else torch.randint(V, (T, B))
    logits, _ = model(pack_padded_sequence(x, lengths, enforce_sorted=False))
    assert isinstance(logits, PackedSequence)
    assert_equal_up_to_rounding(pad_packed_sequence(logits)[0], model(x, lengths=lengths)[0], T * H)


# The readout's parts.


def test_skip_adds_the_input_of_the_same_step() -> None:
    model, x = SequenceModel(RNN(D, H), O, readout="each", skip=True), features()
    assert_equal_up_to_rounding(model(x)[0], model.readout(model.rnn(x)[0]) + x @ model.skip.weight.mT, T * H)


def test_skip_adds_the_last_input_to_the_last_readout() -> None:
    model, x = SequenceModel(RNN(D, H), O, skip=True), features()
    assert_equal_up_to_rounding(model(x)[0], model.readout(model.rnn(x)[0][-1]) + x[-1] @ model.skip.weight.mT, T * H)


def test_a_readout_without_bias_has_none() -> None:
    assert SequenceModel(RNN(D, H), O, bias=False).readout.bias is None


def test_tokens_are_embedded() -> None:
    model, tokens = SequenceModel(RNN(D, H), O, vocab_size=V), torch.randint(V, (T, B))
    output, _ = model.rnn(model.embedding.weight[tokens])
    assert_equal_up_to_rounding(model(tokens)[0], model.readout(output[-1]), T * H)


@pytest.mark.parametrize("padding", [-1, V, 10**6])
def test_padding_may_hold_any_token(padding: int) -> None:
    model, tokens = SequenceModel(RNN(D, H), O, vocab_size=V, readout="each"), torch.randint(V, (T, B))
    behind = torch.arange(T).unsqueeze(1) >= torch.tensor(LENGTHS)
    logits, _ = model(tokens.masked_fill(behind, padding), lengths=LENGTHS)
    assert torch.equal(logits, model(tokens, lengths=LENGTHS)[0])


def test_a_tied_embedding_is_the_readouts_weight() -> None:
    model = SequenceModel(RNN(D, H, bidirectional=True), V, vocab_size=V, tied=False)
    tied = SequenceModel(RNN(2 * H, H, bidirectional=True), V, vocab_size=V, tied=True)
    assert model.embedding.weight is not model.readout.weight
    assert tied.embedding.weight is tied.readout.weight


@pytest.mark.parametrize("copied", [*COPIES, nn.Module.double])
def test_a_tied_weight_stays_tied(copied: Callable[[nn.Module], nn.Module]) -> None:
    model = copied(SequenceModel(RNN(H, H), V, vocab_size=V, tied=True))
    assert model.embedding.weight is model.readout.weight


def test_the_model_is_made_on_the_layers_device_and_in_its_dtype() -> None:
    rnn = RNN(D, H, dtype=torch.float64, device="meta")
    model = SequenceModel(rnn, O, vocab_size=V, skip=True)
    assert model.rnn is rnn
    assert {(p.dtype, p.device.type) for p in model.parameters()} == {(torch.float64, "meta")}


# Dropout.


@pytest.mark.parametrize("name", ["dropout_embedding", "dropout_state", "dropout_logits"])
@pytest.mark.parametrize("reads", READS)
def test_dropout_is_at_work_in_training_and_off_in_evaluation(name: str, reads: str) -> None:
    model = SequenceModel(RNN(D, H), O, vocab_size=V, readout=reads, **{name: 0.5})
    tokens = torch.randint(V, (T, B))
    assert not torch.equal(model(tokens)[0], model(tokens)[0])
    model.eval()
    assert torch.equal(model(tokens)[0], model(tokens)[0])


@pytest.mark.parametrize(
    ("name", "dropped"),
    [
        ("dropout_embedding", lambda model: model.readout(model.rnn(torch.zeros(T, B, D))[0])),
        ("dropout_state", lambda model: model.readout.bias.expand(T, B, O)),
        ("dropout_logits", lambda model: torch.zeros(T, B, O)),
    ],
)
def test_dropout_drops_what_it_is_named_after(name: str, dropped: Callable[[SequenceModel], Tensor]) -> None:
    model = SequenceModel(RNN(D, H), O, vocab_size=V, readout="each", **{name: 1.0})
    assert_equal_up_to_rounding(model(torch.randint(V, (T, B)))[0], dropped(model), T * H)


# Torch's layers.


@pytest.mark.parametrize("reads", READS)
@pytest.mark.parametrize(("theirs", "ours"), [(nn.RNN, RNN), (nn.GRU, GRU), (nn.LSTM, LSTM)])
def test_torchs_layer_gives_what_ours_gives(theirs: type[nn.Module], ours: Layer, reads: str) -> None:
    models = []
    for layer in (theirs, ours):
        torch.manual_seed(3)
        rnn = layer(D, H, 2, bidirectional=True, dtype=torch.float64)
        models.append(SequenceModel(rnn, O, readout=reads, skip=True))
    x = features(dtype=torch.float64)
    values = [model(x)[0] for model in models]
    assert_equal_up_to_rounding(*values, T * H)
    for value in values:
        value.sum().backward()
    for p, q in zip(*(model.parameters() for model in models), strict=True):
        assert_equal_up_to_rounding(p.grad, q.grad, T * H)


def test_lengths_of_no_batch_are_refused_with_torchs_layer_too() -> None:
    with pytest.raises(ArgumentError, match="`lengths` needs a padded batch"):
        SequenceModel(nn.RNN(2, 3), 1)(torch.zeros(4, 2), lengths=[4])


def test_a_projected_lstm_of_torch_is_read_at_its_width() -> None:
    assert SequenceModel(nn.LSTM(D, H, proj_size=2), O)(features())[0].shape == (B, O)


# Once per forward, copying, saving, compiling, dtypes.


@pytest.mark.parametrize("layer", LAYERS)
def test_the_constraint_is_evaluated_once_per_forward(layer: Layer, monkeypatch: pytest.MonkeyPatch) -> None:
    model = SequenceModel(layer(D, H, transition=Counting()), O, readout="each")
    monkeypatch.setattr(Counting, "count", 0)
    model(features())
    assert Counting.count == 1


@pytest.mark.parametrize("copied", COPIES)
@pytest.mark.parametrize("layer", LAYERS)
def test_a_used_model_is_copied_and_saved_whole(layer: Layer, copied: Callable[[nn.Module], nn.Module]) -> None:
    model = SequenceModel(layer(D, H, transition="spectral"), V, vocab_size=V, readout="each")
    tokens = torch.randint(V, (T, B))
    model(tokens)[0].sum().backward()
    assert torch.equal(copied(model)(tokens)[0], model(tokens)[0])


@pytest.mark.parametrize(("reads", "vocab_size", "padded"), [("last", None, True), ("each", V, True), ("last", V, False)])
def test_compiling_gives_one_graph_with_the_same_values(reads: str, vocab_size: int | None, padded: bool) -> None:
    model = SequenceModel(GRU(D, H, transition="spectral"), O, vocab_size=vocab_size, readout=reads, skip=True)
    x = features() if vocab_size is None else torch.randint(V, (T, B))
    ragged = torch.tensor(LENGTHS) if padded else None
    value, state = torch.compile(model, fullgraph=True, backend="aot_eager")(x, lengths=ragged)
    expected, final = model(x, lengths=ragged)
    assert_equal_up_to_rounding(value, expected, T * H)
    assert_equal_up_to_rounding(state, final, T * H)


@pytest.mark.parametrize("reads", READS)
def test_autocast_gives_its_dtype(reads: str) -> None:
    model = SequenceModel(GRU(D, H, transition="spectral"), O, vocab_size=V, readout=reads, skip=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert model(torch.randint(V, (T, B)), lengths=LENGTHS)[0].dtype == torch.bfloat16


@pytest.mark.parametrize("reads", READS)
def test_functional_call_uses_the_parameters_it_is_given(reads: str) -> None:
    first, second = (SequenceModel(RNN(D, H, transition="spectral"), O, vocab_size=V, readout=reads) for _ in range(2))
    tokens = torch.randint(V, (T, B))
    value, _ = torch.func.functional_call(second, dict(first.state_dict()), (tokens,))
    assert torch.equal(value, first(tokens)[0])


@pytest.mark.parametrize("check", [torch.autograd.gradcheck, torch.autograd.gradgradcheck])
@pytest.mark.parametrize("reads", READS)
def test_gradients_of_both_orders_are_exact(reads: str, check: Callable[..., bool]) -> None:
    model = SequenceModel(RNN(2, 2, transition="spectral", dtype=torch.float64), 1, readout=reads, skip=True)
    names = [name for name, _ in model.named_parameters()]
    x = torch.randn(2, 2, 2, dtype=torch.float64, requires_grad=True)

    def function(x: Tensor, *values: Tensor) -> Tensor:
        parameters = dict(zip(names, values, strict=True))
        return torch.func.functional_call(model, parameters, (x,), {"lengths": [2, 1]})[0]

    assert check(function, (x, *(p.detach().requires_grad_() for p in model.parameters())))


# Refusals.

BAD_ARGUMENTS: list[tuple[dict[str, Any], type[SteadyError], str]] = [
    ({"rnn": RNNCell(D, H)}, ArgumentTypeError, "`rnn`.*RNNCell"),
    ({"rnn": "lstm"}, ArgumentTypeError, "`rnn`"),
    ({"out_features": 0}, ArgumentError, "`out_features`"),
    ({"out_features": 1.5}, ArgumentTypeError, "`out_features`"),
    ({"readout": "first"}, ArgumentError, "last, each"),
    ({"vocab_size": 0}, ArgumentError, "`vocab_size`"),
    ({"vocab_size": V, "embedding_size": D + 1}, ArgumentError, f"`embedding_size`.*input_size={D + 1}"),
    ({"embedding_size": D}, ArgumentError, "`embedding_size`.*`vocab_size`"),
    ({"dropout_embedding": 0.1}, ArgumentError, "`dropout_embedding`.*`vocab_size`"),
    ({"dropout_state": -0.1}, ArgumentError, "`dropout_state`"),
    ({"dropout_logits": 2}, ArgumentError, "`dropout_logits`"),
    ({"dropout_logits": "a"}, ArgumentTypeError, "`dropout_logits`"),
    ({"tied": True}, ArgumentError, "`tied`.*`vocab_size`"),
    ({"tied": True, "vocab_size": V, "out_features": V}, ArgumentError, rf"`tied`.*\({V}, {D}\).*\({V}, {H}\)"),
]


@pytest.mark.parametrize(("changed", "error", "words"), BAD_ARGUMENTS)
def test_a_bad_argument_is_refused(changed: dict[str, Any], error: type[SteadyError], words: str) -> None:
    with pytest.raises(error, match=words):
        SequenceModel(**{"rnn": RNN(D, H), "out_features": O, **changed})


BAD_TOKENS: list[tuple[Tensor, type[SteadyError], str]] = [
    (torch.zeros(T, B), DtypeError, "float32.*vocab_size"),
    (torch.zeros(T, B, dtype=torch.bool), DtypeError, "bool"),
    (torch.zeros(T, B, D, dtype=torch.int64), ShapeError, "one token per step"),
    (torch.tensor([0, V]), ArgumentError, f"from 0 to {V - 1}.*from 0 to {V}"),
    (torch.tensor([-1, 2]), ArgumentError, "from -1 to 2"),
]


@pytest.mark.parametrize(("tokens", "error", "words"), BAD_TOKENS)
def test_bad_tokens_are_refused(tokens: Tensor, error: type[SteadyError], words: str) -> None:
    with pytest.raises(error, match=words):
        SequenceModel(RNN(D, H), O, vocab_size=V)(tokens)


def test_bad_tokens_in_a_packed_sequence_are_refused() -> None:
    packed = pack_padded_sequence(torch.full((T, B), V), [T] * B)
    with pytest.raises(ArgumentError, match=f"from {V} to {V}"):
        SequenceModel(RNN(D, H), O, vocab_size=V)(packed)


BAD_LENGTHS: list[tuple[Any, Any, type[SteadyError], str]] = [
    (features(), [1, 2, 3], ShapeError, "`lengths`"),
    (features(), [1, 2, 3, T + 1], ArgumentError, "`lengths`"),
    (features(), torch.tensor([1.0] * B), ArgumentTypeError, "`lengths`"),
    (features()[:, 0], [T], ArgumentError, "`lengths` needs a batch"),
    (pack_padded_sequence(features(), [T] * B), [T] * B, ArgumentError, "PackedSequence"),
]


@pytest.mark.parametrize(("x", "lengths", "error", "words"), BAD_LENGTHS)
@pytest.mark.parametrize("reads", READS)
def test_bad_lengths_are_refused(reads: str, x: Any, lengths: Any, error: type[SteadyError], words: str) -> None:
    with pytest.raises(error, match=words):
        SequenceModel(RNN(D, H), O, readout=reads, skip=True)(x, lengths=lengths)


@pytest.mark.parametrize("lengths", [None, [1]])
def test_an_input_that_is_no_tensor_is_refused(lengths: list[int] | None) -> None:
    with pytest.raises(ArgumentTypeError, match=r"`input`.*list"):
        SequenceModel(RNN(D, H), O)([[0.0] * D], lengths=lengths)


def test_feature_vectors_of_another_width_are_refused() -> None:
    with pytest.raises(ShapeError, match="`input`"):
        SequenceModel(RNN(D, H), O)(torch.zeros(T, B, D + 1))
