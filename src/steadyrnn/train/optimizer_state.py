"""The state of an optimizer under the names of its parameters, not their places."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn
from torch.optim import Optimizer

from steadyrnn.errors import CheckpointError

from .optimizers import parameter_names
from .weights import refuse_names

__all__ = ["load_optimizer_state", "optimizer_state"]


def optimizer_state(model: nn.Module, optimizer: Optimizer) -> tuple[dict[str, Tensor], dict[str, list[str]]]:
    """Return an optimizer's tensors as ``parameter.key``, and the keys of every parameter, as facts for JSON.

    Learning rates and the like are not state: they follow from the settings and the step.

    Example:
        >>> model = torch.nn.Linear(2, 1)
        >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        >>> model(torch.ones(2)).backward()
        >>> optimizer.step()
        >>> tensors, keys = optimizer_state(model, optimizer)
        >>> list(tensors), keys
        (['weight.momentum_buffer', 'bias.momentum_buffer'], {'weight': ['momentum_buffer'], 'bias': ['momentum_buffer']})
    """
    tensors: dict[str, Tensor] = {}
    keys: dict[str, list[str]] = {}
    for name, parameter in _parameters(model, optimizer).items():
        held = {key: value for key, value in optimizer.state.get(parameter, {}).items() if isinstance(value, Tensor)}
        tensors |= {f"{name}.{key}": value for key, value in held.items()}
        keys[name] = list(held)
    return tensors, keys


def load_optimizer_state(
    model: nn.Module, optimizer: Optimizer, tensors: Mapping[str, Tensor], keys: Mapping[str, list[str]]
) -> None:
    """Put back what :func:`optimizer_state` returned; an optimizer that it does not fit is left as it was.

    Raises:
        CheckpointError: A parameter or tensor is missing, unknown or of another shape; the message names it.
    """
    parameters = _parameters(model, optimizer)
    refuse_names("optimizer", parameters, keys)
    refuse_names("optimizer's state", [f"{name}.{key}" for name, own in keys.items() for key in own], tensors)
    state: dict[int, dict[str, Any]] = {}
    for place, (name, parameter) in enumerate(parameters.items()):
        own = {key: tensors[f"{name}.{key}"] for key in keys[name]}
        for key, value in own.items():
            if value.dim() and value.shape != parameter.shape:  # a step count is a scalar
                raise CheckpointError(
                    f"`{name}.{key}` of the optimizer must have shape {tuple(parameter.shape)}, but the checkpoint has "
                    f"{tuple(value.shape)}."
                )
        if own:
            state[place] = {key: value.clone() for key, value in own.items()}
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def _parameters(model: nn.Module, optimizer: Optimizer) -> dict[str, Tensor]:
    """Return an optimizer's parameters by name, in the order by which torch numbers them."""
    held = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    return dict(zip(parameter_names(model, optimizer), held, strict=True))
