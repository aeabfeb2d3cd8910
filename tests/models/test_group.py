"""Groups of sequence models: together they give what each gives alone, and come apart as they went in."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from steadyrnn.activations import LeakyReLU
from steadyrnn.constraints import HouseholderOrthogonal, PolarOrthogonal, Spectral, SpectralBall
from steadyrnn.errors import ArgumentError, ArgumentTypeError, DtypeError, ShapeError
from steadyrnn.layers.gru import GRU
from steadyrnn.layers.lstm import LSTM
from steadyrnn.layers.rnn import RNN
from steadyrnn.models.group import group, ungroup
from steadyrnn.models.mlp import MLP
from steadyrnn.models.sequence import SequenceModel
from tests.support.errors import assert_equal_up_to_rounding

STEPS, ROWS, MEMBERS = 6, 3, 4

LAYERS: dict[str, Callable[..., Any]] = {
    "rnn": lambda **own: RNN(2, 5, **own),
    "rnn of two layers": lambda **own: RNN(2, 5, num_layers=2, nonlinearity=LeakyReLU(0.1), **own),
    "rnn, one bias, learned state": lambda **own: RNN(2, 5, bias="single", learn_initial_state=True, **own),
    "gru": lambda **own: GRU(2, 5, **own),
    "gru, reset before": lambda **own: GRU(2, 5, reset_after=False, bias=False, **own),
    "lstm": lambda **own: LSTM(2, 5, learn_initial_state=True, **own),
}
TRANSITIONS = ["free", "polar", "ball", "exp", "spectral", "ornn", "exp-lie"]


def make_models(layer: str = "rnn", transition: Any = "free", count: int = MEMBERS, **own: Any) -> list[SequenceModel]:
    torch.manual_seed(0)
    return [SequenceModel(LAYERS[layer](transition=transition, dtype=torch.float64), 3, **own) for _ in range(count)]


def inputs(count: int = MEMBERS) -> torch.Tensor:
    return torch.randn(STEPS, count, ROWS, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


@pytest.mark.parametrize("reads", ["last", "each"])
@pytest.mark.parametrize("transition", TRANSITIONS)
@pytest.mark.parametrize("layer", LAYERS)
def test_outputs_states_and_gradients_are_each_models_own(layer: str, transition: str, reads: str) -> None:
    models, x = make_models(layer, transition, readout=reads, skip=True), inputs()
    many = group(models)
    logits, state = many(x)
    logits.sin().sum().backward()
    for place, model in enumerate(models):
        own, own_state = model(x[:, place])
        own.sin().sum().backward()
        assert_equal_up_to_rounding(logits.select(-3, place), own, STEPS)
        for ours, theirs in zip(_tuple(state), _tuple(own_state), strict=True):
            assert_equal_up_to_rounding(ours[:, place], theirs, STEPS)
        for name, parameter in model.named_parameters():
            assert parameter.grad is not None
            assert_equal_up_to_rounding(many.get_parameter(name).grad[place], parameter.grad, STEPS**2)  # type: ignore[index]


def _tuple(state: Any) -> tuple[torch.Tensor, ...]:
    return state if isinstance(state, tuple) else (state,)


@pytest.mark.parametrize("transition", ["free", "polar", "exp-lie", Spectral(sigma="penalty")])
@pytest.mark.parametrize("layer", LAYERS)
def test_a_group_comes_apart_as_it_went_in(layer: str, transition: Any) -> None:
    models = make_models(layer, transition)
    for before, after in zip(models, ungroup(group(models)), strict=True):
        assert list(before.state_dict()) == list(after.state_dict())
        assert all(torch.equal(a, b) for a, b in zip(before.state_dict().values(), after.state_dict().values(), strict=True))
        assert all(a.requires_grad == b.requires_grad for a, b in zip(before.parameters(), after.parameters(), strict=True))
        after.load_state_dict(before.state_dict())


def test_group_and_models_share_no_memory() -> None:
    models = make_models()
    many = group(models)
    apart = ungroup(many)
    with torch.no_grad():
        for parameter in many.parameters():
            parameter.zero_()
    assert all(bool(p.any()) for model in (*models, *apart) for p in model.parameters())
    assert not any(bool(p.any()) for model in ungroup(many) for p in model.parameters())


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda many: pickle.loads(pickle.dumps(many))])
def test_a_copy_is_tied_to_its_own_members(duplicate: Callable[[Any], Any]) -> None:
    many = group(make_models(transition="polar"))
    twin = duplicate(many)
    with torch.no_grad():
        twin.get_parameter("readout.bias").fill_(7.0)
    assert all(bool((model.readout.bias == 7).all()) for model in ungroup(twin))
    assert not any(bool((model.readout.bias == 7).any()) for model in ungroup(many))


def test_a_cast_reaches_the_members() -> None:
    many = group(make_models()).float()
    with torch.no_grad():
        many.get_parameter("readout.bias").fill_(7.0)
    for model in ungroup(many):
        assert model.rnn.weight_ih_l0.dtype == torch.float32
        assert bool((model.readout.bias == 7).all())


def test_projections_put_each_member_into_its_own_set() -> None:
    many = group(make_models(transition=SpectralBall(bound=0.5)))
    with torch.no_grad():
        many.get_parameter("rnn.transition_l0.h.raw0").mul_(10.0)
    assert many.after_optimizer_step() == {}
    norms = [float(torch.linalg.matrix_norm(model.rnn.weight_hh_l0.detach(), 2)) for model in ungroup(many)]
    assert max(norms) <= 0.5
    assert min(norms) > 0.49


def test_a_member_that_is_not_finite_is_named_and_the_others_are_projected() -> None:
    many = group(make_models(transition=SpectralBall(bound=0.5)))
    with torch.no_grad():
        many.get_parameter("rnn.transition_l0.h.raw0").mul_(10.0)[2, 0, 0] = torch.nan
    assert list(many.after_optimizer_step()) == [2]
    assert float(torch.linalg.matrix_norm(ungroup(many)[3].rnn.weight_hh_l0.detach(), 2)) <= 0.5


def test_resting_members_keep_their_weights_and_the_others_run_on() -> None:
    models, x = make_models(), inputs()
    many = group(models)
    whole = many(x)[0]
    assert many.rest([1]).tolist() == [0, 2, 3]
    assert many.running == (0, 2, 3)
    assert torch.equal(many(x[:, [0, 2, 3]])[0], whole[[0, 2, 3]])
    with torch.no_grad():
        many.get_parameter("readout.bias").zero_()
    assert torch.equal(ungroup(many)[1].readout.bias, models[1].readout.bias)
    many.wake()
    assert many.running == (0, 1, 2, 3)
    assert torch.equal(many(x)[0][1], whole[1])
    with pytest.raises(ArgumentError, match=r"`places` must name running members, of \[0, 1, 2, 3\], but names \[9\]"):
        many.rest([9])


def test_the_penalty_of_each_member_is_its_own() -> None:
    models = make_models(transition=Spectral(sigma="penalty"))
    many = group(models)
    with torch.no_grad():
        many.get_parameter("rnn.transition_l0.h.raw0").add_(0.1)
    penalties = many.penalties()
    assert penalties is not None
    assert penalties.shape == (MEMBERS,)
    assert group(make_models()).penalties() is None


REFUSED: dict[str, tuple[Callable[[], SequenceModel], str]] = {
    "both directions": (lambda: SequenceModel(RNN(2, 3, bidirectional=True), 1), "`bidirectional` must be False"),
    "batch first": (lambda: SequenceModel(RNN(2, 3, batch_first=True), 1), "`batch_first` must be False"),
    "recomputed": (lambda: SequenceModel(RNN(2, 3, recompute=True), 1), "`recompute` must be False"),
    "dropout inside": (lambda: SequenceModel(RNN(2, 3, 2, dropout=0.1), 1), "`dropout` must be 0"),
    "dropout": (lambda: SequenceModel(RNN(2, 3), 1, dropout_state=0.1), "`dropout_state` must be 0"),
    "embedding": (lambda: SequenceModel(RNN(2, 3), 1, vocab_size=4), "no embedding"),
    "modrelu": (lambda: SequenceModel(RNN(2, 4, nonlinearity="modrelu"), 1), "modrelu does not work entry by entry"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_models_that_no_group_can_run_are_refused_with_the_reason(case: str) -> None:
    make, reason = REFUSED[case]
    with pytest.raises(ArgumentError, match=reason):
        group([make(), make()])


DIFFERENT: dict[str, tuple[Callable[[], SequenceModel], str]] = {
    "size": (lambda: SequenceModel(RNN(2, 4), 1), "RNN"),
    "outputs": (lambda: SequenceModel(RNN(2, 3), 2), "readout"),
    "dtype": (lambda: SequenceModel(RNN(2, 3, dtype=torch.float64), 1), "float64"),
    "device": (lambda: SequenceModel(RNN(2, 3, device="meta"), 1), "meta"),
    "cell": (lambda: SequenceModel(GRU(2, 3), 1), "GRU"),
    "activation": (lambda: SequenceModel(RNN(2, 3, nonlinearity="relu"), 1), "ReLU"),
    "constraint": (lambda: SequenceModel(RNN(2, 3, transition="ball"), 1), "weight_hh_l0"),
    "reading": (lambda: SequenceModel(RNN(2, 3), 1, readout="each"), "readout='each'"),
    "frozen": (lambda: SequenceModel(RNN(2, 3), 1).requires_grad_(False), "frozen"),
}


@pytest.mark.parametrize("case", DIFFERENT)
def test_models_of_different_forms_are_refused_by_what_differs(case: str) -> None:
    make, named = DIFFERENT[case]
    with pytest.raises(ArgumentError, match=f"must have one form, .*{named}"):
        group([SequenceModel(RNN(2, 3), 1), make()])


def test_the_argument_of_a_constraint_must_be_the_same() -> None:
    with pytest.raises(ArgumentError, match=r"bound=0\.5.*bound=0\.6"):
        group([SequenceModel(RNN(2, 3, transition=SpectralBall(bound)), 1) for bound in (0.5, 0.6)])


def test_what_is_no_list_of_models_is_refused() -> None:
    with pytest.raises(ArgumentError, match="at least one module, but is empty"):
        group([])
    with pytest.raises(ArgumentTypeError, match="must be a list of modules, but is of type SequenceModel"):
        group(SequenceModel(RNN(2, 3), 1))  # type: ignore[arg-type]
    with pytest.raises(ArgumentTypeError, match="number 0 is of type MLP"):
        group([MLP(2, 3, 1, 2)])  # type: ignore[list-item]
    with pytest.raises(ArgumentTypeError, match=r"one of torch, RNN.*from_torch"):
        group([SequenceModel(nn.RNN(2, 3), 1)])
    with pytest.raises(DtypeError, match="float32 or float64"):
        group([SequenceModel(RNN(2, 3, dtype=torch.bfloat16), 1)])


def test_inputs_that_do_not_fit_are_refused() -> None:
    many = group(make_models())
    with pytest.raises(ShapeError, match=r"must have shape \(T, 4, B, 2\).*but has \(6, 3, 3, 2\)"):
        many(inputs(3))
    with pytest.raises(DtypeError, match=r"must have dtype torch\.float64 on cpu"):
        many(inputs().float())
    with pytest.raises(ArgumentTypeError, match="must be a tensor"):
        many([1])


class Halved(HouseholderOrthogonal):
    """A map of a user's own."""

    def forward(self, *raw: torch.Tensor) -> torch.Tensor:
        return 0.5 * super().forward(*raw)


