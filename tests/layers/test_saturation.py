"""Learned saturation: the formula step by step, every way of calling a layer, and the equivalent plain network."""

import copy
import io
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

import steadyrnn as sr
from steadyrnn.constraints.registry import CONSTRAINTS
from steadyrnn.layers.saturation import Coordinates
from steadyrnn.linalg.operators import DiagonalLowRank
from steadyrnn.models.starts import freeze_input_and_output
from steadyrnn.probes.initial_state import initial_state_gradient
from tests.support.errors import assert_equal_up_to_rounding, assert_within_budget, errors

STEPS, ROWS, WIDTH, HIDDEN = 5, 3, 3, 6
BASES = ("full", "diagonal")


def make(basis: str = "full", hidden: int = HIDDEN, **more: Any) -> sr.RNN:
    """Return a layer whose scales and rotations are not where they start."""
    rnn = sr.RNN(WIDTH, hidden, nonlinearity=sr.AdaptiveTanh(basis), **{"dtype": torch.float64, **more})
    return move(rnn)


def move(rnn: Any) -> Any:
    with torch.no_grad():
        for name, parameter in rnn.named_parameters():
            if "log_scale" in name:
                parameter.uniform_(-1.5, 0.5)
            elif "basis" in name or name.startswith("initial"):
                parameter.normal_(0.0, 0.5)
    return rnn


