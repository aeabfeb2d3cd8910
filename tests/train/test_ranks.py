"""Joining the processes of a distributed run, and what is refused; in one process, which may be a group of one."""

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from steadyrnn.errors import ArgumentError, DeviceError, RanksError
from steadyrnn.estimators.fitting import fit_new
from steadyrnn.jobs.comparison import compare_models
from steadyrnn.jobs.recipes import configure
from steadyrnn.jobs.train import train_network
from steadyrnn.jobs.train_seeds import train_seeds
from steadyrnn.models.group import group
from steadyrnn.tasks.base import Batch
from steadyrnn.train import ranks as module
from steadyrnn.train.device import choose_device, join_on
from steadyrnn.train.exchange import Exchange
from steadyrnn.train.grouped import train_group
from steadyrnn.train.model_call import rows_of_rank, state_of_rank
from steadyrnn.train.randomness import seed_of_rank
from steadyrnn.train.ranks import ALONE, Ranks, alone, current_ranks, join, leave, local_rank, refuse_ranks
from steadyrnn.train.same_weights import check_for_ranks, checksum
from steadyrnn.train.settings import ClipSettings, OptimizerSettings
from steadyrnn.train.shared_run import SharedRun
from steadyrnn.train.spread_state import check_state_rows
from steadyrnn.train.trainer import train
from tests.train.rank_group import free_port, rank_variables
from tests.train.rank_work import Choosy, double_task, exact, model_of
from tests.train.runs import addition, new_run, plain_model, same_bits, tiny

Patch = pytest.MonkeyPatch


def start_as(patch: Patch, rank: int, size: int, local_size: int | None = None) -> None:
    for name, value in rank_variables(rank, size, free_port()).items():
        patch.setenv(name, value)
    if local_size is not None:
        patch.setenv("LOCAL_WORLD_SIZE", str(local_size))


@pytest.fixture
def one(monkeypatch: Patch) -> Iterator[Ranks]:
    """A group of this process alone, as torchrun makes it."""
    start_as(monkeypatch, 0, 1)
    yield join()
    leave()
    assert not dist.is_initialized()


# Alone, and in a group of one


def test_without_torchrun_there_is_no_group() -> None:
    train(plain_model(), addition(), tiny(steps=2))
    assert join() is current_ranks() is ALONE
    assert not dist.is_initialized()


@pytest.mark.parametrize("name", ["free", "exp-lie", "factored", "penalty", "gru", "stable-lstm"])
def test_a_group_of_one_gives_what_no_group_gives(monkeypatch: Patch, name: str) -> None:
    """A constraint is gone back through apart from the rest, which may add in another order."""
    weights = []
    for grouped in (False, True):
        if grouped:
            start_as(monkeypatch, 0, 1)
        try:
            model = model_of(name)
            train(model, double_task(), exact(steps=4))
            weights.append([parameter.detach().clone() for parameter in model.parameters()])
        finally:
            leave()
    for a, b in zip(*weights, strict=True):
        assert same_bits(a, b)


def test_a_group_of_one_makes_a_run_like_any_other(one: Ranks, tmp_path: Path) -> None:
    sizes = {"model.width": 4, "task.length": 5, "train.steps": 2, "train.batch_size": 8, "train.device": "cpu"}
    done = train_network(configure("addition", "lstm", sizes), tmp_path)
    assert done.result.steps == 2
    assert (done.folder / "certificate.json").is_file()


def test_messages_of_a_group_come_back_exactly(one: Ranks) -> None:
    value = {"loss": float("nan"), "name": "x", "parts": [1, 2.5, None]}
    tensors = {"half": torch.ones(3, dtype=torch.bfloat16), "empty": torch.zeros(0, 2), "number": torch.tensor(7)}
    (found, back), (gathered, again) = one.share(value, tensors), one.gather(value, tensors)[0]
    assert str(found) == str(gathered) == str(value)
    assert all(torch.equal(tensors[name], other[name]) for other in (back, again) for name in tensors)
    assert one.add_values({"a": 0.1, "b": 2.0}) == {"a": 0.1, "b": 2.0}
    assert one.lead(lambda: 7) == 7


