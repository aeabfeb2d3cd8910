"""The error of a time-parallel call, from the states it computed."""

from dataclasses import dataclass, field
from functools import partial

import torch
from torch import Tensor

from steadyrnn.bounds.norms import ROUND_OFF, TINY, above, power_above, product_above
from steadyrnn.cells.base import State
from steadyrnn.certificates.layer import LayerCertificate
from steadyrnn.certificates.layer_errors import LayerErrors, layer_errors
from steadyrnn.certificates.proof import Proof, proof_of, to_output
from steadyrnn.certificates.verify import known_proof, reach_of
from steadyrnn.errors import CertificateError

from .line import Line
from .run import LayerResult

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

    @torch.no_grad()
    def errors(
        self, certificate: LayerCertificate, done: LayerResult, entering: Tensor | None, initial: State, line: Line
    ) -> tuple[Tensor, float]:
        """Return bounds on the errors of a layer's outputs, (T, B), by their residuals, and the largest of all ranks.

        Of a group, a part's first step is evaluated from the state in which the part before ended, and the error of that
        state is carried on.

        Args:
            certificate: Of the layer; a gated one's for the initial states of the run.
            done: What was run, and what came of it.
            entering: Bounds on the errors of its input, (T, B), or None.
            initial: The true initial states, each (B, H).
            line: The ranks that ran it.
        """
        run = done.run
        if run is None:
            raise CertificateError("Nothing has been run that could be verified.")
        gated = certificate.weights.cell.record.activation is None
        data = run.input.detach()
        _, table = line.together(lambda: reach_of(data, entering) if gated else 0.0, lambda reach: [reach], 1)
        entries = max(row[0] for row in table)
        proof = self.proof(certificate)
        if gated and entries > (certificate.input_entries or 0.0):  # the computed input is outside what was certified
            proof = known_proof(certificate.weights, initial, entries, "auto")
        output = done.output.detach()
        before = line.hand_on(done.state)
        if before is not None:
            run = run._replace(state=before if proof.box is None else inside(before, proof.box))
        found, table = line.together(
            partial(layer_errors, proof, run, output, entering),
            lambda found: end_errors(proof, found, done.state) if line.ranks.size > 1 else [],
            output.shape[1],
        )
        errors = found.errors
        if line.ranks.size > 1 and errors.numel():
            errors = errors + carry(proof, errors, entering_error(proof, table, line))
        _, table = line.together(lambda: float(errors.max()) if errors.numel() else 0.0, lambda most: [most], 1)
        return errors, max(row[0] for row in table)

    def proof(self, certificate: LayerCertificate) -> Proof:
        """Return what a certificate proves errors from."""
        for known, proof in self.known:
            if known is certificate:
                return proof
        proof = proof_of(certificate, certificate.input_entries or 0.0)
        self.known = [*self.known, (certificate, proof)][-self.number :]
        return proof


def inside(state: State, box: State) -> State:
    """Move a state into the box in which the contraction holds, which brings it no farther from a true one."""
    bounds = [bound.to(one.device, one.dtype) for one, bound in zip(state, box, strict=True)]
    return tuple(one.clamp(-bound, bound) for one, bound in zip(state, bounds, strict=True))


def end_errors(proof: Proof, found: LayerErrors, end: State) -> list[float]:
    """Return a bound on the error of each row's last state, in the norm of the contraction, except what entered the part.

    Residuals of an LSTM are about cell states that follow from its outputs; by how much the last one differs from the cell
    state that was computed, which the next part starts from, is part of it.
    """
    rows = found.errors.shape[1]
    norm = proof.tier.contraction.norm
    if not found.errors.numel():
        return [0.0] * rows
    own = found.errors[-1].double() / to_output(norm, proof.weights.size) * (1 + 64 * ROUND_OFF)
    if found.cell is not None:
        gap = end[1].detach().double() - found.cell
        own = own + norm(torch.cat([gap, torch.zeros_like(gap)], dim=-1)) * (1 + 256 * ROUND_OFF)
    return [above(row) for row in own.tolist()]


def entering_error(proof: Proof, table: list[list[float]], line: Line) -> list[float]:
    """Return a bound on the error of the state that this rank's part starts from, for each row."""
    rate, found = proof.tier.contraction.rate, [0.0] * len(table[0])
    for rank in line.members[: line.members.index(line.ranks.rank)]:
        shrunk = power_above(rate, line.steps[rank])
        found = [above(own + product_above(shrunk, before)) for own, before in zip(table[rank], found, strict=True)]
    return found


def carry(proof: Proof, errors: Tensor, entered: list[float]) -> Tensor:
    """Return what an error of the start state, for each row, adds to that of each output, (T, B)."""
    rate, norm = above(proof.tier.contraction.rate), proof.tier.contraction.norm
    time = torch.arange(1, len(errors) + 1, dtype=torch.float64, device=errors.device).unsqueeze(1)
    first = torch.tensor(entered, dtype=torch.float64, device=errors.device) * to_output(norm, proof.weights.size)
    carried: Tensor = first * (rate**time) * (1 + 256 * ROUND_OFF) + TINY * (first > 0)
    return carried
