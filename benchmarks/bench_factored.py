"""Where the factored step beats the dense one (behind ``factored_is_faster``): ``python benchmarks/bench_factored.py``."""

from collections.abc import Callable

import torch
from measure import options, pairs, save, show
from torch import Tensor

from steadyrnn.cells.registry import CELLS
from steadyrnn.engines.base import Recurrence
from steadyrnn.engines.cpu import engine
from steadyrnn.linalg.operators import DiagonalLowRank

SIZES = [(128, 8), (128, 32), (256, 16), (256, 32), (256, 64), (512, 32), (512, 64), (512, 128), (1024, 32), (1024, 256)]


def step(run: Recurrence, recurrent: list[Tensor]) -> Callable[[], None]:
    """Return a training step with the recurrent weight in this form."""

    def call() -> None:
        output, _ = engine.run_op(engine.REGISTERED["rnn"], run, recurrent)
        output.sum().backward()

    return call


def measure(size: int, rank: int, rows: int, repeats: int) -> dict[str, object]:
    """Return one row of the table."""
    left, right = (torch.randn(2, size, rank) / size).unbind(0)
    operator = DiagonalLowRank(torch.ones(size), left, right)
    parts = [part.clone().requires_grad_() for part in operator]
    dense = operator.dense().requires_grad_()
    steps = max(10, 2**21 // (size * size))
    run = Recurrence(CELLS["rnn-relu"], torch.randn(steps, rows, size), (torch.zeros(rows, size),), torch.eye(size), dense)
    result = pairs(step(run, parts), step(run, [dense]), repeats)
    return {"n": size, "rank": rank, "B": rows, "chosen": engine.factored_is_faster(size, rank, rows), **result}


def main() -> None:
    """Measure and print."""
    chosen = options(__doc__).parse_args()
    torch.set_num_threads(chosen.threads)
    rows = [measure(size, rank, batch, chosen.repeats) for batch in (1, 64) for size, rank in SIZES]
    show(rows)
    save(f"factored-{chosen.threads}-threads", rows)


if __name__ == "__main__":
    main()
