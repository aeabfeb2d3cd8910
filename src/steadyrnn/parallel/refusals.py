"""What `to_parallel` refuses, and the sentences that say why."""

import math
from typing import NoReturn

import torch
from torch import Tensor, nn

from steadyrnn.certificates.layer import LayerCertificate
from steadyrnn.certificates.theories import THEORIES
from steadyrnn.errors import ArgumentError, ConversionError, NotFiniteError
from steadyrnn.layers.base import RecurrentLayer
from steadyrnn.layers.saturation import refuse_saturation
from steadyrnn.models.sequence import SequenceModel

__all__ = ["refuse_input", "refuse_module", "refuse_rate", "refuse_readout"]


def refuse_module(rnn: nn.Module) -> NoReturn:
    """Refuse what is no layer of ours, or none that a theorem covers, or one that runs both ways."""
    if not isinstance(rnn, RecurrentLayer):
        raise ConversionError(
            f"`rnn` must be an RNN, GRU or LSTM, of steadyrnn or of torch.nn, but is {type(rnn).__qualname__}. "
            "Convert the recurrent layer inside a larger module by itself."
        )
    if rnn.cell.record.theorem is None:
        refuse_saturation(rnn, ConversionError, "it cannot be run in windows of time")
        raise ConversionError(f"`rnn` has the cell {rnn.cell.key!r}, and no theorem says that it contracts.")
    raise ConversionError("`rnn` is bidirectional, and windows are proven one way only: convert one layer per direction.")


def refuse_readout(model: nn.Module) -> None:
    """Refuse a model that reads more of the series than a rank has."""
    if isinstance(model, SequenceModel) and (model.reads == "each" or (model.reads == "last" and not model.skip)):
        return
    raise ConversionError(
        "`rnn` is a model that reads more than a rank has of the series: with `group` a `SequenceModel` has the readout "
        "'each', or 'last' without `skip`. Convert its layer, and read its outputs in a way of your own."
    )


def refuse_rate(certificate: LayerCertificate) -> NoReturn:
    """Refuse a layer of which no contraction is proven."""
    best, advice = certificate.best, THEORIES[certificate.weights.cell.record.theorem].advise(certificate)
    raise ConversionError(
        f"no certificate found: lambda = {best.rate:.6g} >= 1 for layer {certificate.name} in the {best.norm.name} "
        f"({best.theorem}). Only what contracts can be run in windows. {advice}"
    )


def refuse_input(data: Tensor, covered: float, bound: float | None) -> None:
    """Refuse an input whose largest vector is not proven to be within the bound, unless its exact norm is.

    Args:
        data: The input.
        covered: What is proven for, a little above the bound.
        bound: What was asked for.
    """
    largest = float(torch.linalg.vector_norm(data.detach(), dim=-1, dtype=torch.float64).max())
    if not math.isfinite(largest):
        raise NotFiniteError("`input` holds NaN or infinity, of which nothing can be proven.")
    if largest > covered:
        raise ArgumentError(
            f"`input` must have a 2-norm of at most {bound:g} (`input_bound`) at every step, but reaches "
            f"{largest:.6g}. Scale it, or convert the layer again with a larger bound."
        )
