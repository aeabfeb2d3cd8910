"""The loss of linear Spectral-RNNs from many starts: evidence on local minima, which the paper announces and does not prove."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from steadyrnn.constraints.spectral import Spectral
from steadyrnn.layers.rnn import RNN

from .base import Judgement, judge_numbers
from .curves import Axis, Line, Mark, Panel

__all__ = ["ENDS", "Fit", "LinearSpectral", "descend_from", "judge_narrow", "judge_wide", "show_descents"]

ENDS: dict[str, str] = {
    "global": "the loss is zero to rounding",
    "local": "a local minimum above zero: the gradient vanishes and no direction curves downwards",
    "edge": "stopped above zero with a singular value at the end of its range, where the slope of its sigmoid vanishes too",
    "open": "none of these within the given rounds",
}
"""Where a descent can end."""

_ZERO = 1e-12  # relative loss of a global minimum
_FLAT = 1e-8  # norm of the gradient of the relative loss that counts as none
_CURVED = 1e-7  # curvature below its negative counts as downwards
_SATURATED = 15.0  # raw singular values beyond it are at the end of their range


class LinearSpectral(nn.Module):
    r"""A linear recurrent network with a spectral transition, read at its last step.

    .. math::
        h_t = W h_{t-1} + U x_t, \qquad y_T = V h_T

    Args:
        inputs: D.
        units: H.
        outputs: Number of outputs.
        radius: Singular values of W lie between 1 - radius and 1 + radius.

    Example:
        >>> LinearSpectral(2, 4, 3, 0.1).responses(5).shape
        torch.Size([5, 2, 3])
    """

    def __init__(self, inputs: int, units: int, outputs: int, radius: float) -> None:
        super().__init__()
        self.rnn = RNN(
            inputs, units, nonlinearity="identity", bias=False, transition=Spectral(radius=radius), dtype=torch.float64
        )
        self.readout = nn.Parameter(torch.empty(outputs, units, dtype=torch.float64))
        with torch.no_grad():  # anywhere in the set, not only near its middle
            for parameter in self.parameters():
                parameter.normal_()

    def responses(self, steps: int) -> Tensor:
        r"""Return the impulse response :math:`V W^k U` for k from 0 to ``steps`` - 1, shape (steps, D, outputs).

        They are all that the network computes: with white inputs the expected squared error at step ``steps`` against
        another network is the squared distance of their responses.
        """
        size = self.rnn.input_size
        impulses = torch.zeros(steps, size, size, dtype=torch.float64)
        impulses[0] = torch.eye(size, dtype=torch.float64)
        output: Tensor = self.rnn(impulses)[0]
        return output @ self.readout.T


class Fit:
    """The residuals of a student against a teacher as a function of all of the student's parameters."""

    def __init__(self, student: LinearSpectral, target: Tensor) -> None:
        self.student, self.target = student, target
        self.scale = float(target.norm())
        self.parameters = list(student.parameters())

    def residuals(self) -> Tensor:
        """Return the relative residuals, shape (M,)."""
        return ((self.student.responses(len(self.target)) - self.target) / self.scale).flatten()

    def loss_at(self, point: Tensor) -> float:
        """Move to a point, and return the relative loss there."""
        with torch.no_grad():
            vector_to_parameters(point, self.parameters)
            return float(self.residuals().square().sum())

    def jacobian(self) -> tuple[Tensor, Tensor]:
        """Return residuals (M,) and their Jacobian (M, P)."""
        residuals = self.residuals()
        rows = [parameters_to_vector(torch.autograd.grad(one, self.parameters, retain_graph=True)) for one in residuals]
        return residuals.detach(), torch.stack(rows)

    def hessian(self) -> Tensor:
        """Return the Hessian of the relative loss, shape (P, P)."""
        gradient = parameters_to_vector(
            torch.autograd.grad(self.residuals().square().sum(), self.parameters, create_graph=True)
        )
        rows = [parameters_to_vector(torch.autograd.grad(one, self.parameters, retain_graph=True)) for one in gradient]
        found = torch.stack(rows)
        return (found + found.T) / 2