def test_what_is_done_apart_speaks_to_nobody(one: Ranks) -> None:
    with alone():
        assert join() is current_ranks() is ALONE
        assert local_rank() is None
    assert join() is one


def test_ranks_that_do_different_things_are_found_out(one: Ranks) -> None:
    other = module._wrap(99, None, {})
    with pytest.raises(RanksError, match="another rank at 99: they do not do the same"):
        one._open(module._to_tensor(other))


def test_a_lost_rank_is_said_in_a_sentence() -> None:
    def hang_up() -> None:
        raise RuntimeError("Connection closed by peer [127.0.0.1]:1\nat pair.cc")

    ranks = Ranks(2, 4, joined=True)
    with pytest.raises(RanksError, match=r"Rank 2 has lost another rank .*`--resume`. \(Connection closed by peer"):
        ranks._speak(hang_up)
    assert ranks.lost


# Devices


def test_each_rank_has_the_gpu_of_its_number(monkeypatch: Patch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    start_as(monkeypatch, 3, 4)
    assert choose_device("auto") == choose_device("cuda") == torch.device("cuda", 3)
    assert choose_device("cpu") == torch.device("cpu")
    with alone():
        assert choose_device("auto") == torch.device("cuda", 0)


def test_a_rank_without_a_gpu_and_a_gpu_for_all_are_refused(monkeypatch: Patch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    start_as(monkeypatch, 2, 3)
    with pytest.raises(DeviceError, match=r"Rank 2 needs the GPU number 2 .* torch sees 2 there\. Start at most 2"):
        choose_device("auto")
    with pytest.raises(ArgumentError, match="`device` must be auto, cpu or cuda for several ranks"):
        choose_device("cuda:1")


def test_a_rank_that_sees_one_gpu_takes_it(monkeypatch: Patch) -> None:
    """Slurm's --gpus-per-task=1 shows each task its own GPU alone, whatever its number on the machine."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    start_as(monkeypatch, 3, 4)
    assert choose_device("auto") == choose_device("cuda") == torch.device("cuda", 0)


@pytest.mark.parametrize(("names", "pair"), [("aa", "0 and 1"), ("abcb", "1 and 3"), ("abc", None)])
def test_ranks_on_the_same_gpu_are_refused_on_all_of_them(monkeypatch: Patch, names: str, pair: str | None) -> None:
    ranks = Ranks(0, len(names), joined=True)
    ranks._device = "set"  # so that no group of NCCL is made
    monkeypatch.setattr(dist, "is_nccl_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(uuid=names[0]))
    monkeypatch.setattr(Ranks, "agree", lambda self, work: work())
    monkeypatch.setattr(Ranks, "gather", lambda self, own: [([own[0], name], {}) for name in names])
    expected = nullcontext() if pair is None else pytest.raises(RanksError, match=f"ranks {pair} see the same one")
    with expected:
        ranks.compute_on(torch.device("cuda", 0))


def test_ranks_on_the_cpu_may_share_it(monkeypatch: Patch) -> None:
    ranks = Ranks(0, 3, joined=True)
    monkeypatch.setattr(Ranks, "agree", lambda self, work: work())
    monkeypatch.setattr(Ranks, "gather", lambda self, own: [(own, {})] * 3)
    ranks.compute_on(torch.device("cpu"))


def test_gpus_without_nccl_are_refused(one: Ranks, monkeypatch: Patch) -> None:
    monkeypatch.setattr(dist, "is_nccl_available", lambda: False)
    one.compute_on(torch.device("cpu"))
    with pytest.raises(DeviceError, match="Ranks on GPUs need NCCL, which this torch lacks"):
        one.compute_on(torch.device("cuda", 0))


def test_a_torch_without_gloo_is_refused(monkeypatch: Patch) -> None:
    start_as(monkeypatch, 0, 1)
    monkeypatch.setattr(dist, "is_gloo_available", lambda: False)
    with pytest.raises(DeviceError, match="This torch has no gloo"):
        join()


def test_one_device_is_joined_on_without_torchrun() -> None:
    assert join_on("cpu") == (ALONE, torch.device("cpu"))


# What cannot be combined


def test_several_networks_are_refused(monkeypatch: Patch, tmp_path: Path) -> None:
    start_as(monkeypatch, 1, 2)
    configuration = configure("addition", "gru", {"train.device": "cpu"})
    calls: list[Any] = [
        lambda: train_seeds(configuration, [0, 1], tmp_path),
        lambda: compare_models("addition", ["gru"], {}, out=tmp_path),
        lambda: train_group(group([plain_model()]), addition(), tiny()),
        lambda: fit_new(addition(), {}, None, None, "", 0),  # type: ignore[arg-type]
        lambda: refuse_ranks("This", "Do that."),
    ]
    for call in calls:
        with pytest.raises(ArgumentError, match="cannot be run by several ranks, but there are 2") as caught:
            call()
        assert caught.value.told  # type: ignore[attr-defined]  # rank 0 says it
    assert not [*tmp_path.iterdir()]


def test_a_sharded_or_wrapped_model_is_refused(one: Ranks) -> None:
    sharded: nn.Module = fully_shard(plain_model(), mesh=init_device_mesh("cpu", (1,)))
    with pytest.raises(ArgumentError, match=r"`rnn.weight_ih_l0` is sharded \(`fully_shard`\)"):
        train(sharded, addition(), tiny())
    wrapped = nn.parallel.DistributedDataParallel(plain_model())
    with pytest.raises(ArgumentError, match="`model` is a DistributedDataParallel"):
        train(wrapped, addition(), tiny())


@pytest.mark.parametrize("layer", [nn.BatchNorm1d(2), nn.SyncBatchNorm(2), nn.InstanceNorm1d(2, track_running_stats=True)])
def test_layers_that_compute_with_the_whole_batch_are_refused(layer: nn.Module) -> None:
    with pytest.raises(ArgumentError, match="which computes with all rows of a batch"):
        check_for_ranks(nn.Sequential(layer), tiny(), Ranks(0, 2, joined=True))
    check_for_ranks(nn.Sequential(layer), tiny(), ALONE)


def test_layers_that_do_not_are_not() -> None:
    check_for_ranks(nn.Sequential(nn.LayerNorm(2), nn.InstanceNorm1d(2)), tiny(), Ranks(0, 2, joined=True))


def test_a_batch_with_fewer_rows_than_ranks_is_refused() -> None:
    task = addition()
    with pytest.raises(ArgumentError, match="a row for each of the 4 ranks, but one has 3 rows"):
        rows_of_rank(task.train_batch(0, 3), 0, 4, task.interface)


@pytest.mark.parametrize("shape", [(5,), (5, 3), (1, 4, 3)])
def test_states_without_rows_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ArgumentError, match="Ranks carry states by rows"):
        check_state_rows(torch.zeros(shape), 5)


# Rows, seeds, weights


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_the_rows_of_all_ranks_are_the_batch(size: int) -> None:
    task = addition()
    batch = task.train_batch(0, 7)
    state = (torch.randn(2, 7, 3), torch.randn(1, 7, 3))
    parts = [rows_of_rank(batch, rank, size, task.interface) for rank in range(size)]
    assert torch.equal(torch.cat([part.input for part in parts], 1), batch.input)
    assert torch.equal(torch.cat([part.target for part in parts]), batch.target)
    for place in (0, 1):
        own = [state_of_rank(state, rank, size)[place] for rank in range(size)]
        assert torch.equal(torch.cat(own, 1), state[place])
        assert [tensor.shape[1] for tensor in own] == [part.input.shape[1] for part in parts]


def test_seeds_of_ranks_and_steps_are_all_different_and_that_of_rank_0_is_the_runs() -> None:
    seeds = [seed_of_rank(seed, rank, step) for seed in range(5) for rank in range(5) for step in (0, 7)]
    assert len({*seeds}) == len(seeds)
    assert all(0 <= seed < 2**64 for seed in seeds)
    assert seed_of_rank(3, 0) == 3


def test_any_bit_of_any_weight_changes_the_checksum() -> None:
    model = model_of("exp-lie")
    seen = {checksum(model)}
    with torch.no_grad():
        for tensor in model.state_dict().values():
            flat = tensor.view(-1)
            for place in {0, len(flat) - 1} if len(flat) else ():
                before = flat[place].clone()
                flat[place] = torch.nextafter(before, before + 1) if before.is_floating_point() else before + 1
                seen.add(checksum(model))
                flat[place] = before
    assert len(seen) > 2 * 5
    assert checksum(model) in seen


def test_exchanged_tensors_change_the_checksum() -> None:
    model = nn.Linear(2, 2, bias=False)
    before = checksum(model)
    with torch.no_grad():
        model.weight.copy_(model.weight.flip(0))
    assert checksum(model) != before


# Gradients


def test_gradients_of_mixed_dtypes_are_put_back_and_missing_ones_stay_missing(one: Ranks) -> None:
    tensors = [torch.zeros(3, 2, requires_grad=True), torch.zeros(5, dtype=torch.float64, requires_grad=True)]
    tensors += [torch.zeros(2, requires_grad=True), torch.zeros(0, requires_grad=True)]
    exchange = Exchange(one, torch.device("cpu"))
    for number in (1.0, 2.0):
        for tensor in (tensors[0], tensors[1], tensors[3]):
            tensor.grad = torch.full_like(tensor, number)
        tensors[2].grad = None if number == 2.0 else torch.ones(2)
        loss = exchange.add(tensors, torch.tensor(number))
        assert float(loss) == number
        assert all(bool((tensor.grad == number).all()) for tensor in tensors[:2])  # type: ignore[union-attr]
        assert (tensors[2].grad is None) is (number == 2.0)
    assert exchange.signal_to_end() is None


def test_a_signal_goes_round_with_the_gradients(one: Ranks) -> None:
    exchange = Exchange(one, torch.device("cpu"))
    weight = torch.zeros(2, requires_grad=True)
    exchange.ask_to_end(15)
    assert exchange.signal_to_end() is None
    exchange.add([weight], torch.tensor(1.0))
    assert exchange.signal_to_end() == 15


def test_a_signal_is_seen_whichever_buffer_brought_it(one: Ranks) -> None:
    """A captured step does not say which buffer it used: the one that was made last may not be it."""
    exchange = Exchange(one, torch.device("cpu"))
    narrow, wide = torch.zeros(2, requires_grad=True), torch.zeros(70, requires_grad=True)
    for tensor in (wide, narrow):
        exchange.add([tensor], torch.tensor(1.0))
    exchange.ask_to_end(15)
    assert exchange.signal_to_end() is None
    exchange.add([wide], torch.tensor(1.0))
    assert exchange.signal_to_end() == 15


def test_a_parameter_that_is_not_used_has_no_gradient_and_is_left_alone(one: Ranks) -> None:
    torch.manual_seed(0)
    model = Choosy()
    before = model.never.weight.detach().clone()
    settings = exact(steps=3, clip=ClipSettings(), optimizer=OptimizerSettings(weight_decay=0.5))
    train(model, double_task(), settings)
    assert torch.equal(model.never.weight, before)


def test_lengths_are_cut_with_their_rows() -> None:
    task = addition()
    batch = task.train_batch(0, 4)
    ragged = Batch(batch.input, batch.target, torch.tensor([4, 3, 2, 1]))
    parts = [rows_of_rank(ragged, rank, 2, task.interface).lengths for rank in range(2)]
    assert [part.tolist() for part in parts if part is not None] == [[4, 3], [2, 1]]


def test_a_record_of_one_rank_alone_is_no_word_to_the_others(tmp_path: Path, one: Ranks) -> None:
    run = new_run(tmp_path, tiny())
    shared = SharedRun(run, one)
    with (
        mock.patch.object(Ranks, "gather", side_effect=AssertionError),
        mock.patch.object(Ranks, "share", side_effect=AssertionError),
    ):
        shared.log({"kind": "graph", "step": 0}, alone=True)
    assert [record["kind"] for record in run.metrics()] == ["graph"]
    run.close()
