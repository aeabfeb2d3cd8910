"""Feed-forward networks from stable recurrent ones: the shortest proven window, and an error below its bound."""

import copy
import io
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import steadyrnn as sr
from steadyrnn.certificates.certify import certify
from steadyrnn.convert.bptt import suggest_bptt
from steadyrnn.convert.feedforward import WindowNetwork, to_feedforward
from steadyrnn.errors import (
    ArgumentError,
    ArgumentTypeError,
    CertificateError,
    ConversionError,
    DtypeError,
    NotFiniteError,
    ShapeError,
)
from steadyrnn.layers.gru import GRU
from steadyrnn.layers.lstm import LSTM
from steadyrnn.layers.rnn import RNN
from steadyrnn.models.sequence import SequenceModel

D, H, B = 3, 5, 2
DOUBLE = {"dtype": torch.float64}


def small(module: nn.Module, factor: float = 0.3) -> nn.Module:
    """Return a module with all its weights multiplied, so that it is certified to be stable."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.mul_(factor)
    return module


def quadratic() -> RNN:
    """Return a rectifier network with a weight of norm 1.82 that only the quadratic norm certifies."""
    rnn = RNN(D, 2, nonlinearity="relu", **DOUBLE)
    with torch.no_grad():
        rnn.weight_hh_l0.copy_(1.7 * torch.tensor([[-0.51, 0.75], [-0.37, 0.44]]))
    return rnn


def started(module: nn.Module) -> nn.Module:
    """Return a module whose learned initial states are not zero."""
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if name.startswith("initial_"):
                parameter.normal_(std=0.3)
    return module


LAYERS: dict[str, Callable[[], Any]] = {
    "tanh": lambda: RNN(D, H, transition=sr.SpectralBall(0.8), **DOUBLE),
    "relu": lambda: RNN(D, H, nonlinearity="relu", transition=sr.SpectralBall(0.8), **DOUBLE),
    "abs": lambda: RNN(D, H, nonlinearity="abs", transition=sr.Spectral(center=0.7, radius=0.1), **DOUBLE),
    "identity": lambda: RNN(D, H, nonlinearity="identity", bias=False, transition=sr.SpectralBall(0.8), **DOUBLE),
    "sigmoid": lambda: RNN(D, H, nonlinearity="sigmoid", **DOUBLE),
    "quadratic": quadratic,
    "from a learned state": lambda: started(RNN(D, H, transition=sr.SpectralBall(0.7), learn_initial_state=True, **DOUBLE)),
    "batch first": lambda: RNN(D, H, batch_first=True, transition=sr.SpectralBall(0.7), **DOUBLE),
    "stack of rnn": lambda: RNN(D, H, 3, transition=sr.SpectralBall(0.6), **DOUBLE),
    "gru": lambda: small(GRU(D, H, **DOUBLE)),
    "gru, reset before": lambda: small(GRU(D, H, reset_after=False, **DOUBLE)),
    "gru from a learned state": lambda: started(small(GRU(D, H, learn_initial_state=True, **DOUBLE))),
    "stack of gru": lambda: small(GRU(D, H, 2, **DOUBLE)),
    "lstm": lambda: small(LSTM(D, H, **DOUBLE)),
    "lstm from a learned state": lambda: started(small(LSTM(D, H, learn_initial_state=True, **DOUBLE))),
    "stable lstm": lambda: LSTM(D, H, transition=sr.StableLSTM(0.64, 1.0, 0.1), **DOUBLE),
    "stack of lstm": lambda: small(LSTM(D, H, 2, **DOUBLE)),
    "torch's rnn": lambda: small(nn.RNN(D, H, batch_first=True, **DOUBLE)),
    "torch's gru": lambda: small(nn.GRU(D, H, **DOUBLE)),
    "torch's lstm": lambda: small(nn.LSTM(D, H, 2, **DOUBLE)),
}


def admissible(rnn: Any, steps: int, bound: float = 1.0, rows: int = B) -> Tensor:
    """Return inputs of norm up to ``bound``, most of them of that norm, in the layer's form."""
    x = torch.nn.functional.normalize(torch.randn(steps, rows, rnn.input_size, **DOUBLE), dim=-1)
    x = x * (bound * (1 - 2.0**-50)) * torch.rand(steps, rows, 1, **DOUBLE).mul(4).clamp(max=1)
    return x.transpose(0, 1) if rnn.batch_first else x


