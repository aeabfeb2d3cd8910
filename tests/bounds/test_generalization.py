"""The margin bound: its figures, its scale-freeness, the random perturbation it rests on, and when it says something."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from steadyrnn.bounds.generalization import (
    complexity,
    cover_size,
    generalization_bound,
    kl_bound,
    margin_loss,
    spectral_norms,
    weight_norms,
)
from steadyrnn.errors import ArgumentError, ArgumentTypeError, CertificateError, NotFiniteError, ShapeError
from tests.linalg.matrices import gaussian, orthogonal

UNIT = {"input_bound": 1.0, "margin": 1.0}


def of_norm(matrix: Tensor, norm: float) -> Tensor:
    return matrix * (norm / torch.linalg.matrix_norm(matrix, 2))


@pytest.mark.parametrize(("n", "steps", "size", "kl"), [(32, 16, 2.3e8, 4.3e11), (128, 784, 3.0e16, 4.8e19)])
def test_complexity_and_divergence_are_the_figures_stated(n: int, steps: int, size: float, kl: float) -> None:
    norms = weight_norms(*(orthogonal(n, seed=seed) for seed in range(3)))
    assert complexity(norms, **UNIT, steps=steps) == pytest.approx(size, rel=0.03)
    assert kl_bound(norms, **UNIT, steps=steps) == pytest.approx(kl, rel=0.03)


@pytest.mark.parametrize("seed", range(5))
def test_complexity_and_divergence_are_the_formulas(seed: int) -> None:
    w, m, y = (gaussian(4, 4, seed=3 * seed + place) for place in range(3))
    b, margin, t, n = 2.0, 0.5, 6, 4
    (sw, sm, sy), (fw, fm, fy) = ([float(torch.linalg.matrix_norm(a, order)) for a in (w, m, y)] for order in (2, "fro"))
    front = b**2 * t**2 * max(sw ** (t - 1), 1) ** 2 / margin**2
    printed = front * n * math.log(n) * sm**2 * sy**2 * (t**2 * fw**2 + fm**2 / sm**2 + fy**2 / sy**2)
    blocks = math.e**2 * t**2 * sy**2 * sm**2 * fw**2 + math.e**2 * sy**2 * fm**2 + sm**2 * fy**2
    kl = 144 * n * math.log(12 * n) * front * blocks
    options = {"input_bound": b, "margin": margin, "steps": t}
    assert printed <= complexity(weight_norms(w, m, y), **options) <= printed * (1 + 1e-11)
    assert kl <= kl_bound(weight_norms(w, m, y), **options) <= kl * (1 + 1e-11)
    assert kl <= 144 * math.e**2 * math.log(12 * n) / math.log(n) * printed


def test_the_cover_has_a_quarter_of_t_log_m_points_and_not_what_is_printed() -> None:
    steps, samples = 28, 60_000
    assert cover_size(steps, samples) == 77
    assert round(steps / 4 * math.log(samples)) == 77
    assert round(steps * samples ** (1 / (2 * steps))) == 34
    ratio = (1 + 1 / steps) / (1 - 1 / steps)
    assert ratio**34 < math.sqrt(samples) <= ratio**77


@pytest.mark.parametrize("steps", [5, None])
def test_only_the_product_of_input_and_output_weight_has_a_scale(steps: int | None) -> None:
    w, m, y = of_norm(gaussian(4, 4), 0.7), gaussian(4, 3, seed=1), gaussian(2, 4, seed=2)
    one, other = weight_norms(w, m, y), weight_norms(w, m / 64, 64 * y)
    assert kl_bound(one, **UNIT, steps=steps) == pytest.approx(kl_bound(other, **UNIT, steps=steps), rel=1e-11)
    options = {**UNIT, "margin_loss": 0.0, "samples": 1000, "steps": steps}
    assert generalization_bound(w, m, y, **options).gap == pytest.approx(generalization_bound(w, m / 64, 64 * y, **options).gap)


def test_one_deviation_for_all_blocks_fails_where_the_input_weight_is_below_one() -> None:
    """Note [mathematics]: the printed proof's "without loss of generality" is none. One step, n = 1, M = 0.01, Y = 100."""
    m, y, margin, steps = 0.01, 100.0, 1.0, 1
    beta = m * y
    scale = margin / (12 * steps * (steps * math.e + math.e + 1) * beta)  # sigma times sqrt(2 n ln 12 n)
    moved = y * scale  # an input weight that moves by it, under an input of 1
    assert moved > margin / 4
    block = margin / (12 * steps * math.e * y)
    assert y * block < margin / 4


