"""Certificates: what they say holds, what they lack they name, and what is stored can be checked again."""

import json
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import steadyrnn as sr
from steadyrnn.certificates.certify import certify, recheck
from steadyrnn.errors import ArgumentError, ArgumentTypeError, CertificateError, NotFiniteError

BOUND = 1.0


def small_gates(module: nn.Module, scale: float) -> nn.Module:
    """Make a gated layer of torch forgetful: all weights small, forget gates low."""
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            parameter.mul_(scale)
            if "bias" in name and isinstance(module, nn.LSTM):
                parameter.chunk(4)[1].fill_(-1.0)
    return module


MODULES: dict[str, Any] = {
    "ball": lambda: sr.RNN(3, 8, transition=sr.SpectralBall(0.8)),
    "relu": lambda: sr.RNN(3, 8, nonlinearity="relu", transition=sr.Spectral(center=0.6, radius=0.2)),
    "abs": lambda: sr.RNN(3, 8, nonlinearity="abs", transition=sr.SpectralBall(0.7)),
    "sigmoid": lambda: sr.RNN(3, 8, nonlinearity="sigmoid", bias="single"),
    "identity": lambda: sr.RNN(3, 8, nonlinearity="identity", bias=False, transition=sr.SpectralBall(0.7)),
    "learned": lambda: sr.RNN(3, 8, transition=sr.SpectralBall(0.5), learn_initial_state=True),
    "torch-rnn": lambda: nn.RNN(3, 8),
    "torch-relu": lambda: nn.RNN(3, 8, nonlinearity="relu"),
    "stable-lstm": lambda: sr.LSTM(3, 6, transition="stable-lstm"),
    "torch-lstm": lambda: small_gates(nn.LSTM(3, 6), 0.3),
    "torch-gru": lambda: small_gates(nn.GRU(3, 6), 0.2),
    "gru-before": lambda: small_gates(sr.GRU(3, 6, reset_after=False), 0.2),
    "stack": lambda: sr.RNN(3, 6, num_layers=3, transition=sr.SpectralBall(0.5)),
    "stack-lstm": lambda: small_gates(nn.LSTM(3, 5, num_layers=2), 0.2),
    "batch-first": lambda: nn.RNN(3, 8, batch_first=True),
}


def build(name: str) -> nn.Module:
    torch.manual_seed(7)
    module: nn.Module = MODULES[name]().double()
    return module