def by_time(rnn: Any, output: Tensor) -> Tensor:
    return output.transpose(0, 1) if rnn.batch_first else output


def scalar(rate: float, gain: float, **kwargs: Any) -> RNN:
    """Return the layer h+ = rate h + gain x of one unit."""
    rnn = RNN(1, 1, nonlinearity=kwargs.pop("nonlinearity", "identity"), bias=False, **DOUBLE, **kwargs)
    with torch.no_grad():
        rnn.weight_hh_l0.fill_(rate)
        rnn.weight_ih_l0.fill_(gain)
    return rnn


# The error is below the bound.


@pytest.mark.parametrize("name", LAYERS)
def test_every_output_is_within_the_bound_of_the_recurrent_one(name: str) -> None:
    rnn = LAYERS[name]()
    net = to_feedforward(rnn, eps=1e-2, input_bound=1.0)
    x = admissible(rnn, net.window + 60)
    with torch.no_grad():
        found, truth = by_time(rnn, net(x)), by_time(rnn, rnn(x)[0])
    error = torch.linalg.vector_norm(found - truth, dim=-1)  # (T, B)
    assert float(error.max()) <= net.bound <= 1e-2
    rounding = 64 * net.window * H * 2.0**-53 * float(truth.abs().max())
    assert float(error[: net.window].max()) <= rounding  # these start where the layer does


@pytest.mark.parametrize("eps", [1e-1, 1e-4, 1e-9])
def test_the_window_grows_with_the_accuracy_requested(eps: float) -> None:
    rnn = LAYERS["tanh"]()
    net, shorter = (to_feedforward(rnn, e, 1.0) for e in (eps, 10 * eps))
    assert net.window > shorter.window
    assert net.bound <= eps
    assert certify(rnn, 1.0).truncation_error(net.window - 1) > eps  # no shorter window is proven


@pytest.mark.parametrize(("rate", "gain", "window"), [(0.75, 10.0, 37), (0.99, 1.0, 1146)])
def test_the_window_is_that_of_the_formula(rate: float, gain: float, window: int) -> None:
    net = to_feedforward(scalar(rate, gain), eps=1e-3, input_bound=1.0)
    assert net.window == window  # Note [mathematics], section 4.1, with bounds on the state of 40 and 100
    assert math.ceil(math.log(gain / (1 - rate) / 1e-3) / math.log(1 / rate)) == window


def test_the_bound_is_reached_by_inputs_that_add_up() -> None:
    net = to_feedforward(scalar(0.75, 10.0), eps=1e-3, input_bound=1.0)
    x = torch.ones(300, 1, 1, **DOUBLE)
    error = float((net(x) - net.rnn(x)[0]).detach().abs().max())
    assert 0.9999 * net.bound <= error <= net.bound


def test_an_output_sees_its_window_and_nothing_before_it() -> None:
    rnn = LAYERS["tanh"]()
    net = to_feedforward(rnn, eps=0.5, input_bound=1.0)
    last = net.window + 10
    x = admissible(rnn, last + 1).requires_grad_()
    net(x)[last].sum().backward()
    reached = x.grad.norm(dim=(1, 2)).nonzero().flatten()
    assert reached.tolist() == list(range(last - net.window + 1, last + 1))  # x_{t-k+1}, ..., x_t


def test_where_zero_would_do_an_output_still_sees_its_own_input() -> None:
    net = to_feedforward(LAYERS["tanh"](), eps=100.0, input_bound=1.0)
    assert net.window == 1
    assert net.bound <= 100


