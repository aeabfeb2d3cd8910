"""steadyrnn: recurrent networks with guarantees."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import steadyrnn.constraints
    import steadyrnn.errors  # noqa: F401
    from steadyrnn.activations import Absolute as Absolute
    from steadyrnn.activations import Activation as Activation
    from steadyrnn.activations import AdaptiveTanh as AdaptiveTanh
    from steadyrnn.activations import Identity as Identity
    from steadyrnn.activations import LeakyReLU as LeakyReLU
    from steadyrnn.activations import ModReLU as ModReLU
    from steadyrnn.activations import RealModReLU as RealModReLU
    from steadyrnn.activations import ReLU as ReLU
    from steadyrnn.activations import Sigmoid as Sigmoid
    from steadyrnn.activations import Tanh as Tanh
    from steadyrnn.bounds.generalization import generalization_bound as generalization_bound
    from steadyrnn.certificates.certificate import Certificate as Certificate
    from steadyrnn.certificates.certify import certify as certify
    from steadyrnn.certificates.certify import recheck as recheck
    from steadyrnn.certificates.verification import Verification as Verification
    from steadyrnn.certificates.verify import verify as verify
    from steadyrnn.constraints.attach import constrain as constrain
    from steadyrnn.constraints.averaging import averaged as averaged
    from steadyrnn.constraints.ball import SpectralBall as SpectralBall
    from steadyrnn.constraints.base import Constraint as Constraint
    from steadyrnn.constraints.cayley import CayleyOrthogonal as CayleyOrthogonal
    from steadyrnn.constraints.cayley_spectral import CayleySpectral as CayleySpectral
    from steadyrnn.constraints.exponential import ExpOrthogonal as ExpOrthogonal
    from steadyrnn.constraints.free import Free as Free
    from steadyrnn.constraints.householder import HouseholderOrthogonal as HouseholderOrthogonal
    from steadyrnn.constraints.membership import project_ as project_
    from steadyrnn.constraints.optimizer import attach_projection as attach_projection
    from steadyrnn.constraints.optimizer import parameter_groups as parameter_groups
    from steadyrnn.constraints.optimizer import penalty as penalty
    from steadyrnn.constraints.polar import PolarOrthogonal as PolarOrthogonal
    from steadyrnn.constraints.slot import cached as cached
    from steadyrnn.constraints.spectral import Spectral as Spectral
    from steadyrnn.constraints.stable_lstm import StableLSTM as StableLSTM
    from steadyrnn.constraints.unitary import FullUnitary as FullUnitary
    from steadyrnn.constraints.unitary import RestrictedUnitary as RestrictedUnitary
    from steadyrnn.convert.basis import change_basis as change_basis
    from steadyrnn.convert.bptt import suggest_bptt as suggest_bptt
    from steadyrnn.convert.feedforward import to_feedforward as to_feedforward
    from steadyrnn.convert.torch_nn import to_torch as to_torch
    from steadyrnn.convert.unitary import minimal_unitary_size as minimal_unitary_size
    from steadyrnn.convert.unitary import to_unitary as to_unitary
    from steadyrnn.estimators.classifier import SequenceClassifier as SequenceClassifier
    from steadyrnn.estimators.forecaster import SequenceForecaster as SequenceForecaster
    from steadyrnn.estimators.regressor import SequenceRegressor as SequenceRegressor
    from steadyrnn.jobs.weights_file import save_weights as save_weights
    from steadyrnn.layers.cells import GRUCell as GRUCell
    from steadyrnn.layers.cells import LSTMCell as LSTMCell
    from steadyrnn.layers.cells import RNNCell as RNNCell
    from steadyrnn.layers.from_torch import from_torch as from_torch
    from steadyrnn.layers.gru import GRU as GRU
    from steadyrnn.layers.linear import Linear as Linear
    from steadyrnn.layers.lstm import LSTM as LSTM
    from steadyrnn.layers.rnn import RNN as RNN
    from steadyrnn.models.mlp import MLP as MLP
    from steadyrnn.models.resnet import ResNet as ResNet
    from steadyrnn.models.sequence import SequenceModel as SequenceModel
    from steadyrnn.parallel.module import to_parallel as to_parallel
    from steadyrnn.probes.gradient_flow import GradientFlow as GradientFlow
    from steadyrnn.probes.gradient_flow import gradient_flow as gradient_flow
    from steadyrnn.probes.spectrum import spectrum as spectrum
    from steadyrnn.tasks.series.load import load_series as load_series

__version__ = "0.1.0"

_PUBLIC: dict[str, str] = {
    "Absolute": "steadyrnn.activations",
    "Activation": "steadyrnn.activations",
    "AdaptiveTanh": "steadyrnn.activations",
    "CayleyOrthogonal": "steadyrnn.constraints.cayley",
    "CayleySpectral": "steadyrnn.constraints.cayley_spectral",
    "Certificate": "steadyrnn.certificates.certificate",
    "Constraint": "steadyrnn.constraints.base",
    "ExpOrthogonal": "steadyrnn.constraints.exponential",
    "Free": "steadyrnn.constraints.free",
    "FullUnitary": "steadyrnn.constraints.unitary",
    "GRU": "steadyrnn.layers.gru",
    "GRUCell": "steadyrnn.layers.cells",
    "GradientFlow": "steadyrnn.probes.gradient_flow",
    "HouseholderOrthogonal": "steadyrnn.constraints.householder",
    "Identity": "steadyrnn.activations",
    "LSTM": "steadyrnn.layers.lstm",
    "LSTMCell": "steadyrnn.layers.cells",
    "LeakyReLU": "steadyrnn.activations",
    "Linear": "steadyrnn.layers.linear",
    "MLP": "steadyrnn.models.mlp",
    "ModReLU": "steadyrnn.activations",
    "PolarOrthogonal": "steadyrnn.constraints.polar",
    "RNN": "steadyrnn.layers.rnn",
    "RNNCell": "steadyrnn.layers.cells",
    "ReLU": "steadyrnn.activations",
    "RealModReLU": "steadyrnn.activations",
    "ResNet": "steadyrnn.models.resnet",
    "RestrictedUnitary": "steadyrnn.constraints.unitary",
    "SequenceClassifier": "steadyrnn.estimators.classifier",
    "SequenceForecaster": "steadyrnn.estimators.forecaster",
    "SequenceModel": "steadyrnn.models.sequence",
    "SequenceRegressor": "steadyrnn.estimators.regressor",
    "Sigmoid": "steadyrnn.activations",
    "Spectral": "steadyrnn.constraints.spectral",
    "SpectralBall": "steadyrnn.constraints.ball",
    "StableLSTM": "steadyrnn.constraints.stable_lstm",
    "Tanh": "steadyrnn.activations",
    "Verification": "steadyrnn.certificates.verification",
    "attach_projection": "steadyrnn.constraints.optimizer",
    "averaged": "steadyrnn.constraints.averaging",
    "cached": "steadyrnn.constraints.slot",
    "certify": "steadyrnn.certificates.certify",
    "change_basis": "steadyrnn.convert.basis",
    "constrain": "steadyrnn.constraints.attach",
    "from_torch": "steadyrnn.layers.from_torch",
    "generalization_bound": "steadyrnn.bounds.generalization",
    "gradient_flow": "steadyrnn.probes.gradient_flow",
    "load_series": "steadyrnn.tasks.series.load",
    "minimal_unitary_size": "steadyrnn.convert.unitary",
    "parameter_groups": "steadyrnn.constraints.optimizer",
    "penalty": "steadyrnn.constraints.optimizer",
    "project_": "steadyrnn.constraints.membership",
    "recheck": "steadyrnn.certificates.certify",
    "save_weights": "steadyrnn.jobs.weights_file",
    "spectrum": "steadyrnn.probes.spectrum",
    "suggest_bptt": "steadyrnn.convert.bptt",
    "to_feedforward": "steadyrnn.convert.feedforward",
    "to_parallel": "steadyrnn.parallel.module",
    "to_torch": "steadyrnn.convert.torch_nn",
    "to_unitary": "steadyrnn.convert.unitary",
    "verify": "steadyrnn.certificates.verify",
}
"""Every public name and its module; nothing is imported before it is used."""

_PACKAGES = ("constraints", "errors")
"""Modules that are public as a whole."""

__all__ = [*_PUBLIC]


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return import_module(f"steadyrnn.{name}")
    if name in _PUBLIC:
        value = globals()[name] = getattr(import_module(_PUBLIC[name]), name)  # looked up once
        return value
    raise AttributeError(f"module 'steadyrnn' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_PACKAGES})
