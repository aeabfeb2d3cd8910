"""What a call of a time-parallel layer proves and what it took."""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Generic, TypeVar, overload

from steadyrnn.bounds.norms import above, product_above
from steadyrnn.certificates.base import LayeredReport, LayerRecord, format_above
from steadyrnn.errors import CertificateError

from .gradients import Evidence
from .traffic import Traffic

__all__ = ["LayerRun", "ParallelReport"]

V = TypeVar("V")


@dataclass(frozen=True)
class LayerRun(LayerRecord):
    """One layer of the stack in one call.

    Args:
        warmup: Steps that each window runs before its outputs count.
        chunk: Steps whose outputs count.
        windows: How many windows ran as one batch; 1 is the sequential run.
        sweeps: How often all windows were run again.
        depth: Steps run one after another.
        truncation: Bound on the 2-norm of the error of every output, without rounding; errors of the layers below
            included.
        rounding: Bound on what rounding adds to it.
        engine: What ran.
        verified: Bound on the 2-norm of the error of every output against the exact run, rounding included; None where the
            run was not verified.
        repeated: Of a group, how many steps of this rank's part ran again from where the part before ended.
        exchanges: Of a group, how often this rank did so.
    """

    warmup: int
    chunk: int
    windows: int
    sweeps: int
    depth: int
    truncation: float
    rounding: float
    engine: str
    verified: float | None = None
    repeated: int = 0
    exchanges: int = 0

    def add_errors_below(self, below: "LayerRun", gain: float) -> "LayerRun":
        """Return a record with the errors of the layer below added."""
        truncation = above(self.truncation + product_above(gain, below.truncation))
        return replace(self, truncation=truncation, rounding=above(self.rounding + product_above(gain, below.rounding)))


def largest(layers: Sequence[LayerRun], name: str) -> Any:
    """Return the largest number of this name of a layer."""
    return max(getattr(layer, name) for layer in layers)


def total(layers: Sequence[LayerRun], name: str) -> Any:
    """Return the sum of the numbers of this name."""
    return sum(getattr(layer, name) for layer in layers)


def of_slowest(layers: Sequence[LayerRun], name: str) -> Any:
    """Return the number of this name of the layer with the largest rate."""
    return getattr(max(layers, key=lambda layer: layer.rate), name)


class Combined(Generic[V]):
    """A number of a report that is combined from its layers' numbers of the same name.

    Args:
        combine: How.
        doc: What it is.
    """

    def __init__(self, combine: Callable[[Sequence[LayerRun], str], V], doc: str) -> None:
        self.combine, self.__doc__ = combine, doc

    def __set_name__(self, owner: type, name: str) -> None:
        """Learn the name."""
        self.name = name

    @overload
    def __get__(self, report: None, owner: type) -> "Combined[V]": ...
    @overload
    def __get__(self, report: "ParallelReport", owner: type) -> V: ...
    def __get__(self, report: "ParallelReport | None", owner: type) -> "Combined[V] | V":
        """Return the number of a report."""
        return self if report is None else self.combine(report.layers, self.name)


