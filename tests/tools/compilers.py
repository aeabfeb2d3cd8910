"""Tools that read a module's program: compilers, exporters, tracers, counters, quantization."""

import io
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import onnxruntime
import torch
from torch import nn
from torch.export import Dim
from torch.utils.flop_counter import FlopCounterMode

from tests.tools.outcome import same, same_run
from tests.tools.subjects import Subject, flat, loss_of

__all__ = ["TOOLS"]


def compiled(subject: Subject) -> None:
    """`torch.compile(module, fullgraph=True)`: outputs and gradients as in eager mode."""
    torch._dynamo.reset()
    same_run(torch.compile(subject.module(), fullgraph=True, backend="aot_eager"), subject)


def _exported(subject: Subject) -> torch.export.ExportedProgram:
    module, x = subject.module(), subject.input()
    return torch.export.export(module, (x,), dynamic_shapes=((Dim.DYNAMIC, *(Dim.STATIC for _ in x.shape[1:])),))


def _same_at_lengths(program: Any, subject: Subject) -> None:
    module = subject.module()
    for first in (subject.shape[0], subject.shape[0] + 2):
        x = subject.input(first=first)
        same(program(x), module(x))


def exported(subject: Subject) -> None:
    """`torch.export.export` with a dynamic length (or batch): outputs as in eager mode, also at another length."""
    _same_at_lengths(_exported(subject).module(), subject)


def saved_export(subject: Subject) -> None:
    """`torch.export.save` and `load`: the same from a file."""
    file = io.BytesIO()
    torch.export.save(_exported(subject), file)
    file.seek(0)
    _same_at_lengths(torch.export.load(file).module(), subject)


def _same_in_onnx(subject: Subject, **arguments: Any) -> None:
    """Write a file, run it, and compare at the length it was made with and, where it supports others, at another."""
    module = subject.module(torch.float32).eval()
    with TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = Path(folder) / "module.onnx"
        torch.onnx.export(module, (subject.input(torch.float32),), path, **arguments)
        run = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        [place] = run.get_inputs()
        free = not isinstance(place.shape[0], int)
        for first in (subject.shape[0], subject.shape[0] + 2)[: 2 if free else 1]:
            x = subject.input(torch.float32, first)
            found = run.run(None, {place.name: x.numpy()})
            same([torch.from_numpy(part) for part in found], [part.detach() for part in flat(module(x))])


def onnx(subject: Subject) -> None:
    """`torch.onnx.export(dynamo=True)`: the file, run by onnxruntime, gives the module's outputs."""
    _same_in_onnx(subject, dynamo=True, verbose=False)


def traced_onnx(subject: Subject) -> None:
    """`torch.onnx.export(dynamo=False)`: the file, run by onnxruntime, gives the module's outputs."""
    _same_in_onnx(subject, dynamo=False)


def traced(subject: Subject) -> None:
    """`torch.jit.trace`: outputs and gradients as the module's; with time in it a trace is for one length, and raises else."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = torch.jit.trace(subject.module(), (-2 * subject.input(),))
        same_run(module, subject)
        other = subject.input(first=subject.shape[0] + 2)
        try:
            found = module(other)
        except RuntimeError:
            return
        same(found, subject.module()(other))


def scripted(subject: Subject) -> None:
    """`torch.jit.script`: outputs as the module's."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _same_at_lengths(torch.jit.script(subject.module()), subject)


def quantized(subject: Subject) -> None:
    """`torch.ao.quantization.quantize_dynamic`: some weight becomes int8, and none is left out in silence."""
    model = nn.Sequential(subject.module(torch.float32)).eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        small = torch.ao.quantization.quantize_dynamic(model, dtype=torch.qint8)
    left = [module for module in small.modules() if type(module).__module__.startswith("steadyrnn")]
    assert not left, f"{type(left[0]).__name__} was left as it was"


def counted(subject: Subject) -> None:
    """`torch.utils.flop_counter.FlopCounterMode`: forward and backward count what plain products would."""
    counts = {}
    for engine in ("auto", "reference"):
        module = subject.module()
        for part in module.modules():
            if hasattr(part, "engine"):
                part.engine = engine
        with FlopCounterMode(display=False) as counter:
            loss = loss_of(module(subject.input()))
            forward = counter.get_total_flops()
            loss.backward()
        counts[engine] = (forward, counter.get_total_flops() - forward)
    ours, plain = counts["auto"], counts["reference"]
    assert ours[0] == plain[0] > 0
    assert plain[1] <= ours[1] <= plain[1] * (1 + 1 / subject.shape[0])  # autograd leaves out the way back to the first state


TOOLS = {
    "compile": compiled,
    "export": exported,
    "export.save": saved_export,
    "ONNX": onnx,
    "ONNX by tracing": traced_onnx,
    "jit.trace": traced,
    "jit.script": scripted,
    "quantize_dynamic": quantized,
    "FLOP counter": counted,
}
