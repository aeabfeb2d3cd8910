"""Exclusion from ``torch.compile`` that does not import it: torch's own decorator loads the compiler, which takes seconds."""

import sys
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import torch

__all__ = ["uncompiled"]

P = ParamSpec("P")
R = TypeVar("R")


def uncompiled(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function that no compiler traces, as :func:`torch.compiler.disable` does.

    While the compiler is not loaded nothing can trace, and the function is called as it is.

    Example:
        >>> uncompiled(len)("abc")
        3
    """

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        run: Any = torch.compiler.disable(function) if "torch._dynamo" in sys.modules else function
        result: R = run(*args, **kwargs)
        return result

    call._torchdynamo_disable = True  # type: ignore[attr-defined]
    return call
