"""What a network remembers under attack: weights of a class, inputs, initial states.

Note [mathematics], sections 4.1, 5.4, 1.2.
"""

import functools
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from steadyrnn.activations import Activation, Identity, ReLU, Tanh
from steadyrnn.bounds.memory import horizon, truncation_error
from steadyrnn.bounds.norms import state_radius
from steadyrnn.bounds.stack import stack_errors, stack_horizon
from steadyrnn.bounds.unitary import dilation_radius
from tests.falsification.adversary import Attack, Free, Point, ball, reached, spectral
from tests.falsification.checks import Loose, check_met, check_recorded, check_unbeaten, with_loose
from tests.falsification.networks import difference, length, product, run

RATE, GAIN, BIAS, INPUT, STEPS = 0.6, 0.05, 0.02, 0.4, 18
START = GAIN * INPUT + BIAS
"""All activations here are odd or rectify: a bias moves the state by no more than its norm."""


def driven(at: Point) -> Tensor:
    """Return U x + b at every time."""
    return product(at["enter"].unsqueeze(1), at["input"]) + at["bias"].unsqueeze(1)


def network(initial: float = 0.0, rate: float = RATE, steps: int = STEPS) -> dict[str, Free]:
    """Return the class of networks that the numbers above describe, with their inputs."""
    return {
        "weight": spectral(rate, 3, 3),
        "enter": spectral(GAIN, 3, 2),
        "bias": ball(BIAS, 3),
        "input": ball(INPUT, steps, 2),
        "state": ball(initial, 3) if initial else Free((3,), torch.zeros_like),
    }


def radius(activation: Activation, initial: float = 0.0) -> Attack:
    """Attack the bound on states at all times."""
    promised = state_radius(RATE, START, initial)

    def ratio(at: Point) -> Tensor:
        states = run(activation, at["weight"], driven(at), at["state"])
        return torch.linalg.vector_norm(states, dim=-1).amax(1) / promised

    return Attack(network(initial), ratio)


def truncation(activation: Activation, window: int, initial: float = 0.0) -> Attack:
    """Attack the error of a run from zero over the last inputs."""
    promised = truncation_error(RATE, state_radius(RATE, START, initial), window)

    def ratio(at: Point) -> Tensor:
        def step(state: Tensor, drive: Tensor) -> Tensor:
            return activation.value(product(at["weight"], state) + drive)

        return length(difference(step, at["state"], driven(at), window)) / promised

    return Attack(network(initial), ratio, starts=48, steps=120)


def windowed(eps: float, less: int = 0) -> Attack:
    """Attack the window that is said to be long enough, or one that is shorter."""
    window = horizon(RATE, state_radius(RATE, START), eps) - less

    def ratio(at: Point) -> Tensor:
        def step(state: Tensor, drive: Tensor) -> Tensor:
            return product(at["weight"], state) + drive

        return length(difference(step, at["state"], driven(at), window)) / eps

    return Attack(network(), ratio)


def dilated(rate: float, initial: float, steps: int, finite: bool) -> Attack:
    """Attack the radius from which the bias of a unitary network follows: only what is positive enters."""
    promised = dilation_radius(rate, START, initial, horizon=steps if finite else None)

    def ratio(at: Point) -> Tensor:
        states = run(ReLU(), at["weight"], driven(at), at["state"])
        return torch.linalg.vector_norm(states, dim=-1).amax(1) / promised

    return Attack(network(initial, rate, steps), ratio, steps=150)


RATES, GAINS = (0.5, 0.7, 0.6), (1.0, 0.8, 1.3)


def stack_radii(layers: int) -> list[float]:
    """Return the radius of each layer, of which the next one's inputs are bounded."""
    radii, bound = [], INPUT
    for rate, gain in zip(RATES[:layers], GAINS[:layers], strict=True):
        bound = state_radius(rate, gain * bound)
        radii.append(bound)
    return radii


