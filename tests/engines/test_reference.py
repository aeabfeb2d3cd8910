"""The reference in float64 is the truth: how far it errs itself is seen by adding up in another order."""

import pytest

from steadyrnn.cells.registry import CELLS
from steadyrnn.engines.reference import ReferenceEngine
from steadyrnn.engines.select import ENGINES
from tests.support.errors import assert_equal_up_to_rounding, assert_within_budget
from tests.support.gpu import compare
from tests.support.recurrences import Case, make, results
from tests.support.reordered import ReorderedEngine, rounding_errors

REFERENCE = ReferenceEngine()
LONG = [Case(steps=50, batch=40, hidden=hidden) for hidden in (64, 200)]


@pytest.mark.parametrize(
    "case",
    [
        Case(hidden=16),
        Case(hidden=16, factored=True, bias_ih=False, bias_hh=False),
        Case(steps=5, lengths=(4, 2, 0), hidden=2, reverse=True, factored=True),
        Case(steps=0),
    ],
    ids=str,
)
@pytest.mark.parametrize("cell", CELLS)
def test_order_of_the_units_changes_rounding_only(cell: str, case: Case) -> None:
    run = make(CELLS[cell], case)
    truth = results(REFERENCE, run)
    for name, tensor in results(ReorderedEngine(), run).items():
        assert_equal_up_to_rounding(tensor, truth[name], operations=max(case.steps, 1) * case.hidden)


def test_another_order_rounds_otherwise() -> None:
    run = make(CELLS["rnn-tanh"], LONG[0])
    assert min(rounding_errors(run, results(REFERENCE, run)).values()) > 0


@pytest.mark.parametrize("case", LONG, ids=str)
@pytest.mark.parametrize("name", ["rnn-modrelu", "rnn-abs", "lstm"])
def test_an_engine_that_adds_up_in_its_own_order_stays_within_the_budget(name: str, case: Case) -> None:
    compare(ENGINES["cpu"], make(CELLS[name], case))


@pytest.mark.parametrize("case", LONG, ids=str)
def test_one_number_that_is_off_in_the_twelfth_digit_is_found(case: Case) -> None:
    run = make(CELLS["rnn-modrelu"], case)
    truth = results(REFERENCE, run)
    found, allowance = results(ENGINES["cpu"], run), rounding_errors(run, truth)
    for name, tensor in found.items():
        wrong = tensor.clone()
        wrong.view(-1)[0] += 1e-12 * tensor.norm()
        with pytest.raises(AssertionError, match=f"^{name}: error"):
            assert_within_budget({name: wrong}, {name: truth[name]}, allowance)
