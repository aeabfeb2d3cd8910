"""Propositions 3 and 4 of Miller and Hardt: systems that no window approximates and that gradient descent does not train."""

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import torch

from steadyrnn.layers.rnn import RNN

from .base import Judgement
from .curves import Axis, Line, Panel

__all__ = [
    "compare_gradient", "descend", "judge_approximation", "judge_divergence", "judge_gradient", "judge_truncation",
    "show_instability", "truncate_unstable",
]  # fmt: skip


def truncate_unstable(rate: float, windows: list[int], steps: int) -> dict[str, Any]:
    r"""Measure what a window of the last k inputs misses of :math:`h_t = a h_{t-1} + x_t` after one impulse.

    Args:
        rate: a, above 1 for an unstable system.
        windows: Lengths k.
        steps: Time steps; the impulse is the first input.

    Returns:
        By window: the largest difference at the last step and halfway.

    Example:
        >>> truncate_unstable(2.0, windows=[3], steps=8)["end"]
        [128.0]
    """
    net = RNN(1, 1, nonlinearity="identity", bias=False, dtype=torch.float64)
    x = torch.zeros(steps, 1, 1, dtype=torch.float64)
    x[0] = 1.0
    with torch.no_grad():
        net.weight_hh_l0.fill_(rate)
        net.weight_ih_l0.fill_(1.0)
        whole = net(x)[0].flatten()
        ends = {
            t: [abs(float(whole[t] - net(x[max(0, t + 1 - k) : t + 1])[0][-1])) for k in windows]
            for t in (steps // 2, steps - 1)
        }
    return {"rate": rate, "windows": windows, "halfway": ends[steps // 2], "end": ends[steps - 1]}


def _gradient(a: float, steps: int) -> float:
    """Return the derivative of (h_T - 1)^2 / 2 by a, with h_t = a h_{t-1} + 1, by autograd."""
    rate = torch.tensor(a, dtype=torch.float64, requires_grad=True)
    h = torch.zeros((), dtype=torch.float64)
    for _ in range(steps):
        h = rate * h + 1
    (found,) = torch.autograd.grad((h - 1).square() / 2, rate)
    return float(found)


def compare_gradient(rate: float, steps: int) -> dict[str, Any]:
    r"""Compare the gradient with equation (6), its printed approximation, and one with the factor that is left out there.

    .. math:: \frac{dp_T}{da} \approx T a^{2T-3} \quad\text{(printed)}, \qquad \frac{T a^{2T-1}}{(a-1)^2}

    Args:
        rate: a.
        steps: T.

    Example:
        >>> found = compare_gradient(1.5, steps=40)
        >>> round(found["over_printed"], 1), round(found["over_corrected"], 2), abs(found["over_equation"] - 1) < 1e-9
        (8.3, 0.92, True)
    """
    a, T = rate, steps
    true, state = _gradient(a, T), (1 - a**T) / (1 - a)
    equation = (state - 1) * ((1 - a**T) / (1 - a) ** 2 - T * a ** (T - 1) / (1 - a))
    return {
        "rate": a, "steps": T, "gradient": true, "over_equation": true / equation,
        "over_printed": true / (T * a ** (2 * T - 3)), "over_corrected": true / (T * a ** (2 * T - 1) / (a - 1) ** 2),
    }  # fmt: skip


def descend(start: float, steps: int, iterations: int) -> dict[str, Any]:
    r"""Run gradient descent with step size 1/i on a from a start, until it is beyond 10^100 or the iterations are done.

    Args:
        start: First value of a.
        steps: T.
        iterations: At most so many.

    Returns:
        Values of a, how many iterations ran, whether it diverged, and whether signs alternate from the first step on.

    Example:
        >>> descend(1.5, steps=2, iterations=200)["diverged"], descend(1.5, steps=20, iterations=200)["diverged"]
        (False, True)
    """
    path = [start]
    for i in range(1, iterations + 1):
        try:
            step = _gradient(path[-1], steps) / i
        except OverflowError:
            break
        if not math.isfinite(step):
            break
        path.append(path[-1] - step)
        if abs(path[-1]) > 1e100:
            break
    diverged = abs(path[-1]) > 1e6
    alternates = all(before * after < 0 for before, after in pairwise(path))
    return {"start": start, "steps": steps, "path": path[:8], "last": path[-1], "diverged": diverged, "alternates": alternates}


def judge_truncation(cells: Mapping[str, Any]) -> Judgement:
    """Proposition 3: no window approximates an unstable system; every window does a stable one."""
    wild, tame = cells["unstable"], cells["stable"]
    grows = all(end > 1e6 * max(half, 1.0) for half, end in zip(wild["halfway"], wild["end"], strict=True))
    fades = max(tame["end"]) < 1e-12
    text = f"a = 2: every window is wrong by {min(wild['end']):.1e} at the last step, and it grows; "
    text += f"a = 0.5: by {max(tame['end']):.0e}"
    return Judgement("seen" if grows and fades else "not seen", text, min(wild["end"]))


def _gradients(cells: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [numbers for name, numbers in cells.items() if name.startswith("gradient/")]


def judge_gradient(cells: Mapping[str, Any]) -> Judgement:
    """Equation (6)."""
    off = max(abs(one["over_equation"] - 1) for one in _gradients(cells))
    return Judgement("seen" if off < 1e-6 else "not seen", f"equal to autograd to {off:.0e}", off)


def judge_approximation(cells: Mapping[str, Any]) -> Judgement:
    """The approximation for large T lacks the factor a^2 / (a - 1)^2."""
    found = [one for one in _gradients(cells) if one["rate"] > 1 and one["steps"] >= 40]
    text = "; ".join(
        f"a = {one['rate']:g}, T = {one['steps']}: {one['over_printed']:.2g} times the printed one, "
        f"{one['over_corrected']:.2f} times T a^(2T-1)/(a-1)^2" for one in found
    )  # fmt: skip
    near = all(abs(one["over_corrected"] - 1) < 0.2 for one in found)
    printed = all(abs(one["over_printed"] - 1) < 0.2 for one in found)
    return Judgement("seen" if printed else "different" if near else "not seen", text)


def judge_divergence(cells: Mapping[str, Any]) -> Judgement:
    """Proposition 4: descent diverges from outside [-1, 1] in some systems; not for every T, and also from starts inside."""
    found = {name.removeprefix("descent/"): one for name, one in cells.items() if name.startswith("descent/")}
    long = [one for name, one in found.items() if name.startswith("outside")]
    growing = found["growing"]["path"]
    grows = len(growing) > 4 and all(abs(before) < abs(after) for before, after in pairwise(growing))
    diverges = grows and all(one["diverged"] and one["alternates"] for one in (*long, found["growing"]))
    text = (
        f"T = 3 from a = 1.2: {', '.join(f'{a:.2g}' for a in growing[:5])}, ...; "
        f"from a = 1.5 it diverges with alternating sign (T = {', '.join(str(one['steps']) for one in long)}); not for every "
        f"T: with T = 2 it {'diverges' if found['short']['diverged'] else 'converges'}; and a start "
        f"inside, a = 0.5 with T = 20, {'diverges' if found['inside']['diverged'] else 'converges'} too"
    )
    everywhere = found["short"]["diverged"] and not found["inside"]["diverged"]
    return Judgement("not seen" if not diverges else "seen" if everywhere else "different", text)


def show_instability(cells: Mapping[str, Any]) -> list[Panel]:
    """Show what windows miss of an unstable and of a stable system, and the size of a during gradient descent."""
    missed = [
        Line(f"a = {cells[name]['rate']:g}, {when}", cells[name]["windows"], cells[name][key]).skip_zeros()
        for name in ("unstable", "stable")
        for key, when in (("end", "last step"), ("halfway", "halfway"))
    ]
    descents = [one for name, one in cells.items() if name.startswith("descent/")]
    paths = [Line(_name_descent(one), [*range(len(one["path"]))], [abs(a) for a in one["path"]]) for one in descents]
    size = Axis("size of a", "log")
    return [
        Panel(
            "Proposition 3: what a window of k inputs misses", Axis("window k in steps"),
            Axis("difference of the states", "log"), missed,
        ),
        Panel(
            "Proposition 4: gradient descent until numbers overflow", Axis("iteration i, with step size 1/i"), size,
            [path.skip_zeros() for path in paths],
        ),
    ]  # fmt: skip


def _name_descent(one: Mapping[str, Any]) -> str:
    """Return where a descent starts; one that reaches 0 leaves a logarithmic axis."""
    return f"a = {one['start']:g}, T = {one['steps']}" + ("" if one["path"][-1] else ", then 0")
