"""Layers under torch.compile(fullgraph=True): the same numbers, no break, no recompilation for a new length."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.utils import counters
from torch.autograd import forward_ad
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence

from steadyrnn.constraints.registry import CONSTRAINTS
from steadyrnn.layers.cells import GRUCell, LSTMCell, RNNCell
from steadyrnn.layers.rnn import RNN
from tests.support.activations import Softsign, Swell
from tests.support.errors import assert_equal_up_to_rounding
from tests.support.layers import KINDS, states_of, tensors_of, zero_states

STEPS, ROWS, WIDTH, HIDDEN = 5, 3, 3, 6

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture(autouse=True)
def _fresh_compiler() -> Iterator[None]:
    torch._dynamo.reset()
    counters.clear()
    yield
    torch._dynamo.reset()


def make(kind: str, transition: Any = "free", **more: Any) -> nn.Module:
    return KINDS[kind](WIDTH, HIDDEN, transition=transition, **more)


def compiled(module: Any, **more: Any) -> Any:
    return torch.compile(module, fullgraph=True, backend="aot_eager", **more)


def data(steps: int = STEPS) -> Tensor:
    return torch.randn(steps, ROWS, WIDTH)


def assert_same_run(layer: nn.Module, *arguments: Any, operations: int = 16, **keywords: Any) -> None:
    """Check values and gradients of a compiled run against the plain one."""
    wanted = [p for p in layer.parameters() if p.numel()]
    results = [tensors_of(run(*arguments, **keywords)) for run in (compiled(layer), layer)]
    for a, b in zip(*results, strict=True):
        assert_equal_up_to_rounding(a, b, operations)
    totals = [sum(t.float().square().sum() for t in result) for result in results]
    grads = [torch.autograd.grad(total, wanted, allow_unused=True) for total in totals]
    for a, b in zip(*grads, strict=True):
        assert (a is None) == (b is None)
        if b is not None:
            assert_equal_up_to_rounding(a, b, operations * STEPS)


@pytest.mark.parametrize("kind", KINDS)
def test_stack_gives_the_same(kind: str) -> None:
    assert_same_run(make(kind, "free", num_layers=2, bidirectional=True, learn_initial_state=True), data())


@pytest.mark.parametrize("name", CONSTRAINTS)
def test_every_constraint_gives_the_same(name: str) -> None:
    assert_same_run(make("rnn-tanh", name), data(), operations=64)


@pytest.mark.parametrize("kind", KINDS)
def test_state_that_is_given_gives_the_same(kind: str) -> None:
    layer = make(kind, batch_first=True)
    assert_same_run(layer, data().transpose(0, 1), zero_states(layer, ROWS))


@pytest.mark.parametrize("kind", KINDS)
def test_lengths_give_the_same(kind: str) -> None:
    assert_same_run(make(kind, bidirectional=True), data(), lengths=torch.tensor([2, 0, 5]))


def test_lengths_outside_are_refused() -> None:
    run = compiled(make("gru"))
    with pytest.raises(RuntimeError, match="`lengths` must lie between 0"):
        run(data(), lengths=torch.tensor([2, 0, 6]))


@pytest.mark.parametrize("is_sorted", [False, True])
@pytest.mark.parametrize("kind", ["rnn-tanh", "gru", "lstm"])
def test_packed_sequences_give_the_same(kind: str, is_sorted: bool) -> None:
    lengths = [5, 3, 1] if is_sorted else [3, 1, 5]
    packed = pack_padded_sequence(data(), lengths, enforce_sorted=is_sorted)
    assert_same_run(make(kind), packed)
    assert isinstance(compiled(make(kind))(packed)[0], PackedSequence)


@pytest.mark.parametrize("kind", ["rnn-tanh", "gru", "lstm"])
def test_recompute_gives_the_same(kind: str) -> None:
    assert_same_run(make(kind, recompute=True), data())


@pytest.mark.parametrize("activation", [Softsign(), Swell(0.5)], ids=lambda a: a.name)
def test_users_own_activation_gives_the_same(activation: Any) -> None:
    layer = RNN(WIDTH, HIDDEN, nonlinearity=activation)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.normal_()
    assert_same_run(layer, data())


@pytest.mark.parametrize("name", ["rnn", "gru", "lstm"])
def test_single_steps_give_the_same(name: str) -> None:
    cell = {"rnn": RNNCell, "gru": GRUCell, "lstm": LSTMCell}[name](WIDTH, HIDDEN, transition="spectral")
    x = torch.randn(ROWS, WIDTH)
    for a, b in zip(states_of(compiled(cell)(x)), states_of(cell(x)), strict=True):
        assert_equal_up_to_rounding(a, b)


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("kind", ["rnn-tanh", "gru", "lstm"])
def test_new_length_needs_no_new_compilation(kind: str, recompute: bool) -> None:
    layer = make(kind, recompute=recompute)
    run = compiled(layer, dynamic=True)
    for steps in (4, 9, 17, 30):
        x = data(steps)
        found, expected = run(x)[0], layer(x)[0]
        assert_equal_up_to_rounding(found, expected, operations=16)
        wanted = [layer.weight_ih_l0, layer.bias_ih_l0]
        grads = [torch.autograd.grad(result.square().sum(), wanted) for result in (found, expected)]
        for a, b in zip(*grads, strict=True):
            assert_equal_up_to_rounding(a, b, operations=16 * steps)
    assert counters["stats"]["unique_graphs"] == 1


def test_length_marked_dynamic_needs_no_new_compilation() -> None:
    layer = make("gru")
    run = compiled(layer)
    for steps in (4, 9, 30):
        x = data(steps)
        torch._dynamo.mark_dynamic(x, 0)
        lengths = torch.tensor([steps, 1, 2])
        assert_equal_up_to_rounding(run(x, lengths=lengths)[0], layer(x, lengths=lengths)[0], operations=16)
    assert counters["stats"]["unique_graphs"] == 1


def test_graph_does_not_grow_with_the_length() -> None:
    sizes = []

    def backend(graph: torch.fx.GraphModule, _: Any) -> Any:
        sizes.append(len(graph.graph.nodes))
        return graph.forward

    for steps in (4, 400):
        torch._dynamo.reset()
        torch.compile(make("gru"), fullgraph=True, backend=backend, dynamic=False)(data(steps))
    assert sizes[0] == sizes[1]


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("kind", ["rnn-tanh", "gru", "lstm"])
def test_autocast_inside_and_outside_gives_the_same(kind: str, inside: bool) -> None:
    layer, x = make(kind, "spectral"), data()

    def run_inside(t: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return layer(t)[0]

    expected = run_inside(x)
    if inside:
        found = compiled(run_inside)(x)
    else:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found = compiled(layer)(x)[0]
    assert found.dtype == torch.bfloat16
    assert_equal_up_to_rounding(found, expected)
    found.float().sum().backward()
    assert all(p.grad is None or p.grad.dtype == torch.float32 for p in layer.parameters())


def test_no_grad_gives_the_same() -> None:
    layer, x = make("lstm"), data()
    with torch.no_grad():
        assert_equal_up_to_rounding(compiled(layer)(x)[0], layer(x)[0])


@pytest.mark.parametrize("kind", ["rnn-tanh", "gru", "lstm"])
def test_second_derivative_is_refused_clearly(kind: str) -> None:
    layer, x = make(kind, "free"), data().requires_grad_()
    output = compiled(layer)(x)[0]

    def second() -> None:
        (slope,) = torch.autograd.grad(output.sum(), x, create_graph=True)
        slope.sum().backward()

    with pytest.raises(RuntimeError, match=r"double backward|create_graph=False"):
        second()


@pytest.mark.parametrize("already_compiled", [False, True])
@pytest.mark.parametrize("kind", ["rnn-tanh", "gru", "lstm"])
def test_forward_mode_is_refused_or_right(kind: str, already_compiled: bool) -> None:
    layer, x, tangent = make(kind, "free"), data(), data()
    run = compiled(layer)
    if already_compiled:
        run(x)
    with forward_ad.dual_level():
        expected = forward_ad.unpack_dual(layer(forward_ad.make_dual(x, tangent))[0]).tangent
        try:
            found = forward_ad.unpack_dual(run(forward_ad.make_dual(x, tangent))[0]).tangent
        except Exception as refusal:
            if "orward-mode" not in str(refusal) and "forward AD" not in str(refusal):
                raise
        else:
            assert found is not None
            assert_equal_up_to_rounding(found, expected, operations=STEPS)


def test_weight_assigned_after_compilation_is_used() -> None:
    layer, x = make("rnn-tanh", "spectral"), data()
    run = compiled(layer)
    run(x)
    layer.weight_hh_l0 = torch.eye(HIDDEN)
    assert_equal_up_to_rounding(run(x)[0], layer(x)[0])


def test_engine_requested_by_name_compiles() -> None:
    assert_same_run(make("gru", engine="cpu"), data())


@pytest.mark.slow
def test_default_backend_gives_the_same() -> None:
    layer, x = make("gru"), data()
    wanted = [p for p in layer.parameters() if p.numel()]
    run = torch.compile(layer, fullgraph=True)
    lengths = torch.tensor([5, 0, 2])
    results = [module(x, lengths=lengths)[0] for module in (run, layer)]
    assert_equal_up_to_rounding(results[0], results[1], operations=16)
    grads = [torch.autograd.grad(result.square().sum(), wanted) for result in results]
    for a, b in zip(*grads, strict=True):
        assert_equal_up_to_rounding(a, b, operations=64)


def test_exported_layer_accepts_any_length() -> None:
    layer, x = make("gru").eval(), data()
    steps = torch.export.Dim("steps", min=2, max=1000)
    program = torch.export.export(layer, (x,), dynamic_shapes={"input": {0: steps}})
    longer = data(17)
    with torch.no_grad():
        assert_equal_up_to_rounding(program.module()(longer)[0], layer(longer)[0], operations=16)
