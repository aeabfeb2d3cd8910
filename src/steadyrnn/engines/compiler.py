"""Words to ``torch.compile`` that do not import it: torch's own decorators load the compiler, which takes seconds."""

import sys
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import torch

__all__ = ["constant_result", "uncompiled"]

P = ParamSpec("P")
R = TypeVar("R")


def constant_result(function: Callable[P, R]) -> Callable[P, R]:
    """Mark a function whose result a compiler takes as a constant: it asks a driver or reads a file.

    The mark is the one that :func:`torch.compiler.assume_constant_result` sets.

    Example:
        >>> @constant_result
        ... def answer() -> int:
        ...     return 42
        >>> answer()
        42
    """
    function._dynamo_marked_constant = True  # type: ignore[attr-defined]
    return function


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
