"""How a number of a sequence of numbers is given to a model."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from steadyrnn.errors import ArgumentError, not_among

__all__ = ["CODINGS", "Coding", "coding_by_name"]

_EMBEDDING = 30  # "Word embedding size" of Table 8 of Lin, Wang. uRNN: An Approach to Bounded Gradients.


@dataclass(frozen=True)
class Coding:
    """A way to give numbers from 0 to M - 1.

    Args:
        features: From M to the features of a step (of tokens, the width of the paper's embedding).
        tokens: Whether they are left as they are, for the model to embed.
        encode: From numbers (T, B) and M to what the model gets: (T, B, features), or (T, B) for tokens.
    """

    features: Callable[[int], int]
    tokens: bool
    encode: Callable[[Tensor, int], Tensor]


def _scaled(numbers: Tensor, below: int) -> Tensor:
    # a divisor on the device: by a Python number, a GPU would multiply with its reciprocal and round otherwise than a CPU
    largest = torch.full((), float(below - 1), device=numbers.device)
    return (numbers.float() / largest).unsqueeze(-1)


CODINGS: dict[str, Coding] = {
    "token": Coding(lambda below: _EMBEDDING, True, lambda numbers, below: numbers),
    "one-hot": Coding(lambda below: below, False, lambda numbers, below: one_hot(numbers, below).float()),
    "number": Coding(lambda below: 1, False, _scaled),
}
"""Every coding by name. One-hot features times an input weight are an embedding, so the first two differ in width only."""


def coding_by_name(name: str) -> Coding:
    """Return a coding by its name.

    Example:
        >>> coding_by_name("number").encode(torch.tensor([[0, 9]]), 10)
        tensor([[[0.],
                 [1.]]])
    """
    if name not in CODINGS:
        raise ArgumentError(not_among("coding", name, CODINGS))
    return CODINGS[name]