@pytest.mark.parametrize("contractive", [False, True])
def test_random_perturbations_of_the_prior_s_size_move_outputs_by_less_than_a_quarter_of_the_margin(contractive: bool) -> None:
    n, steps, bound = 4, 6, 1.5
    w = of_norm(gaussian(n, n, seed=1), 0.8 if contractive else 1.2)
    m, y = of_norm(gaussian(n, n, seed=2), 1.0), of_norm(gaussian(n, n, seed=3), 2.0)
    span = 1 / (1 - 0.8) if contractive else float(steps)
    reach = span if contractive else steps * 1.2 ** (steps - 1)
    margin = 1.9 * bound * reach * 2.0  # next to the largest for which the margin loss is not 1 anyway
    spread = math.sqrt(2 * n * math.log(12 * n))
    unit = margin / (12 * spread * bound)
    sigma = (unit / (math.e * span * reach * 2.0), unit / (math.e * reach * 2.0), unit / reach)
    generator = torch.Generator().manual_seed(4)
    x = torch.randn(50, steps, n, generator=generator, dtype=torch.float64)
    x = bound * x / x.norm(dim=-1, keepdim=True)

    def outputs(w: Tensor, m: Tensor, y: Tensor) -> Tensor:
        h = torch.zeros(50, n, dtype=torch.float64)
        for step in range(steps):
            h = (h @ w.mT + x[:, step] @ m.mT).relu()
        return h @ y.mT

    moved = []
    for _ in range(50):
        noise = [s * torch.randn(n, n, generator=generator, dtype=torch.float64) for s in sigma]
        shifted = [a + d for a, d in zip((w, m, y), noise, strict=True)]
        moved.append(float((outputs(*shifted) - outputs(w, m, y)).norm(dim=1).max()))
    assert sum(value < margin / 4 for value in moved) >= 25
    assert max(moved) > 1e-3 * margin  # the noise is not idle


def test_the_bound_says_something_only_beyond_sixteen_times_the_divergence() -> None:
    weights = (0.01 * torch.eye(2), torch.eye(2), torch.eye(2))
    kl = kl_bound(weight_norms(*weights), **UNIT, steps=2)
    few, many = (
        generalization_bound(*weights, **UNIT, margin_loss=0.1, samples=int(factor * kl), steps=2) for factor in (16, 1600)
    )
    assert few.vacuous
    assert few.gap > 1
    assert not many.vacuous
    assert many.bound == pytest.approx(0.1 + many.gap)


@pytest.mark.parametrize("steps", [1, 2, 10, None])
def test_the_grid_raises_the_divergence_by_its_ratio_at_most(steps: int | None) -> None:
    weights = (of_norm(gaussian(3, 3), 0.9), gaussian(3, 3, seed=1), gaussian(3, 3, seed=2))
    found = generalization_bound(*weights, **UNIT, margin_loss=0.0, samples=10**6, steps=steps)
    kl = kl_bound(weight_norms(*weights), **UNIT, steps=steps)
    resolution = max(2, steps or 20)
    ratio = (resolution + 1) / (resolution - 1)
    assert kl <= found.kl <= kl * ratio**4 * (1 + 1e-9)
    points = cover_size(resolution, 10**6)
    assert found.grid == points * ((steps - 1) * points + 1 if steps else points + 1)
    share = found.kl + math.log(6e6 * found.grid / 0.05)
    assert found.gap == pytest.approx(4 * math.sqrt(share / (10**6 - 1)), rel=1e-12)


