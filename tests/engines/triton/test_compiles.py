"""The Triton kernels compile for an NVIDIA GPU, with the very arguments of a launch; this needs no GPU."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from steadyrnn.cells.registry import CELLS
from steadyrnn.engines.base import flatten_weight
from steadyrnn.engines.loop.call import Call
from steadyrnn.engines.triton.kernel import TritonKernel
from tests.support.interpreted import copied_kernels
from tests.support.recurrences import Case, make

triton = pytest.importorskip("triton", reason="triton is not installed")

SHARED_MEMORY = 227 * 1024  # that one program may have on compute capability 9.0


class Driver:
    """What Triton asks of a driver before it launches: here, that a GPU of some compute capability were there."""

    def __init__(self, capability: int) -> None:
        self.capability = capability

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", self.capability, 32)

    def get_current_device(self) -> int:
        return self.capability  # any number: Triton remembers the target of each

    def get_current_stream(self, device: int) -> int:
        return 0


@pytest.fixture
def capability() -> int:
    return 90


@pytest.fixture
def _driver(tmp_path: Path, capability: int) -> Iterator[None]:
    was = triton.runtime.driver._active
    triton.runtime.driver.set_active(Driver(capability))
    with triton.knobs.cache.scope():
        triton.knobs.cache.dir = str(tmp_path)  # so that it is compiled, not found
        yield
    triton.runtime.driver._active = was


def spy(compiled: list[Any]) -> ModuleType:
    """Return the kernels with a loop that is compiled where it should be launched."""
    kernels = copied_kernels(False)

    class Loop:
        def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
            def launch(*arguments: Any, **options: Any) -> None:
                compiled.append(kernels.loop.warmup(*arguments, grid=grid, **options))

            return launch

    parts = {name: getattr(kernels, name) for name in kernels.__all__}
    return SimpleNamespace(**parts | {"loop": Loop()})


def compile_both(name: str, case: Case, dtype: torch.dtype) -> list[Any]:
    """Return the compiled kernels of a run and of its adjoint."""
    compiled: list[Any] = []
    kernel, run = TritonKernel(lambda: spy(compiled)), make(CELLS[name], case, dtype)
    sizes = None if run.batch_sizes is None else run.batch_sizes.tolist()
    weights = (run.bias_ih, run.bias_hh, run.theta)
    call = Call(run.input, list(run.state), run.weight_ih, flatten_weight(run.weight_hh), *weights, sizes, run.reverse)
    with torch.no_grad():
        done = kernel.forward(call, run.cell, False, keep=True)
        kernel.backward(call, run.cell, False, done, done.output, list(done.state), True)
    return compiled


@pytest.mark.usefixtures("_driver")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    ("name", "case"),
    [
        ("rnn-tanh", Case(hidden=512)),
        ("rnn-leaky_relu", Case(hidden=128, factored=True)),
        ("rnn-modrelu", Case(hidden=64, lengths=(4, 2, 0))),
        ("gru-after", Case(hidden=33, lengths=(4, 2, 0), reverse=True)),
        ("gru-before", Case(hidden=128)),
        ("lstm", Case(hidden=200, reverse=True)),
    ],
    ids=str,
)
def test_kernels_compile_and_fit(name: str, case: Case, dtype: torch.dtype) -> None:
    both = compile_both(name, case, dtype)
    assert len(both) == 2
    for kernel in both:
        text = kernel.asm["ptx"]
        assert kernel.metadata.shared <= SHARED_MEMORY
        assert "tf32" not in text  # 10 bits of a float32 would be left
        assert bool(re.search(r"mma\.\S*\.bf16", text)) == (dtype == torch.bfloat16)
        # a load that may come from a cache without coherence would not see the last step's states
        assert "ld.global.nc" not in text


@pytest.mark.usefixtures("_driver")
@pytest.mark.parametrize("case", [Case(hidden=512), Case(hidden=512, factored=True)], ids=str)
@pytest.mark.parametrize("name", ["rnn-tanh", "rnn-modrelu"])
def test_float32_sums_begin_at_zero_in_every_block(name: str, case: Case) -> None:
    for kernel in compile_both(name, case, torch.float32):
        starts = re.findall(r"tt\.dot %\S+, %\S+, (%\S+)", kernel.asm["ttgir"])
        assert starts
        assert all(start.startswith("%cst") for start in starts)  # not the total, which a loop hands on
        assert re.search(r"fma\.rn\.f32\s+\S+, \S+, \S+, 0f00000000", kernel.asm["ptx"])


@pytest.mark.usefixtures("_driver")
@pytest.mark.parametrize("name", ["rnn-sigmoid", "gru-after"])
def test_kernels_compile_in_float64(name: str) -> None:
    for kernel in compile_both(name, Case(hidden=40), torch.float64):
        assert re.search(r"mma\.\S*\.f64", kernel.asm["ptx"])


@pytest.mark.usefixtures("_driver")
@pytest.mark.parametrize(("capability", "kibibytes"), [(80, 163), (86, 99)])
@pytest.mark.parametrize("name", ["rnn-tanh", "gru-after", "lstm"])
def test_kernels_fit_the_shared_memory_of_other_gpus(name: str, kibibytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("steadyrnn.engines.triton.launch.shared_memory_of", lambda x: kibibytes * 1024)
    for kernel in compile_both(name, Case(hidden=128), torch.bfloat16):
        assert kernel.metadata.shared <= kibibytes * 1024
