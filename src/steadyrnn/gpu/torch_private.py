"""Names of torch's private API that the package uses: the one place to look at when a version of torch changes them.

They are torch's own objects, so that a call costs no more than before. Those that packages which may not import ``gpu`` need
as well are in :mod:`steadyrnn.checks`. What only some versions have is looked up by
:func:`~steadyrnn.gpu.nvrtc.is_there`.
"""

from collections.abc import Callable

import torch
from torch._C import _AutoDispatchBelowAutograd as BelowAutograd
from torch._C import _get_dispatch_mode as get_dispatch_mode
from torch._C import _len_torch_dispatch_stack as count_dispatch_modes
from torch._C import _TorchDispatchModeKey as DispatchModeKey
from torch._ops import OpOverloadPacket
from torch._ops import _OpNamespace as OpNamespace
from torch.cuda import _utils as driver
from torch.utils._python_dispatch import _disable_current_modes as disable_dispatch_modes
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack as dispatch_modes

from steadyrnn.checks import is_legacy_batchedtensor, peek_interpreter_stack

__all__ = [
    "BelowAutograd",
    "DispatchModeKey",
    "OpNamespace",
    "OpOverloadPacket",
    "count_dispatch_modes",
    "current_raw_stream",
    "disable_dispatch_modes",
    "dispatch_modes",
    "driver",
    "flatten_cudnn_weights",
    "get_dispatch_mode",
    "is_legacy_batchedtensor",
    "peek_interpreter_stack",
]


current_raw_stream: Callable[[int], int] | None = getattr(torch._C, "_cuda_getCurrentRawStream", None)
"""Give the address of the current stream of a device; None where torch was built without CUDA."""

flatten_cudnn_weights = torch._cudnn_rnn_flatten_weight
"""Copy the weights of a layer into one buffer, as cuDNN reads them."""
