"""The CUDA kernel for windows of time, against the reference loop in float64; there is no interpreter for it."""

import pytest
import torch
from torch import Tensor

import steadyrnn as sr
from steadyrnn.cells.registry import CELLS
from steadyrnn.certificates.rounding import norm_of_square
from steadyrnn.engines.base import Recurrence, Windows
from steadyrnn.engines.cuda.loops import windows as launch
from steadyrnn.engines.reference import ReferenceEngine

pytestmark = pytest.mark.gpu
DEVICE = "cuda"
NAMES = ("rnn-tanh", "rnn-relu", "rnn-leaky_relu", "rnn-abs", "rnn-identity", "rnn-sigmoid")


def recurrence(name: str, steps: int, batch: int, size: int, inputs: int = 3, seed: int = 0, bias: bool = True) -> Recurrence:
    random = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(shape, generator=random).to(DEVICE)

    weight = torch.linalg.qr(draw(size, size))[0] * 0.9
    biases = (0.1 * draw(size), 0.1 * draw(size)) if bias else (None, None)
    return Recurrence(CELLS[name], draw(steps, batch, inputs), (draw(batch, size),), draw(size, inputs), weight, *biases)


def truth(run: Recurrence, windows: Windows, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor]:
    """Return what windows from zero give: the sequence put together, states behind warm-ups, ends."""
    (k, chunk, number), reference = windows, ReferenceEngine()
    run = run._replace(
        input=run.input.to(dtype), state=tuple(s.to(dtype) for s in run.state), weight_ih=run.weight_ih.to(dtype),
        weight_hh=run.weight_hh.to(dtype), bias_ih=None if run.bias_ih is None else run.bias_ih.to(dtype),
        bias_hh=None if run.bias_hh is None else run.bias_hh.to(dtype),
    )  # fmt: skip
    whole, led, ends = [], [], []
    for j in range(number):
        part = run.input[j * chunk : j * chunk + k + chunk]
        state = run.state if j == 0 else tuple(torch.zeros_like(s) for s in run.state)
        output, end = reference.run(run._replace(input=part, state=state))
        whole.append(output if j == 0 else output[k:])
        led.append(output[k - 1] if k else state[0])
        ends.append(end[0])
    return torch.cat(whole), torch.cat(led), torch.cat(ends)


def largest_of(fused: launch.FusedWindows) -> float:
    """Return the bound on the norm of all states that follows from what the kernel computed."""
    return norm_of_square(fused.largest_square(), fused.output.shape[2], torch.float32)


