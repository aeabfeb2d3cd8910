"""Windows of time on any engine: the same states within the proven bound, and how far a computed step can be off."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from steadyrnn.bounds.gates import box_radius
from steadyrnn.bounds.gru import gru_box, gru_contraction
from steadyrnn.bounds.lstm import lstm_box, lstm_contraction
from steadyrnn.bounds.memory import rounding_error, warmup_error
from steadyrnn.bounds.norms import Contraction, MaxNorm, TwoNorm, spectral_norm_bound
from steadyrnn.cells.registry import CELLS
from steadyrnn.cells.rnn import RNNStep
from steadyrnn.certificates.rounding import largest_norm, local_rounding, sizes_of
from steadyrnn.engines.base import Recurrence, Windows, flatten_weight, lengths_of, unflatten_weight
from steadyrnn.engines.reference import ReferenceEngine
from steadyrnn.errors import ArgumentError, NotFiniteError
from steadyrnn.parallel.plan import choose_fused, choose_windows
from steadyrnn.parallel.run import WindowRun
from tests.support.recurrences import Case, as_dtype, batch_sizes, make

REFERENCE = ReferenceEngine()
RNNS = ("rnn-tanh", "rnn-relu", "rnn-identity")
GATED = ("lstm", "gru-after", "gru-before")


def contracting(name: str, case: Case, rate: float = 0.8, seed: int = 0) -> tuple[Recurrence, Contraction, float]:
    """Return a random recurrence that contracts, its contraction, and a bound on its states, initial ones included."""
    run = make(CELLS[name], case, seed=seed)
    with torch.no_grad():
        if isinstance(run.cell, RNNStep):
            weight = run.weight_hh * (rate / spectral_norm_bound(run.weight_hh) * (1 - 1e-9))
            run = run._replace(weight_hh=weight.requires_grad_())
            return run, Contraction(rate, TwoNorm(case.hidden), "spectral norm"), 1e3
        weight, weight_ih = (0.1 * run.weight_hh).requires_grad_(), (0.3 * run.weight_ih).requires_grad_()
        x = run.input.tanh().requires_grad_()
        state = tuple((0.3 * s.tanh()).requires_grad_() for s in run.state)
        bias = [None if b is None else (0.1 * b).requires_grad_() for b in (run.bias_ih, run.bias_hh)]
        run = run._replace(weight_hh=weight, weight_ih=weight_ih, input=x, state=state, bias_ih=bias[0], bias_hh=bias[1])
    return run, *gated_contraction(run)


def gated_contraction(run: Recurrence) -> tuple[Contraction, float]:
    """Return the contraction of a gated recurrence with entries of the input up to 1, and its radius."""
    biases = [b for b in (run.bias_ih, run.bias_hh) if b is not None]
    if run.cell.key == "lstm":
        box = lstm_box(run.weight_ih, run.weight_hh, sum(biases), 1.0, initial_bound=0.3)
        found = lstm_contraction(run.weight_hh, box)
    else:
        after = run.cell.key == "gru:after"
        box = gru_box(run.weight_ih, run.weight_hh, run.bias_ih, run.bias_hh, 1.0, after, initial_bound=0.3)
        found = gru_contraction(run.weight_hh, box)
    assert isinstance(found.norm, MaxNorm)
    assert found.stable
    return found, box_radius(box, found.norm)


@torch.no_grad()
def error_of(run: WindowRun) -> float:
    """Return the largest error of an output or final h, in the 2-norm."""
    output, state = REFERENCE.run(run.recurrence)
    found = run.output()
    final = run.final()
    gaps = [(found - output).norm(dim=-1).max(), *((a - b).norm(dim=-1).max() for a, b in zip(final, state, strict=True))]
    return float(max(gaps))


@pytest.mark.parametrize("name", RNNS + GATED)
@pytest.mark.parametrize("windows", [(0, 7), (5, 10), (4, 3), (12, 9), (3, 29)], ids=str)
def test_every_state_is_within_the_proven_bound_after_every_sweep(name: str, windows: tuple[int, int]) -> None:
    warmup, chunk = windows
    run, contraction, radius = contracting(name, Case(steps=60, batch=3, hidden=6))
    number = -(-(60 - warmup) // chunk)
    parallel = WindowRun(run, "auto", Windows(warmup, chunk, number), contraction, radius)
    for sweep in range(number):
        assert error_of(parallel) <= parallel.truncation + 1e-13
        assert parallel.depth == warmup + chunk * (1 + sweep)
        if sweep < number - 1:
            parallel.sweep()
    assert parallel.truncation == 0
    assert error_of(parallel) < 1e-14


@given(data=st.data())
def test_rows_of_any_lengths_are_within_the_bound(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(RNNS + GATED))
    lengths = tuple(sorted(data.draw(st.lists(st.integers(0, 40), min_size=1, max_size=5)), reverse=True))
    warmup, chunk = data.draw(st.integers(0, 9)), data.draw(st.integers(1, 15))
    case = Case(steps=41, batch=len(lengths), hidden=4, lengths=lengths)
    run, contraction, radius = contracting(name, case, seed=data.draw(st.integers(0, 99)))
    parallel = WindowRun(run, "auto", Windows(warmup, chunk, -(-(41 - warmup) // chunk)), contraction, radius)
    assert error_of(parallel) <= parallel.truncation + 1e-13
    output = parallel.output()
    ended = torch.arange(41).unsqueeze(1) >= torch.tensor(lengths)
    assert bool((output[ended] == 0).all())
    parallel.sweep()
    assert error_of(parallel) <= parallel.truncation + 1e-13


@pytest.mark.parametrize("name", RNNS + GATED)
def test_a_row_of_length_zero_keeps_its_state(name: str) -> None:
    run, contraction, radius = contracting(name, Case(steps=30, batch=3, hidden=4, lengths=(30, 4, 0)))
    parallel = WindowRun(run, "auto", Windows(2, 7, 4), contraction, radius)
    for state, first in zip(parallel.final(), run.state, strict=True):
        assert torch.equal(state[2], first[2])


def test_rows_that_have_ended_add_nothing_to_the_bound() -> None:
    case = Case(steps=60, batch=2, hidden=4, lengths=(60, 5))
    run, contraction, radius = contracting("rnn-identity", case)
    both = WindowRun(run, "auto", Windows(5, 11, 5), contraction, radius)
    assert float(both.errors[1:, 1].max()) == 0
    assert float(both.errors[1:, 0].min()) > 0


def test_an_error_is_not_carried_into_windows_behind_a_row() -> None:
    """Row 1 ends in window 1: window 2 would start from its error, were the row still running."""
    case = Case(steps=60, batch=2, hidden=4, lengths=(60, 20))
    run, contraction, radius = contracting("rnn-identity", case)
    parallel = WindowRun(run, "auto", Windows(5, 11, 5), contraction, radius)
    assert float(parallel.errors[1, 1]) > 0
    assert float(parallel.latest.errors[2, 1]) > 0
    assert float(parallel.errors[2:, 1].max()) == 0


@pytest.mark.parametrize("name", RNNS + GATED)
@pytest.mark.parametrize("sweeps", [0, 1, 4])
def test_final_states_are_those_of_the_window_a_row_ends_in(name: str, sweeps: int) -> None:
    """In float64 and behind a short warm-up the states of windows differ, so that another window's is not taken for it."""
    lengths = (60, 49, 38, 27, 26, 16, 5, 4, 0)
    run, contraction, radius = contracting(name, Case(steps=60, batch=len(lengths), hidden=6, lengths=lengths))
    parallel = WindowRun(run, "auto", Windows(5, 11, 5), contraction, radius)
    for _ in range(sweeps):
        parallel.sweep()
    output = parallel.output()
    final = parallel.final()
    for row, length in enumerate(lengths):
        assert torch.equal(final[0][row], output[length - 1, row] if length else run.state[0][row])
    if sweeps == 4:  # all windows are exact
        for state, exact in zip(final, REFERENCE.run(run)[1], strict=True):
            assert float((state - exact).detach().abs().max()) < 1e-14


