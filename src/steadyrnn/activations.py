"""Activations: value, derivative, slope range and smoothness in one object, read by engines and certificates alike."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import ClassVar

import torch
from torch import Tensor

from steadyrnn.errors import ArgumentError, ArgumentTypeError, not_among

__all__ = [
    "ACTIVATIONS",
    "Absolute",
    "Activation",
    "Identity",
    "LeakyReLU",
    "ModReLU",
    "ReLU",
    "Sigmoid",
    "Tanh",
    "activation_class",
    "activation_from_key",
    "as_activation",
]

_CLASSES: dict[str, type["Activation"]] = {}


@dataclass(frozen=True)
class Activation(ABC):
    r"""A function :math:`\varphi` applied to a pre-activation, with what can be proven from it.

    To add one, subclass it as a frozen dataclass whose fields (if any) are numbers, and give the class attributes
    below; every engine and certificate then takes it. ``slopes`` is the closed range of :math:`\varphi'`,
    ``steepness`` the range :math:`[\beta, \gamma]` of :math:`|\varphi'|`, ``smoothness`` the supremum of
    :math:`|\varphi''|` (infinite at a kink).

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
    """Whether the derivative can be read off the output, so that engines need not keep the pre-activation."""
    elementwise: ClassVar[bool] = True

    def __init_subclass__(cls) -> None:
        """List the class, so that a custom op can find it again from its key."""
        name = cls.__dict__.get("name")
        if name is None:
            return
        known = _CLASSES.get(name)
        if known is not None and (known.__module__, known.__qualname__) != (cls.__module__, cls.__qualname__):
            raise ArgumentError(f"`name` {name!r} of {cls.__qualname__} is taken by {known.__module__}.{known.__qualname__}.")
        _CLASSES[name] = cls

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
            saved: What :meth:`derivative` takes, shape ``(B, H)``.
            theta: The learned parameter or None.
            out: Where the gradient of the pre-activation goes, shape ``(B, H)``.
        """
        if theta is not None:
            raise ArgumentError(f"`{self.name}` has a learned parameter, so it must override `pullback` for its gradient.")
        torch.mul(grad, self.derivative(saved), out=out)
        return None

    def parameter_size(self, hidden_size: int) -> int | None:
        """Return how many learned numbers a layer of this width has for its activation, or None."""
        return None

    @property
    def key(self) -> str:
        """The name with its numbers, from which :func:`activation_from_key` builds an equal object."""
        numbers = ",".join(repr(float(getattr(self, field.name))) for field in fields(self))
        return f"{self.name}({numbers})"


@dataclass(frozen=True)
class Tanh(Activation):
    """Hyperbolic tangent; its second derivative is at most 4/(3 sqrt 3) (MATH 4.2).

    Example:
        >>> Tanh().value(torch.tensor([0.0]))
        tensor([0.])
    """

    name = "tanh"
    slopes, steepness, smoothness = (0.0, 1.0), (0.0, 1.0), 4 / (3 * math.sqrt(3))
    from_output = True

    def value(self, x: Tensor, theta: Tensor | None = None) -> Tensor:  # noqa: D102
        return x.tanh()

    def derivative(self, x: Tensor) -> Tensor:  # noqa: D102
        return 1 - x * x

    def value_(self, x: Tensor, theta: Tensor | None = None) -> Tensor:  # noqa: D102
        return x.tanh_()

    def pullback(self, grad: Tensor, saved: Tensor, theta: Tensor | None, out: Tensor) -> None:  # noqa: D102
        torch.ops.aten.tanh_backward.grad_input(grad, saved, grad_input=out)


@dataclass(frozen=True)
class Sigmoid(Activation):
    """Logistic function; slope at most 1/4, second derivative at most 1/(6 sqrt 3) (MATH 4.2).

    Example:
        >>> Sigmoid().value(torch.tensor([0.0]))
        tensor([0.5000])
    """

    name = "sigmoid"
    slopes, steepness, smoothness = (0.0, 0.25), (0.0, 0.25), 1 / (6 * math.sqrt(3))
    from_output = True

    def value(self, x: Tensor, theta: Tensor | None = None) -> Tensor:  # noqa: D102
        return x.sigmoid()

    def derivative(self, x: Tensor) -> Tensor:  # noqa: D102
        return x * (1 - x)

    def value_(self, x: Tensor, theta: Tensor | None = None) -> Tensor:  # noqa: D102
        return x.sigmoid_()

    def pullback(self, grad: Tensor, saved: Tensor, theta: Tensor | None, out: Tensor) -> None:  # noqa: D102
        torch.ops.aten.sigmoid_backward.grad_input(grad, saved, grad_input=out)


@dataclass(frozen=True)
class ReLU(Activation):
    """Rectifier; derivative 0 at 0, as in torch.

    Example:
        >>> ReLU().value(torch.tensor([-1.0, 2.0]))
        tensor([0., 2.])
    """

    name = "relu"
    slopes, steepness, smoothness = (0.0, 1.0), (0.0, 1.0), math.inf
    from_output = True

    def value(self, x: Tensor, theta: Tensor | None = None) -> Tensor:  # noqa: D102
        return x.relu()

    def derivative(self, x: Tensor) -> Tensor:  # noqa: D102
        return (x > 0).to(x.dtype)

    def value_(self, x: Tensor, theta: Tensor | None = None) -> Tensor:  # noqa: D102
        return x.relu_()

    def pullback(self, grad: Tensor, saved: Tensor, theta: Tensor | None, out: Tensor) -> None:  # noqa: D102
        torch.ops.aten.threshold_backward.grad_input(grad, saved, 0, grad_input=out)


@dataclass(frozen=True)
class LeakyReLU(Activation):
    """Rectifier that keeps ``slope`` of a negative value; ``slope`` lies in (0, 1).

    Example:
        >>> LeakyReLU(0.5).value(torch.tensor([-1.0, 2.0]))
        tensor([-0.5000,  2.0000])
    """

    slope: float = 0.01
    name = "leaky_relu"
    smoothness = math.inf
    from_output = True

    def __post_init__(self) -> None:
        """Refuse a slope for which sign and value cannot be read off the output."""
        if isinstance(self.slope, bool) or not isinstance(self.slope, int | float):
            raise ArgumentTypeError(f"`slope` must be a number, but is of type {type(self.slope).__name__}.")
        if not 0 < self.slope < 1:
            raise ArgumentError(f"`slope` must lie between 0 and 1, but is {self.slope}. For 0 use ReLU, for 1 Identity.")

    @property
    def slopes(self) -> tuple[float, float]:  # type: ignore[override]
        """The range of the derivative."""
        return (self.slope, 1.0)

    @property
    def steepness(self) -> tuple[float, float]:  # type: ignore[override]
        """The range of the derivative's absolute value."""
        return (self.slope, 1.0)

    def value(self, x: Tensor, theta: Tensor | None = None) -> Tensor:  # noqa: D102
        return torch.nn.functional.leaky_relu(x, self.slope)

    def derivative(self, x: Tensor) -> Tensor:  # noqa: D102
        return torch.full_like(x, self.slope).masked_fill(x > 0, 1.0)

    def value_(self, x: Tensor, theta: Tensor | None = None) -> Tensor:  # noqa: D102
        return torch.nn.functional.leaky_relu_(x, self.slope)

    def pullback(self, grad: Tensor, saved: Tensor, theta: Tensor | None, out: Tensor) -> None:  # noqa: D102
        torch.ops.aten.leaky_relu_backward.grad_input(grad, saved, self.slope, True, grad_input=out)


