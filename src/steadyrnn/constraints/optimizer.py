"""Constraints and optimizers: projecting after each step, parameter groups, and what is added to the loss."""

import copy
import functools
import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from steadyrnn.errors import ArgumentError, ArgumentTypeError, NotFiniteError, not_among

from .free import Free
from .membership import joint_modules
from .sites import Site, sites
from .slot import whole

__all__ = ["SCALES", "ProjectionHandle", "attach_projection", "parameter_groups", "penalty"]

SCALES = ("none", "sqrt")
"""Of the learning rate of unit reflectors: none, or 1 / sqrt(n)."""

_HANDLES = "_steadyrnn_handles"


class ProjectionHandle:
    """What :func:`attach_projection` returns: an optimizer's promise to project a model, until removed.

    Example:
        >>> model = sr.RNN(2, 3, transition="ball")
        >>> handle = sr.attach_projection(torch.optim.SGD(model.parameters(), lr=0.1), model)
        >>> handle.remove()
    """

    def __init__(self, optimizer: Optimizer, model: nn.Module) -> None:
        self.optimizer = optimizer
        self.model = model
        self._hook = optimizer.register_step_post_hook(self._after_step)
        _handles(optimizer).append(self)
        # Torch drops hooks when an optimizer is copied; an attribute of this name decides how it is copied.
        optimizer.__dict__["__deepcopy__"] = functools.partial(_copy_attached, optimizer)

    def _after_step(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        for site in sites(self.model):
            if site.moves:
                _check_finite(site.raw)
                site.after_optimizer_step()
        for name, module in joint_modules(self.model):
            try:
                module.after_optimizer_step()
            except NotFiniteError as error:
                raise NotFiniteError(f"In `{name}` after an optimizer step: {error}") from error

    def remove(self) -> None:
        """Project no more."""
        self._hook.remove()
        handles = _handles(self.optimizer)
        handles[:] = [handle for handle in handles if handle is not self]
        if not handles:
            self.optimizer.__dict__.pop("__deepcopy__", None)


def attach_projection(optimizer: Optimizer, model: nn.Module) -> ProjectionHandle:
    """Put the constrained weights of a model back into their sets after every step of an optimizer.

    Projections project and re-centred maps move their base point; other constraints need nothing, and a model without
    any of these is left alone. Before it is moved, a weight is checked: NaN or infinity raises, and names the
    parameter. Weights constrained later are seen too. ``copy.deepcopy`` of the optimizer, alone or together with the
    model, attaches the copy to the copied model; an optimizer that comes back from a file must be attached anew.

    Args:
        optimizer: Any torch optimizer over parameters of the model, also inside a wrapper such as the one of
            ``accelerator.prepare``, before or after it is wrapped.
        model: The module whose constrained weights are put back; may be a part of a larger one.

    Returns:
        A handle with ``remove()``; attaching the same model again, or a part of it, returns the handle there is.

    Raises:
        ArgumentError: The optimizer holds none of the parameters that it should put back.

    Example:
        >>> model = sr.RNN(2, 3, transition=sr.SpectralBall(bound=0.5))
        >>> optimizer = torch.optim.SGD(model.parameters(), lr=10.0)
        >>> handle = sr.attach_projection(optimizer, model)
        >>> model(torch.randn(5, 1, 2))[0].sum().backward()
        >>> optimizer.step()
        >>> bool(torch.linalg.matrix_norm(model.weight_hh_l0, 2) <= 0.5 + 1e-6)
        True
    """
    optimizer = _innermost(optimizer)
    if not isinstance(optimizer, Optimizer):
        raise ArgumentTypeError(f"`optimizer` must be a torch optimizer, but is of type {type(optimizer).__name__}.")
    _check_holds(optimizer, model)
    for handle in _handles(optimizer):
        if any(module is model for module in handle.model.modules()):
            return handle
    return ProjectionHandle(optimizer, model)


def parameter_groups(
    model: nn.Module, lr: float, transition_lr: float | None = None, *, transition_scale: str = "none"
) -> list[dict[str, Any]]:
    r"""Return optimizer groups: first the raw tensors of constrained weights, then all other parameters.

    Raw tensors often want another learning rate: a reflector's gradient goes as its inverse length, a singular
    value's as the width of its interval. Every parameter is in exactly one group, also where it is shared.

    Adam and its kin move each entry of a parameter by about the learning rate. A unit reflector of n entries is moved by
    :math:`\eta \sqrt n`, orthogonal to itself (its length does not matter, so its gradient is), and turns by that angle:
    the same rate that is small at n = 16 turns it by half a radian at n = 1024 and :math:`\eta = 0.016`. With
    ``transition_scale="sqrt"`` reflectors have the rate :math:`\eta / \sqrt n`, and turn by about :math:`\eta` at any
    width. Reflectors are packed without their fixed zeros: n is the length of the longest of a raw tensor.

    Args:
        model: Any module.
        lr: Learning rate of the other parameters.
        transition_lr: Learning rate :math:`\eta` of the raw tensors; ``lr`` if None.
        transition_scale: ``"none"``, or ``"sqrt"``: a group of its own for the reflectors of each length.

    Returns:
        Two groups with ``params`` and ``lr``; one of them may be empty. With ``"sqrt"`` those of reflectors come before,
        shortest first, and each group has a ``name``.

    Example:
        >>> model = torch.nn.Sequential(sr.RNN(2, 4, transition="spectral"))
        >>> groups = sr.parameter_groups(model, lr=1e-3, transition_lr=1e-4)
        >>> [(len(group["params"]), group["lr"]) for group in groups]
        [(3, 0.0001), (3, 0.001)]
        >>> groups = sr.parameter_groups(model, lr=1e-2, transition_scale="sqrt")
        >>> [(group["name"], len(group["params"]), group["lr"]) for group in groups]
        [('reflectors_4', 2, 0.005), ('transition', 1, 0.01), ('other', 3, 0.01)]
        >>> optimizer = torch.optim.Adam(groups)
    """
    if transition_scale not in SCALES:
        raise ArgumentError(not_among("transition_scale", transition_scale, SCALES))
    found = [site for site in sites(model) if not isinstance(site.constraint, Free)]
    raw = {id(tensor) for site in found for tensor in site.raw.values()}
    sizes = _reflector_sizes(found) if transition_scale == "sqrt" else {}
    split: tuple[list[Tensor], list[Tensor]] = ([], [])
    reflectors: dict[int, list[Tensor]] = {size: [] for size in sorted(set(sizes.values()))}
    for parameter in model.parameters():
        size = sizes.get(id(parameter))
        (split[id(parameter) not in raw] if size is None else reflectors[size]).append(parameter)
    rate = lr if transition_lr is None else transition_lr
    groups = [{"params": split[0], "lr": rate}, {"params": split[1], "lr": lr}]
    if transition_scale == "none":
        return groups
    named = [{"params": own, "lr": rate / math.sqrt(size), "name": f"reflectors_{size}"} for size, own in reflectors.items()]
    return [*named, groups[0] | {"name": "transition"}, groups[1] | {"name": "other"}]


def _reflector_sizes(found: list[Site]) -> dict[int, int]:
    """Return the length of the longest reflector in each raw tensor that holds some, by the tensor's id."""
    return {
        id(tensor): size
        for site in found
        for tensor, size in zip(site.raw.values(), site.constraint.reflector_sizes, strict=False)
        if size is not None and tensor.numel() > 0
    }


def penalty(model: nn.Module) -> Tensor:
    r"""Return what the constraints of a model add to its loss.

    :math:`\sum \lVert \sigma - c \rVert^2` over all ``Spectral(sigma="penalty")``; differentiable, and 0 where there
    are none.

    Args:
        model: Any module.

    Returns:
        A scalar, with the device and dtype of the model's parameters.

    Example:
        >>> model = sr.RNN(2, 3, transition=sr.Spectral(sigma="penalty"))
        >>> sr.penalty(model)
        tensor(0., grad_fn=<AddBackward0>)
    """
    first = next(model.parameters(), torch.zeros(()))
    total = torch.zeros((), dtype=first.dtype, device=first.device)
    for site in sites(model):
        part = site.penalty()
        if part is not None:
            total = total + part.to(total)
    return total


def _check_finite(parameters: dict[str, Tensor]) -> None:
    for name, tensor in parameters.items():
        if not bool(whole(tensor.detach()).isfinite().all()):
            raise NotFiniteError(
                f"`{name}` holds NaN or infinity after an optimizer step, so it cannot be put back into its set. "
                "Lower the learning rate, clip gradients, or skip steps whose gradient is not finite."
            )


def _check_holds(optimizer: Optimizer, model: nn.Module) -> None:
    held = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    wanted = [tensor for site in sites(model) if site.moves for tensor in site.raw.values()]
    wanted = wanted or list(model.parameters())
    if wanted and not any(id(parameter) in held for parameter in wanted):
        raise ArgumentError(
            "`optimizer` holds none of the parameters of `model` that it should put back after a step. Build it from "
            "`model.parameters()` after all constraints are in place, and attach it to that model."
        )


def _innermost(optimizer: Any) -> Any:
    """Return the optimizer that takes the steps: a wrapper (accelerate's) holds it as ``optimizer``, and has no hooks."""
    seen: set[int] = set()
    while isinstance(getattr(optimizer, "optimizer", None), Optimizer) and id(optimizer) not in seen:
        seen.add(id(optimizer))
        optimizer = optimizer.optimizer
    return optimizer


def _handles(optimizer: Optimizer) -> list[ProjectionHandle]:
    handles: list[ProjectionHandle] = optimizer.__dict__.setdefault(_HANDLES, [])
    return handles


def _copy_attached(optimizer: Optimizer, memo: dict[int, Any]) -> Optimizer:
    """Copy an optimizer as torch does, then attach the copy to the copies of the models it was attached to."""
    own = optimizer.__dict__.pop("__deepcopy__")
    try:
        twin = copy.deepcopy(optimizer, memo)
    finally:
        optimizer.__dict__["__deepcopy__"] = own
    for handle in _handles(optimizer):
        attach_projection(twin, copy.deepcopy(handle.model, memo))
    return twin
