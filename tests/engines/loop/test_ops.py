"""The custom ops as torch wants them: schema, fake shapes, autograd and tracing with changing sizes."""

import pytest
import torch
from torch import Tensor

from steadyrnn.cells.registry import CELLS
from steadyrnn.engines.base import Recurrence, flatten_weight
from steadyrnn.engines.cpu.engine import OPS
from steadyrnn.engines.select import ENGINES
from tests.support.errors import assert_equal_up_to_rounding
from tests.support.recurrences import CPU_CELLS, Case, make

CASES = (
    Case(),
    Case(lengths=(4, 0, 2), reverse=True, bias_ih=False),
    Case(recompute=True, bias_hh=False),
    Case(steps=1, batch=1, hidden=1, bias_ih=False, bias_hh=False),
    Case(steps=0),
    Case(batch=0),
)
CHECKED = (CASES[0], CASES[1], CASES[2], CASES[5])
UNTRACED = ("test_schema", "test_autograd_registration", "test_faketensor")
NAMES = ("rnn-tanh", "rnn-modrelu", "gru-after", "gru-before", "lstm")


def arguments(run: Recurrence, keep: bool) -> tuple[object, ...]:
    return (
        run.input, run.weight_ih, list(run.state), flatten_weight(run.weight_hh), run.bias_ih, run.bias_hh, run.theta,
        run.batch_sizes, run.cell.key, run.reverse, run.recompute, keep,
    )  # fmt: skip


def op_of(name: str) -> object:
    return OPS[CELLS[name].key.partition(":")[0]]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", CHECKED, ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_op_keeps_torchs_contract(name: str, case: Case) -> None:
    # a ragged stash has parts that nothing writes and nothing reads, which tracing would compare
    tests = UNTRACED if case.lengths is not None else (*UNTRACED, "test_aot_dispatch_dynamic")
    torch.library.opcheck(op_of(name), arguments(make(CELLS[name], case), keep=True), test_utils=tests)


@pytest.mark.filterwarnings("ignore")
def test_op_through_torchs_own_lstm_keeps_torchs_contract() -> None:
    run = make(CELLS["lstm"], Case(), torch.float32)  # its stash, a workspace, has parts that nothing writes
    torch.library.opcheck(op_of("lstm"), arguments(run, keep=True), test_utils=UNTRACED)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", [Case(factored=True), Case(factored=True, lengths=(4, 0, 2), reverse=True)], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_op_with_a_factored_weight_keeps_torchs_contract(name: str, case: Case) -> None:
    tests = UNTRACED if case.lengths is not None else (*UNTRACED, "test_aot_dispatch_dynamic")
    torch.library.opcheck(op_of(name), arguments(make(CELLS[name], case), keep=True), test_utils=tests)


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("name", CPU_CELLS)
def test_op_gives_what_a_plain_run_gives(name: str, case: Case) -> None:
    run = make(CELLS[name], case, torch.float32)
    wanted = [t for t in run.tensors if t is not None]
    output, h_n, *_ = op_of(name)(*arguments(run, keep=True))
    plain, (plain_h, *_) = ENGINES["cpu"].run(run)
    assert torch.equal(output, plain)
    assert torch.equal(h_n, plain_h)
    found = torch.autograd.grad(output.sum() + h_n.sum(), wanted, allow_unused=True)
    expected = torch.autograd.grad(plain.sum() + plain_h.sum(), wanted, allow_unused=True)
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


@pytest.mark.parametrize("name", NAMES)
def test_op_gives_a_gradient_that_can_be_differentiated(name: str) -> None:
    run = make(CELLS[name], CASES[1])

    def second(output: Tensor) -> Tensor:
        (grad,) = torch.autograd.grad((output**2).sum(), run.input, create_graph=True)
        return torch.autograd.grad((grad**2).sum(), run.weight_ih)[0]

    found = second(op_of(name)(*arguments(run, keep=True))[0])
    assert_equal_up_to_rounding(found, second(ENGINES["reference"].run(run)[0]))


@pytest.mark.parametrize("name", NAMES)
def test_op_without_gradients_keeps_no_stash(name: str) -> None:
    *_, stash = op_of(name)(*arguments(make(CELLS[name], Case(), torch.float32), keep=False))
    assert stash.numel() == 0


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("name", CPU_CELLS)
def test_results_share_no_memory(name: str, case: Case) -> None:
    run = make(CELLS[name], case, torch.float32)
    found = op_of(name)(*arguments(run, keep=True))
    given = [t for t in run.tensors if t is not None]
    pointers = [t.untyped_storage().data_ptr() for t in (*found, *given) if t.numel()]
    assert len(set(pointers)) == len(pointers)


@pytest.mark.parametrize("name", CPU_CELLS)
def test_op_runs_on_meta_tensors(name: str) -> None:
    run = make(CELLS[name], Case(), torch.float32)
    on_meta = [_meta(argument) for argument in arguments(run, keep=True)]
    output, h_n, *_ = op_of(name)(*on_meta)
    assert output.is_meta
    assert (output.shape, h_n.shape) == ((4, 3, run.state[0].shape[1]), run.state[0].shape)


def _meta(argument: object) -> object:
    if isinstance(argument, Tensor):
        return argument.to("meta")
    return [_meta(part) for part in argument] if isinstance(argument, list) else argument
