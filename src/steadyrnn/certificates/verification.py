"""What ``verify`` returns: one number that covers every error of a computed run."""

from dataclasses import asdict, dataclass, field
from typing import Any

from torch import Tensor

from .base import LayeredReport, LayerRecord, format_above

__all__ = ["LayerVerification", "Verification"]


@dataclass(frozen=True)
class LayerVerification(LayerRecord):
    """One layer in one direction.

    Args:
        residual: The largest norm, in that norm, of what a step left over, float64's own rounding and what the layer below
            is wrong by included.
        error: Bound on the 2-norm of the error of every output of the layer.
    """

    residual: float
    error: float


@dataclass(frozen=True)
class Verification(LayeredReport[LayerVerification]):
    """How far a computed run is from the exact one, with proof: Note [verification].

    The exact run is that of the same weights, input and initial state without any rounding.

    Args:
        module: The module's class.
        error: Bound on the 2-norm of the error of every output, at every time and in every row.
        layers: What was found of each layer, the lowest first; of a bidirectional one, forwards before backwards.
        errors: The bound for each row and time, float64: (T, B), (B, T) if ``batch_first``, (T,) unbatched. Of a packed
            sequence (T, B), rows in the order of the batch. Zero where a row has ended.

    Example:
        >>> rnn = sr.RNN(2, 4, transition=sr.SpectralBall(0.5))
        >>> x = torch.randn(50, 3, 2)
        >>> found = sr.verify(rnn, x, rnn(x)[0])
        >>> found.error < 1e-5, found.errors.shape
        (True, torch.Size([50, 3]))
    """

    module: str
    error: float
    layers: tuple[LayerVerification, ...]
    errors: Tensor = field(compare=False, repr=False)

    @property
    def residual(self) -> float:
        """The largest residual of a layer, in the norm of that layer."""
        return max(layer.residual for layer in self.layers)

    def to_dict(self) -> dict[str, Any]:
        """Return everything except the bounds for each time, as JSON can hold it."""
        return {
            "format": "steadyrnn verification 1", "module": self.module, "error": self.error, "residual": self.residual,
            "rate": self.rate, "norm": self.norm, "layers": [asdict(layer) for layer in self.layers],
        }  # fmt: skip

    def __str__(self) -> str:
        """Return the verification in words."""
        error, residual = format_above(self.error, 3), format_above(self.residual, 3)
        return (
            f"{self.module}: every output is within {error} (2-norm) of the exact run, rounding included.\n"
            f"Largest residual of a step {residual}, contraction {format_above(self.rate)} in the {self.norm}.\n"
            "Theorem: residual bound (docs/notes/verification.md)."
        )