def test_inputs_that_are_all_zero_are_admissible_for_the_bound_zero() -> None:
    rnn = LAYERS["tanh"]()
    net = to_feedforward(rnn, eps=1e-3, input_bound=0.0)
    x = torch.zeros(net.window + 5, B, D, **DOUBLE)
    assert float((net(x) - rnn(x)[0]).detach().norm(dim=-1).max()) <= net.bound


# Forms of input and blocks.


@pytest.mark.parametrize("name", ["tanh", "batch first", "torch's lstm"])
def test_a_sequence_without_a_batch_is_one_row(name: str) -> None:
    rnn = LAYERS[name]()
    net = to_feedforward(rnn, eps=1e-1, input_bound=1.0)
    x = by_time(rnn, admissible(rnn, net.window + 9, rows=1)).squeeze(1)
    batch = x.unsqueeze(0 if rnn.batch_first else 1)
    assert torch.allclose(net(x), net(batch).squeeze(0 if rnn.batch_first else 1), rtol=0, atol=1e-14)


@pytest.mark.parametrize("steps", [1, 2])
def test_a_short_sequence_is_exact(steps: int) -> None:
    rnn = LAYERS["gru"]()
    net = to_feedforward(rnn, eps=1e-3, input_bound=1.0)
    x = admissible(rnn, steps)
    assert torch.equal(net(x), rnn(x)[0])


@pytest.mark.parametrize(("steps", "rows"), [(0, B), (0, 0), (40, 0)])
def test_empty_sequences_and_batches_stay_empty(steps: int, rows: int) -> None:
    net = to_feedforward(LAYERS["tanh"](), eps=1e-1, input_bound=1.0)
    assert net(torch.zeros(steps, rows, D, **DOUBLE)).shape == (steps, rows, H)


@pytest.mark.parametrize("block", [1, 7, 1000])
@pytest.mark.parametrize("name", ["tanh", "batch first", "stack of lstm"])
def test_windows_in_blocks_are_the_same_windows(name: str, block: int) -> None:
    rnn = LAYERS[name]()
    whole, blocks = (to_feedforward(rnn, eps=1e-1, input_bound=1.0, block=size) for size in (None, block))
    x = admissible(rnn, whole.window + 25)
    assert torch.allclose(whole(x), blocks(x), rtol=0, atol=1e-14)


def test_a_block_bounds_what_the_layer_sees_at_once() -> None:
    rnn = LAYERS["tanh"]()
    net = to_feedforward(rnn, eps=1e-1, input_bound=1.0, block=4)
    seen: list[tuple[int, ...]] = []
    rnn.register_forward_pre_hook(lambda module, given: seen.append(tuple(given[0].shape)))
    net(admissible(rnn, net.window + 10))
    assert seen == [(net.window, B, D)] + [(net.window, rows * B, D) for rows in (4, 4, 2)]


def test_without_a_block_named_the_memory_is_bounded() -> None:
    net = to_feedforward(scalar(0.99, 1.0), eps=1e-3, input_bound=1.0)
    seen: list[int] = []
    net.rnn.register_forward_pre_hook(lambda module, given: seen.append(given[0].numel()))
    net(torch.zeros(6000, 2, 1, **DOUBLE))
    assert max(seen) <= 2**24 / 6
    assert len(seen) > 2


# The proof follows the weights.


def test_changed_weights_are_proven_anew() -> None:
    rnn = scalar(0.75, 10.0)
    net = to_feedforward(rnn, eps=1e-3, input_bound=1.0)
    before = net.bound
    rnn.weight_hh_l0.data.mul_(0.5)  # which leaves no trace in the tensor's version
    assert net.bound < 1e-6 * before
    assert net.window == 37


