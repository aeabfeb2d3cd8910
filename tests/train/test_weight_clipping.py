"""The gradient of a computed recurrent weight is clipped before it goes back through its constraint."""

import copy
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrizations

from steadyrnn.constraints import HouseholderOrthogonal, Spectral
from steadyrnn.constraints.attach import constrain
from steadyrnn.constraints.gradient_limit import limit_gradient
from steadyrnn.constraints.slot import Slot, cached
from steadyrnn.errors import ArgumentError, RunError, ShapeError
from steadyrnn.layers.cells import RNNCell
from steadyrnn.layers.gru import GRU
from steadyrnn.layers.lstm import LSTM
from steadyrnn.layers.rnn import RNN
from steadyrnn.models.sequence import SequenceModel
from steadyrnn.models.truncated import Truncated
from steadyrnn.runs.folder import Run
from steadyrnn.tasks.registry import make_task
from steadyrnn.train.clipping import free_recurrent_parameters, limited_weights
from steadyrnn.train.settings import ClipSettings, OptimizerSettings, TrainSettings
from steadyrnn.train.step import Stepper
from steadyrnn.train.trainer import train
from tests.support.errors import assert_equal_up_to_rounding
from tests.tasks.small import small_task
from tests.train.rank_work import Doubles
from tests.train.runs import addition, tiny

LIMIT = 0.02
BUILDERS: dict[str, Callable[[], nn.Module]] = {
    "exp": lambda: RNN(2, 5, transition="exp"),
    "factored": lambda: RNN(2, 8, transition=Spectral(reflectors=1)),
    "few reflectors": lambda: RNN(2, 8, transition=HouseholderOrthogonal(reflectors=2)),
    "projection": lambda: RNN(2, 5, transition="ball"),
    "recentred": lambda: RNN(2, 5, transition="exp-lie"),
    "layers and directions": lambda: RNN(2, 4, 2, bidirectional=True, transition="cayley"),
    "gates": lambda: GRU(2, 4, transition={"n": "ornn", "r": "exp"}),
    "lstm": lambda: LSTM(2, 4, transition="spectral"),
    "recompute": lambda: RNN(2, 5, transition="exp", recompute=True),
}


def slots_of(model: nn.Module) -> dict[str, Slot]:
    return {name: module for name, module in model.named_modules() if isinstance(module, Slot)}


