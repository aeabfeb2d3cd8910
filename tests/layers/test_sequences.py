"""Lengths, packing, padding and chunks: however a sequence is handed over, the result is the same."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

import steadyrnn as sr
from steadyrnn.errors import ShapeError
from tests.support.errors import assert_equal_up_to_rounding
from tests.support.layers import KINDS, states_of, tensors_of, zero_states

WIDTH, HIDDEN = 3, 4


def make(kind: str, **more: Any) -> nn.Module:
    return KINDS[kind](WIDTH, HIDDEN, dtype=torch.float64, **more)


def draw(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def random_states(layer: nn.Module, rows: int) -> Any:
    zero = zero_states(layer, rows)
    drawn = tuple(torch.randn_like(s) for s in states_of(zero))
    return drawn if isinstance(zero, tuple) else drawn[0]


def row_of(state: Any, row: int) -> Any:
    picked = tuple(s[:, row : row + 1] for s in states_of(state))
    return picked if isinstance(state, tuple) else picked[0]


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("cut", [1, 3, 6])
@pytest.mark.parametrize("kind", KINDS)
def test_whole_run_is_the_run_in_chunks(kind: str, cut: int, recompute: bool) -> None:
    layer, x = make(kind, num_layers=2, recompute=recompute), draw(7, 2, WIDTH).requires_grad_()
    whole = tensors_of(layer(x))
    first, state = layer(x[:cut])
    second, state = layer(x[cut:], state)
    chunked = (torch.cat([first, second]), *states_of(state))
    for a, b in zip(chunked, whole, strict=True):
        assert_equal_up_to_rounding(a, b)
    cotangents = [torch.randn_like(t) for t in whole]
    wanted = [x, *layer.parameters()]
    for a, b in zip(
        torch.autograd.grad(chunked, wanted, cotangents), torch.autograd.grad(whole, wanted, cotangents), strict=True
    ):
        assert_equal_up_to_rounding(a, b, operations=7)


@st.composite
def raggeds(draw: st.DrawFn) -> tuple[int, list[int]]:
    steps = draw(st.integers(1, 6))
    return steps, draw(st.lists(st.integers(0, steps), min_size=1, max_size=5))


@pytest.mark.parametrize("kind", KINDS)
@given(ragged=raggeds(), layers=st.integers(1, 2), both=st.booleans(), batch_first=st.booleans(), recompute=st.booleans())
def test_padded_rows_are_the_rows_one_by_one(
    kind: str, ragged: tuple[int, list[int]], layers: int, both: bool, batch_first: bool, recompute: bool
) -> None:
    steps, lengths = ragged
    layer = make(kind, num_layers=layers, bidirectional=both, recompute=recompute)
    x, hx = draw(steps, len(lengths), WIDTH), random_states(layer, len(lengths))
    layer.batch_first = batch_first
    output, state = layer(x.transpose(0, 1) if batch_first else x, hx, lengths=torch.tensor(lengths))
    output = output.transpose(0, 1) if batch_first else output
    layer.batch_first = False
    for row, length in enumerate(lengths):
        alone, final = layer(x[:length, row : row + 1], row_of(hx, row))
        assert_equal_up_to_rounding(output[:length, row : row + 1], alone)
        assert (output[length:, row] == 0).all()
        for a, b in zip(states_of(row_of(state, row)), states_of(final), strict=True):
            assert_equal_up_to_rounding(a, b)


@pytest.mark.parametrize("is_sorted", [False, True])
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_packed_is_padded(kind: str, batch_first: bool, is_sorted: bool) -> None:
    layer = make(kind, num_layers=2, bidirectional=True, batch_first=batch_first)
    lengths = [6, 4, 4, 1] if is_sorted else [4, 1, 6, 4]
    x, hx = draw(6, 4, WIDTH), random_states(layer, 4)
    x = (x.transpose(0, 1) if batch_first else x).requires_grad_()
    packed, packed_state = layer(pack_padded_sequence(x, lengths, batch_first, enforce_sorted=is_sorted), hx)
    output, state = layer(x, hx, lengths=lengths)
    assert isinstance(packed, PackedSequence)
    unpacked = pad_packed_sequence(packed, batch_first)[0]
    for a, b in zip((unpacked, *states_of(packed_state)), (output, *states_of(state)), strict=True):
        assert_equal_up_to_rounding(a, b)
    grads = [torch.autograd.grad(o.square().sum(), [x, *layer.parameters()]) for o in (unpacked, output)]
    for a, b in zip(*grads, strict=True):
        assert_equal_up_to_rounding(a, b, operations=6)


@pytest.mark.parametrize("kind", KINDS)
def test_packed_result_can_be_packed_on(kind: str) -> None:
    layer, second = make(kind), KINDS[kind](HIDDEN, HIDDEN, dtype=torch.float64)
    x = draw(5, 3, WIDTH)
    packed = pack_padded_sequence(x, [2, 5, 3], enforce_sorted=False)
    found = pad_packed_sequence(second(layer(packed)[0])[0])[0]
    expected = second(layer(x, lengths=[2, 5, 3])[0], lengths=[2, 5, 3])[0]
    assert_equal_up_to_rounding(found, expected)


@pytest.mark.parametrize("kind", KINDS)
def test_row_of_length_zero_returns_its_state(kind: str) -> None:
    layer = make(kind, num_layers=2, bidirectional=True)
    hx = random_states(layer, 3)
    output, state = layer(draw(4, 3, WIDTH), hx, lengths=[4, 0, 2])
    assert (output[:, 1] == 0).all()
    assert all(torch.equal(a[:, 1], b[:, 1]) for a, b in zip(states_of(state), states_of(hx), strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_row_of_length_zero_passes_the_states_gradient_through(kind: str) -> None:
    layer = make(kind)
    hx = random_states(layer, 2)
    leaves = [s.requires_grad_() for s in states_of(hx)]
    _, state = layer(draw(4, 2, WIDTH), hx, lengths=[3, 0])
    grads = torch.autograd.grad(sum(s[:, 1].sum() for s in states_of(state)), leaves)
    assert all((g[:, 1] == 1).all() and (g[:, 0] == 0).all() for g in grads)


@pytest.mark.parametrize("lengths", [None, [0, 0]], ids=["no lengths", "zero lengths"])
@pytest.mark.parametrize("kind", KINDS)
def test_no_steps_give_an_empty_output_and_the_state(kind: str, lengths: list[int] | None) -> None:
    layer = make(kind, num_layers=2, bidirectional=True)
    hx = random_states(layer, 2)
    output, state = layer(draw(0, 2, WIDTH), hx, lengths=lengths)
    assert output.shape == (0, 2, 2 * HIDDEN)
    assert all(torch.equal(a, b) for a, b in zip(states_of(state), states_of(hx), strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_no_steps_can_be_differentiated(kind: str) -> None:
    layer = make(kind, learn_initial_state=True)
    output, state = layer(draw(0, 2, WIDTH))
    (output.sum() + sum(s.sum() for s in states_of(state))).backward()
    assert (layer.initial_state_l0.grad == 2).all()


@pytest.mark.parametrize("kind", KINDS)
def test_unbatched_run_of_no_steps_works(kind: str) -> None:
    output, state = make(kind)(draw(0, WIDTH))
    assert output.shape == (0, HIDDEN)
    assert all(s.shape == (1, HIDDEN) for s in states_of(state))


@pytest.mark.parametrize("lengths", [None, [], torch.empty(0, dtype=torch.int64)], ids=["none", "list", "tensor"])
@pytest.mark.parametrize("kind", KINDS)
def test_batch_of_none_gives_empty_results_and_zero_gradients(kind: str, lengths: Any) -> None:
    layer = make(kind, num_layers=2)
    output, state = layer(draw(4, 0, WIDTH), lengths=lengths)
    assert output.shape == (4, 0, HIDDEN)
    assert all(s.shape == (2, 0, HIDDEN) for s in states_of(state))
    output.sum().backward()
    assert all(p.grad is None or (p.grad == 0).all() for p in layer.parameters())


@pytest.mark.parametrize(
    "form",
    [list, tuple, torch.tensor, lambda n: torch.tensor(n, dtype=torch.int32), lambda n: torch.tensor(n, dtype=torch.uint8)],
    ids=["list", "tuple", "int64", "int32", "uint8"],
)
def test_lengths_are_taken_in_any_integer_form(form: Any) -> None:
    layer, x = make("gru"), draw(5, 3, WIDTH)
    expected = layer(x, lengths=torch.tensor([5, 0, 2]))[0]
    assert torch.equal(layer(x, lengths=form([5, 0, 2]))[0], expected)


@pytest.mark.parametrize("kind", KINDS)
def test_full_lengths_change_nothing(kind: str) -> None:
    layer, x = make(kind, num_layers=2, bidirectional=True), draw(5, 3, WIDTH)
    for a, b in zip(tensors_of(layer(x, lengths=[5, 5, 5])), tensors_of(layer(x)), strict=True):
        assert_equal_up_to_rounding(a, b)


@pytest.mark.parametrize("padding", [torch.nan, torch.inf, 1e30])
@pytest.mark.parametrize("kind", KINDS)
def test_whatever_lies_in_the_padding_is_not_read(kind: str, padding: float) -> None:
    layer, x, lengths = make(kind, num_layers=2, bidirectional=True), draw(5, 3, WIDTH), [2, 5, 0]
    dirty = x.clone()
    for row, length in enumerate(lengths):
        dirty[length:, row] = padding
    found = []
    for given_input in (x, dirty):
        leaf = given_input.requires_grad_()
        output, _ = layer(leaf, lengths=lengths)
        found.append((output, *torch.autograd.grad(output.square().sum(), [leaf, *layer.parameters()])))
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


@pytest.mark.parametrize("with_lengths", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_nan_stays_in_its_row(kind: str, dtype: torch.dtype, with_lengths: bool) -> None:
    layer, lengths = make(kind, num_layers=2, bidirectional=True).to(dtype), [5, 3, 4] if with_lengths else None
    x = draw(5, 3, WIDTH).to(dtype)
    dirty = x.clone()
    dirty[1, 1] = torch.nan
    found = []
    for given_input in (x, dirty):
        leaf = given_input.requires_grad_()
        output, state = layer(leaf, lengths=lengths)
        (grad,) = torch.autograd.grad(output.square().sum(), leaf)
        found.append((output[:, [0, 2]], *(s[:, [0, 2]] for s in states_of(state)), grad[:, [0, 2]]))
        poisoned = output[:, 1]
    assert poisoned.isnan().any()
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_order_of_the_rows_does_not_matter(kind: str) -> None:
    layer, x, order = make(kind), draw(5, 3, WIDTH), torch.tensor([2, 0, 1])
    lengths = torch.tensor([2, 5, 3])
    output, state = layer(x, lengths=lengths)
    turned, turned_state = layer(x[:, order], lengths=lengths[order])
    assert_equal_up_to_rounding(turned, output[:, order])
    for a, b in zip(states_of(turned_state), states_of(state), strict=True):
        assert_equal_up_to_rounding(a, b[:, order])


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_layout_of_the_input_in_memory_does_not_matter(kind: str, batch_first: bool) -> None:
    layer, x = make(kind, batch_first=batch_first), draw(4, 3, 2 * WIDTH)
    strided = x[..., ::2]
    assert not strided.is_contiguous()
    assert_equal_up_to_rounding(layer(strided)[0], layer(strided.contiguous())[0])
    expanded = x[:1, :, :WIDTH].expand(4, -1, -1)
    assert_equal_up_to_rounding(layer(expanded)[0], layer(expanded.contiguous())[0])


@pytest.mark.parametrize("kind", KINDS)
def test_neither_input_nor_state_is_changed(kind: str) -> None:
    layer, x = make(kind, num_layers=2), draw(4, 3, WIDTH)
    hx = random_states(layer, 3)
    before = [t.clone() for t in (x, *states_of(hx))]
    layer(x, hx, lengths=[4, 2, 0])
    assert all(torch.equal(a, b) for a, b in zip(before, (x, *states_of(hx)), strict=True))


@pytest.mark.parametrize("hidden", [1, 2, 3, 127, 129])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "rnn-modrelu"])
def test_every_size_runs_and_learns(kind: str, hidden: int) -> None:
    layer = KINDS[kind](1, hidden, transition="spectral")
    output, _ = layer(torch.randn(3, 2, 1))
    output.sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in layer.parameters() if p.numel())


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32])
def test_lengths_of_a_narrow_dtype_mean_the_same(dtype: torch.dtype) -> None:
    layer, x = sr.RNN(2, 3), torch.randn(300, 2, 2)
    expected, _ = layer(x, lengths=[200, 10])
    assert torch.equal(layer(x, lengths=torch.tensor([200, 10], dtype=dtype))[0], expected)


def test_a_packed_sequence_of_numbers_instead_of_vectors_is_refused() -> None:
    packed = nn.utils.rnn.pack_padded_sequence(torch.randn(4, 2), [4, 2])
    with pytest.raises(ShapeError, match="`input`"):
        sr.RNN(2, 3)(packed)
