"""Building W and its gradient beside torch's orthogonal maps and geotorch, and projecting beside an SVD.

``python benchmarks/bench_constraints.py``
"""

import time
from collections.abc import Callable
from functools import partial

import geotorch
import torch
from measure import options, pairs, save, show
from torch import Tensor, nn
from torch.nn.utils import parametrizations

import steadyrnn as sr
from steadyrnn.constraints.slot import Slot

OURS: dict[str, Callable[[], sr.Constraint]] = {
    "HouseholderOrthogonal": sr.HouseholderOrthogonal,
    "Spectral": sr.Spectral,
    "Spectral, 16 + 16": lambda: sr.Spectral(reflectors=16),
    "ExpOrthogonal": sr.ExpOrthogonal,
    "CayleyOrthogonal": sr.CayleyOrthogonal,
}


def peers(size: int) -> dict[str, nn.Module]:
    """Return square linear layers whose weight others keep orthogonal; the first is torch's default."""
    layers: dict[str, nn.Module] = {}
    for name in ("matrix_exp", "householder", "cayley"):
        layers[f"torch {name}"] = parametrizations.orthogonal(nn.Linear(size, size, bias=False), orthogonal_map=name)
    linear = nn.Linear(size, size, bias=False)
    geotorch.orthogonal(linear, "weight")
    layers["geotorch expm"] = linear
    return layers


def gradient(weight: Callable[[], Tensor], direction: Tensor) -> Callable[[], None]:
    """Return a function that builds the weight and pulls ``direction`` back to its parameters."""
    return lambda: weight().backward(direction)


def read(layer: nn.Module) -> Callable[[], Tensor]:
    """Return a function that builds a layer's weight."""
    return lambda: layer.weight  # type: ignore[return-value]


def clock() -> Callable[[], float]:
    """Return the time of this process, which does not count others on the machine; of two threads it would be the sum."""
    return time.process_time if torch.get_num_threads() == 1 else time.perf_counter


def measure(size: int, repeats: int) -> list[dict[str, object]]:
    """Return the rows of one size: each of ours against each peer."""
    rows: list[dict[str, object]] = []
    direction = torch.randn(size, size)
    for name, make in OURS.items():
        slot = Slot(make(), size, size)
        for peer, layer in peers(size).items():
            result = pairs(gradient(slot.weight, direction), gradient(read(layer), direction), repeats, clock())
            rows.append({"n": size, "ours": name, "peer": peer, **result, "times_faster": 1 / result["ratio"]})
    return rows


def clip_by_svd(matrix: Tensor, bound: float) -> Tensor:
    """Return the projection onto the ball of a bound by an SVD in float64, done at every step."""
    left, sigma, right = torch.linalg.svd(matrix.double(), full_matrices=False)
    return ((left * sigma.clamp(max=bound)) @ right).to(matrix.dtype)


def measure_projection(size: int, repeats: int) -> list[dict[str, object]]:
    """Return the rows of the projection after a step: of a weight that is inside, and of one that is not."""
    ball, rows = sr.SpectralBall(bound=0.99), []
    outside = torch.randn(size, size) / size**0.5
    for name, weight in {"inside": ball.project(outside), "outside": outside}.items():
        result = pairs(partial(ball.project, weight), partial(clip_by_svd, weight, 0.99), repeats, clock())
        row: dict[str, object] = {"n": size, "ours": f"SpectralBall, {name}", "peer": "projection by SVD"}
        rows.append({**row, **result, "times_faster": 1 / result["ratio"]})
    return rows


def main() -> None:
    """Measure and print."""
    chosen = options(__doc__).parse_args()
    torch.set_num_threads(chosen.threads)
    sizes = (128, 256, 512)
    rows = [row for size in sizes for row in measure(size, chosen.repeats)]
    rows += [row for size in sizes for row in measure_projection(size, chosen.repeats)]
    show(rows)
    save(f"constraints-{chosen.threads}-threads", rows)


if __name__ == "__main__":
    main()
