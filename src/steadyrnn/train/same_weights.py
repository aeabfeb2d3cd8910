"""One model on several processes: the weights of the first at the start, and equal ones after every step."""

import torch
from torch import Tensor, nn

from steadyrnn.constraints.slot import is_sharded
from steadyrnn.errors import ArgumentError, RanksError
from steadyrnn.tasks.base import Batch

from .ranks import Ranks
from .settings import TrainSettings

__all__ = ["check_for_ranks", "check_same_batch", "check_same_weights", "checksum", "take_weights_of_first"]

_WRAPPERS = ("DataParallel", "DistributedDataParallel", "FullyShardedDataParallel")
_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
_WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def check_for_ranks(model: nn.Module, settings: TrainSettings, ranks: Ranks, share: str = "rows") -> None:
    """Refuse what several processes cannot train together as one would.

    Args:
        model: What is trained.
        settings: How.
        ranks: The processes.
        share: What they divide of a batch, as the task says.

    Raises:
        ArgumentError: The model is spread or wrapped by torch, or computes with the whole batch; or ranks would have no rows.

    Example:
        >>> check_for_ranks(nn.Sequential(nn.BatchNorm1d(3)), TrainSettings(), Ranks(0, 2, joined=True))
        Traceback (most recent call last):
        ...
        steadyrnn.errors.ArgumentError: `0` is a BatchNorm1d, which computes with all rows of a batch, but each rank has some...
    """
    if not ranks.joined:
        return
    if share == "rows" and settings.batch_size < ranks.size:
        raise ArgumentError(
            f"`batch_size` must be at least the number of ranks, {ranks.size}, but is {settings.batch_size}: each takes some "
            "of its rows. Start fewer ranks."
        )
    for name, module in model.named_modules():
        kind, called = type(module).__name__, f"`{name}`" if name else "`model`"
        if kind in _WRAPPERS:
            raise ArgumentError(f"{called} is a {kind}, but ranks add up gradients themselves. Give the module that it wraps.")
        if isinstance(module, _NORMS) or getattr(module, "running_mean", None) is not None:
            raise ArgumentError(
                f"{called} is a {kind}, which computes with all rows of a batch, but each rank has some of them. Take a "
                "LayerNorm, or train with one process."
            )
    for name, parameter in model.named_parameters():
        if is_sharded(parameter):
            raise ArgumentError(
                f"`{name}` is sharded (`fully_shard`), but each rank trains a whole copy of the model. Give the model before "
                "it is sharded, or train the sharded one in a loop of your own with `sr.attach_projection`."
            )


def take_weights_of_first(model: nn.Module, ranks: Ranks) -> None:
    """Copy parameters and buffers of rank 0, stored ones and others, into the model of every other rank.

    Raises:
        RanksError: A model has other tensors than that of rank 0.
    """
    if ranks.size == 1:
        return
    own = {**dict(model.named_buffers()), **_tensors(model)}
    _, given = ranks.share(None, own if ranks.first else {})
    ranks.agree(lambda: _check_fit(own, given))
    if not ranks.first:
        with torch.no_grad():
            for name, tensor in own.items():
                tensor.copy_(given[name])


def check_same_batch(batch: Batch, ranks: Ranks, step: int) -> None:
    """Raise unless all ranks have the same batch, to the last bit: each would train on rows of another one.

    Raises:
        RanksError: They have not; the message names the ranks that differ from rank 0.
    """
    held = {"input": batch.input, "target": batch.target, "lengths": batch.lengths}
    found = None if ranks.size == 1 else _sum_up({name: tensor for name, tensor in held.items() if tensor is not None})
    other = _different(found, ranks)
    if other:
        raise RanksError(
            f"The batch of step {step} on {other} differs from that of rank 0. Give every rank the same data; and a task of "
            "your own must make its batches from their numbers alone (`train_batch(step, batch_size)`), not from torch's "
            "global random numbers, which differ between ranks."
        )


def check_same_weights(model: nn.Module, ranks: Ranks, step: int) -> None:
    """Raise unless parameters and buffers are equal on all ranks, to the last bit.

    Raises:
        RanksError: They are not; the message names the ranks that differ from rank 0.
    """
    other = _different(None if ranks.size == 1 else checksum(model), ranks)
    if other:
        raise RanksError(
            f"After step {step} the weights of {other} differ from those of rank 0, so "
            "that they train different networks. A machine may compute wrongly or have another release of torch, or a module "
            "may change its weights by itself. The last checkpoint is from before: resume from it."
        )


@torch.no_grad()
def checksum(model: nn.Module) -> int:
    """Return a number that depends on every bit of a model's parameters and buffers, and on their places; waits for the device.

    Each word of memory counts times an odd number of its own, modulo 2^64: a change of any one word changes the sum.

    Example:
        >>> linear = nn.Linear(2, 1)
        >>> before = checksum(linear)
        >>> with torch.no_grad():
        ...     linear.weight[0, 0].nextafter_(torch.tensor(9.0))
        tensor(...)
        >>> checksum(linear) == before
        False
    """
    return _sum_up(_tensors(model))


def _different(number: int | None, ranks: Ranks) -> str:
    """Name the ranks whose number is not that of rank 0; of one process, or where all agree, nothing."""
    sums = [value for value, _ in ranks.gather(number)] if ranks.size > 1 else []
    other = [str(rank) for rank, value in enumerate(sums) if value != sums[0]]
    return f"rank{'s' if len(other) > 1 else ''} {', '.join(other)}" if other else ""


def _sum_up(tensors: dict[str, Tensor]) -> int:
    """Return the checksum of tensors in their order."""
    sums, first = [torch.zeros((), dtype=torch.int64)], 1
    for tensor in tensors.values():
        flat = torch.view_as_real(tensor) if tensor.is_complex() else tensor
        words = flat.contiguous().view(_WORDS[flat.element_size()]).flatten().to(torch.int64)
        factors = torch.arange(first, first + 2 * len(words), 2, device=words.device) * 0x5851F42D4C957F2D
        sums.append((words * factors).sum())
        first += 2 * len(words)
    return int(torch.stack([one.to(sums[-1].device) for one in sums]).sum()) % 2**64


def _tensors(model: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.detach() for name, tensor in model.state_dict(keep_vars=True).items() if isinstance(tensor, Tensor)}


def _check_fit(own: dict[str, Tensor], given: dict[str, Tensor]) -> None:
    """Refuse tensors that are not those of the model."""
    different = sorted(own.keys() ^ given.keys())
    different += [name for name in own.keys() & given.keys() if own[name].shape != given[name].shape]
    different += [name for name in own.keys() & given.keys() if own[name].dtype != given[name].dtype]
    if different:
        raise RanksError(
            f"All ranks must train the same model, but `{different[0]}` is another tensor here than on rank 0. Build the same."
        )
