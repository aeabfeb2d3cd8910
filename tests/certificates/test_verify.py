"""A bound on the error of any outputs: never below the true one, close to it where it can be, and refused by name."""

import copy
from dataclasses import dataclass
from fractions import Fraction
from importlib import import_module
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_sequence, pad_packed_sequence

import steadyrnn as sr
from steadyrnn.activations import Activation
from steadyrnn.certificates.layer import read_weights
from steadyrnn.certificates.rounding import local_rounding, sizes_of
from steadyrnn.engines import replay
from steadyrnn.engines.base import Recurrence
from steadyrnn.errors import ArgumentError, ArgumentTypeError, CertificateError, DtypeError, NotFiniteError, ShapeError
from tests.certificates.runs import KINDS, NORMS, exact, layer_of, tampered, unit_inputs, wrong
from tests.parallel.layers import GATED, gated_of, rnn_of

WAYS = ("nothing", "one entry", "one step", "from then on", "last", "everywhere", "drift", "zero", "swapped rows", "shifted")
FORMS: tuple[dict[str, Any], ...] = ({}, {"num_layers": 2}, {"bidirectional": True}, {"num_layers": 2, "bidirectional": True})


def holds(layer: nn.Module, x: Tensor, output: Tensor, hx: Any = None, **options: Any) -> sr.Verification:
    """Check the bound of every row and time against the exact run; return it."""
    truth, slack = exact(layer, x, hx, **options)
    found = sr.verify(layer, x, output, hx, **options)
    errors = wrong(output, truth)
    assert found.errors.shape == errors.shape
    assert bool((errors <= found.errors + slack).all())
    assert found.error == float(found.errors.max())
    return found


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_a_run_of_any_precision_is_within_its_bound(kind: str, dtype: torch.dtype) -> None:
    layer, x = layer_of(kind, dtype), unit_inputs(400, 3, 5, dtype=dtype)
    with torch.no_grad():
        output = layer(x)[0]
    found = holds(layer, x, output)
    assert found.rate < 1
    assert found.error < 1e4 * torch.finfo(dtype).eps or kind == "weighted 2-norm"  # whose condition is 2000


def test_the_rounding_of_the_check_itself_is_in_the_bound() -> None:
    """A run in float64, the precision of the check, leaves next to nothing over: its error is in exact arithmetic."""
    rnn = sr.RNN(1, 1, nonlinearity="identity", bias=False, dtype=torch.float64)
    with torch.no_grad():
        rnn.weight_hh_l0.fill_(0.9)
        rnn.weight_ih_l0.fill_(0.7)
        x = torch.rand(200, 1, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        output = rnn(x)[0]
    bounds, truth = sr.verify(rnn, x, output).errors.flatten().tolist(), Fraction(0)
    for entered, computed, bound in zip(x.flatten().tolist(), output.flatten().tolist(), bounds, strict=True):
        truth = Fraction(0.9) * truth + Fraction(0.7) * Fraction(entered)
        assert abs(Fraction(computed) - truth) <= Fraction(bound)


def test_products_of_fewer_digits_between_calls_are_not_used_in_a_proof() -> None:
    layer, x = layer_of("quadratic norm", torch.float64), unit_inputs(200, 2, 5)
    with torch.no_grad():
        output = tampered(layer(x)[0], "everywhere", 1e-3, 0)
    holds(layer, x, output)  # from now on the norm lies ready
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("medium")
        holds(layer, x, output)
    finally:
        torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize("kind", NORMS)
def test_the_norm_is_the_one_that_proves_most(kind: str) -> None:
    layer, x = layer_of(kind), unit_inputs(50, 1, 5, dtype=torch.float32)
    assert sr.verify(layer, x, layer(x)[0]).norm == kind or kind == "2-norm"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=3, deadline=None)
@given(size=st.sampled_from([1e-9, 1e-3, 1.0, 30.0, 1e6]), seed=st.integers(0, 10**6))
def test_no_hand_makes_outputs_worse_than_their_bound(kind: str, way: str, size: float, seed: int) -> None:
    layer, x = layer_of(kind, torch.float64), unit_inputs(60, 2, 5)
    with torch.no_grad():
        output = tampered(layer(x)[0], way, size, seed)
    holds(layer, x, output)


