"""Modules of every kind, stored whole and as state dicts: what an earlier version wrote must load.

``tests/layers/stored`` was written by commit f7ee1af, by ``python -m tests.layers.stored_modules FOLDER``.
"""

import copy
import functools
import io
import lzma
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import steadyrnn as sr
from steadyrnn.models.truncated import Truncated

__all__ = ["KINDS", "attached", "example", "read", "results", "step"]

D, H, STEPS, ROWS, TOKENS = 2, 4, 4, 2, 5
STORED = Path(__file__).with_name("stored")
TRANSITIONS = (
    *("free", "irnn", "ornn", "spectral", "exp", "exp-lie", "exp-printed", "cayley", "factorized"),
    *("unitary", "unitary-full", "ball", "polar"),
)
NONLINEARITIES = ("relu", "abs", "leaky_relu", "modrelu", "sigmoid", "identity")


def small_ball() -> sr.RNN:
    return sr.RNN(D, H, nonlinearity="relu", transition=sr.SpectralBall(0.5))


Makers = dict[str, Callable[[], nn.Module]]
KINDS: dict[str, Makers] = {
    "rnn": {
        **{name: functools.partial(sr.RNN, D, H, transition=name) for name in TRANSITIONS},
        **{name: functools.partial(sr.RNN, D, H, nonlinearity=name) for name in NONLINEARITIES},
        "stacked": lambda: sr.RNN(D, H, 2, bidirectional=True, learn_initial_state=True, transition="spectral"),
    },
    "gru": {
        "spectral": lambda: sr.GRU(D, H, transition="spectral"),
        "before": lambda: sr.GRU(D, H, reset_after=False),
        "stacked": lambda: sr.GRU(D, H, 2, bidirectional=True, transition="exp"),
    },
    "lstm": {
        "spectral": lambda: sr.LSTM(D, H, transition="spectral"),
        "stable": lambda: sr.LSTM(D, H, transition="stable-lstm"),
        "stacked": lambda: sr.LSTM(D, H, 2, bidirectional=True, transition="cayley"),
    },
    "cells": {
        "rnn": lambda: sr.RNNCell(D, H, transition="spectral"),
        "gru": lambda: sr.GRUCell(D, H),
        "lstm": lambda: sr.LSTMCell(D, H, transition="ball"),
    },
    "linear": {name: functools.partial(sr.Linear, D, D, weight=name) for name in ("free", "spectral", "exp", "ball")},
    "models": {
        "mlp": lambda: sr.MLP(D, H, 2, depth=2, activation="modrelu", weight="spectral"),
        "resnet": lambda: sr.ResNet(D, H, 2, blocks=1, activation="leaky_relu", weight="spectral"),
        "features": lambda: sr.SequenceModel(sr.LSTM(D, H), 2, skip=True),
        "tokens": lambda: sr.SequenceModel(sr.GRU(H, H), TOKENS, vocab_size=TOKENS, readout="each", tied=True),
        "truncated": lambda: Truncated(sr.SequenceModel(small_ball(), 2), context=2, reads="each"),
    },
    "conversions": {
        "feedforward": lambda: sr.to_feedforward(small_ball(), eps=0.5, input_bound=4.0),
        "unitary": lambda: sr.to_unitary(small_ball(), input_bound=4.0),
    },
}
"""How to make the modules of each kind."""


def example(kind: str, name: str) -> Tensor:
    """Return an input: tokens, rows, or a sequence."""
    generator = torch.Generator().manual_seed(0)
    if name == "tokens":
        return torch.randint(TOKENS, (STEPS, ROWS), generator=generator)
    rows = kind in ("cells", "linear") or name in ("mlp", "resnet")
    return torch.randn(*(() if rows else (STEPS,)), ROWS, D, generator=generator)


def results(module: nn.Module, input: Tensor) -> list[Tensor]:
    """Return every tensor that a module gives in evaluation."""

    def flatten(value: Any) -> list[Tensor]:
        return [value.detach()] if isinstance(value, Tensor) else [t for part in value or () for t in flatten(part)]

    return flatten(module.eval()(input))


def attached() -> tuple[nn.Module, torch.optim.Optimizer]:
    """Return a layer and an optimizer that projects it."""
    model = sr.RNN(D, H, transition="ball")
    optimizer = torch.optim.Adam(sr.parameter_groups(model, lr=0.1, transition_lr=0.5))
    sr.attach_projection(optimizer, model)
    return model, optimizer


def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Take one step of training."""
    optimizer.zero_grad()
    model(example("rnn", "ball"))[0].square().sum().backward()
    optimizer.step()


def read(name: str, weights_only: bool) -> Any:
    """Return the contents of a stored file."""
    return torch.load(io.BytesIO(lzma.decompress((STORED / f"{name}.pt.xz").read_bytes())), weights_only=weights_only)


def write(folder: Path) -> None:
    """Store every kind: its modules whole, and their state dicts and outputs."""

    def put(name: str, value: Any) -> None:
        file = io.BytesIO()
        torch.save(value, file)
        (folder / f"{name}.pt.xz").write_bytes(lzma.compress(file.getvalue(), preset=9 | lzma.PRESET_EXTREME))

    torch.manual_seed(0)
    numbers: dict[str, Any] = {}
    for kind, makers in KINDS.items():
        modules = {name: make() for name, make in makers.items()}
        outputs = {name: results(module, example(kind, name)) for name, module in modules.items()}
        put(kind, modules)
        numbers[kind] = {name: {"state": modules[name].state_dict(), "output": outputs[name]} for name in modules}
    model, optimizer = attached()
    step(model, optimizer)
    before = copy.deepcopy({"model": model.state_dict(), "optimizer": optimizer.state_dict()})
    step(model, optimizer)
    put("numbers", {**numbers, "training": {**before, "next": model.state_dict()}})


if __name__ == "__main__":
    write(Path(sys.argv[1]))
