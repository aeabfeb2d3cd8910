"""The tiers of a certificate by width, rate and processor time: ``python benchmarks/bench_certify.py``."""

import time
from collections.abc import Callable

import torch
from measure import options, save, show
from torch import Tensor

from steadyrnn.bounds.norms import Contraction, Ellipsoid
from steadyrnn.bounds.quadratic import quadratic_contraction
from steadyrnn.bounds.scaling import diagonal_contraction, spectral_contraction


def time_work(work: Callable[[], Contraction], repeats: int) -> tuple[Contraction, float]:
    """Return what a function returns, and the least processor time it took, which other programs do not add to."""
    times = []
    for _ in range(repeats):
        start = time.process_time()
        found = work()
        times.append(time.process_time() - start)
    return found, min(times)


def recurrent_weight(size: int) -> Tensor:
    """Return the recurrent weight of an RNN as torch starts it."""
    torch.manual_seed(0)
    return torch.nn.RNN(4, size).state_dict()["weight_hh_l0"]


def measure(size: int, repeats: int) -> dict[str, object]:
    """Return the row of one width: the quadratic tier starts from the scaling of the diagonal one."""
    weight = recurrent_weight(size)
    spectral, first = time_work(lambda: spectral_contraction(weight, 1.0), repeats)
    diagonal, second = time_work(lambda: diagonal_contraction(weight, 1.0), repeats)
    scaling = diagonal.norm.matrix if isinstance(diagonal.norm, Ellipsoid) else None
    stages = 3 if size <= 256 else 2
    quadratic, third = time_work(lambda: quadratic_contraction(weight, 1.0, scaling, stages=stages), repeats)
    return {
        "n": size,
        "spectral": spectral.rate,
        "spectral_s": first,
        "diagonal": diagonal.rate,
        "diagonal_s": second,
        "quadratic": quadratic.rate,
        "quadratic_s": third,
        "stages": stages,
    }


def main() -> None:
    """Measure and print."""
    parser = options(__doc__)
    parser.set_defaults(repeats=2)
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    measure(8, 1)  # torch's optimizers load on first use
    rows = [measure(size, chosen.repeats) for size in (64, 128, 256, 512)]
    show(rows)
    save(f"certify-{chosen.threads}-threads", rows)


if __name__ == "__main__":
    main()
