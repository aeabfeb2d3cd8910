"""Words and their numbers, and text as numbers."""

from collections.abc import Iterable
from pathlib import Path

import torch
from torch import Tensor

from steadyrnn.errors import ArgumentError, DataError

__all__ = ["END", "UNKNOWN", "Vocabulary", "read_words"]

END, UNKNOWN = "<eos>", "<unk>"


class Vocabulary:
    r"""Words numbered in the order of their first appearance.

    Args:
        words: In that order; what repeats counts once.

    Example:
        >>> vocabulary = Vocabulary(["the", "cat", "<eos>", "the"])
        >>> len(vocabulary), vocabulary.encode("cat the").tolist(), vocabulary.decode([0, 1, 2, 0])
        (3, [1, 0], 'the cat\nthe')
    """

    def __init__(self, words: Iterable[str]) -> None:
        self.words = tuple(dict.fromkeys(words))
        self.numbers = {word: number for number, word in enumerate(self.words)}

    def __len__(self) -> int:
        return len(self.words)

    def encode(self, text: str) -> Tensor:
        """Return the numbers of a person's words, (T,): a line end is ``<eos>``, a word that is not known ``<unk>``."""
        words = text.replace("\n", f" {END} ").split()
        unknown = next((word for word in words if word not in self.numbers), None)
        if unknown is not None and UNKNOWN not in self.numbers:
            raise ArgumentError(f"`text` must consist of known words, since there is no {UNKNOWN}, but has {unknown!r}.")
        return torch.tensor([self.numbers.get(word, self.numbers.get(UNKNOWN, 0)) for word in words], dtype=torch.int64)

    def decode(self, tokens: Iterable[int] | Tensor) -> str:
        """Return the text of tokens: words with spaces between, a line end for ``<eos>``."""
        numbers = tokens.tolist() if isinstance(tokens, Tensor) else tokens
        text = " ".join("\n" if self.words[number] == END else self.words[number] for number in numbers)
        return text.replace(" \n", "\n").replace("\n ", "\n")

    def tokens(self, words: list[str], where: Path) -> Tensor:
        """Return the numbers of the words of a file, (N,); each must be known, since a data set's own list is complete."""
        try:
            return torch.tensor([self.numbers[word] for word in words], dtype=torch.int64)
        except KeyError as error:
            raise DataError(
                f"{where} must only have words of the training text, but has {error}. Its files belong to different sets."
            ) from None


def read_words(data: bytes, where: Path) -> list[str]:
    r"""Return the words of a text and an ``<eos>`` for every line end, empty lines included.

    Args:
        data: The whole file, UTF-8; a line ends with ``\n`` and nothing else.
        where: Its path, named in errors.

    Example:
        >>> read_words(b" a b \n\n c\n", Path("a.txt"))
        ['a', 'b', '<eos>', '<eos>', 'c', '<eos>']
    """
    if not data.strip():
        raise DataError(f"{where} must be a text of words, but is empty.")
    if b"\r" in data:
        raise DataError(f"{where} must have line ends of one byte (LF), but has CR: it was converted. Obtain it again.")
    if not data.endswith(b"\n"):
        raise DataError(f"{where} must end with a line end, but its last line is cut off. Obtain it again.")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise DataError(f"{where} must be UTF-8, but byte {error.start} is not. Obtain it again.") from None
    if END in text:
        raise DataError(f"{where} must not have the word {END}, which stands for line ends, but has it.")
    return text.replace("\n", f" {END} ").split()
