"""Batches in parts, states carried along, what a model is called with."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from steadyrnn.errors import ArgumentError
from steadyrnn.layers.lstm import LSTM
from steadyrnn.models.sequence import SequenceModel
from steadyrnn.tasks.base import Batch, Interface
from steadyrnn.train.model_call import batch_rows, call_model, cut, detach_state, join_states

CARRYING = Interface(inputs=2, outputs=1, reads="each", carries_state=True)


class Recording(nn.Module):
    """Returns what it is told to and remembers what it was called with."""

    def __init__(self, result: Any) -> None:
        super().__init__()
        self.result, self.seen = result, {}

    def forward(self, input: Tensor, **more: Any) -> Any:
        self.seen = more
        return self.result


@pytest.mark.parametrize(
    ("interface", "fresh", "names"),
    [
        (Interface(2, 1), True, []),
        (Interface(2, 1), False, []),
        (CARRYING, True, []),
        (CARRYING, False, ["hx"]),
    ],
)
def test_a_state_is_handed_on_where_the_task_carries_it_and_the_batch_goes_on(
    interface: Interface, fresh: bool, names: list[str]
) -> None:
    model = Recording((torch.zeros(1), torch.ones(1)))
    call_model(model, Batch(torch.zeros(1), torch.zeros(1), fresh=fresh), torch.ones(1), interface)
    assert list(model.seen) == names


def test_lengths_are_handed_on() -> None:
    model = Recording(torch.zeros(1))
    call_model(model, Batch(torch.zeros(1), torch.zeros(1), lengths=torch.tensor([1])), None, Interface(2, 1))
    assert list(model.seen) == ["lengths"]


def test_a_model_may_return_its_output_alone() -> None:
    output = torch.zeros(1)
    assert call_model(Recording(output), Batch(output, output), None, Interface(2, 1)) == (output, None)


def test_a_model_without_state_is_refused_where_the_task_carries_one() -> None:
    with pytest.raises(ArgumentError, match=r"must return \(output, state\)"):
        call_model(Recording(torch.zeros(1)), Batch(torch.zeros(1), torch.zeros(1)), None, CARRYING)


@pytest.mark.parametrize("reads", ["last", "each", "row"])
@pytest.mark.parametrize("parts", [1, 2, 3, 5, 9])
def test_the_parts_of_a_batch_are_the_batch(reads: str, parts: int) -> None:
    interface = Interface(2, 1, reads=reads)
    x = torch.randn(5, 2) if reads == "row" else torch.randn(4, 5, 2)
    y = torch.randn(4, 5, 1) if reads == "each" else torch.randn(5, 1)
    batch = Batch(x, y, lengths=torch.arange(5), fresh=False)
    pieces = cut(batch, None, parts, interface)
    assert len(pieces) == min(parts, 5)
    assert all(batch_rows(piece.batch, interface) > 0 and not piece.batch.fresh for piece in pieces)
    assert sum(batch_rows(piece.batch, interface) for piece in pieces) == 5
    assert torch.equal(torch.cat([piece.batch.input for piece in pieces], 0 if reads == "row" else 1), x)
    assert torch.equal(torch.cat([piece.batch.target for piece in pieces], 1 if reads == "each" else 0), y)
    assert torch.equal(torch.cat([piece.batch.lengths for piece in pieces if piece.batch.lengths is not None]), torch.arange(5))


@pytest.mark.parametrize("parts", [1, 2, 3])
def test_states_are_cut_and_joined_with_their_rows(parts: int) -> None:
    model = SequenceModel(LSTM(2, 3), 1, readout="each")
    x, state = torch.randn(4, 5, 2), (torch.randn(1, 5, 3), torch.randn(1, 5, 3))
    output, last = model(x, state)
    pieces = cut(Batch(x, output, fresh=False), state, parts, CARRYING)
    results = [call_model(model, piece.batch, piece.state, CARRYING) for piece in pieces]
    joined = join_states([result[1] for result in results])
    torch.testing.assert_close(torch.cat([result[0] for result in results], 1), output)
    torch.testing.assert_close(joined, last)


def test_a_detached_state_keeps_its_form_and_no_graph() -> None:
    one = torch.ones(1, requires_grad=True)
    assert detach_state(None) is None
    assert not detach_state(one).requires_grad
    assert isinstance(detach_state((one, one)), tuple)


def test_a_state_of_another_kind_is_refused() -> None:
    with pytest.raises(ArgumentError, match="gave dict"):
        detach_state({"h": torch.ones(1)})


def test_a_detached_state_does_not_keep_the_outputs_of_all_steps() -> None:
    output = torch.randn(9, 2, 3)
    state = detach_state((output[-1:].transpose(1, 2), output[-1:]))
    assert all(tensor.is_contiguous() and tensor.untyped_storage().nbytes() == 24 for tensor in state)


@pytest.mark.parametrize("shape", [(5,), (5, 3), (1, 4, 3)])
def test_a_state_without_rows_in_its_second_dimension_is_not_cut(shape: tuple[int, ...]) -> None:
    batch = Batch(torch.zeros(4, 5, 2), torch.zeros(4, 5, 1), fresh=False)
    with pytest.raises(ArgumentError, match=r"`accumulate` cuts states by rows.*\(layers, 5, \.\.\.\).*Use `accumulate` of 1"):
        cut(batch, torch.zeros(shape), 2, CARRYING)
