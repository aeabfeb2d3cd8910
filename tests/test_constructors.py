"""A constructor called with a wrong argument names it in a sentence of ours, and a missing one by its public class."""

import inspect
from typing import Any

import pytest
import torch

import steadyrnn as sr
from steadyrnn.errors import SteadyError
from steadyrnn.tasks.tensors import Part, TensorClassification, TensorRegression

PART, NUMBERS = (Part(torch.ones(5, 4, 3), target) for target in (torch.tensor([0, 1, 0, 1]), torch.ones(4, 2)))
FITTING: dict[str, Any] = {
    **{"input_size": 3, "hidden_size": 4, "in_features": 3, "out_features": 4, "width": 4, "depth": 2, "blocks": 2},
    "rnn": sr.RNN(3, 4),
}
MADE_BY_US = ("Certificate", "GradientFlow", "Verification")
"""Results: what makes them is a function."""
CHECKED_BY_FIT = ("SequenceClassifier", "SequenceForecaster", "SequenceRegressor")
"""Estimators: scikit-learn wants that a constructor stores its arguments and no more; tests/estimators/test_inputs.py."""
CLASSES = [
    *(
        thing
        for name in sr.__all__
        if name not in (*MADE_BY_US, *CHECKED_BY_FIT)
        for thing in [getattr(sr, name)]
        if inspect.isclass(thing) and not inspect.isabstract(thing)
    ),
    *(TensorClassification, TensorRegression),
]
TORCHS = {"device", "dtype"}
"""Arguments that torch itself reads."""


class Wrong:
    """A value that fits no argument."""

    def __repr__(self) -> str:
        return "wrong"


def arguments(cls: type) -> list[inspect.Parameter]:
    found = inspect.signature(cls.__init__).parameters.values()
    return [p for p in found if p.name != "self" and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]


def fitting(cls: type) -> dict[str, Any]:
    part = NUMBERS if cls is TensorRegression else PART
    known = {**FITTING, "train": part, "validation": part}
    return {p.name: known[p.name] for p in arguments(cls) if p.default is p.empty or p.name == "validation"}


CASES = [(cls, p.name) for cls in CLASSES for p in arguments(cls) if p.name not in TORCHS and not isinstance(p.default, bool)]
FLAGS = [(cls, p.name) for cls in (sr.SequenceModel,) for p in arguments(cls) if isinstance(p.default, bool)]


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_the_arguments_that_fit_are_taken(cls: type) -> None:
    cls(**fitting(cls))


@pytest.mark.parametrize(("cls", "name"), [*CASES, *FLAGS], ids=lambda value: getattr(value, "__name__", value))
def test_a_wrong_argument_is_named(cls: type, name: str) -> None:
    with pytest.raises(SteadyError, match=f"`{name}") as caught:
        cls(**{**fitting(cls), name: Wrong()})
    assert "0x" not in str(caught.value)
    assert isinstance(caught.value, TypeError | ValueError)


@pytest.mark.parametrize("cls", [cls for cls in CLASSES if fitting(cls)], ids=lambda cls: cls.__name__)
def test_missing_arguments_are_named_with_the_public_class(cls: type) -> None:
    first = next(iter(fitting(cls)))
    with pytest.raises(TypeError) as caught:
        cls()
    assert str(caught.value).startswith(f"{cls.__name__}.__init__() missing")
    assert f"'{first}'" in str(caught.value)
