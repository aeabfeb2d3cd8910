"""Activations that map each entry by itself."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from steadyrnn.errors import ArgumentError, ArgumentTypeError

from .base import Activation

__all__ = ["Absolute", "Identity", "LeakyReLU", "ReLU", "Sigmoid", "Tanh"]


def _slope_nearest_zero(self: Activation, x: Tensor, radius: Tensor) -> Tensor:
    """Return the slope at the point nearest to 0: it is flatter the farther it is from there."""
    nearest = (x.abs() - radius).clamp(min=0)
    return self.derivative(self.value(nearest)).clamp(max=self.steepness[1])


def _slope_at_largest(self: Activation, x: Tensor, radius: Tensor) -> Tensor:
    """Return the slope above 0 where any point of the interval is above 0, else the one below."""
    low, high = self.steepness
    return torch.where(x + radius > 0, high, low).to(x.dtype)


@dataclass(frozen=True)
class Tanh(Activation):
    """Hyperbolic tangent; its second derivative is at most 4/(3 sqrt 3).

    Example:
        >>> Tanh().value(torch.tensor([0.0]))
        tensor([0.])
    """

    name = "tanh"
    slopes, steepness, smoothness = (0.0, 1.0), (0.0, 1.0), 4 / (3 * math.sqrt(3))
    from_output, bounded_by, lower_limit, tail_rate = True, 1.0, -1.0, 2.0
    kernel, cudnn_mode, torch_name, onnx_name = "tanh", 1, "tanh", "Tanh"

    def value(self, x: Tensor, theta: Tensor | None = None) -> Tensor:  # noqa: D102
        return x.tanh()

    def derivative(self, x: Tensor) -> Tensor:  # noqa: D102
        return 1 - x * x

    def value_(self, x: Tensor, theta: Tensor | None = None) -> Tensor:  # noqa: D102
        return x.tanh_()

    def pullback(self, grad: Tensor, saved: Tensor, theta: Tensor | None, out: Tensor) -> None:  # noqa: D102
        torch.ops.aten.tanh_backward.grad_input(grad, saved, grad_input=out)

    steepest_near = _slope_nearest_zero


@dataclass(frozen=True)
class Sigmoid(Activation):
    """Logistic function; slope at most 1/4, second derivative at most 1/(6 sqrt 3).

    Example:
        >>> Sigmoid().value(torch.tensor([0.0]))
        tensor([0.5000])
    """

    name = "sigmoid"
    slopes, steepness, smoothness = (0.0, 0.25), (0.0, 0.25), 1 / (6 * math.sqrt(3))
    from_output, bounded_by, lower_limit, tail_rate = True, 1.0, 0.0, 1.0
    kernel, onnx_name = "sigmoid", "Sigmoid"

    def value(self, x: Tensor, theta: Tensor | None = None) -> Tensor:  # noqa: D102
        return x.sigmoid()

    def derivative(self, x: Tensor) -> Tensor:  # noqa: D102
        return x * (1 - x)

    def value_(self, x: Tensor, theta: Tensor | None = None) -> Tensor:  # noqa: D102
        return x.sigmoid_()

    def pullback(self, grad: Tensor, saved: Tensor, theta: Tensor | None, out: Tensor) -> None:  # noqa: D102
        torch.ops.aten.sigmoid_backward.grad_input(grad, saved, grad_input=out)

    steepest_near = _slope_nearest_zero


@dataclass(frozen=True)
class ReLU(Activation):
    """Rectifier; derivative 0 at 0, as in torch.

    Example:
        >>> ReLU().value(torch.tensor([-1.0, 2.0]))
        tensor([0., 2.])
    """

    name = "relu"
    slopes, steepness, smoothness = (0.0, 1.0), (0.0, 1.0), math.inf
    from_output, kinks, homogeneous = True, (0.0,), True
    kernel, cudnn_mode, torch_name, onnx_name = "relu", 0, "relu", "Relu"

    def value(self, x: Tensor, theta: Tensor | None = None) -> Tensor:  # noqa: D102
        return x.relu()

    def derivative(self, x: Tensor) -> Tensor:  # noqa: D102
        return (x > 0).to(x.dtype)

    def value_(self, x: Tensor, theta: Tensor | None = None) -> Tensor:  # noqa: D102
        return x.relu_()

    def pullback(self, grad: Tensor, saved: Tensor, theta: Tensor | None, out: Tensor) -> None:  # noqa: D102
        torch.ops.aten.threshold_backward.grad_input(grad, saved, 0, grad_input=out)

    steepest_near = _slope_at_largest


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
    from_output, kinks, homogeneous = True, (0.0,), True
    kernel, onnx_name = "leaky_relu", "LeakyRelu"

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
    def kernel_argument(self) -> float:  # type: ignore[override]
        """The slope below 0."""
        return float(self.slope)

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

    steepest_near = _slope_at_largest


@dataclass(frozen=True)
class Absolute(Activation):
    r"""Absolute value, with derivative +1 at 0.

    The usual convention :math:`\operatorname{sign}(0) = 0` kills the gradient of a state that is exactly zero;
    with +1 the slope is always :math:`\pm 1`, and an orthogonal network keeps its gradient norm.

    Example:
        >>> x = torch.zeros(1, requires_grad=True)
        >>> torch.autograd.grad(Absolute().value(x), x)
        (tensor([1.]),)
    """

    name = "abs"
    slopes, steepness, smoothness = (-1.0, 1.0), (1.0, 1.0), math.inf
    kinks, homogeneous, kernel = (0.0,), True, "absolute"

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
    from_output, homogeneous, kernel = True, True, "identity"

    def value(self, x: Tensor, theta: Tensor | None = None) -> Tensor:  # noqa: D102
        return x

    def derivative(self, x: Tensor) -> Tensor:  # noqa: D102
        return torch.ones_like(x)

    def value_(self, x: Tensor, theta: Tensor | None = None) -> Tensor:  # noqa: D102
        return x

    def pullback(self, grad: Tensor, saved: Tensor, theta: Tensor | None, out: Tensor) -> None:  # noqa: D102
        out.copy_(grad)
