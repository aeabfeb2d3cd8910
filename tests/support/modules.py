"""Every layer and model with every constraint that fits it: what the tests of the module contract run over."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

import steadyrnn as sr
from steadyrnn.constraints.registry import CONSTRAINTS, JOINT
from steadyrnn.constraints.slot import Slot
from steadyrnn.constraints.tolerance import membership_tolerance
from steadyrnn.errors import ShapeError
from steadyrnn.layers.weights import RecurrentWeights

__all__ = ["DTYPES", "MODULES", "SETS", "ModuleCase", "default_dtype", "gradients", "outputs", "swapping", "violations"]

STEPS, ROWS, WIDTH, HIDDEN = 2, 2, 3, 6
DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)

SETS: dict[str, Callable[[], Any]] = CONSTRAINTS | {
    "ornn-one": lambda: sr.constraints.HouseholderOrthogonal(reflectors=1),
    "spectral-one": lambda: sr.Spectral(reflectors=1, radius=0.3),  # factored, in float32 one node of autograd
    "spectral-uneven": lambda: sr.Spectral(reflectors=(0, 1)),  # factored, put together from both sides
    "spectral-clip": lambda: sr.Spectral(sigma="clip", radius=0.3),
    "spectral-penalty": lambda: sr.Spectral(sigma="penalty"),
    "factorized-lie": lambda: sr.constraints.CayleySpectral(gradient="lie"),
}
"""Every registered constraint on one matrix, and variants that take another way through the code."""


def _is_rectangular(fresh: Callable[[], Any]) -> bool:
    with torch.random.fork_rng(devices=()):  # tests draw the same numbers with or without this question
        try:
            fresh().raw(2, HIDDEN)
        except ShapeError:
            return False
    return True


RECTANGULAR = [name for name, fresh in SETS.items() if _is_rectangular(fresh)]


@dataclass(frozen=True)
class ModuleCase:
    """A module to be tested.

    Attributes:
        make: Makes it, with ``device`` and ``dtype`` as in torch.
        shape: Of its input.
        exact: Whether its gradient is the derivative of its output; ``exp-printed`` is a paper's direction instead.
        peer: Makes the module of torch that computes the same from the same weights, None where there is none.
    """

    make: Callable[..., nn.Module]
    shape: tuple[int, ...]
    exact: bool = True
    peer: Callable[..., nn.Module] | None = None

    def data(self, dtype: torch.dtype = torch.float32, device: str = "cpu") -> Tensor:
        """Return an input, the same one in every dtype up to rounding."""
        generator = torch.Generator("cpu").manual_seed(1)
        return torch.randn(self.shape, generator=generator, dtype=torch.float64, device="cpu").to(device, dtype)


def _gru_before(*sizes: int, **more: Any) -> nn.Module:
    return sr.GRU(*sizes, reset_after=False, **more)


def _model(*sizes: int, **more: Any) -> nn.Module:
    return sr.SequenceModel(sr.RNN(*sizes, **more), 2)


_SEQUENCE, _BATCH = (STEPS, ROWS, WIDTH), (ROWS, WIDTH)
_RECURRENT: dict[str, tuple[Callable[..., nn.Module], tuple[int, ...], Callable[..., nn.Module] | None]] = {
    "RNN": (sr.RNN, _SEQUENCE, nn.RNN),
    "GRU": (sr.GRU, _SEQUENCE, nn.GRU),
    "GRU-reset-before": (_gru_before, _SEQUENCE, None),
    "LSTM": (sr.LSTM, _SEQUENCE, nn.LSTM),
    "RNNCell": (sr.RNNCell, _BATCH, nn.RNNCell),
    "GRUCell": (sr.GRUCell, _BATCH, nn.GRUCell),
    "LSTMCell": (sr.LSTMCell, _BATCH, nn.LSTMCell),
    "SequenceModel": (_model, _SEQUENCE, None),
}
_FEED_FORWARD: dict[str, Callable[..., nn.Module]] = {
    "MLP": partial(sr.MLP, WIDTH, HIDDEN, 2, 1, "tanh"),
    "ResNet": partial(sr.ResNet, WIDTH, HIDDEN, 2, 1, "tanh"),
}


def _cases() -> Iterator[tuple[str, ModuleCase]]:
    for kind, (make, shape, known) in _RECURRENT.items():
        peer = None if known is None else partial(known, WIDTH, HIDDEN)
        for name, fresh in (SETS | (JOINT if kind.startswith("LSTM") else {})).items():
            build = partial(_with, make, "transition", fresh, WIDTH, HIDDEN)
            yield f"{kind}-{name}", ModuleCase(build, shape, name != "exp-printed", peer)
    for kind, make in _FEED_FORWARD.items():
        for name, fresh in SETS.items():
            yield f"{kind}-{name}", ModuleCase(partial(_with, make, "weight", fresh), _BATCH, name != "exp-printed")
    for out in (HIDDEN, 2, 9):
        for name in SETS if out == HIDDEN else RECTANGULAR:
            build = partial(_with, sr.Linear, "weight", SETS[name], HIDDEN, out)
            case = ModuleCase(build, (ROWS, HIDDEN), name != "exp-printed", partial(nn.Linear, HIDDEN, out))
            yield f"Linear-{HIDDEN}-{out}-{name}", case


def _with(make: Callable[..., nn.Module], argument: str, fresh: Callable[[], Any], *sizes: int, **more: Any) -> nn.Module:
    return make(*sizes, **{argument: fresh()}, **more)


MODULES: dict[str, ModuleCase] = dict(_cases())
"""The cases by name: the layer's, then the constraint's."""


def outputs(result: Any) -> list[Tensor]:
    """Return all tensors of a result, however nested."""
    return [result] if isinstance(result, Tensor) else [tensor for part in result for tensor in outputs(part)]


def gradients(module: nn.Module, data: Tensor) -> list[Tensor]:
    """Return the gradients of the sum of squares of all outputs, by the input and by every parameter that has one."""
    leaf = data.detach().requires_grad_()
    total = sum(output.square().sum() for output in outputs(module(leaf)))
    wanted = [leaf, *(parameter for parameter in module.parameters() if parameter.requires_grad)]
    return list(torch.autograd.grad(total, wanted, materialize_grads=True))


def violations(module: nn.Module, before: torch.dtype | None = None) -> list[tuple[float, float]]:
    """Return how far each constrained weight is outside its set, and how far rounding may leave it.

    ``before`` is another dtype that the weights have been stored in.
    """
    weights = [(slot.constraint, slot.weight()) for slot in module.modules() if isinstance(slot, Slot)]
    found = [(float(owner.violation(weight)), membership_tolerance(weight, before)) for owner, weight in weights]
    for layer in (layer for layer in module.modules() if isinstance(layer, RecurrentWeights)):
        coarser = max(((own := next(layer.parameters()).dtype), before or own), key=lambda dtype: torch.finfo(dtype).eps)
        for end, joint in layer._joint.items():
            found.append(joint.worst_row(*(None if given is None else given.to(coarser) for given in layer._jointly(end))))
    return found


@contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """Set torch's default dtype inside."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextmanager
def swapping() -> Iterator[None]:
    """Let conversions exchange what is behind a parameter, as torch will do by default one day."""
    before = torch.__future__.get_swap_module_params_on_conversion()
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        yield
    finally:
        torch.__future__.set_swap_module_params_on_conversion(before)