@pytest.mark.parametrize("size", [1e6, 1e30, 1e300])
def test_outside_of_the_grid_nothing_is_claimed(size: float) -> None:
    weights = (torch.eye(2), size * torch.eye(2, dtype=torch.float64), torch.eye(2))
    found = generalization_bound(*weights, **UNIT, margin_loss=0.0, samples=100, steps=3)
    assert found.bound == math.inf
    assert found.vacuous


@pytest.mark.parametrize("place", range(3))
def test_the_bound_grows_with_every_weight(place: int) -> None:
    weights = [of_norm(gaussian(3, 3, seed=seed), 1.1) for seed in range(3)]
    larger = [2 * w if index == place else w for index, w in enumerate(weights)]
    small, large = (complexity(weight_norms(*each), **UNIT, steps=4) for each in (weights, larger))
    assert large > 3.9 * small if place else large > small


def test_a_contraction_s_bound_knows_no_length() -> None:
    weights = (of_norm(gaussian(3, 3), 0.5), torch.eye(3), torch.eye(3))
    norms = weight_norms(*weights)
    free = kl_bound(norms, **UNIT)
    n, f = 3, norms.recurrent[1]
    blocks = math.e**2 * 2**2 * f**2 + math.e**2 * 3 + 3
    assert free == pytest.approx(144 * n * math.log(12 * n) * 2**2 * blocks, rel=1e-9)
    assert free < kl_bound(norms, **UNIT, steps=100)


def test_without_steps_the_weight_must_contract() -> None:
    with pytest.raises(CertificateError, match="Give `steps`"):
        generalization_bound(torch.eye(2), torch.eye(2), torch.eye(2), **UNIT, margin_loss=0.0, samples=10)


@pytest.mark.parametrize("radius", [0.0, 0.01, 0.3])
def test_the_corollary_bounds_every_spectral_network(radius: float) -> None:
    n, steps, margin, bound = 8, 5, 0.5, 2.0
    u, v = orthogonal(n, seed=1), orthogonal(n, seed=2)
    w = u @ torch.diag(torch.linspace(1 - radius, 1 + radius, n, dtype=torch.float64)) @ v
    m, y = gaussian(n, n, seed=3), gaussian(n, n, seed=4)
    norms = weight_norms(w, m, y)
    options = {"input_bound": bound, "margin": margin, "steps": steps}
    corollary = complexity(spectral_norms(n, radius, norms.input[0], norms.output[0]), **options)
    # the pair's own rounding, of an orthogonal factor and of the norms, is not the corollary's
    assert complexity(norms, **options) <= corollary * (1 + 1e-10)
    printed = bound**2 * steps**4 * n**2 * math.log(n) * (1 + radius) ** (2 * steps) / margin**2
    printed *= norms.input[0] ** 2 * norms.output[0] ** 2
    assert corollary <= 3 * printed


def test_weights_of_any_shape_that_fit_are_taken() -> None:
    norms = weight_norms(gaussian(4, 4), gaussian(4, 7), gaussian(2, 4))
    assert norms.size == 7
    assert norms.recurrent[1] == pytest.approx(float(gaussian(4, 4).norm()))


def test_a_network_without_input_has_no_divergence_but_that_of_its_weight() -> None:
    norms = weight_norms(torch.eye(2), torch.zeros(2, 2), torch.eye(2))
    assert kl_bound(norms, **UNIT, steps=3) == 0


@pytest.mark.parametrize(("margin", "expected"), [(0.0, 0.25), (0.5, 0.5), (1.0, 0.75), (3.0, 1.0)])
def test_the_margin_loss_counts_who_does_not_win_by_more(margin: float, expected: float) -> None:
    logits = torch.tensor([[3.0, 0.0, 1.0], [0.0, 1.0, 0.5], [0.0, 1.0, 0.0], [1.0, 0.0, 0.0]])
    labels = torch.tensor([0, 1, 1, 2])
    assert margin_loss(logits, labels, margin) == expected


def test_a_tie_is_an_error() -> None:
    assert margin_loss(torch.zeros(2, 3), torch.tensor([0, 2]), 0.0) == 1.0


