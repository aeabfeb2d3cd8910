"""A module in, a certificate out."""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from steadyrnn.bounds.gru import GRU_ENTRYWISE
from steadyrnn.bounds.lstm import LSTM_ENTRYWISE
from steadyrnn.bounds.norms import spectral_norm_bound
from steadyrnn.bounds.quadratic import QUADRATIC_NORM
from steadyrnn.bounds.scaling import DIAGONAL_SCALING, SPECTRAL_NORM
from steadyrnn.checks import check_finite
from steadyrnn.constraints.membership import check_inside
from steadyrnn.constraints.slot import cached
from steadyrnn.errors import ArgumentError, ArgumentTypeError, CertificateError
from steadyrnn.models.sequence import SequenceModel

from .base import Claim
from .bidirectional import BidirectionalCertificate
from .certificate import Certificate
from .elman import JUMP, ElmanTheory
from .layer import LayerCertificate, Theory, Weights, dropout_scale, is_recurrent, read_weights
from .on_inputs import DataCertificate, certify_on
from .theories import THEORIES

__all__ = ["AnyCertificate", "certify", "certify_layer", "read_layers", "recheck", "refresh"]

EFFORTS = ("auto", "full", "fast")
"""How far the search for a contraction goes."""
AnyCertificate = Certificate | BidirectionalCertificate | DataCertificate
"""What :func:`certify` returns; all three are a :class:`~steadyrnn.certificates.base.BaseCertificate`."""
_THEOREMS = {
    "5.1": SPECTRAL_NORM,
    "5.2": DIAGONAL_SCALING,
    "5.3": QUADRATIC_NORM,
    "7.1": LSTM_ENTRYWISE,
    "7.1 (iii)": LSTM_ENTRYWISE,
    "7.2": GRU_ENTRYWISE,
    "4.1, 4.2": ElmanTheory.states_theorem,
    "3.9: modReLU with a positive shift is not Lipschitz": JUMP,
}
"""What theorems are called now, by the number that follows ``MATH`` in certificates of version 0.1."""


def certify(
    module: nn.Module, input_bound: float | None = None, inputs: Tensor | None = None, *, effort: str = "auto"
) -> AnyCertificate:
    r"""Say with proof how a recurrent network behaves: how fast it forgets, how large its states get, what gradients do.

    Tiers, cheapest first: the spectral norm, a diagonal scaling, a quadratic norm; for an LSTM or GRU the entrywise bound on
    the box its states stay in. Every number is computed in float64 on the weights as a forward uses them, and rounded to
    the safe side. See Note [mathematics], sections 5 and 7.

    Args:
        module: An RNN, GRU, LSTM or cell of ours or of ``torch.nn``, a ``SequenceModel``, or a module with exactly one
            of these inside.
        input_bound: Bound on the 2-norm of every :math:`x_t`; LSTM and GRU need one. Of a model with tokens it is taken
            from the embedding.
        inputs: A batch as the layer takes it. The certificate is then about these inputs only, and uses the slopes that
            are met on them.
        effort: ``"auto"``: the diagonal and the quadratic tier up to a width of 512, beyond only where nothing cheaper
            contracts (the quadratic one up to 1024); ``"full"``: every tier at every width, and the longest search for a
            quadratic norm; ``"fast"``: no further than the first that contracts. The certificate's ``left_out`` says what
            was not tried, and why.

    Returns:
        The certificate; of a bidirectional layer, one for each direction in one.

    Raises:
        CertificateError: No theorem covers this module.
        ConstraintError: A constrained weight is outside its set (:func:`steadyrnn.project_` puts it back).
        NotFiniteError: A weight is NaN or infinite.

    Example:
        >>> rnn = sr.RNN(2, 8, transition=sr.SpectralBall(0.5))
        >>> certificate = sr.certify(rnn, input_bound=1.0)
        >>> certificate.stable, certificate.horizon(1e-3) < 15
        (True, True)

    References:
        Miller, Hardt. When Recurrent Models Don't Need To Be Recurrent. https://arxiv.org/abs/1805.10369
    """
    check_effort(effort)
    if not isinstance(module, nn.Module):
        raise ArgumentTypeError(f"`module` must be a module, but is of type {type(module).__name__}.")
    input_bound = check_bound(input_bound)
    with cached():  # a weight is looked at twice: is it in its set, and what is proven of it
        check_inside(module, "cannot be certified")
        if isinstance(module, SequenceModel):
            return certify_model(module, input_bound, inputs, effort)
        layer = module if is_recurrent(module) else only_layer(module)
        if inputs is not None:
            return certify_on(certify_recurrent(layer, cover_rounding(input_bound), effort), layer, inputs)
        return certify_recurrent(layer, input_bound, effort)


