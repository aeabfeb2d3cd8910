"""Words and their numbers."""

from pathlib import Path

import pytest

from steadyrnn.errors import ArgumentError, DataError
from steadyrnn.tasks.vocabulary import Vocabulary, read_words

WHERE = Path("ptb") / "ptb.train.txt"


def test_every_line_end_is_a_word_empty_lines_too() -> None:
    assert read_words(b" a  <unk> \n \n\nb\n", WHERE) == ["a", "<unk>", "<eos>", "<eos>", "<eos>", "b", "<eos>"]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "empty"),
        (b" \n \n", "empty"),
        (b"a b\r\nc\r\n", "has CR"),
        (b"a b\nc", "cut off"),
        (b"a \xff\xfe\n", "UTF-8, but byte 2"),
        (b"a <eos>\n", "<eos>"),
    ],
)
def test_a_bad_text_is_refused_with_its_path_and_the_reason(data: bytes, words: str) -> None:
    with pytest.raises(DataError, match=words) as caught:
        read_words(data, WHERE)
    assert str(WHERE) in str(caught.value)


def test_words_are_numbered_by_first_appearance() -> None:
    vocabulary = Vocabulary(["b", "a", "<eos>", "a", "b"])
    assert vocabulary.words == ("b", "a", "<eos>")
    assert vocabulary.tokens(["a", "b", "a"], WHERE).tolist() == [1, 0, 1]


def test_a_word_that_the_training_text_lacks_is_named() -> None:
    with pytest.raises(DataError, match="'zebra'"):
        Vocabulary(["a"]).tokens(["a", "zebra"], WHERE)


def test_a_persons_text_comes_back_with_unknown_words_marked() -> None:
    vocabulary = Vocabulary(["the", "cat", "<eos>", "<unk>"])
    tokens = vocabulary.encode("the zebra\nthe cat")
    assert tokens.tolist() == [0, 3, 2, 0, 1]
    assert vocabulary.decode(tokens) == "the <unk>\nthe cat"
    assert vocabulary.encode("").tolist() == []


def test_without_a_mark_for_unknown_words_one_is_an_error() -> None:
    with pytest.raises(ArgumentError, match="'zebra'"):
        Vocabulary(["the"]).encode("the zebra")


def test_every_line_end_of_a_persons_text_counts() -> None:
    vocabulary = Vocabulary(["a", "<eos>", "<unk>"])
    assert vocabulary.encode("a\n\nb a\n").tolist() == [0, 1, 1, 2, 0, 1]
