"""Which engine ``auto`` chooses on a GPU: the fastest by the table, else the first in order; on fakes, without a GPU."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._dynamo.utils import counters
from torch._subclasses import FakeTensorMode

from steadyrnn.cells.registry import CELLS
from steadyrnn.engines import calibration
from steadyrnn.engines import select as select_module
from steadyrnn.engines.base import Recurrence
from steadyrnn.engines.calibration import GPU
from steadyrnn.engines.calibration_table import VARIABLE
from steadyrnn.engines.select import Choice, select
from steadyrnn.errors import EngineError
from steadyrnn.layers.rnn import RNN
from steadyrnn.linalg.operators import DiagonalLowRank
from tests.support.calibrations import H200, Fake, engines_in_place, forget, row, write_table

REFUSES = "it is not its day"


@pytest.fixture(autouse=True)
def _afresh() -> Iterator[None]:
    forget()
    yield
    forget()


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Write the table that the environment variable names."""
    monkeypatch.setattr(calibration, "gpu_of", lambda index: GPU(*H200))

    def write(*rows: dict[str, Any], **header: Any) -> None:
        monkeypatch.setenv(VARIABLE, str(write_table(tmp_path / "table.json", *rows, **header)))

    return write


@pytest.fixture
def no_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr(calibration, "gpu_of", lambda index: GPU("NVIDIA Old", (7, 0)))


def on_gpu(
    cell: str = "rnn-tanh", n: int = 128, batch: int = 16, dtype: torch.dtype = torch.float32, rank: int | None = None,
    lengths: bool = False, gradients: bool = False,
) -> Recurrence:  # fmt: skip
    """Return a recurrence whose tensors claim to be on a GPU."""
    step = CELLS[cell]
    gates = len(step.gates)
    with FakeTensorMode(allow_non_fake_inputs=True):

        def new(*shape: int) -> torch.Tensor:
            return torch.empty(*shape, dtype=dtype, device="cuda:0", requires_grad=gradients)

        weight = new(gates * n, n) if rank is None else DiagonalLowRank(new(n), new(n, rank), new(n, rank))
        state = tuple(new(batch, n) for _ in range(step.states))
        x, weight_ih = new(5, batch, 3), new(gates * n, 3)
    sizes = torch.tensor([batch, batch, 1, 1, 1]) if lengths else None
    return Recurrence(step, x, state, weight_ih, weight, batch_sizes=sizes)


def choose(run: Recurrence, **refusals: str) -> Choice:
    """Return the choice among four engines, of which some refuse."""
    names = ("cpu", "cudnn", "cuda", "triton", "reference")
    with engines_in_place(*(Fake(name, "not on a gpu" if name == "cpu" else refusals.get(name)) for name in names)):
        return select("auto", run)


TIMES = {"cudnn": 44.0, "cuda": 7.1, "triton": 20.3, "reference": 180.0}


def test_the_fastest_runs_and_the_reason_tells_the_figures(table: Any) -> None:
    table(row({"cudnn": 1.0}, TIMES, n=512, B=128))
    assert choose(on_gpu(n=500, batch=100, gradients=True)) == (
        "cuda",
        "fastest on NVIDIA H200 near n = 512, B = 128, float32 with gradients: 7.1 us per step "
        "(cudnn 44.0, triton 20.3, reference 180.0)",
    )


def test_without_gradients_the_forward_times_count(table: Any) -> None:
    table(row({"cudnn": 3.0, "cuda": 4.0}, TIMES))
    choice = choose(on_gpu())
    assert choice.engine == "cudnn"
    assert "float32 without gradients" in choice.reason
    with torch.no_grad():
        assert choose(on_gpu(gradients=True)).engine == "cudnn"