def loss_of(model: nn.Module) -> Tensor:
    x = torch.randn(9, 3, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    loss: Tensor = model(x)[0].square().sum()
    return loss


def by_hand(model: nn.Module, limit: float) -> tuple[dict[str, Tensor], float]:
    """Return the gradients of raw tensors through dL/dW, clipped, and the largest entry of dL/dW: W is a leaf of its own."""
    leaves, gradients = {}, {}
    for name, slot in slots_of(model).items():
        leaves[name] = slot._evaluate().detach().requires_grad_()
        slot.__dict__["gate"] = lambda leaf=leaves[name]: leaf
    loss_of(model).backward()
    for name, slot in slots_of(model).items():
        del slot.__dict__["gate"]
        weight_gradient = leaves[name].grad
        assert weight_gradient is not None
        raw = dict(slot.named_parameters())
        found = torch.autograd.grad(slot._evaluate(), list(raw.values()), weight_gradient.clamp(-limit, limit))
        gradients |= {f"{name}.{key}": value for key, value in zip(raw, found, strict=True)}
    model.zero_grad()
    return gradients, max(float(leaf.grad.abs().max()) for leaf in leaves.values() if leaf.grad is not None)


@pytest.mark.parametrize("name", BUILDERS)
def test_raw_gradients_are_those_of_the_clipped_weight_gradient(name: str) -> None:
    torch.manual_seed(0)
    model = BUILDERS[name]().double()
    expected, largest = by_hand(model, LIMIT)
    assert largest > 2 * LIMIT  # the clip bites
    with limited_weights(model, torch.tensor(LIMIT, dtype=torch.float64)):
        loss_of(model).backward()
    parameters = dict(model.named_parameters())
    for key, value in expected.items():
        torch.testing.assert_close(parameters[key].grad, value, rtol=1e-9, atol=1e-12)


def test_nothing_is_left_on_the_model() -> None:
    model = RNN(2, 8, transition=Spectral(reflectors=1))
    wrapped = constrain(nn.RNNCell(2, 3), "weight_hh", "ornn")
    both = nn.ModuleList([model, wrapped])
    with limited_weights(both, torch.tensor(1.0)):
        assert isinstance(model.transition_l0.h.gate(), Tensor)  # type: ignore[union-attr, operator]
    with pytest.raises(ShapeError), limited_weights(both, torch.tensor(1.0)):
        model(torch.ones(2, 2, 7))
    assert all(slot.gradient_limit is None for slot in slots_of(both).values())
    assert not isinstance(model.transition_l0.h.gate(), Tensor)  # type: ignore[union-attr, operator]
    assert not wrapped.parametrizations.weight_hh._forward_hooks  # type: ignore[union-attr, index]


def test_a_parametrized_weight_of_torch_is_clipped_too() -> None:
    torch.manual_seed(0)
    cell = constrain(nn.RNNCell(2, 4), "weight_hh", "exp").double()
    x, h = torch.randn(2, 3, 2, dtype=torch.float64), torch.randn(3, 4, dtype=torch.float64)
    weight = cell.weight_hh
    free = weight.detach().requires_grad_()
    out = torch.tanh(x[0] @ cell.weight_ih.mT + cell.bias_ih + h @ free.mT + cell.bias_hh)
    (gradient,) = torch.autograd.grad(out.square().sum(), free)
    raw = cell.parametrizations.weight_hh.original0  # type: ignore[union-attr, index]
    (expected,) = torch.autograd.grad(weight, raw, gradient.clamp(-LIMIT, LIMIT))
    with limited_weights(cell, torch.tensor(LIMIT, dtype=torch.float64)):
        cell(x[0], h).square().sum().backward()
    assert float(gradient.abs().max()) > LIMIT
    torch.testing.assert_close(raw.grad, expected, rtol=1e-9, atol=1e-12)


def test_a_cached_weight_is_clipped_once_for_all_steps() -> None:
    torch.manual_seed(0)
    cell = RNNCell(1, 1, bias=False, nonlinearity="identity", transition="ball").double()
    with limited_weights(cell, torch.tensor(0.5, dtype=torch.float64)), cached():
        h = torch.ones(1, 1, dtype=torch.float64)
        loss = sum(cell(torch.zeros(1, 1, dtype=torch.float64), h).sum() for _ in range(3))
        loss.backward()  # type: ignore[union-attr]
    assert float(cell.transition.h.raw0.grad) == 0.5  # type: ignore[union-attr, arg-type]


def test_free_weights_are_clipped_as_parameters() -> None:
    model = nn.ModuleList([RNN(2, 3), LSTM(2, 3, transition="stable-lstm"), RNN(2, 3, transition="exp")])
    assert list(free_recurrent_parameters(model)) == ["0.weight_hh_l0", "1.weight_hh_l0"]


@pytest.mark.parametrize("value", [torch.inf, -torch.inf, torch.nan])
def test_what_is_not_finite_is_not_hidden(value: float) -> None:
    weight = torch.zeros(2, requires_grad=True)
    (limit_gradient(weight, torch.tensor(0.5)) * torch.tensor([value, 3.0])).sum().backward()
    assert weight.grad is not None
    torch.testing.assert_close(weight.grad, torch.tensor([value, 0.5]), equal_nan=True)


def test_a_clipped_model_compiles_in_one_graph() -> None:
    torch.manual_seed(0)
    model = RNN(2, 5, transition="cayley").double()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    gradients = []
    for call in (model, compiled):
        model.zero_grad()
        with limited_weights(model, torch.tensor(LIMIT, dtype=torch.float64)):
            loss_of(call).backward()
        gradients.append([parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None])
    torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-9, atol=1e-12)


# In the trainer


def stepped(settings: TrainSettings, transition: Any = "ball") -> tuple[nn.Module, Stepper]:
    torch.manual_seed(0)
    model = SequenceModel(RNN(2, 6, transition=transition), 1)
    stepper = Stepper(model, addition(), settings, model)
    stepper.step(1, addition().train_batch(0, 8), 1.0)
    return model, stepper