@pytest.mark.parametrize("name", RNNS + GATED)
@pytest.mark.parametrize("sweeps", [0, 1, 2])
def test_gradients_are_those_of_the_truncated_run(name: str, sweeps: int) -> None:
    steps, warmup, chunk = 26, 3, 5
    run, contraction, radius = contracting(name, Case(steps=steps, batch=2, hidden=4))
    parallel = WindowRun(run, "reference", Windows(warmup, chunk, 5), contraction, radius)
    for _ in range(sweeps):
        parallel.sweep()
    cotangent = torch.randn(steps, 2, 4, dtype=torch.float64)
    tensors = [t for t in run.tensors if t is not None]
    found = torch.autograd.grad(parallel.output(), tensors, cotangent)
    outputs = []
    for t in range(steps):  # each output by itself, from zero as many steps earlier as its window saw
        window = 0 if t < warmup else (t - warmup) // chunk
        begin = max(0, (window - sweeps) * chunk)
        state = run.state if begin == 0 else tuple(torch.zeros_like(s) for s in run.state)
        outputs.append(REFERENCE.run(run._replace(input=run.input[begin : t + 1], state=state))[0][-1])
    expected = torch.autograd.grad(torch.stack(outputs), tensors, cotangent)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("name", ["rnn-tanh", "lstm", "gru-after"])
