"""Checkpoints come back as they were saved, and a damaged one is refused, whatever was damaged."""

import ast
import hashlib
import json
import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import steadyrnn
from steadyrnn.errors import ArgumentTypeError, CheckpointError, RunError
from steadyrnn.runs import checkpoint as checkpoint_module
from steadyrnn.runs.checkpoint import load_checkpoint, save_checkpoint
from steadyrnn.runs.json_text import render
from tests.runs.faulty import names_in

GOLDEN = Path(__file__).with_name("golden")


def small() -> dict[str, torch.Tensor]:
    weight = torch.arange(6.0).view(2, 3)
    return {"weight": weight, "tied": weight, "steps": torch.tensor(3), "mask": torch.tensor([True, False])}


def tensors_file(folder: Path) -> Path:
    (path,) = folder.glob("*.safetensors")
    return path


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    save_checkpoint(tmp_path / "last", small(), {"step": 3})
    return tmp_path / "last"


@pytest.fixture
def large(tmp_path: Path) -> Path:
    save_checkpoint(tmp_path / "large", {f"layer{i}.weight": torch.randn(64, 32) for i in range(8)}, {"step": 3})
    return tmp_path / "large"


def refused(folder: Path, expected: str = "") -> None:
    with pytest.raises(CheckpointError, match=expected):
        load_checkpoint(folder)


def test_tensors_and_facts_come_back(saved: Path) -> None:
    checkpoint = load_checkpoint(saved)
    assert checkpoint.facts == {"step": 3}
    assert list(checkpoint.tensors) == ["weight", "tied", "steps", "mask"]
    assert all(torch.equal(checkpoint.tensors[name], tensor) for name, tensor in small().items())
    assert checkpoint.tensors["tied"] is checkpoint.tensors["weight"]


def test_facts_keep_what_json_has_no_number_for(tmp_path: Path) -> None:
    facts = {"best": -math.inf, "loss": math.nan, "rates": [0.1, -0.0], "$float": "mine", "none": None}
    save_checkpoint(tmp_path, {}, facts)
    back = load_checkpoint(tmp_path).facts
    assert repr(back) == repr(facts)


def test_a_new_checkpoint_takes_the_place_of_the_old(saved: Path) -> None:
    first = tensors_file(saved).name
    save_checkpoint(saved, {"other": torch.ones(4)}, [1, 2])
    checkpoint = load_checkpoint(saved)
    assert checkpoint.facts == [1, 2]
    assert list(checkpoint.tensors) == ["other"]
    assert first not in names_in(saved)
    assert len(names_in(saved)) == 2


def test_the_same_tensors_with_other_facts_are_another_checkpoint(saved: Path) -> None:
    save_checkpoint(saved, small(), {"step": 4})
    assert load_checkpoint(saved).facts == {"step": 4}
    assert len(names_in(saved)) == 2


def test_a_damaged_file_is_mended_by_saving_the_same_tensors(saved: Path) -> None:
    tensors_file(saved).write_bytes(b"")
    save_checkpoint(saved, small(), {"step": 3})
    assert load_checkpoint(saved).facts == {"step": 3}


def test_leftovers_of_a_killed_save_are_swept_and_other_files_are_not(saved: Path) -> None:
    for name in ("tensors-0123456789abcdef.safetensors", ".checkpoint.json.00ff.tmp", "notes.txt"):
        (saved / name).write_bytes(b"x")
    save_checkpoint(saved, small(), {"step": 4})
    assert names_in(saved) == ["checkpoint.json", "notes.txt", tensors_file(saved).name]


def test_facts_that_are_no_json_are_refused_and_the_old_checkpoint_stays(saved: Path) -> None:
    with pytest.raises(ArgumentTypeError, match=r"`facts\.step` must be a JSON value .*Tensor"):
        save_checkpoint(saved, small(), {"step": torch.tensor(3)})
    assert load_checkpoint(saved).facts == {"step": 3}


def test_a_checkpoint_of_format_1_is_loaded_forever() -> None:
    checkpoint = load_checkpoint(GOLDEN / "format-1")
    assert checkpoint.facts == {"step": 7, "best": math.inf, "names": ["é", "$float"], "rate": 0.1}
    assert checkpoint.tensors["decoder"] is checkpoint.tensors["encoder"]
    assert torch.equal(checkpoint.tensors["encoder"], torch.arange(6, dtype=torch.bfloat16).view(2, 3))
    assert torch.equal(checkpoint.tensors["unit"], torch.tensor(1j, dtype=torch.complex64))
    assert torch.equal(checkpoint.tensors["random"], torch.arange(16, dtype=torch.uint8))


