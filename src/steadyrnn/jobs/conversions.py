"""The forms that ``steadyrnn convert`` knows: a model in; weights, a report, a check and a way to load it out."""

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from steadyrnn.certificates.base import format_above
from steadyrnn.convert.feedforward import to_feedforward
from steadyrnn.convert.plain_weights import plain_weights
from steadyrnn.convert.torch_nn import to_torch
from steadyrnn.convert.unitary import to_unitary
from steadyrnn.errors import ConversionError
from steadyrnn.layers.base import RecurrentLayer
from steadyrnn.layers.gru import GRU
from steadyrnn.layers.linear import Linear
from steadyrnn.layers.rnn import RNN
from steadyrnn.models.sequence import SequenceModel
from steadyrnn.models.truncated import Truncated, recurrent_part
from steadyrnn.parallel.module import to_parallel

__all__ = ["FORMS", "ConversionOptions", "ConvertedModel"]


@dataclass(frozen=True)
class ConversionOptions:
    """What a user asks of a conversion."""

    input_bound: float | None = None
    eps: float = 1e-3
    tol: float = 1e-5
    horizon: int | None = None
    approximate: bool = False


@dataclass(frozen=True)
class ConvertedModel:
    """A converted model.

    Args:
        tensors: Its weights.
        imports: Lines of Python that import what ``code`` needs beside torch.
        code: Lines of Python that make ``model`` and load the weights, in the names ``torch``, ``folder`` and ``load_file``.
        classes: Python that stands in front of it.
        call: How the model is called.
        report: What is proven of it, as JSON.
        words: The same for people.
        check: How far its outputs were from the original's on random admissible inputs, largest 2-norm.
    """

    tensors: dict[str, Tensor]
    imports: tuple[str, ...]
    code: tuple[str, ...]
    report: dict[str, Any]
    words: str
    check: float
    call: str = "logits, state = model(input)"
    classes: str = ""


Whole = SequenceModel | Truncated
LOAD = 'model.load_state_dict(load_file(folder / "model.safetensors"))'
SR = ("import steadyrnn as sr",)
TRUNCATED = ("from steadyrnn.models.truncated import Truncated",)


def _unitary(model: Whole, wish: ConversionOptions) -> ConvertedModel:
    made = to_unitary(model, wish.input_bound, wish.horizon, wish.approximate)
    unitary: Any = _part(made).rnn
    report = unitary.report
    x = _inputs(_part(model), report.input_bound, min(report.horizon or 256, 256))
    code = (
        *_model_code(model, _layer_code(_layer(model))),
        'report = UnitaryReport.from_dict(json.loads((folder / "report.json").read_text())["report"])',
        f"rnn = UnitaryRNN.empty({_layer_code(unitary.layer)}, report, {unitary.scaling is not None}, {unitary.order!r})",
        f"model = with_layer(model, rnn)\n    {LOAD}",
    )
    imports = (
        *("import json", *SR, *_truncated_imports(model), "from steadyrnn.models.converted import with_layer"),
        "from steadyrnn.convert.unitary_rnn import UnitaryReport, UnitaryRNN",
    )
    tensors = dict(made.state_dict())
    return ConvertedModel(tensors, imports, code, report.to_dict(), str(report), _distance(made, model, x))


def _feedforward(model: Whole, wish: ConversionOptions) -> ConvertedModel:
    if isinstance(model, Truncated):
        raise ConversionError(
            f"The model is feed-forward already: an output looks at the last {model.context} inputs. Convert it --to torch."
        )
    bound = _require_bound(wish.input_bound)
    made = to_feedforward(model, wish.eps, bound)
    x = _inputs(model, bound, min(2 * made.window, 1000))
    code = (
        *_model_code(model, _layer_code(_layer(model))), LOAD,
        f"model = sr.to_feedforward(model.eval(), eps={wish.eps!r}, input_bound={bound!r})",
    )  # fmt: skip
    report, check = made.report, _distance(made, model, x)
    return ConvertedModel(plain_weights(model), SR, code, report.to_dict(), str(report), check, "logits = model(input)")


