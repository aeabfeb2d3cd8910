"""Computed weights that are made once per step, whatever the number of parts that a batch is cut into."""

from types import TracebackType

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import ParametrizationList

from steadyrnn.constraints.sites import sites
from steadyrnn.constraints.slot import Slot

from .clipping import limited_weights

__all__ = ["HeldWeights"]


class HeldWeights:
    r"""A context in which each constraint of a model has been evaluated, once, and layers get copies of the weights.

    A copy W has no history, so each forward and backward pass ends at it. The gradients add up in it, of all parts of a batch:

    .. math:: \frac{\partial L}{\partial W} = \sum_k \frac{\partial L_k}{\partial W}

    :meth:`backward` then takes the sum through the constraint, once. That is linear, so the gradients of the raw tensors are
    those of the whole batch, up to rounding; and a limit on the entries of the sum is one on the gradient of the whole batch.

    Args:
        model: Any module.
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
        self.model, self.limit, self.compiled = model, limit, compiled
        self._pairs: list[tuple[Tensor, Tensor]] = []
        self._slots: list[Slot] = []
        self._lists: list[ParametrizationList] = []

    @property
    def copies(self) -> list[Tensor]:
        """The copies that gradients add up in, in the order of the modules."""
        return [copy for _, copy in self._pairs]

    def __enter__(self) -> "HeldWeights":
        try:
            with limited_weights(self.model, self.limit):
                for site in sites(self.model):
                    if isinstance(site.holder, Slot):
                        self._slots.append(site.holder)
                        self._pairs += site.holder.hold_weight()
                    elif not self.compiled:
                        self._hold_list(site.holder)
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
        self._pairs.clear()

    def _hold_list(self, holder: ParametrizationList) -> None:
        """Hold a weight that torch's parametrization computes at every read."""
        weight: Tensor = holder()
        copy = weight.detach().requires_grad_(weight.requires_grad)
        if weight.requires_grad:
            self._pairs.append((weight, copy))
        self._lists.append(holder)
        holder.__dict__["forward"] = lambda: copy

    def _release(self) -> None:
        for slot in self._slots:
            slot.held = None
        for holder in self._lists:
            del holder.__dict__["forward"]
        self._slots.clear()
        self._lists.clear()
