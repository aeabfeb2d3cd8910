"""The error of one layer's computed run: its contraction, and what each of its steps leaves over."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from steadyrnn.bounds.norms import ROUND_OFF, above
from steadyrnn.bounds.residual import residual_errors
from steadyrnn.cells.base import Cell, State
from steadyrnn.engines.base import Recurrence
from steadyrnn.engines.reference import running_rows
from steadyrnn.engines.replay import call_through_graph
from steadyrnn.errors import NotFiniteError

from .measure import Measure
from .proof import Proof, recurrence_of, to_output
from .residual import ExactStep, in_double, in_running_order, scan_rounding, step_residuals
from .rounding import UNITS, local_rounding
from .verification import LayerVerification

__all__ = ["LayerErrors", "layer_errors"]


class LayerErrors(NamedTuple):
    """Bounds on the 2-norm of the error of every output (T, B), and the record of the layer."""

    errors: Tensor
    record: LayerVerification
    cell: Tensor | None = None  # of an LSTM, the last c that the bounds are about, (B, H)


@torch.no_grad()
def layer_errors(proof: Proof, run: Recurrence, output: Tensor, entering: Tensor | None = None) -> LayerErrors:
    r"""Return a bound on the error of every output of a layer's computed run.

    .. math:: e_t = \lambda e_{t-1} + r_t, \qquad r_t = N(\hat s_t - \Phi(\hat s_{t-1}, x_t)) + \delta_t + L_x \epsilon_t

    with :math:`\delta_t` the rounding of evaluating the step in float64, and :math:`\epsilon_t` what the layer's input may be
    wrong by. The contraction of a gated layer holds in a box that no true state leaves. Outputs outside it are moved to
    its edge first, and the way they are moved is added to their error.

    Args:
        proof: Of the layer.
        run: Input, initial state, lengths and direction.
        output: What was computed, shape (T, B, H), any dtype.
        entering: Bound on the 2-norm of the error of every input, shape (T, B); None where they are exact.
    """
    device, contraction = output.device, proof.tier.contraction
    if not output.numel():
        zeros = output.new_zeros(output.shape[:2], dtype=torch.float64)
        return LayerErrors(zeros, LayerVerification(proof.weights.name, contraction.rate, contraction.norm.name, 0.0, 0.0))
    if device not in proof.prepared:
        ready = Evaluation(proof, device)
        if device.type == "cuda":
            torch.cuda.current_stream(device).synchronize()  # another stream may use it next
        proof.prepared[device] = ready
    wrong = None if entering is None else in_running_order(entering, run)
    running = None if run.batch_sizes is None else running_rows(run.batch_sizes, output.shape[1], device)
    given = (in_running_order(run.input, run), in_running_order(output, run), wrong, running, *run.state)
    evaluate = proof.prepared[device]
    errors, largest, cell = call_through_graph(evaluate, given) if has_kernel(proof.weights.cell) else evaluate(*given)
    residual, error = largest.tolist()
    if not math.isfinite(residual + error):
        raise NotFiniteError("`output` or `input` is so large that squares of its entries overflow: nothing is proven of it.")
    record = LayerVerification(proof.weights.name, contraction.rate, contraction.norm.name, residual, error)
    return LayerErrors(in_running_order(errors, run), record, cell.mT if len(run.state) > 1 else None)


def has_kernel(cell: Cell) -> bool:
    """Say whether a step is one of ours throughout: a graph may be unable to hold what a user's own function does."""
    record = cell.record
    return record.kernel is not None and (record.activation is None or record.activation.kernel is not None)


