"""How far a result is from the truth, and how far it may be."""

from collections.abc import Mapping

import torch
from torch import Tensor

__all__ = ["assert_equal_up_to_rounding", "assert_within_budget", "distance", "errors", "unit_roundoff"]


def unit_roundoff(dtype: torch.dtype) -> float:
    """Return u, half the gap between 1 and the next number."""
    return torch.finfo(dtype).eps / 2


def distance(result: Tensor, truth: Tensor) -> float:
    """Return the Frobenius distance to ``truth`` relative to it; absolute where the truth is zero or empty."""
    if result.shape != truth.shape:
        raise AssertionError(f"shape {tuple(result.shape)} instead of {tuple(truth.shape)}")
    result, truth = result.detach(), truth.detach()
    size = float(truth.double().norm()) if truth.numel() else 0.0
    gap = float((result.double() - truth.double()).norm()) if truth.numel() else 0.0
    return gap / size if size else gap


def errors(result: Mapping[str, Tensor], truth: Mapping[str, Tensor]) -> dict[str, float]:
    """Return the distance to the truth of every named result."""
    assert result.keys() == truth.keys()
    return {name: distance(tensor, truth[name]) for name, tensor in result.items()}


def assert_within_budget(fast: Mapping[str, Tensor], truth: Mapping[str, Tensor], allowance: Mapping[str, float]) -> None:
    """Check the error budget: twice the error of the reference (``allowance``), or 16 u if that is more.

    In float64 the truth is a run of the reference too, so its own error comes on top.
    """
    for name, error in errors(fast, truth).items():
        share = max(allowance[name], 16 * unit_roundoff(fast[name].dtype))
        allowed = (3 if fast[name].dtype == torch.float64 else 2) * share
        assert error <= allowed, f"{name}: error {error:.3g}, allowed {allowed:.3g}"


def assert_equal_up_to_rounding(result: Tensor, expected: Tensor, operations: int = 1) -> None:
    """Check that two ways to the same number differ by no more than 32 u per operation, relative to the whole."""
    assert result.dtype == expected.dtype
    error, allowed = distance(result, expected), 32 * operations * unit_roundoff(expected.dtype)
    assert error <= allowed, f"error {error:.3g}, allowed {allowed:.3g}"
