"""Layers that contract in every norm there is, their exact runs, and hands that change outputs."""

import copy
from typing import Any

import torch
from torch import Tensor, nn

import steadyrnn as sr
from tests.parallel.layers import GATED, gated_of, rnn_of, unit_inputs

__all__ = ["ACTIVATIONS", "KINDS", "NORMS", "exact", "layer_of", "tampered", "unit_inputs", "wrong"]

ACTIVATIONS = ("tanh", "relu", "identity", "leaky_relu", "abs", "sigmoid", "modrelu")
NORMS = ("2-norm", "weighted 2-norm", "quadratic norm")
KINDS = (*ACTIVATIONS, *NORMS, *GATED)


def layer_of(kind: str, dtype: torch.dtype = torch.float32, **options: Any) -> nn.Module:
    """Return a layer of an activation, of a norm in which it contracts, or a gated one, with five inputs."""
    torch.manual_seed(3)
    if kind in GATED:
        return gated_of(kind, dtype, **options)
    if kind in ACTIVATIONS:
        return rnn_of(3.2 if kind == "sigmoid" else 0.8, kind, dtype=dtype, **options)
    rnn = sr.RNN(5, 2, nonlinearity="relu", dtype=dtype, **options)
    weight = {
        "2-norm": [[0.6, 0.6], [-0.6, 0.6]],
        "weighted 2-norm": [[0.5, 10.0], [0.0, 0.4]],
        "quadratic norm": [[-0.51 * 1.7, 0.75 * 1.7], [-0.37 * 1.7, 0.44 * 1.7]],
    }[kind]
    with torch.no_grad():
        for name, parameter in rnn.named_parameters():
            if name.startswith("weight_hh"):
                parameter.copy_(torch.tensor(weight))
    return rnn


@torch.no_grad()
def exact(layer: nn.Module, x: Any, hx: Any = None, **options: Any) -> tuple[Any, float]:
    """Return the layer's outputs in float64, and what is proven of their own error."""
    wide = copy.deepcopy(layer).double()
    x, hx = x.to(torch.float64), tuple(s.double() for s in hx) if isinstance(hx, tuple) else None if hx is None else hx.double()
    truth = wide(x, hx, **options)[0]
    return truth, sr.verify(wide, x, truth, hx, **options).error


def wrong(output: Tensor, truth: Tensor) -> Tensor:
    """Return the 2-norm of the error of every output."""
    return torch.linalg.vector_norm(output.detach().double() - truth, dim=-1)


def tampered(output: Tensor, way: str, size: float, seed: int) -> Tensor:
    """Return outputs (T, B, H) that somebody changed."""
    generator = torch.Generator().manual_seed(seed)
    changed = output.detach().clone()
    steps, rows, width = output.shape
    time, row = (int(torch.randint(n, (), generator=generator)) for n in (steps, rows))
    noise = size * torch.randn(output.shape, generator=generator, dtype=torch.float64).to(output.dtype)
    if way == "one entry":
        changed[time, row, int(torch.randint(width, (), generator=generator))] += size
    elif way == "one step":
        changed[time, row] += noise[time, row]
    elif way == "from then on":
        changed[time:, row] += noise[time, row]
    elif way == "last":
        changed[-1] += noise[-1]
    elif way == "everywhere":
        changed += noise
    elif way == "drift":
        changed += noise[0] * torch.linspace(0, 1, steps, dtype=torch.float64).view(-1, 1, 1).to(output.dtype)
    elif way == "zero":
        changed[time:] = 0
    elif way == "swapped rows":
        changed = changed.flip(1)
    elif way == "shifted":
        changed = changed.roll(1, 0)
    return changed
