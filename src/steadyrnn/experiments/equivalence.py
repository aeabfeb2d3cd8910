"""Theorems 1 to 3 of Emami et al. as measurements: unitary networks that equal a contractive one, and that cannot."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from steadyrnn.convert.unitary import minimal_unitary_size, to_unitary
from steadyrnn.layers.rnn import RNN
from steadyrnn.linalg.exponential import exp_skew, skew_part

from .base import Judgement, group_by_seed, judge_numbers
from .curves import Axis, Mark, Panel, mean_line

__all__ = [
    "approximate_with_fewer", "approximate_with_twice", "collapse_readout", "judge_collapse", "judge_identical", "judge_size",
    "match_contractive", "miss_with_fewer", "show_theorems",
]  # fmt: skip

_DOUBLE = torch.float64


def match_contractive(width: int, norm: float, steps: int, seed: int) -> dict[str, Any]:
    r"""Convert a random contractive ReLU network and compare the two on a long sequence.

    The unitary network has :math:`n + \operatorname{rank}(I - W^\top W)` units; Note [mathematics], section 1.2.

    Args:
        width: Units n of the contractive network.
        norm: Spectral norm of its recurrent weight, below 1.
        steps: Time steps, all inputs of norm 1.
        seed: Of weights and inputs.

    Returns:
        Sizes, the largest difference of outputs relative to the largest output, the largest entry of an extra state, and the
        largest entry of :math:`W_u^\top W_u - I`.

    Example:
        >>> found = match_contractive(width=3, norm=0.9, steps=50, seed=0)
        >>> found["units"], found["extra_state"], found["difference"] < 1e-13
        (6, 0.0, True)
    """
    generator = torch.Generator().manual_seed(seed)
    rnn = RNN(3, width, nonlinearity="relu", dtype=_DOUBLE)
    weight = torch.randn(width, width, generator=generator, dtype=_DOUBLE)
    with torch.no_grad():
        rnn.weight_hh_l0.copy_(weight * (norm / torch.linalg.matrix_norm(weight, 2)))
        for name in ("weight_ih_l0", "bias_ih_l0", "bias_hh_l0"):
            entry = getattr(rnn, name)
            entry.copy_(torch.randn(entry.shape, generator=generator, dtype=_DOUBLE) / 2)
        unitary = to_unitary(rnn, input_bound=1.0 + 1e-9)
        x = torch.nn.functional.normalize(torch.randn(steps, 1, 3, generator=generator, dtype=_DOUBLE), dim=-1)
        expected, found, states = rnn(x)[0], unitary(x)[0], unitary.layer(x)[0]
        square = unitary.layer.weight_hh_l0
        gap = square.mT @ square - torch.eye(square.shape[0], dtype=_DOUBLE)
    return {
        "width": width, "units": square.shape[0], "difference": float((found - expected).abs().max() / expected.abs().max()),
        "extra_state": float(states[..., width:].abs().amax()), "orthogonality": float(gap.abs().max()),
    }  # fmt: skip


def miss_with_fewer(width: int, draws: int, seed: int) -> dict[str, Any]:
    r"""Fit a readout to random unitary networks of 2n - 1 and of 2n units that should compute relu(x) on two steps.

    Where all units are active, equality needs :math:`CF = I` and :math:`CWF = 0`: the columns of F and WF must be
    independent, 2n in all. With fewer units the best C leaves a residual; Note [mathematics], section 1.5.

    Args:
        width: Inputs n of the map relu(x).
        draws: Random pairs of W and F.
        seed: Of them.

    Returns:
        Smallest residual of :math:`[CF - I, CWF]` with 2n - 1 units and largest with 2n, the proven bound on the number of
        units, and the units of our construction.

    Example:
        >>> found = miss_with_fewer(width=2, draws=20, seed=0)
        >>> found["needed"], found["built"], found["residual_below"] > 0.01, found["residual_at"] < 1e-8
        (4, 4, True, True)
    """
    generator = torch.Generator().manual_seed(seed)
    below = min(_residual(width, 2 * width - 1, generator) for _ in range(draws))
    at = max(_residual(width, 2 * width, generator) for _ in range(draws))
    memoryless = RNN(width, width, nonlinearity="relu", bias=False, dtype=_DOUBLE)
    with torch.no_grad():
        memoryless.weight_hh_l0.zero_()
        memoryless.weight_ih_l0.copy_(torch.eye(width, dtype=_DOUBLE))
    needed, built = minimal_unitary_size(memoryless), to_unitary(memoryless, input_bound=1.0).layer.hidden_size
    return {"width": width, "residual_below": below, "residual_at": at, "needed": needed, "built": built}


def _residual(width: int, units: int, generator: torch.Generator) -> float:
    """Return the residual of the best readout of a random unitary network."""
    w = exp_skew(skew_part(torch.randn(units, units, generator=generator, dtype=_DOUBLE)))
    f = torch.randn(units, width, generator=generator, dtype=_DOUBLE)
    seen = torch.cat([f, w @ f], dim=1).mT  # (2n, units)
    wanted = torch.cat([torch.eye(width, dtype=_DOUBLE), torch.zeros(width, width, dtype=_DOUBLE)])
    return float((seen @ (torch.linalg.pinv(seen) @ wanted) - wanted).norm())


def approximate_with_fewer(width: int, ratio: float) -> dict[str, Any]:
    r"""Approximate relu(x) by n + 1 orthogonal units: a cyclic shift whose last unit is switched off.

    Input gains grow by ``1/ratio`` from unit to unit and readout gains shrink alike, so that what the shift carries over is
    ``ratio`` times smaller than what arrives. Theorem 2 is about equality alone; Note [mathematics], section 1.5.

    Args:
        width: Inputs n.
        ratio: The error that is aimed at.

    Returns:
        The largest error over inputs in [0, 1], and the product of the norms of input and output weights.

    Example:
        >>> found = approximate_with_fewer(width=3, ratio=0.1)
        >>> found["units"], round(found["gain"]), found["error"] < 0.12
        (4, 100, True)
    """
    gains = torch.tensor([ratio**-i for i in range(width)], dtype=_DOUBLE)
    net = RNN(width, width + 1, nonlinearity="relu", dtype=_DOUBLE)
    with torch.no_grad():
        net.weight_hh_l0.copy_(torch.eye(width + 1, dtype=_DOUBLE).roll(1, dims=0))
        net.weight_ih_l0.zero_()
        net.weight_ih_l0[:width] = torch.diag(gains)
        net.bias_ih_l0.zero_()
        net.bias_hh_l0.zero_()
        net.bias_hh_l0[width] = -2 * float(gains[-1]) / (1 - ratio)
        x = torch.rand(200, 8, width, generator=torch.Generator().manual_seed(0), dtype=_DOUBLE)
        x[:, 0] = 1.0  # the worst case
        found = net(x)[0][..., :width] / gains
    return {"units": width + 1, "ratio": ratio, "gain": float(gains[-1]), "error": float((found - x).abs().max())}


def collapse_readout(units: int, steps: int, seed: int) -> dict[str, Any]:
    r"""Follow the subspace that a readout of a sigmoid unitary network must not see, until it is everything.

    A network equal to :math:`y_t = \sigma(x_t)` has a readout c that sees :math:`b_k = D_k F` at every step k, and
    is blind to what earlier inputs left, :math:`X_{k+1} = D_{k+1} W (X_k + \operatorname{span} b_k)`. All factors are
    invertible, so the dimension of :math:`X_k` is k until it is the number of units; then :math:`b_k` lies inside, and c sees
    and does not see it. So a network of ``units`` units fails after as many steps; Note [mathematics], section 1.6.

    Args:
        units: Units of the random unitary network.
        steps: Time steps, more than ``units``.
        seed: Of weights and inputs.

    Returns:
        By step: the dimension of the subspace, and the distance of :math:`b_k` from it relative to its norm.

    Example:
        >>> found = collapse_readout(units=3, steps=5, seed=0)
        >>> found["dimension"], found["distance"][2] > 1e-6, found["distance"][3] < 1e-12
        ([0, 1, 2, 3, 3], True, True)
    """
    generator = torch.Generator().manual_seed(seed)
    w = exp_skew(skew_part(torch.randn(units, units, generator=generator, dtype=_DOUBLE)))
    f = torch.randn(units, 1, generator=generator, dtype=_DOUBLE)
    h, basis = torch.zeros(units, 1, dtype=_DOUBLE), torch.zeros(units, 0, dtype=_DOUBLE)
    dimension, distance = [], []
    for _ in range(steps):
        h = torch.sigmoid(w @ h + f * torch.randn(1, 1, generator=generator, dtype=_DOUBLE))
        slope = h * (1 - h)
        basis = _span(slope * (w @ basis))
        arrived = slope * f
        away = arrived - basis @ (basis.mT @ arrived)
        dimension.append(basis.shape[1])
        distance.append(float(away.norm() / arrived.norm()))
        basis = _span(torch.cat([basis, arrived / arrived.norm()], dim=1))
    return {"units": units, "dimension": dimension, "distance": distance}


def _span(columns: Tensor) -> Tensor:
    """Return an orthonormal basis of the span of some columns, as exact as their rank can be told."""
    if not columns.shape[1]:
        return columns
    scaled = columns / columns.norm(dim=0)
    left, sizes, _ = torch.linalg.svd(scaled, full_matrices=False)
    kept: Tensor = left[:, sizes > 1e-11 * sizes[0]]
    return kept


def approximate_with_twice(width: int, precision: float, seed: int) -> dict[str, Any]:
    """Approximate a contractive tanh network by a unitary one of 2n units, to a given precision.

    Args:
        width: Units n of the contractive network.
        precision: The error that is allowed.
        seed: Of weights and inputs.

    Example:
        >>> found = approximate_with_twice(width=3, precision=1e-6, seed=0)
        >>> found["units"], found["error"] <= 1e-6
        (6, True)
    """
    generator = torch.Generator().manual_seed(seed)
    rnn = RNN(2, width, nonlinearity="tanh", dtype=_DOUBLE)
    weight = torch.randn(width, width, generator=generator, dtype=_DOUBLE)
    with torch.no_grad():
        rnn.weight_hh_l0.copy_(weight * (0.9 / torch.linalg.matrix_norm(weight, 2)))
        for name in ("weight_ih_l0", "bias_ih_l0", "bias_hh_l0"):
            entry = getattr(rnn, name)
            entry.copy_(torch.randn(entry.shape, generator=generator, dtype=_DOUBLE) / 2)
        unitary = to_unitary(rnn, None, approximate=True, precision=precision)
        x = torch.randn(500, 4, 2, generator=generator, dtype=_DOUBLE)
        gap = (unitary(x)[0] - rnn(x)[0]).norm(dim=-1).max()
    return {"width": width, "units": unitary.layer.hidden_size, "precision": precision, "error": float(gap)}


def _named(cells: Mapping[str, Any], start: str) -> list[dict[str, Any]]:
    return [numbers for name, numbers in cells.items() if name.startswith(start)]


def judge_identical(cells: Mapping[str, Any]) -> Judgement:
    """Theorem 1: the same outputs with at most 2n units, whatever the length."""
    found = _named(cells, "theorem1/")
    gaps = [max(one["difference"] for one in group) for group in group_by_seed(cells, "theorem1/")]
    off, extra = (max(one[name] for one in found) for name in ("orthogonality", "extra_state"))
    small = all(one["units"] <= 2 * one["width"] for one in found)
    seen = small and extra == 0.0 and off < 1e-12 and all(one["difference"] < 1e-12 for one in found)
    text = (
        f"largest relative difference {max(gaps):.1e} in float64; weights orthogonal to {off:.0e}; "
        f"largest extra state {extra:g}; "
        f"{'at most' if small else 'more than'} 2n units"
    )
    return judge_numbers("seen" if seen else "not seen", text, gaps, "relative difference")


def judge_size(cells: Mapping[str, Any]) -> Judgement:
    """Theorem 2: 2n units are needed for relu(x), and enough; beyond it, n + 1 units come as near as one likes."""
    found, near = _named(cells, "theorem2/"), _named(cells, "near/")
    below = [min(one["residual_below"] for one in group) for group in group_by_seed(cells, "theorem2/")]
    right = all(one["needed"] == one["built"] == 2 * one["width"] and one["residual_at"] < 1e-8 for one in found)
    text = f"2n - 1 random units leave a residual of at least {min(below):.2g}; 2n units leave none; the proven bound is 2n"
    more = "; ".join(f"{one['error']:.1e} with weights of {one['gain']:.0e}" for one in near)
    text += f". It is about equality alone: n + 1 units reach an error of {more}"
    return judge_numbers("seen" if right and min(below) > 1e-6 else "not seen", text, below, "residual")


def judge_collapse(cells: Mapping[str, Any]) -> Judgement:
    """Theorem 3: a sigmoid network of N units fails after N steps; beyond it, 2n units suffice up to rounding."""
    found, near = _named(cells, "theorem3/"), _named(cells, "tanh/")
    grows = all(one["dimension"] == [min(k, one["units"]) for k in range(len(one["dimension"]))] for one in found)
    inside = [max(max(one["distance"][one["units"] :]) for one in group) for group in group_by_seed(cells, "theorem3/")]
    before = min(min(one["distance"][: one["units"]]) for one in found)
    text = (
        f"N units: from step N on the readout cannot see the input (relative distance {max(inside):.0e}; at least {before:.1g} "
        "before), so equality lasts N steps at most"
    )
    more = "; ".join(f"{one['error']:.1e} where {one['precision']:.0e} is allowed" for one in near)
    text += f". It is about equality alone: 2n tanh units reach an error of {more}"
    return judge_numbers("seen" if grows and max(inside) < 1e-8 else "not seen", text, inside, "relative distance")


def show_theorems(cells: Mapping[str, Any]) -> list[Panel]:
    """Show what 2n - 1 units miss and 2n do not, and the step from which no readout sees the input."""
    seeds = group_by_seed(cells, "theorem2/")
    widths = [one["width"] for one in seeds[0]]
    residuals = [
        mean_line(label, [(widths, [one[key] for one in group]) for group in seeds], "points").skip_zeros()
        for key, label in (("residual_below", "2n - 1 random unitary units"), ("residual_at", "2n random unitary units"))
    ]
    sizes = [one["units"] for one in group_by_seed(cells, "theorem3/")[0]]
    runs = {n: [group[0]["distance"] for group in group_by_seed(cells, f"theorem3/N{n}/")] for n in sizes}
    distances = [
        mean_line(f"N = {n} units", [([*range(len(one))], one) for one in found]).skip_zeros() for n, found in runs.items()
    ]
    far = Axis("distance of the input's direction", "log")
    return [
        Panel("Theorem 2: what a readout misses of relu(x)", Axis("inputs n"), Axis("residual", "log"), residuals),
        Panel(
            "Theorem 3: what a readout of N units can still see", Axis("time step k"), far, distances,
            [Mark(f"k = {n}", x=n) for n in sizes],
        ),
    ]  # fmt: skip
