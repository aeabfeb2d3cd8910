"""Layers under torch.export, torch.jit and both ONNX exporters: the same numbers, or an error of ours; never another answer."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

from steadyrnn.constraints.ball import SpectralBall
from steadyrnn.constraints.registry import CONSTRAINTS, JOINT
from steadyrnn.convert.feedforward import to_feedforward
from steadyrnn.convert.torch_nn import to_torch
from steadyrnn.errors import ConversionError, EngineError
from steadyrnn.layers.cells import GRUCell, LSTMCell, RNNCell
from steadyrnn.layers.linear import Linear
from steadyrnn.layers.rnn import RNN
from tests.support.errors import assert_equal_up_to_rounding
from tests.support.layers import KINDS, states_of, tensors_of

STEPS, ROWS, WIDTH = 5, 2, 4
PLAIN = ("free", "irnn", "ball", "polar", "stable-lstm")  # of which the raw tensor is the weight

pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning", "ignore::UserWarning", "ignore::FutureWarning"
)

MODULES = [(kind, name) for kind in KINDS for name in (*CONSTRAINTS, *(JOINT if kind == "lstm" else ()))]


def make(kind: str, transition: Any = "free", **more: Any) -> nn.Module:
    return KINDS[kind](WIDTH, WIDTH, transition=transition, **more).eval()


def data(steps: int = STEPS, rows: int = ROWS) -> Tensor:
    return torch.randn(steps, rows, WIDTH)


def session(run: Callable[[io.BytesIO], Any]) -> Callable[[Tensor], list[Tensor]]:
    """Return the function that an ONNX file computes; ``run`` writes the file."""
    ort = pytest.importorskip("onnxruntime")
    file = io.BytesIO()
    run(file)
    settings = ort.SessionOptions()
    settings.log_severity_level = 4
    opened = ort.InferenceSession(file.getvalue(), settings)
    name = opened.get_inputs()[0].name
    return lambda x: [torch.from_numpy(np.asarray(r)) for r in opened.run(None, {name: x.numpy()})]


def assert_same(found: Any, expected: tuple[Tensor, ...]) -> None:
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        assert_equal_up_to_rounding(a, b.detach(), operations=64)


@pytest.mark.parametrize(("kind", "name"), MODULES)
def test_exported_graph_is_saved_and_gives_the_same(kind: str, name: str) -> None:
    layer, file = make(kind, name), io.BytesIO()
    torch.export.save(torch.export.export(layer, (data(),)), file)
    file.seek(0)
    x = data()
    assert_same(tensors_of(torch.export.load(file).module()(x)), tensors_of(layer(x)))


@pytest.mark.parametrize("name", CONSTRAINTS)
@pytest.mark.parametrize("make_cell", [RNNCell, GRUCell, LSTMCell, Linear])
def test_exported_cell_is_saved_and_gives_the_same(make_cell: Any, name: str) -> None:
    module, file = make_cell(WIDTH, WIDTH, **{"weight" if make_cell is Linear else "transition": name}), io.BytesIO()
    torch.export.save(torch.export.export(module, (data()[0],)), file)
    file.seek(0)
    x = data()[0]
    assert_same(states_of(torch.export.load(file).module()(x)), states_of(module(x)))


@pytest.mark.parametrize("name", CONSTRAINTS)
def test_graph_exported_under_autocast_is_saved(name: str) -> None:
    layer, file, x = make("gru", name), io.BytesIO(), data()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.export.save(torch.export.export(layer, (x,)), file)
        file.seek(0)
        found, expected = torch.export.load(file).module()(x)[0], layer(x)[0]
    assert found.dtype == expected.dtype == torch.bfloat16
    assert_equal_up_to_rounding(found, expected, operations=64)


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, name in MODULES if name != "unitary"])
def test_trace_gives_the_same_with_gradients_and_new_weights(kind: str, name: str) -> None:
    layer = make(kind, name)
    traced = torch.jit.trace(layer, (data(),), check_trace=False)
    x, weights = data(), [p for p in layer.parameters() if p.numel()]
    for _ in range(2):
        results = [run(x)[0] for run in (traced, layer)]
        assert_same(results[:1], (results[1],))
        grads = [torch.autograd.grad(r.square().sum(), weights, allow_unused=True) for r in results]
        for a, b in zip(*grads, strict=True):
            assert (a is None) == (b is None)
            if b is not None:
                assert_equal_up_to_rounding(a, b, operations=64 * STEPS)
        with torch.no_grad():  # the trace holds the parameters, not their values
            for weight in weights:
                weight.mul_(0.9)


@pytest.mark.parametrize("kind", KINDS)
def test_trace_of_complex_products_is_refused(kind: str) -> None:
    with pytest.raises(ConversionError, match=r"RestrictedUnitary.*to_torch"):
        torch.jit.trace(make(kind, "unitary"), (data(),))


@pytest.mark.parametrize(
    "options", [{"num_layers": 2, "bidirectional": True}, {"learn_initial_state": True}, {"recompute": True}]
)
@pytest.mark.parametrize("kind", KINDS)
def test_trace_of_a_stack_gives_the_same_for_any_batch(kind: str, options: dict[str, Any]) -> None:
    layer = make(kind, "free", **options)
    traced = torch.jit.trace(layer, (data(),), check_trace=False)
    for rows in (1, 7):
        x = data(rows=rows)
        assert_same(tensors_of(traced(x)), tensors_of(layer(x)))


@pytest.mark.parametrize("traced_steps", [1, STEPS])
@pytest.mark.parametrize("kind", KINDS)
def test_trace_refuses_another_length(kind: str, traced_steps: int) -> None:
    traced = torch.jit.trace(make(kind), (data(traced_steps),), check_trace=False)
    for steps in (traced_steps - 1, traced_steps + 1, 2 * traced_steps):
        with pytest.raises(RuntimeError):
            traced(data(steps))


def test_trace_refuses_lengths() -> None:
    class Ragged(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = make("gru")

        def forward(self, x: Tensor) -> Tensor:
            return self.rnn(x, lengths=torch.tensor([5, 2]))[0]

    with pytest.raises(ConversionError, match=r"lengths.*torch.export"):
        torch.jit.trace(Ragged(), (data(),))


def test_trace_refuses_a_packed_sequence() -> None:
    layer = make("gru")

    def run(x: Tensor) -> Tensor:
        return layer(pack_padded_sequence(x, [5, 2]))[0].data

    with pytest.raises(ConversionError, match="lengths"):
        torch.jit.trace(run, (data(),))


def test_trace_refuses_an_empty_input() -> None:
    with pytest.raises(ConversionError, match="not empty"):
        torch.jit.trace(make("gru"), (data(0),))


@pytest.mark.parametrize("engine", ["cpu"])
def test_engine_requested_by_name_is_not_traced(engine: str) -> None:
    with pytest.raises(EngineError, match=r"torch\.jit\.trace"):
        torch.jit.trace(make("gru", engine=engine), (data(),))


@pytest.mark.parametrize(
    "module",
    [
        *(make(kind) for kind in KINDS),
        *(kind(3, 4) for kind in (RNNCell, GRUCell, LSTMCell, Linear)),
        nn.Sequential(Linear(3, 4, weight="free")),
        to_feedforward(RNN(2, 3, transition=SpectralBall(0.5)), eps=0.1, input_bound=1.0),
    ],
    ids=lambda module: type(module).__name__,
)
def test_script_is_refused_by_name(module: nn.Module) -> None:
    with pytest.raises(ConversionError, match=r"torch\.jit\.script.*to_torch"):
        torch.jit.script(module)


@pytest.mark.parametrize(("kind", "name"), MODULES)
def test_onnx_file_by_trace_gives_the_same(kind: str, name: str) -> None:
    layer = make(kind, name)
    run = session(lambda file: torch.onnx.export(layer, (data(),), file, dynamo=False))
    x = data()
    assert_same(run(x), tensors_of(layer(x)))


@pytest.mark.parametrize("kind", KINDS)
def test_onnx_file_by_trace_accepts_any_batch_and_refuses_another_length(kind: str) -> None:
    layer, free = make(kind), {"x": {0: "steps", 1: "rows"}}
    run = session(lambda file: torch.onnx.export(layer, (data(),), file, dynamo=False, input_names=["x"], dynamic_axes=free))
    x = data(rows=7)
    assert_same(run(x), tensors_of(layer(x)))
    for steps in (1, STEPS - 1, STEPS + 1, 2 * STEPS):
        with pytest.raises(Exception, match="Split"):
            run(data(steps))


@pytest.mark.parametrize(
    ("kind", "name"), [("gru", name) for name in CONSTRAINTS] + [("rnn-tanh", "free"), ("lstm", "stable-lstm")]
)
def test_onnx_file_of_a_compiled_graph_gives_the_same_or_is_refused(kind: str, name: str, tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")
    layer, x = make(kind, name), data()

    def write(file: io.BytesIO) -> None:
        torch.onnx.export(layer, (data(),), tmp_path / "m.onnx", dynamo=True, verbose=False, external_data=False)
        file.write((tmp_path / "m.onnx").read_bytes())

    if name in PLAIN:
        assert_same(session(write)(x), tensors_of(layer(x)))
    else:
        with pytest.raises(Exception, match=r"steadyrnn\.to_torch"):
            session(write)


def test_onnx_file_of_the_converted_layer_gives_the_same(tmp_path: Path) -> None:
    layer, x = make("gru", "spectral"), data()
    run = session(lambda file: torch.onnx.export(to_torch(layer), (data(),), file, dynamo=False))
    assert_same(run(x), tensors_of(layer(x)))


@pytest.mark.parametrize("steps", [2, 3, 40])
def test_exported_window_network_gives_the_same(steps: int) -> None:
    network = to_feedforward(RNN(2, 4, transition=SpectralBall(0.5)), eps=1e-2, input_bound=1.0)
    x, file = torch.randn(steps, 3, 2).clamp(-0.5, 0.5), io.BytesIO()
    torch.export.save(torch.export.export(network, (x,)), file)
    file.seek(0)
    run = torch.export.load(file).module()
    assert_equal_up_to_rounding(run(x), network(x).detach(), operations=16)
    with pytest.raises(RuntimeError, match="input_bound"):
        run(x + 100)


def test_exported_window_network_accepts_any_length() -> None:
    network = to_feedforward(RNN(2, 4, transition=SpectralBall(0.5)), eps=1e-2, input_bound=1.0)
    sizes = {0: torch.export.Dim("steps", min=network.window + 2, max=4096), 1: torch.export.Dim("rows", min=1, max=64)}
    run = torch.export.export(network, (torch.zeros(40, 3, 2),), dynamic_shapes={"input": sizes}).module()
    x = torch.randn(100, 5, 2).clamp(-0.5, 0.5)
    assert_equal_up_to_rounding(run(x), network(x).detach(), operations=16)
