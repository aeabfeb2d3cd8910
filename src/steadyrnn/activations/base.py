"""What an activation is: its value, its derivative, and the facts that engines, certificates and conversions read."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from steadyrnn.errors import ArgumentError

__all__ = ["ACTIVATION_CLASSES", "Activation", "LearnedCoordinates", "activation_class", "activation_from_key"]

ACTIVATION_CLASSES: dict[str, type["Activation"]] = {}
"""The class of each name, a user's own included; the one defined last where a class is defined anew."""
_OWN_FUNCTION = ("kernel", "cudnn_mode", "torch_name", "onnx_name")
"""What says that others compute this very function: a subclass, which may compute another, does not inherit it."""
_OF_THE_FUNCTION = (
    "from_output", "elementwise", "bounded_by", "kinks", "homogeneous", "lower_limit", "tail_rate", "kernel_argument",
    "value_", "pullback", "steepest_near", "slope_bounds", "coordinates",
)  # fmt: skip
"""What holds of one function only: a subclass with another ``value`` gets the defaults of these, where it gives none."""
_REQUIRED = ("derivative", "slopes", "steepness", "smoothness")


class LearnedCoordinates(NamedTuple):
    r"""What a layer has to hold for an activation that acts in learned coordinates, :math:`S^{-1} \varphi(S x)`.

    With :math:`S = V \operatorname{diag}(d)`, V orthogonal.

    Attributes:
        basis: ``"full"`` for a learned V, ``"diagonal"`` for the identity.
        start: The first value of every entry of d.
        scales: The range that every entry of d is kept in.
        inner: :math:`\varphi`, which engines run.
    """

    basis: str
    start: float
    scales: tuple[float, float]
    inner: "Activation"


