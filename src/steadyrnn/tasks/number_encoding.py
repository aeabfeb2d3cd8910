"""How the numbers of a sequence are encoded for a model."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from steadyrnn.errors import ArgumentError, not_among

from .base import Interface

__all__ = ["NUMBER_ENCODINGS", "NumberEncoding", "encoding_by_name"]

_EMBEDDING = 30  # "Word embedding size" of Table 8 of Lin, Wang. uRNN: An Approach to Bounded Gradients.


@dataclass(frozen=True)
class NumberEncoding:
    """One way to encode numbers from 0 to M - 1.

    Args:
        features: The features of a step for a given M; for tokens, the width of the paper's embedding.
        tokens: Whether numbers are left as they are, for the model to embed.
        encode: Maps numbers (T, B) and M to the model's input: (T, B, features), or (T, B) for tokens.
    """

    features: Callable[[int], int]
    tokens: bool
    encode: Callable[[Tensor, int], Tensor]

    def interface(self, count: int) -> Interface:
        """Return the interface of a task that reads numbers below ``count`` and answers with one, from the last step."""
        return Interface(inputs=self.features(count), outputs=count, vocabulary=count if self.tokens else None)


def _scale(numbers: Tensor, below: int) -> Tensor:
    # a divisor on the device: by a Python number, a GPU would multiply with its reciprocal and round differently from a CPU
    largest = torch.full((), float(below - 1), device=numbers.device)
    return (numbers.float() / largest).unsqueeze(-1)


NUMBER_ENCODINGS: dict[str, NumberEncoding] = {
    "token": NumberEncoding(lambda below: _EMBEDDING, True, lambda numbers, below: numbers),
    "one-hot": NumberEncoding(lambda below: below, False, lambda numbers, below: one_hot(numbers, below).float()),
    "number": NumberEncoding(lambda below: 1, False, _scale),
}
"""Every encoding by name. One-hot features times an input weight are an embedding, so the first two differ in width only."""


def encoding_by_name(name: str) -> NumberEncoding:
    """Return an encoding by its name.

    Example:
        >>> encoding_by_name("number").encode(torch.tensor([[0, 9]]), 10)
        tensor([[[0.],
                 [1.]]])
    """
    if name not in NUMBER_ENCODINGS:
        raise ArgumentError(not_among("coding", name, NUMBER_ENCODINGS))
    return NUMBER_ENCODINGS[name]
