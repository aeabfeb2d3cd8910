"""The Triton engine: its kernels in the interpreter, everywhere, and compiled on a GPU, against the float64 reference."""

from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from steadyrnn.activations import Activation
from steadyrnn.cells.registry import CELLS
from steadyrnn.cells.rnn import RNNStep
from steadyrnn.engines.base import Engine, Recurrence
from steadyrnn.engines.reference import ReferenceEngine
from steadyrnn.engines.triton import engine as engine_module
from steadyrnn.engines.triton.engine import TritonEngine, choose_form
from steadyrnn.engines.triton.gradients import DEPTH, WAYS, sum_products
from steadyrnn.engines.triton.specs import spec_of
from tests.support.errors import assert_equal_up_to_rounding, assert_within_budget
from tests.support.gpu import compare, on_gpu
from tests.support.interpreted import InterpretedEngine
from tests.support.memory import poisoned_memory
from tests.support.recurrences import Case, make, results

pytest.importorskip("triton", reason="triton is not installed")
pytestmark = pytest.mark.filterwarnings("ignore:Conversion of an array:DeprecationWarning")  # the interpreter's own

REFERENCE = ReferenceEngine()
TAKEN = [name for name, cell in CELLS.items() if spec_of(cell) is not None]
ELMAN = [name for name in TAKEN if name.startswith("rnn")]
KINKED = [name for name in ELMAN if CELLS[name].activation.smoothness == torch.inf]
SMOOTH = [name for name in TAKEN if name not in KINKED]
STRUCTURES = ("rnn-tanh", "rnn-modrelu", "gru-after", "gru-before", "lstm")
CASES = (
    Case(steps=1, batch=1, hidden=1),
    Case(steps=2, batch=5, hidden=3, bias_ih=False),
    Case(steps=3, batch=3, hidden=17, bias_hh=False, reverse=True),
    Case(steps=4, batch=4, lengths=(4, 2, 3, 0)),
    Case(steps=5, batch=3, lengths=(4, 0, 2), reverse=True, bias_ih=False, bias_hh=False),
    Case(steps=3, batch=2, lengths=(0, 0)),
    Case(steps=0, batch=2),
    Case(steps=3, batch=0),
)
DEEP = Case(steps=2, batch=1, hidden=33, bias_ih=False, bias_hh=False)
RAGGED = CASES[4]
RECOMPUTED = (
    Case(steps=3, batch=2, recompute=True),
    Case(steps=5, batch=2, lengths=(5, 3), reverse=True, recompute=True),
    Case(steps=0, batch=2, recompute=True),
    Case(steps=3, batch=0, recompute=True),
)
FACTORED = (
    Case(steps=1, batch=1, hidden=1, factored=True),
    Case(steps=3, batch=3, hidden=17, factored=True, reverse=True, bias_ih=False),
    Case(steps=4, batch=4, lengths=(4, 2, 3, 0), factored=True),
)


@pytest.fixture(autouse=True)
def _poison() -> Iterator[None]:
    with poisoned_memory():
        yield


@pytest.mark.parametrize("case", [*CASES, DEEP], ids=str)
@pytest.mark.parametrize("name", SMOOTH)
def test_float32_errs_no_more_than_twice_the_reference(name: str, case: Case) -> None:
    compare(InterpretedEngine(), make(CELLS[name], case, torch.float32))


@pytest.mark.parametrize("case", CASES[:4], ids=str)
@pytest.mark.parametrize("name", KINKED)
def test_values_of_kinked_activations_in_float32(name: str, case: Case) -> None:
    compare(InterpretedEngine(), make(CELLS[name], case, torch.float32), gradients=False)


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("name", KINKED)
def test_gradients_of_kinked_activations_in_float64(name: str, case: Case) -> None:
    compare(InterpretedEngine(), make(CELLS[name], case))


@pytest.mark.parametrize("name", SMOOTH)
def test_float64_keeps_its_digits(name: str) -> None:
    compare(InterpretedEngine(), make(CELLS[name], CASES[2]))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", SMOOTH)
def test_16_bit_numbers_are_added_up_in_float32(name: str, dtype: torch.dtype) -> None:
    compare(InterpretedEngine(), make(CELLS[name], RAGGED, dtype))


@pytest.mark.parametrize("case", FACTORED, ids=str)
@pytest.mark.parametrize("name", ["rnn-tanh", "rnn-modrelu"])
def test_factors_are_multiplied_one_after_the_other(name: str, case: Case) -> None:
    compare(InterpretedEngine(), make(CELLS[name], case))


