"""How a tool is tried: a result that is right, an error of ours, or a failure."""

from collections.abc import Callable, Sequence
from enum import Enum

import torch
from torch import Tensor, nn
from torch.testing import assert_close

from steadyrnn.errors import SteadyError
from tests.tools.subjects import Subject, flat, loss_of, parameters_of

__all__ = ["Outcome", "Tool", "gradients", "outcome", "same", "same_gradients", "same_run"]

Tool = Callable[[Subject], None]
"""Uses a tool on a fresh module of a subject and fails where the result is not what the module itself gives."""


class Outcome(Enum):
    """What became of it; nothing else may."""

    WORKS = "works"
    REFUSED = "refused"


def outcome(tool: Tool, subject: Subject) -> Outcome:
    """Try a tool on a subject; whatever is neither right nor an error of ours is raised."""
    torch.manual_seed(0)
    try:
        tool(subject)
    except SteadyError:
        return Outcome.REFUSED
    except Exception as error:
        if _is_ours(error):
            return Outcome.REFUSED
        raise
    return Outcome.WORKS


def _is_ours(error: BaseException | None) -> bool:
    """Say whether an error of ours caused this one and is quoted in it: tracers wrap the errors they meet."""
    text = str(error)
    while error is not None:
        if isinstance(error, SteadyError):
            return str(error).split(".")[0] in text
        error = error.__cause__
    return False


def same(found: object, expected: object) -> None:
    """Fail unless all tensors agree to rounding."""
    for one, other in zip(flat(found), flat(expected), strict=True):
        assert_close(one, other, check_stride=False)


def gradients(module: nn.Module, x: Tensor) -> dict[str, Tensor]:
    """Return the gradient of the loss by every parameter, by autograd on the module itself."""
    held = parameters_of(module)
    found = torch.autograd.grad(loss_of(module(x)), list(held.values()), allow_unused=True, materialize_grads=True)
    return dict(zip(held, found, strict=True))


def same_gradients(found: Sequence[Tensor | None], module: nn.Module, x: Tensor) -> None:
    """Fail unless these are the gradients by the module's parameters, None being zero."""
    for one, other in zip(found, gradients(module, x).values(), strict=True):
        assert_close(torch.zeros_like(other) if one is None else one, other, check_stride=False)


def same_run(found: nn.Module, subject: Subject, dtype: torch.dtype | None = torch.float64) -> None:
    """Fail unless a module computes what a fresh one of the subject does, outputs and gradients."""
    twin, x = subject.module(dtype), subject.input(dtype)
    output = found(x)
    same(output, twin(x))
    held = [parameter for parameter in found.parameters() if parameter.requires_grad]
    got = torch.autograd.grad(loss_of(output), held, allow_unused=True)
    same_gradients(got, twin, x)
