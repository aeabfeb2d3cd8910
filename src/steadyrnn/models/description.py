"""A model as JSON, from which an equal one is built: the names of its classes and the arguments that make it."""

import math
import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from steadyrnn.errors import ArgumentError, ArgumentTypeError, SteadyError, not_among

from .describable import Describable, describables
from .hints import fits

__all__ = ["FORMAT", "describe_model", "rebuild_model"]

FORMAT = 1
"""The version of the form of a description."""

_DEEPEST = 20
_NO_SIZE = ("context",)
"""Whole numbers that no weight bears out."""
_DTYPES = {str(dtype).removeprefix("torch."): dtype for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64)}


def describe_model(model: nn.Module) -> dict[str, Any]:
    """Return a model as JSON: the names of its classes, and the arguments that make it; no weights.

    :func:`rebuild_model` builds an equal one, which takes the state dict of this one. That is tried before it is promised: a
    part that was replaced, or that does more than its class does, is found. Device and engine are left out. No random number
    is used up.

    Args:
        model: A ``SequenceModel``, ``Truncated``, ``MLP`` or ``ResNet``, a ``Linear`` or recurrent layer of ours, or a
            recurrent layer of torch.

    Raises:
        ArgumentError: It has a part that no name stands for: a class of your own, or a constraint or an activation that is not
            registered. The message names the part.

    Example:
        >>> description = describe_model(sr.SequenceModel(sr.GRU(2, 4, transition="ornn"), 3))
        >>> description["module"], description["arguments"]["rnn"]["arguments"]["hidden_size"]
        ('steadyrnn.SequenceModel', 4)
    """
    if not isinstance(model, nn.Module):
        raise ArgumentTypeError(f"`model` must be a module, but is of type {type(model).__name__}.")
    _refuse_additions(model)
    known = {one.cls: one for one in describables()}
    description = {"format": FORMAT, **_encode(model, known, "model")}
    with torch.device("meta"):
        _compare(model, rebuild_model(description))
    return description


def rebuild_model(description: Any, tensors: Mapping[str, Tensor] | None = None) -> nn.Module:
    """Return a fresh model of a description, which may come from somebody else: nothing in it is executed.

    Classes are looked up by their names, and every value is checked before a class is called with it. No random number is
    used up.

    Args:
        description: What :func:`describe_model` returned.
        tensors: The state dict that is to be loaded. Then sizes that it does not bear out are refused before memory is taken.

    Raises:
        ArgumentError: It is no description of this release; the message names the place.

    Example:
        >>> model = sr.SequenceModel(sr.GRU(2, 4, transition="ornn"), 3)
        >>> twin = rebuild_model(describe_model(model), model.state_dict())
        >>> _ = twin.load_state_dict(model.state_dict())
        >>> torch.equal(twin(torch.ones(5, 1, 2))[0], model(torch.ones(5, 1, 2))[0])
        True
    """
    if not isinstance(description, Mapping):
        raise ArgumentTypeError(f"`description` must be a mapping, but is of type {type(description).__name__}.")
    if description.get("format") != FORMAT or isinstance(description["format"], bool):
        raise ArgumentError(f"`format` of a description must be {FORMAT}, but is {_brief(description.get('format'))}.")
    content = {name: value for name, value in description.items() if name != "format"}
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # whoever made the model has seen them
        if tensors is not None:
            _check_sizes(content, tensors)
            with torch.device("meta"):
                _compare_tensors(_build(content).state_dict(), tensors)
        return _build(content)


def _encode(value: Any, known: Mapping[type, Describable], path: str) -> Any:
    """Return a value as JSON."""
    if type(value) in known:
        one = known[type(value)]
        arguments = {name: _encode(part, known, f"{path}.{name}") for name, part in one.arguments(value).items()}
        return {one.family: one.name, "arguments": arguments}
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return float(value) if math.isfinite(value) else {"number": repr(float(value))}
        case tuple() | list():
            return [_encode(part, known, path) for part in value]
        case torch.dtype():
            return {"dtype": str(value).removeprefix("torch.")}
        case Mapping():
            return {"each": {str(name): _encode(part, known, f"{path}.{name}") for name, part in value.items()}}
    raise ArgumentError(
        f"`{path}` is of class {_class_name(value)}, which a description cannot name: it can name the models and layers of "
        "steadyrnn, the recurrent layers of torch.nn, and the constraints and activations that are registered."
    )


def _build(content: Any) -> nn.Module:
    """Return the module of a description without its format."""
    known = {(one.family, one.name): one for one in describables()}
    try:
        model = _decode(content, known, "model", _DEEPEST)
    except SteadyError:
        raise
    except (TypeError, ValueError, RuntimeError, ArithmeticError, AttributeError, KeyError) as error:
        raise ArgumentError(f"`description` is one of which no model can be built: {error}") from error
    if not isinstance(model, nn.Module):
        raise ArgumentError("`description` must name a module.")
    return model