@pytest.mark.parametrize("kind", KINDS)
def test_an_adversary_who_climbs_the_error_does_not_beat_the_bound(kind: str) -> None:
    """Gradient steps on true error over bound: outputs as bad as can be found for what their residuals show."""
    layer, x = layer_of(kind, torch.float64), unit_inputs(40, 1, 5)
    truth, slack = exact(layer, x)
    push = 1e-3 * torch.randn(truth.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for _ in range(12):
        changed = (truth + push).requires_grad_()
        before = torch.cat([torch.zeros_like(changed[:1]), changed[:-1]]).unflatten(0, (1, 40)).transpose(0, 1)
        gap = (changed - truth).norm(dim=-1).max()
        step = changed - truth - 0.8 * (before[:, 0] - torch.cat([torch.zeros_like(truth[:1]), truth[:-1]]))
        (gap.log() - step.norm(dim=-1).max().log()).backward()
        push = (push + 1e-4 * changed.grad / changed.grad.norm()).detach()
        found = sr.verify(layer, x, truth + push)
        assert bool((wrong(truth + push, truth) <= found.errors + slack).all())


@pytest.mark.parametrize("rate", [0.5, 0.9, 0.99])
def test_the_bound_is_met_where_states_decay_no_faster_than_proven(rate: float) -> None:
    rnn = rnn_of(rate, "identity", bias=False)
    with torch.no_grad():
        rnn.weight_hh_l0.copy_(rate * torch.eye(12, dtype=torch.float64))
    x = unit_inputs(3000, 1, 5)
    truth, slack = exact(rnn, x)
    found = sr.verify(rnn, x, truth + 1e-3 * torch.linspace(1, 2, 12, dtype=torch.float64), effort="fast")
    first = 1e-3 * float(torch.linspace(1, 2, 12, dtype=torch.float64).norm())
    assert first <= found.error <= first * (1 - rate) / (1 - found.rate) * (1 + 1e-9) + 2 * slack


@pytest.mark.parametrize(
    ("size", "rate", "name", "true", "bound"),
    [
        (64, 0.9, "tanh", 3.0e-7, 2.1e-6),
        (64, 0.9, "relu", 2.9e-7, 1.5e-6),
        (64, 0.99, "tanh", 3.1e-7, 1.9e-5),
        (128, 0.9, "tanh", 4.0e-7, 3.0e-6),
    ],
)
def test_a_float32_run_has_the_error_and_the_bound_of_the_check_figures(
    size: int, rate: float, name: str, true: float, bound: float
) -> None:
    """Eight inputs of norm 1, 4000 steps; the a-priori bound on rounding is a thousand times the one from residuals.

    The figures are one draw on one machine. The order in which a product is summed is the machine's, and moves them by up to
    1.6 (rows in batches of 8, instead of one, do so here): hence the factor of 2. The bound itself is compared with the
    recursion that it stands for.
    """
    torch.manual_seed(0)
    rnn = nn.RNN(8, size, nonlinearity=name, bias=False)
    with torch.no_grad():
        w = torch.randn(size, size, dtype=torch.float64)
        rnn.weight_hh_l0.copy_(w * (rate * (1 - 1e-6) / torch.linalg.matrix_norm(w, 2)))
        rnn.weight_ih_l0.normal_(0, 8**-0.5)
        x = nn.functional.normalize(torch.randn(4000, 1, 8), dim=-1)
        output = rnn(x)[0]
    truth, _ = exact(rnn, x)
    error, found = float(wrong(output, truth).max()), sr.verify(rnn, x, output, effort="fast")
    slack = sr.verify(copy.deepcopy(rnn).double(), x.double(), truth, effort="fast").error  # float64's own, here and there
    wide = output.detach().double()
    before = torch.cat([torch.zeros_like(wide[:1]), wide[:-1]])
    sums = before @ rnn.weight_hh_l0.detach().double().mT + x.double() @ rnn.weight_ih_l0.detach().double().mT
    step, carried = (wide - getattr(torch, name)(sums)).norm(dim=-1).flatten().tolist(), 0.0
    for t, own in enumerate(step):
        carried = found.rate * carried + own
        assert carried <= float(found.errors[t]) <= carried + 2 * slack
    assert true / 2 < error < 2 * true
    assert bound / 2 < found.error < 2 * bound
    assert found.norm == "2-norm"
    run = Recurrence(read_weights(rnn)[0][0].cell, x, (output[0],), rnn.weight_ih_l0, rnn.weight_hh_l0)
    reached = float(truth.norm(dim=-1).max())
    assert 2 * local_rounding(run, sizes_of(run), reached, 1.0) / (1 - rate) > 300 * found.error


@pytest.mark.parametrize("kind", ["tanh", "relu", *GATED])
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_stacks_and_directions_are_within_their_bound(kind: str, form: dict[str, Any]) -> None:
    layer, x = layer_of(kind, **form), unit_inputs(300, 3, 5, dtype=torch.float32)
    with torch.no_grad():
        output = layer(x)[0]
    found = holds(layer, x, output)
    assert found.error < 1e-4
    assert len(found.layers) == layer.num_layers * layer.directions
    for way in ("one step", "everywhere", "shifted"):
        holds(layer, x, tampered(output, way, 0.3, 1))


@pytest.mark.parametrize("make", [nn.RNN, nn.GRU, nn.LSTM])
def test_an_error_of_the_layer_below_reaches_the_layer_above(make: type[nn.RNNBase]) -> None:
    """The lower layer runs in bfloat16, the upper one exactly on what came of it: all of the error is the lower one's."""
    torch.manual_seed(2)
    stack = make(5, 12, num_layers=2)
    below, top = make(5, 12), make(12, 12, dtype=torch.float64)
    with torch.no_grad():
        for name, parameter in stack.named_parameters():
            if "weight" in name:
                parameter.mul_(0.5 if make is nn.RNN else 0.1 if "hh" in name else 0.3)
            (below if name.endswith("l0") else top).get_parameter(name[:-1] + "0").copy_(parameter.bfloat16())
        stack, below, x = stack.bfloat16(), below.bfloat16(), unit_inputs(100, 2, 5, dtype=torch.bfloat16)
        output = top(sr.from_torch(below)(x)[0].double())[0]
    holds(stack, x, output)


@pytest.mark.parametrize("kind", ["tanh", *GATED])
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_rows_of_many_lengths_are_within_their_bound(kind: str, form: dict[str, Any]) -> None:
    layer, x = layer_of(kind, **form), unit_inputs(90, 6, 5, dtype=torch.float32)
    lengths = torch.tensor([5, 90, 0, 89, 33, 1])
    with torch.no_grad():
        output = layer(x, lengths=lengths)[0]
    found = holds(layer, x, output, lengths=lengths)
    assert float(found.errors[5:, 0].max()) == 0
    assert float(found.errors[:, 2].max()) == 0
    for way in ("one step", "everywhere", "drift"):  # also behind the ends of rows, where outputs are zero
        holds(layer, x, tampered(output, way, 0.3, 2), lengths=lengths)
    packed = pack_sequence([x[:n, row] for row, n in enumerate(lengths.tolist()) if n], enforce_sorted=False)
    with torch.no_grad():
        packed_output = layer(packed)[0]
    short = sr.verify(layer, packed, packed_output)
    truth = pad_packed_sequence(exact(layer, packed)[0])[0]
    assert short.errors.shape == (90, 5)
    assert bool((wrong(pad_packed_sequence(packed_output)[0], truth) <= short.errors + 1e-12 * short.error + 1e-14).all())
    changed = PackedSequence(packed_output.data + 1, *packed_output[1:])
    assert sr.verify(layer, packed, changed).error >= float(wrong(pad_packed_sequence(changed)[0], truth).max()) * (1 - 1e-12)


@pytest.mark.parametrize("kind", ["tanh", "LSTM"])
@pytest.mark.parametrize("batch_first", [False, True])
def test_errors_have_the_form_of_the_input(kind: str, batch_first: bool) -> None:
    layer = layer_of(kind, batch_first=batch_first)
    for shape, form in (((4, 30, 5), (4, 30)), ((30, 5), (30,))):
        x = unit_inputs(*shape, dtype=torch.float32)
        assert holds(layer, x, layer(x)[0]).errors.shape == form


@pytest.mark.parametrize("kind", ["tanh", "relu", *GATED])
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_a_run_starts_where_it_was_started(kind: str, form: dict[str, Any]) -> None:
    layer, x = layer_of(kind, **form), unit_inputs(60, 3, 5, dtype=torch.float32)
    h = 0.3 * torch.randn(layer.num_layers * layer.directions, 3, layer.hidden_size)
    hx = (h, 2 * h) if kind == "LSTM" else h
    with torch.no_grad():
        output = layer(x, hx)[0]
    assert holds(layer, x, output, hx).error < 1e-4
    assert sr.verify(layer, x, output).error > 1e-2  # from zero it is another run


@pytest.mark.parametrize("kind", ["tanh", "LSTM"])
def test_a_learned_initial_state_is_where_a_run_starts(kind: str) -> None:
    layer, x = layer_of(kind, learn_initial_state=True), unit_inputs(60, 3, 5, dtype=torch.float32)
    with torch.no_grad():
        layer.initial_state_l0.fill_(0.4)
    assert holds(layer, x, layer(x)[0]).error < 1e-4


@pytest.mark.parametrize("make", [nn.RNN, nn.GRU, nn.LSTM])
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_layers_of_torch_are_verified(make: type[nn.RNNBase], form: dict[str, Any]) -> None:
    torch.manual_seed(0)
    layer = make(5, 8, **form)
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            parameter.mul_(0.15 if "weight_hh" in name else 0.4)
        x = unit_inputs(200, 2, 5, dtype=torch.float32)
        output = layer(x)[0]
    assert holds(layer, x, output).error < 1e-4
    holds(layer, x, tampered(output, "everywhere", 0.1, 0))
    assert sr.verify(nn.ModuleDict({"inner": layer}), x, output).error < 1e-4


@pytest.mark.parametrize("engine", ["reference", "cpu"])
@pytest.mark.parametrize("kind", ["tanh", "LSTM", "GRU"])
def test_outputs_of_every_engine_are_verified(kind: str, engine: str) -> None:
    layer, x = layer_of(kind, engine=engine), unit_inputs(200, 2, 5, dtype=torch.float32)
    assert holds(layer, x, layer(x)[0]).error < 1e-4


def test_a_weight_in_factors_is_verified_against_its_matrix_too() -> None:
    torch.manual_seed(0)
    rnn = sr.RNN(5, 64, transition=sr.Spectral(reflectors=2, center=0.8, radius=0.1))
    x = unit_inputs(500, 1, 5, dtype=torch.float32)
    with torch.no_grad():
        output = rnn(x)[0]
        dense = sr.to_torch(rnn).double()(x.double())[0]
    assert float(wrong(output, dense).max()) <= sr.verify(rnn, x, output).error < 1e-3


@pytest.mark.parametrize("kind", ["tanh", "LSTM"])
@pytest.mark.parametrize(("steps", "batch"), [(0, 2), (30, 0), (1, 1)])
def test_a_run_of_nothing_has_no_error(kind: str, steps: int, batch: int) -> None:
    layer, x = layer_of(kind), unit_inputs(steps, batch, 5, dtype=torch.float32)
    found = sr.verify(layer, x, layer(x)[0])
    assert found.error < (1e-5 if steps * batch else 1e-300)
    assert found.errors.shape == (steps, batch)


def test_the_result_reads_and_goes_to_json() -> None:
    layer, x = layer_of("tanh", num_layers=2), unit_inputs(30, 1, 5, dtype=torch.float32)
    found = sr.verify(layer, x, layer(x)[0])
    assert f"within {found.error:.3g} (2-norm) of the exact run, rounding included" in str(found)
    told = found.to_dict()
    assert (told["error"], told["residual"], len(told["layers"])) == (found.error, found.residual, 2)
    assert 0 < found.residual <= found.error
    with pytest.raises(AttributeError):
        found.error = 0.0


def test_a_norm_is_looked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    layer, x = layer_of("tanh"), unit_inputs(30, 1, 5, dtype=torch.float32)
    output, calls = layer(x)[0], []
    from steadyrnn.certificates import verify as module

    search = module.certify_layer
    monkeypatch.setattr(module, "certify_layer", lambda *given: calls.append(1) or search(*given))
    module._KNOWN.clear()
    first = sr.verify(layer, x, output)
    assert sr.verify(layer, x, output) == first
    assert len(calls) == 1
    with torch.no_grad():
        layer.weight_hh_l0.mul_(0.5)
    assert sr.verify(layer, x, output).error > 1e-3
    assert len(calls) == 2


@pytest.mark.parametrize("kind", ["tanh", *GATED])
def test_a_weight_that_changed_behind_autograd_is_read_again(kind: str) -> None:
    layer, x = layer_of(kind), unit_inputs(60, 2, 5, dtype=torch.float32)
    sr.verify(layer, x, layer(x)[0])
    for parameter in layer.parameters():
        old = layer(x)[0].detach()
        parameter.data.mul_(0.5)
        assert bool((wrong(old, exact(layer, x)[0]) <= sr.verify(layer, x, old).errors + 1e-12).all())


# what is refused


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
@pytest.mark.parametrize("where", ["input", "output", "hx"])
@pytest.mark.parametrize("kind", ["tanh", "LSTM", "GRU"])
def test_what_is_not_finite_gets_an_error_and_no_number(kind: str, where: str, bad: float) -> None:
    layer, x = layer_of(kind), unit_inputs(30, 2, 5, dtype=torch.float32)
    output, h = layer(x)[0].detach(), torch.zeros(1, 2, layer.hidden_size)
    spoiled = {"input": x, "output": output, "hx": h}[where]
    spoiled.view(-1)[7] = bad
    with pytest.raises(NotFiniteError, match=f"`{where}`"):
        sr.verify(layer, x, output, (h, h) if kind == "LSTM" else h)


def test_states_whose_squares_overflow_are_refused() -> None:
    rnn, x = rnn_of(0.5), unit_inputs(30, 2, 5)
    output = rnn(x)[0].detach()
    output[3, 1] = 1e200
    with pytest.raises(NotFiniteError, match="overflow"):
        sr.verify(rnn, x, output)


def test_weights_that_are_not_finite_are_refused() -> None:
    rnn, x = layer_of("tanh"), unit_inputs(30, 2, 5, dtype=torch.float32)
    output = rnn(x)[0]
    with torch.no_grad():
        rnn.weight_hh_l0[0, 0] = float("nan")
    with pytest.raises(NotFiniteError):
        sr.verify(rnn, x, output)


@pytest.mark.parametrize("shape", [(30, 2, 11), (29, 2, 12), (30, 12), (2, 30, 12)])
def test_outputs_of_another_shape_are_refused(shape: tuple[int, ...]) -> None:
    rnn, x = layer_of("tanh"), unit_inputs(30, 2, 5, dtype=torch.float32)
    with pytest.raises(ShapeError, match=r"`output` must have shape \(30, 2, 12\)"):
        sr.verify(rnn, x, torch.zeros(shape))


def test_arguments_of_another_kind_are_refused_by_name() -> None:
    rnn, x = layer_of("tanh"), unit_inputs(30, 2, 5, dtype=torch.float32)
    output = rnn(x)[0].detach()
    packed = pack_sequence([x[:, 0], x[:9, 1]])
    other = pack_sequence([output[:, 0], output[:8, 1]])
    with pytest.raises(ArgumentTypeError, match="Give the first of what the layer returns"):
        sr.verify(rnn, x, rnn(x))
    with pytest.raises(ArgumentTypeError, match="`output` must have a real floating dtype"):
        sr.verify(rnn, x, output.long())
    with pytest.raises(ArgumentTypeError, match="`output` must be a PackedSequence"):
        sr.verify(rnn, packed, output)
    with pytest.raises((ArgumentError, ShapeError), match="`output` must"):
        sr.verify(rnn, packed, other)
    with pytest.raises(ArgumentTypeError, match="`hx` must be one tensor"):
        sr.verify(rnn, x, output, (output[0], output[0]))
    with pytest.raises(DtypeError):
        sr.verify(rnn, x.double(), output)
    with pytest.raises(ArgumentTypeError, match="takes one step"):
        sr.verify(sr.RNNCell(5, 12), x, output)
    with pytest.raises(ArgumentTypeError, match="`module` must be a recurrent layer or hold exactly one"):
        sr.verify(nn.Linear(5, 12), x, output)
    with pytest.raises(ArgumentError, match="`effort`"):
        sr.verify(rnn, x, output, effort="none")
    with pytest.raises(ArgumentError, match=r"`input` must have a 2-norm of at most 0.5 \(`input_bound`\), but reaches 0.99"):
        sr.verify(rnn, x, output, input_bound=0.5)


def test_dropout_at_work_is_refused_with_a_way_out() -> None:
    rnn, x = rnn_of(0.5, dtype=torch.float32, num_layers=2, dropout=0.5), unit_inputs(30, 2, 5, dtype=torch.float32)
    with pytest.raises(ArgumentError, match=r"`eval\(\)`"):
        sr.verify(rnn, x, rnn(x)[0])
    rnn.eval()
    assert holds(rnn, x, rnn(x)[0]).error < 1e-4


@pytest.mark.parametrize("kind", ["RNN", "LSTM", "GRU"])
@pytest.mark.parametrize("layers", [1, 2])
def test_what_does_not_contract_is_refused_with_its_rate(kind: str, layers: int) -> None:
    layer = getattr(nn, kind)(5, 8, num_layers=layers)
    with torch.no_grad():
        getattr(layer, f"weight_hh_l{layers - 1}").mul_(20)
        if layers == 2:
            layer.weight_hh_l0.mul_(0.1)
    x = unit_inputs(30, 2, 5, dtype=torch.float32)
    with pytest.raises(CertificateError, match=f"layer l{layers - 1} has lambda = .* >= 1"):
        sr.verify(layer, x, layer(x)[0])


@pytest.mark.parametrize("kind", GATED)
def test_a_gated_layer_is_proven_for_the_inputs_it_was_given(kind: str) -> None:
    layer = gated_of(kind, torch.float32)
    x = unit_inputs(60, 2, 5, dtype=torch.float32)
    output = layer(x)[0]
    assert sr.verify(layer, x, output, input_bound=1.0).rate >= sr.verify(layer, x, output).rate
    loud = 1e4 * x
    with pytest.raises(CertificateError, match="for entries of its input up to"):
        sr.verify(layer, loud, layer(loud)[0])


def test_the_layer_and_its_outputs_are_left_as_they_were() -> None:
    layer, x = layer_of("LSTM"), unit_inputs(60, 2, 5, dtype=torch.float32)
    output = layer(x)[0]
    before, weights = output.detach().clone(), copy.deepcopy(layer.state_dict())
    sr.verify(layer, x, output)
    assert torch.equal(output, before)
    assert all(torch.equal(a, b) for a, b in zip(weights.values(), layer.state_dict().values(), strict=True))
    output.sum().backward()
    assert layer.weight_hh_l0.grad is not None


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["tanh", "relu", *GATED])
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_a_gpu_proves_of_every_run_what_it_proves_of_a_first_one(kind: str, form: dict[str, Any]) -> None:
    """From the second call on a graph of the first is run; each run has numbers of its own, and is within its bound."""
    layer = layer_of(kind, torch.float64, **form)
    there = copy.deepcopy(layer).cuda()
    for repeat in range(4):
        x = unit_inputs(60, 3, 5) * (1 - 0.01 * repeat)
        truth, slack = exact(layer, x)
        output = truth.clone()
        output[30 + repeat, 1] += 10.0**-repeat
        found = sr.verify(there, x.cuda(), output.cuda())
        assert bool((wrong(output, truth) <= found.errors.cpu() + slack).all())
        replay._entries.clear()
        first = sr.verify(there, x.cuda(), output.cuda())
        torch.testing.assert_close(found.errors, first.errors, rtol=1e-12, atol=0)
        sr.verify(there, x.cuda(), output.cuda())  # by which a graph is captured again


