"""The certificate of a bidirectional layer: one for each direction."""

import math
from dataclasses import dataclass, replace
from typing import Any

from steadyrnn.bounds.norms import above
from steadyrnn.errors import CertificateError

from .base import BaseCertificate, Claim, as_json_number
from .certificate import Certificate

__all__ = ["BidirectionalCertificate"]


@dataclass(frozen=True)
class BidirectionalCertificate(BaseCertificate):
    """Both directions of one layer: each forgets by itself, so a window reaches k steps to both sides.

    Note [mathematics], section 5.4.

    Args:
        module: The module's class.
        directions: The certificates forwards and backwards.
        input_bound: What was assumed of the inputs.
        digest: A checksum of the weights.
        readout_gain: Lipschitz constant of a model's readout.
    """

    module: str
    directions: tuple[Certificate, ...]
    input_bound: float | None
    digest: str
    readout_gain: float = 1.0

    @property
    def contraction(self) -> float:
        """The larger of both."""
        return max(way.contraction for way in self.directions)

    @property
    def stable(self) -> bool:
        """Whether both contract."""
        return all(way.stable for way in self.directions)

    @property
    def norm(self) -> str:
        """The norm of the larger constant."""
        return max(self.directions, key=lambda way: way.contraction).norm

    @property
    def state_bound(self) -> float:
        """Bound on the 2-norm of both outputs side by side."""
        return above(math.hypot(*(way.state_bound for way in self.directions)))

    @property
    def regime(self) -> str:
        """That of both directions where they agree."""
        found = {way.regime for way in self.directions}
        return found.pop() if len(found) == 1 else "unknown"

    @property
    def left_out(self) -> tuple[str, ...]:
        """The tiers that were not tried, of both directions."""
        return tuple(text for way in self.directions for text in way.left_out)

    @property
    def valid_for(self) -> str:  # type: ignore[override]
        """What the claims are about."""
        return self.directions[0].valid_for

    def truncation_error(self, k: int) -> float:
        """Return a bound on the 2-norm of what is lost of both outputs together, k steps before and k after."""
        return above(math.hypot(*(way.truncation_error(k) for way in self.directions)))

    def horizon(self, eps: float) -> int:
        """Return a proven k with ``truncation_error(k) <= eps``."""
        return max(way.horizon(eps / math.sqrt(2)) for way in self.directions)

    def gradient_bounds(self, lag: int, norm: str = "spectral") -> tuple[float, float]:
        """Raise: each direction has its own."""
        raise CertificateError("A bidirectional layer has one gradient per direction: ask `directions[0]` or `directions[1]`.")

    def gradient_truncation_error(self, k: int, loss_gain: float, loss_smoothness: float) -> float:
        """Raise: the theorem is about one direction."""
        raise CertificateError(
            "Lemma 2 of Miller and Hardt (2019) is about one direction: ask `directions[0]` or `directions[1]`."
        )

    @property
    def claims(self) -> tuple[Claim, ...]:
        """The claims of both."""
        return tuple(claim for way in self.directions for claim in way.claims)

    def to_dict(self) -> dict[str, Any]:
        """Return everything that is claimed, as JSON can hold it."""
        first = self.directions[0].to_dict()
        both = {
            "contraction": as_json_number(self.contraction),
            "stable": self.stable,
            "regime": self.regime,
            "left_out": [*self.left_out],
        }
        norms = [norm for way in self.directions for norm in way.to_dict()["norms"]]
        return first | both | {"claims": [claim.to_dict() for claim in self.claims], "norms": norms}

    def __str__(self) -> str:
        """Return the tables of both."""
        names = ("forwards", "backwards")
        ways = (replace(way, module=f"{self.module}, {name}") for way, name in zip(self.directions, names, strict=True))
        return "\n".join(str(way) for way in ways)
