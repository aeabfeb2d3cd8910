"""Parameters that are spread over processes (FSDP2): read as a whole, written back in parts."""

import torch
from torch import Tensor

__all__ = ["is_sharded", "whole", "write"]


def is_sharded(tensor: object) -> bool:
    """Say whether a tensor is a ``DTensor``; the class is not imported, which would take long.

    Example:
        >>> is_sharded(torch.ones(2))
        False
    """
    return isinstance(tensor, Tensor) and hasattr(tensor, "full_tensor")


def whole(tensor: Tensor) -> Tensor:
    """Return all of a tensor, gathered from every process where it is spread over them: then all must ask for it.

    Example:
        >>> whole(torch.ones(2))
        tensor([1., 1.])
    """
    if not is_sharded(tensor):
        return tensor
    full: Tensor = tensor.full_tensor()  # type: ignore[attr-defined]
    return full


@torch.no_grad()
def write(target: Tensor, value: Tensor) -> None:
    """Copy a whole tensor into one that may be spread over processes, each of which keeps its part of the first's.

    Example:
        >>> target = torch.zeros(2)
        >>> write(target, torch.ones(2))
        >>> target
        tensor([1., 1.])
    """
    if is_sharded(target):
        spread = torch.distributed.tensor.distribute_tensor  # loaded, since there is such a tensor
        value = spread(value.to(target.device, target.dtype), target.device_mesh, target.placements)  # type: ignore[attr-defined]
    target.copy_(value)
