"""A model and its sets: who is outside, and the way back."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import ParametrizationList
from torch.optim.swa_utils import AveragedModel

from steadyrnn.errors import ArgumentTypeError, ConstraintError, NotFiniteError

from .base import Kind, Membership, Projected
from .sites import Site, sites
from .slot import Slot, can_leave, whole

__all__ = ["check_inside", "joint_modules", "memberships", "project_", "refuse_not_finite"]


def project_(model: nn.Module) -> dict[str, float]:
    r"""Put every constrained weight of a model back into its set, once and in place.

    .. math:: W \leftarrow P(W) = \arg\min_{X \in S} \lVert X - W \rVert_F

    For a weight that something other than an attached optimizer has changed: an average over models, an edit by hand, a
    conversion to another dtype. Projections (``ball``, ``polar``, ``sigma="clip"``) are projected, ``clip`` through its
    stored singular values; a ``StableLSTM`` layer is projected as a whole; base points of ``gradient="lie"`` go to the
    nearest orthogonal matrix, and B to 0; signs beside the raw tensors of a map go to the nearest of 1 and -1. Maps
    are in their set whatever their raw tensors are. The cost is one singular value decomposition per weight.

    Args:
        model: Any module, also one that holds no constraint.

    Returns:
        How far each weight was moved, in Frobenius norm, under the name of what holds it; for one that was inside
        0, or its rounding.

    Raises:
        NotFiniteError: A weight holds NaN or infinity; nothing has been changed.
        ConstraintError: A weight has no way back (a permutation of ``unitary`` that is none any more).

    Example:
        >>> model = sr.RNN(2, 3, transition=sr.SpectralBall(bound=0.5))
        >>> with torch.no_grad():
        ...     _ = model.weight_hh_l0.copy_(torch.eye(3))
        >>> moved = sr.project_(model)
        >>> round(moved["transition_l0.h"], 4)  # from norm 1 to 0.5 in three directions
        0.866
        >>> sr.project_(model)
        {'transition_l0.h': 0.0}

    References:
        Higham. Matrix nearness problems and applications. 1989.
    """
    if not isinstance(model, nn.Module):
        raise ArgumentTypeError(f"`model` must be a module, but is of type {type(model).__name__}.")
    found = [site for site in sites(model) if site.can_leave]
    joint = [(name, module) for name, module in joint_modules(model) if module.memberships()]
    refuse_not_finite(found, joint)
    moved: dict[str, float] = {}
    for site in found:
        before = site.weight().clone()
        site.put_back()
        moved[site.name] = _distance(site.weight(), before)
    for name, module in joint:
        prefix = f"{name}." if name else ""
        own = dict(module.named_parameters(recurse=False))
        kept = {key: whole(tensor.detach()).clone() for key, tensor in own.items() if key.startswith(("weight", "bias"))}
        module.after_optimizer_step()
        moved |= {f"{prefix}{key}": _distance(whole(own[key].detach()), tensor) for key, tensor in kept.items()}
    check_inside(model, "could not be put back")
    return moved


def check_inside(model: nn.Module, when: str) -> None:
    """Refuse a model with a weight outside its set, and name the first; ``when`` is said in the error.

    Example:
        >>> check_inside(sr.RNN(2, 3, transition="polar"), "is outside")
    """
    _refuse_averaged(model)
    for found in memberships(model):
        if not found.violation <= found.allowed:
            raise ConstraintError(
                f"`{found.name}` {when}: it is outside the set of {found.constraint}, violation {found.violation:.3g}, allowed "
                f"for rounding {found.allowed:.3g}. Put it back with `sr.project_(model)`; to stay inside, train with "
                "`sr.attach_projection` and average with `sr.averaged`."
            )


def memberships(model: nn.Module) -> Iterator[Membership]:
    """Yield where each weight that could leave its set is.

    Example:
        >>> [found.name for found in memberships(sr.RNN(2, 3, transition="polar"))]
        ['transition_l0.h']
    """
    for name, module in model.named_modules():
        if isinstance(module, Projected) and module.has_set():
            if isinstance(module, Slot) and can_leave(module.constraint) and not module.raw0.is_meta:
                refuse_not_finite([], [(name, module)])  # before a weight is made of it
            found = module.memberships()
            refuse_not_finite([], [(name, module)] if found else [])
            yield from (one._replace(name=".".join(part for part in (name, one.name) if part)) for one in found)
    if any(isinstance(module, ParametrizationList) for module in model.modules()):
        for site in sites(model):
            if isinstance(site.holder, ParametrizationList) and site.can_leave:
                refuse_not_finite([site], [])
                yield from filter(None, [site.membership()])


def joint_modules(model: nn.Module) -> Iterator[tuple[str, Any]]:
    """Yield the modules that put their own parameters back after a step, as a layer with a joint constraint does.

    Example:
        >>> [name for name, _ in joint_modules(torch.nn.Sequential(sr.LSTM(2, 3, transition="stable-lstm")))]
        ['0']
    """
    for name, module in model.named_modules():
        if isinstance(module, Projected) and not isinstance(module, Slot) and module.has_set():
            yield name, module


def _refuse_averaged(model: nn.Module) -> None:
    """Refuse torch's average of re-centred weights: the tensors it averages are 0, and the rest is the last model's."""
    for name, module in model.named_modules():
        if isinstance(module, AveragedModel) and not module.use_buffers:
            for site in sites(module):
                if site.constraint.kind is Kind.RECENTRED:
                    raise ConstraintError(
                        f"`{name or type(module).__name__}` is no average: torch's AveragedModel averages parameters, but "
                        f"{site.constraint} of `{site.name}` keeps its weight in a base point beside them, which is "
                        "copied from the last model. Average with `sr.averaged`."
                    )


def refuse_not_finite(found: list[Site], joint: list[tuple[str, Any]]) -> None:
    """Refuse constrained weights made of NaN or infinity, and name the first tensor that holds it.

    Example:
        >>> refuse_not_finite(list(sites(sr.RNN(2, 3, transition="polar"))), [])
    """
    tensors: dict[str, Tensor] = {}
    for site in found:
        tensors |= site.raw | {f"{site.name}.constraint.{name}": buffer for name, buffer in site.constraint.named_buffers()}
    for prefix, module in joint:
        own = (*module.named_parameters(recurse=False), *module.named_buffers())
        tensors |= {f"{prefix}.{name}" if prefix else name: tensor for name, tensor in own}
    for name, tensor in tensors.items():
        if not bool(whole(tensor.detach()).isfinite().all()):
            raise NotFiniteError(f"`{name}` holds NaN or infinity, so it is in no set, and no member of one is nearest to it.")


@torch.no_grad()
def _distance(after: Tensor, before: Tensor) -> float:
    return float((after.double() - before.double()).norm())
