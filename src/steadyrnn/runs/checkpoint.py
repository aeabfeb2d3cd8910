"""Checkpoints: named tensors and facts that are replaced as a whole and refused when a single bit has changed."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import MappingProxyType
from typing import Any

from torch import Tensor

from steadyrnn.errors import CheckpointError, RunError

from .files import is_temporary, list_folder, make_folder, remove_quietly, write_atomically
from .json_text import decode_exactly, encode_exactly, parse_file, render
from .regular import MOST_BYTES, read_if_there
from .tensors import Packed, pack, unpack

__all__ = ["DOCUMENT", "Checkpoint", "load_checkpoint", "save_checkpoint"]

_FORMAT = 1
DOCUMENT = "checkpoint.json"
"""The file of a checkpoint that names the other."""
_TENSORS = re.compile(r"tensors-[0-9a-f]{16}\.safetensors")
_ATTEMPTS = 20  # a reader that finds its tensors replaced starts again


@dataclass(frozen=True)
class Checkpoint:
    """What a checkpoint holds.

    Args:
        tensors: By name, contiguous, on the CPU; tied names share one tensor.
        facts: The JSON value saved with them.
        run: What the run folder was when it was saved, by which parts of different runs are told apart; empty where unknown.
    """

    tensors: dict[str, Tensor]
    facts: Any
    run: dict[str, Any] = field(default_factory=dict, repr=False)


def save_checkpoint(
    folder: Path, tensors: Mapping[str, Tensor], facts: Any, run: Mapping[str, Any] = MappingProxyType({})
) -> None:
    """Replace the checkpoint in a folder.

    Two files cannot be renamed at once. So the tensors go into a file that is named after their content, first; then
    ``checkpoint.json``, which names that file and its checksum, takes the place of the old one by a rename; then the old
    tensors are removed. Whatever kills the process, and whenever, ``checkpoint.json`` names tensors that are whole.
    The caller is the only writer of the folder.

    Args:
        folder: Made where there is none.
        tensors: Dense tensors by name, of any shape, strides, device, and any usual dtype.
        facts: A JSON value. Floats come back bit for bit, NaN and infinity too; tuples come back as lists.
        run: What else to keep of the run folder, as JSON.

    Raises:
        RunError: The system refused to write; the old checkpoint is whole.
        ArgumentTypeError: A tensor or a fact cannot be stored.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_checkpoint(Path(folder, "last"), {"weight": torch.ones(2)}, {"step": 7})
        ...     load_checkpoint(Path(folder, "last"))
        Checkpoint(tensors={'weight': tensor([1., 1.])}, facts={'step': 7})
    """
    packed = pack(tensors)
    name, document = _document(packed, encode_exactly(facts, "facts"), dict(run))
    make_folder(folder)
    named = _read_name(folder)
    if named is not None:  # leftovers of a killed save may be what fills the disk
        _sweep(folder, named)
    try:
        write_atomically(folder / name, packed.data)
        write_atomically(folder / DOCUMENT, document)
    except BaseException:
        if _read_name(folder) not in (name, None):
            remove_quietly(folder / name)
        raise
    _sweep(folder, name)


def load_checkpoint(folder: Path) -> Checkpoint:
    """Return the checkpoint in a folder, all of it as it was saved; needs no lock.

    Raises:
        CheckpointError: There is none, or a file of it is missing, cut short, altered or of another version.
    """
    missing = ""
    for _ in range(_ATTEMPTS):
        content = _read_document(folder / DOCUMENT)
        path = folder / content["file"]["name"]
        data = _read(path, content["file"]["bytes"])
        if data is not None:
            return _verify(path, data, content)
        if missing == path.name:
            break
        missing = path.name  # a writer may have replaced the checkpoint between the two reads
    raise CheckpointError(f"`{folder / missing}` is missing, which `{DOCUMENT}` names; the checkpoint cannot be loaded.")


def _document(packed: Packed, facts: Any, run: dict[str, Any]) -> tuple[str, bytes]:
    """Return the name of the file of tensors and the text that names it."""
    digest = hashlib.sha256(packed.data).hexdigest()
    name = f"tensors-{digest[:16]}.safetensors"
    content = {
        "version": _version(),
        "file": {"name": name, "bytes": len(packed.data), "sha256": digest},
        "tensors": packed.table,
        "facts": facts,
        **({"run": run} if run else {}),
    }
    return name, _sign(content)


def _sign(content: dict[str, Any]) -> bytes:
    digest = hashlib.sha256(render(content).encode()).hexdigest()
    return render({"format": _FORMAT, "sha256": digest, "content": content}).encode()


def _version() -> str | None:
    try:
        return version("steadyrnn")
    except PackageNotFoundError:  # run from the source tree
        return None


def _read(path: Path, most: int = MOST_BYTES) -> bytes | None:
    try:
        return read_if_there(path, most)
    except RunError as error:
        raise CheckpointError(str(error)) from error


def _read_document(path: Path) -> dict[str, Any]:
    """Return the content of ``checkpoint.json``, checked bit for bit, with the types its readers rely on."""
    data = _read(path)
    if data is None:
        raise CheckpointError(f"`{path}` is missing: there is no checkpoint in `{path.parent}`.")
    document = parse_file(data, path, CheckpointError)
    if not isinstance(document, dict) or "format" not in document:
        raise CheckpointError(f"`{path}` is damaged: it has no format version.")
    if document["format"] != _FORMAT or isinstance(document["format"], bool):
        raise CheckpointError(
            f"`{path}` must have format version {_FORMAT}, but has {str(document['format'])[:40]}. Load it with the release "
            "of steadyrnn that wrote it, or with a later one."
        )
    content = document.get("content")
    if not isinstance(content, dict) or _sign(content) != data:  # one value has one text, so this is every bit
        raise CheckpointError(f"`{path}` is damaged: its checksum does not fit.")
    _check_types(path, content)
    return content


def _check_types(path: Path, content: dict[str, Any]) -> None:
    match content:
        case {"file": {"name": str(name), "bytes": int(), "sha256": str()}, "tensors": dict(table), "facts": _}:
            whole = isinstance(content.get("run", {}), dict) and all(isinstance(entry, dict) for entry in table.values())
            if _TENSORS.fullmatch(name) and whole:
                return
    raise CheckpointError(f"`{path}` is damaged: it does not have the fields of a checkpoint, or not of their types.")


def _verify(path: Path, data: bytes, content: dict[str, Any]) -> Checkpoint:
    """Return the checkpoint once every checksum fits."""
    size = content["file"]["bytes"]
    if len(data) != size:
        raise CheckpointError(f"`{path}` must have {size} bytes, but has {len(data)}: it was cut short or altered.")
    if hashlib.sha256(data).hexdigest() != content["file"]["sha256"]:
        raise CheckpointError(f"`{path}` is damaged: its checksum does not fit.")
    try:
        run = content.get("run", {})
        return Checkpoint(unpack(data, content["tensors"]), decode_exactly(content["facts"]), run)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"`{path}` does not fit `{DOCUMENT}`: {error}.") from error


def _read_name(folder: Path) -> str | None:
    """Return the file of tensors that the checkpoint in place names: "" where there is none, None where it is damaged."""
    try:
        if read_if_there(folder / DOCUMENT) is None:
            return ""
        return str(_read_document(folder / DOCUMENT)["file"]["name"])
    except (CheckpointError, RunError):
        return None


def _sweep(folder: Path, keep: str) -> None:
    """Remove the tensors no checkpoint names and the temporary files of killed saves."""
    for name in list_folder(folder):
        if is_temporary(name) or (_TENSORS.fullmatch(name) and name != keep):
            remove_quietly(folder / name)
