"""Taking back what a refused ``load_state_dict`` has done, whichever way it was done."""

from typing import NamedTuple

import torch
from torch import Tensor, nn

__all__ = ["Kept", "put_back", "remember"]


class Kept(NamedTuple):
    """A parameter or buffer as it was.

    Loading may copy into the tensor, put another in its place (``assign=True``) or exchange what is behind it
    (``torch.__future__.set_swap_module_params_on_conversion``); then the new memory belongs to the caller's state dict.
    """

    owner: dict[str, Tensor | None]
    name: str
    tensor: Tensor
    memory: Tensor
    value: Tensor


def remember(module: nn.Module, recurse: bool = True) -> list[Kept]:
    """Return the parameters and buffers of a module, those of its children too if ``recurse``.

    Example:
        >>> linear = torch.nn.Linear(2, 2)
        >>> [kept.name for kept in remember(linear)]
        ['weight', 'bias']
    """
    modules = list(module.modules()) if recurse else [module]
    owners: list[dict[str, Tensor | None]] = [store for m in modules for store in (m._parameters, m._buffers)]  # type: ignore[misc]
    return [
        Kept(owner, name, tensor, tensor.detach(), tensor.detach().clone())
        for owner in owners
        for name, tensor in owner.items()
        if tensor is not None
    ]


@torch.no_grad()
def put_back(before: list[Kept]) -> None:
    """Make every tensor the one it was, with the values it had, and leave what was loaded untouched.

    Example:
        >>> linear = torch.nn.Linear(1, 1)
        >>> kept, loaded = remember(linear), {"weight": torch.ones(1, 1), "bias": torch.ones(1)}
        >>> weight = linear.weight
        >>> _ = linear.load_state_dict(loaded, assign=True)
        >>> put_back(kept)
        >>> linear.weight is weight, loaded["weight"]
        (True, tensor([[1.]]))
    """
    for owner, name, tensor, memory, value in before:
        owner[name] = tensor
        if tensor.device != memory.device:  # exchanged, and `data` does not cross devices
            owner[name] = nn.Parameter(memory, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else memory
        elif tensor.data_ptr() != memory.data_ptr():
            tensor.data = memory
        memory.copy_(value)