def test_without_a_margin_it_is_the_error_rate() -> None:
    logits, labels = gaussian(200, 5), torch.randint(5, (200,), generator=torch.Generator().manual_seed(0))
    assert margin_loss(logits, labels, 0.0) == pytest.approx(float((logits.argmax(1) != labels).double().mean()))


@pytest.mark.parametrize(
    ("logits", "labels", "margin", "error", "name"),
    [
        (torch.zeros(2, 1), torch.zeros(2, dtype=torch.long), 0.0, ShapeError, "logits"),
        (torch.zeros(0, 3), torch.zeros(0, dtype=torch.long), 0.0, ShapeError, "logits"),
        (torch.zeros(3), torch.zeros(3, dtype=torch.long), 0.0, ShapeError, "logits"),
        (torch.full((2, 2), math.nan), torch.zeros(2, dtype=torch.long), 0.0, NotFiniteError, "logits"),
        (torch.zeros(2, 2), torch.zeros(3, dtype=torch.long), 0.0, ShapeError, "labels"),
        (torch.zeros(2, 2), torch.zeros(2), 0.0, ArgumentTypeError, "labels"),
        (torch.zeros(2, 2), torch.tensor([0, 2]), 0.0, ArgumentError, "labels"),
        (torch.zeros(2, 2), torch.tensor([0, -1]), 0.0, ArgumentError, "labels"),
        (torch.zeros(2, 2), torch.tensor([0, 1]), -1.0, ArgumentError, "margin"),
    ],
)
def test_a_margin_loss_of_nonsense_is_refused_by_name(
    logits: Tensor, labels: Tensor, margin: float, error: type[Exception], name: str
) -> None:
    with pytest.raises(error, match=f"`{name}`"):
        margin_loss(logits, labels, margin)


@pytest.mark.parametrize(
    ("name", "bad", "error"),
    [
        ("input_bound", 0.0, ArgumentError),
        ("input_bound", math.nan, NotFiniteError),
        ("margin", 0.0, ArgumentError),
        ("margin", math.inf, NotFiniteError),
        ("margin_loss", 1.5, ArgumentError),
        ("margin_loss", math.nan, NotFiniteError),
        ("samples", 1, ArgumentError),
        ("samples", 10.0, ArgumentTypeError),
        ("steps", 0, ArgumentError),
        ("confidence", 1.0, ArgumentError),
        ("confidence", 0.0, ArgumentError),
    ],
)
def test_a_bound_of_nonsense_is_refused_by_name(name: str, bad: float, error: type[Exception]) -> None:
    options = {**UNIT, "margin_loss": 0.0, "samples": 100, "steps": 3, "confidence": 0.9, name: bad}
    with pytest.raises(error, match=f"`{name}`"):
        generalization_bound(torch.eye(2), torch.eye(2), torch.eye(2), **options)


@pytest.mark.parametrize(
    ("shapes", "name"),
    [
        (((2, 3), (2, 2), (2, 2)), "weight"),
        (((2, 2), (3, 2), (2, 2)), "input_weight"),
        (((2, 2), (2, 2), (2, 3)), "output_weight"),
    ],
)
def test_weights_that_do_not_fit_are_refused_by_name(shapes: tuple[tuple[int, int], ...], name: str) -> None:
    with pytest.raises(ShapeError, match=f"`{name}`"):
        weight_norms(*map(torch.ones, shapes))


@pytest.mark.parametrize("place", range(3))
def test_a_weight_that_is_not_finite_is_refused_by_name(place: int) -> None:
    weights = [torch.eye(2) for _ in range(3)]
    weights[place][0, 0] = math.inf
    name = ["weight", "input_weight", "output_weight"][place]
    with pytest.raises(NotFiniteError, match=f"`{name}`"):
        weight_norms(*weights)


def test_norms_may_be_given_as_numbers() -> None:
    norms = replace(weight_norms(torch.eye(2), torch.eye(2), torch.eye(2)), recurrent=(0.5, 0.5))
    assert kl_bound(norms, **UNIT) < math.inf
