"""Made-up data sets in the forms of the real ones, small, so that tasks on stored data are tested without the real files."""

import gzip
import hashlib
import struct
from dataclasses import replace
from pathlib import Path

import pytest

from steadyrnn.tasks import checksums, multilabel, ucr_sets

STORED = ("mnist", "mnist-rows", "pixel-mnist", "permuted-mnist", "ptb", "wikitext-2", "ucr", "bibtex", "mediamill")
"""Every task on stored data."""

SETTINGS: dict[str, dict[str, object]] = {
    **{key: {"validation": 6} for key in ("mnist", "mnist-rows", "pixel-mnist", "permuted-mnist")},
    **{key: {"bptt": 3, "evaluation_rows": 4} for key in ("ptb", "wikitext-2")},
}
"""What a task needs to fit the made-up data."""

FOLDERS = {"mnist-rows": "mnist", "pixel-mnist": "mnist", "permuted-mnist": "mnist"}
"""Data set of a task, where the names differ."""

WORDS = ["the", "cat", "sat", "on", "a", "mat", "and", "saw", "<unk>", "N", "dogs"]


def idx(*sizes: int, numbers: bytes, code: int = 8) -> bytes:
    """Return an IDX file."""
    return bytes([0, 0, code, len(sizes)]) + struct.pack(f">{len(sizes)}I", *sizes) + numbers


def mnist() -> dict[str, bytes]:
    """Return digits: image i has its number in its first two pixels, so that no two are equal."""
    files = {}
    for part, rows, offset in (("train", 20, 0), ("t10k", 9, 100)):
        images = b"".join(bytes([i + offset, i + 1]) + bytes((7 * i + p) % 256 for p in range(782)) for i in range(rows))
        files[f"mnist/{part}-images-idx3-ubyte.gz"] = gzip.compress(idx(rows, 28, 28, numbers=images), mtime=0)
        labels = bytes(i % 10 for i in range(rows))
        files[f"mnist/{part}-labels-idx1-ubyte.gz"] = gzip.compress(idx(rows, numbers=labels), mtime=0)
    return files


def text(*paths: str) -> dict[str, bytes]:
    """Return texts of 61, 34 and 23 tokens."""
    files = {}
    for start, (path, lines) in enumerate(zip(paths, (11, 6, 4), strict=True)):
        rows = [
            " ".join(WORDS[(3 * start + 5 * line + at) % len(WORDS)] for at in range(3 + line % 4)) for line in range(lines)
        ]
        files[path] = "".join(f" {row} \n" for row in [*rows, ""][: lines + 1]).encode()
    return files


def ucr() -> dict[str, bytes]:
    """Return a set named CBF: series of 12 numbers, 3 classes."""
    files = {}
    for part, rows in (("TRAIN", 10), ("TEST", 14)):
        lines = [[1 + i % 3, *((i * 12 + t) / 8 - 3 for t in range(12))] for i in range(rows)]
        files[f"ucr/UCRArchive_2018/CBF/CBF_{part}.tsv"] = "".join("\t".join(map(str, line)) + "\n" for line in lines).encode()
    return files


def bibtex() -> dict[str, bytes]:
    """Return Mulan's form: 4 features, 6 labels, 12 and 7 rows."""
    names = [*(f"word{i}" for i in range(4)), *(f"TAG_{i}" for i in range(6))]
    header = "@relation made_up\n\n" + "".join(f"@attribute {name} {{0,1}}\n" for name in names) + "\n@data\n"
    xml = "<labels>\n" + "".join(f'<label name="{name}"></label>\n' for name in names[4:]) + "</labels>\n"
    files = {"bibtex/bibtex.xml": xml.encode()}
    for part, rows in (("train", 12), ("test", 7)):
        lines = ["{" + ",".join(f"{c} 1" for c in range(10) if (i + 1) * 37 >> c & 1) + "}\n" for i in range(rows)]
        files[f"bibtex/bibtex-{part}.arff"] = (header + "".join(lines)).encode()
    return files


def mediamill() -> dict[str, bytes]:
    """Return the repository's form: 3 features, 7 labels, 15 rows of which 9 train and 6 test, two ways."""
    rows = [",".join(str(c) for c in range(7) if i >> c % 4 & 1) + f" 0:{i}.5 2:{-i}" for i in range(15)]
    split = {"tr": [(i + 1, 15 - i) for i in range(9)], "tst": [(i + 1, 15 - i) for i in range(9, 15)]}
    files = {"mediamill/Mediamill_data.txt": ("15 3 7\n" + "".join(f"{row}\n" for row in rows)).encode()}
    for part, pairs in split.items():
        files[f"mediamill/mediamill_{part}Split.txt"] = "".join(f"{a} {b}\n" for a, b in pairs).encode()
    return files


def make_folder(folder: Path, patch: pytest.MonkeyPatch) -> Path:
    """Write every made-up set into ``folder`` and let the package expect exactly these files until the test ends."""
    wiki = ("wikitext-2/train.txt", "wikitext-2/valid.txt", "wikitext-2/test.txt")
    files = mnist() | text("ptb/ptb.train.txt", "ptb/ptb.valid.txt", "ptb/ptb.test.txt") | text(*wiki) | ucr() | bibtex()
    for path, data in files.items():
        patch.setitem(checksums.CHECKSUMS, path, (len(data), hashlib.sha256(data).hexdigest()))
    for path, data in (files | mediamill()).items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    patch.setitem(ucr_sets.UCR_SETS, "CBF", replace(ucr_sets.UCR_SETS["CBF"], rows=(10, 14), length=12))
    patch.setitem(multilabel.SIZES, "bibtex", multilabel.Sizes((12, 7), 4, 6))
    patch.setitem(multilabel.SIZES, "mediamill", multilabel.Sizes((9, 6), 3, 7))
    patch.setenv("STEADYRNN_DATA", str(folder))
    return folder
