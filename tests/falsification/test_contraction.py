"""Contraction of one step under attack: two states, their common input, the slopes, and the weights of a class.

Note [mathematics], section 5.
"""

import functools
from collections.abc import Callable

import torch
from torch import Tensor

from steadyrnn.activations import Absolute, Activation, Identity, LeakyReLU, ModReLU, ReLU, Sigmoid, Tanh
from steadyrnn.bounds.norms import Contraction, Ellipsoid, MaxNorm, Norm, TwoNorm
from steadyrnn.bounds.quadratic import quadratic_contraction, quadratic_rate
from steadyrnn.bounds.sandwich import singular_enclosure
from steadyrnn.bounds.scaling import diagonal_contraction, spectral_contraction
from tests.falsification.adversary import Attack, Point, anything, interval, spectral
from tests.falsification.checks import Loose, check_met, check_recorded, check_unbeaten, with_loose
from tests.falsification.networks import SHEAR, TWIST, apart, length, product
from tests.linalg.matrices import gaussian

ELEMENTWISE: list[Activation] = [Tanh(), ReLU(), LeakyReLU(0.1), Absolute(), Identity(), Sigmoid()]
RATE = 0.8


def one_step(found: Contraction, activation: Activation, weight: Tensor) -> Attack:
    """Attack a contraction through two states and what drives both."""
    size = len(weight)

    def ratio(at: Point) -> Tensor:
        gap = apart(at["direction"], found.norm)
        here = product(weight, at["state"]) + at["drive"]
        moved = activation.value(here + product(weight, gap)) - activation.value(here)
        return found.norm(moved) / (found.rate * found.norm(gap))

    return Attack({name: anything(size) for name in ("state", "direction", "drive")}, ratio)


def slopes_only(found: Contraction, weight: Tensor, low: float) -> Attack:
    """Attack a contraction through the slopes: any of the range is that of some two states of some activation."""
    size = len(weight)

    def ratio(at: Point) -> Tensor:
        gap = apart(at["direction"], found.norm)
        return found.norm(at["slopes"] * product(weight, gap)) / (found.rate * found.norm(gap))

    return Attack({"slopes": interval(low, 1.0, size), "direction": anything(size)}, ratio)


def spectral_class(activation: Activation) -> Attack:
    """Attack the rate of every weight with this spectral norm at once."""
    slope = activation.steepness[1]
    found = spectral_contraction(RATE * torch.eye(3, dtype=torch.float64), slope)

    def ratio(at: Point) -> Tensor:
        gap = apart(at["direction"])
        here = product(at["weight"], at["state"]) + at["drive"]
        moved = activation.value(here + product(at["weight"], gap)) - activation.value(here)
        return found.norm(moved) / (found.rate * found.norm(gap))

    free = {name: anything(3) for name in ("state", "direction", "drive")}
    return Attack({"weight": spectral(RATE, 3, 3), **free}, ratio)


def modrelu_class() -> Attack:
    """Attack modReLU with shifts up to zero, which is not elementwise (Note [mathematics], section 3.9)."""
    activation = ModReLU()

    def ratio(at: Point) -> Tensor:
        gap, theta = apart(at["direction"]), at["shift"]
        here = product(at["weight"], at["state"]) + at["drive"]
        moved = activation.value(here + product(at["weight"], gap), theta) - activation.value(here, theta)
        return length(moved) / (RATE * length(gap))

    free = {name: anything(4) for name in ("state", "direction", "drive")}
    return Attack({"weight": spectral(RATE, 4, 4), "shift": interval(-1.0, 0.0, 2), **free}, ratio)


def quadratic_class() -> Attack:
    r"""Attack all weights that have the rate 1 in one quadratic norm: :math:`W = D^{-1} (2I - S)^{1/2} X R D`, |X| <= 1."""
    values = torch.tensor([0.3, 1.0, 1.6], dtype=torch.float64)
    basis, d = torch.linalg.qr(gaussian(3, 3, seed=2))[0], torch.tensor([1.0, 2.0, 0.5], dtype=torch.float64)
    root, rest = ((basis * v.sqrt()) @ basis.mT for v in (values, 2 - values))
    turned = rest @ torch.linalg.qr(gaussian(3, 3, seed=3))[0] @ root
    rate = quadratic_rate(turned * d / d.unsqueeze(1), root, d)
    norm = Ellipsoid(root * d)

    def ratio(at: Point) -> Tensor:
        weight = rest @ at["core"] @ root * d / d.unsqueeze(1)
        moved = at["slopes"] * product(weight, at["direction"])
        return norm(moved) / (rate * norm(at["direction"]))

    free = {"core": spectral(1.0, 3, 3), "slopes": interval(0.0, 1.0, 3), "direction": anything(3)}
    return Attack(free, ratio, starts=60, steps=200)


