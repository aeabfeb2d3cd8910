"""Putting a constraint on a weight of any module."""

from collections.abc import Callable
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from steadyrnn.checks import check_matrix
from steadyrnn.errors import ArgumentError, ArgumentTypeError, DtypeError, ShapeError, WeightError, not_among

from .base import DTYPES, Constraint, Kind, warn_of_change, widened
from .membership import refuse_replaced
from .registry import as_constraint

__all__ = ["constrain"]


def constrain(module: nn.Module, name: str, constraint: str | Constraint, *, init: str = "sample") -> nn.Module:
    """Keep a weight of a module in a set of matrices, through :mod:`torch.nn.utils.parametrize`.

    ``module.<name>`` is from then on computed from raw tensors, which take its place among the parameters: build the
    optimizer afterwards. A projection or a re-centred map also needs :func:`steadyrnn.attach_projection`. The weight is
    computed at every read; ``with torch.nn.utils.parametrize.cached():`` computes it once. Save by state dict.

    Args:
        module: Any module with that parameter, a matrix. In half precision the weight is computed in float32 and cast.
        name: The parameter's name, as in ``"weight"``.
        constraint: A constraint, of which a copy is taken, or the name of one.
        init: First weight: ``"sample"`` a fresh one of the constraint; ``"project"`` the member nearest to the present
            weight; ``"keep"`` the present weight, which must be a member.

    Returns:
        The same module.

    Raises:
        ConstraintError: ``init="keep"`` and the weight is outside the set.
        NotInvertibleError: ``"project"`` or ``"keep"`` with a constraint that only starts from its own sample.

    Example:
        >>> linear = sr.constrain(torch.nn.Linear(3, 3), "weight", "ornn")
        >>> torch.allclose(linear.weight @ linear.weight.mT, torch.eye(3), atol=1e-6)
        True
    """
    if init not in _STARTS:
        raise ArgumentError(not_among("init", init, _STARTS))
    weight = _parameter(module, name)
    own = as_constraint("constraint", constraint)
    fresh = own.draw(weight.shape[0], weight.shape[1], weight.device, weight.dtype)
    own._start = tuple(tensor.to(weight.dtype) for tensor in _STARTS[init](own, weight.detach(), fresh))
    try:
        parametrize.register_parametrization(module, name, own)
    finally:
        own._start = None
    held = cast(parametrize.ParametrizationList, module.parametrizations[name])  # type: ignore[index]
    for raw in held.parameters(recurse=False):
        raw.requires_grad_(raw.requires_grad and raw.numel() > 0)  # as in a slot
    _refuse_beside(module, name, own)
    if own.kind in (Kind.PROJECTION, Kind.RECENTRED):
        held.register_forward_pre_hook(_refuse_replaced)
        held.register_forward_hook(_as_no_parameter)
    return module


def _refuse_beside(module: nn.Module, name: str, constraint: Constraint) -> None:
    """Refuse what pruning and the old normalizations do first: they register the computed weight as ``<name>_orig``.

    :mod:`~torch.nn.utils.parametrize` has made a class for this one module, which takes the check.
    """
    cls = type(module)
    register = cls.register_parameter

    def checked(self: nn.Module, beside: str, parameter: nn.Parameter | None) -> None:
        if beside.startswith(f"{name}_") and parametrize.is_parametrized(self, name):
            raise WeightError(
                f"`{name}` cannot be pruned or normalized: {constraint} computes it, and would not see what takes its "
                "place. Remove the constraint first: `torch.nn.utils.parametrize.remove_parametrizations(module, "
                f"{name!r})`."
            )
        register(self, beside, parameter)

    setattr(cls, register.__name__, checked)


def _refuse_replaced(held: parametrize.ParametrizationList, _: object) -> None:
    """Refuse at a forward what a tool did to the raw tensors: torch lets nobody see it when it happens."""
    refuse_replaced(held, "")


def _as_no_parameter(held: nn.Module, _: object, weight: Tensor) -> Tensor:
    """Return a weight that is its own raw tensor as a view: a tool (pruning) would register the parameter once more."""
    return weight.view_as(weight) if isinstance(weight, nn.Parameter) else weight


@torch.no_grad()
def _sample(constraint: Constraint, weight: Tensor, fresh: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    # a member in one dtype is outside the set by that dtype's rounding in a wider one
    settled = constraint.after_step(*widened(*fresh)) if constraint.kind is Kind.PROJECTION and not weight.is_meta else None
    return settled or fresh


@torch.no_grad()
def _project(constraint: Constraint, weight: Tensor, fresh: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    (wide,) = widened(weight)
    projected = constraint.project(wide)
    warn_of_change("weight", wide, projected, constraint)
    return constraint.right_inverse(projected)


@torch.no_grad()
def _keep(constraint: Constraint, weight: Tensor, fresh: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return constraint.right_inverse(weight)


_STARTS: dict[str, Callable[[Constraint, Tensor, tuple[Tensor, ...]], tuple[Tensor, ...]]] = {
    "sample": _sample,
    "project": _project,
    "keep": _keep,
}


def _parameter(module: nn.Module, name: str) -> Tensor:
    """Return a parameter that can be constrained, or say why it cannot."""
    if not isinstance(module, nn.Module):
        raise ArgumentTypeError(f"`module` must be a torch module, but is of type {type(module).__name__}.")
    if parametrize.is_parametrized(module, name):
        raise ArgumentError(
            f"`{name}` is parametrized already. Remove that first: "
            f"`torch.nn.utils.parametrize.remove_parametrizations(module, {name!r})`."
        )
    weight = module._parameters.get(name)
    if weight is None:
        known = ", ".join(key for key, _ in module.named_parameters(recurse=False)) or "none"
        raise ArgumentError(f"`name` must be a parameter of {type(module).__name__}, but is {name!r}; there: {known}.")
    check_matrix(name, weight)
    if weight.dtype not in DTYPES:
        raise DtypeError(f"`{name}` must have one of the dtypes {', '.join(map(str, DTYPES))}, but has {weight.dtype}.")
    if name.startswith("weight_hh") and weight.shape[0] != weight.shape[1]:
        # See Note [gates of a GRU]
        raise ShapeError(
            f"`{name}` has shape {tuple(weight.shape)}: it stacks the weights of several gates, and a constraint on "
            "the stack constrains no gate. Use `sr.GRU` or `sr.LSTM` with `transition=`: each gate by itself."
        )
    return weight
