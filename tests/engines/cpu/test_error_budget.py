"""The CPU engine against the reference: outputs, final states and every gradient err at most twice as much."""

from collections.abc import Iterator

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from steadyrnn.cells.registry import CELLS
from steadyrnn.cells.rnn import RNNStep
from steadyrnn.engines.reference import ReferenceEngine
from steadyrnn.engines.select import ENGINES
from tests.support.errors import assert_within_budget, errors, unit_roundoff
from tests.support.memory import poisoned_memory
from tests.support.recurrences import CPU_CELLS, Case, as_dtype, make, results

DTYPES = (torch.float32, torch.float64, torch.bfloat16)
REFERENCE = ReferenceEngine()

CASES = (
    Case(steps=1, batch=1, hidden=1),
    Case(steps=1, batch=3, hidden=2, bias_ih=False, reverse=True),
    Case(steps=2, batch=1, hidden=3, bias_hh=False),
    Case(steps=7, batch=3, hidden=3, bias_ih=False, bias_hh=False),
    Case(steps=7, batch=1, hidden=127),
    Case(steps=7, batch=3, hidden=129, reverse=True),
    Case(steps=7, batch=4, lengths=(7, 3, 5, 0)),
    Case(steps=7, batch=4, lengths=(7, 3, 5, 0), reverse=True, bias_hh=False),
    Case(steps=6, batch=3, lengths=(4, 2, 4), bias_ih=False),
    Case(steps=6, batch=3, lengths=(4, 2, 4), reverse=True, recompute=True),
    Case(steps=3, batch=2, lengths=(0, 0)),
    Case(steps=3, batch=2, lengths=(0, 0), reverse=True, recompute=True),
    Case(steps=7, batch=3, recompute=True),
    Case(steps=7, batch=3, recompute=True, reverse=True, bias_ih=False),
    Case(steps=7, batch=4, lengths=(7, 3, 5, 0), recompute=True, bias_hh=False),
    Case(steps=0, batch=2),
    Case(steps=0, batch=2, recompute=True, reverse=True),
    Case(steps=3, batch=0),
)
FACTORED = (
    Case(steps=1, batch=1, hidden=1, factored=True),
    Case(steps=7, batch=3, hidden=129, factored=True),
    Case(steps=7, batch=3, factored=True, reverse=True, bias_ih=False),
    Case(steps=7, batch=4, lengths=(7, 3, 5, 0), factored=True, reverse=True),
    Case(steps=7, batch=4, lengths=(7, 3, 5, 0), factored=True, recompute=True),
    Case(steps=0, batch=2, factored=True),
    Case(steps=3, batch=0, factored=True),
)


def is_smooth(name: str) -> bool:
    cell = CELLS[name]
    return not isinstance(cell, RNNStep) or cell.activation.smoothness < torch.inf


@pytest.fixture(autouse=True)
def _poison() -> Iterator[None]:
    with poisoned_memory():
        yield


@pytest.fixture
def _factored_is_always_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("steadyrnn.engines.cpu.engine.factored_is_faster", lambda size, rank, rows: True)


def test_every_rnn_gru_and_lstm_is_run() -> None:
    assert {name for name, cell in CELLS.items() if cell.record.family in ("rnn", "gru", "lstm")} <= set(CPU_CELLS)


def reference_errors(name: str, case: Case, dtype: torch.dtype, seed: int, gradients: bool) -> dict[str, float]:
    """Return the reference's own errors in ``dtype``.

    Those of float64 cannot be measured, only estimated: as those of float32, scaled by the roundoffs. One draw's error is a
    matter of luck, so the largest of five is taken.
    """
    wide = dtype == torch.float64
    draws = []
    for draw in range(seed, seed + (5 if wide else 1)):
        run = make(CELLS[name], case, torch.float32 if wide else dtype, draw)
        truth = results(REFERENCE, as_dtype(run, torch.float64), gradients=gradients)
        draws.append(errors(results(REFERENCE, run, gradients=gradients), truth))
    scale = unit_roundoff(dtype) / unit_roundoff(run.input.dtype)
    return {key: scale * max(found[key] for found in draws) for key in draws[0]}


def check(name: str, case: Case, dtype: torch.dtype, seed: int = 0) -> None:
    """Compare the CPU engine with the reference; gradients of kinked activations in float64 only."""
    gradients = is_smooth(name) or dtype == torch.float64
    run = make(CELLS[name], case, dtype, seed)
    truth = results(REFERENCE, as_dtype(run, torch.float64), gradients=gradients)
    fast = results(ENGINES["cpu"], run, gradients=gradients)
    assert_within_budget(fast, truth, reference_errors(name, case, dtype, seed, gradients))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("name", CPU_CELLS)
def test_cpu_engine_errs_no_more_than_twice_the_reference(name: str, case: Case, dtype: torch.dtype) -> None:
    check(name, case, dtype)


@pytest.mark.usefixtures("_factored_is_always_faster")
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("case", FACTORED, ids=str)
@pytest.mark.parametrize("name", CPU_CELLS)
def test_factored_weights_err_no_more_than_twice_the_reference(name: str, case: Case, dtype: torch.dtype) -> None:
    check(name, case, dtype)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    steps, batch = draw(st.integers(0, 9)), draw(st.integers(1, 4))
    lengths = st.lists(st.integers(0, steps), min_size=batch, max_size=batch).map(tuple)
    flags = (st.booleans(), st.booleans(), st.booleans(), st.booleans())
    bias_ih, bias_hh, reverse, recompute = (draw(flag) for flag in flags)
    return Case(
        steps, batch, draw(st.integers(1, 3)), draw(st.integers(1, 6)), draw(st.none() | lengths), bias_ih, bias_hh,
        reverse, recompute,
    )  # fmt: skip


@pytest.mark.parametrize("name", CPU_CELLS)
@given(case=cases(), seed=st.integers(0, 2**31))
def test_cpu_engine_agrees_on_any_shape(name: str, case: Case, seed: int) -> None:
    check(name, case, torch.float64, seed)
