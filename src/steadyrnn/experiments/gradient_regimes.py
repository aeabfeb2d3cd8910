"""Tables 1, 2 and 6 of Lin and Wang: what singular values and slopes say about gradients, and what gradients do."""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from steadyrnn.activations import ACTIVATIONS, LeakyReLU
from steadyrnn.bounds.sandwich import regime
from steadyrnn.layers.rnn import RNN
from steadyrnn.linalg.exponential import exp_skew, skew_part
from steadyrnn.probes.gradient_flow import gradient_flow

from .base import Judgement, judge_numbers
from .curves import Axis, Line, Mark, Panel, mean_line
from .published.lin import VALUES

__all__ = [
    "judge_absolute", "judge_absolute_slope", "judge_constant", "judge_eigenvalues", "judge_explodes", "judge_leaky_lower",
    "judge_leaky_slope", "judge_leaky_upper", "judge_may_explode", "judge_may_vanish", "judge_mixed", "judge_relu_slope",
    "judge_relu_upper", "judge_vanishes", "measure_eigenvalue_bound", "measure_gradient_norm", "measure_limits",
    "measure_slopes", "show_limits", "show_norms",
]  # fmt: skip

_DOUBLE = torch.float64


def _orthogonal(width: int, generator: torch.Generator) -> Tensor:
    return exp_skew(skew_part(3 * torch.randn(width, width, generator=generator, dtype=_DOUBLE)))


def measure_limits(low: float, high: float, slope: float, width: int, steps: int, seed: int) -> dict[str, Any]:
    r"""Follow :math:`\lVert \partial x_t / \partial x_k \rVert` over many steps for the two extreme patterns of slopes.

    The weight has singular values spread evenly from ``low`` to ``high``, with random singular vectors. Slopes of a
    piecewise linear activation are ``slope`` or 1: all of them the one, all the other, or drawn at random at each step.

    Args:
        low: Smallest singular value.
        high: Largest singular value.
        slope: The smaller slope :math:`\beta`; the larger, :math:`\gamma`, is 1.
        width: Units.
        steps: Factors of the product.
        seed: Of singular vectors and slopes.

    Returns:
        The logarithm to base 10 of the spectral norm after ``steps`` steps, by pattern; and what :func:`regime` says.

    Example:
        >>> found = measure_limits(low=1.0, high=1.0, slope=1.0, width=4, steps=50, seed=0)
        >>> found["regime"], abs(found["random"]) < 1e-12
        ('constant', True)
    """
    generator = torch.Generator().manual_seed(seed)
    values = torch.linspace(low, high, width, dtype=_DOUBLE)
    weight = _orthogonal(width, generator) @ torch.diag(values) @ _orthogonal(width, generator)
    drawn = torch.rand(steps, width, generator=generator, dtype=_DOUBLE)
    patterns = {
        "small": torch.full_like(drawn, slope), "large": torch.ones_like(drawn),
        "random": torch.where(drawn < 0.5, torch.full_like(drawn, slope), 1.0),
    }  # fmt: skip
    logs = {name: _log_norm(weight, slopes) for name, slopes in patterns.items()}
    return {"low": low * slope, "high": high, "steps": steps, **logs, "regime": regime(weight, (slope, 1.0))}


def _log_norm(weight: Tensor, slopes: Tensor) -> float:
    """Return the logarithm of the norm of a product of Jacobians, which is rescaled on the way."""
    product, scale = torch.eye(weight.shape[0], dtype=_DOUBLE), 0.0
    for row in slopes:
        product = (weight * row) @ product
        size = float(product.abs().max())
        if size == 0.0:
            return -math.inf
        product, scale = product / size, scale + math.log10(size)
    return scale + math.log10(float(torch.linalg.matrix_norm(product, 2)))


