"""Text from a language model, word by word: the likeliest one, or a drawn one."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from steadyrnn.checks import check_positive_int
from steadyrnn.errors import ArgumentError, NotFiniteError, ShapeError

__all__ = ["Step", "generate"]

Step = Callable[[Tensor, Any], tuple[Tensor, Any]]
"""From tokens, (T, 1), and a state (None at the start) to logits, (T, 1, N), and the next state."""


def generate(step: Step, prompt: Tensor, length: int, temperature: float | None = None, seed: int = 0) -> Tensor:
    r"""Continue a text.

    Each word is chosen from the logits z behind the words so far, and handed back to the model: *greedy* decoding takes the
    largest z; *sampling* draws word i with probability :math:`\propto e^{z_i / \tau}`, in float64 on the CPU, by a generator of
    its own, so that torch's global one stays untouched and the draws do not depend on the device (the logits may).

    Args:
        step: The model: ``lambda tokens, state: model(tokens, state)``; put it into evaluation mode first.
        prompt: Tokens the text starts with, (P,), at least one.
        length: How many to add.
        temperature: :math:`\tau > 0`; 1 is the model's own distribution, small ones are near to greedy. None is greedy.
        seed: Of the draws.

    Returns:
        The added tokens, (length,), on the CPU.

    Example:
        >>> def count_up(tokens, state):  # after word i comes word i + 1
        ...     return torch.nn.functional.one_hot((tokens + 1) % 5, 5).float(), state
        >>> generate(count_up, torch.tensor([2]), 4)
        tensor([3, 4, 0, 1])
    """
    check_positive_int("length", length)
    if prompt.dim() != 1 or len(prompt) == 0:
        raise ShapeError(f"`prompt` must hold at least one token, shape (P,), but has shape {tuple(prompt.shape)}.")
    if temperature is not None and not 0 < temperature < float("inf"):
        raise ArgumentError(f"`temperature` must be a number above 0, or None for greedy decoding, but is {temperature}.")
    generator = torch.Generator().manual_seed(seed)
    tokens, state, added = prompt.unsqueeze(1), None, []
    with torch.no_grad():
        for _ in range(length):
            logits, state = step(tokens, state)  # (T, 1, N)
            chosen = _choose(logits[-1, 0].double().cpu(), temperature, generator)
            added.append(chosen)
            tokens = torch.tensor([[chosen]], device=prompt.device)
    return torch.tensor(added)


def _choose(logits: Tensor, temperature: float | None, generator: torch.Generator) -> int:
    """Return a word from its logits, (N,)."""
    if not -torch.inf < float(logits.max()) < torch.inf:  # a NaN is the largest, and is neither
        raise NotFiniteError(
            "The model's logits hold NaN or infinity, or nothing but minus infinity; no word can be chosen from them."
        )
    if temperature is None:
        return int(logits.argmax())
    # the largest becomes 0 first: divided by a tiny temperature, it would be infinite
    return int(torch.multinomial(((logits - logits.max()) / temperature).softmax(0), 1, generator=generator))
