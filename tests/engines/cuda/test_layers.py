"""Layers on the CUDA engine under what torch does with modules: compilation, graphs, autocast, copies."""

import copy
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import steadyrnn as sr
from steadyrnn.errors import EngineError
from tests.support.errors import assert_equal_up_to_rounding, assert_within_budget, errors
from tests.support.layers import assert_explained, tensors_of, zero_states
from tests.support.memory import poisoned_memory

pytestmark = pytest.mark.gpu

STEPS, ROWS, WIDTH, HIDDEN = 6, 4, 3, 33
KINDS: dict[str, Any] = {"rnn": sr.RNN, "gru": sr.GRU, "lstm": sr.LSTM}
LENGTHS = torch.tensor([6, 0, 2, 5])


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch.manual_seed(0)
    torch._dynamo.reset()
    with poisoned_memory():
        yield
    torch._dynamo.reset()


def layer_of(kind: str, hidden: int = HIDDEN, **more: Any) -> nn.Module:
    return KINDS[kind](WIDTH, hidden, **{"engine": "cuda", **more}).cuda()


def data(steps: int = STEPS, rows: int = ROWS) -> Tensor:
    return torch.randn(steps, rows, WIDTH, device="cuda")


def everything(layer: nn.Module, run: Any, *arguments: Any, **keywords: Any) -> dict[str, Tensor]:
    """Return what a run gives, and the gradient of every parameter."""
    found = {str(place): tensor for place, tensor in enumerate(tensors_of(run(*arguments, **keywords)))}
    named = {name: parameter for name, parameter in layer.named_parameters() if parameter.numel()}
    total = sum(tensor.float().square().sum() for tensor in found.values())
    grads = torch.autograd.grad(total, list(named.values()))
    return {key: tensor.detach() for key, tensor in (*found.items(), *zip(named, grads, strict=True))}


@pytest.mark.parametrize("kind", KINDS)
def test_a_layer_says_that_it_ran_here(kind: str) -> None:
    assert_explained(layer_of(kind), data(), "cuda: requested by name")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("ragged", [False, True])
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_compiled_layer_gives_the_same(kind: str, dynamic: bool, ragged: bool) -> None:
    layer = layer_of(kind, num_layers=2, bidirectional=True)
    run = torch.compile(layer, fullgraph=True, backend="aot_eager", dynamic=dynamic)
    more = {"lengths": LENGTHS} if ragged else {}
    for steps in (STEPS, STEPS + 3) if dynamic else (STEPS,):
        x = data(steps)
        expected = everything(layer, layer, x, **more)
        for key, found in everything(layer, run, x, **more).items():
            assert_equal_up_to_rounding(found, expected[key], operations=16 * steps)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", KINDS)
def test_a_compiled_layer_accepts_a_state_of_changing_sizes(kind: str) -> None:
    layer = layer_of(kind)
    run = torch.compile(layer, fullgraph=True, backend="aot_eager", dynamic=True)
    for rows in (ROWS, ROWS + 3):
        x, state = data(rows=rows), zero_states(layer, rows)
        expected = everything(layer, layer, x, state)
        for key, found in everything(layer, run, x, state).items():
            assert_equal_up_to_rounding(found, expected[key], operations=16 * STEPS)


@pytest.mark.parametrize(("kind", "hidden", "rows"), [("rnn", 33, 4), ("gru", 129, 4), ("lstm", 300, 130), ("rnn", 1017, 70)])
def test_a_graph_replays_forward_and_backward_on_new_input(kind: str, hidden: int, rows: int) -> None:
    layer, x, other = layer_of(kind, hidden), data(rows=rows), data(rows=rows)
    parameters = [p for p in layer.parameters() if p.numel()]

    def step() -> list[Tensor]:
        output, _ = layer(x)
        return [output.detach(), *torch.autograd.grad(output.square().sum(), parameters)]

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):  # compiles kernels, which a capture must not
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = step()
    for new in (other, x.clone()):
        x.copy_(new)
        graph.replay()
        found = [tensor.clone() for tensor in captured]
        for a, b in zip(found, step(), strict=True):
            assert_equal_up_to_rounding(a, b, operations=STEPS)  # products outside of time may go another way in a graph


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_autocast_errs_no_more_than_twice_the_reference(kind: str, dtype: torch.dtype) -> None:
    layer, x = layer_of(kind, 100), data(rows=70)
    plain, exact = copy.deepcopy(layer), copy.deepcopy(layer).double()
    plain.engine = exact.engine = "reference"

    def cast(module: nn.Module) -> dict[str, Tensor]:
        with torch.autocast("cuda", dtype=dtype):
            return everything(module, module, x)

    found, truth = cast(layer), everything(exact, exact, x.double())
    assert found["0"].dtype == dtype
    assert found["weight_hh_l0"].dtype == torch.float32
    # a gradient in float32 that came from 16-bit numbers may err as these do
    allowed = {key: max(error, 16 * torch.finfo(dtype).eps / 2) for key, error in errors(cast(plain), truth).items()}
    assert_within_budget(found, truth, allowed)


@pytest.mark.parametrize("kind", KINDS)
def test_deterministic_algorithms_run_and_give_the_same_bits(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # torch refuses cuBLAS without it
    layer, x = layer_of(kind, 129, bidirectional=True), data()
    torch.use_deterministic_algorithms(True)  # set back by the fixture
    first, second = (everything(layer, layer, x, lengths=LENGTHS) for _ in range(2))
    assert all(torch.equal(first[key], second[key]) for key in first)


@pytest.mark.parametrize("how", [copy.deepcopy, lambda layer: pickle.loads(pickle.dumps(layer))], ids=["copied", "pickled"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_layer_that_ran_can_be_copied(kind: str, how: Any) -> None:
    layer, x = layer_of(kind), data()
    expected = everything(layer, layer, x)
    twin = how(layer)
    found = everything(twin, twin, x)
    assert all(torch.equal(found[key], expected[key]) for key in expected)


@pytest.mark.parametrize("grad", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("kind", KINDS)
def test_values_without_gradients_are_the_same(kind: str, grad: Any) -> None:
    layer, x = layer_of(kind), data()
    expected = tensors_of(layer(x))
    with grad():
        found = tensors_of(layer(x))
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_a_layer_moved_to_the_cpu_is_refused_there(kind: str) -> None:
    layer = layer_of(kind)
    layer(data())
    with pytest.raises(EngineError, match="`engine` 'cuda' cannot run this layer: its tensors are on cpu"):
        layer.cpu()(data().cpu())


FIRST_BACKWARD = """
import torch
from steadyrnn.cells.registry import CELLS
from steadyrnn.engines.cuda.engine import CUDAEngine
from tests.support.gpu import on_gpu
from tests.support.recurrences import Case, make
run = on_gpu(make(CELLS["rnn-tanh"], Case(steps=5, batch=3, hidden=17), torch.float32))
output, (h_n,) = CUDAEngine().run(run)
given = [torch.ones_like(output), torch.ones_like(h_n)]
torch.autograd.backward([output, h_n], given)
assert all(tensor.grad.isfinite().all() for tensor in run.tensors if tensor is not None)
"""


def test_the_first_backward_of_a_process_finds_the_device() -> None:
    # a thread of autograd's that has allocated nothing yet has no context; in this process others have run in it before
    subprocess.run([sys.executable, "-c", FIRST_BACKWARD], check=True, cwd=Path(__file__).parents[3])