def check_effort(effort: str) -> None:
    """Refuse an effort that is none."""
    if effort not in EFFORTS:
        raise ArgumentError(f"`effort` must be 'auto', 'full' or 'fast', but is {effort!r}.")


def cover_rounding(input_bound: float | None) -> float | None:
    """Return a bound that covers vectors scaled to the user's and rounded, for inputs that will be held against it."""
    return None if input_bound is None else input_bound * (1 + 1e-6)


def check_bound(input_bound: Any) -> float | None:
    """Return a bound (a number, or what holds one, as numpy's or a tensor of one entry) if it is from 0 on."""
    if input_bound is None:
        return None
    one = not isinstance(input_bound, Tensor) or input_bound.numel() == 1
    if isinstance(input_bound, bool | str) or not hasattr(input_bound, "__float__") or not one:
        raise ArgumentTypeError(f"`input_bound` must be a number or None, but is of type {type(input_bound).__name__}.")
    bound = float(input_bound)
    if not (bound >= 0 and math.isfinite(bound)):
        raise ArgumentError(f"`input_bound` must be finite and not negative, but is {bound}.")
    return bound


def only_layer(module: nn.Module) -> nn.Module:
    """Return the one recurrent layer inside a module; its own input is what bounds are about."""
    found: dict[str, nn.Module] = {name: child for name, child in module.named_modules() if is_recurrent(child)}
    if len(found) != 1:
        names = ", ".join(found) or "none"
        raise ArgumentTypeError(
            f"`module` must be a recurrent layer or hold exactly one, but {type(module).__name__} holds {names}. "
            "Certify each by itself, with the bound on its own inputs."
        )
    return next(iter(found.values()))


def certify_model(model: SequenceModel, input_bound: float | None, inputs: Tensor | None, effort: str) -> AnyCertificate:
    """Certify the layer of a model: tokens are bounded by the embedding, and the readout's gain is noted."""
    if model.embedding is not None:
        table = check_finite("embedding", model.embedding.weight.detach()).double()
        rate = model.dropout_embedding.p if model.training else 0.0
        longest = float(torch.linalg.vector_norm(table, dim=1).max()) * (1 + 1e-12) / (1 - rate if rate < 1 else 1.0)
        if input_bound is not None and input_bound < longest:
            raise ArgumentError(f"`input_bound` is {input_bound:g}, but the embedding holds a vector of norm {longest:.6g}.")
        input_bound = longest
        inputs = None if inputs is None else model.embedding(inputs)
    gain = spectral_norm_bound(model.readout.weight.detach())
    bound = input_bound if inputs is None else cover_rounding(input_bound)
    found = replace(certify_recurrent(model.rnn, bound, effort), module=type(model).__name__, readout_gain=gain)
    return found if inputs is None else certify_on(found, model.rnn, inputs)


def certify_recurrent(layer: nn.Module, input_bound: float | None, effort: str) -> Certificate | BidirectionalCertificate:
    """Return the certificate of a layer for every admissible input."""
    weights = read_weights(layer)
    name, digest, scale = type(layer).__name__, digest_of(weights), dropout_scale(layer)
    if len(weights[0]) == 1:
        stack = [ways[0] for ways in weights]
        layers = tuple(theory_of(stack[0]).certify_stack(stack, input_bound, effort, scale))
        return Certificate(name, layers, input_bound, digest, dropout_scale=scale, effort=effort)
    if len(weights) > 1:
        raise CertificateError(
            "No theorem bounds a stack of bidirectional layers: its windows multiply (docs/notes/mathematics.md, 5.4). "
            "Certify its layers one by one."
        )
    ways = tuple(
        Certificate(name, (certify_layer(way, input_bound, None, effort),), input_bound, digest, effort=effort)
        for way in weights[0]
    )
    return BidirectionalCertificate(name, ways, input_bound, digest)


def certify_layer(weights: Weights, input_bound: float | None, entry_bound: float | None, effort: str) -> LayerCertificate:
    """Return everything proven of one layer.

    Args:
        weights: The layer's.
        input_bound: Bound on the 2-norm of every x_t, or None.
        entry_bound: Bound on every entry of x_t; None is ``input_bound``.
        effort: ``"auto"``, ``"full"`` for every tier, or ``"fast"`` for the cheapest one that contracts.

    Raises:
        CertificateError: No theorem is about this kind of step.
    """
    return theory_of(weights).certify(weights, input_bound, input_bound if entry_bound is None else entry_bound, effort)


def theory_of(weights: Weights) -> Theory:
    """Return what is proven of all steps of a layer's kind."""
    theory = THEORIES.get(weights.cell.record.theorem)
    if theory is None:
        raise CertificateError(
            f"No theorem covers the cell {weights.cell.record.key!r}: nothing is proven of it. Theorems are about the steps of "
            "RNN, GRU and LSTM; a cell that makes one of them says so in its record (`CellRecord.theorem`)."
        )
    return theory