def admissible(module: nn.Module, steps: int, rows: int, seed: int = 0) -> Tensor:
    """Return inputs of norm exactly the bound."""
    x = torch.randn(steps, rows, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    x = BOUND * x / torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return x.transpose(0, 1) if getattr(module, "batch_first", False) else x


def zero_state(module: Any, rows: int) -> Any:
    zero = torch.zeros(module.num_layers, rows, module.hidden_size, dtype=torch.float64)
    return (zero, zero) if isinstance(module, nn.LSTM | sr.LSTM) else zero


@pytest.mark.parametrize("name", MODULES)
def test_no_run_of_a_window_errs_more_than_the_certificate_says(name: str) -> None:
    module = build(name)
    certificate = certify(module, input_bound=BOUND)
    assert certificate.stable
    x, time = admissible(module, 40, 16), 1 if getattr(module, "batch_first", False) else 0
    whole = module(x)[0].select(time, -1)
    for k in (1, 2, 5, 11, 25):
        window = module(x.narrow(time, 40 - k, k), zero_state(module, 16))[0].select(time, -1)
        assert float(torch.linalg.vector_norm(whole - window, dim=-1).max()) <= certificate.truncation_error(k)


@pytest.mark.parametrize("name", MODULES)
def test_no_state_is_larger_than_the_certificate_says(name: str) -> None:
    module = build(name)
    output = module(admissible(module, 60, 16, seed=1))[0]
    assert float(torch.linalg.vector_norm(output, dim=-1).max()) <= certify(module, input_bound=BOUND).state_bound


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize("eps", [1e-2, 1e-6])
def test_the_horizon_is_the_first_window_that_is_long_enough(name: str, eps: float) -> None:
    certificate = certify(build(name), input_bound=BOUND)
    k = certificate.horizon(eps)
    assert certificate.truncation_error(k) <= eps < certificate.truncation_error(k - 1)


@pytest.mark.parametrize("name", ["ball", "relu", "abs", "sigmoid", "torch-rnn", "stable-lstm", "torch-gru"])
@pytest.mark.parametrize("norm", ["spectral", "frobenius"])
def test_jacobians_lie_between_the_gradient_bounds(name: str, norm: str) -> None:
    module: Any = build(name)
    certificate = certify(module, input_bound=BOUND)
    x = admissible(module, 12, 1, seed=3)
    state = zero_state(module, 1)
    if not isinstance(state, tuple):
        state = module(x[:6], state)[1]
        for lag in (1, 3, 6):
            jacobian = torch.autograd.functional.jacobian(lambda h, lag=lag: module(x[6 : 6 + lag], h)[1], state)
            square = jacobian.view(module.hidden_size, module.hidden_size)
            low, high = certificate.gradient_bounds(lag, norm)
            assert low <= float(torch.linalg.matrix_norm(square, 2 if norm == "spectral" else "fro")) <= high


def test_known_horizon_of_a_scalar_network() -> None:
    rnn = sr.RNN(1, 1, nonlinearity="identity", bias=False, dtype=torch.float64)
    with torch.no_grad():
        rnn.weight_hh_l0.fill_(0.75)
        rnn.weight_ih_l0.fill_(10.0)
    assert certify(rnn, input_bound=1.0).horizon(1e-3) == 37  # Note [mathematics], section 4.1
    with torch.no_grad():
        rnn.weight_hh_l0.fill_(0.99)
        rnn.weight_ih_l0.fill_(1.0)
    assert certify(rnn, input_bound=1.0).horizon(1e-3) == 1146


def test_a_linear_network_on_aligned_inputs_reaches_the_bound() -> None:
    rnn = sr.RNN(1, 2, nonlinearity="identity", bias=False, dtype=torch.float64)
    v = torch.tensor([0.6, 0.8], dtype=torch.float64)
    with torch.no_grad():
        rnn.weight_hh_l0.copy_(0.9 * torch.outer(v, v))
        rnn.weight_ih_l0.copy_(v.unsqueeze(1))
    x, certificate = torch.ones(400, 1, 1, dtype=torch.float64), certify(rnn, input_bound=1.0)
    error = torch.linalg.vector_norm(rnn(x)[0][-1] - rnn(x[:7])[0][-1])
    assert 0.9999 * certificate.truncation_error(7) <= float(error) <= certificate.truncation_error(7)


@pytest.mark.parametrize("make", [nn.RNN, nn.GRU, nn.LSTM])
@pytest.mark.parametrize("seed", range(3))
def test_a_strangers_layer_gets_an_answer_or_a_clear_none(make: Any, seed: int) -> None:
    torch.manual_seed(seed)
    certificate = certify(make(4, 12), input_bound=3.0)
    if certificate.stable:
        assert certificate.horizon(1e-3) > 0
        return
    assert "no contraction proven (constant" in str(certificate)
    with pytest.raises(CertificateError, match="No contraction proven"):
        certificate.horizon(1e-3)


def test_an_orthogonal_rectifier_is_not_called_stable() -> None:
    certificate = certify(sr.RNN(2, 4, nonlinearity="abs", transition="ornn", dtype=torch.float64))
    assert not certificate.stable
    assert certificate.regime == "constant"
    low, high = certificate.gradient_bounds(30)
    assert 1 - 1e-9 <= low <= 1 <= high <= 1 + 1e-9


def test_torchs_wide_matrix_may_explode() -> None:
    rnn = nn.RNN(2, 4, nonlinearity="relu")
    with torch.no_grad():
        rnn.weight_hh_l0.copy_(3 * torch.eye(4))
    certificate = certify(rnn)
    assert (certificate.regime, certificate.stable, certificate.state_bound) == ("may explode", False, math.inf)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", ["weight_ih_l0", "weight_hh_l0", "bias_ih_l0"])
@pytest.mark.parametrize("make", [nn.RNN, nn.GRU, nn.LSTM])
def test_a_weight_that_is_not_finite_gives_an_error_and_no_number(make: Any, name: str, value: float) -> None:
    module = make(2, 3)
    with torch.no_grad():
        getattr(module, name).view(-1)[1] = value
    with pytest.raises(NotFiniteError, match=name):
        certify(module, input_bound=1.0)


@pytest.mark.parametrize("make", [nn.GRU, nn.LSTM])
def test_a_gated_layer_without_a_bound_says_what_it_lacks(make: Any) -> None:
    certificate = certify(small_gates(make(2, 3), 0.1))
    assert certificate.contraction == math.inf
    with pytest.raises(CertificateError, match="input_bound"):
        certificate.horizon(0.1)


def test_unbounded_states_say_what_they_lack() -> None:
    certificate = certify(sr.RNN(2, 3, nonlinearity="relu", transition=sr.SpectralBall(0.5)))
    assert certificate.stable
    with pytest.raises(CertificateError, match="give `input_bound`"):
        certificate.horizon(0.1)


def test_a_saturating_layer_needs_no_bound() -> None:
    assert certify(sr.RNN(2, 3, transition=sr.SpectralBall(0.5))).horizon(1e-3) <= 12


def test_modrelu_contracts_only_where_it_does_not_jump() -> None:
    rnn = sr.RNN(2, 4, nonlinearity="modrelu", transition=sr.SpectralBall(0.5))
    with torch.no_grad():
        rnn.activation_l0.fill_(-0.1)
    assert certify(rnn).stable
    with torch.no_grad():
        rnn.activation_l0[0] = 0.1
    assert certify(rnn).contraction == math.inf


def test_the_weights_are_those_in_use_under_autocast() -> None:
    rnn = sr.RNN(2, 16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast = certify(rnn)
    assert cast.digest == certify(rnn.to(torch.bfloat16)).digest


def test_a_factored_weight_is_certified_as_factors_and_as_a_matrix() -> None:
    rnn = sr.RNN(2, 300, transition=sr.Spectral(reflectors=8, center=0.9, radius=0.0))
    layer = certify(rnn, effort="fast").layers[0]
    assert 0 < layer.weights.slack < 1e-5
    assert layer.best.rate >= float(torch.linalg.matrix_norm(rnn.weight_hh_l0.detach().double(), 2))


def test_both_directions_have_their_certificates() -> None:
    torch.manual_seed(0)
    rnn = nn.RNN(3, 6, bidirectional=True).double()
    certificate = certify(rnn, input_bound=BOUND)
    x = admissible(rnn, 60, 4)
    k = certificate.horizon(1e-3)
    middle = rnn(x)[0][30]
    window = rnn(x[30 - k + 1 : 30 + k])[0][k - 1] if k <= 30 else middle
    assert float(torch.linalg.vector_norm(middle - window, dim=-1).max()) <= certificate.truncation_error(k) <= 1e-3
    assert len(certificate.directions) == 2
    with pytest.raises(CertificateError, match="directions"):
        certificate.gradient_bounds(2)


def test_two_runs_may_be_twice_the_bound_on_states_apart() -> None:
    """Pushed up once, the state stays near 1; from zero the same later inputs bring it near -1."""
    rnn = nn.RNN(1, 1, bias=False).double()
    with torch.no_grad():
        rnn.weight_hh_l0.fill_(10.0)
        rnn.weight_ih_l0.fill_(1.0)
        x = torch.tensor([1.0] + 20 * [-0.1], dtype=torch.float64).view(-1, 1, 1)
        apart = float((rnn(x)[0][-1] - rnn(x[1:])[0][-1]).abs())
    assert apart > 1.99
    assert apart <= certify(rnn, input_bound=1.0).truncation_error(20)


def test_both_directions_of_a_linear_network_reach_the_bound() -> None:
    rnn = sr.RNN(1, 1, nonlinearity="identity", bias=False, bidirectional=True, dtype=torch.float64)
    with torch.no_grad():
        for name, parameter in rnn.named_parameters():
            parameter.fill_(0.5 if "_hh_" in name else 1.0)
        x, k = torch.ones(201, 1, 1, dtype=torch.float64), 6
        error = float((rnn(x)[0][100] - rnn(x[100 - k + 1 : 100 + k])[0][k - 1]).norm())
    bound = certify(rnn, input_bound=1.0).truncation_error(k)
    assert 0.999 * bound <= error <= bound


def test_a_stack_of_bidirectional_layers_has_no_theorem() -> None:
    with pytest.raises(CertificateError, match="stack of bidirectional layers"):
        certify(nn.RNN(2, 3, num_layers=2, bidirectional=True))


def test_the_gradient_of_a_stack_has_no_theorem() -> None:
    with pytest.raises(CertificateError, match="stack"):
        certify(build("stack"), input_bound=BOUND).gradient_bounds(2)


def test_a_projected_lstm_has_no_theorem() -> None:
    with pytest.raises(CertificateError, match="proj_size"):
        certify(nn.LSTM(2, 4, proj_size=3))


def test_a_model_is_bounded_by_its_embedding() -> None:
    model = sr.SequenceModel(sr.RNN(4, 6, transition=sr.SpectralBall(0.5)), 3, vocab_size=5)
    certificate = certify(model)
    longest = torch.linalg.vector_norm(model.embedding.weight.detach().double(), dim=1).max()
    assert certificate.input_bound == pytest.approx(float(longest))
    assert certificate.readout_gain >= float(torch.linalg.matrix_norm(model.readout.weight.detach(), 2)) * (1 - 1e-6)
    assert certificate.module == "SequenceModel"


def test_the_only_layer_of_a_module_is_found() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.head = nn.RNN(2, 3), nn.Linear(3, 1)

    assert certify(Model()).module == "RNN"


@pytest.mark.parametrize("module", [nn.Linear(2, 3), nn.ModuleList([nn.RNN(2, 3), nn.GRU(2, 3)])], ids=["none", "two"])
def test_a_module_without_exactly_one_layer_is_refused(module: nn.Module) -> None:
    with pytest.raises(ArgumentTypeError, match="exactly one"):
        certify(module)


@pytest.mark.parametrize(("bound", "error"), [(-1.0, ArgumentError), (math.nan, ArgumentError), ("1", ArgumentTypeError)])
def test_a_bound_that_is_none_is_refused(bound: Any, error: type[Exception]) -> None:
    with pytest.raises(error, match="input_bound"):
        certify(nn.RNN(2, 3), input_bound=bound)


@pytest.mark.parametrize("eps", [0.0, -1.0, math.nan, math.inf, "x"])
def test_a_tolerance_that_is_none_is_refused(eps: Any) -> None:
    with pytest.raises(ArgumentError, match="eps"):
        certify(build("ball"), input_bound=1.0).horizon(eps)


def test_what_is_no_module_is_refused() -> None:
    with pytest.raises(ArgumentTypeError, match="module"):
        certify(torch.eye(3))  # type: ignore[arg-type]


def test_meta_weights_are_refused() -> None:
    with pytest.raises(CertificateError, match="meta"):
        certify(nn.RNN(2, 3, device="meta"))


@pytest.mark.parametrize("name", ["ball", "stable-lstm", "torch-gru", "stack"])
def test_a_stored_certificate_can_be_checked_again(name: str) -> None:
    module = build(name)
    stored = json.loads(certify(module, input_bound=BOUND).to_json())
    assert recheck(stored, module).digest == stored["digest"]


def test_a_stored_certificate_of_other_weights_is_refused() -> None:
    module = build("ball")
    stored = certify(module, input_bound=BOUND).to_dict()
    with torch.no_grad():
        module.weight_ih_l0[0, 0] += 1e-9
    with pytest.raises(CertificateError, match="checksums differ"):
        recheck(stored, module)


def test_a_stored_claim_that_is_not_proven_is_refused() -> None:
    module = build("ball")
    stored = certify(module, input_bound=BOUND).to_dict()
    stored["claims"][0]["value"] *= 0.9
    with pytest.raises(CertificateError, match="not proven"):
        recheck(stored, module)


@pytest.mark.parametrize("change", [{"contraction": 0.01}, {"claims": []}, {"stable": False}, {"contraction": None}], ids=str)
def test_a_stored_certificate_that_was_changed_is_refused(change: dict[str, Any]) -> None:
    module = build("ball")
    with pytest.raises(CertificateError, match=r"proven|lacks"):
        recheck(certify(module, input_bound=BOUND).to_dict() | change, module)


def test_a_claim_that_was_added_doubled_or_reworded_is_refused() -> None:
    module = build("ball")
    for change in ({"name": "l0: contraction, magic"}, {"value": 1e-9}, {"theorem": "X"}):
        stored = certify(module, input_bound=BOUND).to_dict()
        altered = {**stored["claims"][0], **change}
        stored["claims"] = [altered, *stored["claims"][1:]] if "theorem" in change else [*stored["claims"], altered]
        with pytest.raises(CertificateError, match=r"proven|lacks"):
            recheck(stored, module)


def test_a_fast_certificate_can_be_checked_again() -> None:
    module = build("ball")
    assert recheck(certify(module, input_bound=BOUND, effort="fast").to_dict(), module).stable


def test_a_bound_below_the_embedding_is_refused() -> None:
    with pytest.raises(ArgumentError, match="embedding"):
        certify(sr.SequenceModel(sr.GRU(4, 6), 3, vocab_size=5), input_bound=1e-3)


@pytest.mark.parametrize("bound", [torch.tensor(1.0), 1])
def test_a_bound_may_come_as_a_tensor_or_an_integer(bound: Any) -> None:
    assert certify(build("ball"), input_bound=bound).input_bound == 1.0


@pytest.mark.parametrize("stored", [{}, {"format": "other"}, [], None])
def test_what_is_no_certificate_is_refused(stored: Any) -> None:
    with pytest.raises(CertificateError, match="is not a certificate"):
        recheck(stored, build("ball"))


@pytest.mark.parametrize("name", ["ball", "torch-lstm", "stack"])
def test_every_claim_names_its_theorem_and_assumptions(name: str) -> None:
    certificate = certify(build(name), input_bound=BOUND)
    assert all(
        claim.theorem and "MATH" not in claim.theorem and claim.assumptions and claim.norm for claim in certificate.claims
    )
    assert all(claim.name in str(certificate) for claim in certificate.claims)


def test_the_gradient_of_a_truncated_run_is_bounded() -> None:
    torch.manual_seed(1)
    rnn = sr.RNN(2, 4, transition=sr.SpectralBall(0.6), bias=False, dtype=torch.float64)
    certificate, direction = certify(rnn, input_bound=1.0), torch.randn(4, dtype=torch.float64)
    direction = direction / direction.norm()
    x = torch.randn(60, 1, 2, dtype=torch.float64)
    x = x / torch.linalg.vector_norm(x, dim=-1, keepdim=True)

    def gradient(data: Tensor) -> Tensor:
        weight = rnn.weight_hh_l0
        found = torch.autograd.grad((rnn(data)[0][-1] @ direction).sum(), [rnn.weight_ih_l0, rnn.transition_l0.h.raw0])
        del weight
        return torch.cat([g.flatten() for g in found])

    for k in (3, 8, 15):
        assert float((gradient(x) - gradient(x[-k:])).norm()) <= certificate.gradient_truncation_error(k, 1.0, 0.0)


def test_the_gradient_of_a_kinked_run_has_no_bound() -> None:
    with pytest.raises(CertificateError, match=r"Lemma 2 of Miller and Hardt"):
        certify(build("relu"), input_bound=1.0).gradient_truncation_error(3, 1.0, 0.0)


def test_dropout_in_training_widens_the_input_of_the_next_layer() -> None:
    lstm = small_gates(nn.LSTM(3, 5, num_layers=2, dropout=0.5), 0.2)
    training, evaluating = certify(lstm.train(), input_bound=1.0), certify(lstm.eval(), input_bound=1.0)
    assert training.layers[1].best.rate > evaluating.layers[1].best.rate


@pytest.mark.parametrize("name", ["spectral", "exp", "ball", "polar", "ornn", "cayley"])
def test_a_constraint_is_evaluated_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    gru = sr.GRU(2, 4, num_layers=2, transition={"n": name, "z": name})
    kind = type(gru.transition_l0.n.constraint)
    calls: list[object] = []
    forward = kind.forward

    def counted(self: sr.Constraint, *raw: torch.Tensor) -> torch.Tensor:
        calls.append(self)
        return forward(self, *raw)

    monkeypatch.setattr(kind, "forward", counted)
    certify(gru, input_bound=1.0)
    assert len(calls) == len(set(calls)) == 4
