"""One series over ranks, here threads: outputs, final state and gradient of the sequential run within the certificate."""

import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import steadyrnn as sr
from steadyrnn.certificates.layer_errors import layer_errors
from steadyrnn.errors import CertificateError, ConversionError
from steadyrnn.parallel.repair import Repair
from steadyrnn.parallel.verify import Proofs, end_errors
from tests.certificates.runs import exact
from tests.parallel.layers import GATED, gated_of, rnn_of, states_of, unit_inputs
from tests.parallel.series import LOSSES, Found, distances, every_step, parallel, run_ranks, sequential
from tests.parallel.threads import ThreadRanks, run_threads

SMOOTH = ("tanh", "identity", "sigmoid")
KINKED = ("relu", "leaky_relu", "abs")


def check(layer: nn.Module, x: Tensor, sizes: Sequence[int], tol: float, loss: str = "every", **options: Any) -> list[Found]:
    """Check everything that is promised, and return what was found."""
    hx = options.pop("hx", None)
    found = run_ranks(layer, x, sizes, tol, LOSSES[loss], hx, **options)
    truth = sequential(layer, x, sizes, LOSSES[loss], hx)
    error, wrong = distances(found, truth)
    first = found[0].report
    assert first.truncation <= tol
    assert error <= first.truncation + first.rounding
    for one in found:
        assert (one.report.truncation, one.report.rounding) == (first.truncation, first.rounding)
        assert one.report.verified == first.verified
        assert all(torch.equal(a, b) for a, b in zip(one.state, found[0].state, strict=True))
    if first.verified is not None:
        sure, slack = exact(layer, x, hx)
        computed = torch.cat([one.output for one in found])
        assert bool(((computed.double() - sure).norm(dim=-1) <= first.verified + slack).all())
    if getattr(layer, "nonlinearity", None) in SMOOTH and layer.num_layers == 1:
        bound = first.gradient
        assert all(one.report.gradient == bound for one in found)
        assert wrong <= bound + 1e-12 * float(torch.cat([g.flatten() for g in truth.gradient]).norm())
        assert math.isfinite(bound)
    return found


@pytest.mark.parametrize("name", SMOOTH + KINKED)
@pytest.mark.parametrize("loss", LOSSES)
def test_four_ranks_equal_the_sequential_run(name: str, loss: str) -> None:
    layer = rnn_of(3.2 if name == "sigmoid" else 0.8, name)
    found = check(layer, unit_inputs(900, 2, 5), [300, 170, 30, 400], 1e-7, loss, chunk=40)
    assert found[0].report.windows > 1
    assert all(0 < one.report.layers[0].repeated < 300 for one in found[1:])


@pytest.mark.parametrize("kind", GATED)
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("sizes", [(300, 200, 0, 250), (7, 3, 20, 1), (0, 40, 0, 300)])
def test_gated_layers_and_stacks_equal_the_sequential_run(kind: str, layers: int, sizes: Sequence[int]) -> None:
    layer = gated_of(kind, num_layers=layers)
    check(layer, unit_inputs(sum(sizes), 2, 5), sizes, 1e-8, chunk=40, input_bound=1.0, verify=True)


