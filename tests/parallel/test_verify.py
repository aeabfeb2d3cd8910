"""Time-parallel calls that verify themselves: one number, never below the true error."""

import copy
import json

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_sequence, pad_packed_sequence

import steadyrnn as sr
from steadyrnn.parallel.module import Parallel
from tests.certificates.runs import KINDS, exact, layer_of, unit_inputs, wrong
from tests.parallel.layers import GATED, gated_of, rnn_of


def within(fast: Parallel, x: torch.Tensor, hx: object = None, **options: object) -> float:
    """Check the report of a call against the exact run; return its number."""
    with torch.no_grad():
        output = fast(x, hx, **options)[0]
    truth, slack = exact(fast.layer, x, hx, **options)
    assert float(wrong(output, truth).max()) <= fast.report.error + slack
    assert fast.report.error == fast.report.verified
    return fast.report.error


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "weighted 2-norm"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_call_is_within_the_number_it_reports(kind: str, dtype: torch.dtype) -> None:
    fast = sr.to_parallel(layer_of(kind, dtype), 1e-5, chunk=60, input_bound=1.0, verify=True)
    assert within(fast, unit_inputs(700, 2, 5, dtype=dtype)) < 1e-4
    assert fast.report.windows > 1


def test_truncation_is_in_the_number_too() -> None:
    """With a tolerance far above rounding, and a state that decays no faster than proven."""
    rnn = rnn_of(0.99, "identity", bias=False)
    with torch.no_grad():
        rnn.weight_hh_l0.copy_(0.99 * torch.eye(12))
    fast = sr.to_parallel(rnn, 1e-1, chunk=100, verify=True)
    x = torch.ones(4000, 1, 5, dtype=torch.float64)
    bound = within(fast, x)
    with torch.no_grad():
        true = float((fast(x)[0] - rnn(x)[0]).norm(dim=-1).max())
    assert 1e-6 < true <= bound <= 1.1 * true


def test_one_usable_number_takes_the_place_of_a_useless_one() -> None:
    rnn = rnn_of(0.9, "tanh", 64, torch.float32)
    plain, checked = (sr.to_parallel(rnn, 1e-4, chunk=300, verify=verify) for verify in (False, True))
    x = unit_inputs(4096, 1, 5, dtype=torch.float32)
    plain(x)
    assert within(checked, x) < 1e-5 < plain.report.error
    assert "plus rounding" in str(plain.report)
    assert "plus rounding" not in str(checked.report)
    assert f"within {checked.report.error:.3g} (asked: 0.0001) of the exact run, rounding included" in str(checked.report)
    told = json.loads(json.dumps(checked.report.to_dict()))
    assert told["error"] == told["verified"] == told["layers"][0]["verified"]
    assert plain.report.to_dict()["verified"] is None
    assert "verify=True" in repr(checked)
    assert "verify" not in repr(plain)


@pytest.mark.parametrize("kind", ["tanh", "relu", *GATED])
def test_stacks_lengths_states_and_packed_rows_are_verified(kind: str) -> None:
    layer = layer_of(kind, num_layers=2)
    fast = sr.to_parallel(layer, 1e-5, chunk=40, input_bound=1.0, verify=True)
    x = unit_inputs(300, 4, 5, dtype=torch.float32)
    h = 0.3 * torch.randn(2, 4, layer.hidden_size)
    assert within(fast, x) < 1e-3
    assert within(fast, x, (h, h) if kind == "LSTM" else h) < 1e-3
    assert within(fast, x, lengths=torch.tensor([5, 300, 0, 41])) < 1e-3
    assert [one.verified <= fast.report.error for one in fast.report.layers] == [True, True]
    packed = pack_sequence([x[:n, 0] for n in (130, 300, 7)], enforce_sorted=False)
    with torch.no_grad():
        output = pad_packed_sequence(fast(packed)[0])[0]
    assert float(wrong(output, pad_packed_sequence(exact(layer, packed)[0])[0]).max()) <= fast.report.error < 1e-3


def test_a_short_run_is_verified_too() -> None:
    fast = sr.to_parallel(layer_of("tanh"), 1e-5, verify=True)
    assert 0 < within(fast, unit_inputs(3, 2, 5, dtype=torch.float32)) < 1e-5
    fast(unit_inputs(0, 2, 5, dtype=torch.float32))
    assert fast.report.error == 0


