"""Whole models through every conversion: embedding and readout come along, lengths too."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_sequence, pad_packed_sequence

import steadyrnn as sr
from steadyrnn.errors import ArgumentError, ConversionError
from steadyrnn.layers.base import RecurrentLayer
from steadyrnn.layers.from_torch import PAIRS
from steadyrnn.models.truncated import Truncated

D, H, N, T, B, VOCABULARY = 3, 6, 4, 12, 5, 7
LENGTHS = [12, 1, 0, 7, 3]

Make = Callable[..., sr.SequenceModel]


def relu(**more: Any) -> RecurrentLayer:
    return sr.RNN(D, H, nonlinearity="relu", transition=sr.SpectralBall(0.7), dtype=torch.float64, **more)


def stable_lstm(**more: Any) -> RecurrentLayer:
    return sr.LSTM(D, H, transition=sr.StableLSTM(0.5, 1.0), dtype=torch.float64, **more)


LAYERS: dict[str, Callable[..., RecurrentLayer]] = {"rnn": relu, "lstm": stable_lstm}
MODELS: dict[str, dict[str, Any]] = {
    "last": {},
    "each": {"readout": "each"},
    "skip last": {"skip": True},
    "skip each": {"skip": True, "readout": "each"},
    "tokens last": {"vocab_size": VOCABULARY},
    "tokens each": {"vocab_size": VOCABULARY, "readout": "each"},
}


def build(layer: str, model: str, **more: Any) -> sr.SequenceModel:
    torch.manual_seed(0)
    made = sr.SequenceModel(LAYERS[layer](**more), N, **MODELS[model])
    if made.embedding is not None:
        with torch.no_grad():
            made.embedding.weight.copy_(nn.functional.normalize(made.embedding.weight, dim=1))
    return made.eval()


def inputs(model: sr.SequenceModel, steps: int = T) -> Tensor:
    """Return an admissible batch; of a model that reads (B, T, ...) in that form."""
    generator = torch.Generator().manual_seed(1)
    if model.embedding is not None:
        x = torch.randint(VOCABULARY, (steps, B), generator=generator)
    else:
        x = nn.functional.normalize(torch.randn(steps, B, D, generator=generator, dtype=torch.float64), dim=-1)
    return x.transpose(0, 1) if model.batch_first else x


def spoiled(x: Tensor, model: sr.SequenceModel) -> Tensor:
    """Return the batch with nonsense behind each row's length."""
    bad = x.clone()
    for row, length in enumerate(LENGTHS):
        place = (row, slice(length, None)) if model.batch_first else (slice(length, None), row)
        bad[place] = VOCABULARY + 9 if model.embedding is not None else torch.nan
    return bad


def unit_roundoff(model: sr.SequenceModel) -> float:
    """What float64 may do to logits of size about one in T steps of H units; each conversion sums in another order."""
    return 16 * T * H * torch.finfo(torch.float64).eps


CONVERSIONS: dict[str, Callable[[Any], Any]] = {
    "torch": sr.to_torch,
    "unitary": lambda model: sr.to_unitary(model, input_bound=1.0),
    "parallel": lambda model: sr.to_parallel(model, tol=1e-12, input_bound=1.0, chunk=4),
    "feedforward": lambda model: sr.to_feedforward(model, eps=1e-3, input_bound=1.0 + 1e-9),
}


def logits(module: Any, x: Any, **more: Any) -> Any:
    found = module(x, **more)
    return found[0] if isinstance(found, tuple) else found


def allowed(form: str, model: sr.SequenceModel, made: Any) -> float:
    """Return the proven error of a conversion's logits, and rounding."""
    gain = float(torch.linalg.matrix_norm(model.readout.weight.detach(), 2))
    if form == "feedforward":
        return float(made.bound) + unit_roundoff(model)
    return unit_roundoff(model) + (gain * 1e-12 if form == "parallel" else 0.0)


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("form", CONVERSIONS)
def test_a_whole_model_converts_and_computes_the_same(form: str, layer: str, kind: str, batch_first: bool) -> None:
    model = build(layer, kind, batch_first=batch_first)
    if form == "unitary" and layer == "lstm":
        with pytest.raises(ConversionError, match="none is known for gated networks"):
            CONVERSIONS[form](model)
        return
    made, x = CONVERSIONS[form](model), inputs(model)
    bound = allowed(form, model, made)
    assert torch.linalg.vector_norm(logits(made, x) - logits(model, x), dim=-1).max() <= bound
    ragged = logits(made, spoiled(x, model), lengths=LENGTHS)
    expected = logits(model, x, lengths=LENGTHS)
    assert torch.linalg.vector_norm(ragged - expected, dim=-1).max() <= bound
    if model.reads == "each":
        padding = torch.arange(T).unsqueeze(1) >= torch.tensor(LENGTHS)
        assert not ragged[padding.T if batch_first else padding].any()