def _decode(value: Any, known: Mapping[tuple[str, str], Describable], path: str, depth: int) -> Any:
    """Return the value of a piece of JSON; lists become tuples."""
    if depth == 0:
        raise ArgumentError(f"`{path[:60]}` of a description is nested too deeply.")
    match value:
        case None | bool() | int() | float() | str():
            return value
        case list():
            return tuple(_decode(part, known, path, depth - 1) for part in value)
        case {"number": "nan" | "inf" | "-inf" as text, **rest} if not rest:
            return float(text)
        case {"dtype": str(name), **rest} if not rest and name in _DTYPES:
            return _DTYPES[name]
        case {"each": Mapping() as parts, **rest} if not rest:
            return {str(name): _decode(part, known, f"{path}.{name}", depth - 1) for name, part in parts.items()}
        case {"arguments": Mapping() as arguments, **rest} if len(rest) == 1:
            one = _find(rest, known, path)
            given = {name: _decode(part, known, f"{path}.{name}", depth - 1) for name, part in arguments.items()}
            return _call(one, given, path)
    raise ArgumentError(f"`{path[:60]}` of a description has a value of no known form.")


def _find(names: Mapping[Any, Any], known: Mapping[tuple[str, str], Describable], path: str) -> Describable:
    """Return the class that a description names."""
    ((family, name),) = names.items()
    there = [other for kind, other in known if kind == family]
    if not there or not isinstance(name, str):
        raise ArgumentError(f"`{path[:60]}` of a description names no module, constraint or activation.")
    if name not in there:
        raise ArgumentError(not_among(f"{path[:60]}.{family}", name, there))
    return known[family, name]


def _call(one: Describable, arguments: Mapping[str, Any], path: str) -> Any:
    """Make an object, once it is known that it gets what it takes."""
    if arguments.keys() != one.hints.keys():
        other = ", ".join(sorted(str(name)[:40] for name in arguments.keys() ^ one.hints.keys()))
        raise ArgumentError(f"`{path[:60]}` of a description, a {one.name}, lacks arguments or has others: {other[:200]}.")
    for name, value in arguments.items():
        if not fits(value, one.hints[name]):
            raise ArgumentError(f"`{path[:60]}.{name}` of a description must not be {_brief(value)}: it is of another type.")
    return one.cls(**arguments)


def _check_sizes(content: Any, tensors: Mapping[str, Tensor]) -> None:
    """Refuse a whole number that is larger than every dimension of the weights, and than their number."""
    most = max([len(tensors), *(size for tensor in tensors.values() for size in tensor.shape)], default=0)
    waiting: list[tuple[str, Any]] = [("model", content)]
    while waiting:
        name, value = waiting.pop()
        if isinstance(value, Mapping):
            waiting.extend(value.items())
        elif isinstance(value, list):
            waiting.extend((name, part) for part in value)
        elif isinstance(value, int) and not -most <= value <= most and name not in _NO_SIZE and not isinstance(value, bool):
            raise ArgumentError(f"`{str(name)[:60]}` of a description is larger than any size of its weights, {most:,}.")


def _compare_tensors(own: Mapping[str, Tensor], tensors: Mapping[str, Tensor]) -> None:
    """Refuse weights that are not those of a model, by names and shapes."""
    for name in sorted(own.keys() ^ tensors.keys()):
        where = "the weights lack" if name in own else "the model lacks"
        raise ArgumentError(f"The description and the weights do not fit: {where} `{str(name)[:60]}`.")
    for name, tensor in own.items():
        if tensor.shape != tensors[name].shape:
            raise ArgumentError(
                f"The description and the weights do not fit: `{name}` has shape {tuple(tensor.shape)} by the one, and "
                f"{tuple(tensors[name].shape)} by the other."
            )


def _refuse_additions(model: nn.Module) -> None:
    """Refuse a part that does more than its class does: by a hook, or a ``forward`` of its own."""
    for path, part in model.named_modules():
        added = "forward" in vars(part) or part._forward_hooks or part._forward_pre_hooks
        if added:
            raise ArgumentError(
                f"`{_join('model', path)}` has a hook or a `forward` of its own, which a description cannot name. Remove it."
            )


def _compare(model: nn.Module, twin: nn.Module) -> None:
    """Refuse a model that differs from one of its description: a part of it was replaced."""
    parts, others = dict(model.named_modules()), dict(twin.named_modules())
    for path in (*parts, *others):
        part, other = parts.get(path), others.get(path)
        if part is not None and other is not None and type(part) is type(other):
            if hasattr(part, "engine"):  # where it is computed, which is not described
                other.engine = part.engine
            if part.extra_repr() == other.extra_repr():
                continue
        made, found = ("nothing" if one is None else _class_name(one) for one in (other, part))
        change = f"is {found} in place of {made}" if made != found else f"has other options than its model gave it: {part}"
        raise ArgumentError(f"`{_join('model', path)}` {change}, which a description cannot say.")
    own, theirs = model.state_dict(), twin.state_dict()
    _compare_tensors(theirs, own)
    for name, tensor in own.items():
        if tensor.dtype != theirs[name].dtype:
            raise ArgumentError(
                f"`{name}` of `model` has dtype {tensor.dtype}, where {theirs[name].dtype} is expected: a description has one."
            )


def _join(*parts: str) -> str:
    return ".".join(part for part in parts if part)


def _class_name(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _brief(value: Any) -> str:
    return repr(value)[:60] if isinstance(value, str | bool | float | None) else f"of type {type(value).__name__}"
