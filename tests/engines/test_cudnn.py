"""The cuDNN engine: what it refuses anywhere, and on a GPU its results against the float64 reference."""

import copy
from typing import Any

import pytest
import torch

import steadyrnn as sr
from steadyrnn.cells.registry import CELLS
from steadyrnn.engines.base import Recurrence
from steadyrnn.engines.cudnn import PIECE, CuDNNEngine
from steadyrnn.engines.reference import ReferenceEngine
from tests.support.errors import assert_equal_up_to_rounding, assert_within_budget, distance
from tests.support.gpu import on_gpu
from tests.support.recurrences import Case, as_dtype, make, results

TAKEN = [name for name, cell in CELLS.items() if cell.record.cudnn_mode is not None]
SMOOTH = [name for name in TAKEN if name != "rnn-relu"]
CASES = (
    Case(steps=1, batch=1, hidden=1),
    Case(steps=7, batch=3, hidden=3, bias_ih=False, bias_hh=False),
    Case(steps=7, batch=3, hidden=129, reverse=True, bias_hh=False),
    Case(steps=7, batch=4, lengths=(7, 3, 5, 0)),
    Case(steps=7, batch=4, lengths=(7, 3, 5, 0), reverse=True),
    Case(steps=6, batch=3, lengths=(4, 2, 4), reverse=True, bias_ih=False),
    Case(steps=3, batch=2, lengths=(0, 0)),
    Case(steps=0, batch=2),
    Case(steps=784, batch=16, hidden=64),
)


def gpu_results(run: Recurrence) -> dict[str, torch.Tensor]:
    """Return the engine's results on the GPU, brought back."""
    return {name: tensor.cpu() for name, tensor in results(CuDNNEngine(), on_gpu(run)).items()}


def test_cudnn_supports_tanh_relu_gru_and_lstm_only() -> None:
    assert set(TAKEN) == {"rnn-tanh", "rnn-relu", "gru-after", "lstm"}


@pytest.mark.parametrize("name", CELLS)
def test_cudnn_refuses_tensors_that_are_not_on_a_gpu(name: str) -> None:
    refusal = CuDNNEngine().refusal(make(CELLS[name], Case()))
    assert refusal is not None
    assert "cpu" in refusal


def torch_results(name: str, run: Recurrence) -> dict[str, torch.Tensor]:
    """Return what torch's own layer gives on the GPU for a run of full length, forwards, with both biases."""
    layer = {"rnn-tanh": torch.nn.RNN, "gru-after": torch.nn.GRU, "lstm": torch.nn.LSTM}[name]
    module = layer(run.input.shape[2], run.state[0].shape[1]).to("cuda", run.input.dtype)
    weights = (run.weight_ih, run.weight_hh, run.bias_ih, run.bias_hh)
    with torch.no_grad():
        for parameter, value in zip(module.parameters(), weights, strict=True):
            parameter.copy_(value)
        state = tuple(s.detach().cuda().unsqueeze(0) for s in run.state)
        with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
            output, final = module(run.input.cuda(), state if len(state) > 1 else state[0])
    finals = final if isinstance(final, tuple) else (final,)
    return {"output": output.cpu(), **{n: f[0].cpu() for n, f in zip(("h_n", "c_n"), finals, strict=False)}}


@pytest.mark.gpu
@pytest.mark.parametrize("name", SMOOTH)
def test_cudnn_gives_what_torchs_own_layer_gives(name: str) -> None:
    run = make(CELLS[name], Case(steps=784, batch=16, hidden=64), torch.float32)
    ours, theirs = gpu_results(run), torch_results(name, run)
    assert all(torch.equal(ours[key], value) for key, value in theirs.items())


@pytest.mark.gpu
@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("name", SMOOTH)
def test_cudnn_in_float32_is_off_by_its_own_tanh_and_sigmoid_only(name: str, case: Case) -> None:
    # cuDNN's float32 tanh and sigmoid err by up to 2^-17 of the result, more than twice the reference loop's error; a
    # product in TF32 would err by 2^-11
    run = make(CELLS[name], case, torch.float32)
    truth = results(ReferenceEngine(), as_dtype(run, torch.float64), gradients=False)
    found = gpu_results(run)
    assert all(distance(found[key], value) <= 2**-15 for key, value in truth.items())