@dataclass(frozen=True)
class ParallelReport(LayeredReport[LayerRun]):
    """What the last call proves: every h_t is within ``error`` (2-norm) of the sequential run's.

    That is ``truncation + rounding``, or, where the call was verified, one number that was proven from the states themselves.

    Before the first call all numbers are zero. Of a stack ``depth`` and ``sweeps`` are sums, ``truncation`` and
    ``rounding`` the largest of a layer, and the rest is that of the layer with the largest rate.

    Args:
        tol: The tolerance given; ``truncation`` is at most this.
        layers: Each layer's run.
        exchanged: Of a group, the bytes that this rank has sent, those of ``backward`` once it has run; None without one.
    """

    tol: float
    layers: tuple[LayerRun, ...]
    evidence: Evidence = field(default_factory=Evidence, compare=False, repr=False)
    exchanged: Traffic | None = field(default=None, compare=False)

    truncation = Combined[float](largest, "Bound on the error of every state in exact arithmetic.")
    rounding = Combined[float](largest, "Bound on what rounding adds, of runs that are exact or computed in the same dtype.")
    depth = Combined[int](total, "Steps run one after another, of all layers.")
    sweeps = Combined[int](total, "Sweeps of all layers.")
    chunk = Combined[int](of_slowest, "Steps of a window whose outputs count.")
    warmup = Combined[int](of_slowest, "Steps of a window before that.")
    windows = Combined[int](of_slowest, "How many windows ran as one batch.")

    @property
    def verified(self) -> float | None:
        """Bound on the error of every state against the exact run, rounding included; None where the call was not verified."""
        found = [layer.verified for layer in self.layers if layer.verified is not None]
        return max(found) if found else None

    @property
    def error(self) -> float:
        """Bound on the error of every state: the verified one, or else truncation and rounding together."""
        return above(self.truncation + self.rounding) if self.verified is None else self.verified

    @property
    def gradient(self) -> float:
        r"""Bound on what truncation does to the gradient by the weights, for the cotangents that arrived in ``backward``.

        Rounding is not in it. In float32 a gradient differs from the exact one by far more than a small bound says.

        .. math:: \sum_t \lVert g_t \rVert F_t

        bounds the Frobenius norm of the difference between the gradient of this run and of the sequential one, both for
        the cotangents :math:`g_t` of the outputs (and of the final state, at its time), in exact arithmetic, over W, U and
        b together (torch's two vectors as the one they add up to). :math:`F_t` is the error of a truncated
        gradient for a loss of gradient 1 (Note [mathematics], section 4.3), with the context of t: warm-up, sweeps and
        position. For a piecewise linear activation it is
        :func:`~steadyrnn.bounds.parallel_gradients.masked_gradient_error`, from the steps at which masks are proven equal.

        Raises:
            CertificateError: Nothing arrived yet, or no theorem gives a bound: gated cells, stacks, an activation that is
                neither smooth nor piecewise linear.
        """
        return self.evidence.bound()

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON can hold it; ``gradient`` (of truncation alone) is None where there is no bound."""
        names = "tol", "error", "truncation", "rounding", "verified", "depth", "sweeps", "chunk", "warmup", "windows"
        numbers = {name: getattr(self, name) for name in (*names, "rate", "norm")}
        sent = None if self.exchanged is None else asdict(self.exchanged)
        layers = [asdict(layer) for layer in self.layers]
        return {**numbers, "gradient": self._gradient_or_none(), "exchanged": sent, "layers": layers}

    def _gradient_or_none(self) -> float | None:
        try:
            return self.gradient
        except CertificateError:
            return None

    def __str__(self) -> str:
        """Return the report in words."""
        rate = f"{format_above(self.rate)} in the {self.norm}"
        if not self.depth:
            return f"time-parallel, not run yet: contraction {rate}, truncation to {self.tol:g}."
        swept = f" and {self.sweeps} sweeps" if self.sweeps else ""
        if self.verified is None:
            truncation, rounding = format_above(self.truncation, 3), format_above(self.rounding, 3)
            within = f"{truncation} (asked: {self.tol:g}) plus rounding of {rounding} of the sequential run"
        else:
            within = f"{format_above(self.verified, 3)} (asked: {self.tol:g}) of the exact run, rounding included"
        gradient, learned = self._gradient_or_none(), ""
        if gradient is not None:
            learned = f"\nTruncation changes the gradient by at most {format_above(gradient, 3)}; rounding is not in it."
        group = ""
        if self.exchanged is not None:
            sent = self.exchanged.states + self.exchanged.adjoints + self.exchanged.scalars
            group = f"\nIts part of the series: {total(self.layers, 'repeated')} steps were run again, {sent} bytes sent."
        return (
            f"time-parallel: every state within {within}, in {self.depth} steps one after another: {self.windows} windows of "
            f"{self.chunk} behind {self.warmup} of warm-up{swept}.\n"
            f"Contraction {rate}. Proof: Lemma 1 of Miller and Hardt (2019) and windows of time "
            f"(docs/notes/mathematics.md, 6.1 to 6.{5 if self.verified is None else 6}).{learned}{group}"
        )
