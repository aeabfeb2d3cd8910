"""The settings of every task, free of torch: the command line reads them to show its help."""

import os
from dataclasses import dataclass, fields
from types import NoneType
from typing import ClassVar, get_args, get_type_hints

from steadyrnn.errors import ArgumentError, ArgumentTypeError

__all__ = [
    "AdditionSettings",
    "BibtexSettings",
    "ContractiveSettings",
    "CopySettings",
    "CurriculumSettings",
    "LargestSettings",
    "MediamillSettings",
    "MnistRowsSettings",
    "MnistSettings",
    "MultiLabelSettings",
    "PermutedMnistSettings",
    "PixelMnistSettings",
    "PtbSettings",
    "RecallSettings",
    "StableSystemSettings",
    "StoredSettings",
    "TaskSettings",
    "TextSettings",
    "UcrSettings",
    "WikiText2Settings",
]


_KINDS = {int: "an integer", float: "a number", str: "text", bool: "True or False", NoneType: "None"}


@dataclass(frozen=True)
class TaskSettings:
    """What every task has; a value of the wrong type is refused by name, a path becomes text.

    Args:
        seed: Numbers the data: examples of a synthetic task, order and validation split of a stored one; from 0 to 2^63 - 1.
    """

    seed: int = 0

    @property
    def label(self) -> str | None:
        """What the folder of its runs is called, where that is not the task's name."""
        return None

    def __post_init__(self) -> None:
        """Check the type of every value, so that a task meets only what it can read; ranges are the task's to check."""
        hints = get_type_hints(type(self))
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, os.PathLike):
                object.__setattr__(self, field.name, os.fspath(value))
            else:
                _check_type(field.name, value, get_args(hints[field.name]) or (hints[field.name],))
        if not 0 <= self.seed < 1 << 63:
            raise ArgumentError(f"`seed` must be an integer from 0 to 2^63 - 1, but is {self.seed}.")


def _check_type(name: str, value: object, kinds: tuple[type, ...]) -> None:
    """Refuse a value that is of none of ``kinds``; an integer is a number, but True is neither."""
    allowed = (*kinds, int) if float in kinds else kinds
    if not isinstance(value, allowed) or (isinstance(value, bool) and bool not in kinds):
        wanted = " or ".join(_KINDS[kind] for kind in kinds)
        raise ArgumentTypeError(f"`{name}` must be {wanted}, but is of type {type(value).__name__}.")


@dataclass(frozen=True)
class CurriculumSettings(TaskSettings):
    """What a task has whose sequences can grow while a network learns; validation and test keep their full length.

    Args:
        curriculum: ``none``; ``auto``: stages of length 50, 100, 200, ... up to half the full length, then the full one; or the
            stages themselves, ``50,100,400``, each with its share of the steps and the factor of its learning rate where these
            are given: ``50:5000:1,100:2500:0.5,400:1200:0.125``. Without them, both go as 1 / length, and the last stage has
            four times its share.
        curriculum_below: A stage but the last is over early when the validation loss at its own length is below this; None is
            never.
        shortest: Each training batch draws a length of its own, from this fraction of the length on, above 0 and at most 1.
    """

    curriculum: str = "none"
    curriculum_below: float | None = 1e-3
    shortest: float = 1.0


@dataclass(frozen=True)
class AdditionSettings(CurriculumSettings):
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
class CopySettings(CurriculumSettings):
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
        epsilon: How far from the identity the transition is, from 1e-6 to 1; 1 / epsilon is the fastest time constant.
        active: Share of the steps at which each unit is above zero, from .05 to .95.
        snr: Variance of a channel over that of its noise, in decibels, from -60 to 120; the paper has 15 and 20.
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


@dataclass(frozen=True)
class StoredSettings(TaskSettings):
    """What every task on stored data has.

    Args:
        data_dir: The data folder; None takes the one that the environment variable STEADYRNN_DATA names.
    """

    data_dir: str | None = None


