"""The test that readers of data files share: a bad file is refused with its path and the reason."""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from steadyrnn.errors import DataError

__all__ = ["make_bad_file_test"]

BAD_NUMBERS = {b"nan": "finite", b"inf": "finite", b"4e38": "float32", b"-4e38": "float32"}
"""Numbers that no reader accepts, and a word of the reason."""


def make_bad_file_test(
    read: Callable[[bytes], object],
    where: Path,
    good: bytes,
    number: bytes,
    no_number: str,
    damages: Mapping[bytes, Mapping[bytes, str]],
) -> Callable[[bytes, bytes, str], None]:
    """Return the test that ``read`` refuses the good file once a part of it is replaced.

    Args:
        read: The reader.
        where: The path that its errors name.
        good: A file that it accepts.
        number: A number of that file, in whose place no bad number and no word is accepted.
        no_number: What the reader says about a word in place of a number.
        damages: For other parts of the file, what they are replaced with, and what the reader says about it.
    """
    cases = [(old, new, words) for old, changes in damages.items() for new, words in changes.items()]
    cases += [(number, new, words) for new, words in {**BAD_NUMBERS, b"two": no_number}.items()]

    @pytest.mark.parametrize(("old", "new", "words"), cases)
    def test(old: bytes, new: bytes, words: str) -> None:
        assert old in good
        with pytest.raises(DataError, match=words) as caught:
            read(good.replace(old, new))
        assert str(where) in str(caught.value)

    return test
