"""The CUDA kernel for a weight in factors: its layout and what it refuses anywhere, its results on a GPU."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from steadyrnn.cells.base import Cell, State
from steadyrnn.cells.registry import CELLS
from steadyrnn.engines.base import Engine, Recurrence, flatten_weight
from steadyrnn.engines.cuda.loops.factored import (
    FactoredLoop,
    arrange_weight,
    factor_gradients,
    is_faster,
    refusal,
    runs_in_factors,
)
from steadyrnn.engines.cuda.plan.factored import HIGHEST_RANK, WIDEST, factored_layout
from steadyrnn.engines.cuda.plan.layouts import SHARED
from steadyrnn.engines.loop.call import Call, Forward, Gradients, Kernel
from steadyrnn.engines.loop.family import History
from steadyrnn.engines.loop.ops import register, run_op
from steadyrnn.engines.reference import ReferenceEngine
from steadyrnn.linalg.operators import DiagonalLowRank
from tests.support.errors import assert_within_budget, errors
from tests.support.gpu import KINKED, away_from_kinks, on_gpu
from tests.support.memory import poisoned_memory
from tests.support.recurrences import Case, as_dtype, make, results

REFERENCE = ReferenceEngine()
RAGGED = (7, 3, 5, 0)
CASES = (
    (Case(steps=1, batch=1, hidden=1), 1),
    (Case(steps=7, batch=3, hidden=17, bias_ih=False), 5),
    (Case(steps=1, batch=3, hidden=256, reverse=True), 64),
    (Case(steps=20, batch=140, hidden=256), 32),
    (Case(steps=7, batch=4, hidden=300, lengths=RAGGED), 5),
    (Case(steps=7, batch=4, hidden=300, lengths=RAGGED, reverse=True, bias_hh=False), 64),
    (Case(steps=20, batch=1, hidden=512), 32),
    (Case(steps=7, batch=140, hidden=512, reverse=True, bias_ih=False, bias_hh=False), 32),
    (Case(steps=7, batch=140, hidden=512, lengths=RAGGED * 35), 32),
    (Case(steps=7, batch=3, hidden=512), 64),
    (Case(steps=20, batch=140, hidden=700), 32),
    (Case(steps=7, batch=4, hidden=700, lengths=RAGGED, reverse=True), 64),
    (Case(steps=3, batch=2, hidden=700, lengths=(0, 0)), 32),
    (Case(steps=1, batch=1, hidden=1024), 1),
    (Case(steps=7, batch=140, hidden=1024, lengths=RAGGED * 35, reverse=True), 32),
    (Case(steps=20, batch=3, hidden=2048), 5),
    (Case(steps=7, batch=140, hidden=2048, bias_ih=False), 32),
    (Case(steps=7, batch=3, hidden=2048, reverse=True), 64),
    (Case(steps=7, batch=3, hidden=4096), 64),
    (Case(steps=3, batch=1100, hidden=17), 5),  # nine rows per block
    (Case(steps=3, batch=1000, hidden=512), 32),  # eight rows per block
    (Case(steps=3, batch=2200, hidden=512, lengths=(3, 2) * 1100), 32),  # more blocks than run at once
)
IDS = [f"{case}-K{rank}" for case, rank in CASES]


@pytest.fixture(autouse=True)
def _poison() -> Iterator[None]:
    with poisoned_memory():
        yield


class AloneKernel(Kernel):
    """The factored loop and nothing else, whether it is faster or not."""

    def forward(self, call: Call, cell: Cell, recompute: bool, keep: bool) -> Forward:
        return FactoredLoop(call, cell.activation).forward(keep)

    def backward(
        self, call: Call, cell: Cell, recompute: bool, done: Forward, grad_output: Tensor | None,
        grad_state: list[Tensor | None], needs_input: bool,
    ) -> Gradients:  # fmt: skip
        return FactoredLoop(call, cell.activation).backward(done, grad_output, grad_state, needs_input)

    def stash_like(self, call: Call, cell: Cell, recompute: bool) -> Tensor:
        return FactoredLoop(call._replace(sizes=None), cell.activation).stash_like()


OP = register("cuda_factored_alone", "cuda", AloneKernel())


class AloneEngine(Engine):
    """Runs on the GPU what lies anywhere, and leaves results there."""

    name = "factored"

    def refusal(self, recurrence: Recurrence) -> str | None:
        return refusal(recurrence)

    def run(self, recurrence: Recurrence) -> tuple[Tensor, State]:
        return run_op(OP, recurrence, flatten_weight(recurrence.weight_hh))


def recurrence(name: str, case: Case, rank: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Recurrence:
    """Return a recurrence whose weight is a diagonal of about 1/2 and factors of norm about 1."""
    run = make(CELLS[name], Case(**{**vars(case), "factored": True}), dtype, seed)
    random = torch.Generator().manual_seed(seed + 1000)

    def draw(*shape: int, scale: float) -> Tensor:
        normal = torch.randn(*shape, generator=random, dtype=torch.float64)
        return (scale * normal).to(dtype).requires_grad_()

    size = case.hidden
    factors = DiagonalLowRank(draw(size, scale=0.5), draw(size, rank, scale=size**-0.5), draw(size, rank, scale=size**-0.5))
    return run._replace(weight_hh=factors)


def gpu_results(run: Recurrence, gradients: bool = True) -> dict[str, Tensor]:
    """Return the kernel's results, brought back."""
    return {name: tensor.cpu() for name, tensor in results(AloneEngine(), on_gpu(run), gradients=gradients).items()}


