"""The loss of linear Spectral-RNNs from many starts: evidence on local minima, which the paper announces and does not prove."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from steadyrnn.constraints.spectral import Spectral, into_interval
from steadyrnn.layers.rnn import RNN

from .base import Judgement, judge_numbers
from .curves import Axis, Line, Mark, Panel

__all__ = [
    *("ENDS", "Ending", "Fit", "LinearSpectral", "as_clipped", "descend_from", "examine_end", "judge_narrow", "judge_wide"),
    "show_descents",
]

ENDS: dict[str, str] = {
    "global": "the loss is zero to rounding",
    "local": "a local minimum above zero, inside the set: the gradient vanishes and no direction curves downwards",
    "edge": "a local minimum above zero on the border of the set: the loss rises when any singular value that is at the end of "
    "its range moves inside, and in all other directions the gradient vanishes and nothing curves downwards",
    "open": "none of these: out of rounds, or stuck where the slope of a sigmoid vanishes and the loss falls into the set",
}
"""Where a descent can end."""

_ZERO = 1e-12  # relative loss of a global minimum
_FLAT = 1e-8  # norm of the gradient of the relative loss that counts as none
_CURVED = 1e-7  # curvature below its negative counts as downwards
_SATURATED = 15.0  # raw singular values beyond it are at the end of their range
_RAW = "rnn.transition_l0.h.raw2"  # the singular values of a network: raw ones, or with ``sigma="clip"`` themselves


class LinearSpectral(nn.Module):
    r"""A linear recurrent network with a spectral transition, read at its last step.

    .. math::
        h_t = W h_{t-1} + U x_t, \qquad y_T = V h_T

    Args:
        inputs: D.
        units: H.
        outputs: Number of outputs.
        radius: Singular values of W lie between 1 - radius and 1 + radius.
        sigma: How they are kept there: ``"sigmoid"`` of raw ones, or ``"clip"``, where they are parameters themselves.

    Example:
        >>> LinearSpectral(2, 4, 3, 0.1).responses(5).shape
        torch.Size([5, 2, 3])
    """

    def __init__(self, inputs: int, units: int, outputs: int, radius: float, sigma: str = "sigmoid") -> None:
        super().__init__()
        self.radius, transition = radius, Spectral(radius=radius, sigma=sigma)
        self.rnn = RNN(inputs, units, nonlinearity="identity", bias=False, transition=transition, dtype=torch.float64)
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
        self.parameters = [one for one in student.parameters() if one.numel()]  # a single unit has no reflectors

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

    def derivatives(self) -> tuple[Tensor, Tensor]:
        """Return gradient (P,) and Hessian (P, P) of the relative loss."""
        gradient = parameters_to_vector(
            torch.autograd.grad(self.residuals().square().sum(), self.parameters, create_graph=True)
        )
        rows = [parameters_to_vector(torch.autograd.grad(one, self.parameters, retain_graph=True)) for one in gradient]
        found = torch.stack(rows)
        return gradient.detach(), (found + found.T) / 2


def as_clipped(student: LinearSpectral) -> LinearSpectral:
    """Return the same network with its singular values as parameters, instead of raw numbers that sigmoids are taken of.

    Example:
        >>> float(as_clipped(LinearSpectral(1, 1, 1, 0.5)).rnn.weight_hh_l0.detach()) < 1.5
        True
    """
    state = student.state_dict()
    sizes = student.rnn.input_size, student.rnn.hidden_size, len(student.readout), student.radius
    with torch.random.fork_rng(devices=[]):
        twin = LinearSpectral(*sizes, sigma="clip")
    twin.load_state_dict({**state, _RAW: into_interval(state[_RAW], 1.0, student.radius)})
    return twin


@dataclass(frozen=True)
class Ending:
    """What the loss does around a point, by the singular values themselves instead of their raw numbers.

    Args:
        slope: Norm of the gradient in the directions that the set leaves free.
        curvature: Lowest curvature in these directions.
        inward: Least rate at which the loss rises when a singular value that is held at the end of its range moves inside;
            None where none is held.
    """

    slope: float
    curvature: float
    inward: float | None


def examine_end(fit: Fit) -> Ending:
    r"""Return what decides whether a student is at a local minimum over the set of its weights.

    The gradient by a raw singular value is that by the singular value times the slope of a sigmoid, so it vanishes at both
    ends of the range whatever the loss does there. A point of a box is a local minimum if the loss rises into the box along
    every coordinate that is at an end, and in the other directions the gradient vanishes and the curvature is positive
    (the conditions of Karush, Kuhn and Tucker, with strict complementarity). A singular value is held at its end if the loss
    rises by more than rounding when it moves inside; all others are free.

    Args:
        fit: With a student whose singular values come from sigmoids.

    Example:
        >>> teacher, student = (LinearSpectral(1, 2, 1, 0.5) for _ in range(2))
        >>> examine_end(Fit(student, teacher.responses(3).detach())).slope > 0
        True
    """
    raw, places = fit.student.get_parameter(_RAW).detach(), _places(fit.student)
    gradient, hessian = Fit(as_clipped(fit.student), fit.target).derivatives()
    inward = torch.zeros_like(gradient)
    inward[places] = torch.where(raw.abs() > _SATURATED, -raw.sign() * gradient[places], 0.0)
    held = inward > _FLAT
    free = ~held
    lowest = float(torch.linalg.eigvalsh(hessian[free][:, free])[0])
    return Ending(float(gradient[free].norm()), lowest, float(inward[held].min()) if bool(held.any()) else None)


def _places(student: LinearSpectral) -> slice:
    """Return where the singular values are among all parameters."""
    start = 0
    for name, parameter in student.named_parameters():
        if name == _RAW:
            break
        start += parameter.numel()
    return slice(start, start + parameter.numel())


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
        ``end`` (of :data:`ENDS`); loss and norm of its gradient by the raw parameters, relative to the loss of a network that
        answers 0; where that vanishes above zero, the numbers of :class:`Ending`; the losses on the way.

    Example:
        >>> descend_from(1, inputs=1, units=2, outputs=1, steps=4, radius=0.1, rounds=100)["end"] in ENDS
        True
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        teacher, student = (LinearSpectral(inputs, units, outputs, radius) for _ in range(2))
    fit = Fit(student, teacher.responses(steps).detach())
    losses, gradient = _descend(fit, rounds)
    found = examine_end(fit) if losses[-1] > _ZERO and gradient < _FLAT else None
    numbers = dict.fromkeys(field.name for field in fields(Ending)) if found is None else asdict(found)
    return {"end": _name_end(losses[-1], found), "loss": losses[-1], "gradient": gradient, **numbers, "losses": losses[::10]}


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


def _name_end(loss: float, found: Ending | None) -> str:
    """Return a name of :data:`ENDS`."""
    if loss < _ZERO:
        return "global"
    if found is None or found.slope >= _FLAT or found.curvature < -_CURVED:
        return "open"
    return "local" if found.inward is None else "edge"


def judge_narrow(cells: Mapping[str, Any]) -> Judgement:
    """Judge singular values near 1, as the paper trains them."""
    return _judge(cells, "narrow/")


def judge_wide(cells: Mapping[str, Any]) -> Judgement:
    """Judge singular values that may be almost anything."""
    return _judge(cells, "wide/")


def _judge(cells: Mapping[str, Any], start: str) -> Judgement:
    """Judge by the minima found; a descent that ended in none is evidence of nothing, and keeps the claim from being seen."""
    ends = [cell["end"] for name, cell in cells.items() if name.startswith(start)]
    count = {end: ends.count(end) for end in ENDS}
    finished = len(ends) - count["open"]
    text = (
        f"{finished} of {len(ends)} descents ended in a minimum: {count['global']} at loss 0, {count['edge']} at a local "
        f"minimum on the border of the set, {count['local']} at a local minimum inside; {count['open']} did not"
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
