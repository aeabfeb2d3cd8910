"""The forms that ``steadyrnn convert`` knows: a layer in; tensors, a report, a check and a way to load it out."""

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from steadyrnn.convert.feedforward import to_feedforward
from steadyrnn.convert.parallel import to_parallel
from steadyrnn.convert.torch_nn import to_torch
from steadyrnn.convert.unitary import to_unitary
from steadyrnn.convert.unitary_rnn import input_slack
from steadyrnn.errors import ConversionError
from steadyrnn.layers.base import RecurrentLayer
from steadyrnn.layers.gru import GRU
from steadyrnn.layers.rnn import RNN

__all__ = ["FORMS", "Converted", "Wish"]


@dataclass(frozen=True)
class Wish:
    """What a user asks of a conversion."""

    input_bound: float | None = None
    eps: float = 1e-3
    tol: float = 1e-5
    horizon: int | None = None
    approximate: bool = False


@dataclass(frozen=True)
class Converted:
    """A converted layer.

    Args:
        tensors: Of the layer that ``code`` makes.
        code: Python that makes the empty layer, in the names ``sr`` and ``torch``.
        wrap: Lines of Python that make ``module`` from the loaded ``layer``.
        report: What is proven of it, as JSON.
        words: The same for people.
        check: How far its outputs were from the layer's on random admissible inputs, largest 2-norm.
    """

    tensors: dict[str, Tensor]
    code: str
    wrap: tuple[str, ...]
    report: dict[str, Any]
    words: str
    check: float


def _unitary(layer: RecurrentLayer, wish: Wish) -> Converted:
    made = to_unitary(layer, wish.input_bound, wish.horizon, wish.approximate)
    x = _inputs(layer, made.report.input_bound, min(made.report.horizon or 256, 256))
    check = _distance(made(x)[0], layer(x)[0])
    tensors = dict(made.layer.state_dict())
    # the first units are the original ones; a scaling, where there is one, is undone behind the layer
    size, scaling = layer.hidden_size, None if made.scaling is None else made.scaling.tolist()
    wrap = (
        "def module(input):",
        *_refusals(made.report.input_bound, input_slack(layer.input_size, layer.weight_ih_l0.dtype), made.report.horizon),
        "    output, h_n = layer(input)",
        *(() if scaling is None else (f"    scaling = torch.tensor({scaling}).to(output)  # (layers, units)",)),
        f"    output, h_n = output[..., :{size}], h_n[..., :{size}]",
        "    return output, h_n"
        if scaling is None
        else "    return output / scaling[-1], h_n / (scaling if h_n.dim() == 2 else scaling.unsqueeze(1))",
    )
    return Converted(tensors, _code(made.layer), wrap, made.report.to_dict(), str(made.report), check)


def _refusals(bound: float | None, slack: float, horizon: int | None) -> list[str]:
    """Return lines of Python that refuse inputs, (T, ..., D), for which the equality is not proven."""
    lines = []
    if bound is not None:
        lines += [
            f"    if input.numel() and torch.linalg.vector_norm(input.double(), dim=-1).max() > {bound * slack!r}:",
            f'        raise ValueError("`input` has a 2-norm above {bound!r}, for which the network was converted.")',
        ]
    if horizon is not None:
        lines += [
            f"    if input.shape[0] > {horizon}:",
            f'        raise ValueError("`input` has more than {horizon} steps, for which the network was converted.")',
        ]
    return lines


def _feedforward(layer: RecurrentLayer, wish: Wish) -> Converted:
    made = to_feedforward(layer, wish.eps, _needed(wish.input_bound))
    x = _inputs(layer, wish.input_bound, min(2 * made.window, 1000))
    check = _distance(made(x), layer(x)[0])
    wrap = (f"module = sr.to_feedforward(layer, eps={wish.eps!r}, input_bound={wish.input_bound!r})",)
    return Converted(_plain(layer), _code(layer), wrap, made.report.to_dict(), str(made.report), check)


