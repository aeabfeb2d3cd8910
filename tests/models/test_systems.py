"""Every named system: it builds, runs and learns on every kind of task it takes, and refuses the others by name."""

import math
from dataclasses import dataclass, fields
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import steadyrnn as sr
from steadyrnn.activations.adaptive_tanh import BASES, SCALES, AdaptiveTanh
from steadyrnn.errors import ArgumentError, ArgumentTypeError, CertificateError
from steadyrnn.models.registry import SYSTEMS
from steadyrnn.models.settings import ModelSettings, complete
from steadyrnn.models.systems import build_model
from steadyrnn.models.truncated import recurrent_part

T, B, D, N, V = 7, 3, 2, 5, 9


@dataclass(frozen=True)
class Interface:
    inputs: int = D
    outputs: int = N
    vocabulary: int | None = None
    reads: str = "last"


INTERFACES = {
    "last": Interface(),
    "each": Interface(reads="each"),
    "tokens-last": Interface(inputs=4, vocabulary=V),
    "tokens-each": Interface(inputs=0, outputs=V, vocabulary=V, reads="each"),
    "row": Interface(reads="row"),
}
RECURRENT = [name for name, system in SYSTEMS.items() if system.reads == "time"]
DEEP = [name for name, system in SYSTEMS.items() if system.reads == "row"]
FITS = [(name, kind) for name in RECURRENT for kind in INTERFACES if kind != "row"] + [(name, "row") for name in DEEP]


def small(name: str, **options: Any) -> ModelSettings:
    deep: dict[str, Any] = {"depth": 2} if "mlp" in name else {"blocks": 1} if "resnet" in name else {}
    context = {"context": 3} if name == "truncated" else {}
    return ModelSettings(name, width=6, **deep, **context, **options)


def example(kind: str) -> Tensor:
    if kind.startswith("tokens"):
        return torch.randint(V, (T, B))
    return torch.randn(B, D) if kind == "row" else torch.randn(T, B, D)


def logits_of(model: nn.Module, x: Tensor) -> Tensor:
    output = model(x)
    return output[0] if isinstance(output, tuple) else output


def count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize(("name", "kind"), FITS)
def test_a_system_learns_on_every_kind_of_task_it_takes(name: str, kind: str) -> None:
    interface, x = INTERFACES[kind], example(kind)
    model = build_model(small(name), interface)
    logits = logits_of(model, x)
    assert logits.shape == ((T, B) if kind.endswith("each") else (B,)) + (interface.outputs,)
    logits.square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
    assert any(p.grad.abs().sum() > 0 for p in model.parameters())


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_system_survives_its_state_dict(name: str) -> None:
    kind = "row" if name in DEEP else "each"
    first, second = (build_model(small(name), INTERFACES[kind]) for _ in range(2))
    second.load_state_dict(first.state_dict())
    x = example(kind)
    assert torch.equal(logits_of(first, x), logits_of(second, x))


@pytest.mark.parametrize("name", SYSTEMS)
def test_a_system_is_the_same_from_the_same_seed(name: str) -> None:
    kind = "row" if name in DEEP else "last"
    models = []
    for _ in range(2):
        torch.manual_seed(5)
        models.append(build_model(small(name), INTERFACES[kind]))
    assert all(torch.equal(a, b) for a, b in zip(*(m.state_dict().values() for m in models), strict=True))


@pytest.mark.parametrize("name", RECURRENT)
def test_a_recurrent_system_has_a_certificate_if_there_is_a_theorem_for_its_cell(name: str) -> None:
    model = recurrent_part(build_model(small(name), INTERFACES["last"]))
    if model.rnn.cell.record.theorem is None:
        with pytest.raises(CertificateError, match="No theorem covers the cell"):
            sr.certify(model, input_bound=1.0)
        return
    certificate = sr.certify(model, input_bound=1.0)
    if name in ("contractive", "lds", "stable-rnn", "stable-lstm", "truncated"):
        assert certificate.stable


@pytest.mark.parametrize("name", DEEP)
def test_a_network_without_time_has_no_certificate_and_says_so(name: str) -> None:
    with pytest.raises(ArgumentTypeError, match="must be a recurrent layer or hold exactly one"):
        sr.certify(build_model(small(name), INTERFACES["row"]))