@pytest.mark.parametrize("steps", [0, 1, 2, 40])
@pytest.mark.parametrize("kind", ["last", "each", "skip last", "tokens last"])
def test_a_model_on_windows_reads_sequences_of_any_length(kind: str, steps: int) -> None:
    model = build("rnn", kind)
    net, x = sr.to_feedforward(model, eps=1e-2, input_bound=1.0 + 1e-9), inputs(model, steps)
    assert 2 < net.window < 40
    found, expected = net(x), model(x)[0]
    assert found.shape == expected.shape
    if found.numel():
        assert torch.linalg.vector_norm(found - expected, dim=-1).max() <= net.bound + unit_roundoff(model)


@pytest.mark.parametrize("kind", ["last", "each"])
def test_a_model_on_windows_supports_unbatched_and_packed_input(kind: str) -> None:
    model = build("rnn", kind)
    net, x = sr.to_feedforward(model, eps=1e-3, input_bound=1.0 + 1e-9), inputs(model)
    assert torch.linalg.vector_norm(net(x[:, 0]) - model(x[:, 0])[0], dim=-1).max() <= net.bound
    packed = pack_sequence([x[:5, 0], x[:12, 1], x[:1, 2]], enforce_sorted=False)
    found, expected = net(packed), model(packed)[0]
    if kind == "each":
        found, expected = pad_packed_sequence(found)[0], pad_packed_sequence(expected)[0]
    assert torch.linalg.vector_norm(found - expected, dim=-1).max() <= net.bound


def test_the_bound_of_a_model_goes_through_its_readout() -> None:
    """A readout of norm 100 multiplies the states' error by 100, and constant inputs come close to it."""
    rnn = sr.RNN(1, 1, nonlinearity="identity", bias=False, dtype=torch.float64)
    with torch.no_grad():
        rnn.weight_hh_l0.fill_(0.75), rnn.weight_ih_l0.fill_(10.0)
    model = sr.SequenceModel(rnn, 1, readout="each", bias=False)
    with torch.no_grad():
        model.readout.weight.fill_(100.0)
    net, x = sr.to_feedforward(model, eps=1e-3, input_bound=1.0), torch.ones(300, 1, 1, dtype=torch.float64)
    error = float((net(x) - model(x)[0]).detach().abs().max())
    assert net.window > sr.to_feedforward(rnn, eps=1e-3, input_bound=1.0).window
    assert net.report.readout_gain >= 100
    assert 0.999 * net.bound <= error <= net.bound <= 1e-3


def test_a_model_with_an_embedding_knows_its_own_bound() -> None:
    model = build("rnn", "tokens each")
    net = sr.to_feedforward(model, eps=1e-3)
    assert 1.0 <= net.report.input_bound <= 1.0 + 1e-9
    with pytest.raises(TypeError, match="`input_bound` must be a number"):
        sr.to_feedforward(build("rnn", "each"), eps=1e-3)


def test_changed_weights_are_noticed() -> None:
    model = build("rnn", "each")
    net, x = sr.to_feedforward(model, eps=1e-3, input_bound=1.0 + 1e-9), inputs(model)
    before = net.bound
    model.readout.weight.data.mul_(0.5)
    assert net.bound < before
    model.readout.weight.data.mul_(1000)
    with pytest.raises(ConversionError, match="weights have changed"):
        net(x)


@pytest.mark.parametrize("name", ["dropout_embedding", "dropout_state", "dropout_logits"])
def test_random_outputs_have_no_feedforward_equivalent(name: str) -> None:
    model = sr.SequenceModel(relu(), N, vocab_size=VOCABULARY, **{name: 0.5})
    with pytest.raises(ConversionError, match=f"{name}=0.5"):
        sr.to_feedforward(model.train(), eps=1e-3)
    net = sr.to_feedforward(model.eval(), eps=1e-3)
    model.train()
    with pytest.raises(ArgumentError, match=f"{name}=0.5"):
        net(inputs(model))


@pytest.mark.parametrize("form", ["unitary", "parallel"])
def test_a_converted_model_shares_embedding_and_readout_and_reports(form: str) -> None:
    model = build("rnn", "tokens last")
    made = CONVERSIONS[form](model)
    assert made.readout is model.readout
    assert made.embedding is model.embedding
    assert made.rnn is not model.rnn
    assert made.report is made.rnn.report
    assert not hasattr(model, "report")
    assert isinstance(model.rnn, sr.RNN)  # the original is as it was


@pytest.mark.parametrize("form", ["torch", "unitary", "parallel"])
def test_a_truncated_model_converts_too(form: str) -> None:
    model = Truncated(build("rnn", "last"), context=5, reads="each").eval()
    made, x = CONVERSIONS[form](model), inputs(model.model)
    assert isinstance(made, Truncated)
    assert torch.linalg.vector_norm(made(x)[0] - model(x)[0], dim=-1).max() <= allowed(form, model.model, made)


