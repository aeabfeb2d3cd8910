"""What a cell promises: torch's step, row by row, pure, and known by its key."""

import dataclasses

import pytest
import torch
from torch import Tensor

from steadyrnn.activations import Tanh
from steadyrnn.cells.base import Cell, Recur
from steadyrnn.cells.gru import GRUStep
from steadyrnn.cells.lstm import LSTMStep
from steadyrnn.cells.registry import CELLS, cell_from_key, register_cell
from steadyrnn.cells.rnn import RNNStep
from steadyrnn.errors import ArgumentError
from tests.support.errors import assert_equal_up_to_rounding

ROWS, WIDTH, HIDDEN = 3, 2, 4


def draw(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def product_with(cell: Cell, weight: Tensor, bias: Tensor) -> Recur:
    def recur(v: Tensor, gates: str) -> Tensor:
        start = cell.gates.index(gates) * HIDDEN
        rows = slice(start, start + len(gates) * HIDDEN)
        return v @ weight[rows].T + bias[rows]

    return recur


class Arguments:
    """Random arguments of a cell's step."""

    def __init__(self, cell: Cell) -> None:
        gates = len(cell.gates) * HIDDEN
        self.cell = cell
        self.gates_x = draw(ROWS, gates)
        self.state = tuple(draw(ROWS, HIDDEN) for _ in range(cell.states))
        self.weight, self.bias = draw(gates, HIDDEN), draw(gates)
        size = cell.activation.parameter_size(HIDDEN) if isinstance(cell, RNNStep) else None
        self.theta = None if size is None else draw(size)

    def step(self) -> tuple[Tensor, ...]:
        recur = product_with(self.cell, self.weight, self.bias)
        return self.cell.step(self.gates_x, self.state, recur, self.theta)


TORCH_CELLS = {
    "rnn-tanh": lambda: torch.nn.RNNCell(WIDTH, HIDDEN, nonlinearity="tanh", dtype=torch.float64),
    "rnn-relu": lambda: torch.nn.RNNCell(WIDTH, HIDDEN, nonlinearity="relu", dtype=torch.float64),
    "gru-after": lambda: torch.nn.GRUCell(WIDTH, HIDDEN, dtype=torch.float64),
    "lstm": lambda: torch.nn.LSTMCell(WIDTH, HIDDEN, dtype=torch.float64),
}


@pytest.mark.parametrize("name", TORCH_CELLS)
def test_step_is_torchs(name: str) -> None:
    cell, module = CELLS[name], TORCH_CELLS[name]()
    x, state = draw(ROWS, WIDTH), tuple(draw(ROWS, HIDDEN) for _ in range(cell.states))
    expected = module(x, state[0] if cell.states == 1 else state)
    gates_x = x @ module.weight_ih.T + module.bias_ih
    found = cell.step(gates_x, state, product_with(cell, module.weight_hh, module.bias_hh), None)
    for ours, theirs in zip(found, expected if cell.states == 2 else (expected,), strict=True):
        assert_equal_up_to_rounding(ours, theirs)


def test_reset_before_is_the_formula_of_the_ugru() -> None:
    """With u = 1 - z (Note [mathematics], section 3.8):

    the candidate is tanh(W_h (r o x) + U_h e + b_h); x = (1 - u) o x + u o candidate.
    """
    given = Arguments(GRUStep(reset_after=False))
    (x,), (w_r, w_z, w_h) = given.state, given.weight.split(HIDDEN)
    (in_r, in_z, in_h), (b_r, b_z, b_h) = given.gates_x.split(HIDDEN, dim=1), given.bias.split(HIDDEN)
    r = 1 / (1 + torch.exp(-(in_r + x @ w_r.T + b_r)))
    u = 1 - 1 / (1 + torch.exp(-(in_z + x @ w_z.T + b_z)))
    candidate = torch.tanh(in_h + (r * x) @ w_h.T + b_h)
    assert_equal_up_to_rounding(given.step()[0], (1 - u) * x + u * candidate)


def test_both_reset_forms_agree_where_the_gate_is_open() -> None:
    after, before = Arguments(GRUStep(True)), Arguments(GRUStep(False))
    before.__dict__ |= {**after.__dict__, "cell": before.cell}
    after.gates_x[:, :HIDDEN] = torch.inf  # r = 1
    assert_equal_up_to_rounding(before.step()[0], after.step()[0])


def test_reset_forms_differ_otherwise() -> None:
    after, before = Arguments(GRUStep(True)), Arguments(GRUStep(False))
    before.__dict__ |= {**after.__dict__, "cell": before.cell}
    assert not torch.allclose(before.step()[0], after.step()[0])


def test_an_orthogonal_candidate_bounds_no_gradient_of_a_gru() -> None:
    """Its Jacobian has terms of the gates, here 8 z'(0) (h - n), so its norm passes 1 though W_h = I.

    See Note [mathematics], section 3.8.
    """
    eye = torch.eye(HIDDEN, dtype=torch.float64)
    recur = product_with(GRUStep(False), torch.cat([0 * eye, 8 * eye, eye]), torch.zeros(3 * HIDDEN, dtype=torch.float64))
    gates_x = torch.cat([torch.zeros(1, 2 * HIDDEN), torch.full((1, HIDDEN), -3.0)], dim=1).double()

    def step(h: Tensor) -> Tensor:
        return GRUStep(False).step(gates_x, (h,), recur, None)[0]

    jacobian = torch.autograd.functional.jacobian(step, torch.zeros(1, HIDDEN, dtype=torch.float64))[0, :, 0]
    assert torch.linalg.matrix_norm(jacobian, 2) > 1.9


@pytest.mark.parametrize("name", CELLS)
def test_row_depends_on_its_own_row_only(name: str) -> None:
    given = Arguments(CELLS[name])
    clean = given.step()
    given.gates_x[1] = torch.nan
    for state in given.state:
        state[1] = torch.nan
    for dirty, before in zip(given.step(), clean, strict=True):
        assert torch.equal(dirty[[0, 2]], before[[0, 2]])
        assert dirty[1].isnan().any()


@pytest.mark.parametrize("name", CELLS)
def test_step_changes_none_of_its_arguments(name: str) -> None:
    given = Arguments(CELLS[name])
    before = [t.clone() for t in (given.gates_x, *given.state, given.weight, given.bias)]
    given.step()
    assert all(torch.equal(a, b) for a, b in zip(before, (given.gates_x, *given.state, given.weight, given.bias), strict=True))


@pytest.mark.parametrize("name", CELLS)
def test_step_is_differentiable_twice_and_forwards(name: str) -> None:
    given = Arguments(CELLS[name])
    leaves = [t.requires_grad_() for t in (given.gates_x[:1], *(s[:1] for s in given.state), given.weight)]
    theta = given.theta

    def step(gates_x: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
        return given.cell.step(gates_x, rest[:-1], product_with(given.cell, rest[-1], given.bias), theta)

    assert torch.autograd.gradcheck(step, leaves, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(step, leaves)


@pytest.mark.parametrize("name", CELLS)
def test_key_gives_an_equal_cell(name: str) -> None:
    assert cell_from_key(CELLS[name].key) == CELLS[name]


@pytest.mark.parametrize("name", CELLS)
def test_candidate_is_one_of_the_gates(name: str) -> None:
    assert CELLS[name].candidate in CELLS[name].gates


def test_keys_are_all_different() -> None:
    assert len({cell.key for cell in CELLS.values()}) == len(CELLS)


def test_unknown_key_is_refused() -> None:
    with pytest.raises(ArgumentError, match="`key`"):
        cell_from_key("mlstm")


def test_lstm_states_are_hidden_and_cell() -> None:
    h, c = Arguments(LSTMStep()).step()
    assert (h.abs() < 1).all()
    assert h.shape == c.shape == (ROWS, HIDDEN)


@pytest.mark.parametrize("name", CELLS)
def test_a_cell_pickled_before_there_were_records_gets_its_own(name: str) -> None:
    cell = CELLS[name]
    before = cell.__reduce_ex__(4)
    state = {field.name: getattr(cell, field.name) for field in dataclasses.fields(cell)}  # type: ignore[arg-type]
    restored = before[0](*before[1])
    restored.__setstate__(state)
    assert restored == cell
    assert restored.record == cell.record


@pytest.mark.parametrize("name", CELLS)
def test_the_rows_of_a_gate_follow_torchs_order(name: str) -> None:
    record = CELLS[name].record
    rows = [record.gate_rows(gate, HIDDEN) for gate in record.gates]
    assert [row.start for row in rows] == list(range(0, len(record.gates) * HIDDEN, HIDDEN))
    assert record.gate_rows(record.gates, HIDDEN) == slice(0, len(record.gates) * HIDDEN)


def test_a_family_is_registered_once() -> None:
    with pytest.raises(ArgumentError, match="registered already"):
        register_cell("lstm", lambda rest: LSTMStep())


def test_a_family_whose_key_leads_elsewhere_is_refused() -> None:
    with pytest.raises(ArgumentError, match="an equal cell"):
        register_cell("other", lambda rest: LSTMStep())
    with pytest.raises(ArgumentError, match="names no cell"):
        cell_from_key("other")


def test_a_subclass_of_an_activation_has_no_kernel_of_its_own() -> None:
    class Doubled(Tanh):
        name = "doubled-tanh"
        slopes = steepness = (0.0, 2.0)
        smoothness = 2 * Tanh.smoothness

        def value(self, x: Tensor, theta: Tensor | None = None) -> Tensor:
            return 2 * x.tanh()

        def derivative(self, x: Tensor) -> Tensor:
            return 2 - 2 * x.tanh().square()

    record = RNNStep(Doubled()).record
    assert (record.cudnn_mode, record.torch_name, record.onnx_name) == (None, None, None)
    assert Doubled.kernel is None