def _parallel(model: Whole, wish: ConversionOptions) -> ConvertedModel:
    made = to_parallel(model, wish.tol, input_bound=wish.input_bound)
    x = _inputs(_part(model), wish.input_bound, 2048)
    with torch.no_grad():
        check = _distance(made, model, x)
    layer: Any = _part(made).rnn
    report = layer.report
    numbers = {"tol": report.tol, "truncation": report.truncation, "rounding": report.rounding}
    facts = {**numbers, "steps": 2048, "windows": report.windows, "depth": report.depth}
    truncation, rounding = format_above(report.truncation, 3), format_above(report.rounding, 3)
    words = (
        f"time-parallel: 2,048 steps in windows ({report.windows}), {report.depth} steps deep; every state within "
        f"{truncation} + {rounding} (truncation, rounding) of the sequential run"
    )
    code = (
        *_model_code(model, _layer_code(_layer(model))), LOAD,
        f"model = sr.to_parallel(model.eval(), tol={wish.tol!r}, input_bound={wish.input_bound!r})",
    )  # fmt: skip
    return ConvertedModel(plain_weights(model), (*SR, *_truncated_imports(model)), code, facts, words, check)


def _torch(model: Whole, wish: ConversionOptions) -> ConvertedModel:
    made: Any = to_torch(model)
    layer: Any = _part(made).rnn
    kind = type(layer).__name__
    more = [f"nonlinearity={layer.nonlinearity!r}"] if isinstance(layer, nn.RNN) else []
    more += [f"{name}=True" for name in ("batch_first", "bidirectional") if getattr(layer, name)]
    options = ", ".join([*map(str, (layer.input_size, layer.hidden_size, layer.num_layers)), *more, f"bias={layer.bias}"])
    code = f"torch.nn.{kind}({options}{_dtype_code(layer.weight_ih_l0)})"
    words = f"torch.nn.{kind} with the weights as they are used; the constraint that kept them has no part any more"
    found = {"class": kind}, words, _distance(made, model, _inputs(_part(model), wish.input_bound, 256))
    if isinstance(model, Truncated):
        return ConvertedModel(dict(made.state_dict()), (*SR, *TRUNCATED), (*_model_code(model, code), LOAD), *found)
    return ConvertedModel(dict(made.state_dict()), (), ("model = Model()", LOAD), *found, classes=_torch_class(model, code))


FORMS: Mapping[str, Callable[[Whole, ConversionOptions], ConvertedModel]] = {
    "unitary": _unitary,
    "feedforward": _feedforward,
    "parallel": _parallel,
    "torch": _torch,
}
"""Every form by name."""


def _part(model: nn.Module) -> SequenceModel:
    """Return the recurrent model, of a truncated one the one inside."""
    found: Any = recurrent_part(model)
    return found  # type: ignore[no-any-return]


def _layer(model: Whole) -> RecurrentLayer:
    layer: Any = _part(model).rnn
    return layer  # type: ignore[no-any-return]


def _truncated_imports(model: Whole) -> tuple[str, ...]:
    return TRUNCATED if isinstance(model, Truncated) else ()


def _model_code(model: Whole, layer: str) -> list[str]:
    """Return Python that makes an empty model of the same options around a layer."""
    part = _part(model)
    options = {"readout": part.reads, "tied": part.tied, "skip": part.skip is not None, "bias": part.readout.bias is not None}
    if part.embedding is not None:
        options["vocab_size"] = part.embedding.num_embeddings
    words = ", ".join(f"{name}={value!r}" for name, value in options.items())
    lines = [f"model = sr.SequenceModel({layer}, {part.readout.out_features}, {words})"]
    return [*lines, f"model = Truncated(model, {model.context}, {model.reads!r})"] if isinstance(model, Truncated) else lines


