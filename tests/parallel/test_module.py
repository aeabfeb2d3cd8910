"""The time-parallel layer against the sequential one: the promise of its report, for every kind of layer and input."""

import copy
from importlib import import_module

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_sequence, pad_packed_sequence

import steadyrnn as sr
from steadyrnn.certificates.layer import Weights
from steadyrnn.certificates.theories import THEORIES
from steadyrnn.errors import CertificateError, ConversionError
from steadyrnn.parallel.module import Parallel
from tests.parallel.layers import GATED, error, gated_of, promised, rnn_of, states_of, unit_inputs

ACTIVATIONS = ("tanh", "relu", "identity", "leaky_relu", "abs", "sigmoid")


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("rate", [0.5, 0.9, 0.99])
@pytest.mark.parametrize(("steps", "chunk"), [(700, 50), (301, 97)])
def test_an_rnn_keeps_the_promise(name: str, rate: float, steps: int, chunk: int) -> None:
    rate = 3.5 * rate if name == "sigmoid" else rate
    fast = sr.to_parallel(rnn_of(rate, name), 1e-7, chunk)
    assert error(fast, unit_inputs(steps, 2, 5)) <= promised(fast)
    assert fast.report.windows > 1 or steps < 700


@pytest.mark.parametrize("kind", GATED)
@pytest.mark.parametrize("chunk", [40, 75])
def test_a_gated_layer_keeps_the_promise(kind: str, chunk: int) -> None:
    fast = sr.to_parallel(gated_of(kind), 1e-8, chunk, input_bound=1.0)
    assert error(fast, unit_inputs(500, 3, 5)) <= promised(fast)
    assert fast.report.windows > 5
    assert fast.report.norm == "weighted maximum norm"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("rate", [0.9, 0.99])
def test_the_promise_holds_where_the_bound_is_met(rate: float, dtype: torch.dtype) -> None:
    """W = lambda I and positive inputs: nothing decays faster than proven."""
    rnn = rnn_of(rate, "relu", dtype=dtype, bias=False)
    with torch.no_grad():
        rnn.weight_hh_l0.copy_(rate * torch.eye(12))
        rnn.weight_ih_l0.abs_()
    fast = sr.to_parallel(rnn, 1e-4, chunk=200)
    x = torch.ones(3000, 1, 5, dtype=dtype)
    assert error(fast, x) <= promised(fast)


def test_the_bound_is_close_to_the_error_for_a_multiple_of_the_identity() -> None:
    rnn = rnn_of(0.9, "relu", bias=False)
    with torch.no_grad():
        rnn.weight_hh_l0.copy_(0.9 * torch.eye(12))
        rnn.weight_ih_l0.abs_()
    fast = sr.to_parallel(rnn, 1e-2, chunk=30)
    found = error(fast, torch.ones(2000, 1, 5, dtype=torch.float64))
    assert fast.report.sweeps > 0
    assert 0.9 * fast.report.truncation <= found <= promised(fast)


@pytest.mark.parametrize("sweeping", [1e-3, 1e-9])
def test_sweeps_repair_a_warm_up_that_was_too_short(sweeping: float) -> None:
    rnn = rnn_of(0.99, "identity", bias=False)
    with torch.no_grad():
        rnn.weight_hh_l0.copy_(0.99 * torch.eye(12))
    fast = sr.to_parallel(rnn, sweeping, chunk=100)
    assert error(fast, torch.ones(4000, 1, 5, dtype=torch.float64)) <= promised(fast)
    assert fast.report.sweeps > 0
    assert fast.report.depth == fast.report.warmup + 100 * (1 + fast.report.sweeps)


def test_a_chunk_is_chosen_by_cost_and_saves_most_of_the_steps() -> None:
    fast = sr.to_parallel(rnn_of(0.9, size=24), 1e-6)
    assert error(fast, unit_inputs(20_000, 1, 5)) <= promised(fast)
    assert fast.report.depth < 5000
    assert fast.report.windows > 4


