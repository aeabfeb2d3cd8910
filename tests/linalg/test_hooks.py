"""A hook on a tensor runs once in a backward pass, also in one that can be differentiated again."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from steadyrnn.linalg.exponential import exp_skew
from steadyrnn.linalg.householder import householder_factors
from steadyrnn.linalg.spectral_factors import spectral_factors
from tests.linalg.matrices import skew

FUNCTIONS: dict[str, tuple[Callable[[], Tensor], Callable[[Tensor], Tensor]]] = {
    "exponential, products": (lambda: skew(6, 1.0).float(), exp_skew),
    "exponential, eigenvectors": (lambda: skew(6, 1.0), exp_skew),
    "reflectors": (
        lambda: torch.randn(6, 2, dtype=torch.float64),
        lambda x: sum(part.sum() for part in householder_factors(x)),
    ),
    "spectral": (
        lambda: torch.randn(11),
        lambda x: sum(part.sum() for part in spectral_factors(x, x.flip(0), torch.ones(6), 2)),
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("again", [False, True])
def test_a_hook_runs_once(name: str, again: bool) -> None:
    torch.manual_seed(0)
    build, function = FUNCTIONS[name]
    x = build().requires_grad_()
    (plain,) = torch.autograd.grad(function(x).sum(), x)
    calls = []
    x.register_hook(lambda gradient: calls.append(1) or gradient / 2)
    (found,) = torch.autograd.grad(function(x).sum(), x, create_graph=again)
    assert len(calls) == 1
    torch.testing.assert_close(found, plain / 2)