@pytest.mark.parametrize("rate", [0.76, 1.0, 2.0])
def test_weights_for_which_the_window_is_too_short_are_refused(rate: float) -> None:
    rnn = scalar(0.75, 10.0)
    net = to_feedforward(rnn, eps=1e-3, input_bound=1.0)
    with torch.no_grad():
        rnn.weight_hh_l0.fill_(rate)
    with pytest.raises(ConversionError, match="The weights have changed"):
        net(torch.zeros(3, 1, 1, **DOUBLE))


def test_a_copy_a_saved_module_and_a_loaded_state_compute_the_same() -> None:
    rnn = LAYERS["lstm"]()
    net = to_feedforward(rnn, eps=1e-2, input_bound=1.0)
    x = admissible(rnn, net.window + 5)
    file = io.BytesIO()
    torch.save(net, file)
    file.seek(0)
    other = WindowNetwork(LAYERS["lstm"](), 1e-2, 1.0, net.window)
    other.load_state_dict(net.state_dict())
    for twin in (copy.deepcopy(net), torch.load(file, weights_only=False), other):
        assert torch.equal(twin(x), net(x))
        assert twin.report == net.report


def test_a_float32_layer_is_converted_with_its_own_weights() -> None:
    rnn = RNN(D, H, transition=sr.SpectralBall(0.8))
    net = to_feedforward(rnn, eps=1e-2, input_bound=1.0)
    x = 0.99 * admissible(rnn, net.window + 30).float()
    assert float((net(x) - rnn(x)[0]).detach().norm(dim=-1).max()) <= net.bound  # rounding is far below the gap between the two


def test_the_report_can_be_read_by_people_and_machines() -> None:
    net = to_feedforward(LAYERS["stack of rnn"](), eps=1e-2, input_bound=1.0)
    text, entries = str(net.report), net.report.to_dict()
    assert f"windows of {net.window} inputs" in text
    assert "recursion over a stack" in text
    assert entries["window"] == net.window
    assert entries["bound"] == net.bound
    assert entries["contraction"] < 1
    assert f"window={net.window}" in repr(net)


# Refusals.


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RNN(D, H, transition="ornn"), "constant 1.0"),
        (lambda: RNN(D, H, nonlinearity="identity", transition=sr.Spectral(center=1.5, radius=0.0)), r"constant 1\.50001,"),
        (lambda: small(nn.GRU(D, H), 30.0), "contraction"),
        (lambda: small(nn.LSTM(D, H), 30.0), "contraction"),
        (lambda: RNN(D, H, bidirectional=True, transition=sr.SpectralBall(0.5)), "bidirectional"),
        (lambda: nn.LSTM(D, H, proj_size=2), "proj_size"),
        (lambda: nn.Linear(D, H), "of type Linear"),
        (lambda: sr.MLP(D, H, 1, 1), "of type MLP"),
        (lambda: GRU(D, H, 2, dropout=0.5), "dropout=0.5"),
    ],
)
def test_what_has_no_proven_equivalent_is_refused(make: Callable[[], nn.Module], message: str) -> None:
    with pytest.raises(ConversionError, match=message):
        to_feedforward(make(), eps=1e-2, input_bound=1.0)


def test_dropout_is_no_matter_in_evaluation_but_refused_in_training() -> None:
    rnn = small(GRU(D, H, 2, dropout=0.5, **DOUBLE)).eval()
    net = to_feedforward(rnn, eps=1e-2, input_bound=1.0)
    x = admissible(rnn, 3)
    assert torch.equal(net(x), rnn(x)[0])
    net.train()
    with pytest.raises(ArgumentError, match="its outputs are random"):
        net(x)