@dataclass(frozen=True)
class Absolute(Activation):
    r"""Absolute value, with derivative +1 at 0.

    The usual convention :math:`\operatorname{sign}(0) = 0` kills the gradient of a state that is exactly zero;
    with +1 the slope is always :math:`\pm 1`, and an orthogonal network keeps its gradient norm (MATH 3.4).

    Example:
        >>> x = torch.zeros(1, requires_grad=True)
        >>> torch.autograd.grad(Absolute().value(x), x)
        (tensor([1.]),)
    """

    name = "abs"
    slopes, steepness, smoothness = (-1.0, 1.0), (1.0, 1.0), math.inf

    def value(self, x: Tensor, theta: Tensor | None = None) -> Tensor:  # noqa: D102
        return torch.where(x < 0, -x, x)

    def derivative(self, x: Tensor) -> Tensor:  # noqa: D102
        return torch.where(x < 0, -1.0, 1.0).to(x.dtype)

    def value_(self, x: Tensor, theta: Tensor | None = None) -> Tensor:  # noqa: D102
        return x.abs_()


@dataclass(frozen=True)
class Identity(Activation):
    """No activation: a linear recurrence.

    Example:
        >>> Identity().value(torch.tensor([-1.0]))
        tensor([-1.])
    """

    name = "identity"
    slopes, steepness, smoothness = (1.0, 1.0), (1.0, 1.0), 0.0
    from_output = True

    def value(self, x: Tensor, theta: Tensor | None = None) -> Tensor:  # noqa: D102
        return x

    def derivative(self, x: Tensor) -> Tensor:  # noqa: D102
        return torch.ones_like(x)

    def value_(self, x: Tensor, theta: Tensor | None = None) -> Tensor:  # noqa: D102
        return x

    def pullback(self, grad: Tensor, saved: Tensor, theta: Tensor | None, out: Tensor) -> None:  # noqa: D102
        out.copy_(grad)


