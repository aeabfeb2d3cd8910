"""Modules to be certified, with their steps written out plainly: what certificates are measured on."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn

import steadyrnn as sr
from steadyrnn.activations import as_activation
from steadyrnn.certificates.certificate import Certificate
from steadyrnn.certificates.certify import certify
from tests.falsification.networks import SHEAR, TWIST, gru_step, lstm_step, product
from tests.linalg.matrices import gaussian

__all__ = ["INPUT", "MODULES", "Stepper", "both_ways", "certified", "filled"]

INPUT = 0.5
"""Bound on the 2-norm of every input."""


class Stepper:
    """One direction of a recurrent module, step by step, its states of all layers side by side (starts, N).

    Of an LSTM layer the state is (c, h), of the others h. ``kept`` is what dropout multiplies by between layers, where it
    keeps an entry.
    """

    def __init__(self, module: Any, kept: float = 1.0, way: str = "") -> None:
        self.module, self.kept, self.way, self.size = module, kept, way, module.hidden_size
        self.gated = isinstance(module, nn.LSTM | sr.LSTM | nn.GRU | sr.GRU)
        self.width = self.size * (2 if isinstance(module, nn.LSTM | sr.LSTM) else 1)
        self.steps = [self._layer(layer) for layer in range(module.num_layers)]

    def __call__(self, states: Tensor, x: Tensor) -> Tensor:
        """Return the next states."""
        new: list[Tensor] = []
        for step, state in zip(self.steps, states.split(self.width, dim=-1), strict=True):
            new.append(step(state, x))
            x = self.kept * self.output(new[-1])
        return torch.cat(new, dim=-1)

    def output(self, states: Tensor) -> Tensor:
        """Return h of the last layer."""
        return states[..., -self.size :]

    def initial(self, starts: int) -> Tensor:
        """Return the initial state: zero, or the learned one."""
        parts = []
        for layer in range(self.module.num_layers):
            names = ("initial_cell", "initial_state") if self.width > self.size else ("initial_state",)
            zero = torch.zeros(self.size, dtype=torch.float64)
            parts += [getattr(self.module, f"{name}_l{layer}{self.way}", zero).detach() for name in names]
        return torch.cat(parts).expand(starts, -1)

    def _layer(self, layer: int) -> Callable[[Tensor, Tensor], Tensor]:
        def read(name: str) -> Tensor | None:
            found = getattr(self.module, f"{name}_l{layer}{self.way}", None)
            return found.detach() if isinstance(found, Tensor) else None

        weight_ih, weight_hh = read("weight_ih"), read("weight_hh")
        assert weight_ih is not None
        assert weight_hh is not None
        zero = torch.zeros(len(weight_ih), dtype=torch.float64)
        bias_ih, bias_hh = (zero if bias is None else bias for bias in (read("bias_ih"), read("bias_hh")))
        if isinstance(self.module, nn.LSTM | sr.LSTM):
            return lstm_step(weight_ih, weight_hh, bias_ih + bias_hh)
        if isinstance(self.module, nn.GRU | sr.GRU):
            return gru_step(weight_ih, weight_hh, bias_ih, bias_hh, getattr(self.module, "reset_after", True))
        activation, theta = as_activation(self.module.nonlinearity), read("activation")
        return lambda h, x: activation.value(product(weight_ih, x) + product(weight_hh, h) + bias_ih + bias_hh, theta)


@dataclass(frozen=True)
class Certified:
    """A module's steps and its certificate."""

    step: Stepper
    certificate: Certificate
    inputs: int


def filled(module: nn.Module, scale: float, seed: int = 0, **given: Tensor) -> nn.Module:
    """Return a module in float64 whose weights are random numbers of this scale, except those given."""
    module = module.double()
    with torch.no_grad():
        for place, (name, parameter) in enumerate(module.named_parameters()):
            size = parameter.shape[1] ** 0.5 if parameter.dim() == 2 else 2.0
            parameter.copy_(given.get(name, scale * gaussian(*parameter.shape, seed=100 * seed + place) / size))
    return module


def inside(module: nn.Module) -> nn.Module:
    """Return a module with its constrained weights put back into their sets."""
    sr.project_(module)
    return module


def aligned(activation: str) -> nn.Module:
    """Return the network that remembers longest: W = 0.7 v v', all inputs along v (Note [mathematics], section 4.1)."""
    v = torch.tensor([0.6, 0.8], dtype=torch.float64)
    module = sr.RNN(1, 2, nonlinearity=activation, bias=False)
    return filled(module, 1.0, weight_hh_l0=0.7 * v.outer(v), weight_ih_l0=v.unsqueeze(1))