def descend_from(seed: int, inputs: int, units: int, outputs: int, steps: int, radius: float, rounds: int) -> dict[str, Any]:
    """Draw a teacher and a start, both anywhere in the set, minimize the loss, and say where the descent ended.

    The loss is an expectation over white inputs, computed exactly: its global minimum is 0, and no noise hides a minimum. It
    is minimized by the method of Levenberg and Marquardt, which only accepts steps that lower the loss.

    Args:
        seed: Numbers teacher and start.
        inputs: D.
        units: H.
        outputs: Number of outputs.
        steps: T.
        radius: Of teacher and student.
        rounds: Steps of the method, at most.

    Returns:
        ``end`` (of :data:`ENDS`); loss and norm of its gradient, relative to the loss of a network that answers 0; the lowest
        curvature, where the gradient vanishes above zero; the losses on the way.

    Example:
        >>> descend_from(1, inputs=1, units=2, outputs=1, steps=4, radius=0.1, rounds=100)["end"] in ENDS
        True
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        teacher, student = (LinearSpectral(inputs, units, outputs, radius) for _ in range(2))
    fit = Fit(student, teacher.responses(steps).detach())
    losses, gradient = _descend(fit, rounds)
    lowest = float(torch.linalg.eigvalsh(fit.hessian())[0]) if losses[-1] > _ZERO and gradient < _FLAT else None
    end = _name_end(losses[-1], gradient, lowest, _is_at_edge(student))
    return {"end": end, "loss": losses[-1], "gradient": gradient, "curvature": lowest, "losses": losses[::10]}


def _descend(fit: Fit, rounds: int) -> tuple[list[float], float]:
    """Return the losses of all rounds and the last norm of the gradient."""
    point, damping = parameters_to_vector(fit.parameters).detach().clone(), 1e-2
    losses, norm = [fit.loss_at(point)], float("inf")
    for _ in range(rounds):
        residuals, jacobian = fit.jacobian()
        gradient = jacobian.T @ residuals
        norm = 2 * float(gradient.norm())
        if losses[-1] < _ZERO or norm < _FLAT:
            break
        gram = jacobian.T @ jacobian
        for _ in range(40):
            move = torch.linalg.solve(gram + damping * torch.diag(gram.diagonal().clamp_min(1e-12)), gradient)
            tried = fit.loss_at(point - move)
            if tried < losses[-1]:
                point, damping = point - move, max(damping / 5, 1e-14)
                losses.append(tried)
                break
            damping *= 4
        else:
            fit.loss_at(point)
            break
    return losses, norm


def _is_at_edge(student: LinearSpectral) -> bool:
    """Say whether a raw singular value, of which a sigmoid is taken, is beyond any that counts as inside."""
    with torch.no_grad():
        return float(student.rnn.get_parameter("transition_l0.h.raw2").abs().max()) > _SATURATED


def _name_end(loss: float, gradient: float, lowest: float | None, at_edge: bool) -> str:
    """Return a name of :data:`ENDS`."""
    if loss < _ZERO:
        return "global"
    if gradient >= _FLAT or lowest is None or lowest < -_CURVED:
        return "open"
    return "edge" if at_edge else "local"


def judge_narrow(cells: Mapping[str, Any]) -> Judgement:
    """Judge singular values near 1, as the paper trains them."""
    return _judge(cells, "narrow/")


def judge_wide(cells: Mapping[str, Any]) -> Judgement:
    """Judge singular values that may be almost anything."""
    return _judge(cells, "wide/")


def _judge(cells: Mapping[str, Any], start: str) -> Judgement:
    """Judge by the descents that finished; one that did not is evidence of nothing, and keeps the claim from being seen."""
    ends = [cell["end"] for name, cell in cells.items() if name.startswith(start)]
    count = {end: ends.count(end) for end in ENDS}
    finished = len(ends) - count["open"]
    text = (
        f"{finished} of {len(ends)} descents finished: {count['global']} at loss 0, {count['edge']} stopped at the edge "
        f"of the set, where a singular value is at the end of its range, {count['local']} at a local minimum inside"
    )
    verdict = "seen" if count["global"] == len(ends) else "not seen"
    return judge_numbers(verdict, text, [float(end == "global") for end in ends], "share at loss 0")


def show_descents(cells: Mapping[str, Any]) -> list[Panel]:
    """Show the loss of every descent, by every tenth round, and where it ended."""
    ended = {
        "global": "loss 0", "local": "local minimum inside the set", "edge": "stopped at the edge of the set",
        "open": "not finished",
    }  # fmt: skip
    panels = []
    for start, title in (("narrow/", "Singular values in [0.9, 1.1]"), ("wide/", "Singular values in [0.1, 1.9]")):
        found = [cell for name, cell in cells.items() if name.startswith(start)]
        count = {end: sum(one["end"] == end for one in found) for end in ENDS}
        lines = [
            Line(f"{ended[end]} ({count[end]})", *_follow(one)).skip_zeros()
            for end in ENDS for one in found if one["end"] == end
        ]  # fmt: skip
        x, y = Axis("round of the descent; its end at the next tenth"), Axis("loss relative to that of the answer 0", "log")
        panels.append(Panel(f"{title}: {len(found)} descents", x, y, lines, [Mark("counts as loss 0", y=_ZERO)]))
    return panels


def _follow(descent: Mapping[str, Any]) -> tuple[list[int], list[float]]:
    """Return every tenth round and its loss, and the last loss, whose round is not stored."""
    losses = [*descent["losses"], *([descent["loss"]] if descent["loss"] != descent["losses"][-1] else [])]
    return [*range(0, 10 * len(losses), 10)], losses
