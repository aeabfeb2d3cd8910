"""Which engine runs, what it says of that, and what each refuses."""

import pytest
import torch
from torch.autograd import forward_ad

from steadyrnn.cells.registry import CELLS
from steadyrnn.engines.cpu.engine import factored_is_faster
from steadyrnn.engines.select import ENGINES, check_engine, select
from steadyrnn.errors import ArgumentError, EngineError
from tests.support.recurrences import Case, make

RUN = make(CELLS["rnn-tanh"], Case())


def test_auto_chooses_the_cpu_engine_on_a_cpu() -> None:
    choice = select("auto", RUN)
    assert choice.engine == "cpu"
    assert "cpu" in choice.reason


@pytest.mark.parametrize("name", ["cpu", "reference"])
def test_engine_requested_by_name_runs(name: str) -> None:
    assert select(name, RUN) == (name, "requested by name")


def test_engine_that_cannot_run_is_refused_by_name() -> None:
    with pytest.raises(EngineError, match="`engine` 'cudnn' cannot run this layer: its tensors are on cpu"):
        select("cudnn", RUN)


def test_dtype_without_a_fast_engine_goes_to_the_reference_with_the_reason() -> None:
    choice = select("auto", RUN._replace(input=RUN.input.to(torch.complex64)))
    assert choice.engine == "reference"
    assert "torch.complex64" in choice.reason


def test_every_engine_is_listed_under_its_name() -> None:
    assert all(engine.name == name for name, engine in ENGINES.items())
    assert list(ENGINES)[-1] == "reference"  # it refuses nothing, so that one behind it would never be asked


def test_reference_refuses_nothing() -> None:
    assert ENGINES["reference"].refusal(RUN) is None


@pytest.mark.parametrize("name", ["fast", "", "CPU"])
def test_unknown_engine_is_refused_by_name(name: str) -> None:
    with pytest.raises(ArgumentError, match="`engine` must be one of auto, cpu"):
        check_engine(name)


@pytest.mark.parametrize("place", ["input", "weight_hh", "bias_ih"])
def test_tangent_on_any_tensor_goes_to_the_reference(place: str) -> None:
    with forward_ad.dual_level():
        tensor = getattr(RUN, place).detach()
        run = RUN._replace(**{place: forward_ad.make_dual(tensor, torch.ones_like(tensor))})
        assert select("auto", run).engine == "reference"
        with pytest.raises(EngineError, match="`engine` 'cpu' cannot run under forward-mode AD"):
            select("cpu", run)


def test_function_transform_goes_to_the_reference() -> None:
    chosen = []

    def function(x: torch.Tensor) -> torch.Tensor:
        chosen.append(select("auto", RUN._replace(input=x)).engine)
        return x.sum()

    torch.func.grad(function)(RUN.input.detach())
    torch.func.vmap(function)(RUN.input.detach().unsqueeze(0))
    assert chosen == ["reference", "reference"]


def test_factored_form_is_taken_where_it_is_faster() -> None:
    assert factored_is_faster(size=1024, rank=32, rows=64)
    assert factored_is_faster(size=2048, rank=64, rows=64)


@pytest.mark.parametrize(("size", "rank", "rows"), [(128, 64, 64), (1024, 512, 64), (256, 32, 1)])
def test_factored_form_is_left_where_it_is_not_faster(size: int, rank: int, rows: int) -> None:
    assert not factored_is_faster(size, rank, rows)


def test_factored_weight_is_made_dense_where_it_is_not_faster(monkeypatch: pytest.MonkeyPatch) -> None:
    parts: list[int] = []

    def spy(op: object, recurrence: object, recurrent: list[torch.Tensor]) -> None:
        parts.append(len(recurrent))

    monkeypatch.setattr("steadyrnn.engines.cpu.engine.run_op", spy)
    ENGINES["cpu"].run(make(CELLS["rnn-tanh"], Case(hidden=4, factored=True)))
    ENGINES["cpu"].run(make(CELLS["rnn-tanh"], Case(hidden=256, factored=True)))
    assert parts == [1, 3]


def test_gates_are_stacked_where_they_are_small(monkeypatch: pytest.MonkeyPatch) -> None:
    parts: list[int] = []
    monkeypatch.setattr("steadyrnn.engines.cpu.engine.run_op", lambda op, run, recurrent: parts.append(len(recurrent)))
    for hidden in (4, 256):
        ENGINES["cpu"].run(make(CELLS["gru-after"], Case(hidden=hidden, factored=True)))
    wide = torch.zeros(512, 512)
    ENGINES["cpu"].run(make(CELLS["gru-after"], Case())._replace(weight_hh=(wide, wide, wide)))
    assert parts == [1, 5, 3]
