"""The unitary network that a conversion returns, and its report."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from steadyrnn.bounds.norms import input_slack
from steadyrnn.certificates.base import format_above
from steadyrnn.checks import assert_async
from steadyrnn.errors import ArgumentError
from steadyrnn.layers.rnn import RNN
from steadyrnn.layers.sequence import check_states, open_sequence

from .dilate import Ball

__all__ = ["UnitaryPart", "UnitaryRNN", "UnitaryReport"]


@dataclass(frozen=True)
class UnitaryPart:
    """One layer in one direction: extra units, spectral norm after scaling, bound on the scaled states, scaling."""

    name: str
    rank: int
    norm: float
    radius: float | None
    scaling: tuple[float, ...] | None

    def __str__(self) -> str:
        """Say it in a line."""
        radius = "" if self.radius is None else f", states within {format_above(self.radius, 4)}"
        scaled = "" if self.scaling is None else f", units scaled by {min(self.scaling):.4g} to {max(self.scaling):.4g}"
        return f"{self.name}: extra units {self.rank}, norm {format_above(self.norm)}{radius}{scaled}"


@dataclass(frozen=True)
class UnitaryReport:
    """What a conversion to a unitary network did, and what it promises.

    ``horizon`` is the number of steps it holds for (None: any), ``input_bound`` the largest 2-norm of an input (None: any).
    ``error_bound`` bounds the 2-norm of the error of every state, rounding apart: 0 where the theorem is exact.
    ``rounding_proven`` says whether the rounding of the layer's dtype is counted in the radius; else the theorem holds
    in exact arithmetic, and the radius has a factor of two in hand. ``self_check`` is the difference of outputs measured:
    relative to all of them where the theorem is exact, else the largest 2-norm.
    """

    theorem: str
    size_before: int
    size_after: int
    parts: tuple[UnitaryPart, ...]
    input_bound: float | None
    horizon: int | None
    error_bound: float
    rounding_proven: bool
    self_check: float

    @property
    def rank(self) -> int:
        """The number of extra units: the largest of all layers and directions."""
        return self.size_after - self.size_before

    @property
    def radius(self) -> float | None:
        """The largest bound on the scaled states; None where none was needed."""
        return max((part.radius for part in self.parts if part.radius is not None), default=None)

    def to_dict(self) -> dict[str, object]:
        """Return all of it as JSON can hold it."""
        return {**asdict(self), "rank": self.rank, "radius": self.radius}

    @classmethod
    def from_dict(cls, stored: Mapping[str, Any]) -> "UnitaryReport":
        """Return the report that ``to_dict`` gave.

        Example:
            >>> report = sr.to_unitary(sr.RNN(2, 3, nonlinearity="relu", transition=sr.SpectralBall(0.9)), 1.0).report
            >>> UnitaryReport.from_dict(report.to_dict()) == report
            True
        """
        values = {field.name: stored[field.name] for field in fields(cls)}
        parts = [{**part, "scaling": None if part["scaling"] is None else tuple(part["scaling"])} for part in values["parts"]]
        return cls(**{**values, "parts": tuple(UnitaryPart(**part) for part in parts)})

    def __str__(self) -> str:
        """Say it in a few lines."""
        inputs = "any input" if self.input_bound is None else f"inputs of 2-norm up to {self.input_bound:.6g}"
        steps = "any number of steps" if self.horizon is None else f"up to {self.horizon} steps"
        promise = (
            f"error at most {format_above(self.error_bound, 3)} beside rounding"
            if self.error_bound
            else "equal in exact arithmetic"
        )
        if self.radius is not None:
            promise += f", rounding {'' if self.rounding_proven else 'not '}counted in the radius"
        return "\n".join(
            [
                f"Unitary RNN of {self.size_after} units for one of {self.size_before}, by {self.theorem}",
                *(f"  {part}" for part in self.parts),
                f"  for {inputs}, {steps}: {promise}",
                f"  self-check: {'largest' if self.error_bound else 'relative'} difference {self.self_check:.3g}",
            ]
        )


class UnitaryRNN(nn.Module):
    """An RNN with an orthogonal recurrent weight, called as the layer it was made from; made by :func:`to_unitary`.

    Args:
        layer: The RNN of n + r units.
        size: n.
        scaling: d of each layer and direction, shape ``(P, n)``, or None for 1.
        rest: Where the extra units start, shape ``(P, r)``.
        balls: For each layer and direction the set in which ``hx`` may lie; None where it may be anything.
        report: What was done.

    Example:
        >>> rnn = sr.RNN(2, 3, nonlinearity="relu", transition=sr.SpectralBall(0.9))
        >>> unitary = sr.to_unitary(rnn, input_bound=1.0)
        >>> output, h_n = unitary(0.5 * torch.ones(5, 1, 2))
        >>> output.shape, h_n.shape, unitary.layer.hidden_size
        (torch.Size([5, 1, 3]), torch.Size([1, 1, 3]), 6)
    """

    scaling: Tensor | None
    rest: Tensor
    gauge: Tensor
    allowed: Tensor

    def __init__(
        self, layer: RNN, size: int, scaling: Tensor | None, rest: Tensor, balls: Sequence[Ball | None], report: UnitaryReport
    ) -> None:
        super().__init__()
        self.layer = layer
        self.hidden_size = size
        self.report = report
        like, places = layer.weight_ih_l0, [ball for ball in balls if ball is not None]
        self.order = places[0].order if places else 2.0
        gauge = torch.ones(len(balls), size, dtype=torch.float64, device="cpu")
        allowed = torch.full((len(balls),), math.inf, dtype=torch.float64, device="cpu")
        for place, ball in enumerate(balls):
            if ball is not None:
                gauge[place], allowed[place] = ball.gauge, ball.initial * (1 + 1e-12)
        self.register_buffer("scaling", None if scaling is None else scaling.to(like))
        self.register_buffer("rest", rest.to(like))
        self.register_buffer("gauge", gauge.to(like.device))
        self.register_buffer("allowed", allowed.to(like.device))

    @classmethod
    def empty(cls, layer: RNN, report: UnitaryReport, scaled: bool, order: float) -> "UnitaryRNN":
        """Return a network without weights, into which the state dict of a converted one is loaded.

        Args:
            layer: An RNN of n + r units.
            report: Of the conversion.
            scaled: Whether units are scaled.
            order: Of the norm in which initial states are measured.
        """
        places, size = len(report.parts), report.size_before
        scaling = torch.ones(places, size, device="cpu") if scaled else None
        made = cls(layer, size, scaling, torch.zeros(places, report.rank, device="cpu"), [None] * places, report)
        made.order = order
        return made

    def forward(
        self, input: Tensor | PackedSequence, hx: Tensor | None = None, lengths: Tensor | Sequence[int] | None = None
    ) -> tuple[Tensor | PackedSequence, Tensor]:
        """Run the unitary layer; arguments and results are those of the layer it was made from.

        Raises:
            ArgumentError: An input, ``hx`` or the number of steps is beyond what the conversion holds for.
        """
        opened, batched = open_sequence(input, lengths, self.layer.batch_first)
        self._check_input(opened.data)
        if hx is not None:
            places, rows = len(self.rest), opened.data.shape[1]
            expected = (places, rows, self.hidden_size) if batched else (places, self.hidden_size)
            check_states((hx,), expected, self.layer.weight_ih_l0)
            hx = self.enlarged(hx)
        output, h_n = self.layer(input, hx, lengths=lengths)
        if isinstance(output, PackedSequence):
            data = self._first(output.data)
            return PackedSequence(data, output.batch_sizes, output.sorted_indices, output.unsorted_indices), self._states(h_n)
        return self._first(output), self._states(h_n)

    def extra_repr(self) -> str:
        """Show the sizes."""
        return f"hidden_size={self.hidden_size}, rank={self.report.rank}"

    def _check_input(self, data: Tensor) -> None:
        """Refuse inputs (T, B, D) larger or longer than the report says."""
        report = self.report
        if report.horizon is not None and data.shape[0] > report.horizon:
            raise ArgumentError(
                f"`input` has {data.shape[0]} steps, but this unitary network holds for {report.horizon}. "
                "Convert with a larger `horizon`."
            )
        if report.input_bound is None or data.numel() == 0:
            return
        norms = torch.linalg.vector_norm(data, dim=-1, dtype=torch.float64 if data.dtype == torch.float64 else torch.float32)
        bound = report.input_bound * input_slack(data.shape[-1], data.dtype)
        _refuse_above(norms, torch.full_like(norms, bound), "input", "2-norm", "input_bound")

    def enlarged(self, hx: Tensor) -> Tensor:
        """Return a user's initial state (P, [B,] n) in the units of the layer, (P, [B,] n + r)."""
        inner = [1] * (hx.dim() - 2)
        sizes = hx.double() * self.gauge.view(len(self.gauge), *inner, -1)
        norms = torch.linalg.vector_norm(sizes, self.order, dim=-1)  # (P, [B])
        kind = "2-norm" if self.order == 2 else "largest entry"
        _refuse_above(norms, self.allowed.view(-1, *inner).expand_as(norms), "hx", f"(scaled) {kind}", "initial_bound")
        if self.scaling is not None:
            hx = hx * self.scaling.view(len(self.scaling), *inner, -1)
        rest = self.rest.to(hx.dtype).view(len(self.rest), *inner, -1).expand(*hx.shape[:-1], -1)
        return torch.cat([hx, rest], dim=-1)

    def _first(self, output: Tensor) -> Tensor:
        """Return the original units of outputs (..., directions * (n + r))."""
        ways = self.layer.directions
        units: Tensor = output.unflatten(-1, (ways, self.layer.hidden_size))[..., : self.hidden_size]
        if self.scaling is not None:
            units = units / self.scaling[-ways:].to(units.dtype)
        return units.flatten(-2)

    def _states(self, h_n: Tensor) -> Tensor:
        """Return the original units of final states (P, [B,] n + r)."""
        units = h_n[..., : self.hidden_size]
        if self.scaling is None:
            return units
        return units / self.scaling.view(len(self.scaling), *[1] * (units.dim() - 2), -1).to(units.dtype)


def _refuse_above(norms: Tensor, bounds: Tensor, name: str, kind: str, argument: str) -> None:
    """Refuse norms above their bounds; NaN is not, and stays in its row."""
    above = norms > bounds
    if torch.compiler.is_compiling():
        assert_async(~above.any(), f"`{name}` is larger than this unitary network holds for; see `{argument}`")
    elif bool(above.any()):
        worst = int((norms - bounds).where(above, -math.inf).argmax())
        most, bound = float(norms.flatten()[worst]), float(bounds.flatten()[worst])
        raise ArgumentError(
            f"`{name}` must have {kind} at most {bound:.6g}, but has {most:.6g}: beyond it the extra units may wake. "
            f"Convert with a larger `{argument}`."
        )
