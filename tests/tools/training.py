"""Tools that train, average, prune, spread or store a module."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import safetensors.torch
import skorch
import torch
import torch.distributed as dist
from accelerate import Accelerator
from sklearn.base import clone
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.nn.utils import prune
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.testing import assert_close

import steadyrnn as sr
from steadyrnn.constraints.membership import check_inside
from tests.tools.outcome import same, same_run
from tests.tools.subjects import Subject, flat, loss_of

__all__ = ["TOOLS"]


@contextmanager
def _process_group() -> Iterator[None]:
    """Be a group of one process."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        yield
    finally:
        dist.destroy_process_group()


def _train(model: nn.Module, parts: nn.Module, subject: Subject, prepare: Any = None) -> list[Tensor]:
    """Take three steps of SGD, and return the last outputs; ``parts`` is where the constraints lie."""
    optimizer: Any = torch.optim.SGD(model.parameters(), lr=0.1)
    backward = Tensor.backward
    if prepare is not None:
        model, optimizer = prepare.prepare(model, optimizer)
        backward = prepare.backward
    sr.attach_projection(optimizer, parts)
    for _ in range(3):
        optimizer.zero_grad()
        backward(loss_of(model(subject.input())))
        optimizer.step()
    return [part.detach() for part in flat(model(subject.input()))]


def _trained(subject: Subject) -> list[Tensor]:
    module = subject.module()
    return _train(module, module, subject)


def data_parallel(subject: Subject) -> None:
    """`DistributedDataParallel` (gloo): three steps of training, projections included, as without it."""
    with _process_group():
        module = subject.module()
        same(_train(DistributedDataParallel(module), module, subject), _trained(subject))


def fully_sharded(subject: Subject) -> None:
    """FSDP2's `fully_shard` (gloo): three steps of training, projections included, as without it."""
    with _process_group():
        module: nn.Module = fully_shard(subject.module(), mesh=init_device_mesh("cpu", (1,)))
        same(_train(module, module, subject), _trained(subject))


def accelerated(subject: Subject) -> None:
    """accelerate's `prepare` of model and optimizer: three steps of training, projections included, as without it."""
    module = subject.module()
    found = _train(module, module, subject, Accelerator(cpu=True))
    same(found, _trained(subject))


def averaged(subject: Subject) -> None:
    """`AveragedModel` (moving average): weights are averaged and stay in their sets, or saving and loading refuse."""
    module, first = subject.module(), subject.module()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.5)
    sr.attach_projection(optimizer, module)
    shadow = AveragedModel(module, multi_avg_fn=get_ema_multi_avg_fn(0.5))
    for _ in range(3):
        optimizer.zero_grad()
        loss_of(module(subject.input())).backward()
        optimizer.step()
        shadow.update_parameters(module)
    check_inside(shadow, "was averaged")  # what `certify` and the trainer's saving ask first
    fresh = subject.module()
    fresh.load_state_dict(copy.deepcopy(shadow.module.state_dict()))
    same(fresh(subject.input()), shadow(subject.input()))
    place, name = subject.weight
    start, end, between = (getattr(one.get_submodule(place), name) for one in (first, module, fresh))
    averages = not torch.equal(start, between) and not torch.equal(between, end)
    assert torch.equal(start, end) or averages, "nothing was averaged"


def pruned(subject: Subject) -> None:
    """`torch.nn.utils.prune` of a weight: its mask holds through training, or the weight has a set to stay in."""
    module = subject.module()
    place, name = subject.weight
    holder = module.get_submodule(place)
    before = [part.clone() for part in flat(module(subject.input()))]
    prune.l1_unstructured(holder, name, amount=0.5)
    mask = getattr(holder, f"{name}_mask")
    after = _train(module, module, subject)
    assert bool((getattr(holder, name)[mask == 0] == 0).all())
    assert any(not torch.equal(one, other) for one, other in zip(before, after, strict=True))


class _Scores(nn.Module):
    """A subject with a plain output, as skorch wants it; batch first."""

    def __init__(self, subject: Subject) -> None:
        super().__init__()
        self.inner = subject.module(torch.float32)

    def forward(self, x: Tensor) -> Tensor:
        steps = x.transpose(0, 1) if x.ndim == 3 else x
        first = flat(self.inner(steps))[0]
        return first.transpose(0, 1).flatten(1) if first.ndim == 3 else first


class _Projection(skorch.callbacks.Callback):  # type: ignore[misc]
    """Puts weights back into their sets after each step, as `sr.attach_projection` does for any optimizer."""

    def on_train_begin(self, net: Any, **_: Any) -> None:
        sr.attach_projection(net.optimizer_, net.module_)


def scikit(subject: Subject) -> None:
    """skorch's `NeuralNet`: fits, is copied by `clone`, stores its weights, and predicts as the module does."""
    torch.manual_seed(0)
    x = subject.input(torch.float32)
    x = x.transpose(0, 1).contiguous() if x.ndim == 3 else x
    target = torch.zeros_like(_Scores(subject)(x).detach())
    net = skorch.NeuralNet(
        _Scores,
        nn.MSELoss,
        module__subject=subject,
        max_epochs=2,
        lr=0.01,
        train_split=None,
        verbose=0,
        callbacks=[_Projection],
    )
    twin = clone(net)
    net.fit(x.numpy(), target.numpy())
    assert_close(torch.from_numpy(np.asarray(net.predict(x.numpy()))), net.module_.eval()(x).detach())
    assert net.history[-1, "train_loss"] <= net.history[0, "train_loss"]
    with TemporaryDirectory() as folder:
        path = Path(folder) / "weights.safetensors"
        net.save_params(f_params=path, use_safetensors=True)
        twin.initialize().load_params(f_params=path, use_safetensors=True)
    assert_close(torch.from_numpy(twin.predict(x.numpy())), torch.from_numpy(net.predict(x.numpy())))


def stored(subject: Subject) -> None:
    """`safetensors.torch.save_model` and `load_model`: outputs and gradients as before."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "weights.safetensors"
        safetensors.torch.save_model(subject.module(), path)
        torch.manual_seed(7)
        fresh = subject.make().double()
        safetensors.torch.load_model(fresh, path)
    same_run(fresh, subject)


TOOLS = {
    "DDP": data_parallel,
    "FSDP2": fully_sharded,
    "accelerate": accelerated,
    "AveragedModel": averaged,
    "prune": pruned,
    "skorch": scikit,
    "safetensors": stored,
}
