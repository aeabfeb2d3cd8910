"""What a call of a time-parallel layer proves and what it took."""

from dataclasses import asdict, dataclass, field
from typing import Any

from steadyrnn.errors import CertificateError

from .parallel_gradients import Evidence

__all__ = ["LayerRun", "ParallelReport"]


@dataclass(frozen=True)
class LayerRun:
    """One layer of the stack in one call.

    Args:
        name: The end of the names of its weights.
        rate: The proven rate of contraction.
        norm: The norm it holds in.
        warmup: Steps that each window runs before its outputs count.
        chunk: Steps whose outputs count.
        windows: How many windows ran as one batch; 1 is the sequential run.
        sweeps: How often all windows were run again.
        depth: Steps run one after another.
        truncation: Bound on the 2-norm of the error of every output, without rounding; errors of the layers below
            included.
        rounding: Bound on what rounding adds to it.
        engine: What ran.
    """

    name: str
    rate: float
    norm: str
    warmup: int
    chunk: int
    windows: int
    sweeps: int
    depth: int
    truncation: float
    rounding: float
    engine: str


@dataclass(frozen=True)
class ParallelReport:
    """What the last call proves: every h_t is within ``truncation + rounding`` (2-norm) of the sequential run's.

    Before the first call all numbers are zero. Of a stack ``depth`` and ``sweeps`` are sums, ``truncation`` and
    ``rounding`` the largest of a layer, and the rest is that of the layer with the largest rate.

    Args:
        tol: What was asked for; ``truncation`` is at most this.
        layers: Each layer's run.
    """

    tol: float
    layers: tuple[LayerRun, ...]
    evidence: Evidence = field(default_factory=Evidence, compare=False, repr=False)

    @property
    def slowest(self) -> LayerRun:
        """The run of the layer with the largest rate."""
        return max(self.layers, key=lambda layer: layer.rate)

    @property
    def truncation(self) -> float:
        """Bound on the error of every state in exact arithmetic."""
        return max(layer.truncation for layer in self.layers)

    @property
    def rounding(self) -> float:
        """Bound on what rounding adds, whether the sequential run is exact or computed in the same dtype."""
        return max(layer.rounding for layer in self.layers)

    @property
    def gradient(self) -> float:
        r"""Bound on the error of the gradient by the weights, for the cotangents that arrived in ``backward``.

        .. math:: \sum_t \lVert g_t \rVert F_t

        bounds the Frobenius norm of the difference between the gradient of this run and of the sequential one, both for
        the cotangents :math:`g_t` of the outputs (and of the final state, at its time), in exact arithmetic, over W, U and
        b together (torch's two vectors as the one they add up to). :math:`F_t` is MATH 4.3 for a loss of gradient 1, with
        the context of t: warm-up, sweeps and position. For a piecewise linear activation it is
        :func:`~steadyrnn.bounds.parallel_gradients.masked_gradient_error`, from the steps at which masks are proven equal.

        Raises:
            CertificateError: Nothing arrived yet, or no theorem gives a bound: gated cells, stacks, a contraction in
                another norm only, an activation that is neither smooth nor piecewise linear.
        """
        return self.evidence.bound()

    @property
    def depth(self) -> int:
        """Steps run one after another, of all layers."""
        return sum(layer.depth for layer in self.layers)

    @property
    def sweeps(self) -> int:
        """Sweeps of all layers."""
        return sum(layer.sweeps for layer in self.layers)

    @property
    def chunk(self) -> int:
        """Steps of a window whose outputs count."""
        return self.slowest.chunk

    @property
    def warmup(self) -> int:
        """Steps of a window before that."""
        return self.slowest.warmup

    @property
    def windows(self) -> int:
        """How many windows ran as one batch."""
        return self.slowest.windows

    @property
    def rate(self) -> float:
        """The largest rate of a layer."""
        return self.slowest.rate

    @property
    def norm(self) -> str:
        """The norm of that rate."""
        return self.slowest.norm

    def to_dict(self) -> dict[str, Any]:
        """Return everything as JSON can hold it; ``gradient`` is None where there is no bound."""
        names = "tol", "truncation", "rounding", "depth", "sweeps", "chunk", "warmup", "windows", "rate", "norm"
        try:
            gradient = self.gradient
        except CertificateError:
            gradient = None
        numbers = {name: getattr(self, name) for name in names}
        return {**numbers, "gradient": gradient, "layers": [asdict(layer) for layer in self.layers]}

    def __str__(self) -> str:
        """Return the report in words."""
        if not self.depth:
            return f"time-parallel, not run yet: contraction {self.rate:.6g} in the {self.norm}, truncation to {self.tol:g}."
        swept = f" and {self.sweeps} sweeps" if self.sweeps else ""
        return (
            f"time-parallel: every state within {self.truncation:.3g} (asked: {self.tol:g}) plus rounding of "
            f"{self.rounding:.3g} of the sequential run, in {self.depth} steps one after another: {self.windows} windows of "
            f"{self.chunk} behind {self.warmup} of warm-up{swept}.\n"
            f"Contraction {self.rate:.6g} in the {self.norm}. MATH 6.1 to 6.5."
        )
