"""Sentences that a trained language model writes, how long they are, and which of their phrases the training text has."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from steadyrnn.errors import ArgumentError
from steadyrnn.jobs.configuration import Configuration
from steadyrnn.jobs.loading import build_task, load_trained
from steadyrnn.tasks.decoding import generate
from steadyrnn.tasks.text import Language
from steadyrnn.tasks.vocabulary import END

from .base import Judgement, judge_numbers
from .training import train_network

__all__ = ["count_words", "find_phrases", "judge_length", "judge_phrases", "write_sentences"]

_PHRASE = 3
"""Words of a phrase."""


def write_sentences(
    settings: Mapping[str, Any], prompts: Sequence[str], longest: int, seed: int, folder: Path,
    found: Mapping[str, Any] | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Train a language model, and let its best weights write: the likeliest word each time.

    Args:
        settings: Of :func:`~steadyrnn.experiments.training.train_network`; the task is a language.
        prompts: First words of sentences.
        longest: Words after which a sentence is cut.
        seed: Of the training.
        folder: For the run.
        found: What a search chose, on top of ``settings``.

    Returns:
        What :func:`~steadyrnn.experiments.training.train_network` returns, and ``sentences``: for each prompt the ``text``, its
        ``words`` up to the end or to where it repeats itself, and ``known``, the share of their phrases, of three words each,
        that the training text has. There is none of a run that diverged.

    Raises:
        ArgumentError: The task is no text.
    """
    task = build_task(Configuration.from_dotted(settings))
    if not isinstance(task, Language):
        raise ArgumentError(f"`settings` must have a text as task, but have {settings.get('task.name')!r}.")
    done = train_network(settings, seed, folder, found)
    if done["test"] is None:
        return {**done, "sentences": []}
    model, known, sentences = load_trained(folder).model, find_phrases(task.texts["train"], len(task.vocabulary)), []
    for prompt in prompts:
        tokens = task.vocabulary.encode(f"{END} {prompt}")
        written = torch.cat([tokens[1:], generate(model, tokens, longest)])
        words = [task.vocabulary.words[token] for token in written.tolist()]
        count = count_words(words)
        phrases = find_phrases(written[:count], len(task.vocabulary))
        share = float(torch.isin(phrases, known).double().mean()) if len(phrases) else 0.0
        sentences.append({"text": " ".join(words[:count]), "words": count, "known": round(share, 4)})
    return {**done, "sentences": sentences}


def find_phrases(tokens: Tensor, vocabulary: int) -> Tensor:
    """Return a number for each different phrase of a text, (P,).

    Example:
        >>> find_phrases(torch.tensor([1, 2, 3, 1, 2, 3]), 10)
        tensor([123, 231, 312])
    """
    count = max(0, len(tokens) - _PHRASE + 1)
    parts = [tokens[start : start + count].long() * vocabulary ** (_PHRASE - 1 - start) for start in range(_PHRASE)]
    phrases: Tensor = torch.stack(parts).sum(0).unique()
    return phrases


def count_words(words: Sequence[str]) -> int:
    """Return how many words a sentence has up to its end, or up to the first phrase of three words that it has twice.

    Example:
        >>> count_words("he said it was a <eos> new".split()), count_words("of the best of the best of the".split())
        (5, 3)
    """
    end = words.index(END) if END in words else len(words)
    seen = set[tuple[str, ...]]()
    for start in range(end - _PHRASE + 1):
        phrase = tuple(words[start : start + _PHRASE])
        if phrase in seen:
            return start
        seen.add(phrase)
    return end


def judge_length(cells: Mapping[str, Any], model: str, words: int) -> Judgement:
    """Judge that the longest sentence of a run has so many words, in the mean over seeds.

    Example:
        >>> judge_length({"urnn/seed0": {"sentences": [{"text": "it was", "words": 2, "known": 0.0}]}}, "urnn", 46).ours
        'longest 2 words: it was'
    """
    runs = [cell["sentences"] for name, cell in cells.items() if name.startswith(f"{model}/seed")]
    if not all(runs):
        return Judgement("not seen", f"{sum(not run for run in runs)} of {len(runs)} runs diverged", seeds=len(runs))
    longest = [max(run, key=lambda sentence: sentence["words"]) for run in runs]
    counts = [sentence["words"] for sentence in longest]
    best = max(longest, key=lambda sentence: sentence["words"])
    text = f"longest {best['words']} words: {best['text']}"
    return judge_numbers("seen" if fmean(counts) >= words else "not seen", text, counts, "words")


def judge_phrases(cells: Mapping[str, Any], model: str) -> Judgement:
    """Judge that the training text has most phrases of the sentences.

    Example:
        >>> judge_phrases({"urnn/seed0": {"sentences": [{"text": "", "words": 9, "known": 0.75}]}}, "urnn").ours
        '75 % of phrases of three words'
    """
    runs = [cell["sentences"] for name, cell in cells.items() if name.startswith(f"{model}/seed")]
    if not all(runs):
        return Judgement("not seen", f"{sum(not run for run in runs)} of {len(runs)} runs diverged", seeds=len(runs))
    shares = [fmean(sentence["known"] for sentence in run) for run in runs]
    text = f"{100 * fmean(shares):.3g} % of phrases of three words"
    return judge_numbers("seen" if fmean(shares) > 0.5 else "not seen", text, shares, "share")