@pytest.mark.parametrize("autocast", [None, "float16"])
def test_the_trainer_clips_the_weight_gradient(autocast: str | None) -> None:
    settings = tiny(clip=ClipSettings(norm=None, recurrent=1e-3), autocast=autocast, optimizer=OptimizerSettings(lr=0.0))
    model, _ = stepped(settings)
    gradient = model.rnn.transition_l0.h.raw0.grad  # type: ignore[union-attr]
    assert float(gradient.abs().max()) == pytest.approx(1e-3, rel=1e-6)  # type: ignore[union-attr, operator]


@pytest.mark.parametrize("transition", ["ball", "exp"])
def test_of_a_batch_in_parts_the_gradient_of_the_whole_is_clipped(transition: str) -> None:
    found = []
    for parts in (1, 2, 3):
        settings = tiny(
            clip=ClipSettings(norm=None, recurrent=1e-3), accumulate=parts, batch_size=8, optimizer=OptimizerSettings(lr=0.0)
        )
        torch.manual_seed(0)
        model, task = SequenceModel(RNN(2, 6, transition=transition), 1).double(), Doubles(addition())
        batch = task.train_batch(0, 8)
        Stepper(model, task, settings, model).step(1, batch, 1.0)
        found.append(model.rnn.transition_l0.h.raw0.grad)
    for gradient in found[1:]:
        assert_equal_up_to_rounding(gradient, found[0], batch.input.numel())
    if transition == "ball":  # where the raw tensor is the weight
        assert float(found[2].abs().max()) == pytest.approx(1e-3, rel=1e-6)


@pytest.mark.parametrize(("of", "same"), [("raw", True), ("weight", False)])
def test_raw_parameters_are_clipped_on_request(of: str, same: bool) -> None:
    settings = tiny(clip=ClipSettings(norm=None, recurrent=1e-4, recurrent_of=of), optimizer=OptimizerSettings(lr=0.0))
    model, _ = stepped(settings, "exp")
    largest = float(model.rnn.transition_l0.h.raw0.grad.abs().max())  # type: ignore[union-attr, operator]
    assert (largest == pytest.approx(1e-4, rel=1e-6)) is same


def test_a_run_of_an_older_release_goes_on_as_it_began(tmp_path: Path) -> None:
    own: dict[str, Any] = {"steps": 4, "save_every": 2, "validate_every": 2}
    old, new = (tiny(clip=ClipSettings(recurrent=1e-4, recurrent_of=of), **own) for of in ("raw", "weight"))
    stored = asdict(old)
    del stored["clip"]["recurrent_of"]
    model = SequenceModel(RNN(2, 6, transition="exp"), 1)
    with Run.create(tmp_path, "task", "model", {"task": {"name": "t"}, "model": {"name": "m"}, "train": stored}) as run:
        train(model, addition(), old, run=run)
        for name in run.checkpoints():
            checkpoint = run.load(name)
            del checkpoint.facts["settings"]["train"]["clip"]["recurrent_of"]
            run.save(name, checkpoint.tensors, checkpoint.facts)
    with Run.open(run.folder, write=True) as run:
        with pytest.raises(RunError, match=r"`train.clip.recurrent_of` is 'raw' there and 'weight' here"):
            train(model, addition(), new, run=run, resume=True)
        assert train(model, addition(), old, run=run, resume=True).steps == 4


def test_what_is_clipped_must_be_known() -> None:
    with pytest.raises(ArgumentError, match=r"`clip.recurrent_of` must be one of weight, raw"):
        train(SequenceModel(RNN(2, 3), 1), addition(), tiny(clip=ClipSettings(recurrent_of="gradient")))


def limited_layer() -> RNN:
    torch.manual_seed(0)
    return RNN(2, 4, transition="ball", dtype=torch.float64)


