"""What the tools are tried on: every layer, every constraint, and models made of them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

import steadyrnn as sr
from steadyrnn.constraints.registry import CONSTRAINTS, JOINT

__all__ = ["SUBJECTS", "Subject", "flat", "loss_of", "parameters_of"]

STEPS, ROWS, WIDTH, UNITS = 5, 3, 4, 4
"""T, B, D and H; H is even, as unitary matrices need it."""


@dataclass(frozen=True)
class Subject:
    """A module that people hand to a tool.

    Attributes:
        make: Returns a fresh module, always with the same weights.
        shape: The shape of its input; the first dimension is time, or the batch where there is no time.
        weight: Where the weight is that a tool would prune: a module's name and a parameter's.
    """

    make: Callable[[], nn.Module]
    shape: tuple[int, ...] = (STEPS, ROWS, WIDTH)
    weight: tuple[str, str] = ("", "weight_hh_l0")

    def module(self, dtype: torch.dtype | None = torch.float64) -> nn.Module:
        """Return a fresh module in a dtype, or in the default one."""
        torch.manual_seed(0)
        module = self.make()
        return module if dtype is None else module.to(dtype)

    def input(self, dtype: torch.dtype | None = torch.float64, first: int | None = None) -> Tensor:
        """Return an input; ``first`` is the size of its first dimension if not the usual one."""
        generator = torch.Generator().manual_seed(1)
        shape = self.shape if first is None else (first, *self.shape[1:])
        x = torch.randn(shape, generator=generator, dtype=torch.float64, device="cpu")
        return x.to(torch.get_default_dtype() if dtype is None else dtype)


def _layer(kind: str, **arguments: Any) -> Subject:
    return Subject(lambda: getattr(sr, kind)(WIDTH, UNITS, **arguments))


def _cell(kind: str, **arguments: Any) -> Subject:
    return Subject(lambda: getattr(sr, kind)(WIDTH, UNITS, **arguments), (ROWS, WIDTH), ("", "weight_hh"))


def _sequence_model(**arguments: Any) -> nn.Module:
    return sr.SequenceModel(sr.RNN(WIDTH, UNITS, **arguments), 2)


def _constrained_linear() -> nn.Module:
    return sr.constrain(nn.Linear(WIDTH, UNITS), "weight", "spectral")


_VARIANTS: dict[str, Callable[[], sr.Constraint]] = {
    "spectral, 2 reflectors": lambda: sr.Spectral(reflectors=2),
    "spectral, clip": lambda: sr.Spectral(sigma="clip"),
    "spectral, penalty": lambda: sr.Spectral(sigma="penalty"),
    "factorized, lie": lambda: sr.CayleySpectral(gradient="lie"),
}

SUBJECTS: dict[str, Subject] = {
    "RNN": _layer("RNN"),
    "RNN, 2 layers, 2 directions": _layer("RNN", num_layers=2, bidirectional=True),
    "GRU": _layer("GRU"),
    "GRU, reset first": _layer("GRU", reset_after=False),
    "LSTM": _layer("LSTM"),
    "RNNCell": _cell("RNNCell"),
    "GRUCell": _cell("GRUCell"),
    "LSTMCell": _cell("LSTMCell"),
    **{f"RNN, {name}": _layer("RNN", transition=name) for name in CONSTRAINTS if name != "free"},
    **{f"RNN, {name}": _layer("RNN", transition=make()) for name, make in _VARIANTS.items()},
    "GRU, exp": _layer("GRU", transition="exp"),
    "LSTM, exp": _layer("LSTM", transition="exp"),
    **{f"LSTM, {name}": _layer("LSTM", transition=name) for name in JOINT},
    "RNNCell, spectral": _cell("RNNCell", transition="spectral"),
    "Linear, spectral": Subject(lambda: sr.Linear(WIDTH, UNITS), (ROWS, WIDTH), ("", "weight")),
    "torch.nn.Linear, spectral": Subject(_constrained_linear, (ROWS, WIDTH), ("", "weight")),
    "SequenceModel": Subject(_sequence_model, weight=("rnn", "weight_hh_l0")),
    "SequenceModel, ball": Subject(lambda: _sequence_model(transition="ball"), weight=("rnn", "weight_hh_l0")),
    "MLP, spectral": Subject(
        lambda: sr.MLP(WIDTH, UNITS, 2, 2, weight="spectral"), (ROWS, WIDTH), ("hidden.0.linear", "weight")
    ),
    "ResNet, spectral": Subject(
        lambda: sr.ResNet(WIDTH, UNITS, 2, 1, weight="spectral"), (ROWS, WIDTH), ("hidden.0.second", "weight")
    ),
}
"""Every subject by the name it has on the page."""


def flat(value: Any) -> tuple[Tensor, ...]:
    """Return the tensors of an output, whatever tuples they lie in."""

    def walk(part: Any) -> Iterator[Tensor]:
        if isinstance(part, Tensor):
            yield part
        else:
            for item in part:
                yield from walk(item)

    return tuple(walk(value))


def loss_of(value: Any) -> Tensor:
    """Return a smooth number that every output enters."""
    return torch.stack([(tensor * tensor).sum() for tensor in flat(value)]).sum()


def parameters_of(module: nn.Module) -> dict[str, Tensor]:
    """Return every parameter that needs a gradient, by name."""
    return {name: parameter for name, parameter in module.named_parameters() if parameter.requires_grad}