def test_an_answer_is_remembered_for_the_same_question_only(
    table: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = {"slow": 9.0, "fast": 2.0}
    table(row(times, times), row({"slow": 1.0, "fast": 2.0}, times, B=128))
    asked = []

    class Counted(Fake):
        def refusal(self, recurrence: Recurrence) -> str | None:
            asked.append(recurrence)
            return super().refusal(recurrence)

    with engines_in_place(Counted("slow"), Fake("fast")):
        assert select("auto", on_gpu()) == select("auto", on_gpu())
        assert len(asked) == 1
        others = (
            on_gpu(batch=128),
            on_gpu(n=64),
            on_gpu(lengths=True),
            on_gpu(gradients=True),
            on_gpu(rank=32),
            on_gpu("lstm"),
        )
        assert select("auto", others[0]).engine == "slow"
        for other in others[1:]:
            select("auto", other)
        select("auto", on_gpu(dtype=torch.bfloat16))
        select("auto", on_gpu()._replace(recompute=True))
        assert len(asked) == 1 + len(others) + 2
        other = write_table(tmp_path / "other.json", row({"slow": 1.0, "fast": 2.0}, times))
        monkeypatch.setenv(VARIABLE, str(other))
        assert select("auto", on_gpu()).engine == "slow"
    with engines_in_place(Fake("fast")):
        assert select("auto", on_gpu()).engine == "fast"


def test_an_engine_that_refuses_is_not_taken(table: Any) -> None:
    table(row(TIMES))
    choice = choose(on_gpu(), cuda=REFUSES)
    assert choice.engine == "triton"
    assert "cuda" not in choice.reason


def test_a_table_of_another_device_is_told(table: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "gpu_of", lambda index: GPU("NVIDIA H100", (9, 0)))
    table(row(TIMES))
    assert "fastest on NVIDIA H200 (this is NVIDIA H100) near" in choose(on_gpu()).reason


@pytest.mark.parametrize("cell", ["rnn-abs", "rnn-identity", "rnn-sigmoid", "rnn-modrelu", "rnn-leaky_relu"])
def test_leaky_relu_stands_for_activations_that_cudnn_lacks(table: Any, cell: str) -> None:
    table(row({"cuda": 2.0, "triton": 1.0}, cell="rnn-leaky_relu"))
    assert choose(on_gpu(cell), cudnn=REFUSES).engine == "triton"


@pytest.mark.parametrize("cell", ["rnn-relu", "rnn-tanh", "gru-after", "lstm"])
def test_cells_of_cudnn_have_rows_of_their_own(table: Any, cell: str) -> None:
    table(*(row({"cudnn": 2.0, "triton": 1.0 if name == cell else 3.0}, cell=name) for name in CELLS))
    assert choose(on_gpu(cell)).engine == "triton"


def test_a_weight_in_factors_has_rows_of_its_own(table: Any) -> None:
    table(row({"cudnn": 1.0, "cuda": 2.0}, n=512), row({"cudnn": 24.0, "cuda": 4.0}, n=512, rank=32))
    choice = choose(on_gpu(n=512, rank=40))
    assert choice.engine == "cuda"
    assert "near n = 512, B = 16, rank 32, float32" in choice.reason
    assert choose(on_gpu(n=512)).engine == "cudnn"


def test_rows_of_several_lengths_do_not_go_to_cudnn_where_ours_supports_them(table: Any) -> None:
    table(row({"cudnn": 1.0, "cuda": 2.0, "triton": 3.0}))
    choice = choose(on_gpu(lengths=True))
    assert choice.engine == "cuda"
    assert choice.reason.endswith("(triton 3.0); cudnn is left out, since rows have several lengths")
    assert choose(on_gpu(lengths=True), cuda=REFUSES).engine == "triton"
    assert choose(on_gpu(lengths=True), cuda=REFUSES, triton=REFUSES).engine == "cudnn"


@pytest.mark.usefixtures("no_table")
def test_without_a_table_the_order_decides() -> None:
    choice = choose(on_gpu())
    assert choice.engine == "cudnn"
    assert "first in order, since nothing was measured for it" in choice.reason
    assert choose(on_gpu(), cudnn=REFUSES).engine == "cuda"
    assert f"cudnn refused, since {REFUSES}" in choose(on_gpu(), cudnn=REFUSES).reason
    assert choose(on_gpu(), cudnn=REFUSES, cuda=REFUSES).engine == "triton"
    assert choose(on_gpu(lengths=True)).engine == "cuda"


@pytest.mark.usefixtures("no_table")
@pytest.mark.parametrize(("installed", "engine"), [(True, "triton"), (False, "reference")])
def test_what_cudnn_and_our_cuda_kernels_lack_runs_through_triton(
    installed: bool, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("steadyrnn.engines.triton.engine._INSTALLED", installed)
    monkeypatch.setattr("steadyrnn.engines.triton.engine._BUILDS", True)
    monkeypatch.setattr("steadyrnn.engines.triton.engine.is_capable", lambda index: True)
    monkeypatch.setitem(select_module.ENGINES, "cuda", Fake("cuda", REFUSES))  # it would ask the driver
    choice = select("auto", on_gpu("gru-before", lengths=True))
    assert choice.engine == engine
    assert ("triton refused, since triton is not installed" in choice.reason) != installed


@pytest.mark.usefixtures("no_table")
def test_the_only_engine_left_tells_who_refused() -> None:
    choice = choose(on_gpu(), cudnn=REFUSES, cuda=REFUSES, triton=REFUSES)
    assert choice.engine == "reference"
    assert f"triton refused, since {REFUSES}" in choice.reason


@pytest.mark.parametrize("run", [on_gpu(dtype=torch.float64), on_gpu(dtype=torch.float16), on_gpu("gru-before")], ids=repr)
def test_what_was_not_measured_goes_by_the_order(table: Any, run: Recurrence) -> None:
    table(row({"cuda": 1.0, "cudnn": 2.0}), row({"cuda": 1.0, "cudnn": 2.0}, cell="gru-after"))
    assert choose(run).engine == "cudnn"


def test_a_figure_for_the_reference_says_nothing_of_engines_without_one(table: Any) -> None:
    table(row({"reference": 100.0}, cell="rnn-leaky_relu"))
    assert choose(on_gpu("rnn-abs"), cudnn=REFUSES).engine == "cuda"


def test_the_reference_runs_where_it_was_measured_to_be_fastest(table: Any) -> None:
    table(row(TIMES | {"reference": 5.0}))
    assert choose(on_gpu()).engine == "reference"


def test_an_engine_requested_by_name_is_not_replaced(table: Any) -> None:
    table(row(TIMES))
    with engines_in_place(Fake("cudnn"), Fake("cuda"), Fake("triton", REFUSES), Fake("reference")):
        assert select("cudnn", on_gpu()) == ("cudnn", "requested by name")
        with pytest.raises(EngineError, match=REFUSES):
            select("triton", on_gpu())


def test_no_engine_at_all_is_an_error() -> None:
    with engines_in_place(Fake("cudnn", REFUSES)), pytest.raises(EngineError, match=f"cudnn refused, since {REFUSES}"):
        select("auto", on_gpu())


# compiled, with tensors on a CPU that stands for a GPU


MARKS = {"cudnn": 10.0, "cuda": 20.0, "reference": 30.0}


@pytest.fixture
def _marked(table: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Three engines that mark their outputs; few rows are faster on cudnn, many on cuda."""
    monkeypatch.setattr(select_module, "_TABLED", "cpu")
    table(row({"cudnn": 1.0, "cuda": 2.0}, n=8, B=4), row({"cudnn": 2.0, "cuda": 1.0}, n=8, B=64))
    torch._dynamo.reset()
    counters.clear()
    with engines_in_place(*(Fake(name, mark=mark) for name, mark in MARKS.items())):
        yield
    torch._dynamo.reset()


def who_ran(output: torch.Tensor) -> str:
    """Return the engine whose mark outputs of a tanh layer bear."""
    return next(name for name, mark in MARKS.items() if bool((output - mark).abs().max() <= 1))


@pytest.mark.usefixtures("_marked")
def test_the_look_up_breaks_no_graph() -> None:
    layer, x = RNN(3, 8), torch.randn(2, 64, 3)
    assert who_ran(layer(x)[0]) == "cuda"
    assert layer.explain().startswith("RNN ran on engine cuda: fastest on NVIDIA H200 near n = 8, B = 64, float32 with")
    assert who_ran(torch.compile(layer, fullgraph=True, backend="aot_eager")(x)[0]) == "cuda"


@pytest.mark.usefixtures("_marked")
def test_a_batch_on_the_same_side_needs_no_new_compilation() -> None:
    run = torch.compile(RNN(3, 8), fullgraph=True, backend="aot_eager", dynamic=True)
    assert {who_ran(run(torch.randn(2, batch, 3))[0]) for batch in (5, 6, 7, 16)} == {"cudnn"}
    assert counters["stats"]["unique_graphs"] == 1
    assert {who_ran(run(torch.randn(2, batch, 3))[0]) for batch in (17, 99)} == {"cuda"}
    assert counters["stats"]["unique_graphs"] == 2


@pytest.mark.usefixtures("_marked")
def test_a_batch_that_is_marked_dynamic_stays_so() -> None:
    run = torch.compile(RNN(3, 8), fullgraph=True, backend="aot_eager")
    for batch in (5, 6):
        x = torch.randn(2, batch, 3)
        torch._dynamo.mark_dynamic(x, 1)
        assert who_ran(run(x)[0]) == "cudnn"
    assert counters["stats"]["unique_graphs"] == 1


@pytest.mark.usefixtures("_marked")
def test_an_exported_graph_is_not_fixed_to_a_batch() -> None:
    layer, batch = RNN(3, 8), torch.export.Dim("batch", min=2, max=512)
    with torch.no_grad():
        exported = torch.export.export(layer, (torch.randn(2, 64, 3),), dynamic_shapes={"input": {1: batch}}, strict=False)
    assert {who_ran(exported.module()(torch.randn(2, rows, 3))[0]) for rows in (3, 500)} == {"cudnn"}