@pytest.mark.gpu
@pytest.mark.parametrize("case", CASES[:-1], ids=str)
@pytest.mark.parametrize("name", TAKEN)
def test_cudnn_agrees_with_the_reference_in_float64(name: str, case: Case) -> None:
    run = make(CELLS[name], case)
    truth = results(ReferenceEngine(), run)
    assert_within_budget(gpu_results(run), truth, dict.fromkeys(truth, 0.0))


@pytest.mark.gpu
@pytest.mark.parametrize("reverse", [False, True])
def test_cudnn_is_fed_in_pieces_where_a_sequence_is_too_long_for_it(reverse: bool) -> None:
    run = make(CELLS["rnn-tanh"], Case(steps=2 * PIECE + 5, batch=1, inputs=1, hidden=2, reverse=reverse))
    run = on_gpu(run._replace(weight_hh=0.5 * torch.eye(2, dtype=torch.float64)))
    with torch.no_grad():
        whole, _ = CuDNNEngine().run(run)
        tail = run._replace(input=run.input[-100:] if not reverse else run.input[:100])
        part, _ = CuDNNEngine().run(tail)
    # after 60 steps at a contraction of 1/2 the two runs have forgotten where they started
    kept = slice(60, 100) if not reverse else slice(0, 40)
    assert torch.allclose(whole[-100:][kept] if not reverse else whole[:100][kept], part[kept], rtol=0, atol=2**-50)


@pytest.mark.gpu
@pytest.mark.parametrize("name", SMOOTH)
def test_second_derivatives_through_cudnn_come_from_the_reference(name: str) -> None:
    run = on_gpu(make(CELLS[name], Case(steps=3, batch=2, hidden=2)))

    def output(x: torch.Tensor) -> torch.Tensor:
        return CuDNNEngine().run(run._replace(input=x))[0]

    assert torch.autograd.gradcheck(output, run.input, nondet_tol=0.0)
    assert torch.autograd.gradgradcheck(output, run.input)


@pytest.mark.gpu
def test_a_layer_on_a_gpu_runs_cudnn_compiled_and_says_so() -> None:
    layer = sr.GRU(3, 8, transition="spectral", engine="cudnn").cuda()
    x, lengths = torch.randn(5, 4, 3, device="cuda"), torch.tensor([5, 0, 2, 3])
    expected, _ = layer(x, lengths=lengths)
    assert "cudnn" in layer.explain()
    compiled, _ = torch.compile(layer, fullgraph=True, backend="aot_eager")(x, lengths=lengths)
    assert_equal_up_to_rounding(compiled, expected)  # products in place round otherwise on a GPU


@pytest.mark.gpu
@pytest.mark.parametrize("name", TAKEN)
def test_a_weight_in_another_order_of_memory_gives_the_same(name: str) -> None:
    run = on_gpu(make(CELLS[name], Case(steps=5, batch=3, hidden=17), torch.float32))
    turned = run._replace(weight_hh=run.weight_hh.detach().mT.contiguous().mT.requires_grad_())
    assert torch.equal(CuDNNEngine().run(run)[0], CuDNNEngine().run(turned)[0])


@pytest.mark.gpu
@pytest.mark.parametrize("layer", [sr.RNN, sr.GRU, sr.LSTM])
@pytest.mark.parametrize("fullgraph", [False, True])
def test_cudnn_is_compiled_with_gradients_whether_or_not_the_graph_must_be_whole(layer: type[Any], fullgraph: bool) -> None:
    torch.manual_seed(0)
    torch._dynamo.reset()
    module, x = layer(3, 8, device="cuda", dtype=torch.float64), torch.randn(20, 4, 3, device="cuda", dtype=torch.float64)
    eager = copy.deepcopy(module)
    compiled = torch.compile(module, backend="aot_eager", fullgraph=fullgraph)
    for call in (compiled, eager):
        output, _ = call(x)
        output.square().sum().backward()
    torch.testing.assert_close(compiled(x)[0], eager(x)[0])
    for ours, expected in zip(module.parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, expected.grad)