def measure_eigenvalue_bound(steps: int) -> dict[str, Any]:
    r"""Measure a gradient that explodes although every eigenvalue is below 1, with the activation :math:`|x|`.

    The weight is not normal: its eigenvalues have modulus 0.59, its largest singular value is 2.2. The slopes are held at
    +1 for one unit and -1 for the other; Note [mathematics], section 3.3.

    Args:
        steps: Factors of the product.

    Example:
        >>> found = measure_eigenvalue_bound(steps=60)
        >>> found["printed_bound"] < 1e-13, found["norm"] > 1e19
        (True, True)
    """
    weight = torch.tensor([[1.0, -1.5], [0.9, -1.0]], dtype=_DOUBLE)
    radius = float(torch.linalg.eigvals(weight).abs().max())
    slopes = torch.tensor([[1.0, -1.0]], dtype=_DOUBLE).expand(steps, 2)
    return {
        "radius": radius, "largest_singular_value": float(torch.linalg.matrix_norm(weight, 2)),
        "printed_bound": radius**steps * math.sqrt(2), "norm": 10 ** _log_norm(weight, slopes), "steps": steps,
    }  # fmt: skip


def measure_slopes(activation: str, slope: float | None = None) -> dict[str, Any]:
    r"""Measure the range of :math:`|\varphi'|` by autograd on a grid without 0, beside the range that our records state.

    Args:
        activation: Its name.
        slope: Of the leaky ReLU below 0.

    Example:
        >>> found = measure_slopes("leaky_relu", 0.25)
        >>> found["measured"], found["stated"]
        ([0.25, 1.0], [0.25, 1.0])
    """
    function = LeakyReLU(slope) if slope is not None else ACTIVATIONS[activation]()
    x = torch.linspace(-10, 10, 20_000, dtype=_DOUBLE).requires_grad_()  # an even number: 0 is not among them
    (slopes,) = torch.autograd.grad(function.value(x).sum(), x)
    return {"measured": [float(slopes.abs().min()), float(slopes.abs().max())], "stated": list(function.steepness)}


def measure_gradient_norm(
    activation: str, width: int, steps: int, seed: int, slope: float | None = None, scale: float = 1.0
) -> dict[str, Any]:
    r"""Measure :math:`\lVert \partial x_t / \partial x_{t-L} \rVert_F` of a random orthogonal network.

    Args:
        activation: Its name.
        width: Units h.
        steps: The lag L.
        seed: Of weights and inputs.
        slope: Of the leaky ReLU below 0.
        scale: Standard deviation of the inputs.

    Returns:
        The measured norm, and the bounds :math:`\sqrt{h} \beta^L` and :math:`\sqrt{h} \gamma^L`.

    Example:
        >>> found = measure_gradient_norm("abs", width=9, steps=5, seed=0)
        >>> round(found["norm"], 12), found["upper"]
        (3.0, 3.0)
    """
    generator = torch.Generator().manual_seed(seed)
    function = LeakyReLU(slope) if slope is not None else ACTIVATIONS[activation]()
    rnn = RNN(8, width, nonlinearity=function, dtype=_DOUBLE)
    with torch.no_grad():
        rnn.weight_hh_l0.copy_(_orthogonal(width, generator))
        rnn.weight_ih_l0.copy_(torch.randn(width, 8, generator=generator, dtype=_DOUBLE) / math.sqrt(8))
        rnn.bias_ih_l0.zero_()
        rnn.bias_hh_l0.zero_()
    x = scale * torch.randn(steps, 1, 8, generator=generator, dtype=_DOUBLE)
    norm = float(gradient_flow(rnn, x).frobenius.flatten()[-1])
    low, high = function.steepness
    root = math.sqrt(width)
    return {"width": width, "lag": steps, "norm": norm, "lower": root * low**steps, "upper": root * high**steps}


def _numbers(cells: Mapping[str, Any], start: str) -> list[dict[str, Any]]:
    return [numbers for name, numbers in cells.items() if name.startswith(f"{start}/")]


def _power(exponent: float) -> str:
    return f"10^{exponent:.1f}"


def judge_vanishes(cells: Mapping[str, Any]) -> Judgement:
    """Both products below 1: the gradient vanishes whatever the slopes are."""
    logs = [max(one["small"], one["large"], one["random"]) for one in _numbers(cells, "below-below")]
    right = all(one["regime"] == "vanishes" for one in _numbers(cells, "below-below"))
    return judge_numbers(
        "seen" if right and max(logs) < -3 else "not seen",
        f"{_power(max(logs))} or less after {_numbers(cells, 'below-below')[0]['steps']} steps",
        logs,
        "log10 of the norm",
    )


