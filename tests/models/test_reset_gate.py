"""The option that puts the reset gate of a GRU before or behind the recurrent product."""

import pytest
import torch

from steadyrnn.errors import ArgumentError
from steadyrnn.models.registry import SYSTEMS
from steadyrnn.models.settings import ModelSettings, complete
from steadyrnn.models.systems import build_model
from steadyrnn.models.truncated import recurrent_part
from tests.models.test_systems import INTERFACES, example, logits_of, small

GRUS = ["gru", "spectral-gru", "ugru"]


def test_all_grus_have_the_option_and_no_other_system() -> None:
    assert [name for name, system in SYSTEMS.items() if "reset_after" in system.options] == GRUS


@pytest.mark.parametrize("name", GRUS)
@pytest.mark.parametrize("option", [None, True, False])
def test_the_option_chooses_the_form_of_the_layer(name: str, option: bool | None) -> None:
    model = build_model(small(name, reset_after=option), INTERFACES["last"])
    assert recurrent_part(model).rnn.reset_after is (option is not False)


@pytest.mark.parametrize("name", GRUS)
def test_both_forms_have_the_same_parameters_and_another_value(name: str) -> None:
    behind, before = (build_model(small(name, reset_after=option), INTERFACES["each"]) for option in (True, False))
    before.load_state_dict(behind.state_dict())
    x = example("each")
    assert not torch.allclose(logits_of(behind, x), logits_of(before, x))


def test_a_system_without_a_reset_gate_refuses_the_option() -> None:
    with pytest.raises(ArgumentError, match="`reset_after` is no option of the model 'lstm'"):
        complete(ModelSettings("lstm", reset_after=False))
