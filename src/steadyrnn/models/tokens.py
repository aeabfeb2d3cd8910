"""What a model with an embedding refuses as tokens."""

import torch
from torch import Tensor

from steadyrnn.checks import carries_transform
from steadyrnn.errors import ArgumentError, DtypeError, ShapeError

__all__ = ["check_tokens"]


def check_tokens(tokens: Tensor, vocab_size: int) -> Tensor:
    """Return ``tokens`` if they are integers from 0 to ``vocab_size - 1``, one per step: (T,), (T, B) or (B, T).

    The range is read from the data, so it is checked in eager mode only; a compiled graph, and one that CUDA records,
    leaves it to the embedding.

    Example:
        >>> check_tokens(torch.tensor([0, 2]), 3)
        tensor([0, 2])
    """
    if tokens.dtype not in (torch.int64, torch.int32):
        raise DtypeError(
            f"`input` must hold tokens (int64 or int32), since the model has an embedding, but has dtype "
            f"{tokens.dtype}. Convert it, input.long(), or make the model without `vocab_size`."
        )
    if tokens.dim() not in (1, 2):
        raise ShapeError(
            f"`input` must have 1 dimension (unbatched) or 2, one token per step, but has shape {tuple(tokens.shape)}."
        )
    if torch.compiler.is_compiling() or carries_transform(tokens) or tokens.is_meta or tokens.numel() == 0:
        return tokens
    if tokens.is_cuda and torch.cuda.is_current_stream_capturing():
        return tokens
    low, high = (int(bound) for bound in tokens.aminmax())
    if low < 0 or high >= vocab_size:
        raise ArgumentError(
            f"`input` must hold tokens from 0 to {vocab_size - 1} (vocab_size - 1), but goes from {low} to {high}."
        )
    return tokens
