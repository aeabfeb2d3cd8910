"""Products outside of time on the tensor cores: numbers in three parts anywhere, the whole on a GPU."""

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from steadyrnn import LSTM, RNN
from steadyrnn.activations import Tanh
from steadyrnn.cells.registry import CELLS
from steadyrnn.engines.cuda.engine import CUDAEngine
from steadyrnn.engines.cuda.kernels import bf16x3
from steadyrnn.engines.cuda.kernels.bf16x3 import split_bf16x3
from steadyrnn.engines.cuda.loops import input_projection, weight_gradient
from steadyrnn.engines.cuda.loops.dense import GatedLoop, RNNLoop
from steadyrnn.engines.cuda.loops.input_projection import project_input
from steadyrnn.engines.cuda.loops.weight_gradient import is_faster, sum_outer_products
from steadyrnn.engines.loop.call import Call
from tests.support.emulated import emulated_kernel, is_there
from tests.support.gpu import compare, on_gpu
from tests.support.memory import poisoned_memory
from tests.support.recurrences import Case, make

emulated = pytest.mark.skipif(not is_there(), reason="g++ is not installed, or this is not Linux")
SHAPES = [  # rows, columns of each matrix on the left, and on the right
    (1, [8], [8]),
    (5, [3], [2, 1]),
    (1024, [8], [8]),
    (1030, [8, 16], [24, 4]),
    (3000, [7, 5], [9, 1]),
]


@pytest.fixture
def _emulated(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(bf16x3, "kernel", emulated_kernel)
    monkeypatch.setattr(bf16x3, "OnDevice", lambda device: torch.no_grad())
    # what torch has on a GPU only
    monkeypatch.setattr(weight_gradient, "multiply_parts", lambda a, b: torch.bmm(a.float().mT, b.float()))
    monkeypatch.setattr(weight_gradient, "add_product", lambda total, a, b: total.add_(a.float().mT @ b.float()))
    monkeypatch.setattr(input_projection, "multiply", lambda a, b, out: out.copy_(a.float() @ b.float().mT))
    bf16x3.compile_kernel.cache_clear()
    with poisoned_memory():
        yield
    bf16x3.compile_kernel.cache_clear()


def drawn(rows: int, sizes: list[int], seed: int, device: str = "cpu") -> list[Tensor]:
    torch.manual_seed(seed)
    return [torch.randn(rows, size, device=device) + 0.1 for size in sizes]


def error(found: Tensor, left: list[Tensor], right: list[Tensor]) -> float:
    """Return the largest error, as a part of the sum of absolute products."""
    a, b = (torch.cat(side, dim=1).double() for side in (left, right))
    return float(((found.double() - a.mT @ b).abs() / (a.abs().mT @ b.abs())).max())


@emulated
@pytest.mark.usefixtures("_emulated")
@pytest.mark.parametrize("columns", [1, 5, 8])
def test_three_parts_are_a_number_up_to_its_last_bit(columns: int) -> None:
    torch.manual_seed(0)
    x = torch.randn(40, columns) * 10.0 ** torch.randint(-20, 21, (40, columns))
    to = torch.empty(43, 24, dtype=torch.bfloat16)
    split_bf16x3([x], to)
    parts = to.view(43, 3, 8)[:, :, :columns].double()
    assert (parts.sum(1)[:40] - x).abs().le(2.0**-24 * x.abs()).all()
    assert parts[:40, 1].abs().le(2.0**-8 * x.abs()).all()
    assert parts[:40, 2].abs().le(2.0**-16 * x.abs()).all()
    assert (parts[40:] == 0).all()


@emulated
@pytest.mark.usefixtures("_emulated")
def test_parts_of_numbers_at_the_ends_of_the_range() -> None:
    largest = torch.finfo(torch.float32).max
    x = torch.tensor([[largest, -largest, 0.0, -0.0, 1.0, 2.0**-126, torch.inf, torch.nan]])
    to = torch.empty(1, 24, dtype=torch.bfloat16)
    split_bf16x3([x], to)
    total = to.view(3, 8).double().sum(0)
    assert torch.equal(total[:6], x[0, :6].double())
    assert not total[6:].isfinite().any()


@emulated
@pytest.mark.usefixtures("_emulated")
def test_every_nan_stays() -> None:
    bits = [0x7FFFFFFF, -1, 0x7FFF8000, 0x7FC00000, 0x7F800001]  # the first is what a GPU makes of 0 / 0
    x = torch.tensor([bits], dtype=torch.int32).view(torch.float32)
    to = torch.empty(1, 24, dtype=torch.bfloat16)
    split_bf16x3([x], to)
    assert to.view(3, 8)[:, :5].isnan().all()


@emulated
@pytest.mark.usefixtures("_emulated")
def test_no_rows_have_no_sum() -> None:
    assert torch.equal(sum_outer_products([torch.empty(0, 3)], [torch.empty(0, 2)]), torch.zeros(3, 2))


@emulated
@pytest.mark.usefixtures("_emulated")
@pytest.mark.parametrize(("rows", "heights", "widths"), SHAPES, ids=str)
def test_sums_are_as_accurate_as_torchs(rows: int, heights: list[int], widths: list[int]) -> None:
    left, right = drawn(rows, heights, 0), drawn(rows, widths, 1)
    found = sum_outer_products(left, right)
    assert found.shape == (sum(heights), sum(widths))
    assert error(found, left, right) <= max(2 * error(torch.cat(left, 1).mT @ torch.cat(right, 1), left, right), 2.0**-22)


@emulated
@pytest.mark.usefixtures("_emulated")
def test_rows_that_do_not_fit_the_memory_at_once_are_added_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weight_gradient, "_MEMORY", 6 * 24 * 1024 * 2)  # two parts
    left, right = drawn(4500, [16], 0), drawn(4500, [8], 1)
    assert error(sum_outer_products(left, right), left, right) <= 2.0**-22