def test_gradients_come_close_to_the_sequential_ones_with_a_long_warm_up(name: str) -> None:
    run, contraction, radius = contracting(name, Case(steps=400, batch=2, hidden=4), rate=0.7)
    parallel = WindowRun(run, "auto", Windows(150, 100, 3), contraction, radius)
    tensors = [t for t in run.tensors if t is not None]
    cotangent = torch.randn(400, 2, 4, dtype=torch.float64)
    found = torch.autograd.grad(parallel.output(), tensors, cotangent)
    truth = torch.autograd.grad(REFERENCE.run(run)[0], tensors, cotangent)
    for a, b in zip(found, truth, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("windows", [Windows(2, 3, 3), Windows(1, 4, 3)], ids=["whole", "cut off"])
def test_gradients_can_be_differentiated_again(windows: Windows) -> None:
    run, contraction, radius = contracting("rnn-tanh", Case(steps=11, batch=1, hidden=2, inputs=1))

    def output(x: Tensor, weight: Tensor, start: Tensor) -> Tensor:
        again = run._replace(input=x, weight_hh=weight, state=(start,))
        return WindowRun(again, "reference", windows, contraction, radius).output()

    tensors = (run.input, run.weight_hh, run.state[0])
    assert torch.autograd.gradcheck(output, tensors)
    assert torch.autograd.gradgradcheck(output, tensors)


@pytest.mark.parametrize("engine", ["reference", "cpu"])
@pytest.mark.parametrize("name", ["rnn-tanh", "lstm"])
def test_the_engine_requested_runs_the_windows(name: str, engine: str) -> None:
    run, contraction, radius = contracting(name, Case(steps=40, batch=2, hidden=4))
    parallel = WindowRun(run, engine, Windows(4, 9, 4), contraction, radius)
    assert parallel.choice is not None
    assert parallel.choice.engine == engine
    assert error_of(parallel) <= parallel.truncation + 1e-13


def test_factored_weights_run_in_windows() -> None:
    run = make(CELLS["rnn-tanh"], Case(steps=50, batch=2, hidden=6, factored=True))
    parts = [part.detach() / 4 for part in flatten_weight(run.weight_hh)]
    run = run._replace(weight_hh=unflatten_weight(parts))
    rate = spectral_norm_bound(run.weight_hh.dense())
    assert rate < 1
    parallel = WindowRun(run, "auto", Windows(5, 9, 5), Contraction(rate, TwoNorm(6), "spectral norm"), 1e3)
    assert error_of(parallel) <= parallel.truncation + 1e-13


@pytest.mark.parametrize("windows", [Windows(4, 9, 3), Windows(4, 9, 5), Windows(0, 40, 1), Windows(40, 9, 2)], ids=str)
def test_windows_that_do_not_cover_the_steps_are_refused(windows: Windows) -> None:
    run, contraction, radius = contracting("rnn-tanh", Case(steps=40, batch=2, hidden=4))
    with pytest.raises(ArgumentError, match="40 steps"):
        WindowRun(run, "auto", windows, contraction, radius)


def test_time_runs_forwards_in_windows() -> None:
    run, contraction, radius = contracting("rnn-tanh", Case(steps=40, batch=2, hidden=4))
    with pytest.raises(ArgumentError, match="forwards"):
        WindowRun(run._replace(reverse=True), "auto", Windows(4, 9, 4), contraction, radius)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_states_that_are_not_finite_are_refused(bad: float) -> None:
    run, contraction, radius = contracting("rnn-tanh", Case(steps=40, batch=2, hidden=4))
    with torch.no_grad():
        x = run.input.clone()
        x[20, 1, 0] = bad
    if math.isinf(bad):
        run = run._replace(weight_ih=torch.zeros_like(run.weight_ih))  # 0 times infinity
    with pytest.raises(NotFiniteError, match="`input`"):
        _ = WindowRun(run._replace(input=x), "auto", Windows(4, 9, 4), contraction, radius).truncation


# the figures of Note [mathematics], sections 7.1 and 7.2


def stable_lstm(forget: float, d: int, seed: int) -> Recurrence:
    """Return an LSTM with row sums at the edge of the printed test (section 7.1), inputs of entries up to 1."""
    generator = torch.Generator().manual_seed(seed)
    draw = lambda *s: torch.randn(*s, generator=generator, dtype=torch.float64)  # noqa: E731
    rows = {"i": 1 - forget, "f": (1 - forget) ** 2, "g": (1 - forget) / 4, "o": 1 - forget}
    parts = [draw(d, d) for _ in rows]
    parts = [p * (0.99 * s / p.abs().sum(1, keepdim=True)) for p, s in zip(parts, rows.values(), strict=True)]
    weight_ih = 0.3 * draw(4 * d, d) / d
    bias = torch.zeros(4 * d, dtype=torch.float64)
    reach = parts[1].abs().sum(1) + weight_ih[d : 2 * d].abs().sum(1)
    bias[d : 2 * d] = math.log(forget / (1 - forget)) - reach
    x = 2 * torch.rand(600, 1, d, generator=generator, dtype=torch.float64) - 1
    zero = torch.zeros(1, d, dtype=torch.float64)
    return Recurrence(CELLS["lstm"], x, (zero, zero), weight_ih, torch.cat(parts), bias)


@pytest.mark.parametrize(("forget", "warmup"), [(0.64, 40), (0.90, 100)])
def test_an_lstm_on_the_edge_of_its_test_runs_in_windows(forget: float, warmup: int) -> None:
    run = stable_lstm(forget, 8, seed=1)
    box = lstm_box(run.weight_ih, run.weight_hh, run.bias_ih, 1.0)
    found = lstm_contraction(run.weight_hh, box)
    assert found.rate < 1
    windows = Windows(warmup, 100, -(-(600 - warmup) // 100))
    parallel = WindowRun(run, "auto", windows, found, box_radius(box, found.norm))
    error, prior = error_of(parallel), warmup_error(found.rate, box_radius(box, found.norm), warmup) / found.norm.lower
    assert error <= parallel.truncation + 1e-14
    assert parallel.truncation < prior


@pytest.mark.parametrize("after", [True, False])
def test_a_gru_with_small_rows_runs_in_windows(after: bool) -> None:
    generator = torch.Generator().manual_seed(2)
    d = 8
    weight = torch.randn(3 * d, d, generator=generator, dtype=torch.float64)
    weight = weight * (0.3 / weight.abs().sum(1, keepdim=True))
    weight_ih = 0.5 * torch.randn(3 * d, d, generator=generator, dtype=torch.float64) / d
    x = 2 * torch.rand(600, 1, d, generator=generator, dtype=torch.float64) - 1
    cell = CELLS["gru-after" if after else "gru-before"]
    run = Recurrence(cell, x, (torch.zeros(1, d, dtype=torch.float64),), weight_ih, weight)
    box = gru_box(weight_ih, weight, None, None, 1.0, after)
    found = gru_contraction(weight, box)
    assert found.rate < 1
    parallel = WindowRun(run, "auto", Windows(40, 70, 8), found, box_radius(box, found.norm))
    assert error_of(parallel) <= parallel.truncation + 1e-14
    assert parallel.truncation < 1e-3 * warmup_error(found.rate, box_radius(box, found.norm), 40) / found.norm.lower


# windows


@given(
    steps=st.integers(0, 5000), rows=st.integers(0, 40), warmup=st.integers(0, 900), cost=st.floats(1e-4, 10.0),
    chunk=st.none() | st.integers(1, 600), gamble=st.booleans(), likely=st.none() | st.integers(1, 900),
    lanes=st.sampled_from([1, 132]),
)  # fmt: skip
def test_windows_cover_every_step_once(
    steps: int, rows: int, warmup: int, cost: float, chunk: int | None, gamble: bool, likely: int | None, lanes: int
) -> None:
    k, length, number = choose_windows(steps, rows, warmup, cost, chunk, gamble, likely=likely, lanes=lanes).windows
    assert number >= 1
    if number == 1:
        assert (k, length) == (0, steps)
        return
    assert k + (number - 1) * length < steps <= k + number * length
    if chunk is None:
        assert k + number * length == steps
        least = -(-warmup // 4) if likely is None else min(likely, -(-warmup // 4))
        assert k >= (least if gamble else warmup)
    else:
        assert length == chunk
        assert k == warmup or gamble


def test_long_sequences_of_few_rows_get_windows_and_short_ones_of_many_rows_do_not() -> None:
    assert choose_windows(10**6, 1, 155, 0.01).windows.number > 100
    assert choose_windows(10**6, 1, 155, 0.01).windows.depth(0) < 10**4
    assert choose_windows(200, 64, 155, 1.0).windows.number == 1
    assert choose_windows(3000, 1, 155, 0.01).windows.number > 1
    assert choose_windows(3000, 1, 155, 0.01, setup=4096).windows.number == 1


def test_lengths_are_read_off_the_rows_that_run() -> None:
    run = make(CELLS["rnn-tanh"], Case(steps=9, batch=5, lengths=(9, 7, 7, 1, 0)))
    assert lengths_of(run).tolist() == [9, 7, 7, 1, 0]
    assert lengths_of(run._replace(batch_sizes=None)) is None
    assert lengths_of(run._replace(batch_sizes=batch_sizes((0, 0, 0, 0, 0), 9))).tolist() == [0] * 5


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_the_largest_norm_is_never_below_the_true_one(dtype: torch.dtype) -> None:
    for scale in (1e-30, 1.0, 1e30):
        x = (scale * torch.randn(50, 3, 17)).to(dtype)
        truth = float(x.double().norm(dim=-1).max())
        assert truth <= largest_norm(x) <= 5 * truth + 1e-18  # sqrt(17) where squares overflow; and they vanish
    assert largest_norm(torch.empty(0, 3)) == 0
    assert math.isnan(largest_norm(torch.tensor([[math.nan, 1.0]])))


# rounding


def one_step(run: Recurrence) -> Tensor:
    """Return the state behind one step, as one vector per row, in float64."""
    return torch.cat([s.detach().double() for s in REFERENCE.run(run)[1]], dim=-1)


@pytest.mark.parametrize("name", [*RNNS, "rnn-sigmoid", "rnn-abs", "rnn-leaky_relu", *GATED])
@pytest.mark.parametrize("hidden", [1, 5, 64])
@pytest.mark.parametrize("factored", [False, True])
def test_a_computed_step_is_within_the_bound_of_the_exact_one(name: str, hidden: int, factored: bool) -> None:
    exact = make(CELLS[name], Case(steps=1, batch=40, hidden=hidden, inputs=7, factored=factored))
    short = as_dtype(exact, torch.float32)
    exact = as_dtype(short, torch.float64)  # the same numbers, with more digits to compute in
    error = float((one_step(short) - one_step(exact)).norm(dim=-1).max())
    truth = REFERENCE.run(exact)[1][0].detach()
    sizes, norms = sizes_of(short), [float(t.detach().norm(dim=-1).max()) for t in (exact.state[0], exact.input)]
    reached = max(norms[0], float(truth.norm(dim=-1).max()))
    cell = float(exact.state[-1].detach().abs().max())
    bound = local_rounding(short, sizes, reached, norms[1], cell)
    assert 0 < error <= bound
    assert bound < 0.1  # far from tight: norms stand for entries


def test_a_long_float32_run_is_within_its_rounding_of_the_exact_one() -> None:
    run, contraction, _ = contracting("rnn-tanh", Case(steps=4096, batch=1, hidden=64), rate=0.9)
    short = as_dtype(run, torch.float32)
    exact = as_dtype(short, torch.float64)
    truth, output = REFERENCE.run(exact)[0].detach(), REFERENCE.run(short)[0].detach()
    reached, inputs = float(truth.norm(dim=-1).max()), float(exact.input.detach().norm(dim=-1).max())
    rate = contraction.rate * (1 + 1e-6)  # the weight was rounded
    bound = rounding_error(rate, local_rounding(short, sizes_of(short), reached, inputs))
    parallel = WindowRun(short, "auto", Windows(155, 500, 8), Contraction(rate, TwoNorm(64), ""), math.sqrt(64))
    chunked = parallel.output().detach().double()
    gaps = [
        float((a.double() - b.double()).norm(dim=-1).max()) for a, b in ((output, truth), (chunked, truth), (chunked, output))
    ]
    floor = 2.0**-24 * reached / (1 - rate)
    assert max(gaps) <= min(floor, bound)
    assert bound >= floor


def test_rounding_proves_nothing_with_too_few_digits() -> None:
    run = as_dtype(make(CELLS["rnn-tanh"], Case(steps=1, batch=1, hidden=300)), torch.bfloat16)
    assert local_rounding(run, sizes_of(run), 1.0, 1.0) == math.inf


def test_rounding_grows_where_products_may_be_shortened() -> None:
    run = as_dtype(make(CELLS["rnn-tanh"], Case(steps=1, batch=1, hidden=4)), torch.float32)
    full = local_rounding(run, sizes_of(run), 1.0, 1.0)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        assert local_rounding(run, sizes_of(run), 1.0, 1.0) > 100 * full
    finally:
        torch.set_float32_matmul_precision(before)


@given(
    steps=st.integers(2, 5000),
    rows=st.integers(1, 9),
    warmup=st.integers(0, 3000),
    lanes=st.integers(1, 300),
    chunk=st.none() | st.integers(1, 400),
    gamble=st.booleans(),
    likely=st.none() | st.integers(1, 200),
    sparing=st.booleans(),
)
def test_windows_for_a_kernel_end_with_the_last_step(
    steps: int, rows: int, warmup: int, lanes: int, chunk: int | None, gamble: bool, likely: int | None, sparing: bool
) -> None:
    (k, length, number), cost = choose_fused(steps, rows, warmup, lanes, 2.0, chunk, gamble, likely=likely, sparing=sparing)
    if number == 1:
        assert math.isinf(cost)
        return
    assert k + (number - 1) * length < steps <= k + number * length
    assert k == warmup or (gamble and k == likely)
    assert length == chunk if chunk is not None else length >= k or not sparing


def test_a_kernel_is_filled_with_windows() -> None:
    assert choose_fused(10**6, 8, 25, 2112, 7.3).windows.number * 8 % 2112 == 0
    assert 2100 < choose_fused(10**6, 1, 155, 2112, 7.3).windows.number <= 2112
