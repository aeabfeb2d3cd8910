"""What to do where nothing contracts, by cell."""

from dataclasses import replace

from steadyrnn.cells.gru import GRUStep
from steadyrnn.cells.lstm import LSTMStep
from steadyrnn.cells.rnn import RNNStep

from .gated import gated_tiers
from .layer import LayerCertificate

__all__ = ["contracting_scale", "way_out"]

_HALVINGS = 60


def way_out(layer: LayerCertificate) -> str:
    """Return in a sentence what makes a contraction of a layer that is not proven to be one.

    Example:
        >>> way_out(sr.certify(sr.LSTM(2, 8)).layers[0])
        'Give `input_bound`: the gates of an LSTM or GRU are bounded only if the inputs are.'
    """
    cell = layer.weights.cell
    if isinstance(cell, RNNStep):
        return elman_way_out(layer)
    if layer.input_bound is None:
        return "Give `input_bound`: the gates of an LSTM or GRU are bounded only if the inputs are."
    if isinstance(cell, LSTMStep):
        return (
            f"An LSTM contracts with `transition=sr.StableLSTM(input_bound={layer.input_bound:g})`, in training, or of given "
            "weights by `sr.from_torch(..., project=True)`, which may take most of their recurrence away."
        )
    scale = contracting_scale(layer)
    if scale is None:
        return "No smaller recurrent weight helps: the biases and inputs alone keep the update gate at 1. Make those smaller."
    return (
        f"A GRU contracts with smaller recurrent weights: `weight_hh_{layer.name}` times {scale:g} is proven to. "
        "A constraint on singular values, as `SpectralBall`, does not bound its gates."
    )


def elman_way_out(layer: LayerCertificate) -> str:
    """Return what makes a contraction of an Elman layer."""
    gamma = layer.weights.cell.activation.steepness[1] if isinstance(layer.weights.cell, RNNStep) else 1.0
    asked = [tier.tier for tier in layer.left_out if tier.full]
    first = f"Not tried yet: {', '.join(asked)} (`effort='full'`). " if asked else ""
    if not layer.tiers[0].contraction.rate < float("inf"):
        return f"{first}modReLU with a positive shift jumps: keep its `activation` at or below 0."
    return (
        f"{first}An RNN contracts with `transition=sr.SpectralBall(bound)`, bound < {1 / gamma:g}, in training, or of given "
        "weights by `sr.from_torch(..., project=True)`."
    )


def contracting_scale(layer: LayerCertificate) -> float | None:
    """Return a power of two that makes a contraction of a GRU layer when its recurrent weight is multiplied by it.

    With no recurrent weight the rate is the update gate's largest value, which is below 1 for bounded inputs. None where
    that is not below 1 in float64.
    """
    if not isinstance(layer.weights.cell, GRUStep):
        return None
    for halvings in range(1, _HALVINGS):
        scale = 2.0**-halvings
        smaller = replace(layer.weights, weight_hh=scale * layer.weights.weight_hh)
        if gated_tiers(smaller, layer.input_bound).tiers[0].contraction.stable:
            return scale
    return None