def _parallel(layer: RecurrentLayer, wish: Wish) -> Converted:
    made = to_parallel(layer, wish.tol, input_bound=wish.input_bound)
    x = _inputs(layer, wish.input_bound, 2048)
    with torch.no_grad():
        output = made(x)[0]
    check, report = _distance(output, layer(x)[0]), made.report
    numbers = {"tol": report.tol, "truncation": report.truncation, "rounding": report.rounding}
    facts = {**numbers, "steps": 2048, "windows": report.windows, "depth": report.depth}
    words = (
        f"time-parallel: 2,048 steps in windows ({report.windows}), {report.depth} steps deep; every state within "
        f"{report.truncation:.3g} + {report.rounding:.3g} (truncation, rounding) of the sequential run"
    )
    wrap = (f"module = sr.to_parallel(layer, tol={wish.tol!r}, input_bound={wish.input_bound!r})",)
    return Converted(_plain(layer), _code(layer), wrap, facts, words, check)


def _torch(layer: RecurrentLayer, wish: Wish) -> Converted:
    made: Any = to_torch(layer)
    x = _inputs(layer, wish.input_bound, 256)
    kind = type(made).__name__
    more = f", nonlinearity={made.nonlinearity!r}" if isinstance(made, nn.RNN) else ""
    code = f"torch.nn.{kind}({made.input_size}, {made.hidden_size}, {made.num_layers}{more}, bias={made.bias})"
    words = f"torch.nn.{kind} with the weights as they are used; the constraint that kept them has no part any more"
    return Converted(
        dict(made.state_dict()), code, ("module = layer",), {"class": kind}, words, _distance(made(x)[0], layer(x)[0])
    )


FORMS: Mapping[str, Callable[[RecurrentLayer, Wish], Converted]] = {
    "unitary": _unitary,
    "feedforward": _feedforward,
    "parallel": _parallel,
    "torch": _torch,
}
"""Every form by name."""


def _needed(input_bound: float | None) -> float:
    if input_bound is None:
        raise ConversionError("A feed-forward equivalent is proven for inputs up to a norm only: give --input-bound.")
    return input_bound


def _plain(layer: RecurrentLayer) -> dict[str, Tensor]:
    """Return the weights of a layer as they are used, under the names of one without constraint."""
    gates = {name for name in layer.state_dict() if name.startswith("transition_")}
    ends = [layer.suffix(place, 0) for place in range(layer.num_layers)]
    weights = {name: tensor for name, tensor in layer.state_dict().items() if name not in gates}
    return weights | {f"weight_hh{end}": getattr(layer, f"weight_hh{end}").detach() for end in ends}


def _code(layer: RecurrentLayer) -> str:
    """Return Python that makes an empty layer of the same options, without constraint."""
    options: dict[str, str] = {"bias": repr(layer.bias)}
    if isinstance(layer, RNN):
        activation = layer.activation
        fields = ", ".join(f"{name}={value!r}" for name, value in asdict(activation).items())
        options["nonlinearity"] = f"sr.{type(activation).__name__}({fields})"
    if isinstance(layer, GRU):
        options["reset_after"] = repr(layer.reset_after)
    if layer.learn_initial_state:
        options["learn_initial_state"] = "True"
    words = ", ".join(f"{name}={value}" for name, value in options.items())
    return f"sr.{type(layer).__name__}({layer.input_size}, {layer.hidden_size}, {layer.num_layers}, {words})"


def _inputs(layer: RecurrentLayer, bound: float | None, steps: int) -> Tensor:
    """Return random inputs, (T, 2, D), no longer than the bound (1 without one); the global generator stays untouched."""
    generator = torch.Generator().manual_seed(0)
    like = layer.weight_ih_l0
    x = torch.randn(steps, 2, layer.input_size, generator=generator, dtype=torch.float64)
    x = (
        x
        / torch.linalg.vector_norm(x, dim=-1, keepdim=True)
        * torch.rand(steps, 2, 1, generator=generator, dtype=torch.float64)
    )
    size = 1.0 if bound is None or not math.isfinite(bound) else bound
    admissible: Tensor = (0.999 * size * x).to(like)
    return admissible


def _distance(result: Tensor, expected: Tensor) -> float:
    return float(torch.linalg.vector_norm((result - expected).detach().double(), dim=-1).max())