def test_limits_nest_and_the_outer_one_comes_back() -> None:
    rnn = limited_layer()
    slot = rnn.get_submodule("transition_l0.h")
    outer, inner = torch.tensor(0.5), torch.tensor(0.1)
    with limited_weights(rnn, outer):
        with limited_weights(rnn, inner):
            assert slot.gradient_limit is inner
        assert slot.gradient_limit is outer
    assert slot.gradient_limit is None


def test_a_copy_made_under_a_limit_has_none() -> None:
    rnn = limited_layer()
    with limited_weights(rnn, torch.tensor(1e-3)):
        copied = copy.deepcopy(rnn)
    assert copied.get_submodule("transition_l0.h").gradient_limit is None
    copied(torch.ones(5, 1, 2, dtype=torch.float64))[0].sum().backward()
    assert float(copied.transition_l0.h.raw0.grad.abs().max()) > 1e-3


def test_a_cached_weight_has_the_limit_of_its_own_context() -> None:
    rnn = limited_layer()
    x = torch.ones(5, 1, 2, dtype=torch.float64)
    with cached():
        with limited_weights(rnn, torch.tensor(1e-3)):
            rnn(x)
        with limited_weights(rnn, torch.tensor(1e9)):
            rnn(x)[0].sum().backward()
    assert float(rnn.transition_l0.h.raw0.grad.abs().max()) > 1e-3


def test_a_model_that_calls_its_layer_twice_is_clipped_once() -> None:
    """The network on windows runs short prefixes and whole windows; in a ball the raw tensor is the weight."""
    task = make_task("copy", delay=5)
    torch.manual_seed(0)
    width, outputs = task.interface.inputs or 4, task.interface.outputs
    inner = SequenceModel(RNN(width, 4, transition="ball"), outputs, vocab_size=task.interface.vocabulary)
    model = Truncated(inner, 3, "each")
    clip = ClipSettings(norm=None, recurrent=1e-4)
    stepper = Stepper(model, task, TrainSettings(steps=1, batch_size=4, device="cpu", clip=clip), model)
    seen = []
    inner.rnn.transition_l0.h.raw0.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad.abs().max()))
    stepper.step(1, task.train_batch(0, 4), 1.0)
    assert [float(one) for one in seen] == [pytest.approx(1e-4, rel=1e-6)]


class Loop(nn.Module):
    """A cell of torch with a weight that torch parametrizes, which each time step reads anew."""

    def __init__(self, parametrize: Callable[[nn.Module], Any]) -> None:
        super().__init__()
        self.cell, self.readout = nn.RNNCell(2, 6), nn.Linear(6, 1)
        parametrize(self.cell)

    def forward(self, x: Tensor) -> Tensor:
        h = x.new_zeros(x.shape[1], 6)
        for step in x:
            h = self.cell(step, h)
        output: Tensor = self.readout(h)
        return output


COMPUTED: dict[str, Callable[[nn.Module], Any]] = {
    "constraint": lambda cell: constrain(cell, "weight_hh", "exp"),
    "orthogonal of torch": lambda cell: parametrizations.orthogonal(cell, "weight_hh"),
    "weight norm of torch": lambda cell: parametrizations.weight_norm(cell, "weight_hh"),
}


@pytest.mark.parametrize("name", COMPUTED)
def test_whoever_computes_a_weight_its_gradient_is_clipped_once_for_the_batch_and_for_its_parts(name: str) -> None:
    found = {}
    for parts, limit in ((1, None), (1, 1e-3), (3, 1e-3)):
        torch.manual_seed(0)
        model = Loop(COMPUTED[name]).double()
        settings = tiny(accumulate=parts, clip=ClipSettings(recurrent=limit), optimizer=OptimizerSettings("sgd", lr=0.0))
        stepper = Stepper(model, Doubles(small_task("addition")), settings, model)
        stepper._compute(stepper.task.train_batch(0, 7), None, False)
        found[parts, limit] = {key: parameter.grad for key, parameter in model.named_parameters()}
    raw = next(key for key in found[1, None] if "parametrizations" in key)
    assert not torch.allclose(found[1, 1e-3][raw], found[1, None][raw])  # type: ignore[arg-type]
    torch.testing.assert_close(found[3, 1e-3], found[1, 1e-3])
