"""The affine layer."""

import math
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from steadyrnn.checks import check_flag, check_positive_int, check_weight, refuse_quantization, refuse_script
from steadyrnn.constraints.base import Constraint
from steadyrnn.constraints.computed import as_computed
from steadyrnn.constraints.free import Free
from steadyrnn.constraints.held import Holder
from steadyrnn.constraints.registry import as_constraint
from steadyrnn.constraints.slot import Slot
from steadyrnn.errors import ArgumentTypeError, DtypeError, ShapeError

from .sequence import check_input

__all__ = ["Linear"]


class Linear(Holder):
    r"""A drop-in for :class:`torch.nn.Linear` whose weight, square or not, stays in a chosen set of matrices.

    .. math:: y = x W^\top + b

    With singular values of W in :math:`[\alpha, \beta]`, :math:`\lVert y - y' \rVert \le \beta \lVert x - x' \rVert`,
    and a gradient on its way back through the layer grows by at most :math:`\beta` too (W and its transpose have the
    same singular values); it keeps at least :math:`\alpha` of its length if W has at least as many columns as rows. The
    constraint is evaluated once per forward call, outside autocast; the product runs under autocast as torch's does.

    A free weight is the parameter ``weight``: torch's state dict loads, and the same seed gives torch's first weights.
    A constrained one is computed on read and assigned through the constraint's right inverse; its state-dict keys are
    ``slot.raw0``, ``slot.raw1``, ... and ``slot.constraint.*`` where the constraint has buffers.

    Args:
        in_features: N, at least 1.
        out_features: M, at least 1.
        bias: Whether to add a vector.
        device: Where parameters live.
        dtype: Their dtype.
        weight: The set: a name or a constraint. A constraint is a template. ``"free"`` is torch's layer.

    Example:
        >>> linear = sr.Linear(4, 3, weight=sr.Spectral(center=0.5, radius=0.25))
        >>> linear(torch.ones(2, 4)).shape
        torch.Size([2, 3])
        >>> torch.linalg.svdvals(linear.weight.detach()).round(decimals=4)
        tensor([0.5000, 0.5000, 0.5000])
        >>> linear.weight = torch.eye(3, 4) / 2

    References:
        Zhang, Lei, Dhillon. Stabilizing Gradients for Deep Neural Networks via Efficient SVD Parameterization.
        ICML 2018 (section 5, rectangular weights). https://arxiv.org/abs/1803.09327
    """

    bias: Tensor | None

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
        *,
        weight: str | Constraint = "spectral",
    ) -> None:
        super().__init__()
        self.in_features = check_positive_int("in_features", in_features)
        self.out_features = check_positive_int("out_features", out_features)
        constraint, shape = as_constraint("weight", weight), (self.out_features, self.in_features)
        self._first = constraint.init if isinstance(constraint, Free) else None
        if self._first is not None:
            self.register_parameter("weight", nn.Parameter(torch.empty(shape, device=device, dtype=dtype)))
        else:
            self.slot = Slot(constraint, *shape, device, dtype)
            self.slot.dense = True
            self.hold(["weight"], "it is computed from the raw tensors of `slot`")
        vector = nn.Parameter(torch.empty(self.out_features, device=device, dtype=dtype)) if check_flag("bias", bias) else None
        self.register_parameter("bias", vector)
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        r"""Draw afresh: torch's uniform :math:`\pm 1/\sqrt{N}`, or the constraint's first weight."""
        if self._first is None:
            self.slot.reset()
        elif self._first == "torch":
            nn.init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        elif not self.weight.is_meta:
            self.weight.copy_(Free(self._first).sample(self.out_features, self.in_features, self.weight.device))
        if self.bias is not None:
            bound = 1 / math.sqrt(self.in_features)
            self.bias.uniform_(-bound, bound)

    def weight_set(self) -> Constraint:
        """Return the set that the weight stays in, as the argument ``weight`` takes it."""
        return Free(self._first) if self._first is not None else self.slot.constraint

    def __prepare_scriptable__(self) -> NoReturn:
        """Refuse ``torch.jit.script``, which asks this before anything else."""
        refuse_script(self)

    def __getattr__(self, name: str) -> Any:
        """Compute ``weight`` on read, where it is constrained."""
        if name == "weight":
            slot = self.__dict__.get("_modules", {}).get("slot")
            if slot is not None:
                return as_computed(slot.weight())
        return super().__getattr__(name)

    def __setattr__(self, name: str, value: Any) -> None:
        """Assign ``weight`` through the constraint's right inverse, where it is constrained."""
        if name == "qconfig":  # what torch.ao.quantization sets on every module it walks over
            refuse_quantization(self)
        if name == "weight":
            slot = self.__dict__.get("_modules", {}).get("slot")
            if slot is not None:
                if not isinstance(value, Tensor):
                    raise ArgumentTypeError(f"`weight` must be a tensor, but is of type {type(value).__name__}.")
                slot.assign(check_weight("weight", value))
                return
            if isinstance(value, Tensor):
                check_weight("weight", value)
        super().__setattr__(name, value)

    def forward(self, input: Tensor) -> Tensor:
        """Return the image of ``input``: shape (..., N) becomes (..., M)."""
        if not isinstance(input, Tensor):
            raise ArgumentTypeError(f"`input` must be a tensor, but is of type {type(input).__name__}.")
        if input.dim() == 0 or input.shape[-1] != self.in_features:
            raise ShapeError(
                f"`input` must have {self.in_features} features (in_features) in its last dimension, "
                f"but has shape {tuple(input.shape)}."
            )
        slot = self._modules.get("slot")
        weight = slot.weight() if isinstance(slot, Slot) else self.weight
        check_input(self, input, weight)
        if (input.dtype == torch.float64) != (weight.dtype == torch.float64):
            raise DtypeError(
                f"`input` has dtype {input.dtype} and the weight {weight.dtype}, and autocast leaves float64 alone. "
                f"Convert the input, input.to({weight.dtype}), or the Linear, .to({input.dtype})."
            )
        return nn.functional.linear(input, weight, self.bias)

    def extra_repr(self) -> str:
        """Show the arguments, as torch does."""
        return f"in_features={self.in_features}, out_features={self.out_features}, bias={self.bias is not None}"
