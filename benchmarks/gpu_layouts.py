"""Layouts that ``engines/cuda/plan/layouts.py`` chooses from, and their times: ``python benchmarks/gpu_layouts.py``.

``--only gather/n512`` measures a part, ``--list`` only says which there are. Of each number of blocks and sets, kind of product
and way of messages the layout of the least estimate is measured, if that is at most 1.6 of the least of all. The last lines
tell how much slower the layout that the plan takes is than the fastest.
"""

import argparse
import statistics
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from typing import Any, NamedTuple
from unittest.mock import patch

import torch
from measure import save, show

from steadyrnn.engines.cuda.kernels import dense
from steadyrnn.engines.cuda.kernels.dense import Rows, Variant
from steadyrnn.engines.cuda.plan.layouts import Layout, gather_layouts, scatter_layouts
from steadyrnn.gpu import nvrtc
from steadyrnn.jobs.calibrate import seconds_per_call

PROCESSORS = 132
STEPS = 196
FARTHEST = 1.6
CELLS = {1: 0, 3: 1, 4: 2}
"""Of a kernel, by the gates of a unit."""


class Shape(NamedTuple):
    """What a kernel is to compute."""

    kernel: str
    n: int
    gates: int
    B: int
    narrow: bool

    @property
    def label(self) -> str:
        """Its name in the table."""
        return f"{self.kernel}/n{self.n}/gates{self.gates}/B{self.B}/{'bfloat16' if self.narrow else 'float32'}"


def shapes() -> list[Shape]:
    """Return all that are measured."""
    elman = product(["gather"], (256, 512, 1024), (1,), (16, 128, 1024), (False, True))
    gated = product(["gather", "scatter"], (128, 256, 512), (3, 4), (16, 128, 1024), (False, True))
    return [Shape(*one) for one in (*elman, *gated)]


def layouts(shape: Shape, processors: int = PROCESSORS) -> list[Layout]:
    """Return the layouts of a shape that are measured, the one that the plan takes first."""
    found = (gather_layouts if shape.kernel == "gather" else scatter_layouts)(*shape[1:4], processors, shape.narrow)
    near = [one for one in found if shape.kernel == "gather" and one.blocks > 1 and not one.far]
    ordered = [
        one
        for some in (found, [one._replace(posted=not one.posted) for one in near])
        for one in sorted(some, key=lambda one: (one.cycles(shape.B, processors), one.message))
    ]
    kinds: dict[tuple[object, ...], Layout] = {}
    for one in ordered:
        kinds.setdefault((one.blocks, one.sets, one.far, one.posted, one.product.source, one.threads), one)
    return [
        one for one in kinds.values() if one.cycles(shape.B, processors) <= FARTHEST * ordered[0].cycles(shape.B, processors)
    ]


def variant(shape: Shape) -> Variant:
    """Return the kernel of a shape: forward, or the adjoint of a gated cell."""
    forward = shape.kernel == "gather"
    keep, vector_io = forward and shape.gates > 1, 2 - shape.n % 2 if forward else 1
    return Variant(shape.gates, int(shape.narrow), 0, CELLS[shape.gates], keep=keep, vector_io=vector_io)


def compile_one(shape: Shape, layout: Layout) -> None:
    """Compile a kernel in a process of its own; the next to ask finds it on disk."""
    asked: list[tuple[Any, ...]] = []
    with patch.object(dense, "kernel", lambda *wanted: asked.append(wanted)):
        dense.compile_kernel.__wrapped__(shape.kernel, layout, variant(shape), torch.device("cuda", 0))
    package, names, entry, defined, *_ = asked[0]
    nvrtc.compile_source(nvrtc.source(package, names, defined), entry, nvrtc.architecture(dict(defined)))


def measure(call: Callable[[], None]) -> float:
    """Return the median of five calls, in microseconds."""
    call()
    return 1e6 * statistics.median(seconds_per_call(call, 1, torch.device("cuda")) for _ in range(5))


def microseconds(shape: Shape, layout: Layout, device: str = "cuda", steps: int = STEPS) -> float:
    """Return the time of a step, of many."""
    cell, dtype = CELLS[shape.gates], torch.bfloat16 if shape.narrow else torch.float32

    def drawn(*size: int) -> torch.Tensor:
        return torch.rand(*size, device=device, dtype=dtype)

    n, wide, rows = shape.n, shape.gates * shape.n, Rows(None, backwards=False)
    weight, gates = drawn(wide, n) / n, drawn(steps, shape.B, wide)
    states, extra, inner = (drawn(steps, shape.B, n) for _ in range(3))
    begin, end = ([drawn(shape.B, n), drawn(shape.B, n)] for _ in range(2))

    def call() -> None:
        if shape.kernel == "gather":
            dense.gather(
                weight, gates, states, begin, end, rows, extra=extra, bias=drawn(n), cell=cell, activation=0,
                keep=shape.gates > 1,
            )  # fmt: skip
        else:
            dense.scatter(weight, gates, extra, states, begin[-1], inner, begin, gates, inner, end, rows, cell=cell)

    with patch.object(dense, f"{shape.kernel}_layout", lambda *_: layout):
        return measure(call) / steps


def row_of(shape: Shape, layout: Layout, us: float) -> dict[str, Any]:
    """Return a row of the table."""
    return {
        "shape": shape.label, "blocks": layout.blocks, "height": layout.height, "buffers": layout.buffers, "sets": layout.sets,
        "far": layout.far, "posted": layout.posted, "product": layout.product.source, "warps_k": layout.product.warps_k,
        "threads": layout.threads, "estimate": layout.cycles(shape.B, PROCESSORS), "us": us,
    }  # fmt: skip


def regrets(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Return by shape how many times the fastest layout's time that of the first is, which the plan takes."""
    times: dict[str, list[float]] = {}
    for row in rows:
        times.setdefault(row["shape"], []).append(row["us"])
    return {label: some[0] / min(some) for label, some in times.items()}


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="part of the names of shapes, as gather/n512/gates1/B128/float32")
    parser.add_argument("--jobs", type=int, default=8, help="processes that compile")
    parser.add_argument("--list", action="store_true", help="say which layouts there are, and measure nothing")
    options = parser.parse_args()
    asked = [(shape, layout) for shape in shapes() if options.only in shape.label for layout in layouts(shape)]
    if not asked:
        raise SystemExit(f"No shape has {options.only!r} in its name.")
    if options.list:
        return show([row_of(*one, float("nan")) for one in asked])
    if not torch.cuda.is_available():
        raise SystemExit("There is no GPU here to measure on.")
    with ProcessPoolExecutor(options.jobs) as pool:
        list(pool.map(compile_one, *zip(*asked, strict=True)))
    rows = [row_of(*one, microseconds(*one)) for one in asked]
    show(rows)
    save("gpu-layouts", rows)
    found = regrets(rows)
    print(*(f"{label}: {regret:.2f}" for label, regret in found.items() if regret > 1.05), sep="\n")
    print(f"on average {statistics.mean(found.values()):.2f} of the fastest layout's time")


if __name__ == "__main__":
    main()