def _torch_class(model: SequenceModel, layer: str) -> str:
    """Return Python of a model that needs nothing but torch."""
    like, first = _dtype_code(model.readout.weight), model.batch_first
    order, steps = ("Batch", "B, T") if first else ("Time", "T, B")
    parts = {"rnn": layer, "readout": _linear(model.readout, like)}
    if model.embedding is not None:
        parts["embedding"] = f"torch.nn.Embedding({model.embedding.num_embeddings}, {model.embedding.embedding_dim}{like})"
    if model.skip is not None:
        parts["skip"] = _linear(model.skip, like)
    read = _read_code(model, "output")
    seen = "" if model.skip is None else f" + self.skip({_read_code(model, 'x', inputs=True)})"
    made = "\n".join(f"        self.{name} = {code}" for name, code in parts.items())
    embedded = "self.embedding(input)" if model.embedding is not None else "input"
    return f'''
class Model(torch.nn.Module):
    """{order} first: input ({steps}, ...), logits {"(B, N)" if model.reads != "each" else f"({steps}, N)"}."""

    def __init__(self):
        super().__init__()
{made}

    def forward(self, input, hx=None):
        x = {embedded}
        output, state = self.rnn(x, hx)
        return self.readout({read}){seen}, state

'''


def _read_code(model: SequenceModel, name: str, inputs: bool = False) -> str:
    """Return Python of what the readout sees of outputs, or of inputs: every step, their mean or the last one."""
    first = model.batch_first
    if model.reads == "each":
        return name
    if model.reads == "mean":
        return f"{name}.mean({int(first)})"
    at = f"{name}[:, {{}}]" if first else f"{name}[{{}}]"
    if inputs or model.directions == 1:
        return at.format("-1")
    size = model.rnn.hidden_size  # the last step of the one direction, the first of the other
    return f"torch.cat([{at.format('-1')}[..., :{size}], {at.format('0')}[..., {size}:]], -1)"


def _linear(linear: Linear, like: str) -> str:
    return f"torch.nn.Linear({linear.in_features}, {linear.out_features}, bias={linear.bias is not None}{like})"


def _dtype_code(weight: Tensor) -> str:
    """Return the argument that makes a module in the dtype of a weight, where that is not torch's usual one."""
    return "" if weight.dtype == torch.float32 else f", dtype={weight.dtype}"


def _require_bound(input_bound: float | None) -> float:
    if input_bound is None:
        raise ConversionError("A feed-forward equivalent is proven for inputs up to a norm only: give --input-bound.")
    return input_bound


def _layer_code(layer: RecurrentLayer) -> str:
    """Return Python that makes an empty layer of the same options, without constraint."""
    options: dict[str, str] = {"bias": repr(layer.bias)}
    options |= {name: "True" for name in ("batch_first", "bidirectional", "learn_initial_state") if getattr(layer, name)}
    if isinstance(layer, RNN):
        activation = layer.activation
        fields = ", ".join(f"{name}={value!r}" for name, value in asdict(activation).items())
        options["nonlinearity"] = f"sr.{type(activation).__name__}({fields})"
    if isinstance(layer, GRU):
        options["reset_after"] = repr(layer.reset_after)
    words = ", ".join(f"{name}={value}" for name, value in options.items()) + _dtype_code(layer.weight_ih_l0)
    return f"sr.{type(layer).__name__}({layer.input_size}, {layer.hidden_size}, {layer.num_layers}, {words})"


def _inputs(model: SequenceModel, bound: float | None, steps: int) -> Tensor:
    """Return random tokens (T, 2), or vectors (T, 2, D) no longer than the bound (1 without one); batch first as the model."""
    x = _time_first(model, bound, steps)
    return x.transpose(0, 1) if model.batch_first else x


def _time_first(model: SequenceModel, bound: float | None, steps: int) -> Tensor:
    generator = torch.Generator().manual_seed(0)  # the global one stays untouched
    if model.embedding is not None:
        return torch.randint(model.embedding.num_embeddings, (steps, 2), generator=generator)
    like = model.readout.weight
    x = torch.randn(steps, 2, model.rnn.input_size, generator=generator, dtype=torch.float64)
    x = nn.functional.normalize(x, dim=-1) * torch.rand(steps, 2, 1, generator=generator, dtype=torch.float64)
    size = 1.0 if bound is None or not math.isfinite(bound) else bound
    admissible: Tensor = (0.999 * size * x).to(like)
    return admissible


@torch.no_grad()
def _distance(made: nn.Module, model: nn.Module, x: Tensor) -> float:
    """Return the largest 2-norm by which logits differ."""
    found, expected = made(x), model(x)[0]
    found = found[0] if isinstance(found, tuple) else found
    return float(torch.linalg.vector_norm((found - expected).double(), dim=-1).max())
