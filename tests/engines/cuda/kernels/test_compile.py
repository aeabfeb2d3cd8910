"""From a kernel's source to its machine code: what is shipped and defined, the cache on disk, and nvcc where it is there."""

import re
import shutil
import struct
import subprocess
import sys
import threading
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

import steadyrnn.engines.cuda as package
import steadyrnn.gpu as gpu
from steadyrnn.engines.cuda.kernels import bf16x3, dense, elman, factored, windows
from steadyrnn.engines.cuda.plan.direct import direct_layout
from steadyrnn.engines.cuda.plan.factored import factored_layout
from steadyrnn.engines.cuda.plan.layouts import gather_layout, scatter_layout
from steadyrnn.engines.cuda.plan.windows import window_layout
from steadyrnn.gpu import kernel_cache, nvrtc
from steadyrnn.gpu.kernel_cache import cache_folder
from steadyrnn.gpu.nvrtc import compile_source, source, word
from tests.support.layouts import shape_with

PTX_ON_CPU = Path(__file__).parents[3] / "support" / "emulated_ptx.h"
DEVICE = torch.device("cuda", 0)
TEXT, ENTRY, CAPABILITY = "__global__ void run() {}", "run", "90"


def names_in(text: str) -> set[str]:
    """Return the functions and macros that a source defines."""
    functions = re.findall(r"^(?:static|__device__ __forceinline__) [\w *&]*?(\w+)\(", text, re.MULTILINE)
    return {*functions, *re.findall(r"^#define (\w+)\(", text, re.MULTILINE)}


class Wanted(NamedTuple):
    """What the package asks its compiler for."""

    package: str
    names: tuple[str, ...]
    entry: str
    defined: tuple[tuple[str, int], ...]
    shared: int
    device: torch.device

    @property
    def text(self) -> str:
        return source(self.package, self.names, self.defined)

    @property
    def architecture(self) -> str:
        return f"sm_{nvrtc.architecture(dict(self.defined))}"


def gather(kind: str, variant: dense.Variant) -> Wanted:
    shape = shape_with(kind, variant.gates, variant.number != 0)
    assert shape is not None
    layout = gather_layout(shape[0], variant.gates, shape[1], 132, variant.number != 0)
    return dense.compile_kernel.__wrapped__("gather", layout, variant, DEVICE)


def scatter(kind: str, variant: dense.Variant) -> Wanted:
    shape = shape_with(kind, variant.gates, variant.number != 0, adjoint=True)
    assert shape is not None
    layout = scatter_layout(shape[0], variant.gates, shape[1], 132, variant.number != 0)
    return dense.compile_kernel.__wrapped__("scatter", layout, variant, DEVICE)


def in_one_block(size: int, batch: int, variant: elman.Variant) -> Wanted:
    return elman.compile_kernel.__wrapped__(direct_layout(size, batch, 132), variant, DEVICE)


def in_factors(size: int, rank: int, variant: factored.Variant) -> Wanted:
    return factored.compile_kernel.__wrapped__(factored_layout(size, rank, 128, 132), variant, DEVICE)


def of_windows(size: int, variant: windows.Variant) -> Wanted:
    return windows.compile_kernel.__wrapped__(window_layout(size), variant, DEVICE)


def of_norms(vec: int, every: int) -> Wanted:
    defined = (("threads", 256), ("vec", vec), ("every", every))
    return Wanted(package.__name__, ("ptx", "norms"), "run_norms", defined, 0, DEVICE)


KERNELS: dict[str, Callable[[], Wanted]] = {
    "direct": lambda: in_one_block(128, 1024, elman.Variant(0, 4, False, True)),
    "adjoint-of-direct": lambda: in_one_block(20, 3, elman.Variant(1, 0, True, False)),
    "one-block": lambda: gather("one-block", dense.Variant(3, 0, 0, 1, False, True)),
    "two-on-a-multiprocessor": lambda: gather("two-on-a-multiprocessor", dense.Variant(3, 0, 0, 1)),
    "posted": lambda: gather("posted", dense.Variant(1, 0, 0, 0, True)),
    "handed-over": lambda: gather("handed-over", dense.Variant(1, 0, 0, 0, True)),
    "later-tiles": lambda: gather("later-tiles", dense.Variant(3, 0, 0, 1, False, True)),
    "tensor-cores": lambda: gather("tensor-cores-later-tiles", dense.Variant(4, 1, 0, 2, False, True)),
    "far": lambda: gather("far", dense.Variant(1, 0, 3, 0)),
    "adjoint-of-gru": lambda: scatter("cluster-4", dense.Variant(3, 0, 0, 1)),
    "adjoint-of-lstm": lambda: scatter("later-tiles", dense.Variant(4, 0, 0, 2)),
    "adjoint-on-tensor-cores": lambda: scatter("tensor-cores", dense.Variant(4, 2, 0, 2)),
    "factored": lambda: in_factors(700, 32, factored.Variant(0, 0, False, True)),
    "adjoint-of-factored": lambda: in_factors(512, 64, factored.Variant(2, 4, True, False)),
    "windows": lambda: of_windows(100, windows.Variant(1, False, True, False, True)),
    "windows-with-a-trail": lambda: of_windows(33, windows.Variant(3, False, False, True, False)),
    "adjoint-of-windows": lambda: of_windows(128, windows.Variant(0, True, False, True, True)),
    "norms": lambda: of_norms(4, 0),
    "every-norm": lambda: of_norms(1, 1),
    "bf16x3": lambda: bf16x3.compile_kernel.__wrapped__(8, DEVICE),
    "bf16x3-of-fours": lambda: bf16x3.compile_kernel.__wrapped__(4, DEVICE),
    "bf16x3-of-any-columns": lambda: bf16x3.compile_kernel.__wrapped__(1, DEVICE),
}


