"""Language modelling: the next word, over successive batches that carry the state."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from steadyrnn.checks import check_positive_int
from steadyrnn.errors import ArgumentError, DataError, ShapeError, not_among

from .base import Batch, Interface, Task
from .constant_baseline import class_baseline
from .locate import data_folder, read_file
from .settings import TextSettings
from .splits import check_step
from .vocabulary import Vocabulary, read_words

__all__ = ["CORPORA", "Corpus", "Language", "read_corpus"]

_NOTHING = -100  # a target that does not count


@dataclass(frozen=True)
class Corpus:
    """A data set of text: its training, validation and test file, and the width its paper embeds words in."""

    files: tuple[str, str, str]
    embedding: int


CORPORA: dict[str, Corpus] = {
    "ptb": Corpus(("ptb/ptb.train.txt", "ptb/ptb.valid.txt", "ptb/ptb.test.txt"), embedding=400),
    "wikitext-2": Corpus(("wikitext-2/train.txt", "wikitext-2/valid.txt", "wikitext-2/test.txt"), embedding=1024),
}
"""Every text by the name of its data set; widths of Lin and Wang's Table 9 and of Miller and Hardt's appendix."""


class Language(Task):
    r"""Predict the next word of a text; perplexity is the exponential of the mean cross-entropy.

    Words are numbered by first appearance in the training text; every line end is the word ``<eos>``. A text of N tokens has
    N - 1 predictions, :math:`x_i \to x_{i+1}`.

    *Training* cuts it into B rows (the batch size) of :math:`n = \lfloor (N - 1) / B \rfloor` successive predictions and reads
    ``bptt`` steps of all rows per batch: row b of the next batch goes on where row b of this one ended, so the state is
    carried; the first batch of an epoch is ``fresh``. At most B - 1 predictions at the very end are left out. The seed
    has no part.

    *Validation and test* count every one of the N - 1 predictions exactly once, in ``evaluation_rows`` rows whose lengths
    differ by at most one (the shorter ones end in a step whose target does not count). A row starts without memory of the one
    before it, so one row gives the text's own perplexity, and ten, which is faster, one that is slightly higher.

    Args:
        settings: Which text, and how it is cut.

    References:
        Zaremba, Sutskever, Vinyals. Recurrent Neural Network Regularization. 2014 (successive minibatches).
        Zhang, Lei, Dhillon. Stabilizing Gradients for Deep Neural Networks via Efficient SVD Parameterization.
        ICML 2018 (section 7.3). Lin, Wang. uRNN: An Approach to Bounded Gradients (section 5).
        Miller, Hardt. When Recurrent Models Don't Need To Be Recurrent (section 7.2).
    """

    metric = "perplexity"
    higher_is_better = False

    def __init__(self, settings: TextSettings) -> None:
        super().__init__()
        check_positive_int("bptt", settings.bptt)
        check_positive_int("evaluation_rows", settings.evaluation_rows)
        self.settings, self.corpus = settings, CORPORA[settings.data_set]
        self.vocabulary, self.texts = read_corpus(data_folder(settings.data_dir), self.corpus)

    @property
    def interface(self) -> Interface:
        """Tokens in, a logit for each word out, at every step."""
        words = len(self.vocabulary)
        return Interface(self.corpus.embedding, words, vocabulary=words, reads="each", carries_state=True)

    @property
    def baselines(self) -> Mapping[str, float]:
        """Entropy of the words that the test text asks for, each by itself, and its exponential."""
        loss = class_baseline(self.texts["test"][1:])["loss"]
        return {"loss": loss, "perplexity": math.exp(loss)}

    def epoch_steps(self, batch_size: int) -> int:
        """Return how many batches go through the training text."""
        return -(-self._row_length(batch_size) // self.settings.bptt)

    def train_batch(self, step: int, batch_size: int) -> Batch:
        """Return training batch number ``step``; it goes on from the one before it, unless it starts an epoch."""
        n, text = self._row_length(batch_size), self.texts["train"]
        start = check_step(step) % self.epoch_steps(batch_size) * self.settings.bptt
        stop = min(start + self.settings.bptt, n)
        x, y = (text[shift : shift + batch_size * n].view(batch_size, n)[:, start:stop] for shift in (0, 1))
        return Batch(x.t().contiguous(), y.t().contiguous(), fresh=start == 0)

    def batches(self, split: str, batch_size: int) -> Iterator[Batch]:
        """Yield the batches of a split in order; its rows are ``evaluation_rows``, whatever ``batch_size`` is."""
        check_positive_int("batch_size", batch_size)
        if split not in self.texts:
            raise ArgumentError(not_among("split", split, self.texts))
        x, y = _rows(self.texts[split], self.settings.evaluation_rows)  # (T, B)
        bptt = self.settings.bptt
        return (Batch(x[at : at + bptt], y[at : at + bptt], fresh=at == 0) for at in range(0, len(x), bptt))

    def loss(self, output: Tensor, batch: Batch) -> Tensor:
        """Return the mean cross-entropy of a word, in nats."""
        return cross_entropy(*_flat(output, batch.target), ignore_index=_NOTHING)

    def batch_weight(self, batch: Batch) -> Tensor:
        """Return the number of predictions that count."""
        return (batch.target != _NOTHING).sum()

    def scores(self, output: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Return the sum of cross-entropies and the number of predictions."""
        each = cross_entropy(*_flat(output, batch.target), ignore_index=_NOTHING, reduction="none")
        return {"cross_entropy": each.sum(dtype=torch.float64), "count": (batch.target != _NOTHING).sum(dtype=torch.float64)}

    def summary(self, sums: Mapping[str, float]) -> dict[str, float]:
        """Return loss and perplexity (infinite where it is beyond any number)."""
        loss = sums["cross_entropy"] / sums["count"]
        return {"loss": loss, "perplexity": math.inf if loss > 700 else math.exp(loss)}

    def to(self, device: torch.device | str) -> "Language":
        """Move the texts."""
        super().to(device)
        self.texts = {name: text.to(self.device) for name, text in self.texts.items()}
        return self

    def _row_length(self, batch_size: int) -> int:
        """Return the predictions of a training row."""
        n = (len(self.texts["train"]) - 1) // check_positive_int("batch_size", batch_size)
        if n == 0:
            raise ArgumentError(
                f"`batch_size` must be at most {len(self.texts['train']) - 1}, the predictions in the training text, "
                f"but is {batch_size}."
            )
        return n


