"""Certificates for given inputs under attack: the inputs are the adversary's, and each has a certificate of its own."""

import functools
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from steadyrnn.activations import Activation, as_activation
from steadyrnn.certificates.certificate import Certificate
from steadyrnn.certificates.on_inputs import DataCertificate, certify_on
from tests.falsification.adversary import ROUNDING, Attack, Point, anything, ball
from tests.falsification.checks import check_met, check_recorded, check_unbeaten
from tests.falsification.modules import INPUT, certified
from tests.falsification.networks import jacobian, length, product, run, slope_at, spectral_norm, tail

STEPS = 5
Found = Certificate | DataCertificate
Measure = Callable[[str, Point, list[Found]], Tensor]


def of(name: str, x: Tensor) -> list[Found]:
    """Return the certificate of each start's inputs, (starts, STEPS, D)."""
    this = certified(name)
    return [certify_on(this.certificate, this.step.module, row) for row in x.detach()]


def attack(name: str, measured: Measure, promised: Callable[[Found], float], below: bool, steps: int = 15) -> Attack:
    """Attack what is promised for each start's inputs."""
    this = certified(name)

    def ratio(at: Point) -> Tensor:
        certificates = of(name, at["input"])
        bounds = torch.tensor([promised(one) for one in certificates], dtype=torch.float64)
        found = measured(name, at, certificates)
        return bounds / found.clamp(min=1e-300) if below else found / bounds.clamp(min=1e-300)

    free = {"input": ball(INPUT, STEPS, this.inputs), "direction": anything(STEPS, this.step.width)}
    return Attack(free, ratio, starts=4, steps=steps)


def largest_error(name: str, at: Point, _: list[Found], k: int) -> Tensor:
    """Return the largest error of an output for a start from zero k steps before, or at the true start."""
    step, x = certified(name).step, at["input"].unbind(1)
    errors = []
    for end in range(max(k, 1), STEPS + 1):
        whole = tail(step, step.initial(len(x[0])), x[:end])
        errors.append(length(step.output(whole - tail(step, torch.zeros_like(whole), x[end - k : end]))))
    return torch.stack(errors).amax(0)


def slopes(name: str, at: Point) -> tuple[Tensor, Tensor]:
    """Return the recurrent weight, and the slopes met at every step."""
    module = certified(name).step.module
    activation: Activation = as_activation(module.nonlinearity)
    read = module.state_dict()
    bias = sum((read[name] for name in ("bias_ih_l0", "bias_hh_l0") if name in read), torch.zeros(1))
    driven = product(read["weight_ih_l0"], at["input"]) + bias
    weight: Tensor = read["weight_hh_l0"]
    states = run(activation, weight, driven, certified(name).step.initial(len(driven)))
    return weight, slope_at(activation, product(weight, states[:, :-1]) + driven)


def gain(name: str, at: Point, _: list[Found], lag: int, most: bool) -> Tensor:
    """Return the largest or smallest norm of the gradient between two states that are ``lag`` steps apart."""
    weight, met = slopes(name, at)
    found = torch.stack([spectral_norm(jacobian(weight, met[:, t : t + lag])) for t in range(STEPS - lag + 1)])
    return found.amax(0) if most else found.amin(0)


def rate(name: str, at: Point, certificates: list[Found]) -> Tensor:
    """Return the largest rate of one step for states close to those met, in the norm that each certificate names."""
    weight, met = slopes(name, at)
    norms = [tier.contraction.norm for tier in certified(name).certificate.layers[0].tiers]
    moved, rates = met * product(weight, at["direction"]), []
    for place, one in enumerate(certificates):
        norm = [norm for norm in norms if one.norm.startswith(norm.name)][-1]
        rates.append((norm(moved[place]) / norm(at["direction"][place])).max())
    return torch.stack(rates)


NAMES = ("tanh", "leaky_relu", "twist", "learned initial state", "aligned identity")
KINDS: dict[str, tuple[Measure, Callable[[Found], float], bool]] = {
    "states": (functools.partial(largest_error, k=0), lambda c: c.state_bound, False),
    "contraction": (rate, lambda c: c.contraction, False),
    **{f"window of {k}": (functools.partial(largest_error, k=k), lambda c, k=k: c.truncation_error(k), False) for k in (0, 2)},
    "gradient from above": (functools.partial(gain, lag=2, most=True), lambda c: c.gradient_bounds(2)[1], False),
}
BELOW = (functools.partial(gain, lag=2, most=False), lambda c: c.gradient_bounds(2)[0], True)
GATED = ("lstm", "gru before")
ATTACKS: dict[str, Callable[[], Attack]] = {
    **{f"{n}, {k}": functools.partial(attack, n, *KINDS[k]) for n in NAMES for k in KINDS},
    **{f"{n}, {k}": functools.partial(attack, n, *KINDS[k], steps=4) for n in GATED for k in ("states", "window of 2")},
    **{f"{n}, gradient from below": functools.partial(attack, n, *BELOW) for n in ("tanh", "leaky_relu")},
}
GAPS = {
    "tanh, states": 0.999,
    "tanh, contraction": 0.922,
    "tanh, window of 0": 0.45,
    "tanh, window of 2": 0.777,
    "tanh, gradient from above": 0.999,
    "leaky_relu, states": 0.999,
    "leaky_relu, contraction": 0.976,
    "leaky_relu, window of 0": 0.351,
    "leaky_relu, window of 2": 0.372,
    "leaky_relu, gradient from above": 0.999,
    "twist, states": 0.999,
    "twist, contraction": 0.999,
    "twist, window of 0": 0.999,
    "twist, window of 2": 0.999,
    "twist, gradient from above": 0.999,
    "learned initial state, states": 0.999,
    "learned initial state, contraction": 0.999,
    "learned initial state, window of 0": 0.414,
    "learned initial state, window of 2": 0.657,
    "learned initial state, gradient from above": 0.999,
    "aligned identity, states": 0.999,
    "aligned identity, contraction": 0.999,
    "aligned identity, window of 0": 0.99,
    "aligned identity, window of 2": 0.999,
    "aligned identity, gradient from above": 0.999,
    "lstm, states": 0.714,
    "lstm, window of 2": 0.0958,
    "gru before, states": 0.817,
    "gru before, window of 2": 0.336,
    "tanh, gradient from below": 0.476,
    "leaky_relu, gradient from below": 0.0493,
}

test_no_certificate_for_given_inputs_is_beaten = check_unbeaten(ATTACKS)
test_nine_tenths_of_a_tight_certificate_are_beaten = check_met(
    ATTACKS, [name for name, gap in GAPS.items() if gap >= 0.99], 0.9
)
test_the_gap_is_as_recorded = check_recorded(ATTACKS, GAPS)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("k", [0, 1, 2])
def test_the_last_output_counts_as_any_other(name: str, k: int) -> None:
    x = torch.zeros(1, STEPS, certified(name).inputs, dtype=torch.float64)
    x[:, STEPS - 1 - k] = INPUT / x.shape[-1] ** 0.5  # so late that only the last window of this length misses it
    (found,) = of(name, x)
    assert float(largest_error(name, {"input": x}, [found], k)) <= found.truncation_error(k) * (1 + ROUNDING)
