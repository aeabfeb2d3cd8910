"""Models and optimizers in wrappers: accelerate's, DistributedDataParallel and FSDP2, each with every constraint."""

import copy
import socket
from pathlib import Path

import pytest
import torch
from torch import Tensor, distributed, multiprocessing, nn

from steadyrnn.certificates.certify import certify
from steadyrnn.constraints.averaging import averaged
from steadyrnn.constraints.membership import check_inside, project_
from steadyrnn.constraints.optimizer import attach_projection
from steadyrnn.convert.torch_nn import to_torch
from steadyrnn.errors import WeightError
from steadyrnn.layers.lstm import LSTM
from steadyrnn.layers.rnn import RNN
from tests.constraints.cases import CASES, PROJECTIONS, RECENTRED, size_for

KEPT = [*PROJECTIONS, *RECENTRED, "stable-lstm"]
ALL = [*CASES, "stable-lstm"]


def build(name: str) -> nn.Module:
    torch.manual_seed(0)
    return LSTM(3, 4, transition=name) if name == "stable-lstm" else RNN(3, size_for(name, 4), transition=CASES[name]())


def step(model: nn.Module, optimizer: torch.optim.Optimizer, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    optimizer.zero_grad()
    model(torch.randn(5, 2, 3, generator=generator))[0].square().sum().backward()
    optimizer.step()


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("name", KEPT)
def test_an_optimizer_of_accelerate_projects(name: str, when: str) -> None:
    accelerate = pytest.importorskip("accelerate")
    model = build(name)
    plain = copy.deepcopy(model)
    optimizer, other = (torch.optim.SGD(m.parameters(), lr=1.0) for m in (model, plain))
    attach_projection(other, plain)
    if when == "before":
        attach_projection(optimizer, model)
    model, optimizer = accelerate.Accelerator(cpu=True).prepare(model, optimizer)
    handle = attach_projection(optimizer, model)
    assert attach_projection(optimizer, model) is handle
    for seed in range(3):
        step(model, optimizer, seed)
        step(plain, other, seed)
    check_inside(model, "is outside")
    for own, theirs in zip(model.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(own, theirs)
    handle.remove()


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def whole(tensor: Tensor) -> Tensor:
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def compare(name: str, wrapper: str, world: int) -> None:
    """Train a wrapped model beside one that is not, and hold every way to read it against the other's."""
    model = build(name)
    plain, average = copy.deepcopy(model), averaged(model, 0.5)
    if wrapper == "ddp":
        wrapped = nn.parallel.DistributedDataParallel(model)
    else:
        from torch.distributed.fsdp import fully_shard

        wrapped = fully_shard(nn.Sequential(model), mesh=distributed.device_mesh.init_device_mesh("cpu", (world,)))
        with pytest.raises(WeightError, match="sharded"):
            averaged(wrapped)
    optimizer, other = (torch.optim.SGD(m.parameters(), lr=0.1) for m in (wrapped, plain))
    attach_projection(optimizer, wrapped)
    attach_projection(other, plain)
    twin = averaged(plain, 0.5)
    for seed in range(3):
        step(wrapped, optimizer, seed)
        step(plain, other, seed)
        average.update_parameters(wrapped)
        twin.update_parameters(plain)
    torch.testing.assert_close(whole(model.weight_hh_l0), plain.weight_hh_l0)
    torch.testing.assert_close(average.module.weight_hh_l0, twin.module.weight_hh_l0)
    torch.testing.assert_close(to_torch(model).weight_hh_l0, to_torch(plain).weight_hh_l0)
    check_inside(wrapped, "is outside")
    assert certify(model, input_bound=1.0).contraction == pytest.approx(certify(plain, input_bound=1.0).contraction, rel=1e-4)
    with torch.no_grad():
        for parameter in wrapped.parameters():
            parameter.mul_(3)
    project_(wrapped)
    check_inside(wrapped, "is outside")


def work(rank: int, world: int, wrapper: str, port: int, folder: str) -> None:
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world)
    try:
        for name in ALL:
            compare(name, wrapper, world)
            Path(folder, f"{name}-{rank}").touch()
    finally:
        distributed.destroy_process_group()


@pytest.mark.slow
@pytest.mark.parametrize("world", [1, 2])
@pytest.mark.parametrize("wrapper", ["ddp", "fsdp2"])
def test_a_model_over_processes_is_trained_projected_read_and_averaged(wrapper: str, world: int, tmp_path: Path) -> None:
    multiprocessing.spawn(work, (world, wrapper, free_port(), str(tmp_path)), nprocs=world)
    assert len(list(tmp_path.iterdir())) == world * len(ALL)