@pytest.mark.parametrize(
    ("kwargs", "error", "message"),
    [
        ({"eps": 0.0}, ArgumentError, "`eps` must be greater than zero"),
        ({"eps": -1.0}, ArgumentError, "`eps`"),
        ({"eps": math.nan}, NotFiniteError, "`eps`"),
        ({"eps": math.inf}, NotFiniteError, "`eps`"),
        ({"eps": "small"}, ArgumentTypeError, "`eps` must be a number"),
        ({"input_bound": -1.0}, ArgumentError, "`input_bound`"),
        ({"input_bound": math.nan}, NotFiniteError, "`input_bound`"),
        ({"input_bound": math.inf}, NotFiniteError, "`input_bound`"),
        ({"input_bound": None}, ArgumentTypeError, "`input_bound` must be a number"),
        ({"block": 0}, ArgumentError, "`block` must be greater than zero"),
        ({"block": 1.5}, ArgumentTypeError, "`block` must be an integer"),
    ],
)
def test_a_bad_argument_is_named(kwargs: dict[str, Any], error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        to_feedforward(LAYERS["tanh"](), **{"eps": 1e-2, "input_bound": 1.0, **kwargs})


@pytest.mark.parametrize("norm", [1.0 + 1e-9, 1.5, 1e30])
def test_an_input_beyond_the_bound_is_refused_with_its_norm(norm: float) -> None:
    net = to_feedforward(LAYERS["tanh"](), eps=1e-2, input_bound=1.0)
    x = torch.zeros(40, B, D, **DOUBLE)
    x[17, 1, 2] = norm
    with pytest.raises(ArgumentError, match=r"2-norm up to `input_bound`, 1, but the longest has 1[.\de+]+"):
        net(x)


def test_an_input_of_just_the_bound_is_taken() -> None:
    net = to_feedforward(LAYERS["tanh"](), eps=1e-2, input_bound=1.0)
    x = torch.zeros(4, 1, D, **DOUBLE)
    x[:, :, 0] = 1.0
    assert net(x).shape == (4, 1, H)


@pytest.mark.parametrize(
    ("data", "error", "message"),
    [
        (torch.full((4, B, D), torch.nan, **DOUBLE), NotFiniteError, "`input`"),
        (torch.zeros(4, B, D), DtypeError, "dtype"),
        (torch.zeros(4, **DOUBLE), ShapeError, "2 dimensions"),
        (torch.zeros(4, B, D + 1, **DOUBLE), ShapeError, "features"),
        ([0.0], ArgumentTypeError, "`input` must be a tensor"),
    ],
)
def test_a_bad_input_is_named(data: Any, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        to_feedforward(LAYERS["tanh"](), eps=1e-2, input_bound=1.0)(data)


# How far back training looks.


@pytest.mark.parametrize(("rate", "gain", "steps"), [(0.75, 10.0, 37), (0.99, 1.0, 1146)])
def test_the_length_suggested_is_that_of_the_formula(rate: float, gain: float, steps: int) -> None:
    assert suggest_bptt(scalar(rate, gain), 1e-3, 1.0) == steps  # Note [mathematics], section 4.1


def test_a_readout_counts_with_its_norm() -> None:
    model = SequenceModel(scalar(0.75, 10.0), 1)
    with torch.no_grad():
        model.readout.weight.fill_(100.0)
    assert suggest_bptt(model, 1e-3, 1.0) == math.ceil(math.log(100 * 40 / 1e-3) / math.log(1 / 0.75))


def test_an_embedding_bounds_the_input_by_itself() -> None:
    model = SequenceModel(scalar(0.75, 10.0), 1, vocab_size=4)
    with torch.no_grad():
        model.readout.weight.fill_(1.0)
        model.embedding.weight.copy_(torch.tensor([[0.5], [-1.0], [0.0], [0.25]]))
    assert suggest_bptt(model, 1e-3) == 37


def test_a_readout_that_reads_nothing_needs_one_step() -> None:
    model = SequenceModel(scalar(0.75, 10.0), 1)
    with torch.no_grad():
        model.readout.weight.zero_()
    assert suggest_bptt(model, 1e-3, 1.0) == 1


@pytest.mark.parametrize("name", ["tanh", "gru", "stack of lstm", "torch's gru"])
def test_the_length_suggested_is_the_window(name: str) -> None:
    rnn = LAYERS[name]()
    assert suggest_bptt(rnn, 1e-2, 1.0) == to_feedforward(rnn, 1e-2, 1.0).window


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("eps", [1e-1, 1e-3])
def test_the_gradient_of_a_truncated_run_is_as_close_as_requested(eps: float, seed: int) -> None:
    torch.manual_seed(seed)
    rnn = RNN(D, H, bias="single", **DOUBLE)
    with torch.no_grad():
        rnn.weight_hh_l0.mul_(0.7 / torch.linalg.matrix_norm(rnn.weight_hh_l0, 2))
    k = suggest_bptt(rnn, eps, 1.0, of="gradient", loss_gain=1.0, loss_smoothness=0.0)
    x, c = admissible(rnn, k + 50, rows=1), torch.nn.functional.normalize(torch.randn(H, **DOUBLE), dim=0)
    gradients = []
    for data in (x, x[-k:]):
        loss = rnn(data)[0][-1, 0] @ c  # its gradient by the state has norm 1 and does not change
        gradients.append(torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(rnn.parameters()))]))
    assert float((gradients[0] - gradients[1]).norm()) <= eps


