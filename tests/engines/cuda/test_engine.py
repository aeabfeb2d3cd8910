"""The CUDA engine: what it refuses anywhere, and on a GPU its results against the float64 reference, under all of torch."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from steadyrnn.cells.registry import CELLS
from steadyrnn.engines.base import Engine, Recurrence, flatten_weight, unflatten_weight
from steadyrnn.engines.cuda import engine
from steadyrnn.engines.cuda.engine import OP, CUDAEngine, supports
from steadyrnn.engines.cuda.plan.layouts import gather_layout
from steadyrnn.engines.reference import ReferenceEngine
from steadyrnn.gpu import device as facts
from tests.support.errors import assert_equal_up_to_rounding, assert_within_budget, errors
from tests.support.gpu import KINKED, away_from_kinks, compare, on_gpu
from tests.support.layouts import LAYOUTS, shape_with
from tests.support.memory import poisoned_memory
from tests.support.recurrences import Case, as_dtype, make, results

ENGINE, REFERENCE = CUDAEngine(), ReferenceEngine()
TAKEN = [name for name, cell in CELLS.items() if supports(cell)]
STRUCTURES = ("rnn-tanh", "gru-after", "lstm")
OTHERS = ("rnn-identity", "rnn-sigmoid")  # neither kinked nor among the structures
GATES = {"rnn-tanh": 1, "gru-after": 3, "lstm": 4}
RAGGED = (5, 3, 4, 0)
CASES = (
    Case(steps=1, batch=1, hidden=1),
    Case(steps=7, batch=3, hidden=3, bias_ih=False, bias_hh=False),
    Case(steps=7, batch=3, hidden=17, bias_ih=False),
    Case(steps=5, batch=4, hidden=33, lengths=RAGGED),
    Case(steps=5, batch=4, hidden=100, lengths=RAGGED, reverse=True, bias_hh=False),
    Case(steps=3, batch=2, hidden=100, lengths=(0, 0)),
    Case(steps=20, batch=1, hidden=129),
    Case(steps=5, batch=130, hidden=129, reverse=True),
    Case(steps=5, batch=300, hidden=17, lengths=RAGGED * 75),
    Case(steps=7, batch=4, hidden=300, lengths=(7, 0, 7, 1), reverse=True),
    Case(steps=20, batch=130, hidden=300),
    Case(steps=20, batch=3, hidden=505),
    Case(steps=5, batch=300, hidden=505, lengths=RAGGED * 75, reverse=True),
)
FAR = (
    Case(steps=20, batch=70, hidden=1017),
    Case(steps=5, batch=300, hidden=1024, lengths=RAGGED * 75, reverse=True, bias_hh=False),
    Case(steps=1, batch=300, hidden=1024),
)
SMALL, LARGE = CASES[3], CASES[10]
CAPABLE = (9, 0)


@pytest.fixture(autouse=True)
def _poison() -> Iterator[None]:
    with poisoned_memory():
        yield


def draws(name: str, case: Case, dtype: torch.dtype = torch.float32) -> list[Recurrence]:
    """Return five draws of a small case, one of a large one, on the GPU."""
    number = 5 if case.batch * case.hidden < 2**12 else 1
    return [on_gpu(make(CELLS[name], case, dtype, seed)) for seed in range(number)]


def stand_in(run: Recurrence, dtype: torch.dtype = torch.float32, steps: int = 4, batch: int = 3) -> Recurrence:
    """Return a recurrence that says it lies on a GPU: refusals read no more than that."""
    return run._replace(input=SimpleNamespace(device=torch.device("cuda"), dtype=dtype, shape=(steps, batch, 3)))


@pytest.fixture
def _capable(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(facts, "is_there", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: CAPABLE)
    facts.has_clusters.cache_clear()
    yield
    facts.has_clusters.cache_clear()


def test_every_elementwise_elman_cell_gru_and_lstm_is_taken() -> None:
    assert set(TAKEN) == {*KINKED, *OTHERS, *STRUCTURES}


@pytest.mark.parametrize("name", CELLS)
def test_tensors_that_are_not_on_a_gpu_are_refused(name: str) -> None:
    assert ENGINE.refusal(make(CELLS[name], Case())) == "its tensors are on cpu"


@pytest.mark.usefixtures("_capable")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", TAKEN)
def test_what_there_is_a_kernel_for_is_not_refused(name: str, dtype: torch.dtype) -> None:
    assert ENGINE.refusal(stand_in(make(CELLS[name], Case(hidden=512)), dtype)) is None
    assert ENGINE.refusal(stand_in(make(CELLS[name], Case(lengths=(2, 1, 0), reverse=True)), dtype)) is None


@pytest.mark.usefixtures("_capable")
@pytest.mark.parametrize(
    ("name", "case", "change", "why"),
    [
        ("gru-before", Case(), {}, "there is no kernel for the cell gru:before"),
        ("rnn-modrelu", Case(), {}, "there is no kernel for the cell rnn:modrelu"),
        ("lstm", Case(), {"dtype": torch.float64}, "its dtype is torch.float64"),
        ("lstm", Case(recompute=True), {}, "its kernels keep every state, and recompute was requested"),
        ("lstm", Case(), {"steps": 0}, "there is nothing to run"),
        ("lstm", Case(), {"batch": 0}, "there is nothing to run"),
        ("rnn-tanh", Case(hidden=1025), {}, "a weight of 1 x 1025 x 1025 does not fit"),
        ("gru-after", Case(hidden=513), {}, "a weight of 3 x 513 x 513 does not fit"),
        ("lstm", Case(hidden=513), {}, "a weight of 4 x 513 x 513 does not fit"),
    ],
)
def test_what_has_no_kernel_is_refused_with_the_reason(name: str, case: Case, change: dict[str, Any], why: str) -> None:
    assert (ENGINE.refusal(stand_in(make(CELLS[name], case), **change)) or "").startswith(why)


@pytest.mark.usefixtures("_capable")
def test_a_weight_in_factors_fits_where_the_dense_one_does_not() -> None:
    assert ENGINE.refusal(stand_in(make(CELLS["rnn-tanh"], Case(hidden=2048, factored=True)))) is None


@pytest.mark.usefixtures("_capable")
@pytest.mark.parametrize(("there", "capability"), [(True, (8, 9)), (True, (12, 0)), (False, CAPABLE)])
def test_a_gpu_or_a_torch_that_cannot_is_refused(
    there: bool, capability: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(facts, "is_there", lambda: there)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    refusal = ENGINE.refusal(stand_in(make(CELLS["lstm"], Case())))
    assert refusal == "its kernels need an NVIDIA GPU of compute capability 9.0 and a torch that can compile them"


@pytest.mark.usefixtures("_capable")
def test_what_a_refusal_asks_breaks_no_graph() -> None:
    def ask(x: Tensor) -> Tensor:
        return x + 1 if engine.is_capable(0) and engine.weight_fits(512, 4) and not engine.weight_fits(513, 4) else x

    assert torch.compile(ask, fullgraph=True, backend="eager")(torch.zeros(1)) == 1


@pytest.mark.gpu
@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("name", STRUCTURES)
def test_float32_errs_no_more_than_twice_the_reference(name: str, case: Case) -> None:
    compare(ENGINE, *draws(name, case))


@pytest.mark.gpu
@pytest.mark.parametrize("case", FAR, ids=str)
def test_blocks_that_are_no_cluster_err_no_more_than_twice_the_reference(case: Case) -> None:
    compare(ENGINE, *draws("rnn-tanh", case))


@pytest.mark.gpu
@pytest.mark.parametrize("case", [CASES[1], CASES[4], CASES[10]], ids=str)
@pytest.mark.parametrize("name", [*KINKED, *OTHERS])
def test_values_of_other_activations(name: str, case: Case) -> None:
    compare(ENGINE, *draws(name, case), gradients=name not in KINKED)


@pytest.mark.gpu
def test_values_of_another_activation_far() -> None:
    compare(ENGINE, *draws("rnn-leaky_relu", FAR[0]), gradients=False)


@pytest.mark.gpu
@pytest.mark.parametrize(
    "case",
    [
        Case(steps=1, batch=1, hidden=1),
        Case(steps=7, batch=3, hidden=3, bias_ih=False, bias_hh=False),
        Case(steps=5, batch=4, hidden=100, lengths=RAGGED, reverse=True, bias_hh=False),
        Case(steps=3, batch=3, hidden=300),
    ],
    ids=str,
)
@pytest.mark.parametrize("name", KINKED)
def test_gradients_of_kinked_activations_away_from_kinks(name: str, case: Case) -> None:
    runs = (make(CELLS[name], case, torch.float32, seed) for seed in range(100))
    compare(ENGINE, on_gpu(away_from_kinks(runs)))


@pytest.mark.gpu
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", ["rnn-tanh", "lstm"])
def test_every_kind_of_layout_keeps_to_the_budget(name: str, layout: str) -> None:
    dtype = torch.bfloat16 if layout.startswith("matrix-units") else torch.float32
    shape = shape_with(layout, GATES[name], dtype != torch.float32)
    if shape is None:
        pytest.skip("no recurrence of many gets such a layout")
    compare(ENGINE, *draws(name, Case(steps=3, batch=shape[1], hidden=shape[0]), dtype))


@pytest.mark.gpu
@pytest.mark.parametrize("batch", [1, 131, 300, 600, 1500, 2500])
@pytest.mark.parametrize("hidden", [3, 20, 50, 70, 97, 128])
@pytest.mark.parametrize("name", ["rnn-tanh", "rnn-identity"])
def test_weights_that_one_block_holds_keep_to_the_budget(name: str, hidden: int, batch: int) -> None:
    lengths = tuple(4 - row * 5 // batch for row in range(batch)) if batch % 2 else None  # the last rows have nothing to run
    case = Case(steps=4, batch=batch, hidden=hidden, lengths=lengths, reverse=hidden == 50)
    compare(ENGINE, *draws(name, case))


@pytest.mark.gpu
@pytest.mark.parametrize(("name", "hidden", "batch"), [("rnn-tanh", 1024, 2000), ("lstm", 505, 1000), ("gru-after", 129, 4000)])
def test_more_rows_than_run_at_once_are_run_in_rounds(name: str, hidden: int, batch: int) -> None:
    layout = gather_layout(hidden, GATES[name], batch, 132)
    assert layout is not None
    assert batch > layout.height * layout.at_once(132)
    lengths = tuple(3 - row * 4 // batch for row in range(batch))  # the last rounds have nothing to run
    compare(ENGINE, *draws(name, Case(steps=3, batch=batch, hidden=hidden, lengths=lengths)))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("case", [CASES[2], CASES[4], CASES[8], LARGE], ids=str)
@pytest.mark.parametrize("name", STRUCTURES)
def test_16_bit_numbers_are_added_up_in_float32(name: str, case: Case, dtype: torch.dtype) -> None:
    compare(ENGINE, *draws(name, case, dtype))


@pytest.mark.gpu
@pytest.mark.parametrize("hidden", [128, 512])
def test_a_long_run_with_an_orthogonal_weight_errs_no_more_than_twice_the_reference(hidden: int) -> None:
    run = make(CELLS["rnn-tanh"], Case(steps=784, batch=4, hidden=hidden), torch.float32)
    weight = torch.linalg.qr(run.weight_hh.detach().double())[0].float().requires_grad_()
    compare(ENGINE, on_gpu(run._replace(weight_hh=weight)))


@pytest.mark.gpu
@pytest.mark.parametrize("value", [0.0, 1e-30, 1e-4, 0.3, 0.5999, 0.6001, 1.0, 9.0, 44.0, 88.0, 1e4, 3e38])
@pytest.mark.parametrize("name", ["rnn-tanh", "rnn-sigmoid"])
def test_tanh_and_sigmoid_are_accurate_everywhere_and_saturate(name: str, value: float) -> None:
    x = torch.tensor([value, -value]).view(1, 2, 1).cuda()
    zero, one = torch.zeros(2, 1, device="cuda"), torch.ones(1, 1, device="cuda")
    found, _ = ENGINE.run(Recurrence(CELLS[name], x, (zero,), one, 0 * one))
    exact = CELLS[name].activation.value(x.double())
    assert bool(((found - exact).abs() <= 4 * 2.0**-24 * exact.abs() + torch.finfo(torch.float32).tiny).all())


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("name", "hidden", "batch", "dtype"),
    [
        ("rnn-tanh", 100, 600, torch.float32),  # in one block
        ("rnn-tanh", 300, 130, torch.float32),
        ("rnn-tanh", 1017, 70, torch.float32),  # far
        ("gru-after", 300, 130, torch.float32),
        ("lstm", 505, 300, torch.float32),  # far
        ("lstm", 300, 130, torch.bfloat16),
    ],
    ids=str,
)
def test_the_same_run_gives_the_same_bits(name: str, hidden: int, batch: int, dtype: torch.dtype) -> None:
    run = on_gpu(make(CELLS[name], Case(steps=50, batch=batch, hidden=hidden), dtype))
    first, second = results(ENGINE, run), results(ENGINE, run)
    assert all(torch.equal(first[key], second[key]) for key in first)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("name", "case", "dtype"),
    [
        ("rnn-tanh", CASES[8], torch.float32),
        ("rnn-tanh", FAR[1], torch.float32),
        ("gru-after", LARGE, torch.float32),
        ("gru-after", LARGE, torch.bfloat16),
        ("lstm", CASES[12], torch.float32),
        ("lstm", LARGE, torch.float16),
    ],
    ids=str,
)
def test_nan_stays_in_its_row(name: str, case: Case, dtype: torch.dtype) -> None:
    run = on_gpu(make(CELLS[name], case, dtype))
    others = [row for row in range(case.batch) if row != 1]
    clean = results(ENGINE, run)
    with torch.no_grad():
        run.input[2, 1] = torch.nan
    dirty = results(ENGINE, run)
    assert dirty["output"][2, 1].isnan().all()
    for key in ("output", "gradient of input"):
        assert torch.equal(dirty[key][:, others], clean[key][:, others])
    for key in ("h_n", "c_n", "gradient of h_0", "gradient of c_0"):
        if key in clean:
            assert torch.equal(dirty[key][others], clean[key][others])


@pytest.mark.gpu
@pytest.mark.parametrize("case", [SMALL, CASES[9]], ids=str)
@pytest.mark.parametrize(
    ("name", "which"),
    [(name, which) for name in STRUCTURES for which in ("output", "h_n", "c_n") if which != "c_n" or name == "lstm"],
)
def test_a_gradient_that_did_not_arrive_is_zero(name: str, which: str, case: Case) -> None:
    run = on_gpu(make(CELLS[name], case, torch.float32))

    def gradients(engine: Engine, run: Recurrence) -> dict[str, Tensor]:
        output, state = engine.run(run)
        wanted = {str(place): tensor for place, tensor in enumerate(run.tensors) if tensor is not None}
        one = {"output": output, "h_n": state[0], "c_n": state[-1]}[which]
        found = torch.autograd.grad((one**2).sum(), list(wanted.values()), allow_unused=True)
        pairs = zip(wanted.items(), found, strict=True)
        return {place: torch.zeros_like(tensor) if grad is None else grad for (place, tensor), grad in pairs}

    truth = gradients(REFERENCE, as_dtype(run, torch.float64))
    assert_within_budget(gradients(ENGINE, run), truth, errors(gradients(REFERENCE, run), truth))


@pytest.mark.gpu
@pytest.mark.parametrize("name", STRUCTURES)
def test_layout_of_the_tensors_does_not_matter(name: str) -> None:
    run = on_gpu(make(CELLS[name], SMALL, torch.float32))

    def strided(tensor: Tensor) -> Tensor:
        """Return the same numbers with reversed strides and a hole after each."""
        order = list(range(tensor.dim()))[::-1]
        turned = tensor.detach().permute(order)
        return torch.stack([turned, torch.full_like(turned, torch.nan)], -1)[..., 0].permute(order).requires_grad_()

    odd = run._replace(
        input=strided(run.input), state=tuple(strided(s) for s in run.state), weight_ih=strided(run.weight_ih),
        weight_hh=unflatten_weight([strided(part) for part in flatten_weight(run.weight_hh)]), bias_ih=strided(run.bias_ih),
        bias_hh=strided(run.bias_hh),
    )  # fmt: skip
    for key, value in results(ENGINE, run).items():
        assert_equal_up_to_rounding(results(ENGINE, odd)[key], value)
    for cotangent in (torch.ones(1, 1, 1).cuda().expand(5, 4, 33), torch.ones(33, 4, 5).cuda().permute(2, 1, 0)):
        found, plain = (
            torch.autograd.grad(ENGINE.run(run)[0], run.input, one)[0] for one in (cotangent, cotangent.contiguous())
        )
        assert torch.equal(found, plain)


@pytest.mark.gpu
@pytest.mark.parametrize("name", STRUCTURES)
def test_second_derivatives_come_from_the_reference(name: str) -> None:
    run = on_gpu(make(CELLS[name], SMALL, torch.float32))

    def second(engine: Engine, run: Recurrence) -> dict[str, Tensor]:
        leaves = [run.input, run.weight_ih, *flatten_weight(run.weight_hh)]
        first = torch.autograd.grad((engine.run(run)[0] ** 2).sum(), leaves, create_graph=True)
        found = torch.autograd.grad(sum((grad**2).sum() for grad in first), leaves)
        return {f"{order} {i}": t.detach() for order, ts in ((1, first), (2, found)) for i, t in enumerate(ts)}

    truth = second(REFERENCE, as_dtype(run, torch.float64))
    assert_within_budget(second(ENGINE, run), truth, errors(second(REFERENCE, run), truth))


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", [Case(), SMALL, Case(hidden=129, reverse=True, bias_ih=False)], ids=str)
@pytest.mark.parametrize("name", ["rnn-abs", *STRUCTURES])
def test_the_op_keeps_torchs_contract(name: str, case: Case) -> None:
    run = on_gpu(make(CELLS[name], case, torch.float32))
    arguments = (
        run.input, run.weight_ih, list(run.state), flatten_weight(run.weight_hh), run.bias_ih, run.bias_hh, run.theta,
        run.batch_sizes, run.cell.key, run.reverse, run.recompute, True,
    )  # fmt: skip
    # a ragged stash has parts that nothing writes and nothing reads, which tracing would compare
    traced = () if case.lengths is not None else ("test_aot_dispatch_dynamic",)
    tests = ("test_schema", "test_autograd_registration", "test_faketensor", *traced)
    torch.library.opcheck(OP.op, arguments, test_utils=tests)


@pytest.mark.gpu
@pytest.mark.parametrize("shapes", [((300, 130), (300, 130)), ((1017, 70), (300, 130)), ((1017, 70), (1017, 70))], ids=str)
def test_two_streams_at_once_do_not_disturb_one_another(shapes: tuple[tuple[int, int], ...]) -> None:
    cases = [Case(steps=200, batch=batch, hidden=hidden) for hidden, batch in shapes]
    runs = [on_gpu(make(CELLS["rnn-tanh"], case, torch.float32, seed)) for seed, case in enumerate(cases)]
    alone = [results(ENGINE, run) for run in runs]
    torch.cuda.synchronize()
    found = []
    for run in runs:
        with torch.cuda.stream(torch.cuda.Stream()):
            found.append(results(ENGINE, run))
    torch.cuda.synchronize()
    for ours, right in zip(found, alone, strict=True):
        assert all(torch.equal(ours[key], right[key]) for key in right)
