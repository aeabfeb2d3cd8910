"""How far the search goes, what it left out, and what is said where nothing contracts."""

import math
import re
from typing import Any

import pytest
import torch
from torch import nn

import steadyrnn as sr
from steadyrnn.certificates import elman as tiers
from steadyrnn.certificates.base import contraction_in_words, rate_in_words
from steadyrnn.certificates.certify import certify, recheck
from steadyrnn.errors import ArgumentError, CertificateError, ConversionError


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the size limits be those of a small layer."""
    monkeypatch.setattr(tiers, "QUADRATIC_SIZE", 8)
    monkeypatch.setattr(tiers, "DIAGONAL_SIZE", 8)


def plain(size: int) -> nn.RNN:
    torch.manual_seed(0)
    return nn.RNN(2, size)


@pytest.mark.usefixtures("narrow")
def test_a_tier_that_a_size_limit_leaves_out_is_named_with_the_way_to_ask_for_it() -> None:
    found = certify(plain(17), 1.0)
    assert any("quadratic norm" in text and "17 units" in text and "effort='full'" in text for text in found.left_out)
    assert all(text in str(found) for text in found.left_out)
    assert found.to_dict()["left_out"] == [*found.left_out]
    full = certify(plain(17), 1.0, effort="full")
    assert full.left_out == ()
    assert full.contraction < found.contraction
    assert any("quadratic" in claim.name for claim in full.claims)


@pytest.mark.usefixtures("narrow")
@pytest.mark.parametrize("effort", ["auto", "full", "fast"])
def test_a_stored_certificate_is_checked_by_the_effort_it_was_made_with(effort: str) -> None:
    module = plain(17)
    stored = certify(module, 1.0, effort=effort).to_dict()
    assert stored["effort"] == effort
    assert recheck(stored, module).left_out == tuple(stored["left_out"])


def test_without_a_limit_nothing_is_left_out() -> None:
    assert certify(plain(16), 1.0).left_out == ()


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: sr.RNN(2, 4, nonlinearity="abs"), "slopes that are not negative"),
        (lambda: sr.RNN(2, 4, nonlinearity="modrelu"), "not elementwise"),
    ],
)
def test_a_tier_that_does_not_apply_says_so_and_does_not_advise_more_effort(make: Any, name: str) -> None:
    found = certify(make(), 1.0, effort="full")
    assert found.left_out
    assert all(name in text and "effort" not in text for text in found.left_out)


def test_the_fast_effort_says_what_it_did_not_try() -> None:
    found = certify(sr.RNN(2, 8, transition=sr.SpectralBall(0.5)), 1.0, effort="fast")
    assert [("diagonal" in text, "quadratic" in text) for text in found.left_out] == [(True, False), (False, True)]


def test_both_directions_and_given_inputs_say_what_was_left_out() -> None:
    both = certify(sr.RNN(2, 4, nonlinearity="abs", bidirectional=True), 1.0)
    assert len(both.left_out) == 2
    given = certify(sr.RNN(2, 4, nonlinearity="abs", transition=sr.SpectralBall(0.5)), inputs=torch.randn(5, 1, 2))
    assert len(given.left_out) == 1


def test_an_effort_without_a_name_here_is_refused() -> None:
    with pytest.raises(ArgumentError, match="`effort` must be 'auto', 'full' or 'fast'"):
        certify(plain(4), 1.0, effort="most")


@pytest.mark.slow
def test_torchs_layer_of_512_units_is_stable_by_default() -> None:
    found = certify(plain(512), 1.0)
    assert found.contraction < 0.81
    assert found.left_out == ()


@pytest.mark.parametrize("rate", [1.0, 1.0000008, 2.26516e7, math.inf])
def test_a_constant_from_one_up_is_no_contraction(rate: float) -> None:
    assert rate_in_words(rate).startswith("none")
    assert contraction_in_words(rate).startswith("no contraction proven")


@pytest.mark.parametrize("rate", [0.5, 0.9999999, 1 - 2.0**-53])
def test_a_contraction_below_one_is_never_written_as_one(rate: float) -> None:
    assert float(rate_in_words(rate)) < 1
    assert contraction_in_words(rate) == f"contraction {rate_in_words(rate)}"


def grown(module: nn.Module, factor: float = 3.0) -> nn.Module:
    with torch.no_grad():
        for name, weight in module.named_parameters():
            weight.mul_(factor if "hh" in name else 1.0)
    return module


WILD: dict[str, Any] = {
    "tanh": lambda: nn.RNN(3, 24),
    "relu": lambda: nn.RNN(3, 24, nonlinearity="relu"),
    "abs": lambda: sr.RNN(3, 24, nonlinearity="abs"),
    "sigmoid": lambda: grown(sr.RNN(3, 24, nonlinearity="sigmoid"), 4.0),
    "gru": lambda: nn.GRU(3, 24),
    "gru-before": lambda: sr.GRU(3, 24, reset_after=False),
    "lstm": lambda: nn.LSTM(3, 24),
}


def follow(advice: str, module: Any) -> nn.Module:
    """Do what an error says."""
    if found := re.search(r"`weight_hh_(\w+)` times ([\d.e-]+)", advice):
        with torch.no_grad():
            getattr(module, f"weight_hh_{found[1]}").mul_(float(found[2]))
        return module
    if found := re.search(r"sr\.StableLSTM\(input_bound=([\d.e-]+)\)", advice):
        return sr.from_torch(module, transition=sr.StableLSTM(input_bound=float(found[1])), project=True)
    found = re.search(r"sr\.SpectralBall\(bound\)`, bound < ([\d.]+)", advice)
    assert found is not None, advice
    ball = sr.SpectralBall(0.99 * float(found[1]), project=True)
    options = {} if isinstance(module, nn.RNN) else {"nonlinearity": module.nonlinearity}
    new = sr.RNN(3, 24, transition=ball, **options) if options else sr.from_torch(module, transition=ball, project=True)
    if options:
        new.weight_hh_l0 = module.weight_hh_l0.detach()
    return new


@pytest.mark.parametrize("ask", [lambda m: certify(m, 2.0).horizon(1e-3), lambda m: sr.to_feedforward(m, 1e-3, 2.0)])
@pytest.mark.parametrize("name", WILD)
def test_what_the_error_advises_makes_a_contraction(name: str, ask: Any) -> None:
    torch.manual_seed(0)
    module = grown(WILD[name]())
    assert not certify(module, 2.0).stable
    with pytest.raises((CertificateError, ConversionError)) as refusal:
        ask(module)
    assert certify(follow(str(refusal.value), module), 2.0).stable


@pytest.mark.parametrize("name", ["tanh", "gru-before", "lstm"])
def test_what_to_parallel_advises_makes_a_contraction(name: str) -> None:
    torch.manual_seed(0)
    module = grown(WILD[name]())
    with pytest.raises(ConversionError) as refusal:
        sr.to_parallel(module, tol=1e-3, input_bound=2.0)
    assert certify(follow(str(refusal.value), module), 2.0).stable


@pytest.mark.parametrize("make", [nn.GRU, nn.LSTM])
def test_a_gated_layer_without_a_bound_on_inputs_is_told_to_give_one(make: Any) -> None:
    with pytest.raises(CertificateError, match="Give `input_bound`"):
        certify(make(3, 4)).horizon(1e-3)


def test_what_to_unitary_advises_can_be_converted() -> None:
    torch.manual_seed(0)
    with pytest.raises(ConversionError, match=re.escape("transition=sr.SpectralBall()")):
        sr.to_unitary(grown(sr.RNN(3, 8, nonlinearity="relu"), 10.0), input_bound=1.0)
    sr.to_unitary(sr.RNN(3, 8, nonlinearity="relu", transition=sr.SpectralBall()), input_bound=1.0)


def test_a_constraint_on_singular_values_does_not_help_a_gru() -> None:
    torch.manual_seed(0)
    gates = dict.fromkeys("rzn", sr.SpectralBall(0.95))
    assert not certify(sr.GRU(4, 64, transition=gates), 1.0).stable
