"""The test that readers of data files share: a bad file is refused with its path and the reason."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from steadyrnn.errors import DataError

__all__ = ["make_bad_file_test"]


def make_bad_file_test(
    read: Callable[[bytes], object], where: Path, good: bytes, cases: Sequence[tuple[bytes, bytes, str]]
) -> Callable[[bytes, bytes, str], None]:
    """Return the test that ``read`` refuses the good file once ``old`` is replaced with ``new``, in the words given."""

    @pytest.mark.parametrize(("old", "new", "words"), cases)
    def test(old: bytes, new: bytes, words: str) -> None:
        assert old in good
        with pytest.raises(DataError, match=words) as caught:
            read(good.replace(old, new))
        assert str(where) in str(caught.value)

    return test
