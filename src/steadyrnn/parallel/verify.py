"""The error of a time-parallel call, from the states it computed."""

from dataclasses import dataclass, field

from torch import Tensor

from steadyrnn.certificates.layer import LayerCertificate
from steadyrnn.certificates.layer_errors import layer_errors
from steadyrnn.certificates.proof import Proof, proof_of
from steadyrnn.certificates.verify import known_proof, reach_of
from steadyrnn.engines.base import Recurrence

__all__ = ["Proofs"]


@dataclass
class Proofs:
    """What the errors of calls are proven from, computed once per certificate.

    Args:
        number: How many to keep, one per layer.
        known: The certificates and what each proves errors from, the latest last.
    """

    number: int
    known: list[tuple[LayerCertificate, Proof]] = field(default_factory=list)

    def errors(self, certificate: LayerCertificate, run: Recurrence, output: Tensor, entering: Tensor | None) -> Tensor:
        """Return bounds on the errors of a layer's outputs, (T, B), by their residuals.

        Args:
            certificate: Of the layer; a gated one's for the initial states of the run.
            run: What was run.
            output: What came of it, (T, B, H).
            entering: Bounds on the errors of its input, (T, B), or None.
        """
        proof = self.proof(certificate)
        if certificate.weights.cell.record.activation is None:
            entries = reach_of(run.input.detach(), entering)
            if entries > (certificate.input_entries or 0.0):  # the computed input is outside what was certified
                proof = known_proof(certificate.weights, run.state, entries, "auto")
        return layer_errors(proof, run, output.detach(), entering).errors

    def proof(self, certificate: LayerCertificate) -> Proof:
        """Return what a certificate proves errors from."""
        for known, proof in self.known:
            if known is certificate:
                return proof
        proof = proof_of(certificate, certificate.input_entries or 0.0)
        self.known = [*self.known, (certificate, proof)][-self.number :]
        return proof
