"""Recomputation keeps about sqrt(T) states in every engine, and changes no number."""

import pytest
import torch
from torch import Tensor

from steadyrnn.cells.registry import CELLS
from steadyrnn.engines.select import ENGINES
from tests.support.errors import assert_within_budget
from tests.support.recurrences import CPU_CELLS, Case, make, results

CASES = (
    Case(steps=10, batch=3, recompute=True),
    Case(steps=10, batch=4, lengths=(10, 3, 7, 0), reverse=True, recompute=True),
    Case(steps=1, recompute=True),
    Case(steps=0, recompute=True),
)


def saved_numbers(engine: str, name: str, case: Case) -> int:
    """Return how many numbers autograd keeps for the backward pass of a run, the arguments themselves not counted."""
    run = make(CELLS[name], case)
    given = {t.untyped_storage().data_ptr() for t in run.tensors if t is not None}
    kept: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        place = tensor.untyped_storage().data_ptr()
        if place not in given:
            kept[place] = tensor.untyped_storage().nbytes() // tensor.element_size()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        output, state = ENGINES[engine].run(run)
    del output, state
    return sum(kept.values())


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("name", CPU_CELLS)
def test_reference_gives_the_same_with_recomputation(name: str, case: Case) -> None:
    run = make(CELLS[name], case)
    plain = results(ENGINES["reference"], run._replace(recompute=False))
    assert_within_budget(results(ENGINES["reference"], run), plain, dict.fromkeys(plain, 0.0))


@pytest.mark.parametrize("engine", ["cpu", "reference"])
@pytest.mark.parametrize("name", ["rnn-abs", "gru-after", "gru-before", "lstm"])
def test_recomputation_keeps_far_less(engine: str, name: str) -> None:
    plain = saved_numbers(engine, name, Case(steps=100))
    assert 5 * saved_numbers(engine, name, Case(steps=100, recompute=True)) < plain


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("lengths", [None, (0, 0, 0)], ids=["full", "empty"])
@pytest.mark.parametrize("steps", [0, 3])
@pytest.mark.parametrize("name", CPU_CELLS)
def test_final_states_are_memory_of_their_own(name: str, steps: int, lengths: tuple[int, ...] | None, recompute: bool) -> None:
    run = make(CELLS[name], Case(steps=steps, lengths=lengths, recompute=recompute))
    before = [state.detach().clone() for state in run.state]
    with torch.no_grad():
        output, finals = ENGINES["cpu"].run(run)
        for final in (output, *finals):
            final.fill_(7.0)  # what a caller does to its results must not reach what it gave
    assert all(torch.equal(state, kept) for state, kept in zip(run.state, before, strict=True))