# Damage


@pytest.mark.parametrize("name", ["checkpoint.json", "tensors"])
def test_a_small_checkpoint_cut_at_any_byte_is_refused(saved: Path, name: str) -> None:
    path = saved / name if name.endswith("json") else tensors_file(saved)
    data = path.read_bytes()
    for length in range(len(data)):
        path.write_bytes(data[:length])
        refused(saved, path.name)
    path.write_bytes(data + b"\0")
    refused(saved, path.name)
    path.write_bytes(data)
    assert load_checkpoint(saved).facts == {"step": 3}


def test_a_checkpoint_cut_at_any_kilobyte_is_refused(large: Path) -> None:
    path = tensors_file(large)
    data = path.read_bytes()
    assert len(data) > 64 * 1024
    for length in range(0, len(data), 1024):
        path.write_bytes(data[:length])
        refused(large, rf"must have {len(data)} bytes, but has {length}")


@pytest.mark.parametrize("flip", [0x01, 0x20, 0x80, 0xFF])
def test_a_flipped_byte_anywhere_in_the_document_or_the_header_is_refused(saved: Path, flip: int) -> None:
    tensors = tensors_file(saved)
    header = 8 + int.from_bytes(tensors.read_bytes()[:8], "little")
    for path, length in ((saved / "checkpoint.json", None), (tensors, header)):
        data = path.read_bytes()
        for place in range(length or len(data)):
            path.write_bytes(data[:place] + bytes([data[place] ^ flip]) + data[place + 1 :])
            refused(saved, path.name)
        path.write_bytes(data)
    assert load_checkpoint(saved).facts == {"step": 3}


def test_a_thousand_flipped_bytes_of_data_are_each_refused(large: Path) -> None:
    path, chance = tensors_file(large), random.Random(0)
    data = path.read_bytes()
    header = 8 + int.from_bytes(data[:8], "little")
    with path.open("r+b") as file:
        for _ in range(1000):
            place = chance.randrange(header, len(data))
            file.seek(place)
            file.write(bytes([data[place] ^ chance.randrange(1, 256)]))
            file.flush()
            refused(large, rf"{path.name}.*is damaged: its checksum does not fit")
            file.seek(place)
            file.write(data[place : place + 1])
            file.flush()
    assert load_checkpoint(large).facts == {"step": 3}


def test_white_space_that_nobody_would_see_is_refused(saved: Path) -> None:
    path = saved / "checkpoint.json"
    path.write_text(json.dumps(json.loads(path.read_text())))
    refused(saved, "checksum does not fit")


@pytest.mark.parametrize("name", ["checkpoint.json", "tensors"])
def test_a_missing_file_is_named(saved: Path, name: str) -> None:
    path = saved / name if name.endswith("json") else tensors_file(saved)
    path.unlink()
    refused(saved, rf"{path.name}.* is missing")


def test_a_folder_that_is_not_there_has_no_checkpoint(tmp_path: Path) -> None:
    refused(tmp_path / "none", "there is no checkpoint")


def test_a_file_that_cannot_be_read_is_named(saved: Path) -> None:
    path = tensors_file(saved)
    path.unlink()
    path.mkdir()
    refused(saved, rf"{path.name}.* could not be read: Is a directory")


def signed(document: dict[str, Any]) -> str:
    digest = hashlib.sha256(render(document["content"]).encode()).hexdigest()
    return render(document | {"sha256": digest})


def another_format(document: dict[str, Any]) -> None:
    document["format"] = 2


def a_name_outside(document: dict[str, Any]) -> None:
    document["content"]["file"]["name"] = "../../secrets.safetensors"


def entry(key: str, value: object) -> Callable[[dict[str, Any]], None]:
    def change(document: dict[str, Any]) -> None:
        document["content"][key] = value

    change.__name__ = f"{key}={value!r}"
    return change


def inside(key: str, name: str, value: object) -> Callable[[dict[str, Any]], None]:
    def change(document: dict[str, Any]) -> None:
        document["content"][key][name] = value

    change.__name__ = f"{key}.{name}={value!r}"
    return change