@dataclass(frozen=True)
class MnistSettings(StoredSettings):
    """Digits, each a row of 784 grey values, for networks without time.

    Args:
        validation: Training images to hold out.
        test: Share of all 70,000 images that ``seed`` draws for the test; the others are for training. None keeps the published
            60,000 and 10,000.
        label_smoothing: Share of each training target that all ten digits have in equal parts, from 0 and below 1. Scores of
            validation and test are not smoothed.
    """

    validation: int = 5000
    test: float | None = None
    label_smoothing: float = 0.0


@dataclass(frozen=True)
class MnistRowsSettings(MnistSettings):
    """Digits read one image row per step: 28 steps of 28 pixels."""


@dataclass(frozen=True)
class PixelMnistSettings(MnistSettings):
    """Digits read pixel by pixel.

    Args:
        pixels_per_step: A divisor of 784: 1 for 784 steps, 2 for 392.
    """

    pixels_per_step: int = 1


@dataclass(frozen=True)
class PermutedMnistSettings(PixelMnistSettings):
    """Digits read pixel by pixel, in a random order that is the same for every image.

    Args:
        permutation: Numbers that order; another seed does not change it, so that runs with other seeds have the same task.
            ``numpy:92916`` is the order of the papers on expRNN and asRNN: numpy's RandomState with that seed.
    """

    permutation: int | str = 0


@dataclass(frozen=True)
class TextSettings(StoredSettings):
    """Language modelling, word by word, over successive batches.

    Args:
        bptt: Steps of a batch, which gradients reach back at most; the state goes on to the next batch.
        evaluation_rows: Rows that validation and test text is cut into, whatever the batch size; 1 reads it in one go.
    """

    data_set: ClassVar[str]
    bptt: int = 35
    evaluation_rows: int = 10


@dataclass(frozen=True)
class PtbSettings(TextSettings):
    """The Penn Treebank, prepared by Mikolov: 10,000 words."""

    data_set: ClassVar[str] = "ptb"


@dataclass(frozen=True)
class WikiText2Settings(TextSettings):
    """WikiText-2: 33,278 words."""

    data_set: ClassVar[str] = "wikitext-2"


@dataclass(frozen=True)
class UcrSettings(StoredSettings):
    """A set of the UCR archive of time series.

    Args:
        dataset: Its name in the release of 2018 or of 2015: FiftyWords or 50words.
        validation: Fraction of the training series to hold out.
        features_per_step: How many numbers each step reads, a divisor of the length. None is the paper's rule: the largest
            divisor up to the square root.
        paper_outputs: Whether the network has as many outputs as the paper's, of which some are never right.
        refit: Whether to train on all training series, with none held out, once settings are chosen. ``validation`` is not used
            then, and validation scores are those of the training series themselves.
        noise: Standard deviation of Gaussian noise, drawn anew for every training batch; series are normalized to 1.
        shift: Largest shift of a training series in time, as a fraction of its length, rounded to whole steps of the series and
            drawn anew for every training batch. The value at the end that the series leaves is repeated.
    """

    dataset: str = "CBF"
    validation: float = 0.2
    features_per_step: int | None = None
    paper_outputs: bool = False
    refit: bool = False
    noise: float = 0.0
    shift: float = 0.0


@dataclass(frozen=True)
class MultiLabelSettings(StoredSettings):
    """Several labels per row, for networks without time.

    Args:
        validation: Fraction of the training rows to hold out.
        form: ``mulan`` (ARFF and XML files), ``repository`` (text of the Extreme Classification Repository); None takes the
            one whose files are there, the first if both are.
        split: Column of the split files of the ``repository``, from 0; each is one way to part the rows. ``mulan`` has one, 0.
    """

    data_set: ClassVar[str]
    validation: float = 0.1
    form: str | None = None
    split: int = 0


@dataclass(frozen=True)
class BibtexSettings(MultiLabelSettings):
    """Tags of bibliography entries: 1,836 features, 159 labels."""

    data_set: ClassVar[str] = "bibtex"


@dataclass(frozen=True)
class MediamillSettings(MultiLabelSettings):
    """Concepts in video shots: 120 features, 101 labels; the user brings the files."""

    data_set: ClassVar[str] = "mediamill"
