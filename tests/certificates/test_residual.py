"""Residuals of all time steps at once equal those of one step after another."""

from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import steadyrnn.certificates.residual as residual_module
from steadyrnn.bounds.norms import above
from steadyrnn.cells.registry import CELLS
from steadyrnn.certificates.residual import ExactStep, in_double, in_running_order, linear_scan, scan_rounding, step_residuals
from steadyrnn.engines.base import Recurrence
from steadyrnn.engines.reference import ReferenceEngine
from tests.support.recurrences import Case, as_dtype, make

REFERENCE = ReferenceEngine()
PROVEN = [name for name, cell in CELLS.items() if cell.record.theorem is not None]  # errors of others are refused before


def plain(run: Recurrence) -> Recurrence:
    return as_dtype(run, torch.float64)


def exactly(run: Recurrence) -> tuple[ExactStep, Tensor, tuple[Tensor, ...]]:
    exact = in_double(run)
    return ExactStep(exact), exact.input, exact.state


def step_of(run: Recurrence, t: int, *state: Tensor) -> tuple[Tensor, ...]:
    """Return the state behind one step from a given one."""
    return REFERENCE.run(run._replace(input=run.input[t : t + 1], state=state))[1]


@pytest.mark.parametrize("name", PROVEN)
@pytest.mark.parametrize("block", [1, 40, 2**18])
@pytest.mark.parametrize("factored", [False, True])
def test_residuals_are_those_of_single_steps(name: str, block: int, factored: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(residual_module, "_BLOCK", block)
    run = make(CELLS[name], Case(steps=17, batch=2, hidden=4, factored=factored))
    with torch.no_grad():
        output = REFERENCE.run(run)[0] + 0.1 * torch.randn(17, 2, 4, dtype=torch.float64)
        parts = [part._replace(residual=part.residual.clone()) for part in step_residuals(*exactly(run), output)]
        found = torch.cat([part.residual.permute(1, 2, 0) for part in parts])
        assert all(part.cell_residual == 0 for part in parts)  # c is computed, and nothing moves it
        state, before = run.state, run.state[0]
        for t in range(17):
            state = step_of(run, t, before, *state[1:])
            torch.testing.assert_close(output[t] - found[t], state[0], rtol=1e-12, atol=1e-13)  # a difference has fewer digits
            before = output[t]


@pytest.mark.parametrize("name", ["lstm", "gru-after"])
def test_states_are_moved_into_the_box_and_the_way_is_told(name: str) -> None:
    run = make(CELLS[name], Case(steps=9, batch=2, hidden=4))
    box = tuple(torch.full((4,), bound, dtype=torch.float64) for bound in (10.0, 20.0))[: run.cell.states]
    output = REFERENCE.run(run)[0].detach()
    output[3, 1, 2] = 13.0
    (part,) = step_residuals(*exactly(run), output, box)
    assert 3 <= float(part.moved[3, 1]) <= above(3.0, 128)  # rounded up
    assert float(part.moved.sum() - part.moved[3, 1]) < 1e-150
    assert float(part.residual[2, 3, 1].abs()) < 14


@pytest.mark.parametrize("block", [1, 2**18])  # c goes on from where it was moved to, and is moved behind a whole scan
def test_cell_states_that_are_moved_leave_no_more_over_than_is_told(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(residual_module, "_BLOCK", block)
    run = plain(make(CELLS["lstm"], Case(steps=17, batch=2, hidden=4)))
    with torch.no_grad():
        output = REFERENCE.run(run)[0]
        before, seen, cells = run.state[0], run.state[1], [run.state[1]]
        for t in range(17):
            seen = step_of(run, t, before, seen)[1]
            cells, before = [*cells, seen], output[t]
        edge = torch.stack(cells).abs().amax((0, 1)) / 2
        box = (torch.full_like(edge, 10.0), edge)
        parts = [part._replace(residual=part.residual.clone()) for part in step_residuals(*exactly(run), output, box)]
        before, seen, kept, largest = run.state[0], run.state[1], run.state[1], 0.0
        for t in range(17):
            h, value = step_of(run, t, before, kept)
            seen = value if block == 1 else step_of(run, t, before, seen)[1]
            moved = seen.clamp(-edge, edge)
            part = parts[t if block == 1 else 0]
            left, told = (moved - value).norm(dim=-1), float(part.cell_residual)
            assert float(left.max()) <= told
            largest = max(largest, told)
            expected = output[t] - h / value.tanh() * moved.tanh()
            torch.testing.assert_close(part.residual[:, 0 if block == 1 else t].mT, expected)
            before, kept = output[t], moved
        assert largest > 0


@pytest.mark.parametrize("width", [3, 600])  # in pieces, and one step after another
@given(steps=st.integers(1, 200), seed=st.integers(0, 99))
def test_a_scan_is_the_loop(width: int, steps: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    factor, term = (torch.rand(steps, 2, width, generator=generator, dtype=torch.float64) for _ in range(2))
    state = torch.ones(2, width, dtype=torch.float64)
    found = linear_scan(factor.clone(), term.clone(), state)
    for t in range(steps):
        state = factor[t] * state + term[t]
        torch.testing.assert_close(found[t], state, rtol=1e-13, atol=0)


@pytest.mark.parametrize("steps", [1, 2, 3, 10, 99, 1000])
def test_what_a_scan_rounds_is_within_its_bound(steps: int) -> None:
    generator = torch.Generator().manual_seed(0)
    factor, term = (torch.rand(steps, 64, generator=generator, dtype=torch.float64) for _ in range(2))
    start = torch.ones(64, dtype=torch.float64)
    found = linear_scan(factor.clone(), term.clone(), start)  # all numbers are positive: sums are their own terms
    before = torch.cat([start.unsqueeze(0), found[:-1]])
    gap = [
        abs(Fraction(c) - Fraction(f) * Fraction(b) - Fraction(u))
        for c, f, b, u in zip(*(t[:, 0].tolist() for t in (found, factor, before, term)), strict=True)
    ]
    assert max(gap) <= scan_rounding() * float(found.max())


@pytest.mark.parametrize("lengths", [None, (7, 4, 1, 0)])
def test_a_turned_sequence_runs_forwards(lengths: tuple[int, ...] | None) -> None:
    run = plain(make(CELLS["rnn-tanh"], Case(steps=7, batch=4, lengths=lengths, reverse=True)))
    forwards = run._replace(input=in_running_order(run.input, run), reverse=False)
    with torch.no_grad():
        backwards: Tensor = REFERENCE.run(run)[0]
        assert torch.equal(in_running_order(REFERENCE.run(forwards)[0], run), backwards)
        assert torch.equal(in_running_order(in_running_order(backwards, run), run), backwards)
