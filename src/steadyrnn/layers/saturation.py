"""Learned saturation: the coordinates in which one layer, in one direction, applies its activation."""

import math
from typing import NamedTuple

import torch
from torch import Tensor, nn

from steadyrnn.activations import Activation, Identity
from steadyrnn.activations.base import LearnedCoordinates
from steadyrnn.cells.base import State
from steadyrnn.cells.rnn import RNNStep
from steadyrnn.checks import without_autocast
from steadyrnn.constraints.cayley import CayleyOrthogonal
from steadyrnn.constraints.slot import Slot, whole
from steadyrnn.engines.base import Recurrence
from steadyrnn.engines.reference import ReferenceEngine
from steadyrnn.errors import DtypeError, SteadyError
from steadyrnn.linalg.operators import DiagonalLowRank

__all__ = ["Coordinates", "Saturation", "refuse_saturation"]


class Coordinates(NamedTuple):
    r"""The matrix :math:`S = V \operatorname{diag}(d)`, evaluated, and what a network is in :math:`h' = S h`.

    .. math:: W' = S W S^{-1}, \qquad U' = S U, \qquad b' = S b, \qquad S^{-1} = \operatorname{diag}(1/d) \, V^\top

    Everything is computed in the dtype of the scale, float32 or float64, whatever the network computes in.

    Example:
        >>> from steadyrnn.activations import Tanh
        >>> coordinates = Coordinates(torch.tensor([2.0, 4.0]), None, Tanh())
        >>> coordinates.enter(torch.ones(1, 2)), coordinates.leave(torch.ones(1, 2))
        (tensor([[2., 4.]]), tensor([[0.5000, 0.2500]]))
    """

    scale: Tensor  # d, (H,)
    rotation: Tensor | None  # V, (H, H); None is the identity
    inner: Activation

    @property
    def dtype(self) -> torch.dtype:
        """The dtype to compute in."""
        return self.scale.dtype

    def enter(self, rows: Tensor) -> Tensor:
        """Return S h for row vectors h of shape (..., H)."""
        rows = rows.to(self.dtype) * self.scale
        return rows if self.rotation is None else rows @ self.rotation.mT

    def leave(self, rows: Tensor) -> Tensor:
        """Return the h of which ``rows``, shape (..., H), are S h."""
        rows = rows.to(self.dtype)
        return (rows if self.rotation is None else rows @ self.rotation) / self.scale

    def times(self, matrix: Tensor) -> Tensor:
        """Return S M, shape (H, N)."""
        scaled = self.scale.unsqueeze(-1) * matrix.to(self.dtype)
        return scaled if self.rotation is None else self.rotation @ scaled

    def divide(self, matrix: Tensor) -> Tensor:
        """Return M times the inverse of S, shape (N, H)."""
        scaled = matrix.to(self.dtype) / self.scale
        return scaled if self.rotation is None else scaled @ self.rotation.mT

    def enter_run(self, run: Recurrence) -> Recurrence:
        """Return a recurrence in h as the one in S h, of the inner activation, in the dtype of its input.

        Raises:
            DtypeError: The dtype is float16, whose range is too small for the weights of S h.
        """
        dtype, weight = run.input.dtype, run.weight_hh
        if dtype == torch.float16:
            raise DtypeError(
                "A layer with learned saturation (adaptive_tanh) cannot run in float16: weights are scaled by d and 1 / d, "
                "which float16 cannot hold. Use bfloat16 or float32, also for autocast."
            )
        if isinstance(weight, DiagonalLowRank) and self.rotation is None:
            d = self.scale.unsqueeze(-1)
            wide = weight.to(self.dtype)
            turned: Tensor | DiagonalLowRank = DiagonalLowRank(wide.diagonal, d * wide.left, wide.right / d)
        else:
            dense = weight.dense() if isinstance(weight, DiagonalLowRank) else weight
            turned = self.times(self.divide(dense)).to(dtype)  # type: ignore[arg-type]
        bias_ih, bias_hh = (None if bias is None else self.enter(bias).to(dtype) for bias in (run.bias_ih, run.bias_hh))
        return run._replace(
            cell=RNNStep(self.inner),
            state=tuple(self.enter(state).to(dtype) for state in run.state),
            weight_ih=self.times(run.weight_ih).to(dtype),
            weight_hh=turned,
            bias_ih=bias_ih,
            bias_hh=bias_hh,
        )

    def leave_run(self, output: Tensor, final: State, start: State, sizes: Tensor | None) -> tuple[Tensor, State]:
        """Return outputs (T, B, H) and final states in h; a row of no steps keeps its ``start`` to the last digit.

        Args:
            output: In S h, shape (T, B, H).
            final: In S h, each (B, H).
            start: The initial states, in h.
            sizes: How many rows run at each time, longest first, (T,); None is all.
        """
        if output.shape[0] == 0:
            return output, start
        back = tuple(self.leave(state).to(state.dtype) for state in final)
        if sizes is not None:
            idle = (torch.arange(output.shape[1], device=output.device) >= sizes[0]).unsqueeze(-1)
            back = tuple(torch.where(idle, before, after) for before, after in zip(start, back, strict=True))
        return self.leave(output).to(output.dtype), back

    def step(self, run: Recurrence) -> State:
        r"""Return the states after one step by the formula itself, :math:`S^{-1} \varphi(S z)`: no product of matrices."""
        _, linear = ReferenceEngine().run(run._replace(cell=RNNStep(Identity())))
        return tuple(self.leave(self.inner.value(self.enter(z))).to(z.dtype) for z in linear)


