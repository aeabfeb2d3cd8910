"""Gradients of engines in every way torch can ask for them, and in every order of calls."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from steadyrnn.cells.registry import CELLS
from steadyrnn.cells.rnn import RNNStep
from steadyrnn.engines.base import Recurrence, flatten_weight, unflatten_weight
from steadyrnn.engines.loop.segments import segment_count
from steadyrnn.engines.reference import ReferenceEngine
from steadyrnn.engines.select import ENGINES
from steadyrnn.linalg.operators import DiagonalLowRank
from tests.support.errors import assert_equal_up_to_rounding
from tests.support.recurrences import CPU_CELLS, Case, make, results

CPU, REFERENCE = ENGINES["cpu"], ReferenceEngine()
BOTH = {name: ENGINES[name] for name in ("cpu", "reference")}
SMALL = Case(steps=3, batch=2, inputs=2, hidden=2)
CHECKED = [SMALL, Case(3, 2, 2, 2, (3, 1), reverse=True), Case(3, 2, 2, 2, recompute=True)]


def with_tensors(run: Recurrence, tensors: list[Tensor]) -> Recurrence:
    """Return ``run`` on other tensors, in the order of ``run.tensors`` less those that are None."""
    rest = iter(tensors)
    x, state = next(rest), tuple(next(rest) for _ in run.state)
    weight_ih = next(rest)
    weight_hh = unflatten_weight([next(rest) for _ in flatten_weight(run.weight_hh)])
    bias_ih, bias_hh, theta = (None if t is None else next(rest) for t in (run.bias_ih, run.bias_hh, run.theta))
    return run._replace(
        input=x, state=state, weight_ih=weight_ih, weight_hh=weight_hh, bias_ih=bias_ih, bias_hh=bias_hh, theta=theta
    )


def leaves(run: Recurrence) -> list[Tensor]:
    return [t for t in run.tensors if t is not None]


@pytest.fixture
def _factored_is_always_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("steadyrnn.engines.cpu.engine.factored_is_faster", lambda size, rank, rows: True)


def outcome_of(run: Recurrence) -> Callable[..., tuple[Tensor, ...]]:
    """Return the run as a function of its tensors."""

    def function(*tensors: Tensor) -> tuple[Tensor, ...]:
        output, state = CPU.run(with_tensors(run, list(tensors)))
        return output, *state

    return function


@pytest.mark.parametrize("case", CHECKED, ids=str)
@pytest.mark.parametrize("name", CPU_CELLS)
def test_gradients_are_those_of_finite_differences(name: str, case: Case) -> None:
    run = make(CELLS[name], case)
    assert torch.autograd.gradcheck(outcome_of(run), leaves(run), fast_mode=True)


@pytest.mark.parametrize("case", CHECKED, ids=str)
@pytest.mark.parametrize("name", CPU_CELLS)
def test_second_derivatives_are_those_of_finite_differences(name: str, case: Case) -> None:
    run = make(CELLS[name], case)
    assert torch.autograd.gradgradcheck(outcome_of(run), leaves(run), fast_mode=True)


@pytest.mark.usefixtures("_factored_is_always_faster")
@pytest.mark.parametrize("name", ["rnn-tanh", "gru-after", "gru-before", "lstm"])
def test_factored_second_derivatives_are_those_of_finite_differences(name: str) -> None:
    run = make(CELLS[name], Case(3, 2, 2, 3, factored=True))

    def function(*tensors: Tensor) -> Tensor:
        return CPU.run(with_tensors(run, list(tensors)))[0]

    assert torch.autograd.gradcheck(function, leaves(run), fast_mode=True)
    assert torch.autograd.gradgradcheck(function, leaves(run), fast_mode=True)


@pytest.mark.parametrize("name", CPU_CELLS)
def test_gradient_kept_for_a_second_derivative_is_the_plain_one(name: str) -> None:
    run = make(CELLS[name], SMALL)
    plain = torch.autograd.grad(CPU.run(run)[0].sum(), leaves(run), allow_unused=True)
    kept = torch.autograd.grad(CPU.run(run)[0].sum(), leaves(run), create_graph=True, allow_unused=True)
    for a, b in zip(plain, kept, strict=True):
        assert_equal_up_to_rounding(b.detach(), a)


@pytest.mark.parametrize("name", CPU_CELLS)
def test_chunks_that_share_weights_count_them_once_in_a_kept_gradient(name: str) -> None:
    run = make(CELLS[name], SMALL)

    def chained(keep: bool) -> list[Tensor]:
        _, state = CPU.run(run)
        output, _ = CPU.run(run._replace(state=state))
        return list(torch.autograd.grad(output.sum(), leaves(run), create_graph=keep, allow_unused=True))

    for kept, plain in zip(chained(True), chained(False), strict=True):
        assert_equal_up_to_rounding(kept.detach(), plain, operations=SMALL.steps)


@pytest.mark.usefixtures("_factored_is_always_faster")
def test_factors_made_from_one_another_are_counted_once_in_a_kept_gradient() -> None:
    run = make(CELLS["rnn-tanh"], SMALL)
    diagonal = torch.randn(2, dtype=torch.float64, requires_grad=True)
    weight = DiagonalLowRank(diagonal, diagonal.unsqueeze(1) * 2, diagonal.unsqueeze(1).cos())

    def gradient(keep: bool) -> Tensor:
        output, _ = CPU.run(run._replace(weight_hh=weight))
        return torch.autograd.grad(output.sum(), diagonal, create_graph=keep)[0].detach()

    assert_equal_up_to_rounding(gradient(True), gradient(False), operations=SMALL.steps)


@pytest.mark.parametrize("name", CPU_CELLS)
def test_third_derivative_is_the_references(name: str) -> None:
    run = make(CELLS[name], SMALL)

    def third(engine: Any) -> Tensor:
        x, value = run.input, (engine.run(run)[0] ** 2).sum()
        for _ in range(2):
            (grad,) = torch.autograd.grad(value, x, create_graph=True)
            value = (grad**2).sum()
        return torch.autograd.grad(value, x)[0]

    assert_equal_up_to_rounding(third(CPU), third(REFERENCE), operations=SMALL.steps)


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("name", CPU_CELLS)
def test_two_forwards_before_one_backward_are_right(name: str, recompute: bool) -> None:
    case = Case(recompute=recompute)
    first, second = make(CELLS[name], case, seed=1), make(CELLS[name], case, seed=2)
    kept = CPU.run(first)[0]
    CPU.run(second)
    found = torch.autograd.grad(kept.sum(), leaves(first))
    expected = torch.autograd.grad(REFERENCE.run(first)[0].sum(), leaves(first))
    for a, b in zip(found, expected, strict=True):
        assert_equal_up_to_rounding(a, b)


@pytest.mark.parametrize("name", CPU_CELLS)
def test_backward_after_the_scratch_was_used_by_other_shapes_is_right(name: str) -> None:
    run = make(CELLS[name], Case(), torch.float32)
    kept = CPU.run(run)[0]
    expected = torch.autograd.grad(CPU.run(run)[0].sum(), leaves(run))
    for steps, batch, hidden in ((9, 2, 4), (1, 1, 2), (20, 5, 8)):
        results(CPU, make(CELLS[name], Case(steps, batch, hidden=hidden), torch.float32))
    found = torch.autograd.grad(kept.sum(), leaves(run))
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("name", CPU_CELLS)
def test_output_is_untouched_by_the_next_run(name: str) -> None:
    run = make(CELLS[name], Case(), torch.float32)
    output, state = CPU.run(run)
    copies = [t.clone() for t in (output, *state)]
    with torch.no_grad():
        CPU.run(run._replace(input=run.input + 1))
    assert all(torch.equal(a, b) for a, b in zip(copies, (output, *state), strict=True))


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("name", CPU_CELLS)
def test_backward_twice_on_a_retained_graph_gives_the_same(name: str, recompute: bool) -> None:
    run = make(CELLS[name], Case(recompute=recompute), torch.float32)
    total = CPU.run(run)[0].sum()
    first = torch.autograd.grad(total, leaves(run), retain_graph=True)
    second = torch.autograd.grad(total, leaves(run))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("name", CPU_CELLS)
def test_gradient_of_the_final_state_alone_is_right(name: str) -> None:
    run = make(CELLS[name], Case(lengths=(4, 2, 0)))
    found = torch.autograd.grad(CPU.run(run)[1][-1].sum(), leaves(run))
    expected = torch.autograd.grad(REFERENCE.run(run)[1][-1].sum(), leaves(run))
    for a, b in zip(found, expected, strict=True):
        assert_equal_up_to_rounding(a, b)


@pytest.mark.parametrize("name", CPU_CELLS)
@pytest.mark.parametrize("place", range(4))
def test_only_what_needs_a_gradient_gets_one(name: str, place: int) -> None:
    run = make(CELLS[name], Case(), torch.float64)
    for index, tensor in enumerate(leaves(run)):
        tensor.requires_grad_(index == place)
    CPU.run(run)[0].sum().backward()
    for index, tensor in enumerate(leaves(run)):
        assert (tensor.grad is not None) == (index == place)
    expected = torch.autograd.grad(REFERENCE.run(run)[0].sum(), leaves(run)[place])[0]
    assert_equal_up_to_rounding(leaves(run)[place].grad, expected)


@pytest.mark.parametrize("grad", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("name", CPU_CELLS)
def test_values_without_gradients_are_the_same(name: str, grad: Any) -> None:
    run = make(CELLS[name], Case(), torch.float32)
    expected = CPU.run(run)[0].detach()
    with grad():
        assert_equal_up_to_rounding(CPU.run(run)[0].clone(), expected)


@pytest.mark.parametrize("name", CPU_CELLS)
def test_run_after_inference_mode_works(name: str) -> None:
    run = make(CELLS[name], Case(), torch.float64)
    for mode in (torch.inference_mode, torch.no_grad, torch.enable_grad):
        with mode():
            output, _ = CPU.run(run)
    output.sum().backward()
    assert run.input.grad is not None


@pytest.mark.parametrize("case", [Case(), Case(lengths=(4, 2, 1)), Case(recompute=True)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", CPU_CELLS)
def test_nan_stays_in_its_row(name: str, dtype: torch.dtype, case: Case) -> None:
    run = make(CELLS[name], case, dtype)
    clean = results(CPU, run)
    with torch.no_grad():
        run.input[0, 1] = torch.nan
    dirty = results(CPU, run)
    others = [0, 2]
    assert dirty["output"][:, 1].isnan().any()
    for key in ("output", "gradient of input"):
        assert torch.equal(dirty[key][:, others], clean[key][:, others])
    for key in ("h_n", "c_n", "gradient of h_0", "gradient of c_0"):
        if key in clean:
            assert torch.equal(dirty[key][others], clean[key][others])


@pytest.mark.parametrize("engine", BOTH)
@pytest.mark.parametrize("name", CPU_CELLS)
def test_layout_of_the_tensors_does_not_matter(name: str, engine: str) -> None:
    run = make(CELLS[name], Case(), torch.float32)
    expected = results(BOTH[engine], run)

    def strided(tensor: Tensor) -> Tensor:
        """Return the same numbers with reversed strides and a hole after each."""
        order = list(range(tensor.dim()))[::-1]
        spread = torch.stack([tensor.detach().permute(order), torch.zeros_like(tensor.detach().permute(order))], -1)
        return spread[..., 0].permute(order).requires_grad_()

    found = results(BOTH[engine], with_tensors(run, [strided(t) for t in leaves(run)]))
    for key, value in expected.items():
        assert_equal_up_to_rounding(found[key], value)


@pytest.mark.parametrize("name", CPU_CELLS)
def test_expanded_states_and_cotangents_are_right(name: str) -> None:
    run = make(CELLS[name], Case())
    single = tuple(s[:1].detach().clone().requires_grad_() for s in run.state)
    expanded = run._replace(state=tuple(s.expand(3, -1) for s in single))
    found = torch.autograd.grad(CPU.run(expanded)[0].sum(), single)  # the cotangent of a sum is expanded too
    expected = torch.autograd.grad(REFERENCE.run(expanded)[0].sum(), single)
    for a, b in zip(found, expected, strict=True):
        assert_equal_up_to_rounding(a, b)


@pytest.mark.parametrize("name", ["rnn-tanh", "rnn-modrelu", "gru-after", "gru-before", "lstm"])
def test_threads_do_not_disturb_one_another(name: str) -> None:
    runs = [make(CELLS[name], Case(steps=20 + seed, batch=4), torch.float64, seed) for seed in range(4)]
    expected = [results(CPU, run) for run in runs]
    found: list[dict[str, Tensor] | None] = [None] * len(runs)

    def work(place: int) -> None:
        for _ in range(5):
            found[place] = results(CPU, runs[place])

    threads = [threading.Thread(target=work, args=(place,)) for place in range(len(runs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for ours, alone in zip(found, expected, strict=True):
        assert ours is not None
        assert all(torch.equal(ours[key], alone[key]) for key in alone)


def saved_numbers(run: Recurrence) -> int:
    """Return how many numbers, arguments aside, a forward keeps for its backward."""
    given, kept = {t.untyped_storage().data_ptr() for t in leaves(run)}, {}

    def pack(tensor: Tensor) -> Tensor:
        if tensor.untyped_storage().data_ptr() not in given and tensor.is_floating_point():
            kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with saved_tensors_hooks(pack, lambda tensor: tensor):
        output, _ = CPU.run(run)
    del output
    return sum(tensor.numel() for tensor in kept.values())


@pytest.mark.parametrize("steps", [1, 9, 100])
@pytest.mark.parametrize("name", CPU_CELLS)
def test_recompute_keeps_the_square_root_of_the_states(name: str, steps: int) -> None:
    run = make(CELLS[name], Case(steps=steps, recompute=True))
    states = sum(state.numel() for state in run.state)
    assert saved_numbers(run) <= segment_count(steps) * states
    assert segment_count(steps) ** 2 < steps + 2 * segment_count(steps)


@pytest.mark.parametrize("name", CPU_CELLS)
def test_run_without_recompute_keeps_every_state(name: str) -> None:
    assert saved_numbers(make(CELLS[name], Case(steps=100))) >= 100 * 15


@pytest.mark.parametrize("name", [name for name, cell in CELLS.items() if isinstance(cell, RNNStep)])
def test_rnn_keeps_one_tensor_where_the_output_tells_the_slope(name: str) -> None:
    cell = CELLS[name]
    assert isinstance(cell, RNNStep)
    run = make(cell, Case(steps=10))
    size = 10 * run.state[0].numel()
    assert saved_numbers(run) == (size if cell.activation.from_output else 2 * size)


@pytest.mark.parametrize("engine", BOTH)
@pytest.mark.parametrize("size", [44.0, 88.0, 1e4, 1e30, 3e38])
@pytest.mark.parametrize("name", ["rnn-tanh", "rnn-sigmoid", "gru-after", "gru-before", "lstm"])
def test_huge_inputs_saturate_and_give_finite_gradients(name: str, size: float, engine: str) -> None:
    run = make(CELLS[name], Case(steps=2, inputs=1, bias_ih=False, bias_hh=False), torch.float32)
    with torch.no_grad():
        run.weight_ih.fill_(1)
        run.input.fill_(size)
        run.input[:, 1] *= -1
    found = results(BOTH[engine], run)
    assert all(tensor.isfinite().all() for name, tensor in found.items() if name != "gradient of weight_ih")
    assert float(found["gradient of input"].abs().max()) <= 1


@pytest.mark.parametrize("engine", BOTH)
def test_absolute_value_with_an_orthogonal_weight_keeps_the_gradients_norm(engine: str) -> None:
    """100 units, 30 steps: the Jacobian's Frobenius norm is 10, also through an all-zero pre-activation.

    See Note [mathematics], section 3.4.
    """
    weight = torch.linalg.qr(torch.randn(100, 100, dtype=torch.float64))[0]
    run = Recurrence(
        CELLS["rnn-abs"], torch.randn(30, 1, 100, dtype=torch.float64), (torch.zeros(1, 100, dtype=torch.float64),),
        torch.eye(100, dtype=torch.float64), weight,
    )  # fmt: skip
    run.input[0].zero_()  # state and input zero: so is the first pre-activation
    start = run.state[0].requires_grad_()

    def final(h: Tensor) -> Tensor:
        return BOTH[engine].run(run._replace(state=(h,)))[1][0]

    jacobian = torch.autograd.functional.jacobian(final, start)[0, :, 0]
    assert abs(float(torch.linalg.matrix_norm(jacobian)) - 10) <= 2e-14