def data(steps: int = STEPS, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(steps, ROWS, WIDTH, dtype=torch.float64).to(dtype)


def parts_of(rnn: Any, end: str) -> tuple[Tensor, Tensor]:
    """Return d and V of a layer, differentiable, from its parameters."""
    saturation = getattr(rnn, f"saturation{end}")
    d = saturation.log_scale.exp()
    v = torch.eye(len(d), dtype=d.dtype) if saturation.basis is None else saturation.basis.weight()
    return d, v


def explicit(rnn: sr.RNN, x: Tensor, hx: Tensor | None = None, lengths: list[int] | None = None) -> tuple[Tensor, Tensor]:
    """Run a layer by its formula, one step and one row at a time; inputs (T, B, D)."""
    steps, rows = x.shape[:2]
    lengths = [steps] * rows if lengths is None else lengths
    below, finals = x, []
    for layer in range(rnn.num_layers):
        outputs = []
        for way in range(rnn.directions):
            end, place = rnn.suffix(layer, way), layer * rnn.directions + way
            d, v = parts_of(rnn, end)
            s = v @ d.diag()
            biases = [getattr(rnn, f"{name}{end}") for name in ("bias_ih", "bias_hh") if hasattr(rnn, f"{name}{end}")]
            bias = sum(biases, x.new_zeros(rnn.hidden_size))
            first = getattr(rnn, f"initial_state{end}", x.new_zeros(rnn.hidden_size))
            w, u = getattr(rnn, f"weight_hh{end}"), getattr(rnn, f"weight_ih{end}")
            out: list[list[Tensor]] = [[x.new_zeros(rnn.hidden_size)] * rows for _ in range(steps)]
            last = []
            for row in range(rows):
                h = first if hx is None else hx[place, row]
                times = range(lengths[row])
                for t in reversed(times) if way else times:
                    z = w @ h + u @ below[t, row] + bias
                    h = torch.linalg.solve(s, (s @ z).tanh())
                    out[t][row] = h
                last.append(h)
            outputs.append(torch.stack([torch.stack(at) for at in out]) if steps else x.new_zeros(0, rows, rnn.hidden_size))
            finals.append(torch.stack(last))
        below = torch.cat(outputs, dim=-1)
    return below, torch.stack(finals)


def everything(rnn: sr.RNN, run: Callable[..., tuple[Tensor, Tensor]], *inputs: Tensor, **more: Any) -> dict[str, Tensor]:
    """Return outputs, final states and the gradients of inputs and parameters."""
    leaves = {f"input {place}": x.detach().clone().requires_grad_() for place, x in enumerate(inputs)}
    output, h_n = run(*leaves.values(), **more)
    generator = torch.Generator().manual_seed(1)
    weights = [torch.randn(t.shape, generator=generator, dtype=torch.float64).to(t.dtype) for t in (output, h_n)]
    total = (output * weights[0]).sum() + (h_n * weights[1]).sum()
    wanted = leaves | {name: p for name, p in rnn.named_parameters() if p.requires_grad}
    found = torch.autograd.grad(total, list(wanted.values()), allow_unused=True, materialize_grads=True)
    return {"output": output, "h_n": h_n, **dict(zip(wanted, found, strict=True))}


def assert_formula(rnn: sr.RNN, *inputs: Tensor, **more: Any) -> None:
    """Compare a layer with the formula in float64: up to rounding, or up to what the reference engine is off by."""
    exact, found = copy.deepcopy(rnn).double(), everything(rnn, rnn, *inputs, **more)
    truth = everything(exact, lambda *a, **k: explicit(exact, *a, **k), *(x.double() for x in inputs), **more)
    if found["output"].dtype == torch.float64:
        for name, value in truth.items():
            assert_equal_up_to_rounding(found[name], value, 16 * max(1, len(inputs[0])))
        return
    reference = copy.deepcopy(rnn)
    reference.engine = "reference"
    assert_within_budget(found, truth, errors(everything(reference, reference, *inputs, **more), truth))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("hidden", [1, 2, 5, 16])
@pytest.mark.parametrize("steps", [1, 7])
@pytest.mark.parametrize("basis", BASES)
def test_layer_computes_the_formula_and_its_gradients(basis: str, steps: int, hidden: int, dtype: torch.dtype) -> None:
    rnn = make(basis, hidden, transition="cayley", dtype=dtype)
    assert_formula(rnn, data(steps, dtype), torch.randn(1, ROWS, hidden, dtype=dtype))


@pytest.mark.parametrize("engine", ["auto", "reference", "cpu"])
@pytest.mark.parametrize("bias", [True, "single", False])
@pytest.mark.parametrize("basis", BASES)
def test_stack_both_ways_computes_the_formula(basis: str, bias: Any, engine: str) -> None:
    rnn = make(basis, 4, num_layers=2, bidirectional=True, bias=bias, learn_initial_state=True, engine=engine)
    assert_formula(rnn, data())
    assert_formula(rnn, data(), torch.randn(4, ROWS, 4, dtype=torch.float64))


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("name", CONSTRAINTS)
def test_every_transition_computes_the_formula(name: str, recompute: bool) -> None:
    for basis in BASES:
        assert_formula(make(basis, transition=name, recompute=recompute), data())


def test_factors_are_kept_with_a_diagonal_basis_only() -> None:
    x, state = torch.zeros(0, 1, WIDTH), (torch.zeros(1, 64),)
    found = {}
    for basis in BASES:
        rnn = make(basis, 64, transition=sr.Spectral(reflectors=1), dtype=torch.float32)
        run = rnn._recurrence(x, state, "_l0", None, False, False, rnn._coordinates("_l0"))
        found[basis] = isinstance(run.weight_hh, DiagonalLowRank)
        assert_formula(rnn, data(dtype=torch.float32))
    assert found == {"full": False, "diagonal": True}


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("basis", BASES)
def test_lengths_compute_the_formula_and_a_row_of_none_returns_its_state(basis: str, bidirectional: bool) -> None:
    rnn = make(basis, num_layers=2, bidirectional=bidirectional)
    x, lengths = data(), [2, 0, 5]
    hx = torch.randn(2 * rnn.directions, ROWS, HIDDEN, dtype=torch.float64)
    assert_formula(rnn, x, hx, lengths=lengths)
    output, h_n = rnn(x, hx, lengths=lengths)
    assert torch.equal(h_n[:, 1], hx[:, 1])
    assert not output[2:, 0].any()
    assert not output[:, 1].any()


def test_packed_rows_are_those_of_each_row() -> None:
    rnn, x = make(num_layers=2, bidirectional=True), data()
    packed = pack_padded_sequence(x, torch.tensor([2, 5, 1]), enforce_sorted=False)
    output, h_n = rnn(packed)
    assert isinstance(output, PackedSequence)
    expected, last = explicit(rnn, x, lengths=[2, 5, 1])
    assert_equal_up_to_rounding(pad_packed_sequence(output)[0], expected, STEPS)
    assert_equal_up_to_rounding(h_n, last, STEPS)


def test_no_steps_return_the_state() -> None:
    rnn, hx = make(), torch.randn(1, ROWS, HIDDEN, dtype=torch.float64)
    output, h_n = rnn(data(0), hx)
    assert output.shape == (0, ROWS, HIDDEN)
    assert torch.equal(h_n, hx)


def test_batch_first_and_unbatched_are_other_forms_of_the_same() -> None:
    rnn = make()
    first = make(batch_first=True)
    first.load_state_dict(rnn.state_dict())
    x = data()
    assert_equal_up_to_rounding(first(x.transpose(0, 1))[0].transpose(0, 1), rnn(x)[0])
    assert_equal_up_to_rounding(rnn(x[:, 0])[0], rnn(x)[0][:, 0], STEPS)


def test_chunks_are_the_whole_run() -> None:
    rnn, x = make(num_layers=2), data()
    output, h_n = rnn(x)
    before, state = rnn(x[:2])
    behind, last = rnn(x[2:], state)
    assert_equal_up_to_rounding(torch.cat([before, behind]), output, STEPS)
    assert_equal_up_to_rounding(last, h_n, STEPS)


def test_dropout_is_between_layers() -> None:
    rnn = make(num_layers=2, dropout=0.5)
    x = data()
    assert not torch.equal(rnn(x)[0], rnn(x)[0])
    assert_equal_up_to_rounding(rnn.eval()(x)[0], explicit(rnn, x)[0], STEPS)


@given(exponent=st.integers(-12, -4), seed=st.integers(0, 2**32 - 1))
def test_small_scales_approach_the_linear_network(exponent: int, seed: int) -> None:
    """tanh(z) is z up to |z|^3 / 3, so each step is linear up to d^2 |z|^3 / 3, and V turns nothing but the error."""
    torch.manual_seed(seed)
    start = 2.0**exponent
    rnn = sr.RNN(WIDTH, HIDDEN, nonlinearity=sr.AdaptiveTanh(start=start), transition="ornn", dtype=torch.float64)
    linear = sr.RNN(WIDTH, HIDDEN, nonlinearity="identity", transition="ornn", dtype=torch.float64)
    linear.load_state_dict({key: value for key, value in rnn.state_dict().items() if not key.startswith("saturation")})
    x = data()
    output, _ = linear(x)
    most = float(output.detach().norm(dim=-1).max()) + 1
    assert float((rnn(x)[0] - output).detach().norm(dim=-1).max()) <= STEPS * start**2 * most**3


def test_diagonal_basis_of_scale_one_is_the_plain_network() -> None:
    rnn, plain = make("diagonal"), sr.RNN(WIDTH, HIDDEN, dtype=torch.float64)
    with torch.no_grad():
        rnn.saturation_l0.log_scale.zero_()
    plain.load_state_dict({key: value for key, value in rnn.state_dict().items() if not key.startswith("saturation")})
    x = data()
    assert torch.equal(rnn(x)[0], plain(x)[0])


@pytest.mark.parametrize("basis", BASES)
def test_gradients_are_exact(basis: str) -> None:
    rnn = make(basis, 3, transition="spectral", engine="reference")
    names, parameters = zip(*rnn.named_parameters(), strict=True)
    leaves = [p.detach().clone().requires_grad_() for p in parameters]

    def run(x: Tensor, *values: Tensor) -> tuple[Tensor, Tensor]:
        return torch.func.functional_call(rnn, dict(zip(names, values, strict=True)), (x,))  # type: ignore[no-any-return]

    x = torch.randn(3, 2, WIDTH, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(run, (x, *leaves))
    assert torch.autograd.gradgradcheck(run, (x, *leaves))


def test_layer_starts_at_the_identity_and_the_given_scale() -> None:
    for basis in BASES:
        rnn = sr.RNN(WIDTH, HIDDEN, nonlinearity=sr.AdaptiveTanh(basis, start=0.25), dtype=torch.float64)
        wanted = 0.25 * torch.eye(HIDDEN, dtype=torch.float64)
        assert_equal_up_to_rounding(rnn.saturation_l0.matrix(), wanted)
        move(rnn).reset_parameters()
        assert_equal_up_to_rounding(rnn.saturation_l0.matrix(), wanted)


def test_every_layer_and_direction_has_its_own() -> None:
    rnn = make(num_layers=2, bidirectional=True)
    ends = ("_l0", "_l0_reverse", "_l1", "_l1_reverse")
    keys = {key for key in rnn.state_dict() if key.startswith("saturation")}
    inner = ("log_scale", "basis.raw0", "basis.constraint.factor.base")
    assert keys == {f"saturation{end}.{name}" for end in ends for name in inner}
    assert {key for key in make("diagonal").state_dict() if key.startswith("sat")} == {"saturation_l0.log_scale"}


def test_scales_stay_positive_and_finite() -> None:
    rnn = make("diagonal")
    for value in (-1e30, 1e30):
        with torch.no_grad():
            rnn.saturation_l0.log_scale.fill_(value)
        scale = rnn.saturation_l0.matrix().diagonal()
        assert ((scale > 0) & scale.isfinite()).all()
        assert rnn(data())[0].isfinite().all()


@pytest.mark.parametrize("basis", BASES)
def test_layer_can_be_copied_saved_and_loaded(basis: str) -> None:
    rnn, x = make(basis, num_layers=2, transition="cayley"), data()
    expected = rnn(x)[0]
    file = io.BytesIO()
    torch.save(rnn, file)
    file.seek(0)
    other = sr.RNN(WIDTH, HIDDEN, 2, sr.AdaptiveTanh(basis), transition="cayley", dtype=torch.float64)
    other.load_state_dict(rnn.state_dict())
    for twin in (copy.deepcopy(rnn), torch.load(file, weights_only=False), other):
        assert torch.equal(twin(x)[0], expected)
    assert rnn.explain().startswith("RNN ran on")


def test_layer_can_be_made_on_the_meta_device() -> None:
    rnn = make(transition="cayley")
    with torch.device("meta"):
        other = sr.RNN(WIDTH, HIDDEN, nonlinearity="adaptive_tanh", transition="cayley", dtype=torch.float64)
    other.load_state_dict(rnn.state_dict(), assign=True)
    x = data()
    assert torch.equal(other(x)[0], rnn(x)[0])


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("basis", BASES)
def test_compiled_layer_gives_the_same(basis: str) -> None:
    torch._dynamo.reset()
    rnn = make(basis, transition="cayley")
    run: Any = torch.compile(rnn, fullgraph=True, backend="aot_eager")
    hx, lengths = torch.randn(1, ROWS, HIDDEN, dtype=torch.float64), torch.tensor([2, 0, 5])
    x = data()
    for more in ({}, {"lengths": lengths}):
        fast, plain = (everything(rnn, each, x, hx, **more) for each in (run, rnn))
        for name, value in plain.items():
            assert_equal_up_to_rounding(fast[name], value, 16 * STEPS)
    torch._dynamo.reset()


@pytest.mark.parametrize("basis", BASES)
def test_coordinates_are_float32_under_autocast_and_in_half_precision(basis: str) -> None:
    rnn, x = make(basis, transition="cayley", dtype=torch.float32), data(dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        assert rnn._coordinates("_l0").dtype == torch.float32  # type: ignore[union-attr]
        output, h_n = rnn(x)
    assert output.dtype == h_n.dtype == torch.bfloat16
    half = copy.deepcopy(rnn).bfloat16()
    assert half._coordinates("_l0").dtype == torch.float32  # type: ignore[union-attr]
    truth = {"output": explicit(copy.deepcopy(rnn).double(), x.double())[0]}
    rnn.engine = "reference"
    with torch.autocast("cpu", torch.bfloat16):
        reference = errors({"output": rnn(x)[0]}, truth)
    assert_within_budget({"output": output}, truth, reference)
    assert half(x.bfloat16())[0].dtype == torch.bfloat16


@pytest.mark.parametrize("bias", [True, "single", False])
@pytest.mark.parametrize("basis", BASES)
def test_cell_is_one_step_of_the_layer(basis: str, bias: Any) -> None:
    cell: Any = sr.RNNCell(WIDTH, HIDDEN, bias, sr.AdaptiveTanh(basis), dtype=torch.float64, learn_initial_state=True)
    move(cell)
    rnn = make(basis, bias=bias, learn_initial_state=True)
    names = {name: name.replace("saturation.", "saturation_l0.") for name in cell.state_dict()}
    names = {name: new if "saturation" in name else f"{name}_l0" for name, new in names.items()}
    rnn.load_state_dict({names[name]: value for name, value in cell.state_dict().items()})
    x, h = data(), None
    with sr.cached():
        steps = []
        for at in x:
            h = cell(at, h)
            steps.append(h)
    assert_equal_up_to_rounding(torch.stack(steps), rnn(x)[0], STEPS)
    assert_equal_up_to_rounding(cell(x[0, 0]), rnn(x[:1, 0])[0][0], STEPS)


def test_inside_cached_a_layer_gives_the_same() -> None:
    rnn, x = make(transition="cayley"), data()
    with sr.cached():
        assert torch.equal(rnn(x)[0], rnn(x)[0])
        inside = rnn(x)[0]
    assert torch.equal(inside, rnn(x)[0])


def test_the_skew_matrix_is_trained_with_the_transition_and_the_scales_with_the_rest() -> None:
    rnn = make(transition="cayley")
    raw, rest = sr.parameter_groups(rnn, lr=1e-3, transition_lr=1e-4)
    assert {id(p) for p in raw["params"]} == {id(rnn.transition_l0.h.raw0), id(rnn.saturation_l0.basis.raw0)}
    assert any(p is rnn.saturation_l0.log_scale for p in rest["params"])
    model = sr.SequenceModel(rnn, 1)
    freeze_input_and_output(model)
    learned = {name for name, p in model.named_parameters() if p.requires_grad}
    assert learned == {"rnn.transition_l0.h.raw0", "rnn.saturation_l0.log_scale", "rnn.saturation_l0.basis.raw0"}


def test_an_average_is_in_the_set() -> None:
    rnn = make(transition="cayley")
    average = sr.averaged(rnn, decay=0.5)
    move(rnn)
    average.update_parameters(rnn)
    v = average.module.saturation_l0.basis.weight()
    assert_equal_up_to_rounding(v @ v.mT, torch.eye(HIDDEN, dtype=torch.float64), HIDDEN)
    assert average(data())[0].isfinite().all()


def test_training_moves_scales_and_rotation() -> None:
    rnn = sr.RNN(WIDTH, HIDDEN, nonlinearity=sr.AdaptiveTanh(start=1.0), transition="cayley")
    optimizer, x = torch.optim.Adam(rnn.parameters(), 1e-2), data(dtype=torch.float32)
    before, first = rnn.saturation_l0.matrix(), None
    for _ in range(20):
        optimizer.zero_grad()
        loss = (rnn(x)[0] - 0.3).square().mean()
        loss.backward()
        optimizer.step()
        first = float(loss) if first is None else first
    assert float(loss) < first  # type: ignore[operator]
    after = rnn.saturation_l0.matrix()
    assert not torch.equal(before.diagonal(), after.diagonal())
    assert after.tril(-1).any()


@pytest.mark.parametrize(
    "options", [{}, {"num_layers": 3, "bidirectional": True, "learn_initial_state": True}, {"bias": False}]
)
@pytest.mark.parametrize("basis", BASES)
def test_equivalent_network_has_the_states_in_other_coordinates(basis: str, options: dict[str, Any]) -> None:
    rnn, x = make(basis, transition="cayley", **options), data()
    plain = rnn.as_tanh()
    assert plain.nonlinearity == "tanh"
    assert not any("saturation" in key for key in plain.state_dict())
    output, h_n = plain(x, lengths=[5, 0, 2])
    s = [getattr(rnn, f"saturation{end}").matrix() for end in rnn.suffixes()]
    expected, last = rnn(x, lengths=[5, 0, 2])
    top = s[-rnn.directions :]
    parts = [part @ own.mT for part, own in zip(expected.split(HIDDEN, dim=-1), top, strict=True)]
    assert_equal_up_to_rounding(output, torch.cat(parts, dim=-1), 16 * STEPS)
    assert_equal_up_to_rounding(h_n, torch.stack([h @ own.mT for h, own in zip(last, s, strict=True)]), 16 * STEPS)


def test_a_certificate_of_the_equivalent_network_bounds_the_network() -> None:
    stable = 0
    for seed in range(10):
        torch.manual_seed(seed)
        rnn = make(transition=sr.SpectralBall(0.4))
        certificate: Any = sr.certify(rnn.as_tanh(), input_bound=1.0)
        x = torch.nn.functional.normalize(data(200), dim=-1)
        d = rnn.saturation_l0.matrix().norm(dim=0)
        assert float(rnn(x)[0].detach().norm(dim=-1).max()) <= certificate.state_bound / float(d.min())
        stable += certificate.stable
        if certificate.stable:  # forgotten in h', and so in h
            steps = certificate.horizon(1e-3)
            error = rnn(x)[1] - rnn(x[-steps:])[1]
            assert float(error.detach().norm(dim=-1).max()) <= 1e-3 / float(d.min())
    assert stable >= 3


def test_a_contraction_need_not_stay_one_in_a_full_basis() -> None:
    """||W|| < 1 says nothing of W' = S W S^-1: why a certificate must not be read off W."""
    rnn = sr.RNN(1, 2, nonlinearity=sr.AdaptiveTanh(), transition="free", bias=False, dtype=torch.float64)
    with torch.no_grad():
        rnn.weight_hh_l0.copy_(torch.tensor([[0.0, 0.9], [-0.9, 0.0]]))
        rnn.saturation_l0.log_scale.copy_(torch.tensor([0.0, 3.0]))
    assert torch.linalg.matrix_norm(rnn.as_tanh().weight_hh_l0, 2) > 1 > torch.linalg.matrix_norm(rnn.weight_hh_l0, 2)


def test_spectrum_is_that_of_the_weight_that_is_kept_in_its_set() -> None:
    values = sr.spectrum(make(transition="cayley"))
    assert list(values) == ["weight_hh_l0.h"]
    assert_equal_up_to_rounding(values["weight_hh_l0.h"], torch.ones(HIDDEN, dtype=torch.float64))


def test_gradient_of_the_initial_state_is_that_of_the_states_outside() -> None:
    rnn, x = make(), data()
    found = initial_state_gradient(rnn, lambda hx: rnn(x, hx)[0].square().mean(), rows=ROWS)
    hx = torch.zeros(1, ROWS, HIDDEN, dtype=torch.float64, requires_grad=True)
    (expected,) = torch.autograd.grad(explicit(rnn, x, hx)[0].square().mean(), hx)
    assert math.isclose(found.shared, float(expected.sum(1).norm()), rel_tol=1e-9)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::torch.jit.TracerWarning")
def test_exported_graph_gives_the_same() -> None:
    rnn, x = make(transition="spectral").eval(), data()
    exported: Any = torch.export.export(rnn, (x,)).module()
    assert_equal_up_to_rounding(exported(x)[0], rnn(x)[0], STEPS)
    traced: Any = torch.jit.trace(rnn, (x,))
    assert_equal_up_to_rounding(traced(x)[0], rnn(x)[0], STEPS)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning", "ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("basis", BASES)
def test_onnx_file_by_trace_gives_the_same(basis: str) -> None:
    ort = pytest.importorskip("onnxruntime")
    rnn, x, file = make(basis, dtype=torch.float32).eval(), data(dtype=torch.float32), io.BytesIO()
    torch.onnx.export(rnn, (x,), file, dynamo=False)
    session = ort.InferenceSession(file.getvalue())
    (found, _) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    assert_equal_up_to_rounding(torch.from_numpy(found), rnn(x)[0], 16 * STEPS)


def test_coordinates_invert_each_other() -> None:
    found = make().saturation_l0.evaluate()
    assert isinstance(found, Coordinates)
    h = torch.randn(4, HIDDEN, dtype=torch.float64)
    assert_equal_up_to_rounding(found.leave(found.enter(h)), h)
    assert_equal_up_to_rounding(
        found.divide(found.times(torch.eye(HIDDEN)).mT @ found.times(torch.eye(HIDDEN))), found.times(torch.eye(HIDDEN)).mT
    )


def test_module_prints_its_basis() -> None:
    text = repr(nn.Sequential(make("diagonal")))
    assert "nonlinearity=AdaptiveTanh(basis='diagonal', start=0.05)" in text
    assert "Saturation(basis='diagonal'" in text


@pytest.mark.parametrize("basis", ["full", "diagonal"])
def test_the_plain_network_and_the_matrix_are_the_same_under_autocast(basis: str) -> None:
    rnn = make(basis)
    found = [rnn.saturation_l0.matrix(), *rnn.as_tanh().state_dict().values()]
    with torch.autocast("cpu", torch.bfloat16):
        cast = [rnn.saturation_l0.matrix(), *rnn.as_tanh().state_dict().values()]
    for one, other in zip(found, cast, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("basis", ["full", "diagonal"])
def test_reset_parameters_starts_anew_whatever_memory_held(basis: str) -> None:
    rnn = sr.RNN(2, 3, nonlinearity=sr.AdaptiveTanh(basis, start=0.5), device="meta").to_empty(device="cpu")
    with torch.no_grad():
        for tensor in rnn.state_dict().values():
            tensor.fill_(7.0)
    rnn.reset_parameters()
    torch.testing.assert_close(rnn.saturation_l0.matrix(), 0.5 * torch.eye(3))