class Saturation(nn.Module):
    r"""The learned :math:`S = V \operatorname{diag}(d)` of one layer in one direction.

    ``log_scale`` is the logarithm of d, whose entries are kept in a range, so that they stay positive and finite. ``basis`` is
    the slot of V, a Cayley transform that starts at the identity; None is the identity for good.

    Args:
        wanted: What the activation asks for.
        size: H.
        device: Where the parameters live.
        dtype: Their dtype.

    Example:
        >>> Saturation(sr.AdaptiveTanh(start=0.5).coordinates, 2).matrix()
        tensor([[0.5000, 0.0000],
                [0.0000, 0.5000]])
    """

    def __init__(
        self, wanted: LearnedCoordinates, size: int, device: torch.device | str | None = None, dtype: torch.dtype | None = None
    ) -> None:
        super().__init__()
        self.wanted = wanted
        self.log_scale = nn.Parameter(torch.empty(size, device=device, dtype=dtype))
        self.basis = Slot(CayleyOrthogonal(), size, size, device, dtype) if wanted.basis == "full" else None
        self._start()

    def reset(self) -> None:
        """Put every scale back to its start, and V to the identity, whatever memory held."""
        if self.basis is not None:
            self.basis.reset()
        self._start()

    @torch.no_grad()
    def _start(self) -> None:
        self.log_scale.fill_(math.log(self.wanted.start))
        if self.basis is not None:
            self.basis.raw0.zero_()

    def evaluate(self) -> Coordinates:
        """Return S as a forward uses it, differentiable, in float32 where the parameters are in half precision."""
        wide = torch.promote_types(self.log_scale.dtype, torch.float32)
        low, high = self.wanted.scales
        scale = whole(self.log_scale).to(wide).clamp(math.log(low), math.log(high)).exp()
        rotation = None if self.basis is None else self.basis.gate().to(wide)
        return Coordinates(scale, rotation, self.wanted.inner)  # type: ignore[arg-type]

    @torch.no_grad()
    def matrix(self) -> Tensor:
        """Return S, shape (H, H), in float32 or float64, also under autocast."""
        with without_autocast(self.log_scale.device):
            found = self.evaluate()
            return found.times(torch.eye(len(found.scale), dtype=found.dtype, device=found.scale.device))

    def extra_repr(self) -> str:
        """Show the basis and the first scale."""
        return f"basis={self.wanted.basis!r}, start={self.wanted.start}"


def refuse_saturation(module: nn.Module, error: type[SteadyError], what: str) -> None:
    """Refuse a layer with learned saturation where its weights would be read as those of a plain network.

    Args:
        module: Any module.
        error: What to raise.
        what: What cannot be done, as a clause: ``"it cannot be certified"``.

    Example:
        >>> refuse_saturation(sr.RNN(2, 3), ValueError, "it cannot be certified")
    """
    if any(isinstance(child, Saturation) for child in module.children()):
        raise error(
            f"This {type(module).__name__} has learned saturation (adaptive_tanh), so {what}: with its weights alone it is "
            "another network. In Python, `as_tanh()` of an `RNN` with these weights returns the equivalent network with plain "
            "tanh, in h' = S h; use that one (docs/notes/mathematics.md, 3.10)."
        )
