"""The three places of dropout, each with its own probability or the common one."""

from typing import Any

import pytest
import torch

from steadyrnn.errors import ArgumentError
from steadyrnn.models.settings import ModelSettings, complete
from steadyrnn.models.systems import build_model
from steadyrnn.models.truncated import recurrent_part
from tests.models.test_systems import INTERFACES, example, logits_of, small


def probabilities(**options: Any) -> tuple[float, float, float, float]:
    model = recurrent_part(build_model(small("lstm", layers=2, **options), INTERFACES["tokens-each"]))
    return model.dropout_embedding.p, model.rnn.dropout, model.dropout_state.p, model.dropout_logits.p


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, (0.0, 0.0, 0.0, 0.0)),
        ({"dropout": 0.5}, (0.5, 0.5, 0.5, 0.0)),
        ({"dropout_input": 0.1}, (0.1, 0.0, 0.0, 0.0)),
        ({"dropout_layers": 0.2}, (0.0, 0.2, 0.0, 0.0)),
        ({"dropout_output": 0.3}, (0.0, 0.0, 0.3, 0.0)),
        ({"dropout": 0.5, "dropout_input": 0.0}, (0.0, 0.5, 0.5, 0.0)),
        ({"dropout": 0.5, "dropout_layers": 0.2, "dropout_output": 0.0, "dropout_logits": 0.4}, (0.5, 0.2, 0.0, 0.4)),
    ],
)
def test_a_place_has_its_own_probability_or_the_common_one(options: dict[str, float], expected: tuple[float, ...]) -> None:
    assert probabilities(**options) == expected


@pytest.mark.parametrize("place", ["dropout_input", "dropout_layers", "dropout_output"])
def test_dropout_at_a_place_acts_in_training_only(place: str) -> None:
    model, x = build_model(small("rnn", layers=2, **{place: 0.5}), INTERFACES["tokens-each"]), example("tokens-each")
    assert not torch.equal(logits_of(model, x), logits_of(model, x))
    model.eval()
    assert torch.equal(logits_of(model, x), logits_of(model, x))


def test_the_common_dropout_of_one_layer_needs_no_layers_to_act_between() -> None:
    model = build_model(small("rnn", dropout=0.5), INTERFACES["last"])
    assert (model.dropout_embedding.p, model.rnn.dropout, model.dropout_state.p) == (0.0, 0.0, 0.5)


@pytest.mark.parametrize("place", ["dropout_input", "dropout_layers", "dropout_output"])
def test_what_is_no_probability_is_refused_by_name(place: str) -> None:
    with pytest.raises(ArgumentError, match=f"`{place}` must be a number from 0 to 1, but is 1.5"):
        complete(ModelSettings("rnn", layers=2, **{place: 1.5}))


def test_dropout_between_layers_needs_two() -> None:
    with pytest.raises(ArgumentError, match=r"`dropout_layers` acts between layers, but is 0\.5 and `layers` is 1"):
        complete(ModelSettings("rnn", dropout_layers=0.5))


def test_dropout_on_tokens_needs_tokens() -> None:
    with pytest.raises(ArgumentError, match="`dropout_input` needs a task of tokens"):
        build_model(small("rnn", dropout_input=0.5), INTERFACES["last"])