def judge_may_vanish(cells: Mapping[str, Any]) -> Judgement:
    """Lower below 1, upper equal to 1: it may vanish, and does for random slopes; it never explodes."""
    found = _numbers(cells, "below-one")
    logs, kept = [one["random"] for one in found], [one["large"] for one in found]
    seen = max(logs) < -3 and max(kept) < 1e-9
    text = f"{_power(max(logs))} for random slopes, {_power(max(kept))} where all slopes are 1"
    return judge_numbers("seen" if seen else "not seen", text, logs, "log10 of the norm")


def judge_mixed(cells: Mapping[str, Any]) -> Judgement:
    """Lower below 1, upper above 1: both limits occur."""
    found = _numbers(cells, "below-above")
    small, large = [one["small"] for one in found], [one["large"] for one in found]
    text = f"{_power(max(small))} where all slopes are small, {_power(min(large))} where all are large"
    return judge_numbers("seen" if max(small) < -3 and min(large) > 3 else "not seen", text, large, "log10 of the norm")


def judge_constant(cells: Mapping[str, Any]) -> Judgement:
    """Both equal to 1: the norm is constant."""
    found = _numbers(cells, "one-one")
    off = [max(abs(one[name]) for name in ("small", "large", "random")) for one in found]
    seen = max(off) < 1e-9 and all(one["regime"] == "constant" for one in found)
    return judge_numbers(
        "seen" if seen else "not seen", f"constant to a factor of 1 +- {10 ** max(off) - 1:.0e}", off, "log10 of the norm"
    )


def judge_may_explode(cells: Mapping[str, Any]) -> Judgement:
    """Lower equal to 1, upper above 1: it may explode; it must, by the determinant bound, since slopes are 1 throughout."""
    logs = [min(one["small"], one["large"], one["random"]) for one in _numbers(cells, "one-above")]
    return judge_numbers("seen" if min(logs) > 3 else "not seen", f"at least {_power(min(logs))}", logs, "log10 of the norm")


def judge_explodes(cells: Mapping[str, Any]) -> Judgement:
    """Both above 1: it explodes whatever the slopes are."""
    logs = [min(one["small"], one["large"], one["random"]) for one in _numbers(cells, "above-above")]
    return judge_numbers("seen" if min(logs) > 3 else "not seen", f"at least {_power(min(logs))}", logs, "log10 of the norm")


def judge_eigenvalues(cells: Mapping[str, Any]) -> Judgement:
    """The upper bound with eigenvalues, as printed: false for a weight that is not normal."""
    one = cells["eigenvalues"]
    text = (
        f"eigenvalues of modulus {one['radius']:.2f}, largest singular value {one['largest_singular_value']:.2f}: norm "
        f"{one['norm']:.1e} after {one['steps']} steps, printed bound {one['printed_bound']:.1e}. "
        "With singular values the table holds"
    )
    return Judgement("different" if one["norm"] > one["printed_bound"] else "seen", text, one["norm"])


def _judge_range(one: Mapping[str, Any], expected: list[float]) -> Judgement:
    right = one["measured"] == one["stated"] == expected
    return Judgement("seen" if right else "not seen", f"[{one['measured'][0]:g}, {one['measured'][1]:g}]", one["measured"][0])


def judge_absolute_slope(cells: Mapping[str, Any]) -> Judgement:
    """The slopes of abs(x)."""
    return _judge_range(cells["abs"], [1.0, 1.0])


def judge_relu_slope(cells: Mapping[str, Any]) -> Judgement:
    """The slopes of the ReLU."""
    return _judge_range(cells["relu"], [0.0, 1.0])


def judge_leaky_slope(cells: Mapping[str, Any]) -> Judgement:
    """The slopes of leaky ReLUs: the smaller one is the slope below 0, one number per function."""
    found = {name: one for name, one in cells.items() if name.startswith("leaky/")}
    right = all(one["measured"] == one["stated"] == [float(name.removeprefix("leaky/")), 1.0] for name, one in found.items())
    lows = ", ".join(f"{one['measured'][0]:g}" for one in found.values())
    text = f"the smaller is the slope a below 0 itself: {lows}; the interval is that of a"
    return Judgement("seen" if right else "not seen", text)


def judge_absolute(cells: Mapping[str, Any]) -> Judgement:
    """abs(x): the norm is the square root of the width."""
    norms = [one["norm"] for one in _numbers(cells, "abs")]
    off = max(abs(norm - 10) for norm in norms)
    return judge_numbers("seen" if off < 1e-9 else "not seen", f"10 to {off:.0e}", norms, "Frobenius norm")


