"""Who is measured on a GPU, how long it takes and how far it is off: our layers, torch.nn's, and a loop in Python."""

import copy
import re
import statistics
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import leaky_relu, linear

import steadyrnn as sr
from steadyrnn.jobs.calibrate import seconds_per_call

INPUTS = 64
REFLECTORS = 16
ROWS = 16  # of a batch, spread over it, whose errors are measured
_LONG, _LONGEST = 0.03, 0.12  # seconds

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "tanh": torch.tanh,
    "leaky_relu": lambda x: leaky_relu(x, 0.01),
    "abs": torch.abs,
}


class Case(NamedTuple):
    """One row of the table."""

    kind: str
    n: int
    B: int
    dtype: str
    factored: bool = False

    @property
    def label(self) -> str:
        """Its name, for patterns and people."""
        return f"{self.kind}/n{self.n}/B{self.B}/{self.dtype}" + ("/factored" if self.factored else "")


class Peer(NamedTuple):
    """A module and the context it runs in."""

    module: nn.Module
    context: Callable[[], AbstractContextManager[Any]] = nullcontext

    def __call__(self, x: Tensor) -> Tensor:
        """Return the outputs, shape (T, B, n)."""
        with self.context():
            output: Tensor = self.module(x)[0]
        return output


class Loop(nn.Module):
    """The layer as anyone would write it: a loop over ``linear``, outputs stacked in the end."""

    def __init__(self, kind: str, layer: nn.Module) -> None:
        super().__init__()
        self.kind, self.layer = kind, layer

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return outputs, shape (T, B, n), and the last of them."""
        names = ("weight_ih_l0", "bias_ih_l0", "weight_hh_l0", "bias_hh_l0")
        w_x, b_x, w_h, b_h = (getattr(self.layer, name) for name in names)
        h = x.new_zeros(x.shape[1], w_h.shape[1])
        state, outputs = (h, h), []
        for x_t in x:
            state = self.step(linear(x_t, w_x, b_x), linear(state[0], w_h, b_h), state)
            outputs.append(state[0])
        return torch.stack(outputs), state[0]

    def step(self, given: Tensor, recurred: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """Return the next state."""
        h, c = state
        if self.kind == "lstm":
            i, f, g, o = (given + recurred).chunk(4, dim=1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            return o.sigmoid() * c.tanh(), c
        if self.kind == "gru":
            (r_x, z_x, n_x), (r_h, z_h, n_h) = given.chunk(3, dim=1), recurred.chunk(3, dim=1)
            new, z = (n_x + (r_x + r_h).sigmoid() * n_h).tanh(), (z_x + z_h).sigmoid()
            return (1 - z) * new + z * h, c
        return ACTIVATIONS[self.kind.removeprefix("rnn-")](given + recurred), c


def our_layer(case: Case, device: str) -> nn.Module:
    """Return our layer in float32, its recurrent weight orthogonal, gate by gate, or near it in factors."""
    torch.manual_seed(0)
    family, _, activation = case.kind.partition("-")
    options: dict[str, Any] = {"nonlinearity": activation} if activation else {}
    if case.factored:
        options["transition"] = sr.Spectral(reflectors=REFLECTORS, radius=0.01)
    layer: nn.Module = getattr(sr, {"rnn": "RNN", "gru": "GRU", "lstm": "LSTM"}[family])(
        INPUTS, case.n, device=device, **options
    )
    if not case.factored:
        weight = layer.get_parameter("weight_hh_l0")
        with torch.no_grad():
            weight.copy_(
                torch.linalg.qr(torch.randn(len(weight) // case.n, case.n, case.n, device=device)).Q.reshape(weight.shape)
            )
    return layer


def peers(case: Case, device: str) -> dict[str, Peer]:
    """Return ours by ``auto``, the reference loop of the package, and torch's own layer where it has one, else its ReLU's.

    A dense layer is held in the row's dtype; a factored one in float32 under autocast, as it is trained: in bfloat16 its
    reflectors would not be orthogonal.
    """
    ours = our_layer(case, device)
    dtype = getattr(torch, case.dtype)
    if not case.factored:
        ours = ours.to(dtype)
    cast = case.factored and case.dtype != "float32"
    context = (lambda: torch.autocast(torch.device(device).type, dtype=dtype)) if cast else nullcontext
    found = {"ours": Peer(ours, context), "reference": Peer(with_engine(ours, "reference"), context)}
    family, _, activation = case.kind.partition("-")
    has = activation in ("", "relu", "tanh")
    options = {"nonlinearity": activation if has else "relu"} if activation else {}
    theirs = getattr(nn, {"rnn": "RNN", "gru": "GRU", "lstm": "LSTM"}[family])(INPUTS, case.n, **options).to(device, dtype)
    if not case.factored:
        theirs.load_state_dict(ours.state_dict())
    found["torch" if has else "torch-relu"] = Peer(theirs)
    return found


def with_engine(layer: nn.Module, engine: str) -> nn.Module:
    """Return a copy of a layer that runs on a named engine."""
    made: Any = copy.deepcopy(layer)
    made.engine = engine
    return made


def engine_of(layer: Any) -> str:
    """Return the engine that a layer ran on last."""
    found = re.search(r"ran on engine (\w+):", layer.explain())
    return found[1] if found else ""


@torch.no_grad()
def truth_of(reference: Peer, x: Tensor) -> tuple[Tensor, Tensor, float]:
    """Return spread rows of the batch, their outputs in float64, and the error of the reference loop in the row's dtype."""
    rows = torch.linspace(0, x.shape[1] - 1, min(ROWS, x.shape[1]), device=x.device).round().long()
    some = x[:, rows]
    truth = copy.deepcopy(reference.module).double()(some.double())[0]
    return rows, truth, distance(reference(some), truth)


