"""Computed weights that are made once per step, whatever the number of parts that a batch is cut into."""

from types import TracebackType

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import ParametrizationList

from steadyrnn.constraints.sites import sites
from steadyrnn.constraints.slot import Slot

from .clipping import computed_weights, limited_weights

__all__ = ["HeldWeights"]


class HeldWeights:
    r"""A context in which each constraint of a model has been evaluated, once, and layers get copies of the weights.

    Recurrent weights that torch computes (``torch.nn.utils.parametrizations``) are held likewise. A copy W has no history, so
    each forward and backward pass ends at it. The gradients add up in it, of all parts of a batch:

    .. math:: \frac{\partial L}{\partial W} = \sum_k \frac{\partial L_k}{\partial W}

    :meth:`backward` then takes the sum through the constraint, once. That is linear, so the gradients of the raw tensors are
    those of the whole batch, up to rounding; and a limit on the entries of the sum is one on the gradient of the whole batch.

    The context can be entered again, for the next step.

    Args:
        model: Any module, with all of its constraints in place.
        limit: The largest absolute entry of the gradient of a recurrent weight, a scalar on the device; None is no limit.
        compiled: Whether the model runs through ``torch.compile``: then weights that torch parametrizes are left to it, which
            evaluates and limits them in each pass.

    Example:
        >>> model = sr.RNN(2, 3, transition="exp")
        >>> with HeldWeights(model, None) as held:
        ...     for x in torch.randn(4, 5, 1, 2):
        ...         model(x)[0].sum().backward()
        >>> model.transition_l0.h.raw0.grad is None
        True
        >>> held.backward()
        >>> model.transition_l0.h.raw0.grad.shape
        torch.Size([3])
    """

    def __init__(self, model: nn.Module, limit: Tensor | None, compiled: bool = False) -> None:
        self.model, self.limit = model, limit
        # also what torch itself parametrizes recurrent weights by: its gradient is limited, too
        holders = dict.fromkeys([*(site.holder for site in sites(model)), *computed_weights(model)])
        self._slots = [holder for holder in holders if isinstance(holder, Slot)]
        self._lists = [holder for holder in holders if isinstance(holder, ParametrizationList) and not compiled]
        self._pairs: list[tuple[Tensor, Tensor]] = []

    @property
    def copies(self) -> list[Tensor]:
        """The copies that gradients add up in: in the same order on every rank."""
        return [copy for _, copy in self._pairs]

    def __enter__(self) -> "HeldWeights":
        self._pairs = []
        try:
            with limited_weights(self.model, self.limit):
                for slot in self._slots:
                    self._pairs += slot.hold_weight()
                for holder in self._lists:
                    self._hold_list(holder)
        except BaseException:
            self._release()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._release()

    def backward(self) -> None:
        """Take the gradients of the copies back through the constraints; those without one are passed over."""
        pairs = [(weight, copy.grad) for weight, copy in self._pairs if copy.grad is not None]
        if pairs:
            torch.autograd.backward([weight for weight, _ in pairs], [gradient for _, gradient in pairs])
        self._pairs = []

    def _hold_list(self, holder: ParametrizationList) -> None:
        """Hold a weight that torch's parametrization computes at every read."""
        weight: Tensor = holder()
        copy = weight.detach().requires_grad_(weight.requires_grad)
        if weight.requires_grad:
            self._pairs.append((weight, copy))
        holder.__dict__["forward"] = lambda: copy

    def _release(self) -> None:
        for slot in self._slots:
            slot.held = None
        for holder in self._lists:
            holder.__dict__.pop("forward", None)