def read_layers(module: nn.Module, input_bound: float | None = None, effort: str = "auto") -> list[LayerCertificate]:
    """Return what is proven of each layer of a stack in one direction; the input of each is the output below.

    Example:
        >>> rnn = sr.RNN(2, 3, num_layers=2, transition=sr.SpectralBall(0.5))
        >>> [layer.best.stable for layer in read_layers(rnn, input_bound=1.0)]
        [True, True]
    """
    weights = read_weights(module)
    if len(weights[0]) > 1:
        raise CertificateError("A bidirectional layer has no certificate of a stack; certify each direction by itself.")
    stack = [ways[0] for ways in weights]
    return theory_of(stack[0]).certify_stack(stack, input_bound, effort, dropout_scale(module))


def refresh(layer: LayerCertificate, weights: Weights) -> LayerCertificate:
    """Return the certificate for the weights as they are now, in the same norms where one still contracts.

    Norms are kept and the rates proven anew, which costs far less than a search for a norm; where no old norm contracts any
    more, the search is made again.
    """
    keep, bound = [tier.contraction.norm for tier in layer.tiers], layer.input_bound
    fresh = THEORIES[weights.cell.record.theorem].certify(weights, bound, bound, "keep", keep)
    return fresh if fresh.best.stable else certify_layer(weights, bound, None, "auto")


def digest_of(weights: Sequence[Sequence[Weights]]) -> str:
    """Return a checksum of every weight, in float64 as certified."""
    total = hashlib.sha256()
    for way in (way for ways in weights for way in ways):
        total.update(way.cell.record.key.encode())
        for tensor in (way.weight_ih, way.weight_hh, way.bias_ih, way.bias_hh, way.theta, *way.initial):
            total.update(b"none" if tensor is None else repr(tuple(tensor.shape)).encode())
            total.update(b"" if tensor is None else tensor.contiguous().numpy().tobytes())
    return total.hexdigest()


def recheck(stored: dict[str, Any], module: nn.Module) -> AnyCertificate:
    """Check a stored certificate against a module, and return the one computed anew.

    Args:
        stored: What ``to_dict`` gave, read back from JSON.
        module: The module it should be about.

    Raises:
        CertificateError: The weights are not those of the certificate, or a claim is not what is proven now.

    Example:
        >>> rnn = sr.RNN(2, 4, transition=sr.SpectralBall(0.5))
        >>> recheck(sr.certify(rnn).to_dict(), rnn).stable
        True
    """
    if not isinstance(stored, dict) or stored.get("format") != "steadyrnn certificate 1":
        raise CertificateError("`stored` is not a certificate of this format (steadyrnn certificate 1).")
    if stored.get("valid_for") != "every admissible input":
        raise CertificateError("A data-dependent certificate can be checked only with its inputs: certify again.")
    fast = not any("diagonal" in str(claim.get("name")) for claim in stored.get("claims", []))
    effort = stored.get("effort", "fast" if fast else "auto")  # not noted in older ones
    fresh = certify(module, stored.get("input_bound"), effort=effort)
    if fresh.digest != stored.get("digest"):
        raise CertificateError("The weights are not those the certificate was made for: their checksums differ.")
    told = {str(claim.get("name")): claim for claim in stored.get("claims", [])}
    if len(told) != len(stored.get("claims", [])) or told.keys() != {claim.name for claim in fresh.claims}:
        raise CertificateError("The certificate lacks a claim that is proven now, or holds another one, or one twice.")
    for claim in (*fresh.claims, Claim("contraction", fresh.contraction, "", (), "")):
        given = told.get(claim.name, {"value": stored.get("contraction")})
        try:
            value = float(given["value"])
        except (KeyError, TypeError, ValueError) as error:
            raise CertificateError(f"The claim {claim.name!r} is not a number, so it is not proven.") from error
        words = claim.to_dict() | {"value": None} == rename_theorem(given) | {"value": None} or claim.name not in told
        if not claim.value <= value * (1 + 1e-6) or not words:
            raise CertificateError(f"The claim {claim.name!r} of {value:.6g} is not proven: now {claim.value:.6g}.")
    if (stored.get("module"), stored.get("stable"), stored.get("regime")) != (fresh.module, fresh.stable, fresh.regime):
        raise CertificateError("What the certificate says of stability or of the regime is not what is proven now.")
    return fresh


def rename_theorem(claim: dict[str, Any]) -> dict[str, Any]:
    """Return a stored claim with its theorem as it is called now."""
    numbered, comma, needs = str(claim.get("theorem")).partition(", which needs")
    known = _THEOREMS.get(numbered.removeprefix("MATH ")) if numbered.startswith("MATH ") else None
    return claim if known is None else {**claim, "theorem": f"{known}{comma}{needs}"}