def read_corpus(folder: Path, corpus: Corpus) -> tuple[Vocabulary, dict[str, Tensor]]:
    """Return the words of the training text, and the tokens, (N,), of ``train``, ``validation`` and ``test``."""
    words = [read_words(read_file(folder, path), folder / path) for path in corpus.files]
    vocabulary = Vocabulary(words[0])
    texts = {}
    for split, path, text in zip(("train", "validation", "test"), corpus.files, words, strict=True):
        if len(text) < 2:
            raise DataError(f"{folder / path} must have at least 2 tokens, one to see and one to predict, but has {len(text)}.")
        texts[split] = vocabulary.tokens(text, folder / path)
    return vocabulary, texts


def _rows(text: Tensor, rows: int) -> tuple[Tensor, Tensor]:
    """Return a text's inputs and targets, (T, B), each prediction once; the last step of the shorter rows does not count."""
    count = len(text) - 1
    rows = min(rows, count)
    sizes = torch.tensor([count // rows + (row < count % rows) for row in range(rows)], device=text.device)  # (B,)
    first = sizes.cumsum(0) - sizes
    time = torch.arange(-(-count // rows), device=text.device).unsqueeze(1)  # (T, 1)
    at = (first + time).clamp_(max=count - 1)
    return text[at], text[at + 1].masked_fill_(time >= sizes, _NOTHING)


def _flat(logits: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Return logits (T B, N), of at least float32, and targets (T B,)."""
    if logits.shape[:-1] != target.shape:
        raise ShapeError(
            f"`output` must have shape {tuple(target.shape)} and one more dimension, of words, but has {tuple(logits.shape)}."
        )
    return (logits if logits.dtype == torch.float64 else logits.float()).flatten(0, 1), target.flatten()