def reference_errors(run: Recurrence, truth: dict[str, Tensor], gradients: bool) -> dict[str, float]:
    """Return the errors of the reference in the run's own dtype."""
    return errors(results(REFERENCE, run, gradients=gradients), truth)


def check(run: Recurrence, *others: Recurrence, gradients: bool = True) -> None:
    """Compare the kernel with the reference in float64, under STYLE 6's budget.

    One draw's error is a matter of luck where there are few numbers: the largest is taken, of ``run`` and ``others``.
    """
    truth = results(REFERENCE, as_dtype(run, torch.float64), gradients=gradients)
    allowance = reference_errors(run, truth, gradients)
    for other in others:
        lost = reference_errors(other, results(REFERENCE, as_dtype(other, torch.float64), gradients=gradients), gradients)
        allowance = {key: max(lost[key], allowed) for key, allowed in allowance.items()}
    assert_within_budget(gpu_results(run, gradients), truth, allowance)


def draws(name: str, case: Case, rank: int, dtype: torch.dtype = torch.float32) -> list[Recurrence]:
    """Return five draws of a small case, one of a large one."""
    number = 5 if case.batch * case.hidden < 2**12 else 1
    return [recurrence(name, case, rank, dtype, seed) for seed in range(number)]


@pytest.mark.parametrize("batch", [1, 3, 128, 140, 1024, 5000])
@pytest.mark.parametrize("rank", [1, 5, 8, 9, 32, 33, 64])
@pytest.mark.parametrize("size", [1, 17, 256, 300, 512, 513, 700, 1024, 2048, 4093, 4096])
def test_every_unit_row_and_column_has_a_place_that_fits(size: int, rank: int, batch: int) -> None:
    layout = factored_layout(size, rank, batch, 132)
    assert layout.blocks * layout.units >= size
    assert layout.units % 4 == 0
    assert layout.rank >= rank
    assert layout.rank in (8, 16, 32, 64)
    assert layout.units * layout.rank <= 64 * 256  # registers of a thread for a factor, and threads
    assert 1 <= layout.height <= layout.rows
    assert layout.rows * layout.items <= 16
    assert layout.rows == 1 or layout.rows % 2 == 0
    assert layout.shared <= SHARED


@pytest.mark.parametrize(("size", "blocks"), [(512, 1), (516, 2), (1024, 2), (2048, 4), (4096, 8)])
def test_a_cluster_has_as_few_blocks_as_hold_the_factors(size: int, blocks: int) -> None:
    assert factored_layout(size, 32, 128, 132).blocks == blocks


