"""The settings of every task, free of torch: the command line reads them to show its help."""

from dataclasses import dataclass

__all__ = [
    "TASK_SETTINGS",
    "AdditionSettings",
    "ContractiveSettings",
    "CopySettings",
    "LargestSettings",
    "RecallSettings",
    "StableSystemSettings",
    "TaskSettings",
]


@dataclass(frozen=True)
class TaskSettings:
    """What every task has.

    Args:
        seed: Numbers the data: examples of a synthetic task, order and validation split of a stored one.
    """

    seed: int = 0


@dataclass(frozen=True)
class AdditionSettings(TaskSettings):
    """The addition problem: add the two marked numbers of a sequence.

    Args:
        length: Steps, L, at least 2; the first mark is at one of the first L // 2, the second at one of the others.
        validation: Number of examples.
        test: Number of examples.
    """

    length: int = 100
    validation: int = 1000
    test: int = 1000


@dataclass(frozen=True)
class CopySettings(TaskSettings):
    """The copy problem: repeat ten symbols after a delay.

    Args:
        delay: T; a sequence has T + 20 steps.
        validation: Number of examples.
        test: Number of examples.
    """

    delay: int = 100
    validation: int = 1000
    test: int = 1000


@dataclass(frozen=True)
class RecallSettings(TaskSettings):
    """Recall the first number of a sequence.

    Args:
        length: Steps, N.
        symbols: How many different numbers there are, M, at least 2.
        coding: ``token``: numbers to be embedded, as in the paper; ``one-hot``: M features; ``number``: one, from 0 to 1.
        validation: Number of examples.
        test: Number of examples.
    """

    length: int = 100
    symbols: int = 10
    coding: str = "token"
    validation: int = 1000
    test: int = 1000


@dataclass(frozen=True)
class LargestSettings(TaskSettings):
    """Find the k-th largest number of a sequence.

    Args:
        length: Steps, N, at least 2; numbers are drawn from 0 to N - 1, with replacement.
        k: Which one, from 1 (the largest) to N.
        coding: ``token``: numbers to be embedded, as in the paper; ``one-hot``: N features; ``number``: one, from 0 to 1.
        validation: Number of examples.
        test: Number of examples.
    """

    length: int = 100
    k: int = 10
    coding: str = "token"
    validation: int = 1000
    test: int = 1000


@dataclass(frozen=True)
class ContractiveSettings(TaskSettings):
    """Learn a contractive ReLU network from its inputs and noisy outputs.

    Args:
        length: Steps of a record, T.
        inputs: Features of a step.
        units: State of the system to be learned.
        outputs: Channels measured.
        epsilon: How far from the identity the transition is, above 0 and at most 1; 1 / epsilon is the fastest time constant.
        active: Share of the steps at which each unit is above zero, above 0 and below 1.
        snr: Variance of a channel over that of its noise, in decibels; the paper has 15 and 20.
        train: Number of records.
        validation: Number of records.
        test: Number of records.
    """

    length: int = 1000
    inputs: int = 2
    units: int = 4
    outputs: int = 2
    epsilon: float = 0.01
    active: float = 0.6
    snr: float = 20.0
    train: int = 700
    validation: int = 100
    test: int = 300


@dataclass(frozen=True)
class StableSystemSettings(TaskSettings):
    """Regression of one number on a sequence of Gaussian vectors.

    Args:
        length: Steps, T.
        inputs: Features of a step.
        target: ``uniform``: a number from -2 to 2 that has nothing to do with the input, as in the paper; ``system``: the last
            output of a random stable linear system.
        bound: Largest singular value of that system's transition, at least 0 and below 1.
        train: Number of examples; the paper trains on one.
        validation: Number of examples.
        test: Number of examples.
    """

    length: int = 200
    inputs: int = 32
    target: str = "uniform"
    bound: float = 0.75
    train: int = 1
    validation: int = 1000
    test: int = 1000


TASK_SETTINGS: dict[str, type[TaskSettings]] = {
    "addition": AdditionSettings,
    "copy": CopySettings,
    "recall": RecallSettings,
    "largest": LargestSettings,
    "contractive": ContractiveSettings,
    "stable-system": StableSystemSettings,
}
"""Every task by name."""
