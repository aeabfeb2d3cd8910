"""What of a run's state lies with each process, rows of the carried state and random states: put together, and spread again."""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from steadyrnn.errors import ArgumentError

from .model_call import join_states, state_tensors, state_with
from .randomness import random_state, restore_random_state, seed_everything, seed_of_rank
from .ranks import Ranks
from .weights import section

__all__ = ["check_state_rows", "random_states_of_others", "restore_random_states", "whole_state"]


def check_state_rows(state: Any, rows: int) -> None:
    """Refuse a state whose rows are not its second dimension: the rows of several processes could not be put together.

    Example:
        >>> check_state_rows(torch.zeros(1, 4, 3), 4)
    """
    for tensor in state_tensors(state):
        if tensor.dim() < 2 or tensor.shape[1] != rows:
            raise ArgumentError(
                f"Ranks carry states by rows, their second dimension, (layers, {rows}, ...) here, but `model` gave one of "
                f"shape {tuple(tensor.shape)}. Train with one process."
            )


def whole_state(state: Any, ranks: Ranks) -> Any:
    """Return the state of the whole batch, from the rows of each process."""
    if ranks.size == 1 or state is None:
        return state
    given = ranks.gather(None, {str(place): tensor for place, tensor in enumerate(state_tensors(state))})
    joined: Any = join_states([state_with(state, list(tensors.values())) for _, tensors in given])
    return joined


def random_states_of_others(ranks: Ranks) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the random states of ranks 1, 2, ... as tensors and facts of a checkpoint; nothing of one process."""
    if ranks.size == 1:
        return {}, {}
    tensors, facts = random_state()
    given = ranks.gather(facts, tensors)[1:]
    named = {f"ranks.{rank}.{name}": tensor for rank, (_, own) in enumerate(given, 1) for name, tensor in own.items()}
    return named, {"ranks": [facts for facts, _ in given]}


def restore_random_states(ranks: Ranks, tensors: Mapping[str, Tensor], facts: Mapping[str, Any], seed: int) -> None:
    """Put back the random states of this process; where it had none, begin new ones.

    Args:
        ranks: The processes that go on.
        tensors: Of the checkpoint.
        facts: Of the checkpoint.
        seed: Of the run.
    """
    if ranks.first:
        return restore_random_state(section(tensors, "random"), facts["random"])
    kept = facts.get("ranks", [])
    if ranks.rank <= len(kept):
        return restore_random_state(section(tensors, f"ranks.{ranks.rank}"), kept[ranks.rank - 1])
    seed_everything(seed_of_rank(seed, ranks.rank, facts["step"]))