@dataclass(frozen=True)
class Activation(ABC):
    r"""A function :math:`\varphi` applied to a pre-activation, with what can be proven from it.

    To add one, subclass it as a frozen dataclass whose fields (if any) are numbers. Give it the four class attributes
    without a default. Those with a default are facts which, where they are left out, are not made use of. Engines and
    certificates rely on every fact that is given: a wrong one gives a wrong proof. A subclass of another activation that
    overrides ``value`` inherits none of the facts, and must give the four attributes and ``derivative`` again.

    Attributes:
        name: Unique among activations.
        slopes: The closed range of :math:`\varphi'`.
        steepness: The range :math:`[\beta, \gamma]` of :math:`|\varphi'|`.
        smoothness: The supremum of :math:`|\varphi''|`, infinite at a kink.
        from_output: Whether the derivative can be read off the output, so that engines need not keep the pre-activation.
        elementwise: Whether each entry of the value depends on the same entry of the argument only.
        bounded_by: The supremum of :math:`|\varphi|`. Certificates bound the state by it.
        kinks: Where a piecewise linear function bends; empty for any other function.
        homogeneous: Whether :math:`\varphi(c x) = c \varphi(x)` for every :math:`c > 0`.
        lower_limit: The limit at minus infinity of a function that saturates there exponentially, else None.
        tail_rate: The r for which such a function is within a constant times :math:`e^{r x}` of its lower limit.
        kernel: The name under which our kernels know this very function, None if they do not.
        kernel_argument: The number that its kernels take, as the slope of a leaky rectifier.
        cudnn_mode: cuDNN's number for an Elman cell with this function, None if it has none.
        torch_name: What ``torch.nn.RNN`` calls it, None if it has none.
        onnx_name: What ONNX's recurrent operators call it, None if they have none.
        coordinates: What the layer has to hold, of an activation that acts in learned coordinates; None of every other.

    Example:
        >>> @dataclass(frozen=True)
        ... class Softsign(Activation):
        ...     name = "softsign"
        ...     slopes, steepness, smoothness = (0.0, 1.0), (0.0, 1.0), 2.0
        ...     def value(self, x, theta=None):
        ...         return x / (1 + x.abs())
        ...     def derivative(self, x):
        ...         return (1 + x.abs()) ** -2
        >>> Softsign().value(torch.tensor([1.0]))
        tensor([0.5000])
    """

    name: ClassVar[str]
    slopes: ClassVar[tuple[float, float]]
    steepness: ClassVar[tuple[float, float]]
    smoothness: ClassVar[float]
    from_output: ClassVar[bool] = False
    elementwise: ClassVar[bool] = True
    bounded_by: ClassVar[float] = math.inf
    kinks: ClassVar[tuple[float, ...]] = ()
    homogeneous: ClassVar[bool] = False
    lower_limit: ClassVar[float | None] = None
    tail_rate: ClassVar[float | None] = None
    kernel: ClassVar[str | None] = None
    kernel_argument: ClassVar[float] = 0.0
    cudnn_mode: ClassVar[int | None] = None
    torch_name: ClassVar[str | None] = None
    onnx_name: ClassVar[str | None] = None
    coordinates: ClassVar[LearnedCoordinates | None] = None

    def __init_subclass__(cls) -> None:
        """List the class, so that a custom op can find it again from its key."""
        for fact in _OWN_FUNCTION:
            if fact not in cls.__dict__:
                setattr(cls, fact, None)
        if "value" in cls.__dict__:
            cls._forget_other_functions()
        name = cls.__dict__.get("name")
        if name is None:
            return
        known = ACTIVATION_CLASSES.get(name)
        if known is not None and (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
            raise ArgumentError(f"`name` {name!r} of {cls.__qualname__} is taken by {known.__module__}.{known.__qualname__}.")
        ACTIVATION_CLASSES[name] = cls

    @classmethod
    def _forget_other_functions(cls) -> None:
        """Drop what is inherited from an activation with another value: it says nothing about this one."""
        others = [base for base in cls.__mro__[1:] if issubclass(base, Activation) and base is not Activation]
        if not any("value" in base.__dict__ for base in others):
            return
        missing = [name for name in _REQUIRED if name not in cls.__dict__]
        if missing:
            raise ArgumentError(
                f"{cls.__qualname__} overrides `value` of {others[0].__qualname__}, so it must also define "
                f"{', '.join(f'`{name}`' for name in missing)}: what holds of another function may not hold of this one."
            )
        for name in _OF_THE_FUNCTION:
            if name not in cls.__dict__:
                setattr(cls, name, Activation.__dict__[name])

    @abstractmethod
    def value(self, x: Tensor, theta: Tensor | None = None) -> Tensor:
        r"""Return :math:`\varphi(x)`, shape as ``x``; differentiable to any order by autograd.

        Args:
            x: Pre-activation, shape ``(..., H)``.
            theta: The learned parameter, for an activation that has one (see :meth:`parameter_size`).
        """

    @abstractmethod
    def derivative(self, x: Tensor) -> Tensor:
        r"""Return :math:`\varphi'` at ``x``: the pre-activation, or the output where ``from_output`` is set."""

    def value_(self, x: Tensor, theta: Tensor | None = None) -> Tensor:
        """Overwrite ``x`` by its value (no autograd): what an engine calls inside its loop."""
        return x.copy_(self.value(x, theta))

    def pullback(self, grad: Tensor, saved: Tensor, theta: Tensor | None, out: Tensor) -> Tensor | None:
        r"""Write :math:`\varphi'(x) \cdot` ``grad`` to ``out``; return the gradient of ``theta`` if there is one.

        Args:
            grad: Gradient of the value, shape ``(B, H)``.
            saved: The argument of :meth:`derivative`, shape ``(B, H)``.
            theta: The learned parameter or None.
            out: Where the gradient of the pre-activation goes, shape ``(B, H)``.
        """
        if theta is not None:
            raise ArgumentError(f"`{self.name}` has a learned parameter, so it must override `pullback` for its gradient.")
        torch.mul(grad, self.derivative(saved), out=out)
        return None

    def parameter_size(self, hidden_size: int) -> int | None:
        """Return the number of learned parameters of the activation in a layer of this width, or None."""
        return None

    def steepest_near(self, x: Tensor, radius: Tensor) -> Tensor:
        r"""Return a bound on :math:`|\varphi'|` on the interval of ``radius`` around ``x``, entry by entry.

        Args:
            x: Pre-activations.
            radius: How far they may be off, not negative; broadcast against ``x``.
        """
        return torch.full_like(x + radius, self.steepness[1])

    def slope_bounds(self, theta: Tensor | None = None) -> tuple[float, float]:
        r"""Return the least slope and the largest absolute one, for a learned parameter; infinite where it jumps."""
        return self.slopes[0], self.steepness[1]

    @property
    def key(self) -> str:
        """The name with its numbers, from which :func:`activation_from_key` builds an equal object."""
        numbers = ",".join(repr(float(getattr(self, field.name))) for field in fields(self))
        return f"{self.name}({numbers})"


def activation_from_key(key: str) -> Activation:
    """Return the activation an :attr:`Activation.key` stands for.

    Example:
        >>> activation_from_key("leaky_relu(0.1)")
        LeakyReLU(slope=0.1)
    """
    numbers = key.rstrip(")").partition("(")[2]
    return activation_class(key)(*(float(number) for number in numbers.split(",") if number))


def activation_class(key: str) -> type[Activation]:
    """Return the class of the activation that a key stands for.

    Example:
        >>> activation_class("leaky_relu(0.1)").__name__
        'LeakyReLU'
    """
    return ACTIVATION_CLASSES[key.partition("(")[0]]