@torch.no_grad()
def error_of(peer: Peer, x: Tensor, rows: Tensor, truth: Tensor) -> float:
    """Return how far a peer's outputs are from the truth, run on the whole batch."""
    return distance(peer(x)[:, rows], truth)


def distance(output: Tensor, truth: Tensor) -> float:
    """Return the Frobenius distance to the truth relative to it."""
    return float((output.double() - truth).norm() / truth.norm())


def forward(peer: Peer, x: Tensor, cotangent: Tensor) -> None:
    """Run without gradients."""
    with torch.no_grad():
        peer(x)


def training(peer: Peer, x: Tensor, cotangent: Tensor) -> None:
    """Run forward and backward, to the weights."""
    peer.module.zero_grad(set_to_none=True)
    peer(x).backward(cotangent)


def microseconds(
    peers: dict[str, Peer], x: Tensor, cotangent: Tensor, repeats: int, calls: int, enough: float = 0.0
) -> dict[str, dict[str, float]]:
    """Return the median time of a step of each peer, forward alone and with backward, of calls that follow one another.

    So they do in training, and there the host's time counts where it is longer than the device's, and only there. The
    time of a call that finds the device idle, all of the host's time included, is `forward_alone` and `training_alone`.
    Peers take turns, so that a host that is slow for a while is so for all of them, as often as the slowest one's calls
    in a row last about ``enough`` seconds, but at most 25 times. Where a peer's first call is long there are two turns
    only, and where it is very long no calls in a row: the host's time is nothing beside it.
    """
    found: dict[str, dict[str, float]] = {name: {} for name in peers}
    for mode, call in (("forward", forward), ("training", training)):
        runs = {name: partial(call, peer, x, cotangent) for name, peer in peers.items()}
        for run in runs.values():
            run()
        alone = {name: [seconds_per_call(run, 1, x.device)] for name, run in runs.items()}
        longest = max(times[0] for times in alone.values())
        number = 2 if longest >= _LONG else max(repeats, min(25, round(enough / (calls * len(runs) * longest))))
        rows: dict[str, list[float]] = {name: [] for name in peers}
        for _ in range(number):
            for name, run in runs.items():
                alone[name].append(seconds_per_call(run, 1, x.device))
                rows[name] += [] if calls == 1 or longest > _LONGEST else [seconds_per_call(run, calls, x.device)]
        for name in peers:
            for label, times in ((mode, rows[name] or alone[name]), (f"{mode}_alone", alone[name])):
                found[name][label] = 1e6 * statistics.median(times) / len(x)
    return found