def test_what_the_kernel_cannot_run_is_refused_with_the_reason() -> None:
    run = recurrence("rnn-tanh", Case(hidden=4), 2)
    none = torch.zeros(4, 0)
    assert refusal(run) is None
    assert "not one matrix in factors" in refusal(run._replace(weight_hh=torch.eye(4)))
    assert "0 columns" in refusal(run._replace(weight_hh=DiagonalLowRank(torch.ones(4), none, none)))
    assert f"{HIGHEST_RANK + 1} columns" in refusal(recurrence("rnn-tanh", Case(hidden=4), HIGHEST_RANK + 1))
    assert f"{WIDEST + 1} units" in refusal(recurrence("rnn-tanh", Case(hidden=WIDEST + 1), 2))
    assert "float64" in refusal(recurrence("rnn-tanh", Case(hidden=4), 2, torch.float64))
    assert "no kernel for the cell" in refusal(recurrence("rnn-modrelu", Case(hidden=4), 2))


def test_factors_are_kept_where_they_are_faster_and_multiplied_out_elsewhere() -> None:
    thin, thick = (recurrence("rnn-tanh", Case(hidden=256), rank, torch.bfloat16) for rank in (8, 65))
    assert runs_in_factors(thin)
    assert [part.shape for part in arrange_weight(thin)] == [(256,), (256, 8), (256, 8)]
    assert not runs_in_factors(thick)
    assert [part.shape for part in arrange_weight(thick)] == [(256, 256)]
    assert not is_faster(255, 8, 3)
    assert is_faster(512, 128, 3)
    assert not is_faster(512, 129, 3)  # half of the flops must go


def test_factors_with_more_digits_than_the_input_are_rounded_to_its() -> None:
    run = recurrence("rnn-tanh", Case(hidden=256), 8)
    run = run._replace(input=run.input.to(torch.bfloat16))
    assert {part.dtype for part in arrange_weight(run)} == {torch.bfloat16}


def test_gradients_of_factors_are_those_of_the_product() -> None:
    random = torch.Generator().manual_seed(0)
    history = History(*(torch.randn(*shape, 7, generator=random) for shape in ((4, 3), (4, 3), (3,), (3,))))
    weight = DiagonalLowRank(*(torch.randn(*shape, generator=random) for shape in ((7,), (7, 2), (7, 2))))

    def by_autograd(dtype: torch.dtype) -> dict[str, Tensor]:
        leaves = DiagonalLowRank(*(part.detach().to(dtype).requires_grad_() for part in weight))
        late, early, first, start = (part.to(dtype) for part in history)
        total = (leaves.apply(early) * late).sum() + (leaves.apply(start) * first).sum()
        return dict(zip(("diagonal", "left", "right"), torch.autograd.grad(total, leaves), strict=True))

    truth = by_autograd(torch.float64)
    along = (history.late * history.early).sum((0, 1))  # which the kernel sums
    found = dict(zip(truth, factor_gradients(weight, history, along), strict=True))
    assert_within_budget(found, truth, errors(by_autograd(torch.float32), truth))


@pytest.mark.gpu
@pytest.mark.parametrize(("case", "rank"), CASES, ids=IDS)
def test_float32_errs_no_more_than_twice_the_reference(case: Case, rank: int) -> None:
    check(*draws("rnn-tanh", case, rank))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize(("case", "rank"), [CASES[1], CASES[5], CASES[8], CASES[11], CASES[14]], ids=str)
def test_16_bit_numbers_are_added_up_in_float32(case: Case, rank: int, dtype: torch.dtype) -> None:
    check(*draws("rnn-tanh", case, rank, dtype))


