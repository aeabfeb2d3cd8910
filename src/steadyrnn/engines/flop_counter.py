"""What a run counts for in torch's flop counter, which sees an op as one call; the counter is not imported for this."""

import sys
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from steadyrnn.gpu.torch_private import dispatch_modes

__all__ = ["backward_flops", "forward_flops", "list_flops", "teach_flop_counters"]

_FORMULAS: dict[Any, Any] = {}  # by op, as torch's counter has them
_MODULE = "torch.utils.flop_counter"


def recurrent_flops(recurrent: Sequence[Tensor]) -> int:
    """Return the multiplications and additions of one row's product with a recurrent weight, dense or in factors.

    Example:
        >>> recurrent_flops([torch.ones(6, 2)]), recurrent_flops([torch.ones(4), torch.ones(4, 1), torch.ones(4, 1)])
        (24, 16)
    """
    return sum(2 * tensor.shape[0] * tensor.shape[1] for tensor in recurrent if tensor.dim() == 2)


def forward_flops(x: Tensor, weight_ih: Tensor, state: Any, recurrent: Sequence[Tensor], *_: Any, **__: Any) -> int:
    r"""Return :math:`2 T B (G H D + G H^2)`, or less where a gate is in factors: all products of the reference loop.

    As in torch's own formulas, what is not a product is not counted; rows of any length count as full ones.

    Example:
        >>> forward_flops(torch.ones(5, 2, 3), torch.ones(4, 3), [], [torch.ones(4, 4)])
        560
    """
    steps, rows, width = x.shape
    return steps * rows * (2 * weight_ih.shape[0] * width + recurrent_flops(recurrent))


def backward_flops(
    x: Tensor, weight_ih: Tensor, state: Any, recurrent: Sequence[Tensor], bias_ih: Any, bias_hh: Any, theta: Any, sizes: Any,
    done: Any, grads: Any, cell: str, reverse: bool, recompute: bool, needs_input: bool, **_: Any,
) -> int:  # fmt: skip
    """Return twice the forward products, less those for the input's gradient where nobody wants it, plus a run again.

    Example:
        >>> given = (torch.ones(5, 2, 3), torch.ones(4, 3), [], [torch.ones(4, 4)], None, None, None, None, [], [], "lstm")
        >>> backward_flops(*given, False, False, True), backward_flops(*given, False, False, False)
        (1120, 880)
    """
    steps, rows, width = x.shape
    outside = 2 * weight_ih.shape[0] * width * (2 if needs_input else 1)
    again = forward_flops(x, weight_ih, state, recurrent) if recompute else 0
    return steps * rows * (outside + 2 * recurrent_flops(recurrent)) + again


def list_flops(name: str) -> None:
    """Note the formulas of the ops ``steadyrnn::name`` and ``steadyrnn::name_backward``, for when a counter is there."""
    _FORMULAS[getattr(torch.ops.steadyrnn, name)] = forward_flops
    _FORMULAS[getattr(torch.ops.steadyrnn, f"{name}_backward")] = backward_flops
    teach_flop_counters()


def teach_flop_counters() -> None:
    """Give every formula to torch's table, if that is loaded, and to the counters that are counting now.

    Example:
        >>> teach_flop_counters()
    """
    module = sys.modules.get(_MODULE)
    if module is None:
        return
    module.flop_registry.update(_FORMULAS)
    for mode in dispatch_modes():
        counter = getattr(mode, "counter", None)
        if isinstance(counter, module.FlopCounterMode):  # which took a copy of the table when it was made
            counter.flop_registry.update(_FORMULAS)