def _judge_upper(cells: Mapping[str, Any], start: str) -> Judgement:
    found = _numbers(cells, start)
    norms = [one["norm"] for one in found]
    inside = all(one["lower"] * (1 - 1e-9) <= one["norm"] <= one["upper"] * (1 + 1e-9) for one in found)
    text = f"bound {found[0]['upper']:.2f}; measured {min(norms):.2g} to {max(norms):.2g}"
    return judge_numbers(
        "seen" if inside and round(found[0]["upper"], 2) == 14.14 else "not seen", text, norms, "Frobenius norm"
    )


def judge_relu_upper(cells: Mapping[str, Any]) -> Judgement:
    """ReLU: at most the square root of the width."""
    return _judge_upper(cells, "relu")


def judge_leaky_upper(cells: Mapping[str, Any]) -> Judgement:
    """Leaky ReLU: at most the square root of the width."""
    return _judge_upper(cells, "leaky")


def judge_leaky_lower(cells: Mapping[str, Any]) -> Judgement:
    """Leaky ReLU: the printed lower bound lacks the square root of the width."""
    found = _numbers(cells, "leaky")
    norms, bound = [one["norm"] for one in found], found[0]["lower"]
    text = (
        f"the Frobenius bound is sqrt(200) * 0.5^30 = {bound:.3g}; 9.3e-10 is that of the spectral norm, beside an upper "
        f"bound in the Frobenius norm. Measured: at least {min(norms):.2g}"
    )
    return judge_numbers("different" if min(norms) >= bound else "not seen", text, norms, "Frobenius norm")


_REGIMES = {
    "below-below": "s·b < 1, S·B < 1", "below-one": "s·b < 1, S·B = 1", "below-above": "s·b < 1, S·B > 1",
    "one-one": "s·b = 1, S·B = 1", "one-above": "s·b = 1, S·B > 1", "above-above": "s·b > 1, S·B > 1",
}  # fmt: skip
"""The entries of Table 1 that are not empty, as a picture names them."""


def show_limits(cells: Mapping[str, Any]) -> list[Panel]:
    """Show the gradient after many steps for each entry of Table 1 and each pattern of slopes."""
    found = [_numbers(cells, start) for start in _REGIMES]
    x = [*range(len(found))]
    lines = [
        mean_line(label, [(x, row) for row in zip(*([one[key] for one in group] for group in found), strict=True)], "bars")
        for key, label in (("small", "all slopes small"), ("random", "random slopes"), ("large", "all slopes 1"))
    ]
    y = Axis("log10 of the norm of the gradient")
    title = f"Gradient after {found[0][0]['steps']} steps, with singular values from s to S and slopes from b to B"
    return [Panel(title, Axis("entry of Table 1", names=[*_REGIMES.values()]), y, lines, [Mark("constant norm", y=0)])]


def show_norms(cells: Mapping[str, Any]) -> list[Panel]:
    """Show measured norms of gradients between their bounds, proven and printed."""
    rows = [_numbers(cells, start) for start in ("abs", "relu", "leaky")]
    left, right = ([i + away for i in range(len(rows))] for away in (-0.3, 0.1))
    points = [(i - 0.1, one["norm"]) for i, row in enumerate(rows) for one in row]
    printed = [VALUES[f"table6/{name}/lower"].value for name in ("abs", "relu", "leaky-relu")]
    lines = [
        Line("measured, each seed", [i for i, _ in points], [norm for _, norm in points], style="points"),
        Line("upper bound, proven and printed", left, [row[0]["upper"] for row in rows], style="points"),
        Line("lower bound, proven", right, [row[0]["lower"] for row in rows], style="points"),
        Line("lower bound, printed", [one + 0.2 for one in right], printed, style="points"),
    ]
    names = [f"{name}, {row[0]['width']} units" for name, row in zip(("abs(x)", "ReLU", "leaky ReLU 0.5"), rows, strict=True)]
    title = f"Gradient over {rows[0][0]['lag']} steps; the lower bound of the ReLU is 0, printed and proven"
    y = Axis("Frobenius norm of the gradient", "log")
    return [Panel(title, Axis("activation", names=names), y, [line.skip_zeros() for line in lines])]