@pytest.mark.gpu
@pytest.mark.parametrize(("case", "rank"), [CASES[1], CASES[5], CASES[10]], ids=str)
@pytest.mark.parametrize("name", [*KINKED, "rnn-identity", "rnn-sigmoid"])
def test_values_of_other_activations(name: str, case: Case, rank: int) -> None:
    check(*draws(name, case, rank), gradients=name not in KINKED)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("case", "rank"),
    [
        (Case(steps=1, batch=1, hidden=1), 1),
        (Case(steps=5, batch=3, hidden=17), 5),
        (Case(steps=7, batch=4, hidden=300, lengths=RAGGED, reverse=True), 32),
        (Case(steps=3, batch=3, hidden=700, reverse=True), 32),
    ],
    ids=str,
)
@pytest.mark.parametrize("name", KINKED)
def test_gradients_of_kinked_activations_away_from_kinks(name: str, case: Case, rank: int) -> None:
    # there is no float64 on this path
    check(away_from_kinks(recurrence(name, case, rank, seed=seed) for seed in range(100)))


@pytest.mark.gpu
@pytest.mark.parametrize("hidden", [512, 1024])
def test_a_long_run_errs_no_more_than_twice_the_reference(hidden: int) -> None:
    check(recurrence("rnn-tanh", Case(steps=784, batch=4, hidden=hidden), 32))


@pytest.mark.gpu
@pytest.mark.parametrize("which", ["output", "h_n"])
@pytest.mark.parametrize("hidden", [17, 700])
def test_a_gradient_that_did_not_arrive_is_zero(hidden: int, which: str) -> None:
    run = recurrence("rnn-tanh", Case(steps=7, batch=4, hidden=hidden, lengths=RAGGED), 5)

    def gradients(engine: Engine, run: Recurrence) -> dict[str, Tensor]:
        output, state = engine.run(run)
        wanted = {str(place): tensor for place, tensor in enumerate(run.tensors) if tensor is not None}
        one = {"output": output, "h_n": state[0]}[which]
        found = torch.autograd.grad((one**2).sum(), list(wanted.values()), allow_unused=True)
        pairs = zip(wanted.items(), found, strict=True)
        return {name: (torch.zeros_like(tensor) if grad is None else grad).cpu() for (name, tensor), grad in pairs}

    truth = gradients(REFERENCE, as_dtype(run, torch.float64))
    allowance = errors(gradients(REFERENCE, run), truth)
    assert_within_budget(gradients(AloneEngine(), on_gpu(run)), truth, allowance)


@pytest.mark.gpu
@pytest.mark.parametrize(("hidden", "batch"), [(512, 3), (512, 300), (700, 140), (4096, 40)])
def test_the_same_run_gives_the_same_bits(hidden: int, batch: int) -> None:
    run = recurrence("rnn-tanh", Case(steps=50, batch=batch, hidden=hidden), 32)
    first, second = gpu_results(run), gpu_results(run)
    assert all(torch.equal(first[key], second[key]) for key in first)


@pytest.mark.gpu
@pytest.mark.parametrize(("hidden", "batch"), [(17, 300), (700, 140)])
def test_nan_stays_in_its_row(hidden: int, batch: int) -> None:
    run = on_gpu(recurrence("rnn-tanh", Case(steps=3, batch=batch, hidden=hidden), 5))
    others = [row for row in range(batch) if row != 1]
    with torch.no_grad():
        run.input[1, 1] = torch.nan
    output, _ = AloneEngine().run(run)
    (grad,) = torch.autograd.grad(output[:, others].sum(), run.input)
    assert output[1:, 1].isnan().all()
    assert output[:, others].isfinite().all()
    assert output[0].isfinite().all()
    assert grad[:, others].isfinite().all()


@pytest.mark.gpu
def test_factors_in_any_order_of_memory_give_the_same() -> None:
    run = recurrence("rnn-tanh", Case(hidden=17), 5)
    diagonal, left, right = run.weight_hh
    turned = DiagonalLowRank(diagonal, *(part.detach().mT.contiguous().mT.requires_grad_() for part in (left, right)))
    first, second = gpu_results(run), gpu_results(run._replace(weight_hh=turned))
    assert all(torch.equal(first[key], second[key]) for key in first)