class Own(nn.Module):
    """A user's module with layers of ours in lists and twice."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([sr.GRU(D, D, transition="exp"), sr.RNN(D, D, transition="spectral")])
        self.cell, self.head = sr.LSTMCell(D, D), nn.Sequential(sr.Linear(D, D), nn.Tanh(), nn.Linear(D, 2))
        self.again = self.head[0]

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = block(x)[0]
        h, _ = self.cell(x[-1])
        found: Tensor = self.head(self.again(h))
        return found


WHOLE: dict[str, Callable[[], nn.Module]] = {
    "mlp": lambda: sr.MLP(D, H, N, 2, weight="spectral", activation="modrelu"),
    "resnet": lambda: sr.ResNet(D, H, N, 2, weight="ornn"),
    "own": Own,
    "tied": lambda: sr.SequenceModel(sr.GRU(H, H), VOCABULARY, vocab_size=VOCABULARY, tied=True),
    "both ways": lambda: sr.SequenceModel(sr.GRU(D, H, 2, bidirectional=True), N, readout="each"),
}


@pytest.mark.parametrize("name", WHOLE)
def test_any_module_becomes_one_of_torchs_layers(name: str) -> None:
    torch.manual_seed(0)
    module = WHOLE[name]().double().eval()
    kept = copy.deepcopy(module.state_dict())
    made = sr.to_torch(module)
    assert not [one for one in made.modules() if isinstance(one, tuple(PAIRS.values()))]
    x = torch.randint(VOCABULARY, (T, B)) if name == "tied" else torch.randn(T, B, D, dtype=torch.float64)
    found, expected = (logits(one, x).detach() for one in (made, module))
    assert torch.linalg.vector_norm(found - expected) <= 16 * T * H * torch.finfo(torch.float64).eps * expected.norm()
    assert all(torch.equal(tensor, kept[key]) for key, tensor in module.state_dict().items())
    assert not {id(p) for p in made.parameters()} & {id(p) for p in module.parameters()}


def test_parameters_and_layers_that_were_one_stay_one() -> None:
    tied: Any = sr.to_torch(WHOLE["tied"]())
    assert tied.embedding.weight is tied.readout.weight
    own: Any = sr.to_torch(Own())
    assert own.again is own.head[0]
    first, second = sr.Linear(3, 3, weight="free"), sr.Linear(3, 3, weight="free")
    second.weight = first.weight
    pair: Any = sr.to_torch(nn.Sequential(first, second))
    assert pair[0].weight is pair[1].weight


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: sr.SequenceModel(sr.RNN(D, H, nonlinearity="abs"), N), "`rnn` has abs"),
        (lambda: nn.ModuleDict({"a": nn.ModuleList([sr.GRU(D, H, reset_after=False)])}), r"`a\.0` has reset_after=False"),
        (lambda: sr.SequenceModel(sr.GRU(D, H, learn_initial_state=True), N), "`rnn` has one"),
        (lambda: nn.Sequential(sr.to_parallel(relu(), tol=1e-3)), "`0` must be one of .* but is Parallel"),
        (lambda: nn.Sequential(sr.constrain(nn.Linear(3, 3), "weight", "ornn")), "`0` has a 'weight' that `constrain` keeps"),
        (lambda: nn.Sequential(type("Mine", (sr.RNN,), {})(D, H)), "`0` must be one of .* but is Mine"),
        (lambda: nn.Linear(3, 3), "`layer` must be one of .* but is Linear, which holds none"),
    ],
)
def test_what_torch_cannot_express_is_refused_by_name(make: Callable[[], nn.Module], words: str) -> None:
    with pytest.raises(ConversionError, match=words):
        sr.to_torch(make())


@pytest.mark.parametrize("make", [nn.RNN, nn.GRU, nn.LSTM])
@pytest.mark.parametrize("readout", ["last", "each"])
@pytest.mark.parametrize("given", [False, True])
def test_a_model_of_torchs_layer_supports_lengths(make: Any, readout: str, given: bool) -> None:
    torch.manual_seed(0)
    model = sr.SequenceModel(make(D, H, 2, bidirectional=True, dtype=torch.float64), N, readout=readout)
    ours = sr.SequenceModel(sr.from_torch(model.rnn), N, readout=readout)
    ours.readout = model.readout
    x = torch.randn(T, B, D, dtype=torch.float64)
    state = torch.randn(4, B, H, dtype=torch.float64)
    hx = None if not given else (state, state.flip(0)) if make is nn.LSTM else state
    found, expected = (one(spoiled(x, model), hx, lengths=LENGTHS) for one in (model, ours))
    assert torch.allclose(found[0], expected[0], rtol=0, atol=unit_roundoff(model))
    for one, other in zip(*((s if isinstance(s, tuple) else (s,)) for s in (found[1], expected[1])), strict=True):
        assert torch.allclose(one, other, rtol=0, atol=unit_roundoff(model))
