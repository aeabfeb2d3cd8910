"""torch's flop counter sees the products of every run, as many as the reference loop has."""

from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from steadyrnn.cells.registry import CELLS
from steadyrnn.constraints.registry import CONSTRAINTS
from steadyrnn.engines.select import ENGINES
from tests.support.layers import KINDS, tensors_of
from tests.support.recurrences import CPU_CELLS, Case, make

CASES = (
    Case(),
    Case(steps=1, batch=1, hidden=1),
    Case(steps=7, batch=3, hidden=6, reverse=True, bias_ih=False, bias_hh=False),
    Case(steps=5, batch=3, lengths=(5, 2, 0)),
    Case(steps=5, hidden=8, factored=True),
)


def counted(run: Any) -> int:
    """Return the flops of a call by torch's counter."""
    with FlopCounterMode(display=False) as counter:
        run()
    return counter.get_total_flops()


@pytest.fixture(autouse=True)
def _factored_is_always_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("steadyrnn.engines.cpu.engine.factored_is_faster", lambda size, rank, rows: True)


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("name", CPU_CELLS)
def test_forward_counts_as_the_reference_does(name: str, case: Case) -> None:
    run = make(CELLS[name], case)
    found, expected = (counted(lambda e=engine: ENGINES[e].run(run)) for engine in ("cpu", "reference"))
    assert found == expected > 0


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("name", CPU_CELLS)
def test_backward_counts_as_the_reference_does(name: str, case: Case, inside: bool) -> None:
    counts = {}
    for engine in ("cpu", "reference"):
        run = make(CELLS[name], case)

        def whole(engine: str = engine, run: Any = run) -> torch.Tensor:
            output, state = ENGINES[engine].run(run)
            return sum(t.square().sum() for t in (output, *state))

        if inside:
            counts[engine] = counted(lambda whole=whole: whole().backward())
        else:
            total = whole()
            counts[engine] = counted(total.backward)
    assert counts["cpu"] == counts["reference"] > 0


@pytest.mark.parametrize("name", CPU_CELLS)
def test_recomputation_counts_the_run_again(name: str) -> None:
    def step(recompute: bool) -> int:
        run = make(CELLS[name], Case(steps=9, recompute=recompute))
        return counted(lambda: ENGINES["cpu"].run(run)[0].sum().backward())

    forward = counted(lambda: ENGINES["cpu"].run(make(CELLS[name], Case(steps=9))))
    assert step(True) == step(False) + forward


@pytest.mark.parametrize("transition", CONSTRAINTS)
@pytest.mark.parametrize("kind", KINDS)
def test_every_layer_is_counted(kind: str, transition: str) -> None:
    layer, x = KINDS[kind](4, 4, transition=transition), torch.randn(5, 2, 4)
    gates = layer.weight_ih_l0.shape[0]
    loop = 5 * 2 * 2 * gates * (4 + 4)
    assert counted(lambda: tensors_of(layer(x))) >= loop


@pytest.mark.parametrize("name", ["rnn", "gru", "lstm", "cudnn", "cuda", "triton"])
def test_every_op_has_formulas(name: str) -> None:
    ops = [getattr(torch.ops.steadyrnn, name), getattr(torch.ops.steadyrnn, f"{name}_backward")]  # this imports its engine
    counter = FlopCounterMode(display=False)
    assert all(op in counter.flop_registry for op in ops)