def test_the_way_into_the_box_is_rounded_up_by_as_many_terms_as_it_has() -> None:
    """With zero weights the box is a point, and the norm of a constant output is known exactly."""
    size, entry = 4096, 1.4142135623730951e20
    gru = nn.GRU(1, size, bias=False)
    with torch.no_grad():
        for parameter in gru.parameters():
            parameter.zero_()
    for factor in (1.0, 1.1, 1.3, 1.7):
        output = torch.full((1, 1, size), factor * entry, dtype=torch.float64)
        found = sr.verify(gru, torch.zeros(1, 1, 1), output)
        assert Fraction(found.error) ** 2 >= size * Fraction(float(output[0, 0, 0])) ** 2


def scaled_tanh(scale: float) -> Activation:
    """Return an activation of a class that has the same name every time."""

    @dataclass(frozen=True)
    class Mine(Activation):
        name = "mine"
        slopes = (0.0, 1.0)
        steepness = (0.0, 1.0)
        smoothness = 2.0

        def value(self, x: Tensor, theta: Tensor | None = None) -> Tensor:
            return scale * torch.tanh(x)

        def derivative(self, x: Tensor, theta: Tensor | None = None) -> Tensor:
            return scale * (1 - torch.tanh(x) ** 2)

    return Mine()


