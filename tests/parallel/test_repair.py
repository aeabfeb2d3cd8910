"""One rank's part: how far its end moves, what its steps start from, and how many inputs its gradients see."""

import math
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest import mock

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import steadyrnn as sr
from steadyrnn.bounds.parts import Part, part_errors
from steadyrnn.engines.base import Recurrence, Windows
from steadyrnn.parallel.gradients import gradient_norms
from steadyrnn.parallel.layer import run_part_of_layer
from steadyrnn.parallel.line import Line
from steadyrnn.parallel.plan import Request, list_ways
from steadyrnn.parallel.repair import Repair
from steadyrnn.parallel.run import run_part
from steadyrnn.parallel.spread import Spread
from tests.parallel.layers import rnn_of


def line() -> sr.RNN:
    """Return a layer of one unit in which nothing decays faster than proven."""
    layer = rnn_of(0.9, "identity", size=1, bias=False)
    with torch.no_grad():
        layer.weight_hh_l0.fill_(0.9)
        layer.weight_ih_l0.fill_(1.0)
    return layer


def repair_of(x: Tensor, tol: float, chunk: int | None) -> tuple[Repair, float]:
    """Return a part that has run by itself, from zero, and the bound on its rounding."""
    layer = line()
    proven = sr.to_parallel(layer, tol, chunk)._proven
    request = Request(tol, chunk, None, "not asked for")
    run = layer._recurrence(x, (torch.zeros(x.shape[1], 1, dtype=x.dtype),), "_l0", None, False, False)
    certificate, bounds = list_ways(run, proven.certificates[0], request)[0]
    with torch.no_grad():
        result = run_part(run, "auto", certificate, bounds, proven.sizes[0], request, None)
    part = Repair(run, "auto", result, certificate, bounds, request, 0)
    return part, part.rounding(proven.sizes[0])


@given(
    steps=st.integers(1, 120),
    starts=st.lists(st.sampled_from([1e-4, 0.01, 0.1, 0.5, 0.6, 1.0, 30.0]), min_size=1, max_size=4),
    size=st.sampled_from([1e-4, 1e-2, 1.0]),
    chunk=st.sampled_from([None, 3, 20]),
)
def test_an_end_moves_no_further_than_is_told(steps: int, starts: list[float], size: float, chunk: int | None) -> None:
    """Also where states come more than once, and the first of them left the end as it was."""
    part, rounding = repair_of(size * torch.ones(steps, 1, 5, dtype=torch.float64), 1e-3, chunk)
    for start in starts:
        before = part.end[0].clone()
        with torch.no_grad():
            part.receive((torch.full((1, 1), start, dtype=torch.float64),), math.inf)
        moved = float((part.end[0] - before).abs().max())
        assert moved <= part.change + rounding
        assert part.moved or moved == part.change == 0


def test_an_end_that_stayed_at_first_moves_from_where_the_own_run_left_it() -> None:
    """Not from where a run would have ended that started from the first state received, which none did."""
    part, rounding = repair_of(torch.ones(60, 1, 5, dtype=torch.float64), 1e-3, None)
    moved = []
    for start in (0.01, 0.5, 0.6):
        before = float(part.end[0])
        with torch.no_grad():
            part.receive((torch.full((1, 1), start, dtype=torch.float64),), math.inf)
        moved.append((part.repeated, float(part.end[0]) - before, part.change))
    (first, still, _), (second, way, told), (_, again, last) = moved
    assert (first < 60, still, second) == (True, 0.0, 60)
    assert way == pytest.approx(0.5 * 0.9**60, rel=0, abs=rounding)
    assert told == pytest.approx(way, rel=0, abs=rounding)
    assert again == pytest.approx(0.1 * 0.9**60, rel=0, abs=rounding)
    assert last == pytest.approx(again, rel=0, abs=rounding)
    assert rounding < 1e-3 * again  # which is what the test can see


class Rounded(dict[str, Any]):
    """Engines whose every step of a scalar line is off by ``error`` times a sign, one for each row of a run."""

    def __init__(self, error: float, signs: Callable[[int], list[float]]) -> None:
        super().__init__()
        self.error, self.signs = error, signs

    def __missing__(self, name: str) -> "Rounded":
        return self

    def run(self, part: Recurrence) -> tuple[Tensor, tuple[Tensor]]:
        state, states = part.state[0], []
        off = self.error * torch.tensor(self.signs(part.input.shape[1]), dtype=state.dtype).unsqueeze(1)
        for x in part.input:
            states.append(state := 0.9 * state + x.sum(-1, keepdim=True) + off)
        return torch.stack(states), (state,)


def worst_of_two_passes() -> Callable[[int], list[float]]:
    """Return signs by which the last window and the one before are off in opposite directions, in two passes."""
    passes = iter([[-1.0, -1.0, -1.0], [1.0, -1.0, -1.0]])
    return lambda rows: next(passes, [1.0, 1.0, -1.0]) if rows == 3 else [-1.0] * rows


