"""Constraints by name: every row of the table, and what is no constraint on one matrix."""

import pytest

from steadyrnn import constraints
from steadyrnn.constraints import Constraint, Spectral, StableLSTM
from steadyrnn.constraints.registry import CONSTRAINTS, JOINT, as_constraint
from steadyrnn.errors import ArgumentError, ArgumentTypeError

TABLE = {
    "free": "Free(init='torch')",
    "irnn": "Free(init='identity')",
    "ornn": "HouseholderOrthogonal(reflectors=None)",
    "spectral": "Spectral(reflectors=None, center=1.0, radius=0.1, sigma='sigmoid')",
    "exp": "ExpOrthogonal(gradient='exact')",
    "exp-lie": "ExpOrthogonal(gradient='lie')",
    "exp-printed": "ExpOrthogonal(gradient='printed')",
    "cayley": "CayleyOrthogonal()",
    "factorized": "CayleySpectral(center=1.0, radius=0.1, gradient='exact')",
    "unitary": "RestrictedUnitary()",
    "unitary-full": "FullUnitary()",
    "ball": "SpectralBall(bound=0.99)",
    "polar": "PolarOrthogonal()",
}


def test_the_registry_is_the_table() -> None:
    assert {name: repr(make()) for name, make in CONSTRAINTS.items()} == TABLE
    assert {name: make() for name, make in JOINT.items()} == {"stable-lstm": StableLSTM()}


def test_every_class_of_the_table_is_exported() -> None:
    classes = {type(make()).__name__ for make in (*CONSTRAINTS.values(), *JOINT.values())}
    assert classes | {"Constraint", "Kind"} == set(constraints.__all__)


@pytest.mark.parametrize("name", TABLE)
def test_a_name_gives_a_fresh_constraint(name: str) -> None:
    first, second = as_constraint("weight", name), as_constraint("weight", name)
    assert isinstance(first, Constraint)
    assert first is not second


def test_an_object_gives_a_copy() -> None:
    template = Spectral(radius=0.25)
    copied = as_constraint("weight", template)
    assert copied is not template
    assert repr(copied) == repr(template)


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        ("spectrum", ArgumentError, "`weight` must be one of free, irnn, .*polar.*, but is 'spectrum'"),
        ("stable-lstm", ArgumentError, "`weight` is a constraint on one matrix.*sr.LSTM"),
        (StableLSTM(), ArgumentError, "`weight` is a constraint on one matrix.*sr.LSTM"),
        (None, ArgumentTypeError, "`weight` must be a constraint or the name of one, but is of type NoneType"),
        (Spectral, ArgumentTypeError, "but is of type ABCMeta"),
        (3, ArgumentTypeError, "but is of type int"),
    ],
)
def test_what_is_no_constraint_is_refused(wrong: object, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        as_constraint("weight", wrong)  # type: ignore[arg-type]
