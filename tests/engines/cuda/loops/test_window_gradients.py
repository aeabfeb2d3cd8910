"""Gradients through windows of time in one kernel: its own source on the CPU, and on a GPU, against plain operations."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

import steadyrnn as sr
from steadyrnn.cells.base import State
from steadyrnn.cells.registry import CELLS
from steadyrnn.cells.rnn import RNNStep
from steadyrnn.certificates.certify import read_layers
from steadyrnn.engines.base import Engine, Recurrence, Windows, stack_gates
from steadyrnn.engines.cuda.kernels import windows as window_kernel
from steadyrnn.engines.cuda.kernels.windows import Way
from steadyrnn.engines.cuda.loops.window_gradients import plain_windows
from steadyrnn.engines.cuda.loops.windows import FusedWindows, input_part, refusal
from steadyrnn.errors import CertificateError
from steadyrnn.parallel import run as parallel
from steadyrnn.parallel.gradients import Masks, detach_run, gradient_norms
from steadyrnn.parallel.run import WindowRun
from tests.engines.cuda.loops.test_windows import truth
from tests.parallel.layers import rnn_of, unit_inputs
from tests.support.emulated import emulate, is_there
from tests.support.errors import assert_within_budget, errors
from tests.support.gpu import KINKED, away_from_kinks, on_gpu
from tests.support.memory import poisoned_memory
from tests.support.recurrences import Case, as_dtype, make, results

EMULATED = pytest.mark.skipif(not is_there(), reason="g++ is not installed, or this is not Linux")
WINDOWS = [  # with the last one whole, or cut off; a lead of none, of one, of more than a window
    (11, Windows(2, 3, 3)),
    (10, Windows(2, 3, 3)),
    (9, Windows(0, 3, 3)),
    (8, Windows(1, 4, 2)),
    (12, Windows(5, 2, 4)),
]


def cold(run: Recurrence, windows: Windows) -> Tensor:
    start = run.state[0]
    return torch.cat([start, start.new_zeros((windows.number - 1) * len(start), start.shape[1])])


class Fused(Engine):
    """The kernel, swept so often; gives outputs and ends."""

    def __init__(self, windows: Windows, sweeps: int = 0) -> None:
        self.windows, self.sweeps = windows, sweeps

    def refusal(self, recurrence: Recurrence) -> str | None:
        return None

    def run(self, recurrence: Recurrence) -> tuple[Tensor, State]:
        rows = recurrence.input.shape[1]
        fused = FusedWindows(recurrence, input_part(recurrence), self.windows, measure=False, keep=True)
        led, end = fused.begin(cold(recurrence, self.windows))
        for _ in range(self.sweeps):
            end = fused.again(torch.cat([led[:rows], end[:-rows]]))
        return fused.output, (end,)


class Plain(Fused):
    """The same by plain operations."""

    def run(self, recurrence: Recurrence) -> tuple[Tensor, State]:
        run, (k, *_), rows = recurrence, self.windows, recurrence.input.shape[1]
        assert isinstance(run.cell, RNNStep)
        gates, weight = input_part(run), stack_gates(run.weight_hh, run.input.dtype)
        output, end = plain_windows(gates, weight, cold(run, self.windows), Way(run.cell, self.windows, 0, k))
        head = output[k - 1] if k else run.state[0]
        for _ in range(self.sweeps):
            later, end = plain_windows(gates, weight, torch.cat([head, end[:-rows]]), Way(run.cell, self.windows, k, 0))
            output = torch.cat([output[:k], later[k:]])
        return output, (end,)


def check(windows: Windows, runs: list[Recurrence], sweeps: int = 0) -> None:
    """Compare the first run with the truth; what plain operations lose in any of them it may lose, too."""
    plain, lost = Plain(windows, sweeps), dict[str, float]()
    for run in runs:
        right = results(plain, as_dtype(run, torch.float64))
        for name, error in errors(results(plain, run), right).items():
            lost[name] = max(error, lost.get(name, 0.0))
    right = results(plain, as_dtype(runs[0], torch.float64))
    assert_within_budget(results(Fused(windows, sweeps), runs[0]), right, lost)


def drawn(name: str, case: Case) -> list[Recurrence]:
    runs = [make(CELLS[name], case, torch.float32, seed) for seed in range(3)]
    return (
        [away_from_kinks(make(CELLS[name], case, torch.float32, seed) for seed in range(200)), *runs]
        if name in KINKED
        else runs
    )


def isometric(case: Case) -> list[Recurrence]:
    """Return linear runs with orthogonal weights, which forget no error."""
    runs = drawn("rnn-identity", case)
    turned = [torch.linalg.qr(run.weight_hh.detach())[0].contiguous() for run in runs]
    return [run._replace(weight_hh=w.requires_grad_()) for run, w in zip(runs, turned, strict=True)]


def scaled(case: Case) -> list[Recurrence]:
    """Return linear runs whose units have scales from 1 to 1000: rows and neighbours of their weights differ by as much."""
    scale = torch.logspace(0, 3, case.hidden)[torch.randperm(case.hidden, generator=torch.Generator().manual_seed(0))]
    return [
        run._replace(
            weight_hh=(scale[:, None] * run.weight_hh.detach() / scale).requires_grad_(),
            weight_ih=(scale[:, None] * run.weight_ih.detach()).requires_grad_(),
        )
        for run in isometric(case)
    ]  # fmt: skip


def second(engine: Engine, run: Recurrence) -> Tensor:
    """Return a gradient of a gradient."""
    output, (end,) = engine.run(run)
    (first,) = torch.autograd.grad(output.square().sum() + end.sum(), run.weight_hh, create_graph=True)
    (found,) = torch.autograd.grad(first.square().sum(), run.weight_ih)
    return found


@pytest.mark.parametrize(("steps", "windows"), WINDOWS, ids=str)
def test_plain_windows_are_the_reference_run_one_by_one(steps: int, windows: Windows) -> None:
    run = make(CELLS["rnn-tanh"], Case(steps=steps, batch=2, hidden=5))
    output, (end,) = Plain(windows).run(run)
    right = truth(run, windows)
    torch.testing.assert_close(output, right[0])
    torch.testing.assert_close(end, right[2])


def test_enough_sweeps_of_plain_windows_are_the_sequential_run() -> None:
    run, windows = make(CELLS["rnn-tanh"], Case(steps=10, batch=2, hidden=5)), Windows(2, 3, 3)
    output, _ = Plain(windows, sweeps=2).run(run)
    torch.testing.assert_close(output, truth(run, Windows(9, 1, 1))[0])


@EMULATED
class TestEmulated:
    @pytest.fixture(autouse=True)
    def _emulated(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        emulate(monkeypatch, 1, window_kernel)
        monkeypatch.setattr(window_kernel, "OnDevice", lambda device: torch.no_grad())
        with poisoned_memory():
            yield

    @pytest.mark.parametrize("sweeps", [0, 2])
    @pytest.mark.parametrize(("steps", "windows"), WINDOWS, ids=str)
    def test_gradients_are_within_the_budget(self, steps: int, windows: Windows, sweeps: int) -> None:
        check(windows, drawn("rnn-tanh", Case(steps=steps, batch=2, hidden=6)), sweeps)

    @pytest.mark.parametrize(
        "case", [Case(7, 1, hidden=1), Case(7, 9, hidden=33), Case(7, 2, hidden=128), Case(7, 3, hidden=17)]
    )
    def test_any_size_and_number_of_rows(self, case: Case) -> None:
        check(Windows(1, 2, 3), drawn("rnn-tanh", case))

    @pytest.mark.parametrize("name", ["rnn-relu", "rnn-leaky_relu", "rnn-sigmoid", "rnn-identity"])
    def test_other_activations(self, name: str) -> None:
        check(Windows(1, 2, 3), drawn(name, Case(6, 2, hidden=5)))

    def test_states_do_not_shrink_by_what_the_matrix_units_cut_off(self) -> None:
        check(Windows(0, 150, 2), isometric(Case(steps=300, batch=1, hidden=48, inputs=1)))

    def test_units_of_any_scale_beside_each_other(self) -> None:
        check(Windows(0, 20, 2), scaled(Case(steps=40, batch=2, hidden=32, inputs=1)))

    def test_without_biases_and_where_gradients_begin_anywhere_in_memory(self) -> None:
        run, windows = drawn("rnn-tanh", Case(7, 2, hidden=4, bias_ih=False, bias_hh=False))[0], Windows(1, 2, 3)
        output, (end,) = Fused(windows).run(run)
        numbers = torch.randn(output.numel() + 1)
        found, right = (
            torch.autograd.grad(engine.run(run)[0], run.weight_hh, g)[0]
            for engine, g in (
                (Fused(windows), numbers[1:].view_as(output)),
                (Plain(windows), numbers[1:].view_as(output).clone()),
            )
        )
        torch.testing.assert_close(found, right)
        (of_ends,) = torch.autograd.grad(end.sum(), run.state[0])  # nothing arrives at outputs
        torch.testing.assert_close(of_ends, torch.autograd.grad(Plain(windows).run(run)[1][0].sum(), run.state[0])[0])

    def test_gradients_of_gradients(self) -> None:
        run, windows = drawn("rnn-tanh", Case(7, 2, hidden=4))[0], Windows(2, 2, 3)
        for sweeps in (0, 1):
            found, right = (second(engine(windows, sweeps), run) for engine in (Fused, Plain))
            torch.testing.assert_close(found, right)

    def test_gradients_for_many_cotangents_at_once(self) -> None:
        run, windows = drawn("rnn-tanh", Case(7, 2, hidden=4))[0], Windows(2, 2, 3)
        many = torch.randn(3, 7, 2, 4)
        found, right = (
            torch.autograd.grad(engine(windows).run(run)[0], run.weight_hh, many, is_grads_batched=True)[0]
            for engine in (Fused, Plain)
        )
        torch.testing.assert_close(found, right)

    @pytest.mark.parametrize("name", ["tanh", "relu"])
    @pytest.mark.parametrize("tol", [1e-5, 0.2])  # which is as good as the rounding, and none
    def test_a_layer_in_windows_has_the_gradient_that_it_promises(
        self, name: str, tol: float, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(parallel, "can_fuse", lambda run, requested: True)
        layer = rnn_of(0.6, name, size=6, dtype=torch.float32)
        fast, x = sr.to_parallel(layer, tol, chunk=20), unit_inputs(70, 2, 5, dtype=torch.float32).requires_grad_()
        wanted = [x, *layer.parameters()]
        found = torch.autograd.grad(fast(x)[0].square().sum(), wanted)
        bound = fast.report.gradient
        right = torch.autograd.grad(layer(x)[0].square().sum(), wanted)
        assert fast.report.layers[0].engine == "cuda"
        assert fast.report.windows > 1
        gap = torch.cat([(a - b).flatten() for a, b in zip(found[1:], right[1:], strict=True)]).norm()
        assert float(gap) <= bound + 1e-5 * float(torch.cat([g.flatten() for g in right[1:]]).norm())
        assert float((found[0] - right[0]).norm()) <= max(tol, 1e-4) * float(right[0].norm())

    @pytest.mark.parametrize("sweeps", [0, 1])
    def test_what_is_proven_of_masks_is_that_of_windows_in_a_batch(self, sweeps: int) -> None:
        torch.manual_seed(0)
        layer, x = rnn_of(0.7, "relu", 5, torch.float32), torch.randn(20, 2, 5).requires_grad_()
        certificate = read_layers(layer)[0]
        run = layer._recurrence(x, (torch.randn(2, 5),), "_l0", None, False, False)
        found = []
        for gates in (input_part(run), None):
            one = WindowRun(run, "auto", Windows(5, 5, 3), certificate.best, 50.0, True, True, None, gates)
            for _ in range(sweeps):
                one.sweep()
            assert (one.fused is None) == (gates is None)
            found.append(Masks(gradient_norms(certificate, 50.0, 50.0, 50.0), detach_run(one), 1e-6, 1e-6).by_window())
        assert len(found[0].unique()) > 5
        torch.testing.assert_close(*found)

    def test_a_bound_from_outputs_that_were_changed_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(parallel, "can_fuse", lambda run, requested: True)
        layer = rnn_of(0.6, "relu", size=6, dtype=torch.float32)
        fast = sr.to_parallel(layer, 1e-3, chunk=20)
        output, _ = fast(unit_inputs(70, 2, 5, dtype=torch.float32))
        output.sum().backward()
        assert fast.report.gradient > 0
        output.detach().zero_()
        with pytest.raises(CertificateError, match="changed in place"):
            _ = fast.report.gradient

    @pytest.mark.parametrize("create_graph", [False, True])
    def test_a_backward_under_autocast_is_not_cast(self, create_graph: bool, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(parallel, "can_fuse", lambda run, requested: True)
        layer = rnn_of(0.6, size=6, dtype=torch.float32)
        fast, x = sr.to_parallel(layer, 1e-6, chunk=20), unit_inputs(70, 2, 5, dtype=torch.float32).requires_grad_()
        wanted = [x, *layer.parameters()]
        right = torch.autograd.grad(fast(x)[0].sum(), wanted)
        loss = fast(x)[0].sum()
        with torch.autocast("cpu", torch.bfloat16):
            found = torch.autograd.grad(loss, wanted, create_graph=create_graph)
        for a, b in zip(found, right, strict=True):
            torch.testing.assert_close(a, b)

    def test_many_cotangents_of_a_layer_in_windows(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(parallel, "can_fuse", lambda run, requested: True)
        layer = rnn_of(0.6, size=6, dtype=torch.float32)
        fast, x = sr.to_parallel(layer, 1e-6, chunk=20), unit_inputs(70, 2, 5, dtype=torch.float32)
        many, weight = torch.randn(3, 70, 2, 6), layer.weight_ih_l0
        found, right = (torch.autograd.grad(run(x)[0], weight, many, is_grads_batched=True)[0] for run in (fast, layer))
        torch.testing.assert_close(found, right, rtol=1e-4, atol=1e-4)
        with pytest.raises(CertificateError, match="many cotangents"):
            _ = fast.report.gradient


@pytest.mark.parametrize(
    ("name", "more", "why"),
    [("rnn-abs", {}, "bends"), ("rnn-tanh", {"recompute": True}, "recompute"), ("lstm", {}, "no kernel for the cell")],
)
def test_what_it_cannot_differentiate_is_refused_with_the_reason(name: str, more: dict[str, bool], why: str) -> None:
    x: Any = SimpleNamespace(device=torch.device("cuda"), dtype=torch.float32)  # all that is asked of it
    zero = torch.zeros(1, 1)
    assert why in (refusal(Recurrence(CELLS[name], x, (zero,), zero, zero, **more), keep=True) or "")


@pytest.mark.gpu
class TestOnGPU:
    @pytest.mark.parametrize("sweeps", [0, 1])
    @pytest.mark.parametrize(
        ("case", "windows"),
        [
            (Case(200, 2, hidden=128), Windows(9, 31, 7)),
            (Case(180, 64, hidden=100), Windows(40, 20, 7)),
            (Case(61, 1, hidden=33), Windows(1, 3, 20)),
            (Case(64, 300, hidden=64), Windows(4, 12, 5)),
        ],
    )
    def test_gradients_are_within_the_budget(self, case: Case, windows: Windows, sweeps: int) -> None:
        with poisoned_memory():
            check(windows, [on_gpu(run) for run in drawn("rnn-tanh", case)], sweeps)

    def test_states_do_not_shrink_by_what_the_matrix_units_cut_off(self) -> None:
        check(Windows(0, 700, 3), [on_gpu(run) for run in isometric(Case(steps=2000, batch=4, hidden=128, inputs=1))])

    def test_units_of_any_scale_beside_each_other(self) -> None:
        check(Windows(0, 20, 20), [on_gpu(run) for run in scaled(Case(steps=400, batch=4, hidden=128, inputs=1))])

    @pytest.mark.parametrize("name", ["rnn-relu", "rnn-leaky_relu", "rnn-sigmoid", "rnn-identity"])
    def test_other_activations(self, name: str) -> None:
        check(Windows(1, 2, 3), [on_gpu(run) for run in drawn(name, Case(6, 2, hidden=5))])

    def test_what_it_cannot_differentiate_is_refused_with_the_reason(self) -> None:
        run = on_gpu(make(CELLS["rnn-abs"], Case(), torch.float32))
        assert "bends" in (refusal(run, keep=True) or "")
        assert refusal(run, keep=False) is None
        recomputing = on_gpu(make(CELLS["rnn-tanh"], Case(recompute=True), torch.float32))
        assert "recompute" in (refusal(recomputing, keep=True) or "")

    @pytest.mark.parametrize("name", ["tanh", "relu", "leaky_relu", "abs"])
    def test_a_layer_in_windows_has_the_gradient_that_it_promises(self, name: str) -> None:
        torch.manual_seed(0)
        layer = sr.RNN(48, 96, nonlinearity=name, transition=sr.SpectralBall(0.7)).cuda()
        fast, x = sr.to_parallel(layer, 1e-6), torch.randn(20000, 3, 48, device="cuda", requires_grad=True)
        wanted = [x, *layer.parameters()]
        found = torch.autograd.grad(fast(x)[0].square().mean(), wanted)
        bound = fast.report.gradient
        exact = sr.RNN(48, 96, nonlinearity=name, transition=sr.SpectralBall(0.7)).double().cuda()
        exact.load_state_dict(layer.state_dict())
        y = x.detach().double().requires_grad_()
        right = torch.autograd.grad(exact(y)[0].square().mean(), [y, *exact.parameters()])
        assert fast.report.windows > 1
        assert fast.report.layers[0].engine == "cuda"
        for a, b in zip(found, right, strict=True):
            assert float((a - b).norm()) <= bound + 1e-4 * float(b.norm())
