"""A random contractive ReLU network with slow modes: the system that the task `contractive` asks to be learned."""

from dataclasses import dataclass

import torch
from torch import Tensor

from steadyrnn.errors import ArgumentError

from .hashing import Stream, gaussian

__all__ = ["ContractiveSystem", "calibrate", "random_system"]

_TRIES = 400
_TOLERANCE = 0.01


@dataclass(frozen=True)
class ContractiveSystem:
    r"""The network :math:`h_t = \operatorname{relu}(W h_{t-1} + F x_t + b)`, :math:`y_t = C h_t` in float64, from h = 0.

    Args:
        transition: W, shape (H, H).
        input_weight: F, shape (H, D).
        bias: b, shape (H,).
        readout: C, shape (N, H).
    """

    transition: Tensor
    input_weight: Tensor
    bias: Tensor
    readout: Tensor

    def states(self, input: Tensor) -> Tensor:
        """Return the states of input (T, B, D), shape (T, B, H)."""
        drive = input @ self.input_weight.T + self.bias  # (T, B, H)
        h, back = torch.zeros_like(drive[0]), self.transition.T.contiguous()
        for now in drive:  # each (B, H), overwritten by the state
            h = torch.addmm(now, h, back, out=now).relu_()
        return drive

    def outputs(self, input: Tensor) -> Tensor:
        """Return the outputs of input (T, B, D), without noise, shape (T, B, N)."""
        return self.states(input) @ self.readout.T


def random_system(seed: int, inputs: int, units: int, outputs: int, epsilon: float) -> ContractiveSystem:
    r"""Draw a system with :math:`W = I - \varepsilon A^\top A / \lVert A \rVert^2` and A, F, b, C standard normal.

    The eigenvalues of the symmetric W are :math:`1 - \varepsilon s_i^2 / s_1^2`, with s the singular values of A: all in
    :math:`[1 - \varepsilon, 1 - \varepsilon / \kappa(A)^2]`. So the system contracts, and the slowest of its modes takes
    :math:`\kappa(A)^2 / \varepsilon` steps, far more than the :math:`1/\varepsilon` of the fastest.

    Example:
        >>> system = random_system(0, inputs=2, units=4, outputs=2, epsilon=0.01)
        >>> bool(torch.linalg.matrix_norm(system.transition, 2) < 1)
        True
    """
    shapes = [(units, units), (units, inputs), (units,), (outputs, units)]
    drawn = [
        gaussian(seed, Stream.SYSTEM, number, torch.arange(torch.Size(shape).numel()), dtype=torch.float64).view(shape)
        for number, shape in enumerate(shapes)
    ]
    a, f, b, c = drawn
    w = torch.eye(units, dtype=a.dtype) - epsilon * (a.T @ a) / torch.linalg.matrix_norm(a, 2).square()
    return ContractiveSystem(w, f, b, c)


def calibrate(system: ContractiveSystem, input: Tensor, active: float) -> ContractiveSystem:
    r"""Return the system with a bias for which each unit is above zero at a share ``active`` of all steps.

    Stochastic approximation of one equation per unit: :math:`b_i \leftarrow b_i + \mu_k (\text{active} - \text{on}_i)` with
    :math:`\mu_k = 3/(1 + k/15)`, until every unit is within .01 (Note [mathematics], section
    1.7; 15 to 50 rounds for four units).

    Args:
        system: The system; its own bias is where the search starts.
        input: Records it is run on, shape (T, B, D).
        active: The share, from 0 to 1.

    Example:
        >>> x = torch.randn(200, 20, 2, dtype=torch.float64)
        >>> system = calibrate(random_system(0, 2, 4, 2, 0.1), x, active=0.6)
        >>> bool(((system.states(x) > 0).double().mean((0, 1)) - 0.6).abs().max() < 0.01)
        True
    """
    for k in range(_TRIES):
        on = (system.states(input) > 0).double().mean((0, 1))  # (H,)
        if bool((on - active).abs().max() < _TOLERANCE):
            return system
        bias = system.bias + 3 / (1 + k / 15) * (active - on)
        system = ContractiveSystem(system.transition, system.input_weight, bias, system.readout)
    raise ArgumentError(
        f"`active` must be a share of the steps that every unit can be above zero at, but {active} was not reached within "
        f"{_TOLERANCE} in {_TRIES} rounds on {input.shape[1]} records of {input.shape[0]} steps. Make `length` or `train` "
        "larger, or take another `seed`."
    )