def biased(bias: bool | str) -> nn.Module:
    """Return one linear unit in which little but biases enters."""
    module = sr.RNN(1, 1, nonlinearity="identity", bias=bias)
    little = {"weight_ih_l0": torch.full((1, 1), 1e-3), "bias_ih_l0": torch.zeros(1), "bias_hh_l0": torch.zeros(1)}
    return filled(module, 1.0, weight_hh_l0=torch.full((1, 1), 0.5), **little)


def both_ways() -> nn.Module:
    """Return two linear units, one each way, that remember as long as they can."""
    module = sr.RNN(1, 1, nonlinearity="identity", bias=False, bidirectional=True)
    weights = {f"weight_hh_l0{way}": torch.full((1, 1), rate) for way, rate in (("", 0.5), ("_reverse", 0.6))}
    return filled(module, 1.0, **weights, weight_ih_l0=torch.ones(1, 1), weight_ih_l0_reverse=torch.ones(1, 1))


def chain(dropout: float = 0.0) -> nn.Module:
    """Return two linear layers of one unit that pass everything on."""
    module = sr.RNN(1, 1, num_layers=2, nonlinearity="identity", bias=False, dropout=dropout)
    one, half = torch.ones(1, 1), torch.full((1, 1), 0.5)
    weights = {"weight_ih_l0": one, "weight_ih_l1": one, "weight_hh_l0": half, "weight_hh_l1": half}
    return filled(module, 1.0, **weights)


def bistable(layers: int) -> nn.Module:
    """Return tanh layers of one unit that stay where they have been driven to, on either side."""
    module = nn.RNN(1, 1, num_layers=layers, bias=False)
    weights = {f"weight_hh_l{layer}": torch.full((1, 1), 4.0) for layer in range(layers)}
    inputs = {f"weight_ih_l{layer}": torch.full((1, 1), 8.0) for layer in range(layers)}
    return filled(module, 1.0, **weights, **inputs)


def quiet(module: nn.Module, scale: float, seed: int = 0) -> nn.Module:
    """Return a gated module with small weights, and forget gates that are mostly closed."""
    module = filled(module, scale, seed)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if "bias_ih" in name and isinstance(module, nn.LSTM | sr.LSTM):
                parameter.chunk(4)[1].fill_(-1.0)
    return module


MODULES: dict[str, Callable[[], nn.Module]] = {
    "aligned identity": lambda: aligned("identity"),
    "aligned relu": lambda: aligned("relu"),
    **{a: lambda a=a: filled(sr.RNN(2, 3, nonlinearity=a), 0.5) for a in ("tanh", "relu", "leaky_relu", "abs", "identity")},
    "sigmoid": lambda: filled(sr.RNN(2, 3, nonlinearity="sigmoid"), 1.5),
    "modrelu": lambda: filled(sr.RNN(2, 4, nonlinearity="modrelu"), 0.5, activation_l0=torch.tensor([-0.05, -0.1])),
    "spectral": lambda: filled(sr.RNN(2, 4, nonlinearity="abs", transition=sr.Spectral(reflectors=2, center=0.7)), 0.5),
    "shear": lambda: filled(sr.RNN(2, 2, nonlinearity="relu"), 0.5, weight_hh_l0=SHEAR),
    "twist": lambda: filled(sr.RNN(2, 2, nonlinearity="relu"), 0.5, weight_hh_l0=TWIST),
    "learned initial state": lambda: filled(sr.RNN(2, 3, nonlinearity="relu", learn_initial_state=True), 0.5, seed=3),
    "lstm": lambda: quiet(nn.LSTM(2, 2), 0.4),
    "lstm, learned initial state": lambda: quiet(sr.LSTM(2, 2, learn_initial_state=True), 0.4),
    "stable lstm": lambda: inside(filled(sr.LSTM(2, 2, transition=sr.StableLSTM(0.6, INPUT, 0.1)), 0.5)),
    "gru": lambda: quiet(nn.GRU(2, 2), 0.3),
    "gru before": lambda: quiet(sr.GRU(2, 2, reset_after=False), 0.3),
    "biased": lambda: biased(True),
    "biased once": lambda: biased("single"),
    "chain": chain,
    "chain with dropout": lambda: chain(0.5).train(),
    "stack of tanh": lambda: filled(nn.RNN(2, 2, num_layers=2), 0.5),
    "stack of lstm": lambda: quiet(nn.LSTM(2, 2, num_layers=2), 0.3),
    "stack of gru": lambda: quiet(nn.GRU(2, 2, num_layers=2), 0.3),
    "bistable": lambda: bistable(1),
    "stack of bistable": lambda: bistable(2),
}


@cache
def certified(name: str) -> Certified:
    """Return a module's steps and certificate, made once."""
    module = MODULES[name]()
    kept = 1 / (1 - module.dropout) if module.training and getattr(module, "dropout", 0) else 1.0
    found = certify(module, input_bound=INPUT)
    assert isinstance(found, Certificate)
    return Certified(Stepper(module, kept), found, int(module.input_size))  # type: ignore[arg-type]