def conversion(norm: Norm, side: str) -> Attack:
    """Attack what a norm says of itself beside the 2-norm."""

    def ratio(at: Point) -> Tensor:
        two, own = length(at["state"]), norm(at["state"])
        return own / (norm.upper * two) if side == "upper" else norm.lower * two / own

    return Attack({"state": anything(norm.size)}, ratio)


def repeated(found: Contraction, weight: Tensor, steps: int) -> Attack:
    """Attack the rate of many steps, from the 2-norm to the 2-norm, through slopes in [0, 1]."""
    promised = found.after(steps)

    def ratio(at: Point) -> Tensor:
        gap = at["direction"]
        for slope in at["slopes"].unbind(1):
            gap = slope * product(weight, gap)
        return length(gap) / (promised * length(at["direction"]))

    return Attack({"slopes": interval(0.0, 1.0, steps, len(weight)), "direction": anything(len(weight))}, ratio)


def enclosure(side: str) -> Attack:
    """Attack the singular values that are said to be enclosed, by the vectors a matrix stretches most and least."""
    weight = gaussian(4, 4, seed=8)
    found = singular_enclosure(weight)

    def ratio(at: Point) -> Tensor:
        gain = length(product(weight, at["vector"])) / length(at["vector"])
        return gain / found.largest if side == "largest" else found.smallest / gain

    return Attack({"vector": anything(4)}, ratio)


GAUSS = gaussian(6, 6, seed=4) / torch.linalg.matrix_norm(gaussian(6, 6, seed=4), 2)
NORMS = {
    "two": TwoNorm(3),
    "diagonal": Ellipsoid(torch.tensor([0.5, -3.0, 1.0])),
    "full": Ellipsoid(gaussian(3, 3, seed=3)),
    "maximum": MaxNorm(torch.tensor([0.5, 3.0, 1.0])),
}
TIGHT: dict[str, Callable[[], Attack]] = {
    **{f"spectral, all weights, {a.name}": functools.partial(spectral_class, a) for a in ELEMENTWISE},
    "spectral, all weights, modrelu": modrelu_class,
    "diagonal, shear, relu": lambda: one_step(diagonal_contraction(SHEAR, 1.0), ReLU(), SHEAR),
    "diagonal, shear, tanh": lambda: one_step(diagonal_contraction(SHEAR, 1.0), Tanh(), SHEAR),
    "diagonal, six units, abs": lambda: one_step(diagonal_contraction(GAUSS, 1.0), Absolute(), GAUSS),
    "diagonal, six units, slopes of both signs": lambda: slopes_only(diagonal_contraction(GAUSS, 1.0), GAUSS, -1.0),
    "quadratic, twist, relu": lambda: one_step(quadratic_contraction(TWIST, 1.0), ReLU(), TWIST),
    "quadratic, twist, slopes": lambda: slopes_only(quadratic_contraction(TWIST, 1.0), TWIST, 0.0),
    "quadratic, 1.7 of the twist, slopes": lambda: slopes_only(quadratic_contraction(1.7 * TWIST, 1.0), 1.7 * TWIST, 0.0),
    "quadratic, all weights": quadratic_class,
    **{f"{n} norm, {s}": functools.partial(conversion, NORMS[n], s) for n in NORMS for s in ("lower", "upper")},
    "singular values, largest": lambda: enclosure("largest"),
    "singular values, smallest": lambda: enclosure("smallest"),
}
LOOSE = {
    "quadratic, 1.7 of the twist, tanh": Loose(
        0.999, lambda: one_step(quadratic_contraction(1.7 * TWIST, 1.0), Tanh(), 1.7 * TWIST)
    ),
    "quadratic, six units, slopes": Loose(0.994, lambda: slopes_only(quadratic_contraction(GAUSS, 1.0), GAUSS, 0.0)),
    "ten steps of the shear": Loose(0.564, lambda: repeated(diagonal_contraction(SHEAR, 1.0, max_condition=100.0), SHEAR, 10)),
    "four steps of the twist": Loose(0.417, lambda: repeated(quadratic_contraction(TWIST, 1.0), TWIST, 4)),
}
ATTACKS, GAPS = with_loose(TIGHT, LOOSE)

test_no_contraction_is_beaten = check_unbeaten(ATTACKS)
test_tight_contractions_are_met_and_nine_tenths_of_them_beaten = check_met(TIGHT)
test_the_gap_of_the_others_is_as_recorded = check_recorded(ATTACKS, GAPS)
