"""Constraints inside layers: evaluated once, kept gate by gate, read and assigned as weights."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import steadyrnn as sr
from steadyrnn.constraints.ball import SpectralBall
from steadyrnn.constraints.base import Constraint, Kind
from steadyrnn.constraints.free import Free
from steadyrnn.constraints.householder import HouseholderOrthogonal
from steadyrnn.constraints.registry import CONSTRAINTS
from steadyrnn.constraints.spectral import Spectral
from steadyrnn.constraints.tolerance import membership_tolerance
from steadyrnn.errors import ConstraintError, NotInvertibleError, ShapeError
from steadyrnn.layers.cells import GRUCell, LSTMCell, RNNCell
from steadyrnn.layers.gru import GRU
from steadyrnn.layers.lstm import LSTM
from steadyrnn.layers.rnn import RNN
from tests.support.errors import assert_equal_up_to_rounding
from tests.support.layers import KINDS, Counting, assert_state_kept, constrained

WIDTH, HIDDEN = 3, 6
LAWFUL = [name for name in constrained() if CONSTRAINTS[name]().kind is not Kind.BASELINE]
INVERTIBLE = [name for name in LAWFUL if name != "unitary"]


@pytest.fixture(autouse=True)
def _count_from_zero() -> None:
    Counting.count = 0


def orthogonality(matrix: Tensor) -> float:
    """Return LAPACK's ratio norm1(I - Q'Q) / (n u)."""
    q, n = matrix.detach().double(), matrix.shape[0]
    gap = torch.linalg.matrix_norm(torch.eye(n, dtype=q.dtype) - q.T @ q, 1)
    return float(gap / (n * torch.finfo(matrix.dtype).eps / 2))


@pytest.mark.parametrize("mode", ["train", "no_grad", "recompute", "reference", "lengths"])
@pytest.mark.parametrize("kind", KINDS)
def test_constraint_is_evaluated_once_per_forward(kind: str, mode: str) -> None:
    options = {"recompute": mode == "recompute", "engine": "reference" if mode == "reference" else "auto"}
    layer = KINDS[kind](WIDTH, HIDDEN, transition=Counting(), **options)
    Counting.count = 0
    with torch.set_grad_enabled(mode != "no_grad"):
        output, _ = layer(torch.randn(9, 2, WIDTH), lengths=[9, 3] if mode == "lengths" else None)
    if output.requires_grad:
        output.sum().backward()
    assert Counting.count == 1


def test_each_layer_and_direction_is_evaluated_once() -> None:
    layer = GRU(WIDTH, HIDDEN, 3, bidirectional=True, transition={"n": Counting(), "r": Counting()})
    Counting.count = 0
    layer(torch.randn(5, 2, WIDTH))
    assert Counting.count == 2 * 3 * 2


CELLS = {"rnn": RNNCell, "gru": GRUCell, "lstm": LSTMCell}


def loop(cell: nn.Module, steps: int, dtype: torch.dtype = torch.float32) -> Any:
    state = None
    for x in torch.randn(steps, 2, WIDTH, generator=torch.Generator().manual_seed(0), dtype=dtype):
        state = cell(x, state)
    return state[0] if isinstance(state, tuple) else state


@pytest.mark.parametrize("name", CELLS)
def test_cached_evaluates_once(name: str) -> None:
    cell = CELLS[name](WIDTH, HIDDEN, transition=Counting())
    Counting.count = 0
    with sr.cached():
        loop(cell, 5).sum().backward()
    assert Counting.count == 1


@pytest.mark.parametrize("name", CELLS)
def test_without_cached_each_step_evaluates(name: str) -> None:
    cell = CELLS[name](WIDTH, HIDDEN, transition=Counting())
    Counting.count = 0
    loop(cell, 5)
    assert Counting.count == 5


@pytest.mark.parametrize("name", CELLS)
def test_cached_loop_gives_the_same_values_and_gradients(name: str) -> None:
    cell = CELLS[name](WIDTH, HIDDEN, transition="spectral", dtype=torch.float64)
    plain = torch.autograd.grad(loop(cell, 5, torch.float64).sum(), list(cell.parameters()))
    with sr.cached():
        again = torch.autograd.grad(loop(cell, 5, torch.float64).sum(), list(cell.parameters()))
    for a, b in zip(again, plain, strict=True):
        assert_equal_up_to_rounding(a, b, operations=16)


def test_cached_evaluates_a_factored_weight_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    original = Spectral.operator
    monkeypatch.setattr(Spectral, "operator", lambda self, *raw: calls.append(1) or original(self, *raw))
    cell = RNNCell(WIDTH, 16, transition=Spectral(reflectors=2))
    with sr.cached():
        loop(cell, 5)
    assert len(calls) == 1


def test_cached_sees_a_changed_parameter() -> None:
    cell = RNNCell(WIDTH, HIDDEN, transition=Counting())
    Counting.count = 0
    with sr.cached():
        loop(cell, 1)
        with torch.no_grad():
            for parameter in cell.parameters():
                parameter.mul_(2)
        changed = loop(cell, 2).detach()
    assert Counting.count == 2
    assert torch.equal(changed, loop(cell, 2))


def test_cached_sees_weights_handed_in_for_one_call() -> None:
    cell, x, h = RNNCell(WIDTH, HIDDEN, transition="cayley"), torch.randn(2, WIDTH), torch.randn(2, HIDDEN)
    drawn = [torch.randn_like(cell.transition.h.raw0) for _ in range(8)]

    def results() -> list[Tensor]:
        # each copy is gone before the next is made, which may then lie at the same address
        return [torch.func.functional_call(cell, {"transition.h.raw0": raw.clone()}, (x, h)) for raw in drawn]

    with torch.no_grad():
        expected = results()
        with sr.cached():
            found = results()
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


def test_cached_keeps_gradients_and_values_without_them_apart() -> None:
    cell = RNNCell(WIDTH, HIDDEN, transition=Counting())
    with sr.cached():
        with torch.no_grad():
            loop(cell, 2)
        loop(cell, 2).sum().backward()
    assert all(p.grad is not None for p in cell.parameters())


@pytest.mark.parametrize("name", LAWFUL)
def test_fresh_layer_is_in_the_set(name: str) -> None:
    layer = RNN(WIDTH, HIDDEN, 2, transition=name, bidirectional=True, dtype=torch.float64)
    constraint = layer.transition_l0.h.constraint
    for end in ("_l0", "_l0_reverse", "_l1", "_l1_reverse"):
        weight = getattr(layer, f"weight_hh{end}").detach()
        assert constraint.violation(weight) <= membership_tolerance(weight)


@pytest.mark.parametrize("gates", ["n", "rzn", "zn"])
def test_each_constrained_gate_of_a_gru_is_orthogonal_by_itself(gates: str) -> None:
    layer = GRU(WIDTH, 17, transition=dict.fromkeys(gates, "ornn"))
    parts = dict(zip("rzn", layer.weight_hh_l0.split(17), strict=True))
    assert all(orthogonality(parts[gate]) <= 30 for gate in gates)


@pytest.mark.parametrize("gates", ["g", "ifgo", "io"])
def test_each_constrained_gate_of_an_lstm_is_orthogonal_by_itself(gates: str) -> None:
    layer = LSTM(WIDTH, 17, transition=dict.fromkeys(gates, "ornn"))
    parts = dict(zip("ifgo", layer.weight_hh_l0.split(17), strict=True))
    assert all(orthogonality(parts[gate]) <= 30 for gate in gates)


@pytest.mark.parametrize(("layer", "gate"), [(RNN, "h"), (GRU, "n"), (LSTM, "g")])
def test_one_constraint_is_put_on_the_candidate_gate(layer: Any, gate: str) -> None:
    slots = layer(WIDTH, HIDDEN, transition="ornn").transition_l0.slots()
    assert [name for name, slot in slots.items() if not isinstance(slot.constraint, Free)] == [gate]


def test_gates_left_out_of_a_mapping_are_free() -> None:
    slots = LSTM(WIDTH, HIDDEN, transition={"f": "ball"}).transition_l0.slots()
    assert [type(slot.constraint) for slot in slots.values()] == [Free, SpectralBall, Free, Free]


def test_constraint_passed_in_is_a_template() -> None:
    template = Spectral(radius=0.2)
    layer = RNN(WIDTH, HIDDEN, 2, transition=template, bidirectional=True)
    copies = [m for m in layer.modules() if isinstance(m, Constraint)]
    assert len({id(c) for c in copies}) == 4
    assert template not in copies
    assert (template.rows, template.columns) == (0, 0)
    raws = [layer.get_parameter(f"transition{end}.h.raw0") for end in ("_l0", "_l0_reverse", "_l1", "_l1_reverse")]
    assert all(not torch.equal(raws[0], other) for other in raws[1:])


@pytest.mark.parametrize("name", ["free", "irnn"])
def test_free_transition_is_a_plain_parameter(name: str) -> None:
    layer = RNN(WIDTH, HIDDEN, transition=name)
    assert isinstance(layer.weight_hh_l0, nn.Parameter)


def test_irnn_starts_from_the_identity() -> None:
    layer = RNN(WIDTH, HIDDEN, 2, nonlinearity="relu", transition="irnn")
    assert torch.equal(layer.weight_hh_l0, torch.eye(HIDDEN))
    assert torch.equal(layer.weight_hh_l1, torch.eye(HIDDEN))


def test_free_start_by_gate_is_taken() -> None:
    layer = GRU(WIDTH, HIDDEN, transition={"n": Free(init="identity")})
    parts = layer.weight_hh_l0.detach().split(HIDDEN)
    assert torch.equal(parts[2], torch.eye(HIDDEN))
    assert not torch.equal(parts[0], torch.eye(HIDDEN))


@pytest.mark.parametrize("name", LAWFUL)
def test_weight_that_is_read_is_the_weight_that_is_used(name: str) -> None:
    layer = RNN(WIDTH, HIDDEN, nonlinearity="identity", bias=False, transition=name, dtype=torch.float64)
    h = torch.randn(1, 2, HIDDEN, dtype=torch.float64)
    output, _ = layer(torch.zeros(1, 2, WIDTH, dtype=torch.float64), h)
    torch.testing.assert_close(output, h @ layer.weight_hh_l0.T, rtol=0, atol=64 * HIDDEN * torch.finfo(h.dtype).eps)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", INVERTIBLE)
def test_member_that_is_assigned_is_read_back(name: str, dtype: torch.dtype) -> None:
    layer = RNN(WIDTH, HIDDEN, transition=name, dtype=dtype)
    member = RNN(WIDTH, HIDDEN, transition=name, dtype=dtype).weight_hh_l0.detach()
    layer.weight_hh_l0 = member
    gap = torch.linalg.matrix_norm(layer.weight_hh_l0.detach() - member, 2)
    assert float(gap) <= 64 * membership_tolerance(member)


@pytest.mark.parametrize("name", INVERTIBLE)
def test_matrix_outside_the_set_is_refused_with_its_distance(name: str) -> None:
    layer = RNN(WIDTH, HIDDEN, transition=name)
    with assert_state_kept(layer), pytest.raises(ConstraintError, match=r"violation \d"):
        layer.weight_hh_l0 = 3 * torch.eye(HIDDEN) + torch.randn(HIDDEN, HIDDEN)


def test_matrix_outside_is_projected_where_that_was_requested() -> None:
    layer = RNN(WIDTH, HIDDEN, transition=SpectralBall(bound=0.5, project=True))
    layer.weight_hh_l0 = 3 * torch.eye(HIDDEN)
    torch.testing.assert_close(layer.weight_hh_l0.detach(), 0.5 * torch.eye(HIDDEN))


@pytest.mark.parametrize("transition", ["unitary", Spectral(reflectors=2)], ids=["unitary", "few reflectors"])
def test_map_without_an_inverse_refuses_assignment(transition: Any) -> None:
    layer = RNN(WIDTH, HIDDEN, transition=transition)
    member = layer.weight_hh_l0.detach()
    with assert_state_kept(layer), pytest.raises(NotInvertibleError):
        layer.weight_hh_l0 = member


@pytest.mark.parametrize("first", ["spectral", "exp", "cayley", "ornn", "factorized", "unitary-full"])
def test_assignment_changes_all_gates_or_none(first: str) -> None:
    layer = GRU(WIDTH, HIDDEN, transition={"r": first, "n": "ball"}, dtype=torch.float64)
    before = layer.weight_hh_l0.detach()
    flipped = GRU(WIDTH, HIDDEN, transition={"r": first}, dtype=torch.float64).weight_hh_l0.detach()[:HIDDEN].clone()
    if first in ("spectral", "exp", "ornn"):  # a member of the other determinant: what a constraint notes beside its raws
        flipped[0] *= -1
    with assert_state_kept(layer), pytest.raises(ConstraintError):
        layer.weight_hh_l0 = torch.cat([flipped, before[HIDDEN : 2 * HIDDEN], 5 * torch.eye(HIDDEN, dtype=torch.float64)])
    assert torch.equal(layer.weight_hh_l0.detach(), before)


def test_assigned_gates_are_taken_together() -> None:
    layer, other = (GRU(WIDTH, HIDDEN, transition={"r": "ball", "n": "spectral"}, dtype=torch.float64) for _ in range(2))
    layer.weight_hh_l0 = other.weight_hh_l0.detach()
    torch.testing.assert_close(layer.weight_hh_l0.detach(), other.weight_hh_l0.detach())


@pytest.mark.parametrize("shape", [(6, 5), (5, 6), (18, 6), (6,)])
def test_weight_of_the_wrong_shape_is_refused_by_name(shape: tuple[int, ...]) -> None:
    layer = RNN(WIDTH, HIDDEN, transition="spectral")
    with assert_state_kept(layer), pytest.raises(ShapeError, match="`weight_hh"):
        layer.weight_hh_l0 = torch.zeros(shape)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_weight_of_a_half_precision_layer_can_be_assigned(dtype: torch.dtype) -> None:
    layer = RNN(WIDTH, HIDDEN, transition="spectral").to(dtype)
    layer.weight_hh_l0 = torch.eye(HIDDEN, dtype=dtype)
    assert layer.weight_hh_l0.dtype == dtype
    gap = (layer.weight_hh_l0.detach().float() - torch.eye(HIDDEN)).abs().max()
    assert float(gap) <= 16 * HIDDEN * torch.finfo(dtype).eps


@pytest.mark.parametrize("name", ["ornn", "exp", "spectral", "ball"])
def test_member_in_half_precision_is_read_back(name: str) -> None:
    layer, other = (RNN(WIDTH, HIDDEN, transition=name).bfloat16() for _ in range(2))
    member = other.weight_hh_l0.detach()
    layer.weight_hh_l0 = member
    gap = torch.linalg.matrix_norm((layer.weight_hh_l0.detach() - member).float(), 2)
    assert float(gap) <= membership_tolerance(member)


@pytest.mark.parametrize("name", ["weight_hh_l1", "weight_hh", "weight_hh_l0_reverse"])
def test_weight_that_is_not_there_is_an_attribute_error(name: str) -> None:
    with pytest.raises(AttributeError, match=name):
        getattr(RNN(WIDTH, HIDDEN, transition="spectral"), name)


def test_weight_of_a_cell_is_read_and_assigned() -> None:
    cell = GRUCell(WIDTH, HIDDEN, transition="ornn", dtype=torch.float64)
    member = GRUCell(WIDTH, HIDDEN, transition="ornn", dtype=torch.float64).weight_hh.detach()
    cell.weight_hh = member
    torch.testing.assert_close(cell.weight_hh.detach(), member)


def test_all_weights_hold_the_constrained_one() -> None:
    layer = RNN(WIDTH, HIDDEN, transition="ornn")
    assert torch.equal(layer.all_weights[0][1], layer.weight_hh_l0)


def test_reset_draws_a_fresh_member() -> None:
    layer = RNN(WIDTH, HIDDEN, transition="ornn")
    before = layer.weight_hh_l0.detach()
    layer.reset_parameters()
    assert not torch.equal(layer.weight_hh_l0, before)
    assert orthogonality(layer.weight_hh_l0) <= 30


def test_constraint_is_exact_under_autocast() -> None:
    layer = RNN(WIDTH, 32, transition=HouseholderOrthogonal())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        weight = layer.weight_hh_l0
    assert weight.dtype == torch.float32
    assert orthogonality(weight) <= 30
