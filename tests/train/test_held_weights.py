"""Each constraint is evaluated once per step, whatever the number of parts, and nothing else changes."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor, nn

from steadyrnn.activations.adaptive_tanh import AdaptiveTanh
from steadyrnn.constraints import Spectral
from steadyrnn.constraints.attach import constrain
from steadyrnn.constraints.registry import CONSTRAINTS
from steadyrnn.constraints.slot import Slot
from steadyrnn.layers.gru import GRU
from steadyrnn.layers.linear import Linear
from steadyrnn.layers.lstm import LSTM
from steadyrnn.layers.rnn import RNN
from steadyrnn.models.sequence import SequenceModel
from steadyrnn.models.truncated import Truncated
from steadyrnn.train.held_weights import HeldWeights
from steadyrnn.train.settings import ClipSettings, OptimizerSettings
from steadyrnn.train.step import Stepper
from tests.tasks.small import small_task
from tests.train.rank_work import Doubles
from tests.train.runs import tiny


class Parametrized(nn.Module):
    """A layer of torch with a constraint that torch's parametrization computes."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = constrain(nn.RNN(2, 6), "weight_hh_l0", "exp")
        self.readout = Linear(6, 1, weight="spectral")

    def forward(self, x: Tensor) -> Tensor:
        output: Tensor = self.readout(self.layer(x)[0][-1])
        return output


def sequence(layer: Any) -> nn.Module:
    return SequenceModel(layer, 1)


MODELS: dict[str, Callable[[], nn.Module]] = {
    **{name: lambda make=make: sequence(RNN(2, 6, transition=make())) for name, make in CONSTRAINTS.items() if name != "free"},
    "factored": lambda: sequence(RNN(2, 12, transition=Spectral(reflectors=1))),
    "gates": lambda: sequence(GRU(2, 5, transition={"n": "ornn", "r": "exp"})),
    "directions": lambda: sequence(LSTM(2, 4, bidirectional=True, transition="cayley")),
    "saturation": lambda: sequence(RNN(2, 5, nonlinearity=AdaptiveTanh(), transition="exp")),
    "penalty": lambda: sequence(RNN(2, 5, transition=Spectral(sigma="penalty"))),
    "parametrized": Parametrized,
    "windows": lambda: Truncated(sequence(RNN(2, 5, transition="exp")), 4, "last"),
}


