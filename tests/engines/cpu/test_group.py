"""Many networks at once: each runs as it would alone, whatever the others do."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck

from steadyrnn.cells.registry import CELLS
from steadyrnn.engines.base import Recurrence
from steadyrnn.engines.cpu.group.run import group_refusal, run_group
from steadyrnn.engines.reference import ReferenceEngine
from steadyrnn.errors import DtypeError, EngineError, ShapeError
from tests.support.errors import assert_within_budget

NAMES = [name for name in CELLS if group_refusal(Recurrence(CELLS[name], *(torch.zeros(1, 1, 1),) * 4)) is None]
BATCH, INPUTS, HIDDEN = 3, 2, 4


def tensors(name: str, members: int, steps: int, biases: bool = True) -> dict[str, Tensor]:
    """Return every tensor of a group by name."""
    gates = len(CELLS[name].gates) * HIDDEN
    generator = torch.Generator().manual_seed(members * 100 + steps)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64).mul_(0.5).requires_grad_()

    made = {"input": draw(steps, members, BATCH, INPUTS)}
    made |= {f"state{place}": draw(members, BATCH, HIDDEN) for place in range(CELLS[name].states)}
    made |= {"weight_ih": draw(members, gates, INPUTS), "weight_hh": draw(members, gates, HIDDEN)}
    return made | ({"bias_ih": draw(members, gates), "bias_hh": draw(members, gates)} if biases else {})


def recurrence(name: str, given: dict[str, Tensor]) -> Recurrence:
    state = tuple(tensor for key, tensor in given.items() if key.startswith("state"))
    rest: dict[str, Any] = {key: tensor for key, tensor in given.items() if not key.startswith("state")}
    return Recurrence(CELLS[name], state=state, **rest)


def member(given: dict[str, Tensor], place: int) -> dict[str, Tensor]:
    """Return the tensors of one network."""
    return {key: tensor[:, place] if key == "input" else tensor[place] for key, tensor in given.items()}


def results(output: Tensor, state: tuple[Tensor, ...], given: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return outputs, final states, and the gradients of a loss that reads all of them."""
    loss = output.square().sum() + sum((s.sin().sum() for s in state), output.new_zeros(()))
    grads = torch.autograd.grad(loss, list(given.values()), materialize_grads=True)
    found = {"output": output, **{f"final{place}": s for place, s in enumerate(state)}}
    return found | {f"grad_{key}": grad for key, grad in zip(given, grads, strict=True)}


@pytest.mark.parametrize("steps", [0, 1, 5, 65])
@pytest.mark.parametrize("name", NAMES)
def test_a_group_equals_its_networks_run_by_the_reference(name: str, steps: int) -> None:
    members = 3
    given = tensors(name, members, steps)
    fast = results(*run_group(recurrence(name, given)), given)
    alone = []
    for place in range(members):
        own = {key: tensor.detach().requires_grad_() for key, tensor in member(given, place).items()}
        alone.append(results(*ReferenceEngine().run(recurrence(name, own)), own))
    truth = {}
    for key in alone[0]:
        truth[key] = torch.stack([found[key] for found in alone], 1 if key in ("output", "grad_input") else 0)
    assert_within_budget(fast, truth, dict.fromkeys(truth, 0.0))


@pytest.mark.parametrize("name", ["rnn-tanh", "gru-after", "gru-before", "lstm"])
def test_networks_without_biases_run_as_with_zero_ones(name: str) -> None:
    given = tensors(name, 2, 6, biases=False)
    gates = given["weight_ih"].shape[1]
    zero = {key: torch.zeros(2, gates, dtype=torch.float64) for key in ("bias_ih", "bias_hh")}
    output, _ = run_group(recurrence(name, given))
    assert torch.equal(output, run_group(recurrence(name, given | zero))[0])


@pytest.mark.parametrize("name", ["rnn-tanh", "gru-after", "gru-before", "lstm"])
def test_gradients_are_exact(name: str) -> None:
    given = tensors(name, 2, 3)

    def run(*values: Tensor) -> tuple[Tensor, ...]:
        output, state = run_group(recurrence(name, dict(zip(given, values, strict=True))))
        return output, *state

    assert gradcheck(run, tuple(given.values()))


def test_without_gradients_the_outputs_are_the_same() -> None:
    given = tensors("lstm", 2, 5)
    output, _ = run_group(recurrence("lstm", given))
    with torch.no_grad():
        assert torch.equal(run_group(recurrence("lstm", given))[0], output)


def test_a_second_derivative_is_refused() -> None:
    given = tensors("rnn-tanh", 2, 3)
    output, _ = run_group(recurrence("rnn-tanh", given))
    (grad,) = torch.autograd.grad(output.square().sum(), given["weight_hh"], create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        grad.sum().backward()


@pytest.mark.parametrize("bad", [math.nan, math.inf, 1e300])
@pytest.mark.parametrize("name", ["rnn-identity", "gru-after", "gru-before", "lstm"])
def test_a_network_that_is_not_finite_leaves_the_others_bit_for_bit(name: str, bad: float) -> None:
    given = tensors(name, 3, 7)
    fine = results(*run_group(recurrence(name, given)), given)
    with torch.no_grad():
        given["weight_hh"][1] = bad
    found = results(*run_group(recurrence(name, given)), given)
    for place in (0, 2):
        assert torch.equal(found["output"][:, place], fine["output"][:, place])
        for key in ("grad_weight_ih", "grad_weight_hh", "grad_bias_ih", "grad_bias_hh"):
            assert torch.equal(found[key][place], fine[key][place])


def test_what_a_group_cannot_run_is_refused() -> None:
    zero = torch.zeros(1, 2, 2)
    learned = Recurrence(CELLS["rnn-modrelu"], zero, (zero[0],), zero, zero)
    with pytest.raises(EngineError, match="modrelu does not work entry by entry"):
        run_group(learned)
    given = tensors("rnn-tanh", 2, 3)
    plain = recurrence("rnn-tanh", given)
    with pytest.raises(EngineError, match="runs forwards over all time"):
        run_group(plain._replace(reverse=True))
    with pytest.raises(EngineError, match="one dense tensor"):
        run_group(plain._replace(weight_hh=(given["weight_hh"], given["weight_hh"])))


@pytest.mark.parametrize("key", ["weight_ih", "weight_hh", "bias_ih", "bias_hh", "state0"])
def test_shapes_and_dtypes_that_do_not_fit_are_refused(key: str) -> None:
    given = tensors("rnn-tanh", 2, 3)
    with pytest.raises(ShapeError, match="must have shape"):
        run_group(recurrence("rnn-tanh", given | {key: torch.zeros(*given[key].shape[:-1], 9, dtype=torch.float64)}))
    with pytest.raises(DtypeError, match=r"float64 on cpu, but has torch\.float32"):
        run_group(recurrence("rnn-tanh", given | {key: given[key].detach().float()}))


@pytest.mark.parametrize("members", [0, 1, 3])
def test_an_input_of_another_number_of_networks_is_refused(members: int) -> None:
    given = tensors("rnn-tanh", 2, 3)
    other = torch.zeros(3, members, BATCH, INPUTS, dtype=torch.float64)
    with pytest.raises(ShapeError, match=rf"which is 2 and must be at least 1, but has \(3, {members}, 3, 2\)"):
        run_group(recurrence("rnn-tanh", given | {"input": other}))
    with pytest.raises(ShapeError, match=r"must have shape \(T, R, B, D\)"):
        run_group(recurrence("rnn-tanh", given | {"input": other.flatten(1, 2)}))
