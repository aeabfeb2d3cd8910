"""Every system of the papers by name, one record per system; free of torch, which is imported when a model is built."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["FORMER_OPTIONS", "SYSTEMS", "Blueprint", "System"]

_ZHANG = "Zhang, Lei, Dhillon, ICML 2018"
_LIN = "Lin, Wang"
_EMAMI = "Emami et al., NeurIPS 2019"
_MILLER = "Miller, Hardt, ICLR 2019"

_ANY: dict[str, Any] = {"width": 128}
_TIME: dict[str, Any] = {
    **_ANY,
    **{"layers": 1, "learn_initial_state": False, "skip": False, "dropout": 0.0, "dropout_logits": 0.0},
    **{"dropout_input": None, "dropout_layers": None, "dropout_output": None},
    **{"embedding": None, "tied": False, "readout": None},
    **{"init_std": None, "output_std": None, "init_uniform": None, "input_scale": None, "frozen": False},
}
_OF_INPUT_WEIGHTS = ("init_std", "input_scale", "frozen")
_JOINT_TIME: dict[str, Any] = {name: value for name, value in _TIME.items() if name not in _OF_INPUT_WEIGHTS}
"""Of a system whose set holds the input weights too: it chooses their start, and its projection moves them."""
_SPECTRAL: dict[str, Any] = {"reflectors": 16, "center": 1.0, "radius": 0.1, "sigma": "sigmoid"}
_BELOW_ONE: dict[str, Any] = {"reflectors": 32, "center": 0.97, "radius": 0.025}
_INIT: dict[str, Any] = {"init": None}
_FREE_INIT: dict[str, Any] = {**_INIT, "recurrent_std": None}
_GRU_TIME: dict[str, Any] = {**_TIME, "reset_after": True, "gate_bias": None}
_LSTM_TIME: dict[str, Any] = {**_TIME, "gate_bias": None, "forget_bias": None}
_DEEP: dict[str, Any] = {**_ANY, "nonlinearity": "leaky_relu", "slope": 0.1, "dropout": 0.0}


_OF_ACTIVATIONS: dict[str, Any] = {"slope": 0.1, "saturation_basis": "full", "saturation_start": 0.05}


def _elman(nonlinearity: str, **options: Any) -> dict[str, Any]:
    return {**_TIME, "nonlinearity": nonlinearity, **_OF_ACTIVATIONS, **options}


@dataclass(frozen=True)
class Blueprint:
    """What a system is built from; both paths are ``package.module:Class``.

    Args:
        network: The layer of a system of sequences, the whole network of one of rows.
        constraint: The set of its recurrent or square weights; of a gated layer, of its candidate gate
            or of the gates that the option ``gates`` names.
        arguments: Options of the system that the constraint is made from, by name.
        starts: What the option ``init`` can be; empty where a system has no such option.
        gates: The gates that the option ``gates`` can name, one letter each; empty where a system has no such option.
    """

    network: str
    constraint: str = "steadyrnn.constraints.free:Free"
    arguments: tuple[str, ...] = ()
    gates: str = ""
    starts: tuple[str, ...] = ()


@dataclass(frozen=True)
class System:
    """All that is said about a kind of network in one place: help, docs, completion, tests and the builder read it.

    Args:
        name: As ``--model`` takes it.
        description: One line.
        paper: Where it was proposed, or where this form of it was used.
        options: The options it has, each with its value where a user gives none.
        blueprint: What it is built from; None where it wraps another system.
        reads: ``"time"`` for sequences, ``"row"`` for vectors.
    """

    name: str
    description: str
    paper: str
    options: Mapping[str, Any]
    blueprint: Blueprint | None = None
    reads: str = "time"

    @property
    def wraps(self) -> bool:
        """Whether it is made of another system, whose options it has too."""
        return self.blueprint is None


_RNN, _LSTM, _GRU = (f"steadyrnn.layers.{path}" for path in ("rnn:RNN", "lstm:LSTM", "gru:GRU"))
_MLP, _RESNET = "steadyrnn.models.mlp:MLP", "steadyrnn.models.resnet:ResNet"
_SETS = "steadyrnn.constraints"
_IN_AN_INTERVAL = f"{_SETS}.spectral:Spectral", tuple(_SPECTRAL)
_EXPONENTIAL = f"{_SETS}.exponential:ExpOrthogonal", ("gradient",)
_ORTHOGONAL = ("orthogonal", "identity")
_ROTATIONS = (*_ORTHOGONAL, "cayley", "henaff")
_ANY_START = (*_ORTHOGONAL, "gaussian")
_IN_A_BALL = f"{_SETS}.ball:SpectralBall", ("bound",)

_RECORDS = (
    System(
        "rnn", "Elman network, unconstrained", "torch.nn.RNN", _elman("tanh", **_FREE_INIT),
        Blueprint(_RNN, starts=_ANY_START),
    ),
    System(
        "irnn", "rectified, recurrent weight that starts as the identity or orthogonal",
        "Le, Jaitly, Hinton, 2015", _elman("relu", init="identity"),
        Blueprint(_RNN, arguments=("init",), starts=("identity", "orthogonal", "torch")),
    ),
    System(
        "lstm", "long short-term memory, unconstrained", "torch.nn.LSTM", {**_LSTM_TIME, **_FREE_INIT},
        Blueprint(_LSTM, starts=_ANY_START),
    ),
    System(
        "gru", "gated recurrent unit, unconstrained", "torch.nn.GRU", {**_GRU_TIME, **_FREE_INIT},
        Blueprint(_GRU, starts=_ANY_START),
    ),
    System(
        "ornn", "orthogonal weight, a product of Householder reflections",
        "Mhammedi et al., ICML 2017", _elman("leaky_relu", reflectors=16),
        Blueprint(_RNN, f"{_SETS}.householder:HouseholderOrthogonal", ("reflectors",)),
    ),
    System(
        "spectral", "singular values in an interval, reflections on both sides (Spectral-RNN)",
        _ZHANG, _elman("leaky_relu", **_SPECTRAL),
        Blueprint(_RNN, *_IN_AN_INTERVAL),
    ),
    System(
        "stable-spectral", "singular values in an interval below 1: a contraction that forgets slowly",
        _ZHANG, _elman("abs", **{**_SPECTRAL, **_BELOW_ONE}),
        Blueprint(_RNN, *_IN_AN_INTERVAL),
    ),
    System(
        "spectral-lstm", "LSTM whose candidate gate has its singular values in an interval",
        _ZHANG, {**_LSTM_TIME, **_SPECTRAL, "gates": "g"},
        Blueprint(_LSTM, *_IN_AN_INTERVAL, gates="ifgo"),
    ),
    System(
        "spectral-gru", "GRU whose candidate gate has its singular values in an interval",
        _ZHANG, {**_GRU_TIME, **_SPECTRAL, "gates": "n"},
        Blueprint(_GRU, *_IN_AN_INTERVAL, gates="rzn"),
    ),
    System(
        "urnn", "orthogonal weight, the exponential of a skew matrix",
        _LIN, _elman("relu", gradient="exact", **_INIT),
        Blueprint(_RNN, *_EXPONENTIAL, starts=_ROTATIONS),
    ),
    System(
        "cayley", "orthogonal weight, the Cayley transform of a skew matrix",
        "after Helfrich, Willmott, Ye, ICML 2018", _elman("modrelu_real", **_INIT),
        Blueprint(_RNN, f"{_SETS}.cayley:CayleyOrthogonal", starts=("identity", "cayley", "henaff")),
    ),
    System(
        "ugru", "GRU whose candidate gate is orthogonal, the exponential of a skew matrix",
        _LIN, {**_GRU_TIME, "gradient": "exact", **_INIT},
        Blueprint(_GRU, *_EXPONENTIAL, starts=_ROTATIONS),
    ),
    System(
        "unitary", "complex unitary weight of restricted capacity, modReLU",
        "Arjovsky, Shah, Bengio, ICML 2016", _elman("modrelu"),
        Blueprint(_RNN, f"{_SETS}.unitary:RestrictedUnitary"),
    ),
    System(
        "unitary-full", "any complex unitary weight, modReLU",
        "Wisdom et al., NeurIPS 2016", _elman("modrelu"),
        Blueprint(_RNN, f"{_SETS}.unitary:FullUnitary"),
    ),
    System(
        "factorized", "singular values in an interval, Cayley transforms on both sides",
        "Vorontsov et al., ICML 2017", _elman("leaky_relu", center=1.0, radius=0.1, gradient="exact", **_INIT),
        Blueprint(
            _RNN, f"{_SETS}.cayley_spectral:CayleySpectral", ("center", "radius", "gradient"), starts=_ORTHOGONAL,
        ),
    ),
    System(
        "contractive", "rectified, weight kept in a spectral ball: a contraction",
        _EMAMI, _elman("relu", bound=0.99, **_FREE_INIT),
        Blueprint(_RNN, *_IN_A_BALL, starts=_ANY_START),
    ),
    System(
        "polar", "rectified, weight made orthogonal by projection after each step", _EMAMI, _elman("relu", **_INIT),
        Blueprint(_RNN, f"{_SETS}.polar:PolarOrthogonal", starts=_ORTHOGONAL),
    ),
    System(
        "lds", "linear dynamical system, weight kept in a spectral ball", _MILLER, _elman("identity", bound=0.99, **_FREE_INIT),
        Blueprint(_RNN, *_IN_A_BALL, starts=_ANY_START),
    ),
    System(
        "stable-rnn", "tanh network, weight kept in a spectral ball", _MILLER, _elman("tanh", bound=0.99, **_FREE_INIT),
        Blueprint(_RNN, *_IN_A_BALL, starts=_ANY_START),
    ),
    System(
        "stable-lstm", "LSTM whose weights are kept where it contracts",
        _MILLER, {**_JOINT_TIME, "forget_bound": 0.64, "input_bound": 1.0, "margin": 0.01},
        Blueprint(_LSTM, f"{_SETS}.stable_lstm:StableLSTM", ("forget_bound", "input_bound", "margin")),
    ),
    System(
        "truncated", "any of these, each output from the last k inputs alone", _MILLER, {"base": "stable-rnn", "context": 35},
    ),
    System("mlp", "perceptron of constant width", _ZHANG, {**_DEEP, "depth": 30}, Blueprint(_MLP), "row"),
    System("resnet", "residual network of blocks of two layers", _ZHANG, {**_DEEP, "blocks": 15}, Blueprint(_RESNET), "row"),
    System(
        "spectral-mlp", "perceptron, singular values of the square weights in an interval",
        _ZHANG, {**_DEEP, **_SPECTRAL, "depth": 30},
        Blueprint(_MLP, *_IN_AN_INTERVAL), "row",
    ),
    System(
        "spectral-resnet", "residual network, singular values of the square weights in an interval around 0",
        _ZHANG, {**_DEEP, **_SPECTRAL, "center": 0.0, "blocks": 15},
        Blueprint(_RESNET, *_IN_AN_INTERVAL), "row",
    ),
)  # fmt: skip

SYSTEMS: dict[str, System] = {system.name: system for system in _RECORDS}
"""Every system by name. A new one is one record here, and a file where its network or constraint is new."""

FORMER_OPTIONS: dict[str, dict[str, Any]] = {"spectral-resnet": {"center": 1.0}}
"""Options that had another value in an earlier release: a stored configuration without them was made with these."""