FORGED: list[Callable[[dict[str, Any]], None]] = [
    *(another_format, a_name_outside),
    *(entry("file", value) for value in (None, [], {"name": 1}, "tensors-0123456789abcdef.safetensors")),
    *(entry("tensors", value) for value in (None, [], {}, {"weight": 1}, {"weight": {}})),
    *(entry("facts", value) for value in ({"$other": 1}, {"$float": 3}, {"$float": "0.5"})),
    *(inside("file", "bytes", value) for value in ("1", None, 10**9, 1.5)),
    *(inside("file", "sha256", value) for value in (3, "", None, "0" * 64)),
    *(inside("tensors", "weight", value) for value in ({}, {"alias": "tied"}, {"alias": 1}, None)),
    *(inside("tensors", "extra", value) for value in ({"alias": "none"}, {"dtype": "float32", "shape": [1], "sha256": ""})),
]


@pytest.mark.parametrize("forge", FORGED, ids=lambda forge: forge.__name__)
def test_a_document_with_wrong_types_is_refused_even_with_a_right_checksum(
    saved: Path, forge: Callable[[dict[str, Any]], None]
) -> None:
    path = saved / "checkpoint.json"
    document = json.loads(path.read_text())
    path.write_text(signed(document))
    assert load_checkpoint(saved).facts == {"step": 3}  # signing is right
    forge(document)
    path.write_text(signed(document))
    refused(saved, r"checkpoint\.json|tensors-")


@pytest.mark.parametrize("text", ["3", "[]", "{}", '"format"', '{"format": true}', '{"format": 1}', '{"format": "1"}', "null"])
def test_another_json_value_is_no_checkpoint(saved: Path, text: str) -> None:
    (saved / "checkpoint.json").write_text(text)
    refused(saved, r"checkpoint\.json")


def test_an_unknown_format_is_named_with_the_way_out(saved: Path) -> None:
    path = saved / "checkpoint.json"
    path.write_text(path.read_text().replace('"format": 1', '"format": 7'))
    refused(saved, "must have format version 1, but has 7. Load it with the release")


def test_nothing_in_the_package_pickles() -> None:
    """Loading a pickle runs what is inside it, so there is no way in, not even a fallback."""
    package = Path(steadyrnn.__file__).parent
    found = [
        f"{path.relative_to(package)}:{node.lineno}"
        for path in package.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if pickles(node)
    ]
    assert found == []


PICKLERS = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal"}


def pickles(node: ast.AST) -> bool:
    match node:
        case ast.Import(names=names):
            return any(alias.name.split(".")[0] in PICKLERS for alias in names)
        case ast.ImportFrom(module=str(module), names=names):
            loads = module == "torch" and any(alias.name in {"load", "save"} for alias in names)
            return loads or module.split(".")[0] in PICKLERS
        case ast.Attribute(value=ast.Name(id="torch"), attr="load" | "save" | "serialization"):
            return True
        case ast.Constant(value=str(text)):
            return text in PICKLERS
        case ast.keyword(arg="allow_pickle" | "weights_only"):
            return True
    return False


@pytest.mark.parametrize(
    "source",
    [
        *("import pickle", "from pickle import loads", "torch.load('a')", "torch.save(1, 'a')", "from torch import load"),
        *("import_module('pickle')", "np.load('a', allow_pickle=True)", "import dill.source", "torch.serialization.load"),
    ],
)
def test_a_pickle_would_be_found(source: str) -> None:
    assert any(pickles(node) for node in ast.walk(ast.parse(source)))


def test_leftovers_of_killed_saves_make_room_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_checkpoint(tmp_path, {"weight": torch.ones(2)}, {"step": 1})
    kept = {path.name for path in tmp_path.iterdir()}
    for name in (f"tensors-{'0' * 16}.safetensors", ".checkpoint.json.0123456789abcdef.tmp"):
        (tmp_path / name).write_bytes(b"much")

    def full(path: Path, data: bytes) -> None:
        raise RunError("No space left")

    monkeypatch.setattr(checkpoint_module, "write_atomically", full)
    with pytest.raises(RunError, match="No space"):
        save_checkpoint(tmp_path, {"weight": torch.zeros(2)}, {"step": 2})
    assert {path.name for path in tmp_path.iterdir()} == kept
    assert load_checkpoint(tmp_path).facts == {"step": 1}