class Doubled(PolarOrthogonal):
    """A projection of a user's own."""

    def after_step(self, *raw: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (2 * super().after_step(*raw)[0],)


def test_a_constraint_with_a_map_of_its_own_is_evaluated_by_it() -> None:
    models, x = make_models(transition=Halved()), inputs()
    logits, _ = group(models)(x)
    for place, model in enumerate(models):
        assert_equal_up_to_rounding(logits[place], model(x[:, place])[0], STEPS)


def test_a_constraint_with_a_projection_of_its_own_is_put_back_by_it() -> None:
    many = group(make_models(transition=Doubled()))
    many.after_optimizer_step()
    for model in ungroup(many):
        assert torch.linalg.svdvals(model.rnn.transition_l0.h.raw0).sub(2).abs().max() < 1e-12


EDGES: dict[str, Any] = {
    "no reflectors": Spectral(0),
    "none on a side": Spectral((2, 0)),
    "all": Spectral(),
    "around 0": Spectral(2, center=0.0, radius=0.5),
    "clipped": Spectral(2, sigma="clip"),
    "none, orthogonal": HouseholderOrthogonal(0),
    "all, orthogonal": HouseholderOrthogonal(5),
}


@pytest.mark.parametrize("width", [1, 5])
@pytest.mark.parametrize("transition", EDGES)
def test_any_number_of_reflectors_can_be_grouped(transition: str, width: int) -> None:
    if width == 1 and transition in ("none on a side", "all, orthogonal", "around 0", "clipped"):
        pytest.skip("needs more units")
    torch.manual_seed(0)
    models = [SequenceModel(RNN(2, width, transition=EDGES[transition], dtype=torch.float64), 3) for _ in range(MEMBERS)]
    logits, _ = group(models)(inputs())
    for place, model in enumerate(models):
        assert_equal_up_to_rounding(logits[place], model(inputs()[:, place])[0], STEPS)


@pytest.mark.parametrize("transition", ["ornn", "spectral", "exp"])
def test_weights_stay_in_their_set_under_autocast(transition: str) -> None:
    torch.manual_seed(0)
    many = group([SequenceModel(RNN(2, 16, transition=transition), 3) for _ in range(2)])
    layers = [member.rnn for member in ungroup(many)]
    with torch.autocast("cpu", torch.bfloat16):
        assert many(inputs(2).float())[0].isfinite().all()
        names = [name.removeprefix("rnn.") for name, _ in many.rnn.named_parameters() if "raw" in name]
        weights = many.evaluate([layer.transition_l0.h.constraint for layer in layers], [f"rnn.{name}" for name in names])
    for layer, weight in zip(layers, weights, strict=True):
        assert weight.dtype == torch.float32
        assert layer.transition_l0.h.constraint.violation(weight) <= 16 * 16 * torch.finfo(torch.float32).eps
