"""First weights that options choose: they are what their name says, stay in the set, and are refused where they cannot."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import steadyrnn as sr
from steadyrnn.errors import ArgumentError
from steadyrnn.linalg.exponential import log_orthogonal
from steadyrnn.models.registry import SYSTEMS
from steadyrnn.models.settings import ModelSettings, complete
from steadyrnn.models.starts import RECURRENT_STARTS
from steadyrnn.models.systems import build_model
from steadyrnn.models.truncated import recurrent_part
from tests.constraints.cases import rounding
from tests.models.draws import assert_deviation
from tests.models.test_systems import INTERFACES, Interface, example, logits_of

N = 32
STARTED = [
    (name, start)
    for name, system in SYSTEMS.items()
    if system.blueprint is not None
    for start in system.blueprint.starts
    if start != "torch"
]


def build(name: str, interface: str = "last", **options: Any) -> sr.SequenceModel:
    torch.manual_seed(0)
    return recurrent_part(build_model(ModelSettings(name, width=N, **options), INTERFACES[interface]))


def first_weight(name: str, **options: Any) -> Tensor:
    """Return the recurrent weight of the candidate gate."""
    rnn = build(name, **options).rnn
    place = rnn.cell.gates.index(rnn.cell.candidate)
    return rnn.weight_hh_l0.detach().split(N)[place].double()


def assert_singular_values(weight: Tensor, value: float) -> None:
    """Check that all singular values of a weight that was computed in float32 are one number, up to its rounding."""
    gap = torch.linalg.svdvals(weight.double()) - value
    assert float(gap.abs().max()) <= value * rounding(N, torch.float32)


def angles(weight: Tensor) -> Tensor:
    """Return the angles of a block-diagonal rotation, from its logarithm."""
    return log_orthogonal(weight).diagonal(-1)[::2]


def test_every_named_start_is_drawn_somewhere() -> None:
    assert {start for _, start in STARTED} == {*RECURRENT_STARTS}
    assert {name for name, system in SYSTEMS.items() if "init" in system.options} == {name for name, _ in STARTED}


@pytest.mark.parametrize(("name", "start"), STARTED)
def test_a_start_is_what_its_name_says_or_its_projection(name: str, start: str) -> None:
    weight = first_weight(name, init=start)
    bound = SYSTEMS[name].options.get("bound", 1.0)
    if start == "gaussian":
        if bound == 1.0:
            assert_deviation(weight, N**-0.5)
        else:
            norm = float(torch.linalg.matrix_norm(weight, 2))
            assert norm == pytest.approx(bound, rel=rounding(N, torch.float32))
        return
    assert_singular_values(weight, bound)
    gap = float(torch.linalg.matrix_norm(weight - bound * torch.eye(N, dtype=weight.dtype), 2))
    assert (gap <= bound * rounding(N, torch.float32)) == (start == "identity")


@pytest.mark.parametrize("name", ["urnn", "ugru", "cayley"])
def test_the_cayley_start_turns_planes_by_less_than_one(name: str) -> None:
    found = angles(first_weight(name, init="cayley"))
    u = 2 * (-found).atan()  # of -sqrt((1 - cos u) / (1 + cos u)) = -tan(u / 2)
    assert bool(((u >= 0) & (u <= math.pi / 2)).all())
    deviation = math.pi / 2 / math.sqrt(12)  # of a number that is uniform between 0 and pi / 2, whose mean is pi / 4
    assert float(u.mean()) == pytest.approx(math.pi / 4, abs=3 * deviation / math.sqrt(len(u)))
    assert len(u.unique()) == len(u)


def test_the_henaff_start_turns_planes_by_any_angle() -> None:
    found = angles(first_weight("urnn", init="henaff"))
    assert float(found.abs().max()) > math.pi / 2
    assert found.min() < 0 < found.max()


def test_a_gaussian_start_has_the_deviation_that_is_given() -> None:
    assert_deviation(first_weight("rnn", init="gaussian", recurrent_std=0.5), 0.5)


@pytest.mark.parametrize("name", ["lstm", "gru"])
def test_every_free_gate_and_layer_has_a_draw_of_its_own(name: str) -> None:
    rnn = build(name, init="orthogonal", layers=2).rnn
    gates = [gate for end in ("_l0", "_l1") for gate in getattr(rnn, f"weight_hh{end}").detach().split(N)]
    for gate in gates:
        assert_singular_values(gate, 1.0)
    assert all(not torch.equal(a, b) for i, a in enumerate(gates) for b in gates[:i])


def test_free_gates_of_a_constrained_system_keep_their_start() -> None:
    r, z, n = build("ugru", init="identity").rnn.weight_hh_l0.detach().split(N)
    assert float(torch.linalg.matrix_norm(n - torch.eye(N), 2)) <= rounding(N, torch.float32)
    assert float(r.abs().max()) <= N**-0.5
    assert float(z.abs().max()) <= N**-0.5


def test_a_started_system_learns_and_stays_in_its_set() -> None:
    model = build("urnn", interface="each", init="cayley", gradient="lie")
    before = model.rnn.weight_hh_l0.detach().clone()
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    sr.attach_projection(optimizer, model)
    for _ in range(3):
        optimizer.zero_grad()
        logits_of(model, example("each")).square().sum().backward()
        optimizer.step()
    weight = model.rnn.weight_hh_l0.detach()
    assert not torch.equal(weight, before)
    assert_singular_values(weight, 1.0)


def test_a_start_reaches_the_base_of_a_truncated_system() -> None:
    assert torch.equal(first_weight("truncated", base="polar", init="identity"), torch.eye(N, dtype=torch.float64))


def test_a_deviation_reaches_input_and_output_and_empties_biases() -> None:
    torch.manual_seed(0)
    model = build_model(ModelSettings("stable-rnn", width=64, layers=2, init_std=0.5), Interface(inputs=50, outputs=50))
    for weight in (model.rnn.weight_ih_l0, model.rnn.weight_ih_l1, model.readout.weight):
        assert_deviation(weight, 0.5)
    assert all(p.abs().sum() == 0 for name, p in model.named_parameters() if name.split(".")[-1].startswith("bias"))


def test_the_output_has_a_deviation_of_its_own() -> None:
    torch.manual_seed(0)
    settings = ModelSettings("lds", width=64, init_std=0.5, output_std=1.0, skip=True)
    model = build_model(settings, Interface(inputs=50, outputs=50))
    assert_deviation(model.rnn.weight_ih_l0, 0.5)
    assert_deviation(model.readout.weight, 1.0)
    assert_deviation(model.skip.weight, 1.0)


@pytest.mark.parametrize("tied", [False, True])
def test_a_uniform_start_reaches_embedding_and_readout_only(tied: bool) -> None:
    usual, model = (build("rnn", "tokens-each", tied=tied, init_uniform=bound) for bound in (None, 0.1))
    for weight in (model.embedding.weight, model.readout.weight):
        assert 0.05 < float(weight.detach().abs().max()) <= 0.1
    assert model.readout.bias.abs().sum() == 0
    assert (model.embedding.weight is model.readout.weight) == tied
    assert all(torch.equal(a, b) for a, b in zip(usual.rnn.parameters(), model.rnn.parameters(), strict=True))


def test_the_input_scale_multiplies_the_first_input_weight_alone() -> None:
    usual, scaled = build("gru", layers=2), build("gru", layers=2, input_scale=3.0)
    for name, parameter in usual.named_parameters():
        factor = 3.0 if name == "rnn.weight_ih_l0" else 1.0
        assert torch.equal(factor * parameter, dict(scaled.named_parameters())[name])


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("lstm", {"gate_bias": -1.0, "forget_bias": 2.0}, {"i": -1.0, "f": 2.0, "o": -1.0}),
        ("spectral-lstm", {"forget_bias": 1.0}, {"f": 1.0}),
        ("gru", {"gate_bias": 0.5}, {"r": 0.5, "z": 0.5}),
        ("ugru", {"gate_bias": 0.5}, {"r": 0.5, "z": 0.5}),
    ],
)
def test_a_bias_reaches_the_gates_it_is_for(name: str, options: dict[str, float], expected: dict[str, float]) -> None:
    usual, model = build(name, layers=2), build(name, layers=2, **options)
    for end in ("_l0", "_l1"):
        before, after = (getattr(m.rnn, f"bias_ih{end}").detach().split(N) for m in (usual, model))
        for place, gate in enumerate(model.rnn.cell.gates):
            wanted = torch.full((N,), expected[gate]) if gate in expected else before[place]
            assert torch.equal(after[place], wanted)


@pytest.mark.parametrize(
    ("name", "layer"),
    [
        ("rnn", lambda: sr.RNN(2, N, bias="single")),
        ("lstm", lambda: sr.LSTM(2, N, bias="single")),
        ("ugru", lambda: sr.GRU(2, N, bias="single", transition="exp")),
        ("contractive", lambda: sr.RNN(2, N, nonlinearity="relu", bias="single", transition="ball")),
    ],
)
def test_without_an_option_a_system_starts_as_its_layer_does(name: str, layer: Callable[[], sr.RNN]) -> None:
    torch.manual_seed(0)
    expected = sr.SequenceModel(layer(), 5)
    assert all(torch.equal(a, b) for a, b in zip(build(name).parameters(), expected.parameters(), strict=True))


def test_a_start_outside_the_interval_is_refused_with_a_way_out() -> None:
    with pytest.raises(ArgumentError, match=r"`init` 'identity' is outside the set of CayleySpectral.* leave `init` out"):
        build("factorized", init="identity", center=0.5, radius=0.1)


@pytest.mark.parametrize(
    ("name", "options", "error"),
    [
        ("urnn", {"init": "gaussian"}, "`init` must be one of orthogonal, identity, cayley, henaff, but is 'gaussian'"),
        ("rnn", {"init": "cayley"}, "`init` must be one of orthogonal, identity, gaussian"),
        ("polar", {"init": "normal"}, "`init` must be one of orthogonal, identity"),
        ("spectral", {"init": "identity"}, "`init` is no option of the model 'spectral'"),
        ("stable-lstm", {"input_scale": 2.0}, "`input_scale` is no option of the model 'stable-lstm'"),
        ("gru", {"forget_bias": 1.0}, "`forget_bias` is no option of the model 'gru'"),
        ("rnn", {"recurrent_std": 0.5}, "`recurrent_std` belongs to `init` gaussian, but that is None"),
        ("rnn", {"init": "gaussian", "recurrent_std": -0.5}, "`recurrent_std` must be a finite number that is not negative"),
        ("irnn", {"init_std": -1.0}, "`init_std` must be a finite number that is not negative"),
        ("rnn", {"init_uniform": math.inf}, "`init_uniform` must be a finite number"),
        ("rnn", {"input_scale": math.nan}, "`input_scale` must be a finite number, but is nan"),
        ("rnn", {"init_uniform": 0.1, "init_std": 0.5}, "`init_uniform` and `init_std` both draw the readout"),
        ("lstm", {"gate_bias": math.inf}, "`gate_bias` must be a finite number"),
    ],
)
def test_what_cannot_work_is_refused_by_name(name: str, options: dict[str, Any], error: str) -> None:
    with pytest.raises(ArgumentError, match=error):
        complete(ModelSettings(name, **options))