def within_budget(found: Tensor, exact: Tensor, plain: Tensor) -> bool:
    scale = torch.linalg.vector_norm(exact)
    error, allowed = (torch.linalg.vector_norm(t.double() - exact) / scale for t in (found, plain))
    return bool(error <= 2 * max(allowed, torch.tensor(16 * 2.0**-24)))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("steps", "batch", "size", "windows"),
    [(11, 1, 5, Windows(2, 3, 3)), (7, 3, 16, Windows(1, 2, 3)), (9, 2, 1, Windows(0, 3, 3)), (10, 1, 33, Windows(3, 4, 2))],
)
def test_the_kernel_runs_windows_as_the_reference_does(
    name: str, steps: int, batch: int, size: int, windows: Windows, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = recurrence(name, steps, batch, size)
    monkeypatch.setattr(torch, "empty_like", lambda t: torch.full_like(t, torch.nan))  # what is not written shows
    fused = launch.FusedWindows(run, launch.input_part(run), windows, measure=True, keep=False)
    cold = torch.cat([run.state[0], run.state[0].new_zeros((windows.number - 1) * batch, size)])
    led, end = fused.begin(cold)
    exact, plain = truth(run, windows), truth(run, windows, torch.float32)
    for found, right, same in zip((fused.output, led, end), exact, plain, strict=True):
        assert within_budget(found, right, same)
    assert largest_of(fused) >= float(torch.linalg.vector_norm(fused.output, dim=-1).max())


@pytest.mark.parametrize("bias", [True, False])
def test_windows_run_again_from_given_states(bias: bool) -> None:
    run, windows = recurrence("rnn-tanh", 11, 2, 5, bias=bias), Windows(2, 3, 3)
    fused = launch.FusedWindows(run, launch.input_part(run), windows, measure=False, keep=False)
    cold = torch.cat([run.state[0], run.state[0].new_zeros(4, 5)])
    led, end = fused.begin(cold)
    first = fused.output.clone()
    again = fused.again(led)
    assert torch.equal(again, end)
    assert torch.equal(fused.output, first)
    swept = torch.cat([led[:2], end[:-2]])  # window 1 from the true end of window 0
    fused.again(swept)
    exact = ReferenceEngine().run(run)[0]
    assert float((fused.output - exact)[:8].abs().max()) < 1e-5


@pytest.mark.parametrize("value", [0.0, 1e-30, 1e-4, 0.3, 0.6249, 0.6251, 1.0, 9.0, 44.0, 88.0, 1e4, 3e38])
@pytest.mark.parametrize("sign", [-1, 1])
def test_tanh_is_accurate_everywhere_and_saturates(value: float, sign: int) -> None:
    x = torch.full((2, 1, 1), sign * value, device=DEVICE)
    zero, one = torch.zeros(1, 1, device=DEVICE), torch.ones(1, 1, device=DEVICE)
    run = Recurrence(CELLS["rnn-tanh"], x, (zero,), one, zero)
    fused = launch.FusedWindows(run, launch.input_part(run), Windows(0, 1, 2), measure=False, keep=False)
    fused.begin(torch.zeros(2, 1, device=DEVICE))
    exact = x.double().tanh()
    assert float((fused.output - exact).abs().max()) <= 4 * 2.0**-24 * float(exact.abs().max())


def test_padding_units_never_reach_the_result() -> None:
    """Sigmoid of a padding unit is 1/2, which the next product must not see."""
    run, windows = recurrence("rnn-sigmoid", 6, 1, 17), Windows(0, 3, 2)
    fused = launch.FusedWindows(run, launch.input_part(run), windows, measure=True, keep=False)
    fused.begin(torch.cat([run.state[0], torch.zeros(1, 17, device=DEVICE)]))
    assert largest_of(fused) <= 1.001 * float(torch.linalg.vector_norm(truth(run, windows)[0], dim=-1).max())


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({}, "on cpu"),
    ],
)
def test_what_it_cannot_run_is_refused_with_the_reason(change: dict[str, Tensor], why: str) -> None:
    run = recurrence("rnn-tanh", 3, 1, 2)
    run = run._replace(input=run.input.cpu(), **change)
    assert why in (launch.refusal(run, keep=False) or "")


def test_a_state_that_overflows_when_squared_is_bounded_all_the_same() -> None:
    x = torch.full((2, 1, 1), 1e30, device=DEVICE)
    zero, one = torch.zeros(1, 1, device=DEVICE), torch.ones(1, 1, device=DEVICE)
    run = Recurrence(CELLS["rnn-identity"], x, (zero,), one, zero)
    fused = launch.FusedWindows(run, launch.input_part(run), Windows(0, 1, 2), measure=True, keep=False)
    fused.begin(torch.zeros(2, 1, device=DEVICE))
    assert 1e30 <= largest_of(fused) < 1e40


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("steps", "batch", "size"), [(5000, 1, 128), (3001, 3, 64), (2048, 2, 100)])
def test_windows_on_a_gpu_keep_their_promise(name: str, steps: int, batch: int, size: int) -> None:
    torch.manual_seed(0)
    layer = sr.RNN(size, size, nonlinearity=name[4:], transition=sr.SpectralBall(0.9)).cuda()
    fast = sr.to_parallel(layer, 1e-6, chunk=200)
    x = torch.randn(steps, batch, size, device="cuda")
    with torch.no_grad():
        found, state = fast(x)
        exact = sr.RNN(size, size, nonlinearity=name[4:], transition=sr.SpectralBall(0.9)).double().cuda()
        exact.load_state_dict(layer.state_dict())
        right = exact(x.double())[0]
    assert fast.report.layers[0].engine == "cuda"
    assert float((found - right).norm(dim=-1).max()) <= fast.report.truncation + fast.report.rounding
    assert torch.equal(state[0], found[-1])
    assert fast.report.truncation <= 1e-6