def test_a_stack_of_rnns_keeps_the_promise_in_every_layer() -> None:
    fast = sr.to_parallel(rnn_of(0.8, num_layers=3), 1e-6, chunk=60)
    assert error(fast, unit_inputs(800, 2, 5)) <= promised(fast)
    assert [layer.name for layer in fast.report.layers] == ["l0", "l1", "l2"]
    assert fast.report.depth == sum(layer.depth for layer in fast.report.layers)


@pytest.mark.parametrize("kind", GATED)
def test_a_stack_of_gated_layers_keeps_the_promise(kind: str) -> None:
    fast = sr.to_parallel(gated_of(kind, num_layers=2), 1e-6, chunk=60, input_bound=1.0)
    assert error(fast, unit_inputs(600, 2, 5)) <= promised(fast)
    assert all(layer.windows > 1 for layer in fast.report.layers)


def test_a_loud_layer_above_tightens_the_share_of_the_one_below() -> None:
    rnn = rnn_of(0.8, "identity", num_layers=2)
    with torch.no_grad():
        rnn.weight_ih_l1.mul_(1e3)
    fast = sr.to_parallel(rnn, 1e-4, chunk=60)
    assert error(fast, unit_inputs(800, 2, 5)) <= promised(fast)
    assert fast.report.layers[0].truncation < 1e-6


@pytest.mark.parametrize("kind", ["RNN", *GATED])
def test_rows_of_many_lengths_keep_the_promise(kind: str) -> None:
    layer = rnn_of(0.9, num_layers=2) if kind == "RNN" else gated_of(kind, num_layers=2)
    fast = sr.to_parallel(layer, 1e-6, chunk=40, input_bound=1.0)
    lengths = torch.tensor([5, 400, 0, 399, 130, 41])
    x = unit_inputs(400, 6, 5)
    assert error(fast, x, lengths=lengths) <= promised(fast)
    with torch.no_grad():
        output, state = fast(x, lengths=lengths)
    assert float(output[:, 2].abs().max()) == 0
    assert float(output[5:, 0].abs().max()) == 0
    assert all(float(s[:, 2].abs().max()) == 0 for s in states_of(state))


@pytest.mark.parametrize("kind", ["RNN", "LSTM"])
def test_packed_sequences_keep_their_form(kind: str) -> None:
    layer = rnn_of(0.9) if kind == "RNN" else gated_of(kind)
    fast = sr.to_parallel(layer, 1e-6, chunk=40, input_bound=1.0)
    packed = pack_sequence([unit_inputs(n, 5, seed=n) for n in (130, 300, 7)], enforce_sorted=False)
    with torch.no_grad():
        (output, state), (truth, last) = fast(packed), layer(packed)
    padded, lengths = pad_packed_sequence(output)
    assert lengths.tolist() == [130, 300, 7]
    gaps = [(padded - pad_packed_sequence(truth)[0]).norm(dim=-1).max()]
    gaps += [(a - b).norm(dim=-1).max() for a, b in zip(states_of(state), states_of(last), strict=True)]
    assert float(max(gaps)) <= promised(fast)


@pytest.mark.parametrize("batch_first", [False, True])
def test_batch_first_and_unbatched_inputs_are_the_layers(batch_first: bool) -> None:
    fast = sr.to_parallel(rnn_of(0.9, batch_first=batch_first), 1e-6, chunk=40)
    shape = (3, 300, 5) if batch_first else (300, 3, 5)
    assert error(fast, unit_inputs(*shape)) <= promised(fast)
    assert error(fast, unit_inputs(300, 5)) <= promised(fast)


@pytest.mark.parametrize("kind", ["RNN", *GATED])
@pytest.mark.parametrize(("steps", "batch"), [(0, 2), (300, 0), (1, 2), (30, 2)])
def test_what_is_too_short_or_empty_runs_sequentially(kind: str, steps: int, batch: int) -> None:
    layer = rnn_of(0.9) if kind == "RNN" else gated_of(kind)
    fast = sr.to_parallel(layer, 1e-6, chunk=40, input_bound=1.0)
    x = unit_inputs(steps, batch, 5)
    (output, state), (truth, last) = fast(x), layer(x)
    assert torch.equal(output, truth)
    assert all(torch.equal(a, b) for a, b in zip(states_of(state), states_of(last), strict=True))
    assert (fast.report.windows, fast.report.depth, fast.report.truncation) == (1, steps, 0)