@pytest.mark.parametrize("seed", [None, *range(40)])
def test_a_part_in_windows_is_within_one_rounding_of_its_bound(seed: int | None) -> None:
    """With sweeps, the pass before may be off in the other direction: of what links windows only the last one counts."""
    draw, error, chunk = random.Random(seed), 1e-3, 40
    inputs = 0.0 if seed is None else 0.01
    x = inputs * torch.tensor([[[draw.uniform(-1, 1)] * 5] for _ in range(3 * chunk)], dtype=torch.float64)
    signs = worst_of_two_passes() if seed is None else lambda rows: [draw.choice([-1.0, 1.0]) for _ in range(rows)]
    engines, layer = Rounded(error, signs), line().double()
    tol = 1e-9 if seed is None else draw.choice([1e-9, 1e-3, 1.0])
    request = Request(tol, chunk, None, "not asked for", linked=True)
    proven = sr.to_parallel(layer, tol, chunk)._proven
    run = layer._recurrence(x, (torch.zeros(1, 1, dtype=torch.float64),), "_l0", None, False, False)
    certificate, bounds = list_ways(run, proven.certificates[0], request)[0]
    bounds = replace(bounds, radius=200.0).with_inputs(bounds.inputs)  # of the true states
    roomy = mock.patch("steadyrnn.parallel.run.plan_windows", return_value=(Windows(0, chunk, 3), False))
    with torch.no_grad(), roomy, mock.patch.multiple("steadyrnn.parallel.run", ENGINES=engines):
        result = run_part(run, "auto", certificate, bounds, proven.sizes[0], request, None)
        least = 2 * chunk if seed is None else draw.choice([1, chunk, 2 * chunk])
        part = Repair(run, "auto", result, certificate, bounds, request, least)
        limit = error / (1 - 0.9)
        start = draw.uniform(-100, 100)
        if seed is None:  # so that both runs agree at the step at which they are compared
            start = (float(result.output[least - 1]) + limit * (1 - 0.9**least)) / 0.9**least
        with mock.patch.multiple("steadyrnn.parallel.repair", ENGINES=engines):
            part.receive((torch.full((1, 1), start, dtype=torch.float64),), math.inf)
    states, state = [], start
    for step in x.sum(-1).flatten().tolist():
        states.append(state := 0.9 * state + step)
    found = max(abs(a - b) for a, b in zip(part.output().flatten().tolist(), states, strict=True))
    bound = part_errors(certificate.best.rate, [Part(1, 0, 0.0, 0.0, 0.0), part.part(0.0)])[1]
    assert found <= bound + limit * (1 + 1e-9)


def test_a_rank_asks_for_windows_that_are_linked() -> None:
    part, _ = repair_of(torch.randn(200, 1, 5, dtype=torch.float64), 1e-3, 20)
    asked = mock.Mock(wraps=run_part)
    given = "auto", part.certificate, sr.to_parallel(line(), 1e-3, 20)._proven.sizes[0], part.request
    with torch.no_grad(), mock.patch("steadyrnn.parallel.layer.run_part", asked):
        run_part_of_layer(lambda: part.run, *given, Line(steps=(200,)))
    assert [call.args[5].linked for call in asked.call_args_list] == [True]


def test_steps_start_from_states_that_are_no_outputs() -> None:
    """Windows start from the end of their warm-ups, whose size counts for what rounding adds in a step."""
    x = torch.ones(100, 1, 5, dtype=torch.float64)
    x[40:] = -1e-9
    part, _ = repair_of(x, 1e3, 20)
    assert part.result.windows is not None
    assert part.largest >= part.result.windows.largest
    part.result.windows.largest = 1e6
    again = Repair(part.run, "auto", part.result, part.certificate, part.bounds, part.request, 0)
    assert again.largest == 1e6


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize(("steps", "chunk", "repeated"), [(200, 7, 0), (200, 7, 150), (200, 7, 200), (31, 3, 9), (9, None, 4)])
def test_what_repeats_from_window_to_window_is_weighed_as_if_listed(
    first: bool, steps: int, chunk: int | None, repeated: int
) -> None:
    part, _ = repair_of(torch.ones(steps, 2, 5, dtype=torch.float64), 1e-1, chunk)
    part.repeated, part.entered = repeated, 11.0
    norms = gradient_norms(part.certificate, 3.0, 3.0, 1.0)
    some, cycle = part.first_contexts(first)
    arrived = torch.rand(steps, 2, dtype=torch.float64)
    listed = part.contexts(first)
    assert part.end_context(first) == float(listed[-1])
    windows = part.result.windows
    k, size = (0, steps) if windows is None else windows.windows[:2]
    for place in range(steps):  # one after another, as the definition has it
        own = math.inf if first else place + 1.0
        if windows is not None and place >= k + (windows.sweeps + 1) * size:
            own = k + windows.sweeps * size + 1.0 + (place - k) % size
        assert float(listed[place]) == (place + 12.0 if place < repeated else own)
    whole = float((Spread(norms, listed).each().unsqueeze(1) * arrived).sum())
    assert Spread(norms, some, cycle).weigh(arrived) == pytest.approx(whole, rel=1e-12)
    assert cycle in (0, size)
    assert len(some) < steps or cycle == 0
