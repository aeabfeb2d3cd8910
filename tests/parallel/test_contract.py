"""What the time-parallel layer reports, and what it refuses."""

import gc
import json
import math
from typing import Any

import pytest
import torch
from torch import nn

import steadyrnn as sr
from steadyrnn.errors import (
    ArgumentError,
    ArgumentTypeError,
    ConversionError,
    DtypeError,
    EngineError,
    NotFiniteError,
    ShapeError,
)
from steadyrnn.parallel.run import WindowRun
from tests.parallel.layers import GATED, gated_of, rnn_of, unit_inputs


def test_the_report_reads_and_goes_to_json() -> None:
    fast = sr.to_parallel(rnn_of(0.8), 1e-6, chunk=40)
    assert "not run yet" in str(fast.report)
    assert (fast.report.depth, fast.report.truncation) == (0, 0)
    fast(unit_inputs(300, 1, 5))[0].sum().backward()
    text, found = str(fast.report), json.loads(json.dumps(fast.report.to_dict()))
    assert "windows of 40" in text
    assert f"Contraction {fast.report.rate:.6g} in the quadratic norm" in text
    assert "Truncation changes the gradient by at most" in text
    assert "rounding is not in it" in text
    assert found["gradient"] == fast.report.gradient
    assert found["windows"] == fast.report.windows
    assert found["layers"][0]["engine"] == "cpu"
    assert fast.report.rate < 0.799999
    assert found["error"] == fast.report.error >= fast.report.truncation + fast.report.rounding
    assert "tol=1e-06, chunk=40" in repr(fast)


@pytest.mark.parametrize("rate", [1.0, 1.7])
def test_what_does_not_contract_is_refused_by_name(rate: float) -> None:
    rnn = rnn_of(1.0)
    with torch.no_grad():
        rnn.weight_hh_l0.copy_(rate * torch.eye(12))
    with pytest.raises(ConversionError, match=r"no certificate found: lambda = 1.* >= 1"):
        sr.to_parallel(rnn, 1e-6)


def test_an_unstable_gated_layer_is_refused_by_name() -> None:
    layer = gated_of("LSTM")
    with torch.no_grad():
        layer.weight_hh_l0.mul_(100)
    with pytest.raises(ConversionError, match=r"no certificate found: lambda = .* >= 1"):
        sr.to_parallel(layer, 1e-6, input_bound=1.0)


@pytest.mark.parametrize("module", [nn.Linear(2, 3), sr.RNNCell(2, 3), nn.GRUCell(2, 3)])
def test_what_is_no_recurrent_layer_is_refused(module: nn.Module) -> None:
    with pytest.raises(ConversionError, match="`rnn` must be an RNN, GRU or LSTM"):
        sr.to_parallel(module, 1e-6)


@pytest.mark.parametrize("layers", [1, 2])
def test_bidirectional_layers_are_refused(layers: int) -> None:
    with pytest.raises(ConversionError, match="`rnn` is bidirectional"):
        sr.to_parallel(sr.RNN(2, 3, num_layers=layers, bidirectional=True), 1e-6)


@pytest.mark.parametrize("kind", GATED)
def test_a_gated_layer_needs_an_input_bound(kind: str) -> None:
    with pytest.raises(ArgumentError, match="`input_bound` must be given"):
        sr.to_parallel(gated_of(kind), 1e-6)


@pytest.mark.parametrize("kind", ["RNN", "LSTM"])
def test_an_input_above_its_bound_is_refused_with_what_was_measured(kind: str) -> None:
    layer = rnn_of(0.8) if kind == "RNN" else gated_of(kind)
    fast = sr.to_parallel(layer, 1e-6, chunk=40, input_bound=1.0)
    x = unit_inputs(300, 2, 5)
    x[7, 1] *= 3
    with pytest.raises(ArgumentError, match=r"`input` must have a 2-norm of at most 1 .* but reaches 2\.997"):
        fast(x)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("bound", [None, 1.0])
def test_inputs_that_are_not_finite_are_refused(bad: float, bound: float | None) -> None:
    fast = sr.to_parallel(rnn_of(0.8), 1e-6, chunk=40, input_bound=bound)
    x = unit_inputs(300, 2, 5)
    x[250, 1, 0] = bad
    with pytest.raises(NotFiniteError, match="`input`"):
        fast(x)