def test_an_activation_that_is_defined_again_has_a_proof_of_its_own() -> None:
    x, outputs, layers = torch.randn(30, 2, 3), [], []
    for scale in (1.0, 0.5):
        torch.manual_seed(0)
        layers.append(sr.RNN(3, 8, nonlinearity=scaled_tanh(scale), transition=sr.SpectralBall(0.8)))
        outputs.append(layers[-1](x)[0].detach())
        assert sr.verify(layers[-1], x, outputs[-1]).error < 1e-5
    error = float((outputs[0] - outputs[1]).norm(dim=-1).max())
    assert sr.verify(layers[1], x, outputs[0]).error >= error > 0.1


def test_numbers_behind_the_end_whose_squares_underflow_are_errors() -> None:
    rnn, x = nn.RNN(2, 4, dtype=torch.float64), torch.randn(6, 2, 2, dtype=torch.float64)
    with torch.no_grad():
        rnn.weight_hh_l0.mul_(0.3)
        output = sr.from_torch(rnn)(x, lengths=[6, 3])[0]
    output[4, 1] = 1e-170
    found = sr.verify(rnn, x, output, lengths=[6, 3])
    assert float(found.errors[4, 1]) >= 2e-170
    assert float(found.errors[5, 1]) == 0


@pytest.mark.parametrize("kind", ["tanh", *GATED])
def test_a_default_device_changes_nothing(kind: str) -> None:
    layer, x = layer_of(kind), unit_inputs(30, 2, 5, dtype=torch.float32)
    output = layer(x)[0].detach()
    expected = sr.verify(layer, x, output).error
    import_module("steadyrnn.certificates.verify")._KNOWN.clear()
    with torch.device("meta"):
        assert sr.verify(layer, x, output).error == expected


