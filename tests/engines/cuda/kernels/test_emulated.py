"""The kernels of the CUDA engine from their own source, on the CPU, against the float64 reference."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from steadyrnn.cells.registry import CELLS
from steadyrnn.engines.base import Engine, Recurrence, Windows
from steadyrnn.engines.cuda.kernels import dense, elman, factored
from steadyrnn.engines.cuda.kernels import windows as window_kernel
from steadyrnn.engines.cuda.loops.windows import FusedWindows, input_part
from steadyrnn.engines.cuda.plan.direct import direct_layout
from steadyrnn.engines.cuda.plan.factored import factored_layout
from steadyrnn.engines.cuda.plan.layouts import Layout, gather_layout, gather_layouts
from steadyrnn.engines.reference import ReferenceEngine
from steadyrnn.linalg.operators import DiagonalLowRank
from tests.engines.cuda.loops.test_dense import LoopEngine
from tests.engines.cuda.loops.test_windows import largest_of, truth
from tests.support.emulated import emulate, is_there
from tests.support.errors import assert_within_budget, errors
from tests.support.gpu import away_from_kinks, compare
from tests.support.memory import poisoned_memory
from tests.support.recurrences import Case, as_dtype, make

pytestmark = pytest.mark.skipif(not is_there(), reason="g++ is not installed, or this is not Linux")

REFERENCE = ReferenceEngine()
RAGGED = (3, 1, 2, 0, 3)
CASES = {  # by rows of a block, on a GPU of one multiprocessor
    1: (Case(steps=3, batch=2, hidden=33), Case(steps=1, batch=1, hidden=1), Case(steps=4, batch=1, hidden=100, reverse=True)),
    2: (Case(steps=3, batch=3, hidden=64), Case(steps=3, batch=4, hidden=97, lengths=RAGGED[:4])),
    4: (Case(steps=3, batch=5, hidden=20, lengths=RAGGED), Case(steps=3, batch=8, hidden=128, bias_ih=False, reverse=True)),
    8: (Case(steps=3, batch=10, hidden=40, lengths=RAGGED * 2, reverse=True), Case(steps=2, batch=17, hidden=70)),
}
EACH = [(rows, case) for rows, cases in CASES.items() for case in cases]


@pytest.fixture(autouse=True)
def _emulated(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    emulate(monkeypatch, 1, elman)
    with poisoned_memory():
        yield


@pytest.mark.parametrize(("rows", "case"), EACH, ids=str)
def test_every_number_of_rows_keeps_to_the_budget(rows: int, case: Case) -> None:
    layout = direct_layout(case.hidden, case.batch, 1)
    assert layout is not None
    assert layout.rows == rows
    compare(LoopEngine(), *(make(CELLS["rnn-tanh"], case, torch.float32, seed) for seed in range(3)))


@pytest.mark.parametrize("name", ["rnn-relu", "rnn-abs", "rnn-sigmoid", "rnn-identity", "rnn-leaky_relu"])
def test_values_of_other_activations(name: str) -> None:
    case = Case(steps=3, batch=5, hidden=20, lengths=RAGGED)
    compare(LoopEngine(), *(make(CELLS[name], case, torch.float32, seed) for seed in range(3)), gradients=False)


def test_16_bit_numbers() -> None:
    case = Case(steps=3, batch=2, hidden=33, lengths=(3, 2))
    compare(LoopEngine(), *(make(CELLS["rnn-tanh"], case, torch.bfloat16, seed) for seed in range(3)))


@pytest.mark.parametrize("which", ["output", "h_n"])
def test_a_gradient_that_did_not_arrive_is_zero(which: str) -> None:
    run = make(CELLS["rnn-tanh"], Case(steps=3, batch=5, hidden=20, lengths=RAGGED), torch.float32)

    def gradients(engine: Engine, run: Recurrence) -> dict[str, Tensor]:
        output, (h_n,) = engine.run(run)
        wanted = {str(place): tensor for place, tensor in enumerate(run.tensors) if tensor is not None}
        found = torch.autograd.grad(((output if which == "output" else h_n) ** 2).sum(), list(wanted.values()))
        return dict(zip(wanted, found, strict=True))

    right, plain = gradients(REFERENCE, as_dtype(run, torch.float64)), gradients(REFERENCE, run)
    assert_within_budget(gradients(LoopEngine(), run), right, errors(plain, right))


def test_nan_stays_in_its_row() -> None:
    run = make(CELLS["rnn-tanh"], Case(steps=3, batch=5, hidden=20), torch.float32)
    with torch.no_grad():
        run.input[1, 2] = torch.nan
        output, _ = LoopEngine().run(run)
    assert output[1:, 2].isnan().all()
    assert not output[:, [0, 1, 3, 4]].isnan().any()


@pytest.mark.parametrize(
    ("name", "case", "processors"),
    [
        ("rnn-tanh", Case(steps=4, batch=3, hidden=129), 132),
        ("rnn-tanh", Case(steps=3, batch=5, hidden=150, lengths=RAGGED, reverse=True), 8),
        ("gru-after", Case(steps=3, batch=2, hidden=20), 132),
        ("gru-after", Case(steps=3, batch=20, hidden=33, lengths=RAGGED * 4), 8),
        ("gru-after", Case(steps=3, batch=5, hidden=129, lengths=RAGGED, reverse=True), 8),
        ("lstm", Case(steps=3, batch=2, hidden=33), 132),
        ("lstm", Case(steps=3, batch=20, hidden=20, lengths=RAGGED * 4, reverse=True), 8),
        ("lstm", Case(steps=4, batch=5, hidden=140, lengths=RAGGED), 8),
    ],
    ids=str,
)
def test_wider_and_gated_layers(name: str, case: Case, processors: int, monkeypatch: pytest.MonkeyPatch) -> None:
    emulate(monkeypatch, processors, elman, dense)
    compare(LoopEngine(), *(make(CELLS[name], case, torch.float32, seed) for seed in range(3)))


@pytest.mark.parametrize(
    ("name", "case", "processors"),
    [
        ("rnn-tanh", Case(steps=3, batch=20, hidden=64), 8),
        ("rnn-tanh", Case(steps=3, batch=5, hidden=300, lengths=RAGGED, reverse=True), 16),
        ("gru-after", Case(steps=3, batch=20, hidden=40, lengths=RAGGED * 4), 8),
        ("gru-after", Case(steps=3, batch=12, hidden=129), 16),
        ("lstm", Case(steps=3, batch=20, hidden=40, lengths=RAGGED * 4, reverse=True), 8),
        ("lstm", Case(steps=3, batch=10, hidden=129, lengths=RAGGED * 2), 8),
    ],
    ids=str,
)
def test_the_tensor_cores(name: str, case: Case, processors: int, monkeypatch: pytest.MonkeyPatch) -> None:
    gates = len(CELLS[name].gates)
    layout = gather_layout(case.hidden, gates, case.batch, processors, narrow=True)
    assert layout is not None
    assert layout.product.source == "tensor_product"
    emulate(monkeypatch, processors, elman, dense)
    compare(LoopEngine(), *(make(CELLS[name], case, torch.bfloat16, seed) for seed in range(3)))


@pytest.mark.parametrize(
    ("name", "hidden", "narrow", "blocks", "sets", "buffers", "posted"),
    [
        ("rnn-tanh", 34, False, 2, 2, 2, False),
        ("rnn-tanh", 34, False, 4, 1, 2, True),
        ("rnn-abs", 33, False, 2, 2, 2, True),
        ("rnn-tanh", 64, True, 2, 2, 2, True),
        ("rnn-tanh", 65, True, 2, 1, 2, True),
        ("gru-after", 34, False, 4, 1, 1, True),
        ("gru-after", 64, True, 2, 2, 2, False),
        ("lstm", 33, False, 2, 2, 1, True),
        ("lstm", 64, True, 2, 1, 1, True),
        ("gru-after", 34, False, 4, 1, 1, False),
    ],
)
def test_every_way_of_messages_and_turns(
    name: str, hidden: int, narrow: bool, blocks: int, sets: int, buffers: int, posted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def chosen(size: int, gates: int, batch: int, processors: int, narrow: bool = False) -> Layout:
        source = "tensor_product" if narrow else "product"
        for one in gather_layouts(size, gates, batch, processors, narrow):
            if one[:1] + one[3:5] == (blocks, buffers, sets) and one.product.source == source and not one.far:
                return one._replace(posted=posted)
        raise AssertionError("no such layout")

    emulate(monkeypatch, 4, elman, dense)
    monkeypatch.setattr(elman, "direct_layout", lambda *_: None)
    monkeypatch.setattr(dense, "gather_layout", chosen)
    case = Case(steps=4, batch=18, hidden=hidden, lengths=(4, 4, 3, 2, 2, 1) * 3)
    compare(LoopEngine(), *(make(CELLS[name], case, torch.bfloat16 if narrow else torch.float32, seed) for seed in range(3)))


@pytest.mark.parametrize("warps_k", [4, 8])
def test_a_weight_indexed_by_64_bits(warps_k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def chosen(size: int, gates: int, batch: int, processors: int, narrow: bool = False) -> Layout:
        layouts = gather_layouts(size, gates, batch, processors, narrow)
        return next(one for one in layouts if one.product.tiles > 1 and one.product.warps_k == warps_k and one.items(1) == 1)

    emulate(monkeypatch, 8, dense)
    monkeypatch.setattr(dense, "gather_layout", chosen)
    compare(
        LoopEngine(),
        *(make(CELLS["lstm"], Case(steps=3, batch=5, hidden=16, lengths=RAGGED), torch.float32, s) for s in range(3)),
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradients_may_begin_anywhere_in_memory(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    emulate(monkeypatch, 8, elman, dense)
    run = make(CELLS["rnn-tanh"], Case(steps=3, batch=5, hidden=150), dtype)
    output = LoopEngine().run(run)[0]
    numbers = torch.randn(output.numel() + 1).to(dtype)[1:].view_as(output)
    assert numbers.data_ptr() % (2 * numbers.itemsize)
    found, right = (torch.autograd.grad(output, run.weight_hh, g, retain_graph=True)[0] for g in (numbers, numbers.clone()))
    assert torch.equal(found, right)


def in_factors(case: Case, rank: int, seed: int, name: str = "rnn-tanh", dtype: torch.dtype = torch.float32) -> Recurrence:
    """Return a run whose weight is in factors of a rank."""
    drawn, n = torch.Generator().manual_seed(seed), case.hidden

    def draw(*shape: int, scale: float) -> Tensor:
        return (scale * torch.randn(*shape, generator=drawn)).to(dtype).requires_grad_()

    weight = DiagonalLowRank(draw(n, scale=0.5), draw(n, rank, scale=rank**-0.5), draw(n, rank, scale=n**-0.5))
    return make(CELLS[name], case, dtype, seed)._replace(weight_hh=weight)


@pytest.mark.parametrize(
    ("blocks", "case", "rank"),
    [
        (1, Case(steps=3, batch=1, hidden=20), 3),
        (1, Case(steps=3, batch=40, hidden=20), 3),  # in three tiles
        (1, Case(steps=70, batch=2, hidden=9), 2),  # sums over time are put aside once
        (1, Case(steps=3, batch=5, hidden=20, lengths=RAGGED, reverse=True), 9),
        (2, Case(steps=4, batch=3, hidden=600), 32),
        (2, Case(steps=3, batch=5, hidden=520, lengths=RAGGED, reverse=True), 17),
        (4, Case(steps=3, batch=1, hidden=1025), 32),
    ],
    ids=str,
)
def test_weights_in_factors(blocks: int, case: Case, rank: int, monkeypatch: pytest.MonkeyPatch) -> None:
    emulate(monkeypatch, blocks, factored)
    assert factored_layout(case.hidden, rank, case.batch, blocks).blocks == blocks
    compare(LoopEngine(), *(in_factors(case, rank, seed) for seed in range(3)))


@pytest.mark.parametrize(
    ("blocks", "case", "rank"),
    [
        (1, Case(steps=4, batch=1, hidden=20), 3),  # reads what the next step needs last
        (1, Case(steps=4, batch=1, hidden=20, lengths=(3,), reverse=True), 9),
        (1, Case(steps=4, batch=3, hidden=20, lengths=RAGGED[:3]), 3),  # first
        (1, Case(steps=4, batch=1, hidden=20), 33),
        (2, Case(steps=3, batch=1, hidden=600), 32),
    ],
    ids=str,
)
def test_weights_in_factors_of_16_bit_numbers(blocks: int, case: Case, rank: int, monkeypatch: pytest.MonkeyPatch) -> None:
    emulate(monkeypatch, blocks, factored)
    assert factored_layout(case.hidden, rank, case.batch, blocks).blocks == blocks
    compare(LoopEngine(), *(in_factors(case, rank, seed, dtype=torch.bfloat16) for seed in range(3)))


def test_weights_in_factors_where_the_argument_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    emulate(monkeypatch, 1, factored)
    case = Case(steps=3, batch=5, hidden=9, lengths=RAGGED, reverse=True)
    compare(LoopEngine(), away_from_kinks(in_factors(case, 2, seed, "rnn-abs") for seed in range(100)))


def test_a_last_state_that_overflows_is_in_no_product_of_the_diagonal(monkeypatch: pytest.MonkeyPatch) -> None:
    emulate(monkeypatch, 1, factored)
    run = in_factors(Case(steps=3, batch=2, hidden=8), 2, 0, "rnn-relu")
    with torch.no_grad():
        run.input[-1, 1] = 3e38
        run.weight_ih.fill_(2.0)
    output, _ = LoopEngine().run(run)
    assert output[-1, 1].isinf().any()
    (grad,) = torch.autograd.grad(output[:, 0].sum(), run.weight_hh.diagonal)
    assert grad.isfinite().all()


@pytest.mark.parametrize("measure", [False, True])
@pytest.mark.parametrize(("size", "batch"), [(20, 1), (33, 3), (128, 2)])
def test_windows_of_time(size: int, batch: int, measure: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    emulate(monkeypatch, 1, window_kernel)
    monkeypatch.setattr(window_kernel, "OnDevice", lambda device: torch.no_grad())
    run, windows = make(CELLS["rnn-tanh"], Case(steps=11, batch=batch, hidden=size), torch.float32), Windows(2, 3, 4)
    cold = torch.cat([run.state[0].detach(), torch.zeros(3 * batch, size)])
    found = FusedWindows(run, input_part(run), windows, measure, keep=False)
    led, end = found.begin(cold)
    exact, plain = truth(run, windows), truth(run, windows, torch.float32)

    def named(parts: tuple[Tensor, ...]) -> dict[str, Tensor]:
        return dict(zip(("output", "led", "end"), parts, strict=True))

    right = named(exact)
    assert_within_budget(named((found.output, led, end)), right, errors(named(plain), right))
    if measure:
        assert float(torch.linalg.vector_norm(exact[0].detach(), dim=-1).max()) <= 1.001 * largest_of(found)