@pytest.mark.parametrize("time", [0, 200, 290, 299])
def test_states_that_overflow_are_refused(time: int) -> None:
    rnn = sr.RNN(2, 4, nonlinearity="relu")
    with torch.no_grad():
        rnn.weight_hh_l0.mul_(0.5 / torch.linalg.matrix_norm(rnn.weight_hh_l0, 2))
        rnn.weight_ih_l0.fill_(10.0)
    x = torch.zeros(300, 1, 2)
    x[time] = 3e38
    with pytest.raises(NotFiniteError, match="`input`"):
        sr.to_parallel(rnn, 1e-4, chunk=40)(x)


def test_what_is_refused_is_not_held_on_to() -> None:
    fast, x = sr.to_parallel(rnn_of(0.8), 1e-6, chunk=40), unit_inputs(300, 2, 5)
    x[250, 1, 0] = math.nan
    gc.collect()
    gc.disable()  # a GPU's memory would not wait for it either
    try:
        for _ in range(3):
            with pytest.raises(NotFiniteError):
                fast(x)
        assert not any(type(thing) is WindowRun for thing in gc.get_objects())
    finally:
        gc.enable()


@pytest.mark.parametrize("kind", ["RNN", "LSTM"])
def test_states_that_are_not_finite_are_refused(kind: str) -> None:
    layer = rnn_of(0.8, size=8) if kind == "RNN" else gated_of(kind)
    h = torch.full((1, 2, 8), math.nan, dtype=torch.float64)
    with pytest.raises(NotFiniteError, match="`hx`"):
        sr.to_parallel(layer, 1e-6, chunk=40, input_bound=1.0)(unit_inputs(300, 2, 5), (h, h) if kind == "LSTM" else h)


def test_weights_that_are_not_finite_are_refused() -> None:
    rnn = rnn_of(0.8)
    fast = sr.to_parallel(rnn, 1e-6, chunk=40)
    with torch.no_grad():
        rnn.weight_hh_l0[0, 0] = math.nan
    with pytest.raises(NotFiniteError, match="weight_hh"):
        fast(unit_inputs(300, 2, 5))


@pytest.mark.parametrize(("arguments", "error_type", "name"), [
    ({"tol": 0.0}, ArgumentError, "tol"),
    ({"tol": -1.0}, ArgumentError, "tol"),
    ({"tol": math.nan}, NotFiniteError, "tol"),
    ({"tol": "small"}, ArgumentTypeError, "tol"),
    ({"tol": 1e-6, "chunk": 0}, ArgumentError, "chunk"),
    ({"tol": 1e-6, "chunk": 2.5}, ArgumentTypeError, "chunk"),
    ({"tol": 1e-6, "input_bound": -1.0}, ArgumentError, "input_bound"),
    ({"tol": 1e-6, "input_bound": math.inf}, NotFiniteError, "input_bound"),
    ({"tol": 1e-6, "gradient_tol": 0.0}, ArgumentError, "gradient_tol"),
])  # fmt: skip
def test_arguments_outside_what_is_taken_are_refused(arguments: dict[str, Any], error_type: type[Exception], name: str) -> None:
    with pytest.raises(error_type, match=f"`{name}`"):
        sr.to_parallel(rnn_of(0.8), **arguments)


def test_transforms_are_left_to_the_layer() -> None:
    fast, x = sr.to_parallel(rnn_of(0.8), 1e-6, chunk=40), unit_inputs(300, 2, 5)
    with pytest.raises(EngineError, match="use the layer"):
        torch.func.grad(lambda y: fast(y)[0].sum())(x)
    with pytest.raises(EngineError, match="use the layer"):
        torch.func.jvp(lambda y: fast(y)[0], (x,), (x,))


def test_inputs_are_checked_as_the_layer_checks_them() -> None:
    fast = sr.to_parallel(rnn_of(0.8), 1e-6, chunk=40)
    with pytest.raises(DtypeError, match="`input`"):
        fast(torch.zeros(300, 2, 5))
    with pytest.raises(ShapeError, match="`input`"):
        fast(torch.zeros(300, 2, 4, dtype=torch.float64))
    with pytest.raises(ShapeError, match="`hx`"):
        fast(unit_inputs(300, 2, 5), torch.zeros(1, 3, 12, dtype=torch.float64))
    with pytest.raises(ArgumentError, match="`lengths`"):
        fast(unit_inputs(300, 2, 5), lengths=[301, 2])
