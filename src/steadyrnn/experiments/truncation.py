"""Figure 1 of Miller and Hardt: what a window of k inputs changes in the gradient, and in the weights during training."""

import math
from collections.abc import Mapping
from statistics import fmean
from typing import Any, NamedTuple

import torch
from torch import Tensor

from steadyrnn.linalg.projections import clip_singular_values

from .base import Judgement, group_by_seed, judge_numbers
from .curves import Axis, Line, Mark, Panel, mean_line

__all__ = [
    "judge_linear", "judge_steps", "judge_tanh", "judge_training", "measure_gradients", "measure_training", "show_differences",
]  # fmt: skip

_DOUBLE = torch.float64
_WIDTH, _STEPS, _BOUND, _WINDOW, _ALPHA = 32, 200, 0.75, 35, 0.01
"""Inputs and states, time steps, bound on the singular values of W, window and first step size of training, as in the paper."""


class _Instance(NamedTuple):
    """A random problem: inputs (T, D), the first W and U, readouts c and d, target y."""

    x: Tensor
    w: Tensor
    u: Tensor
    c: Tensor
    d: Tensor
    y: float


def _draw(spread: float, seed: int) -> _Instance:
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=_DOUBLE)

    x, w, u = 2 * normal(_STEPS, _WIDTH), spread * normal(_WIDTH, _WIDTH), spread * normal(_WIDTH, _WIDTH)
    c, d = normal(_WIDTH), normal(_WIDTH)
    y = float(4 * torch.rand((), generator=generator, dtype=_DOUBLE) - 2)
    return _Instance(x, clip_singular_values(w, 0.0, _BOUND), u, c, d, y)


def _gradient(kind: str, one: _Instance, w: Tensor, window: int) -> tuple[Tensor, Tensor]:
    """Return the gradient of half the squared error by W from the last inputs alone, and the last state."""
    w = w.clone().requires_grad_()
    h = torch.zeros(_WIDTH, dtype=_DOUBLE)
    for row in one.x[-window:] @ one.u.mT:
        h = w @ h + row
        h = h.tanh() if kind == "tanh" else h
    loss = (one.c @ h + one.d @ one.x[-1] - one.y).square() / 2
    return torch.autograd.grad(loss, w)[0], h.detach()


def measure_gradients(kind: str, spread: float, windows: list[int], seed: int) -> dict[str, Any]:
    r"""Measure :math:`\lVert \nabla p_T - \nabla p_T^k \rVert_F` of a random stable network for several windows k.

    Args:
        kind: ``"linear"`` or ``"tanh"``.
        spread: Standard deviation of the entries of W and U before the singular values of W are cut off at 0.75.
        windows: The lengths k.
        seed: Of the instance.

    Returns:
        Differences by window, the norm of the whole gradient, and the mean slope of the activation at the last step.

    Example:
        >>> found = measure_gradients("linear", 0.5, [5, 20], seed=0)
        >>> found["difference"][0] > 10 * found["difference"][1]
        True
    """
    one = _draw(spread, seed)
    whole, h = _gradient(kind, one, one.w, _STEPS)
    gaps = [float((whole - _gradient(kind, one, one.w, k)[0]).norm()) for k in windows]
    slope = float((1 - h.square()).mean()) if kind == "tanh" else 1.0
    return {"windows": windows, "difference": gaps, "gradient": float(whole.norm()), "slope": slope}