def test_an_initial_state_is_where_the_first_window_starts() -> None:
    fast = sr.to_parallel(rnn_of(0.95), 1e-7, chunk=40)
    assert error(fast, unit_inputs(400, 2, 5), 30 * torch.randn(1, 2, 12, dtype=torch.float64)) <= promised(fast)


@pytest.mark.parametrize("kind", GATED)
def test_a_gated_layer_is_certified_from_the_state_it_is_given(kind: str) -> None:
    layer = gated_of(kind)
    fast = sr.to_parallel(layer, 1e-6, chunk=40, input_bound=1.0)
    h = torch.full((1, 2, 8), 0.9, dtype=torch.float64)
    hx = (h, 3 * h) if kind == "LSTM" else h
    rate = fast.report.rate
    assert error(fast, unit_inputs(400, 2, 5), hx) <= promised(fast)
    assert fast.report.rate >= rate
    huge = (h, 1e6 * h) if kind == "LSTM" else 1e6 * h
    with pytest.raises(CertificateError, match=r"no certificate found from the `hx` given: lambda = .* >= 1"):
        fast(unit_inputs(400, 2, 5), huge)


@pytest.mark.parametrize("kind", ["RNN", "LSTM"])
def test_a_learned_initial_state_is_used_and_gets_its_gradient(kind: str) -> None:
    layer = rnn_of(0.9, learn_initial_state=True) if kind == "RNN" else gated_of(kind, learn_initial_state=True)
    with torch.no_grad():
        layer.initial_state_l0.fill_(0.2)
    fast = sr.to_parallel(layer, 1e-6, chunk=40, input_bound=1.0)
    x = unit_inputs(300, 2, 5)
    assert error(fast, x) <= promised(fast)
    found, truth = (torch.autograd.grad(f(x)[0].square().sum(), layer.initial_state_l0)[0] for f in (fast, layer))
    torch.testing.assert_close(found, truth, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("transition", [sr.SpectralBall(0.8), sr.Spectral(reflectors=3, center=0.8, radius=0.1)])
def test_constrained_layers_run_in_windows(transition: sr.Constraint) -> None:
    rnn = sr.RNN(5, 12, transition=transition, dtype=torch.float64)
    fast = sr.to_parallel(rnn, 1e-6, chunk=50)
    assert error(fast, unit_inputs(500, 2, 5)) <= promised(fast)
    assert fast.report.windows > 1


def test_a_stable_lstm_runs_in_windows() -> None:
    lstm = sr.LSTM(5, 8, transition=sr.StableLSTM(input_bound=1.0), dtype=torch.float64)
    fast = sr.to_parallel(lstm, 1e-6, chunk=80, input_bound=1.0)
    assert error(fast, unit_inputs(900, 2, 5)) <= promised(fast)


@pytest.mark.parametrize("name", ["relu", "tanh"])
def test_a_layer_that_contracts_in_a_quadratic_norm_only_keeps_the_promise(name: str) -> None:
    rnn = sr.RNN(5, 2, nonlinearity=name, dtype=torch.float64)
    with torch.no_grad():
        rnn.weight_hh_l0.copy_(1.5 * torch.tensor([[-0.51, 0.75], [-0.37, 0.44]]))
    fast = sr.to_parallel(rnn, 1e-6, chunk=50)
    assert fast.report.norm == "quadratic norm"
    assert fast.report.rate == pytest.approx(1.5 * 0.5331, rel=5e-3)
    assert error(fast, unit_inputs(600, 2, 5), 5 * torch.randn(1, 2, 2, dtype=torch.float64)) <= promised(fast)
    assert fast.report.windows > 1


def test_a_layer_that_recomputes_its_states_runs_in_windows() -> None:
    rnn = rnn_of(0.5, recompute=True)
    fast, x = sr.to_parallel(rnn, 1e-12, chunk=60), unit_inputs(400, 2, 5)
    assert error(fast, x) <= promised(fast)
    found, truth = (torch.autograd.grad(f(x)[0].square().sum(), rnn.weight_hh_l0)[0] for f in (fast, rnn))
    torch.testing.assert_close(found, truth, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("make", [nn.RNN, nn.GRU, nn.LSTM])
def test_layers_of_torch_are_taken(make: type[nn.RNNBase]) -> None:
    layer = make(5, 8, dtype=torch.float64)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.mul_(0.2)
    fast = sr.to_parallel(layer, 1e-6, chunk=40, input_bound=1.0)
    x = unit_inputs(300, 2, 5)
    with torch.no_grad():
        assert float((fast(x)[0] - layer(x)[0]).norm(dim=-1).max()) <= promised(fast)


def test_float32_and_rounding_are_told_apart() -> None:
    rnn = rnn_of(0.9, size=64, dtype=torch.float32)
    fast = sr.to_parallel(rnn, 1e-6, chunk=300)
    x = unit_inputs(4096, 1, 5, dtype=torch.float32)
    found = error(fast, x)
    assert found <= promised(fast)
    exact = copy.deepcopy(rnn).double()
    with torch.no_grad():
        truth = exact(x.double())[0]
        assert float((fast(x)[0].double() - truth).norm(dim=-1).max()) <= promised(fast)
    floor = 2.0**-24 * float(truth.norm(dim=-1).max()) / (1 - 0.9)
    assert found <= floor <= fast.report.rounding


# weights that change, copies


def test_the_certificate_follows_the_weights() -> None:
    rnn = rnn_of(0.8)
    fast = sr.to_parallel(rnn, 1e-6, chunk=40)
    optimizer = torch.optim.SGD(rnn.parameters(), lr=1e-4)
    x, rates = unit_inputs(400, 2, 5), []
    for _ in range(3):
        assert error(fast, x) <= promised(fast)
        rates.append(fast.report.rate)
        assert fast.report.norm == "quadratic norm"
        assert rates[-1] < 0.9 * float(torch.linalg.matrix_norm(rnn.weight_hh_l0.detach(), 2))
        optimizer.zero_grad()
        (fast(x)[0] - 0.1).square().sum().backward()
        optimizer.step()
    assert len(set(rates)) == 3


def test_a_change_through_data_is_seen_too() -> None:
    rnn = rnn_of(0.8)
    fast = sr.to_parallel(rnn, 1e-6, chunk=40)
    fast(unit_inputs(400, 2, 5))
    before = fast.report.rate
    rnn.weight_hh_l0.data.mul_(0.5)
    assert error(fast, unit_inputs(400, 2, 5)) <= promised(fast)
    assert fast.report.rate == pytest.approx(before / 2, rel=1e-6)


def test_weights_that_no_longer_contract_are_refused_until_they_do() -> None:
    rnn = rnn_of(0.8)
    fast = sr.to_parallel(rnn, 1e-6, chunk=40)
    with torch.no_grad():
        rnn.weight_hh_l0.mul_(4)
    with pytest.raises(ConversionError, match=r"no certificate found: lambda = .* >= 1 for layer l0"):
        fast(unit_inputs(400, 2, 5))
    with torch.no_grad():
        rnn.weight_hh_l0.div_(4)
    assert error(fast, unit_inputs(400, 2, 5)) <= promised(fast)


def test_a_gated_certificate_follows_the_weights() -> None:
    layer = gated_of("LSTM", num_layers=2)
    fast = sr.to_parallel(layer, 1e-6, chunk=60, input_bound=1.0)
    before = fast.report.rate
    with torch.no_grad():
        layer.bias_ih_l0.add_(0.2)
    assert error(fast, unit_inputs(400, 2, 5)) <= promised(fast)
    assert fast.report.rate != before


@pytest.mark.parametrize("kind", ["RNN", "relu", "LSTM"])
def test_copies_are_independent_also_after_a_backward(kind: str) -> None:
    layer = gated_of(kind) if kind == "LSTM" else rnn_of(0.8, "relu" if kind == "relu" else "tanh")
    fast = sr.to_parallel(layer, 1e-6, chunk=40, input_bound=1.0)
    x = unit_inputs(300, 2, 5)
    fast(x)[0].sum().backward()
    twin = copy.deepcopy(fast)
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter.mul_(0.5)
    assert error(twin, x) <= promised(twin)
    assert error(fast, x) <= promised(fast)
    assert twin.report.rate < fast.report.rate


def test_a_state_dict_goes_in_and_out() -> None:
    first, second = (sr.to_parallel(rnn_of(0.8), 1e-6, chunk=40) for _ in range(2))
    second.load_state_dict(first.state_dict())
    x = unit_inputs(300, 2, 5)
    with torch.no_grad():
        gap = float((first(x)[0] - second(x)[0]).norm(dim=-1).max())
    assert gap <= promised(first) + promised(second)  # norms found before, and so windows, may differ


def test_the_layer_is_shared_not_copied() -> None:
    rnn = rnn_of(0.8)
    assert sr.to_parallel(rnn, 1e-6).layer is rnn


def test_dropout_between_layers_is_the_layers() -> None:
    rnn = rnn_of(0.8, num_layers=2, dropout=0.5)
    fast = sr.to_parallel(rnn, 1e-5, chunk=40)
    x = unit_inputs(400, 2, 5)
    with torch.no_grad():
        torch.manual_seed(3)
        found = fast(x)[0]
        torch.manual_seed(3)
        truth = rnn(x)[0]
    assert float((found - truth).norm(dim=-1).max()) <= promised(fast)


def test_autocast_runs_and_tells_its_rounding() -> None:
    rnn = rnn_of(0.5, size=4, dtype=torch.float32)
    fast = sr.to_parallel(rnn, 1e-3, chunk=40)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = error(fast, unit_inputs(300, 2, 5, dtype=torch.float32))
    assert found <= promised(fast)
    assert fast.report.rounding > 1e-3


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", ["tanh", "relu", *GATED])
@pytest.mark.parametrize("ragged", [False, True])
def test_the_promise_holds_on_a_gpu(kind: str, dtype: torch.dtype, ragged: bool) -> None:
    layer = gated_of(kind, dtype) if kind in GATED else rnn_of(0.9, kind, dtype=dtype)
    fast = sr.to_parallel(layer.cuda(), 1e-6, chunk=100, input_bound=1.0)
    lengths = torch.tensor([700, 0, 350]) if ragged else None
    assert error(fast, unit_inputs(700, 3, 5, dtype=dtype).cuda(), lengths=lengths) <= promised(fast)
    assert fast.report.windows > 1


def test_rounding_of_saturating_states_is_finite_in_few_digits_too() -> None:
    fast = sr.to_parallel(sr.RNN(3, 8, transition=sr.SpectralBall(0.9), dtype=torch.bfloat16), 1e-6, chunk=50)
    fast(torch.randn(700, 2, 3, dtype=torch.bfloat16))
    assert fast.report.rounding <= 2.001 * 8**0.5


def test_a_bidirectional_layer_is_refused_with_a_sentence() -> None:
    with pytest.raises(CertificateError, match="bidirectional"):
        Parallel(sr.RNN(3, 4, bidirectional=True, transition=sr.SpectralBall(0.5)), 1e-3)


def test_a_cell_of_an_unknown_theorem_is_refused_with_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(THEORIES, "elman")
    with pytest.raises(CertificateError, match="No theorem covers the cell"):
        Parallel(sr.RNN(3, 4, transition=sr.SpectralBall(0.5)), 1e-3)


def test_pickles_of_before_find_their_weights() -> None:
    assert import_module("steadyrnn.certificates.reading").Weights is Weights
