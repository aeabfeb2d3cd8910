"""IDX files: what is read, and every way in which a file may not be one."""

import gzip
from pathlib import Path

import pytest
import torch

from steadyrnn.errors import DataError
from steadyrnn.tasks.idx import gunzip, read_idx
from steadyrnn.tasks.mnist import read_digits
from tests.support.stored_data import idx

WHERE = Path("folder") / "images.gz"


def test_numbers_come_in_the_shape_of_the_header() -> None:
    found = read_idx(idx(2, 1, 3, numbers=bytes([0, 1, 2, 253, 254, 255])), WHERE, (None, 1, 3))
    assert found.dtype == torch.uint8
    assert found.tolist() == [[[0, 1, 2]], [[253, 254, 255]]]


@pytest.mark.parametrize(
    ("data", "shape", "words"),
    [
        (b"", (None,), "0 bytes"),
        (bytes([0, 0, 8]), (None,), "3 bytes"),
        (idx(3, numbers=b"abc", code=9), (None,), "unsigned bytes"),
        (idx(1, 1, 1, numbers=b"a"), (None,), "exchanged"),
        (idx(3, numbers=b"abc")[:6], (None,), "begin"),
        (idx(3, numbers=b"ab"), (None,), "promises 3 numbers"),
        (idx(3, numbers=b"abcd"), (None,), "4 follow"),
        (idx(2**31, 28, 28, numbers=b"a"), (None, 28, 28), "header is wrong"),
        (idx(0, numbers=b""), (None,), "size 0"),
        (idx(1, 27, 28, numbers=bytes(756)), (None, 28, 28), r"\('any', 28, 28\)"),
        (b"\x1f\x8b" + bytes(20), (None,), "begins with 1f8b"),
    ],
)
def test_a_file_that_is_not_what_it_says_is_refused(data: bytes, shape: tuple[int | None, ...], words: str) -> None:
    with pytest.raises(DataError, match=words) as caught:
        read_idx(data, WHERE, shape)
    assert str(WHERE) in str(caught.value)


PACKED = gzip.compress(bytes(range(256)) * 8, mtime=0)


@pytest.mark.parametrize("size", range(len(PACKED)))
def test_a_gzip_file_cut_off_anywhere_is_refused(size: int) -> None:
    if size == 0:
        assert gunzip(b"", WHERE) == b""  # no member at all: the header of what is inside is missed next
    else:
        with pytest.raises(DataError, match="gzip"):
            gunzip(PACKED[:size], WHERE)


@pytest.mark.parametrize("data", [b"not packed at all", PACKED[:-8] + bytes(8), PACKED[:12] + b"\xff" * 9 + PACKED[21:]])
def test_a_damaged_gzip_file_is_refused(data: bytes) -> None:
    with pytest.raises(DataError, match="gzip"):
        gunzip(data, WHERE)


@pytest.mark.parametrize(
    ("images", "labels", "words"),
    [(3, bytes([1, 2]), "each of 3 images, but has 2"), (2, bytes([9, 10]), "from 0 to 9, but has 10")],
)
def test_labels_must_fit_the_images(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, images: int, labels: bytes, words: str
) -> None:
    monkeypatch.setattr("steadyrnn.tasks.locate.CHECKSUMS", {})
    (tmp_path / "mnist").mkdir()
    for kind, data in (
        ("images-idx3", idx(images, 28, 28, numbers=bytes(784 * images))),
        ("labels-idx1", idx(len(labels), numbers=labels)),
    ):
        (tmp_path / "mnist" / f"train-{kind}-ubyte.gz").write_bytes(gzip.compress(data))
    with pytest.raises(DataError, match=words):
        read_digits(tmp_path, "train")