def measure_training(kind: str, spread: float, schedule: str, steps: int, seed: int) -> dict[str, Any]:
    r"""Train W twice, with all inputs and with the last 35, and measure how far apart the two are.

    Gradient descent with step size 0.01/t, 0.01/sqrt(t) or 0.01; after each step singular values are cut off at 0.75. Input and
    output weights are fixed, so that :math:`\lVert W - W' \rVert \le 1.5`, as the paper says.

    Args:
        kind: ``"linear"`` or ``"tanh"``.
        spread: As in :func:`measure_gradients`.
        schedule: ``"1/t"``, ``"1/sqrt(t)"`` or ``"constant"``.
        steps: Gradient steps.
        seed: Of the instance.

    Returns:
        The difference in spectral norm after each step.

    Example:
        >>> found = measure_training("tanh", 0.5, "1/t", steps=3, seed=0)
        >>> len(found["difference"]), found["difference"][-1] < 1e-12
        (3, True)
    """
    powers = {"1/t": 1.0, "1/sqrt(t)": 0.5, "constant": 0.0}
    one = _draw(spread, seed)
    weights, gaps = [one.w, one.w], []
    for t in range(1, steps + 1):
        size = _ALPHA / t ** powers[schedule]
        moved = [w - size * _gradient(kind, one, w, k)[0] for w, k in zip(weights, (_STEPS, _WINDOW), strict=True)]
        weights = [clip_singular_values(w, 0.0, _BOUND) for w in moved]
        gaps.append(float(torch.linalg.matrix_norm(weights[0] - weights[1], 2)))
    return {"difference": gaps}


def _fit(found: Mapping[str, Any], power: int) -> tuple[float, float]:
    """Return the rate r of the decay k^power r^k that fits differences best, in logarithms, and how far off it is (RMS).

    Differences at the level of rounding are left out.
    """
    floor = 1e-12 * found["gradient"]
    points = [
        (k, math.log(gap / k**power)) for k, gap in zip(found["windows"], found["difference"], strict=True) if gap > floor
    ]  # fmt: skip
    mean = [fmean(column) for column in zip(*points, strict=True)]
    slope = sum((k - mean[0]) * (y - mean[1]) for k, y in points) / sum((k - mean[0]) ** 2 for k, _ in points)
    return math.exp(slope), math.sqrt(fmean((y - mean[1] - slope * (k - mean[0])) ** 2 for k, y in points))


def _fit_rate(found: Mapping[str, Any]) -> float:
    return _fit(found, 1)[0]


def _rates(cells: Mapping[str, Any], kind: str, reading: str) -> list[float]:
    return [_fit_rate(group[0]) for group in group_by_seed(cells, f"gradient/{kind}/{reading}/")]


def _both(cells: Mapping[str, Any], kind: str) -> tuple[list[float], str]:
    """Return the rates in the first reading, and both means in words."""
    one, other = (_rates(cells, kind, reading) for reading in ("variance", "deviation"))
    return one, f"fitted r of k r^k: {fmean(one):.3f} if 0.5 is a variance, {fmean(other):.3f} if it is a standard deviation"


def judge_linear(cells: Mapping[str, Any]) -> Judgement:
    """Lemma 2, linear: the difference decays as k lambda^k, or as lambda^k alone; the form that fits better decides."""
    found = [group[0] for reading in ("variance", "deviation") for group in group_by_seed(cells, f"gradient/linear/{reading}/")]
    fits = {power: [_fit(one, power) for one in found] for power in (0, 1)}
    rate, off = ({power: fmean(fit[part] for fit in some) for power, some in fits.items()} for part in (0, 1))
    better = min(off, key=lambda power: off[power])
    verdict = "not seen" if abs(rate[better] / _BOUND - 1) > 0.1 else "seen" if better else "different"
    text = (
        f"k r^k fits with r = {rate[1]:.3f}, off by {off[1]:.2f} in logarithms; r^k with r = {rate[0]:.3f}, off by "
        f"{off[0]:.2f}. lambda is 0.75: the better form {'has' if better else 'lacks'} the factor k of the bound"
    )
    return judge_numbers(verdict, text, [fit[0] for fit in fits[better]], "rate of the better form")


def judge_tanh(cells: Mapping[str, Any]) -> Judgement:
    """Lemma 2, tanh: the difference decays much faster, since these inputs saturate the units."""
    rates, text = _both(cells, "tanh")
    slope = fmean(group[0]["slope"] for group in group_by_seed(cells, "gradient/tanh/variance/"))
    near = abs(fmean(rates) / _BOUND - 1) < 0.1
    saturated = fmean(rates) < _BOUND and slope < 0.5
    text += f"; lambda is 0.75. Far faster, since inputs of this size saturate the units: their mean slope is {slope:.2f}"
    return judge_numbers("seen" if near else "different" if saturated else "not seen", text, rates, "fitted rate")