@pytest.mark.parametrize("name", RECURRENT)
def test_a_recurrent_system_refuses_rows_by_name(name: str) -> None:
    with pytest.raises(ArgumentError, match=rf"{name!r}, which takes sequences.* mlp, resnet"):
        build_model(small(name), INTERFACES["row"])


@pytest.mark.parametrize("name", DEEP)
def test_a_network_without_time_refuses_sequences_by_name(name: str) -> None:
    with pytest.raises(ArgumentError, match=rf"{name!r}, which takes rows.* rnn, irnn"):
        build_model(small(name), INTERFACES["last"])


@pytest.mark.parametrize("name", SYSTEMS)
def test_every_option_that_a_system_does_not_have_is_refused_by_name(name: str) -> None:
    options = {**SYSTEMS["stable-rnn"].options, **SYSTEMS[name].options} if name == "truncated" else SYSTEMS[name].options
    for option in {field.name for field in fields(ModelSettings)} - {"name", *options}:
        with pytest.raises(ArgumentError, match=f"`{option}` is no option of the model {name!r}"):
            complete(ModelSettings(name, **{option: 1}))


def test_an_unknown_system_is_refused_with_the_names_there_are() -> None:
    with pytest.raises(ArgumentError, match=r"must be one of rnn, irnn, .* but is 'lsmt'"):
        build_model(ModelSettings("lsmt"), INTERFACES["last"])


@pytest.mark.parametrize("base", ["mlp", "truncated", "none"])
def test_what_cannot_be_truncated_is_refused(base: str) -> None:
    with pytest.raises(ArgumentError, match="`base` must be"):
        complete(ModelSettings("truncated", base=base))


@pytest.mark.parametrize("option", [{"tied": True}, {"embedding": 4}])
def test_an_embedding_needs_tokens(option: dict[str, object]) -> None:
    with pytest.raises(ArgumentError, match="needs a task of tokens"):
        build_model(small("rnn", **option), INTERFACES["last"])


def test_a_slope_needs_a_leaky_rectifier() -> None:
    with pytest.raises(ArgumentError, match="`slope` belongs to"):
        build_model(small("rnn", slope=0.5), INTERFACES["last"])
    assert build_model(small("rnn", nonlinearity="leaky_relu", slope=0.5), INTERFACES["last"]).rnn.activation.slope == 0.5


def test_saturation_is_that_of_its_options() -> None:
    def saturation(**options: Any) -> tuple[str, float]:
        activation = build_model(small("urnn", nonlinearity="adaptive_tanh", **options), INTERFACES["last"]).rnn.activation
        return activation.basis, activation.start

    usual = AdaptiveTanh()
    assert saturation() == (usual.basis, usual.start)
    assert saturation(saturation_basis="diagonal") == ("diagonal", usual.start)
    assert saturation(saturation_start=2) == ("full", 2)


@pytest.mark.parametrize("option", [{"saturation_basis": "full"}, {"saturation_start": 0.05}])
@pytest.mark.parametrize("nonlinearity", ["tanh", "leaky_relu", "modrelu"])
def test_options_of_saturation_need_the_nonlinearity_that_has_them(option: dict[str, Any], nonlinearity: str) -> None:
    words = f"`{next(iter(option))}` belongs to the nonlinearity adaptive_tanh, but that is {nonlinearity!r}"
    with pytest.raises(ArgumentError, match=words):
        complete(ModelSettings("urnn", nonlinearity=nonlinearity, **option))


@pytest.mark.parametrize("value", [*BASES, "half", "", "Full"])
def test_a_basis_is_refused_where_the_activation_would_refuse_it(value: str) -> None:
    settings = ModelSettings("rnn", nonlinearity="adaptive_tanh", saturation_basis=value)
    if value in BASES:
        assert complete(settings).saturation_basis == AdaptiveTanh(value).basis
    else:
        with pytest.raises(ArgumentError, match=f"`saturation_basis` must be one of full, diagonal, but is {value!r}"):
            complete(settings)


@pytest.mark.parametrize("value", [*SCALES, 0.0, -1.0, 9e-7, 1.1e6, math.nan, math.inf])
def test_a_start_is_refused_where_the_activation_would_refuse_it(value: float) -> None:
    settings = ModelSettings("rnn", nonlinearity="adaptive_tanh", saturation_start=value)
    if SCALES[0] <= value <= SCALES[1]:
        assert complete(settings).saturation_start == AdaptiveTanh(start=value).start
    else:
        with pytest.raises(ArgumentError, match=r"`saturation_start` must be from 1e-06 to 1e\+06, but is"):
            complete(settings)