@emulated
@pytest.mark.usefixtures("_emulated")
def test_columns_of_a_wider_matrix_and_columns_that_lie_apart() -> None:
    wide, turned = drawn(100, [24], 0)[0], drawn(8, [100], 1)[0].mT
    left, right = [wide[:, :8], wide[:, 10:19]], [turned]
    assert error(sum_outer_products(left, right), left, right) <= 2.0**-22


def distance(found: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None) -> float:
    """Return the largest error of a product with the input, as a part of the sum of absolute products."""
    more = torch.zeros(1, device=x.device) if bias is None else bias
    truth = x.double() @ weight.double().mT + more.double()
    return float(((found - truth).abs() / (x.double().abs() @ weight.double().abs().mT + more.double().abs())).max())


@emulated
@pytest.mark.usefixtures("_emulated")
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize(("rows", "columns", "results"), [(1, 1, 1), (30, 8, 16), (7, 33, 20)])
def test_products_with_the_input(rows: int, columns: int, results: int, biased: bool) -> None:
    x, weight, bias = drawn(rows, [columns], 0)[0], drawn(results, [columns], 1)[0], drawn(1, [results], 2)[0][0]
    out = torch.empty(rows, results)
    project_input(x, weight, bias if biased else None, out)
    assert distance(out, x, weight, bias if biased else None) <= 2.0**-22


@emulated
@pytest.mark.usefixtures("_emulated")
def test_inputs_that_do_not_fit_the_memory_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_projection, "_MEMORY", 1000)  # five or six rows
    x, weight, bias = drawn(23, [8], 0)[0], drawn(6, [8], 1)[0], drawn(1, [6], 2)[0][0]
    out = torch.empty(23, 6)
    project_input(x, weight, bias, out)
    assert distance(out, x, weight, bias) <= 2.0**-22


