"""The weights of a model as they are used, under torch's names."""

import torch
from torch import Tensor, nn

from steadyrnn.errors import ConversionError
from steadyrnn.layers.linear import Linear
from steadyrnn.layers.saturation import refuse_saturation
from steadyrnn.layers.weights import RecurrentWeights

__all__ = ["plain_weights"]


@torch.no_grad()
def plain_weights(model: nn.Module) -> dict[str, Tensor]:
    """Return the state dict of a module with computed weights in place of raw parameters.

    Example:
        >>> list(plain_weights(sr.RNN(2, 3, transition="spectral", bias=False)))
        ['weight_ih_l0', 'weight_hh_l0']
    """
    weights = dict(model.state_dict())
    for path, module in model.named_modules():
        start = f"{path}." if path else ""
        for child, name in _computed(module).items():
            weights = {key: tensor for key, tensor in weights.items() if not key.startswith(f"{start}{child}.")}
            weights[f"{start}{name}"] = getattr(module, name).detach()
    return weights


def _computed(module: nn.Module) -> dict[str, str]:
    """Return the weights of a layer that are computed, by the submodule that holds their raw parameters."""
    names = [name for name, _ in module.named_children()]
    if isinstance(module, RecurrentWeights):
        refuse_saturation(module, ConversionError, "its weights cannot be stored under the names of torch")
        return {name: name.replace("transition", "weight_hh") for name in names if name.startswith("transition")}
    return {"slot": "weight"} if isinstance(module, Linear) and "slot" in names else {}
