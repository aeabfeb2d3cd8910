"""Every system of the papers by name: what it is, where it comes from, which options it has; free of torch."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["CATALOGUE", "System"]

_ZHANG = "Zhang, Lei, Dhillon, ICML 2018"
_LIN = "Lin, Wang"
_EMAMI = "Emami et al., NeurIPS 2019"
_MILLER = "Miller, Hardt, ICLR 2019"

_ANY: dict[str, Any] = {"width": 128}
_TIME: dict[str, Any] = {
    **_ANY,
    **{"layers": 1, "learn_initial_state": False, "skip": False, "dropout": 0.0, "dropout_logits": 0.0},
    **{"embedding": None, "tied": False},
}
_SPECTRAL: dict[str, Any] = {"reflectors": 16, "center": 1.0, "radius": 0.1, "sigma": "sigmoid"}
_DEEP: dict[str, Any] = {**_ANY, "nonlinearity": "leaky_relu", "slope": 0.1, "dropout": 0.0}


def _elman(nonlinearity: str, **options: Any) -> dict[str, Any]:
    return {**_TIME, "nonlinearity": nonlinearity, "slope": 0.1, **options}


@dataclass(frozen=True)
class System:
    """A kind of network.

    Args:
        name: As ``--model`` takes it.
        description: One line.
        paper: Where it was proposed, or where this form of it was used.
        options: The options it has, each with its value where a user gives none.
        reads: ``"time"`` for sequences, ``"row"`` for vectors.
        wraps: Whether it is made of another system, whose options it has too.
    """

    name: str
    description: str
    paper: str
    options: Mapping[str, Any] = field(default_factory=dict)
    reads: str = "time"
    wraps: bool = False


_SYSTEMS = (
    System("rnn", "Elman network, unconstrained", "torch.nn.RNN", _elman("tanh")),
    System(
        "irnn", "rectified, recurrent weight that starts as the identity or orthogonal",
        "Le, Jaitly, Hinton, 2015", _elman("relu", init="identity", init_std=None),
    ),
    System("lstm", "long short-term memory, unconstrained", "torch.nn.LSTM", _TIME),
    System("gru", "gated recurrent unit, unconstrained", "torch.nn.GRU", _TIME),
    System(
        "ornn", "orthogonal weight, a product of Householder reflections",
        "Mhammedi et al., ICML 2017", _elman("leaky_relu", reflectors=16),
    ),
    System(
        "spectral", "singular values in an interval, reflections on both sides (Spectral-RNN)",
        _ZHANG, _elman("leaky_relu", **_SPECTRAL),
    ),
    System(
        "spectral-lstm", "LSTM whose candidate gate has its singular values in an interval",
        _ZHANG, {**_TIME, **_SPECTRAL},
    ),
    System(
        "urnn", "orthogonal weight, the exponential of a skew matrix",
        _LIN, _elman("relu", gradient="exact"),
    ),
    System(
        "ugru", "GRU whose candidate gate is orthogonal, the exponential of a skew matrix",
        _LIN, {**_TIME, "gradient": "exact"},
    ),
    System(
        "unitary", "complex unitary weight of restricted capacity, modReLU",
        "Arjovsky, Shah, Bengio, ICML 2016", _elman("modrelu"),
    ),
    System(
        "unitary-full", "any complex unitary weight, modReLU",
        "Wisdom et al., NeurIPS 2016", _elman("modrelu"),
    ),
    System(
        "factorized", "singular values in an interval, Cayley transforms on both sides",
        "Vorontsov et al., ICML 2017", _elman("leaky_relu", center=1.0, radius=0.1, gradient="exact"),
    ),
    System(
        "contractive", "rectified, weight kept in a spectral ball: a contraction",
        _EMAMI, _elman("relu", bound=0.99),
    ),
    System("polar", "rectified, weight made orthogonal by projection after each step", _EMAMI, _elman("relu")),
    System("lds", "linear dynamical system, weight kept in a spectral ball", _MILLER, _elman("identity", bound=0.99)),
    System("stable-rnn", "tanh network, weight kept in a spectral ball", _MILLER, _elman("tanh", bound=0.99)),
    System(
        "stable-lstm", "LSTM whose weights are kept where it contracts",
        _MILLER, {**_TIME, "forget_bound": 0.64, "input_bound": 1.0, "margin": 0.01},
    ),
    System(
        "truncated", "any of these, each output from the last k inputs alone",
        _MILLER, {"base": "stable-rnn", "context": 35}, wraps=True,
    ),
    System("mlp", "perceptron of constant width", _ZHANG, {**_DEEP, "depth": 30}, "row"),
    System("resnet", "residual network of blocks of two layers", _ZHANG, {**_DEEP, "blocks": 15}, "row"),
    System(
        "spectral-mlp", "perceptron, singular values of the square weights in an interval",
        _ZHANG, {**_DEEP, **_SPECTRAL, "depth": 30}, "row",
    ),
    System(
        "spectral-resnet", "residual network, singular values of the square weights in an interval",
        _ZHANG, {**_DEEP, **_SPECTRAL, "blocks": 15}, "row",
    ),
)  # fmt: skip

CATALOGUE: dict[str, System] = {system.name: system for system in _SYSTEMS}
"""Every system by name."""