@emulated
@pytest.mark.usefixtures("_emulated")
@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(
    ("cell", "steps", "biases"),
    [(0, 1, (True, True)), (0, 5, (True, False)), (1, 4, (True, True)), (1, 1, (False, True)), (2, 5, (False, False))],
)
def test_a_call_gets_the_products_that_torch_would_give_it(
    cell: int, steps: int, biases: tuple[bool, bool], reverse: bool, ragged: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    gates, hidden, inputs, lengths = (1, 3, 4)[cell], 5, 3, [min(steps, most) for most in (5, 3, 1, 0)]
    sizes = [sum(time < length for length in lengths) for time in range(steps)] if ragged else None
    bias_ih, bias_hh = (torch.randn(gates * hidden) if there else None for there in biases)
    state = [torch.randn(4, hidden)] * (2 if cell == 2 else 1)
    weight_ih, weight = torch.randn(gates * hidden, inputs), torch.randn(gates * hidden, hidden)
    x = torch.randn(4, steps, inputs).transpose(0, 1)
    call = Call(x, state, weight_ih, [weight], bias_ih, bias_hh, None, sizes, reverse)
    family = RNNLoop(call, Tanh()) if cell == 0 else GatedLoop(call, ("", "gru_after", "lstm")[cell])
    runs = (torch.arange(steps).unsqueeze(1) < torch.tensor(lengths if ragged else [steps] * 4)).unsqueeze(2)
    adjoint, states, inner = (runs * torch.randn(steps, 4, wide * hidden) for wide in (gates, 1, 1))

    def compute(ours: bool) -> list[Tensor | None]:
        monkeypatch.setattr(weight_gradient, "is_faster", lambda adjoint, states: ours)
        monkeypatch.setattr(input_projection, "is_faster", lambda x, results: ours)
        grad_x, grad_w, grad_b, grad_hh = family.dense_products(adjoint, states, True, inner if cell == 1 else None)
        return [grad_x, grad_w, grad_b, *grad_hh, family.project(bias_ih, torch.empty(steps, 4, gates * hidden))]

    for ours, plain in zip(compute(True), compute(False), strict=True):
        assert (ours is None) == (plain is None)
        if ours is not None and plain is not None:
            torch.testing.assert_close(ours, plain, atol=1e-5, rtol=1e-5)


def test_it_is_for_the_gpu() -> None:
    assert not is_faster(torch.ones(100, 128, 1024), torch.ones(100, 128, 512))
    assert not input_projection.is_faster(torch.ones(100, 128, 64), 2048)


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("steps", "batch", "size", "gates", "expected"),
    [
        (65, 128, 512, 1, True),
        (65, 128, 256, 4, True),
        (65, 128, 256, 3, False),
        (64, 128, 512, 1, False),
        (1, 9000, 512, 1, False),
    ],
)
def test_it_is_for_many_rows_of_wide_layers(steps: int, batch: int, size: int, gates: int, expected: bool) -> None:
    adjoint, states = (torch.empty(steps, batch, wide, device="cuda") for wide in (gates * size, size))
    assert is_faster(adjoint, states) == expected
    assert not is_faster(adjoint.bfloat16(), states.bfloat16())
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        assert not is_faster(adjoint, states)
    finally:
        torch.backends.cuda.matmul.allow_tf32 = False


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("rows", "heights", "widths"), [*SHAPES, (100352, [512], [512, 64]), (30000, [777], [777, 3])], ids=str
)
def test_sums_are_as_accurate_as_torchs_on_a_gpu(rows: int, heights: list[int], widths: list[int]) -> None:
    left, right = drawn(rows, heights, 0, "cuda"), drawn(rows, widths, 1, "cuda")
    with poisoned_memory():
        found = sum_outer_products(left, right)
        assert torch.equal(found, sum_outer_products(left, right))
    plain = torch.cat(left, 1).mT @ torch.cat(right, 1)
    assert error(found, left, right) <= 2 * max(error(plain, left, right), 2.0**-23)


@pytest.mark.gpu
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize(("rows", "columns", "results"), [(100352, 64, 2048), (9001, 33, 1028), (8192, 256, 1024), (5, 40, 7)])
def test_products_with_the_input_on_a_gpu(rows: int, columns: int, results: int, biased: bool) -> None:
    x, weight = (drawn(number, [columns], number, "cuda")[0] for number in (rows, results))
    bias = drawn(1, [results], 2, "cuda")[0][0] if biased else None
    with poisoned_memory():
        out = x.new_empty(rows, results)
        project_input(x, weight, bias, out)
    plain = torch.nn.functional.linear(x, weight, bias)
    assert distance(out, x, weight, bias) <= 2 * max(distance(plain, x, weight, bias), 2.0**-23)


@pytest.mark.gpu
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize(("name", "hidden"), [("rnn-tanh", 515), ("gru-after", 300), ("lstm", 257)])
def test_gradients_of_many_steps(name: str, hidden: int, ragged: bool, reverse: bool) -> None:
    lengths = tuple(range(1, 71)) * 2 if ragged else None
    case = Case(steps=70, batch=140, inputs=40, hidden=hidden, lengths=lengths, reverse=reverse)
    with poisoned_memory():
        compare(CUDAEngine(), on_gpu(make(CELLS[name], case, torch.float32)))


@pytest.mark.gpu
def test_nan_that_a_gpu_made_reaches_outputs_and_gradients() -> None:
    layer = LSTM(64, 256, engine="cuda", device="cuda")
    x = torch.randn(65, 128, 64, device="cuda")
    x[3, 5, 0] = 0.0
    x[3, 5, 0] /= x[3, 5, 0].clone()
    output = layer(x)[0]
    assert output[3:, 5].isnan().all()
    assert not output[:, :5].isnan().any()
    output.sum().backward()
    assert layer.weight_ih_l0.grad.isnan().any()
    assert layer.weight_hh_l0.grad.isnan().all()
    assert layer.bias_ih_l0.grad.isnan().all()


@pytest.mark.gpu
def test_one_step_of_many_rows() -> None:
    layer = RNN(3, 512, engine="cuda", device="cuda")
    layer(torch.randn(1, 9000, 3, device="cuda"))[0].sum().backward()
    assert layer.weight_hh_l0.grad.eq(0).all()
