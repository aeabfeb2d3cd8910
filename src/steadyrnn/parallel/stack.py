"""What layers of a stack owe each other, and whether their weights are still those that were proven."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from steadyrnn.bounds.norms import above, product_above
from steadyrnn.certificates.layer import LayerCertificate
from steadyrnn.gpu.async_result import AsyncResult

from .report import LayerRun

__all__ = ["Doubt", "carried", "gain_of", "not_run", "share_of"]


class Doubt:
    """Whether weights are still the numbers they were: compared on the device, and waited for when asked."""

    def __init__(self, known: tuple[Tensor, ...], now: tuple[Tensor, ...]) -> None:
        self.pairs = list(zip(known, now, strict=False))
        self.alike = len(known) == len(now) and all(
            (a.device, a.dtype, a.shape) == (b.device, b.dtype, b.shape) for a, b in self.pairs
        )
        self.answer: AsyncResult | None = None

    def start(self) -> None:
        """Begin to compare."""
        if self.alike and self.answer is None:
            self.answer = AsyncResult(~torch.stack([(a != b).any() for a, b in self.pairs]).any())

    def holds(self) -> bool:
        """Say whether they are the same."""
        self.start()
        return self.alike and self.answer is not None and bool(self.answer.value())


def gain_of(certificate: LayerCertificate) -> float:
    """Return what an error of a layer's input, in the 2-norm, becomes at its output (MATH 5.4)."""
    tiers = [tier for tier in certificate.tiers if tier.contraction.stable]
    return min(
        product_above(tier.input_gain, 1 / (1 - tier.contraction.rate), 1 / tier.contraction.norm.lower) for tier in tiers
    )


def share_of(tol: float, gains: Sequence[float], place: int) -> float:
    """Return the truncation allowed to a layer, so that with what layers above make of it none exceeds ``tol``."""
    worst, product = 1.0, 1.0
    for gain in gains[place + 1 :]:
        product = product_above(product, gain)
        worst = max(worst, product)
    return tol / len(gains) / worst * (1 - 2.0**-40)


def carried(record: LayerRun, below: LayerRun | None, gain: float) -> LayerRun:
    """Return a record with the errors of the layer below added."""
    if below is None:
        return record
    truncation = above(record.truncation + product_above(gain, below.truncation))
    return replace(record, truncation=truncation, rounding=above(record.rounding + product_above(gain, below.rounding)))


def not_run(certificate: LayerCertificate) -> LayerRun:
    """Return the record of a layer that has not run yet."""
    best = certificate.best
    return LayerRun(certificate.name, best.rate, best.norm.name, 0, 0, 0, 0, 0, 0.0, 0.0, "")