@pytest.mark.parametrize("case", RECOMPUTED, ids=str)
@pytest.mark.parametrize("name", ["rnn-abs", "gru-after", "lstm"])
def test_recomputation_changes_no_number(name: str, case: Case) -> None:
    compare(InterpretedEngine(), make(CELLS[name], case))


@pytest.mark.parametrize("hidden", [3, 16])
@pytest.mark.parametrize("name", STRUCTURES)
def test_a_weight_of_one_block_may_stay_in_registers(name: str, hidden: int) -> None:
    # of modReLU a gate is half of the units, so a block of 16 units goes with one 32 deep
    depth = 32 if name == "rnn-modrelu" else 16
    compare(InterpretedEngine(depth=depth, stay=True), make(CELLS[name], Case(steps=3, hidden=hidden), torch.float64))


@pytest.mark.parametrize("hidden", [64, 200])
def test_many_steps_of_modrelu_in_float64(hidden: int) -> None:
    compare(InterpretedEngine(rows=64, units=64, depth=64), make(CELLS["rnn-modrelu"], Case(steps=50, batch=40, hidden=hidden)))


@pytest.mark.parametrize("rows", [0, 1, DEPTH - 1, 3 * DEPTH + 1, 2 * WAYS * DEPTH + WAYS + 1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_sums_over_time_in_pieces_leave_no_row_out(rows: int, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    whole = torch.randint(-1, 2, (rows, 7), generator=generator).to(dtype)
    left, right = whole[:, :4], whole[:, 4:]  # slots of a history: not contiguous
    assert torch.equal(sum_products(left, right), left.t() @ right)  # of small integers: exact in any order


@pytest.mark.parametrize(
    ("name", "which"),
    [("rnn-tanh", "output"), ("rnn-tanh", "h_n"), ("gru-before", "h_n"), ("lstm", "output"), ("lstm", "h_n"), ("lstm", "c_n")],
)
def test_a_gradient_that_did_not_arrive_is_zero(name: str, which: str) -> None:
    run = make(CELLS[name], Case(lengths=(4, 2, 0), batch=3))
    wanted = [tensor for tensor in run.tensors if tensor is not None]

    def gradients(engine: Engine) -> dict[str, Tensor]:
        output, state = engine.run(run)
        one = {"output": output, "h_n": state[0], "c_n": state[-1]}[which]
        found = torch.autograd.grad((one**2).sum(), wanted, allow_unused=True)
        filled = [torch.zeros_like(t) if g is None else g for g, t in zip(found, wanted, strict=True)]
        return {str(place): grad for place, grad in enumerate(filled)}

    truth = gradients(REFERENCE)
    assert_within_budget(gradients(InterpretedEngine()), truth, dict.fromkeys(truth, 0.0))


@pytest.mark.parametrize("name", STRUCTURES)
def test_nan_stays_in_its_row(name: str) -> None:
    run = make(CELLS[name], Case(steps=3, batch=3, hidden=3))
    with torch.no_grad():
        run.input[1, 1] = torch.nan
    output, _ = InterpretedEngine(rows=4).run(run)
    (grad,) = torch.autograd.grad(output[:, [0, 2]].sum(), run.input)
    assert output[1:, 1].isnan().all()
    assert output[:, [0, 2]].isfinite().all()
    assert output[0].isfinite().all()
    assert grad[:, [0, 2]].isfinite().all()


@pytest.mark.parametrize("name", STRUCTURES)
def test_the_same_run_gives_the_same_bits(name: str) -> None:
    run = make(CELLS[name], Case(steps=2, batch=2), torch.float32)
    first, second = results(InterpretedEngine(), run), results(InterpretedEngine(), run)
    assert all(torch.equal(first[key], second[key]) for key in first)


def test_a_row_does_not_depend_on_its_neighbours_in_the_tile() -> None:
    run = make(CELLS["gru-after"], Case(steps=2, batch=3, hidden=17), torch.float32)
    whole, _ = InterpretedEngine(rows=4).run(run)
    for row in range(3):
        alone, _ = InterpretedEngine(rows=4).run(run._replace(input=run.input[:, [row]], state=(run.state[0][[row]],)))
        assert_equal_up_to_rounding(alone[:, 0], whole[:, row])  # the product before the loop rounds otherwise


def test_memory_in_any_order_gives_the_same() -> None:
    run = make(CELLS["lstm"], Case(steps=2), torch.float32)

    def turned(tensor: Tensor) -> Tensor:
        return tensor.detach().mT.contiguous().mT.requires_grad_()

    odd = run._replace(
        input=turned(run.input), state=tuple(turned(s) for s in run.state), weight_ih=turned(run.weight_ih),
        weight_hh=turned(run.weight_hh),
    )  # fmt: skip
    first, second = results(InterpretedEngine(), run), results(InterpretedEngine(), odd)
    assert_within_budget(second, first, dict.fromkeys(first, 0.0))


def spread(dtype: torch.dtype) -> Tensor:
    """Return 1,024 numbers of all sizes, the limits of the exponential among them, shape (1, 64, 16)."""
    sizes = torch.logspace(-30, 3, 496, dtype=torch.float64)
    edges = torch.tensor([0.0, 0.3465, 0.3466, 87.0, 88.0, 1e4, 1e30, 3e38] * 2, dtype=torch.float64)
    return torch.cat([sizes, edges, -sizes, -edges]).to(dtype).view(1, 64, 16)


@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")  # twice 3e38 is infinite, and its tanh 1
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", ["rnn-tanh", "rnn-sigmoid"])
def test_tanh_and_sigmoid_are_right_to_the_last_digits(name: str, dtype: torch.dtype) -> None:
    x, zero = spread(dtype), torch.zeros(16, 16, dtype=dtype)
    run = Recurrence(CELLS[name], x, (torch.zeros(64, 16, dtype=dtype),), torch.eye(16, dtype=dtype), zero)
    found, _ = InterpretedEngine(rows=64).run(run)
    exact = CELLS[name].activation.value(x.double())
    gap = (found.double() - exact).abs()
    assert (gap <= 4 * torch.finfo(dtype).eps / 2 * exact.abs() + torch.finfo(dtype).tiny * 2).all()


def test_modrelu_without_shifts_is_the_identity_and_keeps_zero() -> None:
    run = make(CELLS["rnn-modrelu"], Case(hidden=4))._replace(theta=None)
    with torch.no_grad():
        run.input[0], run.bias_ih[:], run.bias_hh[:] = 0, 0, 0
    run = run._replace(state=(torch.zeros_like(run.state[0]).requires_grad_(),))
    compare(InterpretedEngine(), run)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", [Case(), Case(recompute=True, bias_hh=False), Case(factored=True)], ids=str)
@pytest.mark.parametrize("name", STRUCTURES)
def test_the_op_keeps_torchs_contract(name: str, case: Case) -> None:
    run, engine = make(CELLS[name], case), InterpretedEngine()
    arguments = (
        run.input, run.weight_ih, list(run.state), engine.weights(run), run.bias_ih, run.bias_hh, run.theta,
        run.batch_sizes, run.cell.key, run.reverse, run.recompute, True,
    )  # fmt: skip
    tests = ("test_schema", "test_autograd_registration", "test_faketensor")
    torch.library.opcheck(engine.registered.op, arguments, test_utils=tests)


@dataclass(frozen=True)
class Cube(Activation):
    name = "cube_of_the_triton_tests"
    slopes, steepness, smoothness = (0.0, torch.inf), (0.0, torch.inf), torch.inf

    def value(self, x: Tensor, theta: Tensor | None = None) -> Tensor:
        return x**3

    def derivative(self, x: Tensor) -> Tensor:
        return 3 * x**2


def stand_in(run: Recurrence, dtype: torch.dtype = torch.float32) -> Recurrence:
    """Return a recurrence that says it lies on a GPU: refusals read no more than that."""
    return run._replace(input=SimpleNamespace(device=torch.device("cuda"), dtype=dtype))


@pytest.fixture
def _capable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "_BUILDS", True)
    monkeypatch.setattr(engine_module, "is_capable", lambda index: True)


def test_the_cells_with_a_kernel_are_all_taken() -> None:
    activations = ("tanh", "relu", "leaky_relu", "abs", "identity", "sigmoid", "modrelu")
    assert {*(f"rnn-{name}" for name in activations), "gru-after", "gru-before", "lstm"} <= set(TAKEN)


@pytest.mark.usefixtures("_capable")
@pytest.mark.parametrize("name", TAKEN)
def test_every_cell_with_a_kernel_is_taken_on_a_gpu_only(name: str) -> None:
    run = make(CELLS[name], Case())
    assert TritonEngine().refusal(run) == "its tensors are on cpu"
    assert TritonEngine().refusal(stand_in(run)) is None


@pytest.mark.usefixtures("_capable")
def test_what_has_no_kernel_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    run = make(CELLS["rnn-tanh"], Case())
    assert "cube_of_the_triton_tests" in (TritonEngine().refusal(stand_in(run)._replace(cell=RNNStep(Cube()))) or "")
    assert TritonEngine().refusal(stand_in(run, torch.complex64)) == "its dtype is torch.complex64"
    monkeypatch.setattr(engine_module, "is_capable", lambda index: False)
    assert "compute capability 8.0" in (TritonEngine().refusal(stand_in(run)) or "")
    monkeypatch.setattr(engine_module, "_BUILDS", False)
    assert TritonEngine().refusal(stand_in(run)) == "triton finds no C compiler, or no header of Python's"
    monkeypatch.setattr(engine_module, "_INSTALLED", False)
    assert TritonEngine().refusal(stand_in(run)) == "triton is not installed"


@pytest.mark.parametrize(("name", "hidden", "count"), [("rnn-tanh", 128, 3), ("rnn-tanh", 7, 1), ("gru-after", 128, 1)])
def test_factors_are_kept_where_they_are_faster(name: str, hidden: int, count: int) -> None:
    run = make(CELLS[name], Case(hidden=hidden, factored=True), torch.float32)
    assert len(choose_form(run.weight_hh, run)) == count


def check_on_gpu(name: str, case: Case, dtype: torch.dtype) -> None:
    """Compare the engine with the reference on a GPU; gradients of kinked activations in float64 only."""
    draws = [on_gpu(make(CELLS[name], case, dtype, seed)) for seed in range(5)]
    compare(TritonEngine(), *draws, gradients=name in SMOOTH or dtype == torch.float64)


@pytest.mark.gpu
@pytest.mark.parametrize("case", [*CASES[:6], DEEP], ids=str)
@pytest.mark.parametrize("name", TAKEN)
def test_small_sizes_on_a_gpu(name: str, case: Case) -> None:
    check_on_gpu(name, case, torch.float32)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("case", [RAGGED, DEEP, *RECOMPUTED[:2], *CASES[-2:]], ids=str)
@pytest.mark.parametrize("name", STRUCTURES)
def test_other_dtypes_on_a_gpu(name: str, case: Case, dtype: torch.dtype) -> None:
    check_on_gpu(name, case, dtype)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("case", [*FACTORED, Case(steps=100, batch=40, hidden=512, factored=True)], ids=str)
@pytest.mark.parametrize("name", ["rnn-tanh", "rnn-modrelu"])
def test_factors_on_a_gpu(name: str, case: Case, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "factored_is_faster", lambda size, rank: True)
    check_on_gpu(name, case, dtype)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("hidden", [64, 128, 512])
@pytest.mark.parametrize("name", TAKEN)
def test_full_sizes_on_a_gpu(name: str, hidden: int, dtype: torch.dtype) -> None:
    run = make(CELLS[name], Case(steps=784, batch=128, hidden=hidden), dtype)
    compare(TritonEngine(), on_gpu(run), gradients=name in SMOOTH)


@pytest.mark.gpu
@pytest.mark.parametrize("hidden", [64, 200])
@pytest.mark.parametrize("name", KINKED)
def test_gradients_of_kinked_activations_on_a_gpu(name: str, hidden: int) -> None:
    compare(TritonEngine(), on_gpu(make(CELLS[name], Case(steps=50, batch=40, hidden=hidden))))


@pytest.mark.gpu
@pytest.mark.parametrize("batch", [1, 500, 700, 1100, 2300])
@pytest.mark.parametrize("name", ["rnn-tanh", "lstm"])
def test_every_height_of_a_tile_on_a_gpu(name: str, batch: int) -> None:
    compare(TritonEngine(), on_gpu(make(CELLS[name], Case(steps=20, batch=batch, hidden=100), torch.float32)))


@pytest.mark.gpu
@pytest.mark.parametrize("name", STRUCTURES)
def test_the_same_run_gives_the_same_bits_on_a_gpu(name: str) -> None:
    run = on_gpu(make(CELLS[name], Case(steps=200, batch=128, hidden=256), torch.float32))
    first, second = results(TritonEngine(), run), results(TritonEngine(), run)
    assert all(torch.equal(first[key], second[key]) for key in first)


@pytest.mark.gpu
def test_more_than_two_billion_numbers_on_a_gpu() -> None:
    steps, batch, hidden = 2**15 + 3, 1024, 64
    x = torch.randn(steps, batch, 1, device="cuda", dtype=torch.bfloat16)
    weight_ih = torch.randn(hidden, 1, device="cuda", dtype=torch.bfloat16)
    zero = torch.zeros(hidden, hidden, device="cuda", dtype=torch.bfloat16)
    start = torch.zeros(batch, hidden, device="cuda", dtype=torch.bfloat16)
    with torch.no_grad():
        output, _ = TritonEngine().run(Recurrence(CELLS["rnn-tanh"], x, (start,), weight_ih, zero))
    for part in (slice(0, 3), slice(-3, None)):
        assert torch.equal(output[part], (x[part] * weight_ih[:, 0]).tanh())
