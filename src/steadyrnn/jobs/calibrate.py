"""Measure how long each engine takes for a step on this GPU, and write the table that ``engine="auto"`` reads."""

import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from steadyrnn.cells.registry import CELLS
from steadyrnn.engines.base import Engine, Recurrence, RecurrentWeight, flatten_weight, unflatten_weight
from steadyrnn.engines.calibration import slug
from steadyrnn.engines.reference import ReferenceEngine
from steadyrnn.engines.select import ENGINES
from steadyrnn.errors import ArgumentError, DeviceError, EngineError
from steadyrnn.linalg.operators import DiagonalLowRank
from steadyrnn.train.device import choose_device

from .calibration_file import CalibrationFile

__all__ = ["CASES", "Calibration", "Case", "calibrate", "choose_cases", "choose_engines", "measure", "seconds_per_call"]

STEPS, INPUTS = 128, 64
_FEWEST, _MOST, _SECONDS = 3, 7, 0.1
_ROW = 4  # calls in a row
_OFF = 32
"""An engine counts as wrong if its error is this many times the larger of the reference's and 8 eps; cuDNN's tanh has 30."""


class Case(NamedTuple):
    """What is measured in one row of the table."""

    cell: str
    dtype: str
    n: int
    B: int
    rank: int | None = None

    @property
    def label(self) -> str:
        """Its name, for patterns and people."""
        return f"{self.cell}/n{self.n}/B{self.B}/{self.dtype}" + ("" if self.rank is None else f"/rank{self.rank}")


def _cases() -> Iterator[Case]:
    rnn = ("rnn-relu", "rnn-tanh", "rnn-leaky_relu")
    batches, dtypes = (1, 16, 128, 1024), ("float32", "bfloat16")
    for cell, n, batch, dtype in product((*rnn, "gru-after", "lstm"), (32, 64, 128, 256, 512, 1024), batches, dtypes):
        yield Case(cell, dtype, n, batch)
    for cell, n, batch, dtype in product(rnn, (256, 512, 1024), batches, dtypes):
        yield Case(cell, dtype, n, batch, 32)


CASES = tuple(_cases())
"""Every row of a table."""


def choose_cases(only: str | None, shard: str | None) -> list[Case]:
    """Return the rows to measure: those whose names have one of the patterns in them, and of these one of n parts.

    Example:
        >>> [case.label for case in choose_cases("lstm/n512/*/bfloat16,rnn-tanh/n32/B1/float32", None)][:2]
        ['rnn-tanh/n32/B1/float32', 'lstm/n512/B1/bfloat16']
    """
    patterns = ["*"] if only is None else [f"*{part.strip()}*" for part in only.split(",")]
    found = [case for case in CASES if any(fnmatchcase(case.label, pattern) for pattern in patterns)]
    if not found:
        raise ArgumentError(f"`--only` must have part of a name such as {CASES[0].label}, but is {only!r}.")
    number, _, total = ("1/1" if shard is None else shard).partition("/")
    if not (number.isdecimal() and total.isdecimal() and 1 <= int(number) <= int(total)):
        raise ArgumentError(f"`--shard` must be i/n with i from 1 to n, as 2/4, but is {shard!r}.")
    dealt = random.Random(0).sample(range(len(found)), len(found))  # in order one part would get all large batches
    return [found[place] for place in sorted(dealt[int(number) - 1 :: int(total)])]


class Calibration(NamedTuple):
    """A table that was measured: its file, how many rows it has of how many, and what went wrong."""

    path: Path
    rows: int
    of: int
    faults: list[str]


def calibrate(
    out: str | Path | None = None,
    *,
    device: str = "auto",
    only: str | None = None,
    shard: str | None = None,
    engines: str | None = None,
    again: bool = False,
    command: Sequence[str] = (),
    note: Callable[[str], None] = lambda text: None,
) -> Calibration:
    """Measure the engines of a GPU and write their table, row by row.

    Args:
        out: The table's file, which may hold a part of it already; None is the device's name.
        device: ``auto``, ``cuda`` or ``cuda:1``.
        only: Parts of names of rows as ``rnn-relu/n512/B128/float32``, ``*`` for anything, separated by commas.
        shard: ``i/n``: the i-th of n parts of the rows.
        engines: Engines to measure, separated by commas; None is all.
        again: Whether to measure rows that are there already.
        command: The words that the table is noted to come from.
        note: Called with a line about each row.

    Raises:
        DeviceError: There is no GPU.
    """
    cases, chosen = choose_cases(only, shard), choose_engines(engines)
    if device == "cpu" or not torch.cuda.is_available():
        raise DeviceError("`--calibrate` measures the engines of a GPU, but torch sees no CUDA device here (or was told cpu).")
    where = choose_device(device)
    name = torch.cuda.get_device_name(where)
    path = Path(f"{slug(name)}.json" if out is None else out)
    facts = {"device": name, "capability": list(torch.cuda.get_device_capability(where)), "steps": STEPS, "inputs": INPUTS}
    file = CalibrationFile(path, facts, command)
    faults = measure_all(cases, where, file, note, again, chosen)
    return Calibration(path, len(file.rows), len(CASES), faults)


def choose_engines(names: str | None) -> list[Engine]:
    """Return the engines to measure.

    Example:
        >>> [engine.name for engine in choose_engines("cudnn, cuda")]
        ['cudnn', 'cuda']
    """
    wanted = [*ENGINES] if names is None else [name.strip() for name in names.split(",")]
    unknown = next((name for name in wanted if name not in ENGINES), None)
    if unknown is not None:
        raise ArgumentError(f"`--engines` must be names among {', '.join(ENGINES)}, but has {unknown!r}.")
    return [ENGINES[name] for name in wanted]


