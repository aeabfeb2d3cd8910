"""Engines of a GPU, which are imported when they are first needed: on a CPU nobody waits for them."""

from importlib import import_module

import torch
from torch import Tensor

from steadyrnn.cells.base import State
from steadyrnn.checks import constant_result
from steadyrnn.gpu.torch_private import OpNamespace, OpOverloadPacket

from .base import Engine, Recurrence

__all__ = ["DEFERRED", "DeferredEngine", "register_on_demand"]

_CLASSES = {
    "cudnn": ("steadyrnn.engines.cudnn", "CuDNNEngine"),
    "cuda": ("steadyrnn.engines.cuda.engine", "CUDAEngine"),
    "triton": ("steadyrnn.engines.triton.engine", "TritonEngine"),
}
"""The file and the class of each engine that runs on a GPU; the file registers the ops ``name`` and ``name_backward``."""
_DEVICE = "cuda"
"""The type of device that they run on."""


class DeferredEngine(Engine):
    """An engine of a GPU that is imported when a tensor on a GPU is there."""

    engine: Engine  # once it is imported

    def __init__(self, name: str) -> None:
        self.name = name

    def resolve(self) -> Engine:
        """Return the engine itself."""
        load(self.name)
        return DEFERRED[self.name].engine  # also for a copy of this object

    def refusal(self, recurrence: Recurrence) -> str | None:
        """Return why not: another device, or what the engine itself says."""
        device = recurrence.input.device.type
        return f"its tensors are on {device}" if device != _DEVICE else self.resolve().refusal(recurrence)

    def run(self, recurrence: Recurrence) -> tuple[Tensor, State]:
        """Run the engine; shapes as in :class:`~steadyrnn.engines.base.Engine`."""
        return self.resolve().run(recurrence)


DEFERRED = {name: DeferredEngine(name) for name in _CLASSES}
"""The engines of a GPU by name, in the order of the table."""


@constant_result  # a compiler cannot look into an import, nor call a method of what such a function returns
def load(name: str) -> str:
    """Import the file of an engine, which registers its ops, if that was not done before; return the name.

    Example:
        >>> load("cudnn")
        'cudnn'
    """
    deferred = DEFERRED[name]
    if "engine" not in vars(deferred):
        file, kind = _CLASSES[name]
        deferred.engine = getattr(import_module(file), kind)()
    return name


class OnDemand(OpNamespace):
    """``torch.ops.steadyrnn``, which imports an engine when its op is first looked up: a saved graph names ops only."""

    __module__ = OpNamespace.__module__  # torch names ops after it, in files too

    def __getattr__(self, name: str) -> OpOverloadPacket:
        """Return an op by its name."""
        try:
            return super().__getattr__(name)
        except AttributeError:
            engine = name.removesuffix("_backward")
            if engine not in _CLASSES:
                raise
        load(engine)
        return vars(self).get(name) or super().__getattr__(name)  # one object per op, and registering creates it


def register_on_demand() -> None:
    """Have ``torch.ops.steadyrnn`` import what an op needs, so that graphs saved on a GPU can be loaded.

    Example:
        >>> register_on_demand()
        >>> torch.ops.steadyrnn.cudnn
        <OpOverloadPacket(op='steadyrnn.cudnn')>
    """
    torch.ops.steadyrnn.__class__ = OnDemand  # the same object, which holds the ops that are registered already
