"""An adversary: projected gradient ascent, from many starts at once, on what is measured over what is promised.

A bound is under attack where inputs, states or weights are free within the assumptions of its theorem. Every point is
projected back into them before anything is measured, so a ratio above 1 is a counterexample and not an approximation of one.
With ``STEADYRNN_LONGER=1`` in the environment every search has twenty times as many starts, and as many times more steps.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

__all__ = [
    "LONGER",
    "ROUNDING",
    "Attack",
    "Free",
    "Point",
    "anything",
    "ball",
    "box",
    "frobenius",
    "interval",
    "reached",
    "rows",
    "search",
    "spectral",
]

LONGER = 20 if os.environ.get("STEADYRNN_LONGER", "0") not in ("", "0") else 1
ROUNDING = 1e-9
"""What a ratio may be above 1: the rounding of measuring, never of the bound."""

Point = Mapping[str, Tensor]
"""Values of the free variables, each of shape (starts, ...)."""


@dataclass(frozen=True)
class Free:
    """A free variable: its shape, the map back into its set, and how far its entries reach around which center."""

    shape: tuple[int, ...]
    project: Callable[[Tensor], Tensor]
    scale: float = 1.0
    center: float = 0.0


def anything(*shape: int, scale: float = 1.0) -> Free:
    """Return a variable without limits."""
    return Free(shape, lambda x: x, scale)


def ball(radius: float, *shape: int) -> Free:
    """Return vectors (the last dimension) of a 2-norm up to ``radius``."""

    def project(x: Tensor) -> Tensor:
        return x * (radius / torch.linalg.vector_norm(x, dim=-1, keepdim=True).clamp(min=1e-300)).clamp(max=1.0)

    return Free(shape, project, radius)


def frobenius(radius: float, *shape: int) -> Free:
    """Return arrays of which all entries together have a 2-norm up to ``radius``."""

    def project(x: Tensor) -> Tensor:
        size = torch.linalg.vector_norm(x, dim=tuple(range(1, x.dim())), keepdim=True)
        return x * (radius / size.clamp(min=1e-300)).clamp(max=1.0)

    return Free(shape, project, radius)


def box(bound: float | Tensor, *shape: int) -> Free:
    """Return entries of an absolute value up to ``bound``, one number or one each."""
    wide = torch.as_tensor(bound, dtype=torch.float64)
    return Free(shape, lambda x: x.clamp(-wide, wide), float(wide.max()))


def interval(low: float, high: float, *shape: int) -> Free:
    """Return entries from ``low`` to ``high``."""
    return Free(shape, lambda x: x.clamp(low, high), (high - low) / 2, (high + low) / 2)


def rows(radius: float, *shape: int) -> Free:
    """Return rows with a sum of absolute values up to ``radius``, scaled down where it is more."""
    return Free(shape, lambda x: x * (radius / x.abs().sum(-1, keepdim=True).clamp(min=1e-300)).clamp(max=1.0), radius)


def spectral(radius: float, *shape: int) -> Free:
    """Return matrices (the last two dimensions) of a spectral norm up to ``radius``."""

    def project(x: Tensor) -> Tensor:
        u, s, v = torch.linalg.svd(x, full_matrices=False)
        clipped: Tensor = (u * s.clamp(max=radius).unsqueeze(-2)) @ v
        return clipped

    return Free(shape, project, radius)


@dataclass(frozen=True)
class Attack:
    """A bound, as what is free and what is measured over it.

    Args:
        free: The variables.
        ratio: Measured over promised, one number per start, differentiable where it can be.
        starts: How many points are moved at once.
        steps: How often.
        rate: Length of a first step, in parts of a variable's scale.
        seed: Of the starts.
    """

    free: Mapping[str, Free]
    ratio: Callable[[Point], Tensor]
    starts: int = 24
    steps: int = 100
    rate: float = 0.2
    seed: int = 0


def search(attack: Attack) -> tuple[float, Point]:
    """Return the largest ratio met and where, of a batch of one."""
    starts, steps = attack.starts * LONGER, attack.steps * LONGER
    generator = torch.Generator().manual_seed(attack.seed)
    raw = {name: _start(free, starts, generator).requires_grad_() for name, free in attack.free.items()}
    groups = [{"params": [raw[name]], "lr": attack.rate * free.scale} for name, free in attack.free.items()]
    optimizer = torch.optim.Adam(groups, maximize=True, betas=(0.8, 0.99))
    decay = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.001 ** (step / steps))
    best, where = -torch.inf, {name: tensor.detach()[:1] for name, tensor in raw.items()}
    for _ in range(steps + 1):
        ratio = attack.ratio(raw)
        if ratio.shape != (starts,) or not bool(ratio.isfinite().all()):
            raise ValueError(f"a ratio must be one finite number per start, but is {ratio.detach()}")
        top, place = ratio.detach().max(0)
        if float(top) > best:
            best = float(top)
            where = {name: tensor.detach()[place : place + 1].clone() for name, tensor in raw.items()}
        _move(attack, raw, optimizer, ratio)
        decay.step()
    return best, where


@cache
def reached(build: Callable[[], Attack]) -> float:
    """Return the largest ratio an attack meets; each is made once, however many tests ask."""
    return search(build())[0]


def _start(free: Free, starts: int, generator: torch.Generator) -> Tensor:
    """Return points near zero, on the boundary, and between."""
    spread = torch.logspace(-1, 0.7, starts, dtype=torch.float64).view(-1, *[1] * len(free.shape))
    normal = torch.randn(starts, *free.shape, generator=generator, dtype=torch.float64)
    return free.project(free.center + free.scale * spread * normal)


def _move(attack: Attack, raw: Mapping[str, Tensor], optimizer: torch.optim.Adam, ratio: Tensor) -> None:
    """Take a step up and project; where a ratio has no gradient, stay."""
    optimizer.zero_grad()
    if ratio.requires_grad:
        ratio.sum().backward()
    for tensor in raw.values():
        tensor.grad = torch.zeros_like(tensor) if tensor.grad is None else tensor.grad.nan_to_num(0.0, 0.0, 0.0)
    optimizer.step()
    with torch.no_grad():
        for name, tensor in raw.items():
            tensor.copy_(attack.free[name].project(tensor))