def stack_step(at: Point, layers: int, activation: Activation) -> Callable[[Tensor, Tensor], Tensor]:
    """Return the step of a stack, its states (starts, layers, 2)."""

    def step(states: Tensor, x: Tensor) -> Tensor:
        new: list[Tensor] = []
        for layer in range(layers):
            below = new[-1] if new else x
            inside = product(at[f"weight {layer}"], states[:, layer]) + product(at[f"enter {layer}"], below)
            new.append(activation.value(inside))
        return torch.stack(new, dim=1)

    return step


def stack(layers: int, window: int, promised: float, activation: Activation, starts: int = 24) -> Attack:
    """Attack the error of the top of a stack that starts from zero."""

    def ratio(at: Point) -> Tensor:
        start = torch.zeros(len(at["input"]), layers, 2, dtype=torch.float64)
        errors = difference(stack_step(at, layers, activation), start, at["input"], window)
        return length(errors[:, -1]) / promised

    weights = {f"weight {layer}": spectral(RATES[layer], 2, 2) for layer in range(layers)}
    gains = {f"enter {layer}": spectral(GAINS[layer], 2, 2) for layer in range(layers)}
    return Attack({**weights, **gains, "input": ball(INPUT, 14 + 4 * layers, 2)}, ratio, starts, steps=120)


def attack_stack(layers: int, window: int, activation: Activation) -> Attack:
    """Attack the recursion over layers."""
    found = stack_errors(RATES[:layers], stack_radii(layers), GAINS[:layers], window)
    return stack(layers, window, found[-1], activation, 80 if isinstance(activation, ReLU) else 24)


def stack_window(eps: float, less: int = 0) -> Attack:
    """Attack the window that is said to be long enough for the top of a stack."""
    window = stack_horizon(RATES[:2], stack_radii(2), GAINS[:2], eps) - less
    return stack(2, window, eps, Identity())


TIGHT: dict[str, Callable[[], Attack]] = {
    "states, identity": functools.partial(radius, Identity()),
    "states, relu": functools.partial(radius, ReLU()),
    "states, tanh": functools.partial(radius, Tanh()),
    "states from an initial one, relu": functools.partial(radius, ReLU(), 0.5),
    **{f"window of {k}, identity": functools.partial(truncation, Identity(), k) for k in (0, 1, 5)},
    **{f"window of {k}, relu": functools.partial(truncation, ReLU(), k) for k in (1, 5)},
    "window of 3, tanh": functools.partial(truncation, Tanh(), 3),
    "window of all, from an initial state": functools.partial(truncation, Identity(), STEPS, 0.5),
    "dilation": functools.partial(dilated, RATE, 0.0, STEPS, False),
    "dilation, from an initial state": functools.partial(dilated, RATE, 1.0, STEPS, False),
    "dilation, rate 1, a horizon": functools.partial(dilated, 1.0, 0.3, 8, True),
    "stack of two, identity": functools.partial(attack_stack, 2, 4, Identity()),
    "stack of two, relu": functools.partial(attack_stack, 2, 4, ReLU()),
    "stack of three, identity": functools.partial(attack_stack, 3, 6, Identity()),
}
LOOSE = {
    "horizon": Loose(0.849, functools.partial(windowed, 7e-4)),
    "horizon of a stack": Loose(0.721, functools.partial(stack_window, 1e-2)),
    "dilation, rate 1.1, a horizon": Loose(0.825, functools.partial(dilated, 1.1, 0.3, 8, True)),
    "stack of two, tanh": Loose(0.549, functools.partial(attack_stack, 2, 4, Tanh())),
}
ATTACKS, GAPS = with_loose(TIGHT, LOOSE)
TOO_SHORT: dict[str, Callable[[], Attack]] = {
    "horizon": functools.partial(windowed, 7e-4, 1),
    "horizon of a stack": functools.partial(stack_window, 1e-2, 1),
}

test_no_bound_on_memory_is_beaten = check_unbeaten(ATTACKS)
test_tight_bounds_are_met_and_nine_tenths_of_them_beaten = check_met(TIGHT)
test_the_gap_of_the_others_is_as_recorded = check_recorded(ATTACKS, GAPS)


@pytest.mark.parametrize("name", TOO_SHORT)
def test_a_window_shorter_by_one_is_beaten(name: str) -> None:
    assert reached(TOO_SHORT[name]) > 1
