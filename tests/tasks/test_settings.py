"""Settings of every task: values of the wrong type are refused by name, before anything is read or drawn."""

from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import pytest

from steadyrnn.errors import ArgumentError, ArgumentTypeError
from steadyrnn.tasks.registry import TASKS
from steadyrnn.tasks.settings import PixelMnistSettings, PtbSettings, UcrSettings

SETTINGS = [(name, field.name) for name, task in TASKS.items() for field in fields(task.settings)]


@pytest.mark.parametrize("value", [[1], {"a": 1}, b"x"], ids=["list", "dict", "bytes"])
@pytest.mark.parametrize(("name", "setting"), SETTINGS)
def test_a_value_of_a_wrong_type_is_refused_by_name(name: str, setting: str, value: Any) -> None:
    with pytest.raises(ArgumentTypeError, match=f"`{setting}` must be .*, but is of type {type(value).__name__}"):
        TASKS[name].settings(**{setting: value})


@pytest.mark.parametrize(
    ("setting", "value", "words"),
    [
        ("seed", "0", "`seed` must be an integer, but is of type str"),
        ("seed", True, "`seed` must be an integer, but is of type bool"),
        ("seed", None, "`seed` must be an integer, but is of type NoneType"),
        ("validation", True, "`validation` must be a number, but is of type bool"),
        ("validation", "0.2", "`validation` must be a number, but is of type str"),
        ("features_per_step", 8.0, "`features_per_step` must be an integer or None, but is of type float"),
        ("paper_outputs", 1, "`paper_outputs` must be True or False, but is of type int"),
        ("data_dir", 3, "`data_dir` must be text or None, but is of type int"),
    ],
)
def test_a_type_that_would_almost_do_is_refused_too(setting: str, value: Any, words: str) -> None:
    with pytest.raises(ArgumentTypeError, match=words):
        UcrSettings(**{setting: value})


@pytest.mark.parametrize("seed", [-1, 2**63])
@pytest.mark.parametrize("name", TASKS)
def test_a_seed_out_of_range_is_refused_at_once(name: str, seed: int) -> None:
    with pytest.raises(ArgumentError, match=r"`seed` must be an integer from 0 to 2\^63 - 1"):
        TASKS[name].settings(seed=seed)


def test_a_path_becomes_text_that_a_configuration_can_hold() -> None:
    assert asdict(PtbSettings(data_dir=Path("some") / "folder"))["data_dir"] == str(Path("some/folder"))  # type: ignore[arg-type]


def test_a_whole_number_is_a_number_and_the_largest_seed_a_seed() -> None:
    assert UcrSettings(validation=5).validation == 5
    assert PixelMnistSettings(seed=2**63 - 1).seed == 2**63 - 1