def measure_all(
    cases: Sequence[Case], device: torch.device, file: CalibrationFile, note: Callable[[str], None], again: bool,
    chosen: Sequence[Engine] | None = None,
) -> list[str]:  # fmt: skip
    """Measure rows that are not there yet, write each; return what went wrong."""
    faults: list[str] = []
    for case in cases:
        run = make_recurrence(case, device)
        engines = [engine for engine in chosen or ENGINES.values() if engine.refusal(run) is None]
        if not again and file.has(case._asdict(), [engine.name for engine in engines]):
            continue
        row, wrong = measure(case, run, engines)
        file.add(row)
        faults += wrong
        times = ", ".join(f"{name} {row['forward'][name]:.4g}/{time:.4g}" for name, time in row["training"].items())
        note("; ".join([f"{case.label}: {times} us", *wrong]))
    return faults


def make_recurrence(case: Case, device: torch.device, steps: int = STEPS) -> Recurrence:
    """Return a recurrence of a case that neither grows nor dies out, from a fixed seed."""
    cell, n = CELLS[case.cell], case.n
    gates, generator = len(cell.gates), torch.Generator(device).manual_seed(0)

    def normal(*shape: int, scale: float = 1.0) -> Tensor:
        drawn = scale * torch.randn(*shape, generator=generator, device=device)
        return drawn.to(getattr(torch, case.dtype)).requires_grad_()

    weight: RecurrentWeight
    if case.rank is None:
        square = torch.randn(gates, n, n, generator=generator, device=device)
        weight = torch.linalg.qr(square).Q.reshape(gates * n, n).to(getattr(torch, case.dtype)).requires_grad_()
    else:
        diagonal = torch.full((n,), 0.9, dtype=getattr(torch, case.dtype), device=device, requires_grad=True)
        weight = DiagonalLowRank(diagonal, *(normal(n, case.rank, scale=(0.1 / n) ** 0.5) for _ in range(2)))
    x = normal(steps, case.B, INPUTS).detach()
    state = tuple(torch.zeros(case.B, n, dtype=x.dtype, device=device) for _ in range(cell.states))
    biases = (normal(gates * n, scale=0.1), normal(gates * n, scale=0.1))
    return Recurrence(cell, x, state, normal(gates * n, INPUTS, scale=INPUTS**-0.5), weight, *biases)


def measure(case: Case, run: Recurrence, engines: Sequence[Engine]) -> tuple[dict[str, Any], list[str]]:
    """Return a row of the table, and what went wrong; an engine that fails or is wrong has no figure."""
    row: dict[str, Any] = {**case._asdict(), "forward": {}, "training": {}}
    faults: list[str] = []
    truth, allowed = _truth(run)
    for engine in engines:
        try:
            error = _error(engine, run, truth)
            if not error <= allowed:
                raise EngineError(f"it is off by {error:.2g}, which is above {allowed:.2g}")
            times = [_microseconds(call, run) for call in (_forward_call(engine, run), _training_call(engine, run))]
        except Exception as error:  # of a compiler, a kernel, of memory: the others can still be measured
            faults.append(f"{case.label}: {engine.name} has no figure, since {str(error).splitlines()[0]}")
            continue
        row["forward"][engine.name], row["training"][engine.name] = (float(f"{time:.4g}") for time in times)
    return row, faults


@torch.no_grad()
def _truth(run: Recurrence) -> tuple[Tensor, float]:
    """Return outputs by the reference in float64, and how far from them outputs in the run's dtype may be."""
    bias_ih, bias_hh = (None if bias is None else bias.double() for bias in (run.bias_ih, run.bias_hh))
    wide = run._replace(
        input=run.input.double(), state=tuple(state.double() for state in run.state), weight_ih=run.weight_ih.double(),
        weight_hh=unflatten_weight([part.double() for part in flatten_weight(run.weight_hh)]), bias_ih=bias_ih, bias_hh=bias_hh,
    )  # fmt: skip
    truth = ReferenceEngine().run(wide)[0]
    own = _error(ReferenceEngine(), run, truth)
    return truth, _OFF * max(own, 8 * torch.finfo(run.input.dtype).eps)


@torch.no_grad()
def _error(engine: Engine, run: Recurrence, truth: Tensor) -> float:
    return float((engine.run(run)[0].double() - truth).norm() / truth.norm())


def _forward_call(engine: Engine, run: Recurrence) -> Callable[[], object]:
    def call() -> object:
        with torch.no_grad():
            return engine.run(run)

    return call


def _training_call(engine: Engine, run: Recurrence) -> Callable[[], object]:
    leaves = [tensor for tensor in run.tensors if tensor is not None and tensor.requires_grad]
    cotangent = torch.ones(*run.input.shape[:2], run.state[0].shape[1], dtype=run.input.dtype, device=run.input.device)
    return lambda: torch.autograd.grad(engine.run(run)[0], leaves, cotangent)


def _microseconds(call: Callable[[], object], run: Recurrence) -> float:
    """Return the median time of a step, over several rows of calls after one to warm up."""
    device = run.input.device
    seconds_per_call(call, _ROW, device)
    times: list[float] = []
    while len(times) < _FEWEST or (len(times) < _MOST and sum(times) * _ROW < _SECONDS):
        times.append(seconds_per_call(call, _ROW, device))
    return 1e6 * statistics.median(times) / run.input.shape[0]


def seconds_per_call(call: Callable[[], object], calls: int, device: torch.device) -> float:
    """Return the seconds of one of ``calls`` calls that follow one another as in training, by the device's own clock.

    So on a GPU the host's time counts where it is longer than the device's, and only there.
    """
    if device.type != "cuda":
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        return (time.perf_counter() - begin) / calls
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(calls):
        call()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / 1e3 / calls
