"""The registry of probes: each measures what it says, on any network over time, or says why not."""

import copy
from pathlib import Path

import pytest
import torch
from torch import nn

from steadyrnn.errors import ArgumentError
from steadyrnn.jobs.measurements import PROBES, make_probes
from steadyrnn.layers.gru import GRU
from steadyrnn.layers.lstm import LSTM
from steadyrnn.layers.rnn import RNN
from steadyrnn.models.sequence import SequenceModel
from steadyrnn.tasks.base import Batch
from steadyrnn.tasks.registry import make_task
from steadyrnn.train.settings import ProbeSettings


def measured(name: str, rnn: nn.Module) -> dict[str, object]:
    model = SequenceModel(rnn, 1)
    return dict(make_probes(make_task("addition", length=8), [name], 16)[name](0, model))


@pytest.mark.parametrize("name", PROBES)
def test_every_probe_is_named_in_the_settings_and_in_the_guide(name: str) -> None:
    guide = Path(__file__).parents[2] / "docs" / "probes.md"
    assert f"``{name}``" in (ProbeSettings.__doc__ or "")
    assert f"| `{name}` |" in guide.read_text(encoding="utf-8")
    assert PROBES[name].name == name
    assert PROBES[name].help


@pytest.mark.parametrize("name", [name for name in PROBES if name not in ("input-gradient", "weight-distance")])
def test_every_probe_leaves_model_and_gradients_as_they_were(name: str) -> None:
    model = SequenceModel(RNN(2, 6, nonlinearity="relu", transition="spectral"), 1)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    record = make_probes(make_task("addition", length=8), [name], 16)[name](0, model)
    assert isinstance(record["value"], dict)
    assert record["value"]
    assert model.training
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())


def test_the_gradient_by_the_initial_state_is_that_of_the_task() -> None:
    torch.manual_seed(0)
    model, task = SequenceModel(RNN(2, 6, transition="exp"), 1), make_task("addition", length=8)
    batch: Batch = next(iter(task.batches("validation", 16)))
    hx = torch.zeros(1, 16, 6, requires_grad=True)
    (gradient,) = torch.autograd.grad(task.loss(model(batch.input, hx)[0], batch), hx)
    found = make_probes(task, ["gradient-h0"], 16)["gradient-h0"](0, model)["value"]
    assert found["mean"] == pytest.approx(16 * float(gradient[0].norm(dim=1).mean()), rel=1e-5)
    assert found["shared"] == pytest.approx(float(gradient.sum((0, 1)).norm()), rel=1e-5)


def test_the_state_jacobian_of_an_isometry_is_flat() -> None:
    torch.manual_seed(0)
    found = measured("state-jacobian", RNN(2, 9, nonlinearity="abs", transition="ornn"))["value"]
    assert isinstance(found, dict)
    assert (len(found["batches"]), found["lag"]) == (8, 7)
    assert found["batches"] == pytest.approx([3.0] * 8, rel=1e-5)  # the root of 9 units
    assert found["mean"] == pytest.approx(3.0, rel=1e-5)


def test_the_margin_is_the_largest_distance_from_one() -> None:
    rnn = GRU(2, 4)
    values = torch.linalg.svdvals(rnn.weight_hh_l0.detach().double().view(3, 4, 4))
    expected = dict(zip(("r", "z", "n"), (values - 1).abs().amax(1).tolist(), strict=True))
    assert measured("margin", rnn)["value"] == pytest.approx({f"weight_hh_l0.{gate}": x for gate, x in expected.items()})


def test_what_cannot_be_measured_says_why() -> None:
    record = measured("dead-units", GRU(2, 4))
    assert record["value"] == {}
    assert "units with gates" in str(record["reason"])


def test_an_unknown_probe_is_refused() -> None:
    with pytest.raises(ArgumentError, match=r"`probe.names` must be one of spectrum.*, but is 'dead'"):
        make_probes(make_task("addition", length=8), ["dead"], 16)


def test_the_gradient_by_inputs_is_the_mean_over_pairs_of_steps() -> None:
    torch.manual_seed(0)
    task = make_task("copy", delay=1, validation=3)
    batch: Batch = next(iter(task.batches("validation", 16)))
    interface = task.interface
    model = SequenceModel(LSTM(interface.inputs, 5), interface.outputs, readout="each")
    x = batch.input.double().requires_grad_()
    steps, rows = x.shape[:2]
    logits = copy.deepcopy(model).double()(x)[0]
    expected = torch.zeros(steps, dtype=torch.float64)
    for late in range(steps):
        for row in range(rows):
            one = Batch(batch.input[late : late + 1, row : row + 1], batch.target[late : late + 1, row : row + 1])
            (gradient,) = torch.autograd.grad(task.loss(logits[late : late + 1, row : row + 1], one), x, retain_graph=True)
            for early in range(late + 1):
                expected[late - early] += gradient[early, row].norm()
    found = make_probes(task, ["input-gradient"], 16)["input-gradient"](0, model)["value"]
    assert found["lag"] == [*range(steps)]
    means = (expected / torch.tensor([rows * (steps - lag) for lag in range(steps)])).tolist()
    assert found["mean"] == pytest.approx(means, rel=16 * steps * 2**-24)  # states are in float32


def test_the_gradient_by_inputs_needs_a_loss_at_every_step() -> None:
    record = measured("input-gradient", RNN(2, 4))
    assert record["value"] == {}
    assert "one target per sequence" in str(record["reason"])
