"""Tools that differentiate, vectorize or change how a module computes."""

import copy
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call, hessian, jacrev, stack_module_state, vmap
from torch.testing import assert_close
from torch.utils.checkpoint import checkpoint

from tests.tools.outcome import same, same_gradients, same_run
from tests.tools.subjects import Subject, flat, loss_of, parameters_of

__all__ = ["TOOLS"]


def vectorized(subject: Subject) -> None:
    """`torch.func.vmap` over inputs, and over the weights of several modules: as a loop over them."""
    module, x = subject.module(), subject.input()
    inputs = torch.stack([x, 2 * x, -x])
    same(vmap(module)(inputs), [torch.stack(parts) for parts in zip(*(flat(module(one)) for one in inputs), strict=True)])
    twins = [module, copy.deepcopy(module)]
    with torch.no_grad():
        for parameter in parameters_of(twins[1]).values():
            parameter.mul_(0.5)
    parameters, buffers = stack_module_state(twins)
    found = vmap(lambda p, b: functional_call(module, (p, b), (x,)))(parameters, buffers)
    same(found, [torch.stack(parts) for parts in zip(*(flat(twin(x)) for twin in twins), strict=True)])


def _loss(module: torch.nn.Module, x: Tensor) -> Any:
    held = dict(module.named_parameters())

    def loss(parameters: dict[str, Tensor]) -> Tensor:
        return loss_of(functional_call(module, held | parameters, (x,)))

    return loss


def jacobian(subject: Subject) -> None:
    """`torch.func.jacrev` of a loss by the parameters: as autograd's gradient."""
    module, x = subject.module(), subject.input()
    found = jacrev(_loss(module, x))({name: p.detach() for name, p in parameters_of(module).items()})
    same_gradients(list(found.values()), module, x)


def second_derivative(subject: Subject) -> None:
    """`torch.func.hessian` of a loss by the input: as the gradient of autograd's gradient."""
    module, x = subject.module(), subject.input()
    row = subject.input().requires_grad_()
    [gradient] = torch.autograd.grad(loss_of(module(row)), row, create_graph=True)
    [expected] = torch.autograd.grad(gradient.flatten()[0], row)
    found = hessian(lambda x: loss_of(module(x)))(x)
    assert_close(found.reshape(x.numel(), *x.shape)[0], expected)


def checkpointed(subject: Subject) -> None:
    """`torch.utils.checkpoint.checkpoint`: outputs and gradients as without it."""
    module, x = subject.module(), subject.input()
    output = checkpoint(module, x, use_reentrant=False)
    same(output, module(x))
    found = torch.autograd.grad(loss_of(output), list(parameters_of(module).values()), allow_unused=True)
    same_gradients(found, module, x)


def autocast(subject: Subject) -> None:
    """`torch.autocast` in bfloat16: bfloat16 comes out, as near as its rounding; gradients are the parameters' dtype."""
    module, x = subject.module(torch.float32), subject.input(torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        output = module(x)
    loss_of(output).backward()
    for found, expected in zip(flat(output), flat(module(x)), strict=True):
        assert found.dtype == torch.bfloat16
        error = (found.double() - expected.double()).abs().max()
        assert error <= 2**-8 * 4 * subject.shape[0] * expected.abs().max().clamp(min=1)  # a few roundings per step
    assert all(p.grad is None or p.grad.dtype == p.dtype for p in module.parameters())


def deterministic(subject: Subject) -> None:
    """`torch.use_deterministic_algorithms(True)`: outputs and gradients, twice the same bits."""
    runs = []
    torch.use_deterministic_algorithms(True)
    try:
        for _ in range(2):
            module = subject.module()
            output = module(subject.input())
            runs.append(
                [*flat(output), *torch.autograd.grad(loss_of(output), parameters_of(module).values(), allow_unused=True)]
            )
    finally:
        torch.use_deterministic_algorithms(False)
    assert all(one is other is None or torch.equal(one, other) for one, other in zip(*runs, strict=True))


def default_dtype(subject: Subject) -> None:
    """`torch.set_default_dtype` of float64, bfloat16 and float16: parameters and outputs have it."""
    before = torch.get_default_dtype()
    for dtype in (torch.float64, torch.bfloat16, torch.float16):
        torch.set_default_dtype(dtype)
        try:
            module = subject.module(None)
            output = module(subject.input(None))
        finally:
            torch.set_default_dtype(before)
        assert {p.dtype for p in module.parameters()} == {dtype}
        assert all(part.dtype == dtype and bool(part.isfinite().all()) for part in flat(output))


def default_device(subject: Subject) -> None:
    """Built with `torch.set_default_device("meta")`, then `to_empty` or a state dict assigned: computes the same."""
    weights = subject.module().state_dict()
    torch.set_default_device("meta")
    try:
        empty = [subject.module(), subject.module()]
    finally:
        torch.set_default_device(None)
    empty[0].load_state_dict(copy.deepcopy(weights), assign=True)
    empty[1].to_empty(device="cpu").load_state_dict(weights)
    for module in empty:
        same_run(module, subject)


TOOLS = {
    "vmap": vectorized,
    "jacrev": jacobian,
    "hessian": second_derivative,
    "checkpoint": checkpointed,
    "autocast": autocast,
    "deterministic": deterministic,
    "default dtype": default_dtype,
    "default device": default_device,
}