@pytest.mark.parametrize("name", ["tanh", "relu"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_stack_from_a_state_given_to_rank_0(name: str, dtype: torch.dtype) -> None:
    layer = rnn_of(0.8, name, num_layers=2, dtype=dtype)
    hx = 3 * torch.randn(2, 2, 12, dtype=dtype)
    check(layer, unit_inputs(500, 2, 5, dtype=dtype), [20, 200, 180, 100], 1e-4, hx=hx, chunk=40, verify=True)


@given(data=st.data())
def test_any_parts_of_any_contraction_are_within_the_certificate(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(0, 60), min_size=2, max_size=6), "steps")
    rate = data.draw(st.sampled_from([0.0, 0.5, 0.9, 0.99, 0.9999]), "rate")
    name = data.draw(st.sampled_from(SMOOTH + KINKED), "activation")
    tol, chunk = data.draw(st.sampled_from([1e-2, 1e-6, 1e-12])), data.draw(st.sampled_from([None, 1, 5, 20]))
    torch.manual_seed(data.draw(st.integers(0, 99)))
    layer = rnn_of(4 * rate if name == "sigmoid" else rate, name, size=4)
    if data.draw(st.booleans(), "nothing decays faster than proven"):
        with torch.no_grad():
            layer.weight_hh_l0.copy_((4 if name == "sigmoid" else 1) * rate * (1 - 1e-9) * torch.eye(4))
            layer.weight_ih_l0.abs_()
    rows = data.draw(st.sampled_from([0, 1, 3]))
    x = unit_inputs(sum(sizes), rows, 5).abs()
    hx = torch.randn(1, rows, 4, dtype=torch.float64) if data.draw(st.booleans()) else None
    check(layer, x, sizes, tol, data.draw(st.sampled_from(["every", "first"])), hx=hx, chunk=chunk, verify=True)


def test_the_bound_is_met_where_nothing_decays_faster_than_proven() -> None:
    """W = lambda I, and parts of which the second and the third are much shorter than the memory."""
    layer = slow_line()
    x, sizes = torch.ones(300, 1, 5, dtype=torch.float64), [100, 10, 10, 180]
    found = check(layer, x, sizes, 2e-1)
    output = torch.cat([one.output for one in found])
    with torch.no_grad():
        error = float((output - layer(x)[0]).norm(dim=-1).max())
    assert 0 < error <= found[0].report.truncation <= 3 * error


def slow_line() -> sr.RNN:
    """Return a linear layer in which nothing decays faster than proven, for inputs of one sign."""
    layer = rnn_of(0.9, "identity", bias=False)
    with torch.no_grad():
        layer.weight_hh_l0.copy_(0.9 * torch.eye(12))
        layer.weight_ih_l0.abs_()
    return layer


def test_an_output_behind_an_exchange_sees_no_more_than_the_state_that_was_sent() -> None:
    """The first output of rank 2, whose state came from a part of five steps that had started from zero."""
    layer, x, sizes = slow_line(), torch.ones(150, 1, 5, dtype=torch.float64), [80, 5, 65]

    def first(rank: int, output: Tensor, state: Any) -> Tensor:
        return (output[0] if rank == 2 else 0 * output).sum()

    found = run_ranks(layer, x, sizes, 300.0, first)
    _, wrong = distances(found, sequential(layer, x, sizes, first))
    assert [one.report.layers[0].exchanges for one in found] == [0, 1, 1]
    assert 1.0 < wrong <= found[0].report.gradient


def test_the_gradient_bound_knows_of_large_states_on_another_rank() -> None:
    """Small inputs, behind a part with large ones, of which the gradient of the outputs lacks something."""
    layer, sizes = slow_line(), [80, 65]
    x = torch.cat([100 * torch.ones(80, 1, 5), 1e-3 * torch.ones(65, 1, 5)]).double()

    def late(rank: int, output: Tensor, state: Any) -> Tensor:
        return (output[30:] if rank == 1 else 0 * output).sum()

    found = run_ranks(layer, x, sizes, 1e4, late)
    _, wrong = distances(found, sequential(layer, x, sizes, late))
    assert found[1].report.layers[0].repeated < 30
    assert 1.0 < wrong <= found[0].report.gradient


def test_a_jump_behind_the_first_window_counts_what_arose_before_it() -> None:
    run = Repair.__new__(Repair)
    run.steps, run.own, run.jump, run.result = 100, 1.0, 2.0, SimpleNamespace(windows=SimpleNamespace(windows=(5, 20, 5)))
    found = []
    for run.repeated in (25, 26, 100):
        found.append(run.part(0.0).jump)
    assert found == [2.0, pytest.approx(3.0), 2.0]


def test_every_output_is_within_its_own_verified_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not only the largest: a layer above starts from each of them."""
    layer, sizes = slow_line(), [60, 20, 25, 95]
    x, known, bounds = torch.ones(200, 1, 5, dtype=torch.float64), Proofs.errors, {}

    def errors(self: Proofs, *given: Any) -> tuple[Tensor, float]:
        found = known(self, *given)
        bounds[given[-1].ranks.rank] = found[0]
        return found

    monkeypatch.setattr(Proofs, "errors", errors)
    found = run_ranks(layer, x, sizes, 300.0, every_step, verify=True)
    with torch.no_grad():
        truth = layer(x)[0].split(sizes)
    gaps = [(one.output - part).norm(dim=-1) for one, part in zip(found, truth, strict=True)]
    assert all(bool((gap <= bounds[rank] + 1e-12).all()) for rank, gap in enumerate(gaps))
    assert float(gaps[2][0]) > 1e-2  # which the part before has caused
    assert float(bounds[2][0]) <= 1.01 * float(gaps[2][0])


def test_a_cell_state_that_differs_from_what_the_outputs_say_is_an_error_of_the_next_part() -> None:
    layer = gated_of("LSTM")
    fast = sr.to_parallel(layer, 1e-9, input_bound=1.0, verify=True)
    certificate = fast._proven.certificates[0]
    proof, state = fast._proofs.proof(certificate), tuple(torch.zeros(2, 8, dtype=torch.float64) for _ in range(2))
    run = layer._recurrence(unit_inputs(50, 2, 5), state, "_l0", None, False, False)
    with torch.no_grad():
        output, (h, c) = layer(unit_inputs(50, 2, 5))
        found = layer_errors(proof, run, output)
        near, far = (end_errors(proof, found, (h[0], c[0] + off)) for off in (0.0, 0.25))
    added = float(proof.tier.contraction.norm(torch.cat([torch.full((8,), 0.25), torch.zeros(8)]).double()[None]))
    for a, b in zip(near, far, strict=True):
        assert a < 1e-12
        assert added * (1 - 1e-9) <= b <= a + added * (1 + 1e-9)


def test_parts_far_below_the_memory_are_swept_until_they_are_exact() -> None:
    layer = rnn_of(0.9999, "identity", bias=False)
    with torch.no_grad():
        layer.weight_hh_l0.copy_(0.9999 * torch.eye(12))
    found = check(layer, unit_inputs(48, 2, 5), [12] * 4, 1e-12)
    assert [one.report.layers[0].exchanges for one in found] == [0, 1, 2, 3]
    assert found[0].report.truncation == 0


def test_gradient_tol_is_kept_over_ranks() -> None:
    layer = rnn_of(0.8)

    def halves(rank: int, output: Tensor, state: Any) -> Tensor:
        return output.square().sum() / 2  # its cotangents are the outputs

    sizes, x = [300, 20, 40, 240], unit_inputs(600, 1, 5)
    loose = run_ranks(layer, x, sizes, 1e-3, halves, chunk=60)
    found = run_ranks(layer, x, sizes, 1e-3, halves, chunk=60, gradient_tol=1e-6)
    norms = sum(float(one.output.norm(dim=-1).sum()) for one in found)
    assert found[0].report.gradient <= 1e-6 * norms < loose[0].report.gradient
    _, wrong = distances(found, sequential(layer, x, sizes, halves))
    assert wrong <= found[0].report.gradient + 1e-12 * norms


@pytest.mark.parametrize("kind", ["tanh", "relu", *GATED])
def test_gradients_by_inputs_and_weights_are_the_sequential_ones(kind: str) -> None:
    """Of a rank's inputs on that rank; of weights in parts that add up."""
    layer = gated_of(kind, num_layers=2) if kind in GATED else rnn_of(0.5, kind, num_layers=2)
    sizes, x = [120, 70, 0, 110], unit_inputs(300, 2, 5)

    def work(ranks: ThreadRanks) -> tuple[Tensor, list[Tensor]]:
        fast = parallel(layer, 1e-13, ranks, chunk=40, input_bound=1.0)
        part = x.split(sizes)[ranks.rank].clone().requires_grad_()
        output, state = fast(part)
        loss = output.square().sum() + sum(s.sum() for s in states_of(state)) / 4  # which every rank has
        by_input, *by_weight = torch.autograd.grad(loss, [part, *fast.layer.parameters()])
        return by_input, by_weight

    found = run_threads(4, work)
    whole = x.clone().requires_grad_()
    output, state = layer(whole)
    loss = output.square().sum() + sum(s.sum() for s in states_of(state))
    truth, *weights = torch.autograd.grad(loss, [whole, *layer.parameters()])
    torch.testing.assert_close(torch.cat([one[0] for one in found]), truth, rtol=1e-8, atol=1e-9)
    for place, weight in enumerate(weights):
        torch.testing.assert_close(sum(one[1][place] for one in found), weight, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("kind", ["tanh", "LSTM"])
@pytest.mark.parametrize("sizes", [(30, 40, 0, 50), (0, 20, 30, 0)])
@pytest.mark.parametrize("learned", [False, True])
def test_the_initial_state_gets_its_gradient_on_rank_0(kind: str, sizes: Sequence[int], learned: bool) -> None:
    """Also where rank 0 has no steps, and only passes it on."""
    layer = gated_of(kind, learn_initial_state=learned) if kind in GATED else rnn_of(0.9, kind, learn_initial_state=learned)
    x, shape = unit_inputs(sum(sizes), 2, 5), (1, 2, layer.hidden_size)
    states = [0.2 * torch.randn(shape, dtype=torch.float64) for _ in range(1 + (kind == "LSTM"))]
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            parameter.copy_(states[0][0, 0] if "initial" in name else parameter)

    def gradient(run: nn.Module, parts: Sequence[Tensor]) -> list[Tensor]:
        given = [] if learned else [s.clone().requires_grad_() for s in states]
        output, state = run(torch.cat(list(parts)), None if learned else tuple(given) if kind == "LSTM" else given[0])
        sum(every_step(0, part, state) for part in output.split([len(part) for part in parts])).backward()
        wanted = given or [p for n, p in run.named_parameters() if "initial" in n]
        return [torch.zeros(shape, dtype=torch.float64) if p.grad is None else p.grad for p in wanted]

    def work(ranks: ThreadRanks) -> list[Tensor]:
        return gradient(parallel(layer, 1e-13, ranks, input_bound=1.0), [x.split(list(sizes))[ranks.rank]])

    found, truths = run_threads(4, work), gradient(layer, x.split(list(sizes)))
    for place, truth in enumerate(truths):
        torch.testing.assert_close(found[0][place], truth, rtol=1e-6, atol=1e-9)
        assert float(truth.norm()) > 1e-6
        assert not any(bool(one[place].any()) for one in found[1:])


def test_bytes_are_counted() -> None:
    layer = gated_of("LSTM", num_layers=2)
    found = check(layer, unit_inputs(900, 3, 5), [300, 300, 0, 300], 1e-6, input_bound=1.0, chunk=40)
    state, final = 2 * 3 * 8 * 8, 2 * 2 * 3 * 8 * 8  # h and c of a layer and of both, in float64
    told = [one.report.exchanged for one in found]
    assert [one.states for one in told] == [2 * state, 2 * state, 0, final]
    assert [one.adjoints for one in told] == [final, 2 * state + final, final, 2 * state + final]
    assert len({one.scalars for one in told}) == 1
    assert 0 < told[0].scalars < 2000
    assert found[0].report.to_dict()["exchanged"]["states"] == 2 * state
    total = told[0].states + told[0].adjoints + told[0].scalars
    assert str(found[0].report).endswith(f"Its part of the series: 0 steps were run again, {total} bytes sent.")


@pytest.mark.parametrize("kind", ["tanh", "LSTM"])
@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("verify", [False, True])
def test_the_bytes_counted_are_those_that_are_sent(kind: str, given: bool, verify: bool) -> None:
    """All of them: an initial state that is shared, checks of it, what a verification needs, and ``backward``."""
    layer, sizes = gated_of(kind) if kind in GATED else rnn_of(0.8), [120, 4, 0, 90]
    state = torch.full((1, 2, layer.hidden_size), 0.1, dtype=torch.float64)
    hx = ((state, state) if kind == "LSTM" else state) if given else None

    def work(ranks: ThreadRanks) -> None:
        fast = parallel(layer, 1e-6, ranks, chunk=40, input_bound=1.0, verify=verify)
        output, _ = fast(unit_inputs(sum(sizes), 2, 5).split(sizes)[ranks.rank], hx if ranks.rank in (0, 2) else None)
        output.sum().backward()
        told = fast.report.exchanged
        assert told is not None
        assert (told.states + told.adjoints, told.scalars) == (ranks.tensors, ranks.scalars)

    run_threads(4, work)


def test_without_gradients_nothing_is_recorded() -> None:
    layer, x = rnn_of(0.8), unit_inputs(400, 2, 5)

    def work(ranks: ThreadRanks) -> tuple[Tensor, bool]:
        with torch.no_grad():
            output, state = parallel(layer, 1e-6, ranks, chunk=40)(x.split(100)[ranks.rank])
        return output, state.requires_grad or output.requires_grad

    found = run_threads(4, work)
    with torch.no_grad():
        assert float((torch.cat([one[0] for one in found]) - layer(x)[0]).norm(dim=-1).max()) <= 1e-6
    assert not any(one[1] for one in found)


@pytest.mark.parametrize("batch_first", [False, True])
def test_unbatched_and_batch_first_parts_keep_their_form(batch_first: bool) -> None:
    layer = rnn_of(0.8, batch_first=batch_first)
    x = unit_inputs(200, 5)

    def work(ranks: ThreadRanks) -> Tensor:
        part = x.split(100)[ranks.rank]
        fast = parallel(layer, 1e-6, ranks)
        with torch.no_grad():
            alone, both = fast(part), fast(part.unsqueeze(0 if batch_first else 1))
        assert alone[1].shape == (1, 12)
        assert both[0].shape == ((1, 100, 12) if batch_first else (100, 1, 12))
        return alone[0]

    with torch.no_grad():
        assert float((torch.cat(run_threads(2, work)) - layer(x)[0]).norm(dim=-1).max()) <= 1e-6


def test_dropout_is_drawn_on_every_rank_and_a_call_can_be_repeated() -> None:
    layer = rnn_of(0.5, num_layers=2, dropout=0.5)

    def work(ranks: ThreadRanks) -> float:
        fast = parallel(layer, 1e-6, ranks)
        for _ in range(2):
            output, _ = fast(unit_inputs(50, 2, 5))
            output.sum().backward(retain_graph=True)
            output.sum().backward()
        return fast.report.truncation

    assert max(run_threads(3, work)) <= 1e-6


def test_changed_weights_are_certified_again_on_every_rank() -> None:
    layer, x = rnn_of(0.8), unit_inputs(300, 2, 5)

    def work(ranks: ThreadRanks) -> tuple[float, float]:
        fast = parallel(layer, 1e-6, ranks, chunk=40)
        with torch.no_grad():
            fast(x.split(150)[ranks.rank])
            before = fast.report.rate
            fast.layer.weight_hh_l0.data.mul_(0.5)
            fast(x.split(150)[ranks.rank])
        return before, fast.report.rate

    assert all(after == pytest.approx(before / 2, rel=1e-6) for before, after in run_threads(2, work))


@pytest.mark.parametrize("kind", ["relu", "GRU", "stack"])
def test_where_no_theorem_bounds_the_gradient_over_ranks_it_is_not_given(kind: str) -> None:
    layer = gated_of("GRU") if kind == "GRU" else rnn_of(0.8, "relu", num_layers=1 + (kind == "stack"))
    found = check(layer, unit_inputs(200, 2, 5), [100, 100], 1e-6, input_bound=1.0)
    with pytest.raises(CertificateError, match="no bound on the error of the gradient"):
        _ = found[0].report.gradient
    with pytest.raises(ConversionError, match="`gradient_tol` cannot be kept"):
        run_threads(2, lambda ranks: parallel(layer, 1e-6, ranks, input_bound=1.0, gradient_tol=1e-3))


def test_a_model_with_a_readout_runs_over_ranks() -> None:
    torch.manual_seed(0)
    models = {reads: sr.SequenceModel(rnn_of(0.8), 3, readout=reads).double() for reads in ("each", "last")}
    x = unit_inputs(400, 2, 5)
    for reads, model in models.items():

        def work(ranks: ThreadRanks, model: sr.SequenceModel = model) -> Tensor:
            twin = sr.to_parallel(model, 1e-9)
            twin.rnn = parallel(model.rnn, 1e-9, ranks)
            with torch.no_grad():
                found: Tensor = twin(x.split(100)[ranks.rank])[0]
            return found

        found = run_threads(4, work)
        with torch.no_grad():
            truth = model(x)[0]
        computed = torch.cat(found) if reads == "each" else found[2]
        torch.testing.assert_close(computed, truth, rtol=1e-7, atol=1e-7)