def _last(cells: Mapping[str, Any], kind: str, schedule: str) -> list[float]:
    return [group[0]["difference"][-1] for group in group_by_seed(cells, f"training/{kind}/variance/{schedule}/")]


def judge_training(cells: Mapping[str, Any]) -> Judgement:
    """Proposition 2: with steps of 1/t the two models stay near; the linear one does not, at the printed step size."""
    linear, tanh = _last(cells, "linear", "1/t"), _last(cells, "tanh", "1/t")
    peak = fmean(max(group[0]["difference"]) for group in group_by_seed(cells, "training/linear/variance/1/t/"))
    first = _ALPHA * fmean(group[0]["gradient"] for group in group_by_seed(cells, "gradient/linear/variance/"))
    text = (
        f"tanh: {max(tanh):.0e} at the end, rounding; linear: {fmean(linear):.2f} at the end, {peak:.2f} at most, where 1.5 is "
        f"the most that two such weights can differ by. The first step is {first:.0f} long: at this step size the bound says "
        "nothing about the linear system"
    )
    verdict = "not seen"
    if max(tanh) < 1e-6:
        verdict = "seen" if peak < 0.1 * 2 * _BOUND else "different" if first > 2 * _BOUND else "not seen"
    return judge_numbers(verdict, text, linear, "spectral norm, linear")


def judge_steps(cells: Mapping[str, Any]) -> Judgement:
    """With larger steps the difference is larger in the end; tanh networks do not differ with any steps."""
    ends = {name: _last(cells, "linear", name) for name in ("1/t", "1/sqrt(t)", "constant")}
    means = {name: fmean(values) for name, values in ends.items()}
    worse = all(one > other for name in ("1/sqrt(t)", "constant") for one, other in zip(ends[name], ends["1/t"], strict=True))
    tanh = max(max(_last(cells, "tanh", name)) for name in ends)
    text = ", ".join(f"{name} {mean:.2f}" for name, mean in means.items())
    text = f"linear, after the last step: {text}; tanh: at most {tanh:.0e} with any of them"
    return judge_numbers("seen" if worse else "not seen", text, ends["1/t"], "spectral norm, linear, 1/t")


def show_differences(cells: Mapping[str, Any]) -> list[Panel]:
    """Show both parts of the figure, mean and spread over seeds, with 0.5 read as a variance."""
    gradients = []
    for kind in ("linear", "tanh"):
        found = [group[0] for group in group_by_seed(cells, f"gradient/{kind}/variance/")]
        gradients.append(mean_line(kind, [(one["windows"], one["difference"]) for one in found]).skip_zeros())
    gap = Axis("norm of the difference of gradients", "log")
    return [
        Panel("Gradient from k inputs and from all 200", Axis("window k in steps"), gap, [*gradients, _bound(gradients[0])]),
        _show_training(cells, "linear", "linear"),
        _show_training(cells, "tanh", "log"),
    ]


def _bound(linear: Line) -> Line:
    """Return k lambda^k, scaled so that it starts where a curve starts."""
    scale = (linear.y[0] or 1.0) / (linear.x[0] * _BOUND ** linear.x[0])
    y = [scale * k * _BOUND**k for k in linear.x]
    return Line("k 0.75^k, scaled: the bound's form", linear.x, y)


def _show_training(cells: Mapping[str, Any], kind: str, scale: str) -> Panel:
    """Show every fifth gradient step."""
    lines = []
    for schedule, label in (("1/t", "steps 0.01/t"), ("1/sqrt(t)", "steps 0.01/sqrt(t)"), ("constant", "steps 0.01")):
        found = [group[0]["difference"] for group in group_by_seed(cells, f"training/{kind}/variance/{schedule}/")]
        line = mean_line(label, [([*range(1, len(gaps) + 1)][::5], gaps[::5]) for gaps in found])
        lines.append(line.skip_zeros() if scale == "log" else line)
    most = [Mark("most that two such weights can differ by", y=2 * _BOUND)]
    title = f"Weights trained from {_WINDOW} inputs and from all, {kind}"
    return Panel(title, Axis("gradient step"), Axis("spectral norm of the difference", scale), lines, most)