@pytest.fixture
def _no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give back what is wanted instead of a kernel."""
    for module in (dense, factored, elman, bf16x3, windows):
        monkeypatch.setattr(module, "kernel", Wanted)


class Fake:
    """A compiler that counts, and whose code tells what it was made from."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, text: str, entry: str, compute_capability: str) -> tuple[bytes, str]:
        self.calls += 1
        return f"{text}|{entry}|{compute_capability}".encode() + bytes(range(64)), entry


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    """A compiler to count with, and an empty cache."""
    compiler = Fake()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(nvrtc.driver, "_nvrtc_compile", compiler)
    return compiler


def stored() -> list[Path]:
    folder = cache_folder()
    assert folder is not None
    return sorted(folder.iterdir())


@pytest.mark.usefixtures("_no_compiler")
@pytest.mark.parametrize("name", KERNELS)
def test_the_source_of_every_kernel_has_what_is_defined(name: str) -> None:
    wanted = KERNELS[name]()
    head, _, rest = wanted.text.partition("//")
    lines = [line.split() for line in head.splitlines()]
    assert {first for first, *_ in lines} == {"#define"}
    assert {name.lower(): int(value) for _, name, value in lines} == {key: int(value) for key, value in wanted.defined}
    assert len(lines) == len(wanted.defined)  # nothing twice
    assert f"{wanted.entry}(" in rest
    assert rest.count('extern "C"') == 1


@pytest.mark.usefixtures("_no_compiler")
@pytest.mark.parametrize("name", KERNELS)
def test_the_package_ships_the_files_of_every_kernel(name: str) -> None:
    first, *own = KERNELS[name]().names
    assert first == "ptx"
    assert files(gpu).joinpath("source", "ptx.cu").is_file()
    for part in own:
        assert files(package).joinpath("source", f"{part}.cu").is_file()


@pytest.mark.usefixtures("_no_compiler")
def test_no_file_is_shipped_that_no_kernel_uses() -> None:
    used = {f"{part}.cu" for wanted in KERNELS.values() for part in wanted().names[1:]}
    assert {file.name for file in files(package).joinpath("source").iterdir()} == used


@pytest.mark.usefixtures("_no_compiler")
@pytest.mark.parametrize("name", KERNELS)
def test_machine_code_is_written_in_one_file_only(name: str) -> None:
    wanted = KERNELS[name]()
    assert "asm" not in source(wanted.package, wanted.names[1:], wanted.defined)


def test_the_file_for_a_cpu_has_every_name_of_the_one_for_a_gpu() -> None:
    ours, theirs = (names_in(text) for text in (source(gpu.__name__, ("ptx",), ()), PTX_ON_CPU.read_text()))
    assert len(ours) > 30
    assert ours <= theirs
    assert theirs - ours == {"aligned", "leave_out"}


def test_a_tensor_is_passed_as_its_address() -> None:
    tensor = torch.ones(3)
    assert word(tensor) == tensor.data_ptr()
    assert word(tensor[1:]) == tensor.data_ptr() + 4
    assert word(torch.ones(0)) == 0


@pytest.mark.parametrize("number", [0, 1, 7, 2**31 - 1, -1, -(2**31), True, False])
def test_an_integer_is_passed_as_32_bits(number: int) -> None:
    assert struct.unpack("<i4x", struct.pack("<Q", word(number)))[0] == number


@pytest.mark.parametrize("number", [0.0, -0.0, 0.01, 1.0, -2.5, 1e300, float("inf")])
def test_another_number_is_passed_as_a_double(number: float) -> None:
    assert struct.pack("<Q", word(number)) == struct.pack("<d", number)


def test_the_second_call_reads_what_the_first_wrote(fake: Fake) -> None:
    first = compile_source(TEXT, ENTRY, CAPABILITY)
    assert first == fake(TEXT, ENTRY, CAPABILITY)[0]
    assert compile_source(TEXT, ENTRY, CAPABILITY) == first
    assert fake.calls == 2  # one of them the line above
    assert len(stored()) == 1


