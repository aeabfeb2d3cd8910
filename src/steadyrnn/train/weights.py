"""Model weights in a checkpoint: under ``model.``, loaded whole or not at all."""

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

from steadyrnn.constraints.membership import check_inside
from steadyrnn.errors import CheckpointError

__all__ = ["check_weights", "clones", "load_weights", "refuse_names", "section", "weights_of"]

_PREFIX = "model"


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    """Return the tensors of a model under their names in a checkpoint, the tensors themselves.

    Raises:
        ConstraintError: A constrained weight is outside its set: the checkpoint could not be loaded again.

    Example:
        >>> list(weights_of(torch.nn.Linear(2, 1)))
        ['model.weight', 'model.bias']
    """
    check_inside(model, "cannot be saved")
    return {f"{_PREFIX}.{name}": tensor for name, tensor in model.state_dict().items()}


def load_weights(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Load the weights of a checkpoint into a model: ``load_weights(model, run.load("best").tensors)``.

    A model that the checkpoint does not fit, by names, shapes or dtypes, or by a weight outside its set, is left as it was.

    Args:
        model: The module the checkpoint was written from, or one built in the same way.
        tensors: All tensors of a checkpoint; those of the optimizer and the like are passed over.

    Example:
        >>> a, b = torch.nn.Linear(2, 1), torch.nn.Linear(2, 1)
        >>> load_weights(a, weights_of(b))
        >>> bool((a.weight == b.weight).all())
        True
    """
    given, own = check_weights(model, tensors), model.state_dict()
    before = clones(own)
    try:
        model.load_state_dict(given)
    except Exception:  # a weight outside its set, say, is refused when others are loaded already
        model.load_state_dict(before)
        raise


def check_weights(model: nn.Module, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the weights of a checkpoint by their names in the model, if they fit it by names, shapes and dtypes.

    Raises:
        CheckpointError: They do not; the message names a tensor.
    """
    given, own = section(tensors, _PREFIX), model.state_dict()
    refuse_names("model", own, given)
    for name, tensor in own.items():
        if tensor.shape != given[name].shape or tensor.dtype != given[name].dtype:
            raise CheckpointError(
                f"`{name}` of the model must have shape {tuple(tensor.shape)} and dtype {tensor.dtype}, but the checkpoint has "
                f"{tuple(given[name].shape)} and {given[name].dtype}. Build the model as the run's config.json says."
            )
    return given


def section(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Return the tensors whose names start with ``prefix`` and a dot, without these.

    Example:
        >>> list(section({"model.bias": torch.ones(1), "random.cpu": torch.ones(1)}, "model"))
        ['bias']
    """
    start = f"{prefix}."
    return {name.removeprefix(start): tensor for name, tensor in tensors.items() if name.startswith(start)}


def refuse_names(what: str, expected: Iterable[str], given: Iterable[str]) -> None:
    """Raise where the names of a checkpoint are not those expected, and list them.

    Example:
        >>> refuse_names("model", ["weight"], ["weight", "bias"])
        Traceback (most recent call last):
        ...
        steadyrnn.errors.CheckpointError: The checkpoint does not fit the model: it has `bias`, which the model lacks...
    """
    want, have = set(expected), set(given)
    faults = [f"it has {_list_names(have - want)}, which the {what} lacks"] * bool(have - want)
    faults += [f"it lacks {_list_names(want - have)}"] * bool(want - have)
    if faults:
        raise CheckpointError(
            f"The checkpoint does not fit the {what}: {', and '.join(faults)}. Build it as the run's config.json says."
        )


def _list_names(names: set[str], most: int = 5) -> str:
    shown = ", ".join(f"`{name}`" for name in sorted(names)[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def clones(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return copies of tensors that will not change with them."""
    with torch.no_grad():
        return {name: tensor.detach().clone() for name, tensor in tensors.items()}
