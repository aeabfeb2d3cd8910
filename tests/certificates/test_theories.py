"""What is proven of a layer is looked up by the record of its cell."""

from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

import steadyrnn as sr
from steadyrnn.cells.base import Cell, Recur, State
from steadyrnn.cells.record import CellRecord
from steadyrnn.cells.registry import CELLS
from steadyrnn.certificates.base import BaseCertificate
from steadyrnn.certificates.certify import certify, certify_layer, refresh
from steadyrnn.certificates.elman import TIERS
from steadyrnn.certificates.layer import LayerCertificate, Weights, read_weights
from steadyrnn.certificates.rounding import local_rounding, sizes_of
from steadyrnn.certificates.theories import THEORIES
from steadyrnn.certificates.tiers import LeftOut
from steadyrnn.engines.base import Recurrence
from steadyrnn.errors import CertificateError


@dataclass(frozen=True)
class Leaky(Cell):
    """A step of somebody's own, of which nothing is said to be proven."""

    record = CellRecord("leaky", "h")

    def step(self, gates_x: Tensor, state: State, recur: Recur, theta: Tensor | None) -> State:
        """Return the mean of the old state and its image."""
        return ((state[0] + torch.tanh(gates_x + recur(state[0], "h"))) / 2,)


def weights_of(module: torch.nn.Module) -> Weights:
    return read_weights(module)[0][0]


@pytest.mark.parametrize("name", CELLS)
def test_every_cell_of_torch_has_a_theory_and_any_other_has_one_or_names_none(name: str) -> None:
    record = CELLS[name].record
    assert record.theorem in THEORIES or (record.theorem is None and record.family not in ("rnn", "gru", "lstm"))


def test_a_cell_without_a_theorem_is_refused_with_its_name() -> None:
    weights = replace(weights_of(sr.RNN(2, 3)), cell=Leaky())
    with pytest.raises(CertificateError, match="No theorem covers the cell 'leaky'"):
        certify_layer(weights, 1.0, None, "auto")


def test_a_module_whose_cell_has_no_theorem_is_refused() -> None:
    rnn = sr.RNN(2, 3)
    rnn.cell = Leaky()
    with pytest.raises(CertificateError, match="No theorem covers the cell 'leaky'"):
        certify(rnn, input_bound=1.0)


def test_no_rounding_is_proven_of_a_cell_without_a_theorem() -> None:
    run = Recurrence(Leaky(), torch.ones(3, 1, 1), (torch.zeros(1, 1),), torch.ones(1, 1), torch.eye(1))
    with pytest.raises(CertificateError, match="'leaky'"):
        local_rounding(run, sizes_of(run), 1.0, 1.0)


def test_the_tiers_are_tried_in_order_and_each_is_named() -> None:
    rnn = sr.RNN(2, 4, transition=sr.SpectralBall(0.9))
    layer = certify_layer(weights_of(rnn), 1.0, None, "full")
    assert [tier.name for tier in layer.tiers] == [search.name for search in TIERS]
    known = [tier.contraction for tier in layer.tiers]
    skipped = [search.find(layer.weights, known[:1], "fast") for search in TIERS[1:]]
    assert all(isinstance(found, LeftOut) and found.full for found in skipped)


def test_a_norm_found_before_is_proven_anew_by_the_tier_of_its_kind() -> None:
    rnn = sr.RNN(2, 4, transition=sr.SpectralBall(0.9))
    layer = certify_layer(weights_of(rnn), 1.0, None, "full")
    again: LayerCertificate = refresh(layer, weights_of(rnn))
    assert [tier.name for tier in again.tiers] == [tier.name for tier in layer.tiers]
    for old, new in zip(layer.tiers, again.tiers, strict=True):
        assert new.contraction.rate == pytest.approx(old.contraction.rate, rel=1e-9)
        assert new.contraction.theorem == old.contraction.theorem


@pytest.mark.parametrize(
    "module", [sr.RNN(2, 3), sr.GRU(2, 3), sr.LSTM(2, 3), sr.RNN(2, 3, bidirectional=True)], ids=["rnn", "gru", "lstm", "both"]
)
def test_every_certificate_is_one_of_the_abstract_kind(module: torch.nn.Module) -> None:
    assert isinstance(certify(module, input_bound=1.0), BaseCertificate)


def test_a_certificate_for_given_inputs_is_one_of_the_abstract_kind() -> None:
    assert isinstance(certify(sr.RNN(2, 3), inputs=torch.randn(4, 1, 2)), BaseCertificate)