def test_outputs_of_eight_bits_are_read() -> None:
    layer, x = layer_of("tanh"), unit_inputs(30, 2, 5, dtype=torch.float32)
    output = layer(x)[0].detach().to(torch.float8_e4m3fn)
    assert sr.verify(layer, x, output).error == sr.verify(layer, x, output.float()).error


@pytest.mark.gpu
def test_an_activation_that_waits_for_the_gpu_is_verified_again_and_again() -> None:
    """No graph can hold it, and an attempt would break torch's random numbers."""

    @dataclass(frozen=True)
    class Waiting(Activation):
        name = "waiting"
        slopes, steepness, smoothness = (0.0, 1.0), (0.0, 1.0), 2.0

        def value(self, x: Tensor, theta: Tensor | None = None) -> Tensor:
            return torch.tanh(x) if float(x.abs().max()) < 1e30 else torch.ones_like(x)

        def derivative(self, x: Tensor, theta: Tensor | None = None) -> Tensor:
            return 1 - torch.tanh(x) ** 2

    layer = sr.RNN(3, 8, nonlinearity=Waiting(), transition=sr.SpectralBall(0.8), device="cuda")
    for _ in range(4):
        x = torch.randn(30, 2, 3, device="cuda")
        assert sr.verify(layer, x, layer(x)[0].detach()).error < 1e-5