@pytest.mark.parametrize("eps", [1e-1, 1e-2, 1e-3, 1e-4, 1e-5])
def test_the_length_for_gradients_is_the_shortest_proven(eps: float) -> None:
    rnn = LAYERS["tanh"]()
    k = suggest_bptt(rnn, eps, 1.0, of="gradient", loss_gain=2.0, loss_smoothness=1.0)
    proven = certify(rnn, 1.0)
    assert proven.gradient_truncation_error(k, 2.0, 1.0) <= eps < proven.gradient_truncation_error(k - 1, 2.0, 1.0)
    assert k > suggest_bptt(rnn, eps, 1.0)


@pytest.mark.parametrize("of", ["state", "gradient"])
def test_nothing_is_suggested_for_what_does_not_forget(of: str) -> None:
    with pytest.raises(CertificateError):
        suggest_bptt(RNN(D, H, transition="ornn"), 1e-3, 1.0, of=of)


@pytest.mark.parametrize("name", ["relu", "gru", "lstm", "stack of rnn"])
def test_gradients_without_a_theorem_are_refused(name: str) -> None:
    with pytest.raises(CertificateError, match=r"Lemma 2 of Miller and Hardt"):
        suggest_bptt(LAYERS[name](), 1e-3, 1.0, of="gradient")


def test_states_without_a_bound_on_the_input_are_refused() -> None:
    with pytest.raises(CertificateError, match="`input_bound`"):
        suggest_bptt(LAYERS["relu"](), 1e-3)


@pytest.mark.parametrize(
    ("kwargs", "error", "message"),
    [
        ({"of": "weights"}, ArgumentError, "`of` must be 'state' or 'gradient', but is 'weights'"),
        ({"eps": 0.0}, ArgumentError, "`eps` must be greater than zero"),
        ({"eps": "tiny"}, ArgumentTypeError, "`eps` must be a number"),
        ({"of": "gradient", "loss_gain": -1.0}, ArgumentError, "`loss_gain`"),
        ({"of": "gradient", "loss_smoothness": math.nan}, NotFiniteError, "`loss_smoothness`"),
        ({"input_bound": -1.0}, ArgumentError, "`input_bound`"),
    ],
)
def test_a_bad_argument_of_the_suggestion_is_named(kwargs: dict[str, Any], error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        suggest_bptt(LAYERS["tanh"](), **{"eps": 1e-2, "input_bound": 1.0, **kwargs})


def test_no_steps_of_a_torch_layer_give_no_outputs() -> None:
    net = sr.to_feedforward(torch.nn.RNN(2, 3), 1e-2, 1.0)
    assert net(torch.zeros(0, 4, 2)).shape == (0, 4, 3)


def test_a_wrong_width_is_refused_by_name() -> None:
    with pytest.raises(ShapeError, match="features"):
        sr.to_feedforward(torch.nn.RNN(2, 3), 1e-2, 1.0)(torch.zeros(4, 1, 5))
