"""The random states a run depends on: seeded once, saved, put back, kept from what only looks on."""

import hashlib
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from steadyrnn.errors import CheckpointError

__all__ = ["keep_random_state", "random_state", "restore_random_state", "seed_everything", "seed_of_rank"]

_WORDS = 624  # of the Mersenne twister


def seed_everything(seed: int) -> None:
    """Seed torch (all devices), Python's ``random`` and numpy's global generator.

    Example:
        >>> seed_everything(0)
        >>> a = torch.rand(2)
        >>> seed_everything(0)
        >>> bool((torch.rand(2) == a).all())
        True
    """
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)


def seed_of_rank(seed: int, rank: int, step: int = 0) -> int:
    """Return the seed by which one of several processes draws dropout; of rank 0 at the start it is the run's own.

    Args:
        seed: Of the run.
        rank: Of the process.
        step: Steps done when it begins.

    Example:
        >>> seed_of_rank(5, 0), seed_of_rank(5, 1) == seed_of_rank(5, 2)
        (5, False)
    """
    if rank == 0 and step == 0:
        return seed
    return int.from_bytes(hashlib.sha256(f"{seed} {rank} {step}".encode()).digest()[:8], "little")


def random_state() -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Return the state of every global generator, in tensors and in facts for JSON.

    Example:
        >>> tensors, facts = random_state()
        >>> a = torch.rand(2)
        >>> restore_random_state(tensors, facts)
        >>> bool((torch.rand(2) == a).all())
        True
    """
    version, words, gauss = random.getstate()
    legacy: Any = np.random.get_state(legacy=False)
    tensors = {
        "cpu": torch.get_rng_state(),
        "python": torch.tensor(words, dtype=torch.int64),
        "numpy": torch.from_numpy(legacy["state"]["key"].astype(np.int64)),
    }
    if torch.cuda.is_initialized():
        tensors |= {f"cuda.{place}": state for place, state in enumerate(torch.cuda.get_rng_state_all())}
    own = {"position": int(legacy["state"]["pos"]), "has_gauss": int(legacy["has_gauss"]), "gauss": float(legacy["gauss"])}
    return tensors, {"python": {"version": version, "gauss": gauss}, "numpy": own}


def restore_random_state(tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
    """Put back what :func:`random_state` returned.

    States of GPUs that this machine lacks are left out; a GPU without a saved state keeps its own.
    """
    words = tensors.get("numpy", torch.empty(0))
    if words.shape != (_WORDS,):  # numpy would leave its generator half set
        raise CheckpointError(f"The random states of a checkpoint cannot be put back: numpy's must have {_WORDS} words.")
    try:
        torch.set_rng_state(tensors["cpu"].cpu())
        random.setstate((facts["python"]["version"], tuple(tensors["python"].tolist()), facts["python"]["gauss"]))
        own = facts["numpy"]
        np.random.set_state(("MT19937", words.cpu().numpy().astype(np.uint32), own["position"], own["has_gauss"], own["gauss"]))
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise CheckpointError(f"The random states of a checkpoint cannot be put back: {error!r}.") from error
    for place in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        if f"cuda.{place}" in tensors:
            torch.cuda.set_rng_state(tensors[f"cuda.{place}"].cpu(), place)


@contextmanager
def keep_random_state() -> Iterator[None]:
    """Put every random state back afterwards: whether a run is measured must not change it.

    Example:
        >>> with keep_random_state():
        ...     a = torch.rand(2)
        >>> bool((torch.rand(2) == a).all())
        True
    """
    tensors, facts = random_state()
    try:
        yield
    finally:
        restore_random_state(tensors, facts)