@dataclass(frozen=True)
class ModReLU(Activation):
    r"""modReLU on the pairs (j, j + H/2), read as one complex number each.

    .. math:: \varphi(z) = \max(|z| + \theta, 0) \, z / |z|, \qquad \varphi(0) = 0

    One learned real :math:`\theta` a pair. For :math:`\theta \le 0` it is 1-Lipschitz in the 2-norm: it moves every
    point along its ray, by a shifted rectifier of the radius. For :math:`\theta > 0` the phase jumps at 0 and
    it is not. ``slopes`` and ``steepness`` are those of the first case; it is not elementwise (MATH 3.9).

    Example:
        >>> ModReLU().value(torch.tensor([3.0, 4.0]), torch.tensor([-1.0]))
        tensor([2.4000, 3.2000])

    References:
        Arjovsky, Shah, Bengio. Unitary Evolution Recurrent Neural Networks. ICML 2016.
    """

    name = "modrelu"
    slopes, steepness, smoothness = (0.0, 1.0), (0.0, 1.0), math.inf
    elementwise = False

    def value(self, x: Tensor, theta: Tensor | None = None) -> Tensor:  # noqa: D102
        z, radius, unit, zero = _polar(x)
        shift = x.new_zeros(()) if theta is None else theta
        silent = zero | (radius + shift <= 0)  # so written, NaN is not silent
        return torch.cat(tuple(torch.where(silent, 0.0, z + shift * unit)), dim=-1)

    def derivative(self, x: Tensor) -> Tensor:
        """Raise: the derivative is a 2 x 2 block a pair, not a number an entry."""
        raise ArgumentError("`modrelu` is not elementwise: its derivative is a matrix; use `pullback`.")

    def pullback(self, grad: Tensor, saved: Tensor, theta: Tensor | None, out: Tensor) -> Tensor | None:
        r"""Write the pullback; with :math:`e = z/|z|`, the radial part is kept where active, the rest is scaled."""
        _, radius, unit, zero = _polar(saved)
        g = torch.stack(grad.chunk(2, dim=-1))  # (2, B, H/2)
        shift = grad.new_zeros(()) if theta is None else theta
        silent = zero | (radius + shift <= 0)
        radial = (g * unit).sum(0)  # (B, H/2)
        bent = g + shift / radius * (g - radial * unit)
        torch.cat(tuple(torch.where(silent, 0.0, bent)), dim=-1, out=out)
        return torch.where(silent, 0.0, radial).sum(0)

    def parameter_size(self, hidden_size: int) -> int:  # noqa: D102
        if hidden_size % 2:
            raise ArgumentError(f"`hidden_size` must be even for `modrelu`, which acts on pairs, but is {hidden_size}.")
        return hidden_size // 2


def _polar(x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return pairs z as (2, ..., H/2), their radius, unit vector, and where they are zero (or denormal).

    Scaled by the larger part, which neither radius nor unit vector depends on, so that no square over- or underflows;
    a zero pair gets a radius that keeps every derivative finite.
    """
    z = torch.stack(x.chunk(2, dim=-1))
    scale = z.detach().abs().amax(0)
    zero = scale < torch.finfo(x.dtype).tiny
    scale = torch.where(zero, 1.0, scale)
    scaled = torch.where(zero, 1.0, z / scale)
    length = (scaled * scaled).sum(0).sqrt()  # from 1 to sqrt 2
    return z, scale * length, scaled / length, zero


ACTIVATIONS: dict[str, type[Activation]] = {
    cls.name: cls for cls in (Tanh, ReLU, LeakyReLU, Absolute, Identity, Sigmoid, ModReLU)
}


def as_activation(nonlinearity: str | Activation, name: str = "nonlinearity") -> Activation:
    """Return the activation of this name, or the object itself; ``name`` is the argument's, for the error.

    Example:
        >>> as_activation("relu")
        ReLU()
    """
    if isinstance(nonlinearity, Activation):
        if _CLASSES.get(nonlinearity.name) is not type(nonlinearity):
            raise ArgumentError(
                f"`{name}` is a {type(nonlinearity).__qualname__}, but the name {nonlinearity.name!r} belongs to "
                "another class. Give every activation a `name` of its own."
            )
        return nonlinearity
    if not isinstance(nonlinearity, str):
        raise ArgumentTypeError(f"`{name}` must be a name or an `Activation`, but is of type {type(nonlinearity).__name__}.")
    if nonlinearity not in ACTIVATIONS:
        raise ArgumentError(not_among(name, nonlinearity, ACTIVATIONS))
    return ACTIVATIONS[nonlinearity]()


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
    return _CLASSES[key.partition("(")[0]]