@pytest.mark.parametrize(
    "change", [lambda b: b[:-1], lambda b: b[:10], lambda b: b"", lambda b: b"x" + b[1:], lambda b: b + b"x"]
)
def test_a_file_that_is_cut_or_altered_is_compiled_again(fake: Fake, change: Callable[[bytes], bytes]) -> None:
    first = compile_source(TEXT, ENTRY, CAPABILITY)
    (file,) = stored()
    whole = file.read_bytes()
    file.write_bytes(change(whole))
    assert compile_source(TEXT, ENTRY, CAPABILITY) == first
    assert fake.calls == 2
    assert file.read_bytes() == whole
    assert len(stored()) == 1


@pytest.mark.parametrize("other", [(TEXT + " ", ENTRY, CAPABILITY), (TEXT, "walk", CAPABILITY), (TEXT, ENTRY, "100")])
def test_what_differs_in_anything_has_a_file_of_its_own(fake: Fake, other: tuple[str, str, str]) -> None:
    first, second = compile_source(TEXT, ENTRY, CAPABILITY), compile_source(*other)
    assert first != second
    assert len(stored()) == 2
    assert (compile_source(TEXT, ENTRY, CAPABILITY), compile_source(*other)) == (first, second)
    assert fake.calls == 2


@pytest.mark.parametrize("what", ["__version__", "cuda"])
def test_another_torch_compiles_for_itself(fake: Fake, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compile_source(TEXT, ENTRY, CAPABILITY)
    monkeypatch.setattr(torch if what == "__version__" else torch.version, what, "another")
    compile_source(TEXT, ENTRY, CAPABILITY)
    assert fake.calls == 2
    assert len(stored()) == 2


def test_where_nothing_can_be_written_it_is_compiled_every_time(
    fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert cache_folder() is None
    assert compile_source(TEXT, ENTRY, CAPABILITY) == compile_source(TEXT, ENTRY, CAPABILITY)
    assert fake.calls == 2


def test_without_a_name_for_it_the_cache_lies_in_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_folder() == tmp_path / ".cache" / "steadyrnn" / "compiled"


def full(*_: object, **__: object) -> None:
    raise OSError(28, "No space left on device")


def test_a_full_disk_does_not_keep_a_kernel_from_running(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel_cache.os, "replace", full)
    assert compile_source(TEXT, ENTRY, CAPABILITY) == fake(TEXT, ENTRY, CAPABILITY)[0]


def test_a_file_that_cannot_be_read_does_not_keep_a_kernel_from_running(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    first = compile_source(TEXT, ENTRY, CAPABILITY)
    monkeypatch.setattr(kernel_cache.os, "fdopen", full)
    assert compile_source(TEXT, ENTRY, CAPABILITY) == first


def test_threads_that_compile_at_once_leave_one_whole_file(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    both, found = threading.Barrier(2), []

    def together(*arguments: str, compute_capability: str) -> tuple[bytes, str]:
        both.wait(10)  # neither has written when the other looks
        return fake(*arguments, compute_capability)

    monkeypatch.setattr(nvrtc.driver, "_nvrtc_compile", together)
    threads = [threading.Thread(target=lambda: found.append(compile_source(TEXT, ENTRY, CAPABILITY))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found[0] == found[1]
    assert fake.calls == 2
    assert len(stored()) == 1
    assert compile_source(TEXT, ENTRY, CAPABILITY) == found[0]
    assert fake.calls == 2


PROCESS = """
import sys, time
from pathlib import Path
from steadyrnn.gpu import nvrtc

here, me, other = Path(sys.argv[1]), sys.argv[2], sys.argv[3]

def together(text, entry, compute_capability):
    (here / me).touch()
    while not (here / other).exists():
        time.sleep(0.001)
    return b"code" * 2**18, entry

nvrtc.driver._nvrtc_compile = together
assert nvrtc.compile_source("text", "run", "90") == b"code" * 2**18
"""


def test_processes_that_compile_at_once_leave_one_whole_file(fake: Fake, tmp_path: Path) -> None:
    command = [sys.executable, "-c", PROCESS, str(tmp_path)]
    running = [subprocess.Popen([*command, *names]) for names in (("one", "two"), ("two", "one"))]
    assert [process.wait(100) for process in running] == [0, 0]
    assert len(stored()) == 1
    assert compile_source("text", "run", "90") == b"code" * 2**18
    assert fake.calls == 0


@pytest.mark.usefixtures("_no_compiler")
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
@pytest.mark.parametrize("name", KERNELS)
def test_nvcc_compiles_every_kind_of_kernel_without_a_word(name: str, tmp_path: Path) -> None:
    wanted, file = KERNELS[name](), tmp_path / "kernel.cu"
    file.write_text(wanted.text)
    unused = "-diag-suppress=177"  # one source serves many cells, of which some do not use all it names
    later = "-Xptxas=-suppress-async-bulk-multicast-advisory-warning"  # of later devices, for which it is compiled anew
    command = ["nvcc", f"-arch={wanted.architecture}", "-cubin", unused, later, "-o", str(tmp_path / "kernel.cubin"), str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