def test_a_complex_system_needs_an_even_width() -> None:
    with pytest.raises(ValueError, match="even size"):
        build_model(ModelSettings("unitary", width=5), INTERFACES["last"])


def test_tied_weights_are_one_tensor() -> None:
    model = build_model(small("lstm", tied=True), INTERFACES["tokens-each"])
    assert model.embedding.weight is model.readout.weight


def test_dropout_reaches_tokens_layers_and_readout() -> None:
    rnn = build_model(small("gru", dropout=0.5, layers=2, dropout_logits=0.25), INTERFACES["tokens-each"])
    assert (rnn.dropout_embedding.p, rnn.rnn.dropout, rnn.dropout_state.p, rnn.dropout_logits.p) == (0.5, 0.5, 0.5, 0.25)


@pytest.mark.parametrize(("init", "std"), [("identity", 0.001), ("orthogonal", 128**-0.5)])
def test_an_irnn_starts_as_its_paper_says(init: str, std: float) -> None:
    torch.manual_seed(0)
    model = build_model(ModelSettings("irnn", init=init), Interface(inputs=128))
    weight = model.rnn.weight_hh_l0
    assert torch.allclose(weight @ weight.mT, torch.eye(128), atol=1e-5)
    assert torch.equal(weight, torch.eye(128)) == (init == "identity")
    assert model.rnn.weight_ih_l0.std().item() == pytest.approx(std, rel=0.05)
    assert model.rnn.bias_ih_l0.abs().sum() == 0
    assert model.readout.bias.abs().sum() == 0


# Parameter counts: Note [mathematics], section 2.10, the rule of Table 4 (one bias, output bias, learned initial state),
# n = 32, 16 reflectors.


@pytest.mark.parametrize(("name", "expected"), [("rnn", 1219), ("lstm", 4515), ("ornn", 587), ("spectral", 1011)])
def test_a_system_has_the_count_of_table_4(name: str, expected: int) -> None:
    model = build_model(ModelSettings(name, width=32, learn_initial_state=True), Interface(inputs=1, outputs=3))  # ArrowHead
    assert count(model) == expected


@pytest.mark.parametrize(
    ("name", "recurrent"),
    [
        ("irnn", 64), ("gru", 3 * 64), ("spectral-lstm", 3 * 64 + 2 * 28 + 8 + 14),
        ("spectral-gru", 2 * 64 + 2 * 28 + 8 + 14), ("urnn", 28), ("cayley", 28 + 8), ("ugru", 2 * 64 + 28),
        ("unitary", 7 * 4 + 4), ("unitary-full", 16 + 4), ("factorized", 64), ("contractive", 64), ("polar", 64), ("lds", 64),
        ("stable-rnn", 64), ("stable-lstm", 4 * 64), ("truncated", 64),
    ],
)  # fmt: skip
def test_a_system_has_the_recurrent_parameters_of_its_set(name: str, recurrent: int) -> None:
    gates = {"gru": 3, "ugru": 3, "spectral-gru": 3, "spectral-lstm": 4, "stable-lstm": 4}.get(name, 1)
    model = build_model(ModelSettings(name, width=8), INTERFACES["last"])
    assert count(model) == recurrent + gates * 8 * (D + 1) + N * 8 + N


def test_embedded_tokens_start_with_a_norm_of_about_one() -> None:
    face = Interface(inputs=30, outputs=50, vocabulary=50)
    model = build_model(ModelSettings("spectral", width=16), face)
    assert isinstance(model, sr.SequenceModel)
    assert model.embedding is not None
    assert float(model.embedding.weight.norm(dim=1).mean()) == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"width": -3}, "width"),
        ({"layers": 0}, "layers"),
        ({"dropout": 2.0}, "dropout"),
        ({"dropout_logits": -1.0}, "dropout_logits"),
    ],
)
def test_an_impossible_number_is_refused_under_the_name_it_was_given(options: dict[str, Any], name: str) -> None:
    with pytest.raises(ArgumentError, match=f"`{name}` must be"):
        complete(ModelSettings("spectral", **options))
