"""Unitary networks under attack: extra units that are almost silent, and networks that are too small (MATH 1.2, 1.5, 1.6)."""

import functools
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from steadyrnn.activations import Activation, Sigmoid, Tanh
from steadyrnn.bounds.unitary import sigmoid_dilation_error, tanh_dilation_error, unitary_size_bound
from tests.falsification.adversary import Attack, Point, anything, ball, interval, reached, spectral
from tests.falsification.checks import check_met, check_unbeaten
from tests.falsification.networks import length, product, run

SIZE, RANK, COUPLING, SILENCE, DISTURBANCE = 2, 2, 0.9, 6.0, 1e-3


def almost_silent(activation: Activation, norm: float, steps: int) -> Attack:
    """Attack the error of a dilation: its extra units are anywhere within what is said of them, at every step."""
    if isinstance(activation, Sigmoid):
        noise, promised = math.exp(-SILENCE), sigmoid_dilation_error(norm, COUPLING, RANK, SILENCE, DISTURBANCE)
    else:
        noise = 2 * math.exp(-2 * SILENCE)
        promised = tanh_dilation_error(norm, COUPLING, RANK, SILENCE, DISTURBANCE, steps if norm >= 1 else None)

    def ratio(at: Point) -> Tensor:
        enters = product(at["couple"].unsqueeze(1), at["extra"]) + at["disturb"]
        start = at["drive"][:, 0] * 0
        one, other = (run(activation, at["weight"], drive, start) for drive in (at["drive"], at["drive"] + enters))
        return length(one[:, -1] - other[:, -1]) / promised

    free = {
        "weight": spectral(norm, SIZE, SIZE),
        "couple": spectral(COUPLING, SIZE, RANK),
        "extra": interval(0.0, noise, steps, RANK),
        "disturb": ball(DISTURBANCE, steps, SIZE),
        "drive": anything(steps, SIZE),
    }
    return Attack(free, ratio)


def silent_unit(activation: Activation) -> Attack:
    """Attack what is said of an extra unit: with its bias, no states of the others make it speak."""

    def ratio(at: Point) -> Tensor:
        bias = -SILENCE - at["row"].abs().sum(-1)
        value = activation.value((at["row"] * at["state"]).sum(-1) + bias)
        return value * math.exp(SILENCE) if isinstance(activation, Sigmoid) else (value + 1) * math.exp(2 * SILENCE) / 2

    return Attack({"row": ball(1.0, 3), "state": interval(*VALUES[activation.name], 3)}, ratio)


VALUES = {"sigmoid": (0.0, 1.0), "tanh": (-1.0, 1.0)}


def smaller(size: int) -> Attack:
    """Try to build a unitary network that equals y = relu(x) on two steps: C F = I and C W F = 0 (MATH 1.5)."""
    one = torch.eye(SIZE, dtype=torch.float64)

    def ratio(at: Point) -> Tensor:
        turn = torch.linalg.matrix_exp(at["turn"] - at["turn"].mT)
        first, second = at["leave"] @ at["enter"] - one, at["leave"] @ turn @ at["enter"]
        return -length(torch.stack([first, second], dim=1))

    free = {"leave": spectral(1.5, SIZE, size), "enter": spectral(1.5, size, SIZE), "turn": anything(size, size)}
    return Attack(free, ratio, starts=40, steps=300)


TIGHT: dict[str, Callable[[], Attack]] = {
    "sigmoid dilation": functools.partial(almost_silent, Sigmoid(), 2.0, 12),
    "tanh dilation": functools.partial(almost_silent, Tanh(), 0.6, 16),
    "tanh dilation, norm 1": functools.partial(almost_silent, Tanh(), 1.0, 6),
    "silent sigmoid": functools.partial(silent_unit, Sigmoid()),
    "silent tanh": functools.partial(silent_unit, Tanh()),
}
LEAST = unitary_size_bound(torch.zeros(SIZE, SIZE), torch.eye(SIZE))

test_no_bound_on_dilations_is_beaten = check_unbeaten(TIGHT)
test_tight_bounds_are_met_and_nine_tenths_of_them_beaten = check_met(TIGHT)


def test_no_smaller_network_is_found_where_none_exists() -> None:
    assert reached(functools.partial(smaller, LEAST - 1)) ** 2 == pytest.approx(0.147, abs=1e-3)


def test_a_network_of_the_least_size_is_found() -> None:
    assert reached(functools.partial(smaller, LEAST)) >= -1e-3