class Evaluation:
    """Evaluates runs of a layer on a device, where what does not change from run to run lies; a GPU is not waited for.

    Args:
        proof: Of the layer.
        device: Of the runs.
    """

    def __init__(self, proof: Proof, device: torch.device) -> None:
        self.proof, weights = proof, proof.weights
        self.contraction = proof.tier.contraction
        nothing = torch.zeros(0, 1, weights.weight_ih.shape[1], dtype=torch.float64, device=device)
        self.exact = in_double(recurrence_of(weights, nothing, ()))
        self.step = ExactStep(self.exact)
        self.box = None if proof.box is None else tuple(bound.to(device) for bound in proof.box)
        self.measure = Measure(self.contraction.norm, weights.size, device)
        self.to_output = to_output(self.contraction.norm, weights.size)
        self.reach = None if proof.box is None else above(float(proof.box[0].norm()), 64 + weights.size)
        self.widest = float(proof.box[1].max()) if proof.box is not None and len(proof.box) == 2 else 0.0
        self.rest = 0.0
        self.activation = weights.cell.record.activation
        if self.activation is not None:
            origin = weights.weight_hh.new_zeros(weights.size)
            self.rest = float(self.activation.value(origin, weights.theta).norm())

    def __call__(self, x: Tensor, output: Tensor, wrong: Tensor | None, running: Tensor | None, *state: Tensor) -> State:
        """Return bounds on the errors of a run that goes forwards, (T, B), the largest residual and error, (2,), and c."""
        tier, start = self.proof.tier, tuple(s.double() for s in state)
        own = self.rounding(x, output, start[0])
        residuals = output.new_empty(output.shape[:2], dtype=torch.float64)
        moved = None if self.box is None else torch.zeros_like(residuals)
        cell = residuals.new_empty(0)
        for part in step_residuals(self.step, x, start, output, self.box):
            cell = cell if part.cell is None else part.cell
            norms = self.measure(part.residual).add_(own + part.cell_residual, alpha=self.measure.upper)
            if wrong is not None:
                norms += above(tier.input_gain) * wrong[part.times]
            residuals[part.times] = norms
            if part.moved is not None and moved is not None:
                moved[part.times] = part.moved
        if running is not None:
            residuals = torch.where(running, residuals, 0.0)
        errors = residual_errors(self.contraction.rate, residuals).mul_(self.to_output)
        if moved is not None:
            errors += moved if running is None else torch.where(running, moved, 0.0)
        errors *= 1 + 64 * ROUND_OFF
        return errors, torch.stack([residuals.max(), errors.max()]), cell

    def rounding(self, x: Tensor, output: Tensor, start: Tensor) -> Tensor:
        """Return a bound, in the 2-norm, on what evaluating a step in float64 adds, for each row, (B,)."""
        size, proof = self.proof.weights.size, self.proof
        if self.reach is not None:  # of the box, which every state is moved into
            hidden = start.new_full(start.shape[:1], self.reach)
        else:
            hidden = _largest_entries(start, output) * above(math.sqrt(size))
        largest: Tensor = torch.linalg.vector_norm(x, dim=-1, dtype=torch.float64).max() if x.numel() else hidden.new_zeros(())
        inputs = largest * above(1.0, 64 + x.shape[-1]) + math.sqrt(x.shape[-1] * torch.finfo(torch.float64).tiny)
        own: Tensor = local_rounding(self.exact, proof.sizes, hidden, inputs, self.widest)
        if self.activation is not None:  # a value is not bounded by the states that are given, but by its argument
            reach = proof.sizes.state * hidden + proof.sizes.input * inputs + proof.sizes.bias
            slope = self.activation.steepness[1]
            own = own + 2 * UNITS * ROUND_OFF * (slope * reach + (self.rest + math.sqrt(size)))
        scanned = above(scan_rounding() * self.widest * math.sqrt(size), 64)
        by_weight = above(proof.weight_gain * proof.weights.slack, 64)  # by the rounding of a weight in factors
        return own + (by_weight * hidden + scanned)


def _largest_entries(start: Tensor, output: Tensor) -> Tensor:
    """Return the largest absolute value in each row of a run, (B,)."""
    largest: Tensor = torch.linalg.vector_norm(start, ord=math.inf, dim=-1)
    both = output.amax(-1).maximum(-output.amin(-1))  # (T, B)
    return largest.maximum(both.amax(0).double())