@contextmanager
def counted() -> Iterator[list[str]]:
    """Note each evaluation of a constraint, ``forward`` or ``operator``, and each way back through one."""
    seen: list[str] = []
    inside: list[Any] = []

    def wrap(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(constraint: Any, *raw: Tensor) -> Any:
            inside.append(constraint)
            found = real(constraint, *raw)
            inside.pop()
            if found is not None and not inside:  # one form may be made of the other
                seen.append("forward")
                first = found if isinstance(found, Tensor) else found[1]
                if first.requires_grad and torch.is_grad_enabled():
                    first.register_hook(lambda gradient: seen.append("backward"))
            return found

        return call

    kinds = {type(make()) for make in CONSTRAINTS.values()} | {Spectral}
    patches = [mock.patch.object(kind, name, wrap(getattr(kind, name))) for kind in kinds for name in ("forward", "operator")]
    for patch in patches:
        patch.start()
    try:
        yield seen
    finally:
        for patch in patches:
            patch.stop()


def stepper(model: nn.Module, parts: int, **more: Any) -> Stepper:
    own: dict[str, Any] = {"optimizer": OptimizerSettings("sgd", lr=0.0), "clip": ClipSettings(norm=None)}
    return Stepper(model, Doubles(small_task("addition")), tiny(**own | {"accumulate": parts} | more), model)


def gradients(name: str, parts: int, **more: Any) -> tuple[dict[str, Tensor], list[str]]:
    """Return the gradients of a step, and what was noted of its constraints."""
    torch.manual_seed(0)
    model = MODELS[name]().double()
    own = stepper(model, parts, **more)
    with counted() as seen:
        own._compute(own.task.train_batch(0, 8), None, False)
    return {key: parameter.grad for key, parameter in model.named_parameters() if parameter.grad is not None}, seen


@pytest.mark.parametrize("name", MODELS)
def test_gradients_in_parts_are_those_of_the_whole(name: str) -> None:
    """In float64; of sums of 8 rows by 11 steps in another order there may be some hundred roundings."""
    whole, _ = gradients(name, 1)
    for parts in (2, 4):
        found, _ = gradients(name, parts)
        assert list(found) == list(whole)
        for key, gradient in whole.items():
            scale = max(float(one.abs().max()) for one in whole.values())
            rounding = 8 * 8 * 11 * torch.finfo(torch.float64).eps * scale
            assert float((found[key] - gradient).abs().max()) <= rounding, key


@pytest.mark.parametrize("limit", [None, 0.01])
@pytest.mark.parametrize("name", [name for name in MODELS if name != "irnn"])
def test_each_constraint_is_evaluated_once_for_four_parts_and_gone_back_through_once(name: str, limit: float | None) -> None:
    """Projections and re-centred maps run again after the step, without gradients."""
    clip = ClipSettings(norm=None, recurrent=limit)
    _, four = gradients(name, 4, clip=clip)
    torch.manual_seed(0)
    model = MODELS[name]().double()
    with counted() as after:
        stepper(model, 1).optimizer.step()
    slots = sum(isinstance(module, Slot) for module in model.modules()) + (name == "parametrized")
    assert four.count("forward") - after.count("forward") == slots
    assert four.count("backward") <= slots  # free gates have no way back to note
    assert four.count("backward") >= 1


def test_results_of_a_whole_batch_are_those_of_a_loop_of_ones_own() -> None:
    torch.manual_seed(0)
    model = MODELS["exp"]().double()
    task = Doubles(small_task("addition"))
    batch = task.train_batch(0, 8)
    task.loss(model(batch.input)[0], batch).backward()
    by_hand = [parameter.grad for parameter in model.parameters()]
    found, _ = gradients("exp", 1)
    assert all(torch.equal(a, b) for a, b in zip(by_hand, found.values(), strict=True) if a is not None)


@pytest.mark.parametrize("name", ["exp", "factored", "gates"])
def test_a_compiled_model_gets_the_held_weights_and_keeps_one_graph(name: str) -> None:
    import_module("torch._dynamo").reset()
    torch.manual_seed(0)
    model = MODELS[name]().double()
    own = stepper(model, 4)
    graphs = import_module("torch._dynamo.testing").CompileCounter()
    own.call = torch.compile(model, backend=graphs, fullgraph=True)
    for number in range(3):
        with counted() as seen:
            own._compute(own.task.train_batch(number, 8), None, False)
        assert seen.count("forward") == sum(isinstance(module, Slot) for module in model.modules())
    assert graphs.frame_count == 1
    torch.manual_seed(0)
    plain = MODELS[name]().double()
    other = stepper(plain, 4)
    other._compute(other.task.train_batch(2, 8), None, False)
    for a, b in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-12, atol=1e-12)


def test_autocast_gets_weights_that_were_computed_without_it() -> None:
    torch.manual_seed(0)
    model = sequence(RNN(2, 6, transition="exp"))
    own = Stepper(model, small_task("addition"), tiny(accumulate=2, autocast="bfloat16"), model)
    seen: list[torch.dtype] = []
    real = Slot.gate

    def gate(slot: Slot) -> Any:
        found = real(slot)
        seen.append(found.dtype)
        return found

    with mock.patch.object(Slot, "gate", gate):
        own._compute(own.task.train_batch(0, 8), None, False)
    assert {*seen} == {torch.float32}


@pytest.mark.parametrize("name", ["exp", "parametrized"])
def test_nothing_is_held_any_more_after_an_error(name: str) -> None:
    model = MODELS[name]()
    x = torch.randn(3, 2, 2)
    before = model(x)
    with pytest.raises(ZeroDivisionError), HeldWeights(model, None):
        raise ZeroDivisionError
    after = model(x)

    def first(value: Any) -> Tensor:
        return value[0] if isinstance(value, tuple) else value  # type: ignore[no-any-return]

    assert torch.equal(first(before), first(after))
    assert first(after).requires_grad
    assert all(module.held is None for module in model.modules() if isinstance(module, Slot))
