"""Where data is looked for, what each set consists of, and whether the files are the right ones; free of torch."""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from steadyrnn.errors import ArgumentError, DataError, not_among

from .checksums import CHECKSUMS

__all__ = ["DATA_SETS", "VARIABLE", "DataFile", "DataSet", "check_data_set", "data_folder", "is_there", "read_file"]

VARIABLE = "STEADYRNN_DATA"
"""The environment variable that names the data folder."""

_MOST_BYTES = 1 << 30  # of a file whose size is not known
_OBTAIN = "It is cut off, altered or another release: obtain it again (`steadyrnn data list` says where)."


@dataclass(frozen=True)
class DataFile:
    """A file of a data set.

    Args:
        path: Where it lies inside the data folder, with forward slashes.
        size: Bytes; None where no published copy was at hand to measure.
        sha256: In hexadecimal; None likewise. What such a file holds is then checked by counting.
    """

    path: str
    size: int | None = None
    sha256: str | None = None


@dataclass(frozen=True)
class DataSet:
    """A data set: what it is, its files, how to obtain it.

    Args:
        name: As the program and the data folder call it.
        title: What it is, in a line.
        forms: The forms it is published in, each a tuple of files; one whole form is enough.
        obtain: Where a person gets it.
    """

    name: str
    title: str
    forms: dict[str, tuple[DataFile, ...]]
    obtain: str

    @property
    def files(self) -> tuple[DataFile, ...]:
        """The files of the first form."""
        return next(iter(self.forms.values()))


def _files_below(*folders: str) -> tuple[DataFile, ...]:
    """Return the files of the table of checksums that lie below any of ``folders``."""
    return tuple(DataFile(path, *sums) for path, sums in CHECKSUMS.items() if path.startswith(folders))


def _files_at(*paths: str) -> tuple[DataFile, ...]:
    return tuple(DataFile(path) for path in paths)


DATA_SETS: dict[str, DataSet] = {
    data.name: data
    for data in (
        DataSet(
            "mnist",
            "MNIST: 60,000 + 10,000 handwritten digits, 28 x 28 grey values, four gzip'ed IDX files",
            {"idx": _files_below("mnist/")},
            "`torchvision.datasets.MNIST(root, download=True)` leaves the four .gz files in root/MNIST/raw: copy them",
        ),
        DataSet(
            "ptb",
            "Penn Treebank, word level, as prepared by T. Mikolov: 929,589 / 73,760 / 82,430 tokens, 10,000 words",
            {"text": _files_below("ptb/")},
            "the folder data/ of `simple-examples.tgz` of Mikolov's RNNLM Toolkit",
        ),
        DataSet(
            "wikitext-2",
            "WikiText-2, word level: 2,088,628 / 217,646 / 245,569 tokens, 33,278 words",
            {"text": _files_below("wikitext-2/")},
            "`wikitext-2-v1.zip` (Merity et al.); name wiki.train.tokens train.txt, likewise valid.txt and test.txt",
        ),
        DataSet(
            "ucr",
            "UCR time series, release of 2018: the 21 sets of Zhang, Lei, Dhillon's Table 4",
            {"tsv": _files_below("ucr/")},
            "`UCRArchive_2018.zip` of the UCR Time Series Classification Archive (the password is in its briefing document)",
        ),
        DataSet(
            "bibtex",
            "Bibtex, multi-label: 4,880 + 2,515 rows, 1,836 features, 159 labels",
            {
                "mulan": _files_below("bibtex/"),
                "repository": _files_at("bibtex/Bibtex_data.txt", "bibtex/bibtex_trSplit.txt", "bibtex/bibtex_tstSplit.txt"),
            },
            "`bibtex.rar` of Mulan's page of multi-label data sets, or Bibtex of the Extreme Classification Repository",
        ),
        DataSet(
            "mediamill",
            "Mediamill, multi-label: 30,993 + 12,914 rows, 120 features, 101 labels",
            {
                "repository": _files_at(
                    "mediamill/Mediamill_data.txt", "mediamill/mediamill_trSplit.txt", "mediamill/mediamill_tstSplit.txt"
                ),
                "mulan": _files_at(
                    "mediamill/mediamill-train.arff", "mediamill/mediamill-test.arff", "mediamill/mediamill.xml"
                ),
            },
            "Mediamill of the Extreme Classification Repository, or `mediamill.rar` of Mulan's page of multi-label data sets",
        ),
    )
}
"""Every data set by name."""