def test_dropout_is_the_calls_own() -> None:
    rnn = rnn_of(0.5, dtype=torch.float32, num_layers=2, dropout=0.5)
    fast = sr.to_parallel(rnn, 1e-5, chunk=40, verify=True)
    x = unit_inputs(300, 2, 5, dtype=torch.float32)
    torch.manual_seed(7)
    output = fast(x)[0].detach()
    wide = copy.deepcopy(rnn).double()
    with torch.no_grad():
        first = sr.RNN(5, 12, dtype=torch.float64)
        first.load_state_dict({name: t for name, t in wide.state_dict().items() if name.endswith("l0")})
        torch.manual_seed(7)
        dropped = nn.functional.dropout(first(x.double())[0].float(), 0.5) != 0
        second = sr.RNN(12, 12, dtype=torch.float64)
        second.load_state_dict({name.replace("l1", "l0"): t for name, t in wide.state_dict().items() if name.endswith("l1")})
        truth = second(2 * dropped * first(x.double())[0])[0]
    assert float(wrong(output, truth).max()) <= fast.report.error < 1e-4


def test_weights_that_changed_are_verified_as_they_are() -> None:
    rnn = rnn_of(0.8, dtype=torch.float32)
    fast = sr.to_parallel(rnn, 1e-5, chunk=40, verify=True)
    x = unit_inputs(300, 2, 5, dtype=torch.float32)
    within(fast, x)
    with torch.no_grad():
        rnn.weight_hh_l0.mul_(0.7)
        rnn.weight_ih_l0.add_(0.1)
    assert within(fast, x) < 1e-4
    rnn.weight_hh_l0.data.mul_(0.5)
    assert within(fast, x) < 1e-4


def test_gradients_flow_as_without() -> None:
    rnn, x = rnn_of(0.8), unit_inputs(300, 2, 5)
    found = []
    for verify in (False, True):
        fast = sr.to_parallel(rnn, 1e-6, chunk=40, verify=verify)
        found.append(torch.autograd.grad(fast(x)[0].square().sum(), rnn.weight_hh_l0)[0])
    assert torch.equal(*found)


def test_a_gated_call_above_its_box_is_certified_again() -> None:
    """A loud lower layer in few digits: what the upper one sees may be more than was proven for."""
    layer = gated_of("GRU", torch.bfloat16, num_layers=2)
    fast = sr.to_parallel(layer, 1e-2, chunk=40, input_bound=1.0, verify=True)
    assert within(fast, unit_inputs(300, 2, 5, dtype=torch.bfloat16)) < 10


# the best norm


@pytest.mark.parametrize(("size", "name"), [(16, "tanh"), (16, "relu"), (24, "leaky_relu")])
def test_the_rate_is_the_one_that_certify_proves(size: int, name: str) -> None:
    rnn = rnn_of(0.969, name, size)
    proven = sr.certify(rnn, input_bound=1.0)
    fast = sr.to_parallel(rnn, 1e-7, chunk=60, input_bound=1.0)
    assert fast.report.rate == pytest.approx(proven.contraction, rel=1e-6)
    assert proven.contraction < 0.8
    x = unit_inputs(600, 2, 5)
    with torch.no_grad():
        gap = float((fast(x)[0] - rnn(x)[0]).norm(dim=-1).max())
    assert gap <= fast.report.truncation + fast.report.rounding
    assert fast.report.truncation <= 1e-7
    assert fast.report.rate == pytest.approx(proven.contraction, rel=1e-6)
    assert fast.report.norm == "quadratic norm"


def test_a_smaller_rate_is_left_where_its_norm_costs_more_steps() -> None:
    """Off the diagonal a number that only a norm of huge condition can hide, and a tolerance that few steps reach."""
    rnn = rnn_of(0.9, "identity", 2, bias=False)
    with torch.no_grad():
        rnn.weight_hh_l0.copy_(torch.tensor([[0.5, 0.45], [0.0, 0.5]]))
    found = sr.certify(rnn).layers[0]
    assert found.best.norm.condition > 100
    loose, tight = (sr.to_parallel(rnn, tol, chunk=40) for tol in (1e-1, 1e-14))
    x = unit_inputs(600, 1, 5)
    for fast in (loose, tight):
        fast(x)
    assert loose.report.norm == "2-norm"
    assert tight.report.norm != "2-norm"
    assert tight.report.rate < loose.report.rate
