"""A cell from outside the package: one record and one step are enough to run it everywhere, and nothing more is claimed."""

import copy
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import steadyrnn as sr
from steadyrnn.cells import registry
from steadyrnn.cells.base import Cell, Recur, State
from steadyrnn.cells.record import CellRecord
from steadyrnn.cells.registry import register_cell
from steadyrnn.engines.base import Recurrence
from steadyrnn.engines.deferred import DEFERRED
from steadyrnn.errors import ArgumentTypeError, CertificateError, EngineError
from steadyrnn.layers.base import RecurrentLayer


@dataclass(frozen=True)
class MinimalStep(Cell):
    """The minimal gated unit: one state, two gates."""

    record = CellRecord("minimal", gates="fn")

    def step(self, gates_x: Tensor, state: State, recur: Recur, theta: Tensor | None) -> State:
        (h,) = state
        f_x, n_x = gates_x.chunk(2, dim=-1)
        f = (f_x + recur(h, "f")).sigmoid()
        return (h + f * ((n_x + recur(f * h, "n")).tanh() - h),)


@dataclass(frozen=True)
class MomentumStep(Cell):
    """A step with momentum: two states, one gate."""

    record = CellRecord("momentum", gates="h", state_names=("state", "velocity"))

    def step(self, gates_x: Tensor, state: State, recur: Recur, theta: Tensor | None) -> State:
        h, v = state
        v = v / 2 + gates_x + recur(h, "h")
        return v.tanh(), v


class MinimalLayer(RecurrentLayer):
    """The layer of the minimal gated unit."""

    cell = MinimalStep()


class MomentumLayer(RecurrentLayer):
    """The layer of the step with momentum."""

    cell = MomentumStep()