def data_folder(given: str | os.PathLike[str] | None = None) -> Path:
    """Return the data folder: ``given``, else the one that the environment variable ``STEADYRNN_DATA`` names.

    Nothing is ever fetched from a network.

    Example:
        >>> data_folder(".")
        PosixPath('.')
    """
    named = given if given is not None else os.environ.get(VARIABLE) or None
    if named is None:
        raise DataError(
            f"No data folder is known. Set the environment variable {VARIABLE}, or pass `data_dir` (`--data-dir`), to the "
            f"folder that holds {', '.join(f'{name}/' for name in DATA_SETS)}. `steadyrnn data list` says how to obtain each."
        )
    folder = Path(os.path.expanduser(named))  # unlike Path's own, leaves an unknown ~user as it is
    if not (named and os.path.isdir(folder)):  # an empty name would be the current folder
        source = "`data_dir`" if given is not None else VARIABLE
        what = "a file" if os.path.isfile(folder) else "no such folder"
        raise DataError(f"{source} must name the folder that holds the data sets, but {str(named)!r} is {what}.")
    return folder


def is_there(name: str, folder: str | os.PathLike[str] | None = None) -> bool:
    """Say whether all files of one form of a data set are in the data folder; they are looked for, not read.

    Example:
        >>> is_there("mnist", "nowhere")
        False
    """
    try:
        where = data_folder(folder)
    except DataError:
        return False
    return any(all((where / file.path).is_file() for file in form) for form in DATA_SETS[name].forms.values())


def read_file(folder: Path, path: str) -> bytes:
    """Return the bytes of a data file, once they are known to be the published ones.

    Size and SHA-256 of the very bytes that are returned are compared with the table (3 ms a megabyte). A file that the table
    does not know is returned as it is: whoever parses it counts.

    Args:
        folder: The data folder.
        path: Of the file inside it.
    """
    where = folder / path
    try:
        if where.exists() and not (where.is_file() or where.is_dir()):
            raise DataError(f"{where} must be a regular file, but is a pipe, a socket or a device.")
        data = _read(where, CHECKSUMS[path][0] if path in CHECKSUMS else None)
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        raise DataError(_explain_missing(folder, path)) from None
    except OSError as error:
        raise DataError(f"{where} cannot be read: {error.strerror}. Make it readable for this user.") from error
    if path in CHECKSUMS and (problem := _difference(where, data, *CHECKSUMS[path])):
        raise DataError(problem)
    return data


def check_data_set(folder: Path, name: str) -> list[str]:
    """Return what is wrong with a data set in ``folder``, a sentence each; nothing if it is whole and right.

    Of a set with several forms, the one with most files present is reported. A file without a known checksum is only
    looked for: reading it counts rows, features and labels.
    """
    if name not in DATA_SETS:
        raise ArgumentError(not_among("name", name, DATA_SETS))
    forms = list(DATA_SETS[name].forms.values())
    files = max(forms, key=lambda form: sum((folder / file.path).is_file() for file in form))
    return [problem for file in files if (problem := _problem(folder, file)) is not None]


def _problem(folder: Path, file: DataFile) -> str | None:
    """Return what is wrong with a file."""
    where = folder / file.path
    if not where.is_file():
        return f"{where} is missing."
    if file.size is None or file.sha256 is None:
        return None
    try:
        return _difference(where, _read(where, file.size), file.size, file.sha256)
    except DataError as error:
        return str(error)
    except OSError as error:
        return f"{where} cannot be read: {error.strerror}."


def _read(where: Path, size: int | None) -> bytes:
    """Return the bytes of a file; one that is far larger than it should be is refused before memory is taken for it."""
    found, most = where.stat().st_size, _MOST_BYTES if size is None else 2 * size  # with line ends of two bytes it is larger
    if found > most:
        expected = f"at most {most:,}" if size is None else f"{size:,}"
        raise DataError(f"{where} must have {expected} bytes, but has {found:,}. {_OBTAIN}")
    with where.open("rb") as file:
        return file.read(found)


def _difference(where: Path, data: bytes, size: int, sha256: str) -> str | None:
    """Return in which way ``data`` is not the published file, or None."""
    if len(data) != size:
        if hashlib.sha256(data.replace(b"\r\n", b"\n")).hexdigest() == sha256:
            return f"{where} must have line ends of one byte (LF), but they were converted to CR LF. Obtain it again."
        return f"{where} must have {size:,} bytes, but has {len(data):,}. {_OBTAIN}"
    found = hashlib.sha256(data).hexdigest()
    if found != sha256:
        return f"{where} must have SHA-256 {sha256}, but has {found}. {_OBTAIN}"
    return None


def _explain_missing(folder: Path, path: str) -> str:
    """Return the message for a file that is not there: where it was looked for, and how to get it."""
    data = DATA_SETS.get(path.split("/")[0])
    obtain = f" To obtain it: {data.obtain}." if data else ""
    older = _OLDER if path.startswith("ucr/") and any((folder / "ucr").glob("**/*_TRAIN")) else ""
    partial = " A partial download (.part) lies beside it." if (folder / f"{path}.part").exists() else ""
    return f"{folder / path} is missing.{older}{partial}{obtain} Place it there, or name another data folder."


_OLDER = (
    " Files of the release of 2015 lie there (NAME_TRAIN, without .tsv); they have other names, splits and digits, so "
    "only those of 2018 are read."
)