CELLS: list[Cell] = [MinimalStep(), MomentumStep()]
LAYERS: dict[Cell, type[RecurrentLayer]] = {MinimalStep(): MinimalLayer, MomentumStep(): MomentumLayer}
FAST = ["cpu", "cudnn", "cuda", "triton"]
LENGTHS = torch.tensor([3, 5, 0, 1])


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Register both cells for one test: other tests run over every registered cell."""
    monkeypatch.setattr(registry, "CELLS", dict(registry.CELLS))
    monkeypatch.setattr(registry, "_BUILDERS", dict(registry._BUILDERS))
    register_cell("minimal", lambda rest: MinimalStep())
    register_cell("momentum", lambda rest: MomentumStep())


def make(cell: Cell, **options: object) -> RecurrentLayer:
    torch.manual_seed(0)
    return LAYERS[cell](3, 4, dtype=torch.float64, **options)  # type: ignore[arg-type]


def sequence() -> Tensor:
    return torch.randn(5, 4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def finals(hx: Tensor | State) -> State:
    return (hx,) if isinstance(hx, Tensor) else hx


@pytest.mark.parametrize("cell", CELLS)
def test_the_layer_is_the_step_repeated(cell: Cell) -> None:
    layer, x = make(cell, bias="single"), sequence()
    output, hx = layer(x)
    state: State = tuple(x.new_zeros(4, 4) for _ in cell.record.state_names)
    for t in range(5):
        state = cell.step(
            x[t] @ layer.weight_ih_l0.mT + layer.bias_ih_l0, state,
            lambda v, gates: v @ layer.weight_hh_l0[cell.record.gate_rows(gates, 4)].mT, None,
        )  # fmt: skip
        torch.testing.assert_close(output[t], state[0])
    for got, wanted in zip(finals(hx), state, strict=True):
        torch.testing.assert_close(got[0], wanted)


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("lengths", [None, LENGTHS])
def test_gradients_are_those_of_finite_differences(cell: Cell, lengths: Tensor | None) -> None:
    layer = make(cell, num_layers=2, bidirectional=True, transition="exp", learn_initial_state=True)
    names, weights = zip(*layer.named_parameters(), strict=True)

    def run(x: Tensor, *given: Tensor) -> tuple[Tensor, ...]:
        output, hx = torch.func.functional_call(layer, dict(zip(names, given, strict=True)), (x,), {"lengths": lengths})
        return output, *finals(hx)

    assert torch.autograd.gradcheck(run, (sequence().requires_grad_(), *weights), fast_mode=True)


@pytest.mark.parametrize("cell", CELLS)
@pytest.mark.parametrize("options", [{}, {"num_layers": 2}, {"bidirectional": True}, {"num_layers": 2, "bidirectional": True}])
def test_packed_rows_are_the_rows_one_by_one(cell: Cell, options: dict[str, object]) -> None:
    layer, x, lengths = make(cell, transition="spectral", **options), sequence(), torch.tensor([3, 5, 2, 1])
    output, hx = layer(pack_padded_sequence(x, lengths, enforce_sorted=False))
    padded, _ = pad_packed_sequence(output)
    given, given_hx = layer(x, lengths=lengths)
    torch.testing.assert_close(given, padded)
    for row, length in enumerate(lengths.tolist()):
        alone, state = layer(x[:length, row])
        torch.testing.assert_close(padded[:length, row], alone)
        for one, packed, ragged in zip(finals(state), finals(hx), finals(given_hx), strict=True):
            torch.testing.assert_close(packed[:, row], one)
            torch.testing.assert_close(ragged[:, row], one)


@pytest.mark.parametrize("cell", CELLS)
def test_a_row_of_no_steps_keeps_its_state(cell: Cell) -> None:
    layer = make(cell)
    given = tuple(torch.ones(1, 4, 4, dtype=torch.float64) for _ in cell.record.state_names)
    output, hx = layer(sequence(), given if len(given) > 1 else given[0], lengths=LENGTHS)
    assert not output[:, 2].any()
    assert all(torch.equal(state[:, 2], torch.ones_like(state[:, 2])) for state in finals(hx))


def test_a_layer_without_a_cell_is_refused() -> None:
    with pytest.raises(ArgumentTypeError, match="has no cell"):
        RecurrentLayer(3, 4)


def test_a_missing_argument_is_named_with_the_class_of_the_layer() -> None:
    with pytest.raises(TypeError, match=r"^MinimalLayer\.__init__\(\) missing .* 'hidden_size'"):
        MinimalLayer(3)  # type: ignore[call-arg]


def test_a_state_of_another_number_of_tensors_is_refused() -> None:
    with pytest.raises(ArgumentTypeError, match="must be a pair"):
        make(MomentumStep())(sequence(), torch.zeros(1, 4, 4, dtype=torch.float64))


@pytest.mark.parametrize("cell", CELLS)
def test_a_certificate_says_that_it_has_no_theorem(cell: Cell) -> None:
    with pytest.raises(CertificateError, match=f"No theorem.*'{cell.key}'"):
        sr.certify(make(cell), input_bound=1.0)


@pytest.mark.parametrize("cell", CELLS)
def test_auto_runs_it_on_the_reference_and_says_why(cell: Cell) -> None:
    layer = make(cell)
    before = layer.explain()
    layer(sequence())
    for said in (before, layer.explain()):
        assert f"engine reference: cpu refused, since there is no kernel for the cell {cell.key}" in said


@pytest.mark.parametrize("engine", FAST)
@pytest.mark.parametrize("cell", CELLS)
def test_a_fast_engine_refuses_it_in_a_sentence(cell: Cell, engine: str) -> None:
    layer = make(cell, engine=engine)
    with pytest.raises(EngineError, match=rf"^`engine` '{engine}' cannot run this layer: .+\.$"):
        layer(sequence())


@pytest.mark.parametrize("name", ["cudnn", "triton"])
@pytest.mark.parametrize("cell", CELLS)
def test_an_engine_of_a_gpu_refuses_the_cell_itself(cell: Cell, name: str) -> None:
    rows = len(cell.gates) * 4
    with FakeTensorMode():
        x = torch.empty(5, 4, 3, device="cuda")
        state = tuple(x.new_empty(4, 4) for _ in cell.record.state_names)
        run = Recurrence(cell, x, state, x.new_empty(rows, 3), x.new_empty(rows, 4))
        assert str(DEFERRED[name].refusal(run)).endswith(f"cell {cell.key}")


@pytest.mark.parametrize("cell", CELLS)
def test_it_is_saved_loaded_and_copied(cell: Cell) -> None:
    layer, x = make(cell, transition="spectral", learn_initial_state=True), sequence()
    output = layer(x)[0]
    other = LAYERS[cell](3, 4, dtype=torch.float64, transition="spectral", learn_initial_state=True)
    other.load_state_dict(layer.state_dict())
    assert torch.equal(other(x)[0], output)
    assert torch.equal(copy.deepcopy(layer)(x)[0], output)
