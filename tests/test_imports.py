"""What a first use loads: nothing of torch's compiler, its code generator or its ONNX exporter, nor an engine of a GPU."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import torch

from steadyrnn.cells.registry import CELLS
from steadyrnn.checks import constant_result, disable_compile
from steadyrnn.cli.commands import COMMANDS

ROOT = Path(__file__).parents[1]

WATCHED = """
import sys, traceback

HEAVY = ("torch._dynamo", "torch._inductor", "torch.onnx")


class Watch:
    # says who imported a module that is slow to load
    def find_spec(self, name, path=None, target=None):
        if name in HEAVY:
            asked = [frame.filename for frame in traceback.extract_stack()]
            if not any("/torch/optim/" in name for name in asked):  # torch's own optimizers load the compiler
                print("LOADED", name, "for", [name for name in asked if "steadyrnn" in name][-1:])
        return None


sys.meta_path.insert(0, Watch())
"""

EVERY_LAYER = """
import torch
from steadyrnn.constraints.registry import CONSTRAINTS, JOINT

for kind in (sr.RNN, sr.GRU, sr.LSTM):
    for name in (*CONSTRAINTS, *(JOINT if kind is sr.LSTM else ())):
        layer = kind(3, 4, transition=name, num_layers=2, bidirectional=True)
        layer(torch.randn(5, 2, 3), lengths=torch.tensor([5, 2]))[0].sum().backward()
for kind in (sr.RNNCell, sr.GRUCell, sr.LSTMCell):
    cell = kind(3, 4, transition="spectral")
    cell(torch.randn(2, 3))
for name in CONSTRAINTS:
    sr.Linear(4, 4, weight=name)(torch.randn(2, 4)).sum().backward()
"""

READING = """
import torch

rnn = sr.RNN(3, 4, transition=sr.SpectralBall(0.5))
str(sr.certify(rnn, input_bound=1.0))
sr.spectrum(rnn)
sr.gradient_flow(rnn, torch.randn(5, 2, 3))
sr.to_feedforward(rnn, eps=1e-2, input_bound=1.0)(torch.zeros(20, 3, 3))
sr.to_parallel(rnn, tol=1e-3)(torch.zeros(200, 1, 3))
sr.to_unitary(sr.RNN(3, 4, nonlinearity="relu", transition=sr.SpectralBall(0.5)), input_bound=1.0)
sr.to_torch(sr.RNN(3, 4, transition="spectral"))
sr.from_torch(torch.nn.GRU(3, 4))
with sr.cached():
    rnn(torch.randn(5, 2, 3))
"""


def loaded(code: str, folder: Path) -> str:
    """Return what was loaded of the slow modules, one line each, by ``code`` in a process of its own."""
    done = subprocess.run([sys.executable, "-c", WATCHED + textwrap.dedent(code)], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return "\n".join(line for line in done.stdout.splitlines() if line.startswith("LOADED"))


@pytest.mark.parametrize(
    "code",
    ["import steadyrnn\nsteadyrnn.RNN", f"import steadyrnn as sr\n{EVERY_LAYER}", f"import steadyrnn as sr\n{READING}"],
    ids=["import", "layers", "reading"],
)
def test_no_compiler_is_loaded_before_it_is_requested(code: str, tmp_path: Path) -> None:
    assert loaded(code, tmp_path) == ""


def test_every_public_name_loads_no_compiler(tmp_path: Path) -> None:
    assert loaded("import steadyrnn as sr\nfor name in sr.__all__:\n    getattr(sr, name)", tmp_path) == ""


def test_the_watch_sees_a_compiler_that_is_loaded(tmp_path: Path) -> None:
    assert "torch._dynamo" in loaded("import torch\ntorch.compiler.disable(len)", tmp_path)


# engines of a GPU

ON_A_GPU = ("cudnn", "cuda", "triton")
OTHERS = """
import torch

layer, x = sr.RNN(3, 4), torch.randn(5, 2, 3)
print(layer.explain())
sr.RNN(3, 4, nonlinearity="relu").double()(x.double())
with torch.no_grad():
    layer(x)
torch.func.vmap(layer)(x.unsqueeze(0))
for name in ("cudnn", "cuda", "triton"):
    try:
        sr.RNN(3, 4, engine=name)(x)
    except sr.errors.EngineError as error:
        assert f"`engine` {name!r} cannot run this layer: its tensors are on cpu" in str(error), error
    else:
        raise SystemExit(f"engine {name} ran on a CPU")
try:
    sr.RNN(3, 4, engine="fast")
except sr.errors.ArgumentError as error:
    assert "auto, cpu, cudnn, cuda, triton, reference" in str(error), error
import copy, pickle
pickle.loads(pickle.dumps(layer))(x)
copy.deepcopy(layer)(x)
"""
COMPILED = """
import torch

layer, x = sr.RNN(3, 4), torch.randn(5, 2, 3)
assert torch.equal(torch.compile(layer, fullgraph=True, backend="aot_eager")(x)[0], layer(x)[0])
assert torch.equal(torch.export.export(layer, (x,)).module()(x)[0], layer(x)[0])
from torch.utils.flop_counter import FlopCounterMode
with FlopCounterMode(display=False) as counter:
    layer(x)
assert counter.get_total_flops() > 0
"""


def printed(code: str, folder: Path) -> str:
    """Return what ``code`` prints in a process of its own."""
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def imported_for_a_gpu(code: str, folder: Path) -> list[str]:
    """Return the modules of a GPU's engines that are there once ``code`` has run in a process of its own."""
    names = tuple(f"steadyrnn.engines.{name}" for name in ON_A_GPU)
    ask = f"import sys\nprint()\nprint(*[name for name in sys.modules if name.startswith({names!r})])"
    return printed(f"import steadyrnn as sr\n{code}\n{ask}", folder).splitlines()[-1].split()


@pytest.mark.parametrize("code", ["sr.RNN", EVERY_LAYER, OTHERS, COMPILED], ids=["import", "layers", "others", "compiled"])
def test_a_cpu_imports_no_engine_of_a_gpu(code: str, tmp_path: Path) -> None:
    assert imported_for_a_gpu(code, tmp_path) == []


@pytest.mark.parametrize("name", ON_A_GPU)
def test_an_engine_of_a_gpu_is_imported_when_its_op_is_requested(name: str, tmp_path: Path) -> None:
    for op in (name, f"{name}_backward"):
        found = imported_for_a_gpu(f"import torch\nsr.RNN\ntorch.ops.steadyrnn.{op}.default", tmp_path)
        assert any(module.startswith(f"steadyrnn.engines.{name}") for module in found)
        assert not any(module.startswith(f"steadyrnn.engines.{other}") for other in {*ON_A_GPU} - {name} for module in found)


GRAPH = """
import torch

sr.RNN


class Run(torch.nn.Module):
    def forward(self, x, weight_ih, h, weight_hh):
        return torch.ops.steadyrnn.{name}(x, weight_ih, [h], [weight_hh], None, None, None, None, "{cell}", False, False, False)


tensors = (torch.randn(5, 2, 3), torch.randn(4, 3), torch.zeros(2, 4), torch.randn(4, 4))
"""


@pytest.mark.parametrize("name", ["rnn", *ON_A_GPU])
def test_a_saved_graph_is_loaded_by_a_process_that_has_not_run_its_op(name: str, tmp_path: Path) -> None:
    start = "import steadyrnn as sr\n" + GRAPH.format(name=name, cell=CELLS["rnn-tanh"].key)
    printed(f"{start}\ntorch.export.save(torch.export.export(Run(), tensors), 'run.pt2')", tmp_path)
    nodes = "[str(node.target) for node in torch.export.load('run.pt2').graph.nodes]"
    assert f"steadyrnn.{name}.default" in printed(f"import steadyrnn as sr, torch\nsr.RNN\nprint({nodes})", tmp_path)


@pytest.mark.parametrize("name", ["rnn", *ON_A_GPU])
def test_there_is_one_object_per_op(name: str, tmp_path: Path) -> None:
    code = f"""
    import torch, steadyrnn
    early = torch.ops.steadyrnn
    steadyrnn.RNN
    op = torch.ops.steadyrnn.{name}
    assert op.__module__ == torch.ops.aten.mm.__module__.replace("aten", "steadyrnn")
    assert early is torch.ops.steadyrnn and op is torch.ops.steadyrnn.{name} is op.default._overloadpacket
    from steadyrnn.engines.flop_counter import _FORMULAS
    assert op in _FORMULAS
    """
    printed(code, tmp_path)


# an engine that stands for the last one of a GPU: it runs the kernel of the CPU, through ops of its own; the others refuse

STAND_IN = """
from steadyrnn.engines.base import Engine
from steadyrnn.engines.cpu.engine import CPUKernel
from steadyrnn.engines.loop.ops import register, run_op

OP = register("triton", "cpu", CPUKernel())


class StandIn(Engine):
    name = "triton"

    def refusal(self, recurrence):
        return None

    def run(self, recurrence):
        return run_op(OP, recurrence, [recurrence.weight_hh])
"""
IN_PLACE = """
import sys, torch
import steadyrnn as sr
from torch.utils.flop_counter import FlopCounterMode
from steadyrnn.engines import deferred, select

x, own = torch.randn(5, 2, 3), sr.RNN(3, 4, engine="cpu")
expected = own(x)[0]
gradients = torch.autograd.grad(expected.sum(), [*own.parameters()])
del select.ENGINES["cpu"]
deferred._DEVICE, deferred._CLASSES["triton"] = "cpu", ("stand_in", "StandIn")
layer = sr.RNN(3, 4)
layer.load_state_dict(own.state_dict())
parameters, run, counter = [*layer.parameters()], layer, FlopCounterMode(display=False)
assert "stand_in" not in sys.modules
"""
FIRST_USES = {
    "eager": "",
    "explained": "assert 'it would run on engine triton' in layer.explain()",
    "compiled": "run = torch.compile(layer, fullgraph=True, backend='aot_eager')",
    "exported": "run = torch.export.export(layer, (x,)).module()\nparameters = [*run.parameters()]",
    "strictly exported": "run = torch.export.export(layer, (x,), strict=True).module()\nparameters = [*run.parameters()]",
    "counted": "with counter:\n    layer(x)\nassert counter.get_total_flops() == 5 * 2 * 2 * 4 * (3 + 4)",
    "by name": "layer.engine = 'triton'",
}
COMPARED = """
found = run(x)[0]
assert "stand_in" in sys.modules
assert torch.equal(found, expected)
assert all(map(torch.equal, torch.autograd.grad(found.sum(), parameters), gradients))
"""


@pytest.mark.parametrize("use", FIRST_USES)
def test_any_first_use_on_its_device_imports_an_engine(use: str, tmp_path: Path) -> None:
    (tmp_path / "stand_in.py").write_text(STAND_IN, encoding="utf-8")
    printed(f"{IN_PLACE}\n{FIRST_USES[use]}\n{COMPARED}", tmp_path)


def test_an_unknown_op_is_missing() -> None:
    assert not hasattr(torch.ops.steadyrnn, "none")


@pytest.mark.slow
def test_no_command_loads_a_compiler(tmp_path: Path) -> None:
    quick = "--task.length 10 --task.validation 50 --task.test 50 --train.steps 2 --train.batch_size 8 --train.device cpu"
    training = [f"train addition --model lstm {quick} --model.width 8 --out RUN"]
    reading = [
        *("--help", "--version", *(f"{name} --help" for name in COMMANDS)),
        *("eval RUN", "certify RUN --input-bound 2", "report RUN --out page.html", "data list", "completion bash"),
        "convert RUN --to torch",
    ]
    for lines in (training, reading):  # apart, since torch's optimizers load the compiler
        code = f"""
        from steadyrnn.cli.main import main
        for line in {lines!r}:
            status = main(line.split())
            assert status == 0, (line, status)
        """
        assert loaded(code, tmp_path) == ""


def test_mark_of_a_constant_is_the_compilers_own() -> None:
    def ours() -> int:
        return 1

    def theirs() -> int:
        return 1

    assert vars(constant_result(ours)) == vars(torch.compiler.assume_constant_result(theirs))


def test_constant_is_not_traced() -> None:
    def ask() -> int:
        return len(list(Path(ROOT).iterdir())) * 0 + 7  # reads a folder, which a compiler cannot trace

    def run(x: torch.Tensor) -> torch.Tensor:
        return x * asked()

    asked = constant_result(ask)
    compiled = torch.compile(run, fullgraph=True, backend="eager")
    assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 7.0))


def test_uncompiled_function_is_not_traced() -> None:
    traced = []

    def body(x: torch.Tensor) -> torch.Tensor:
        traced.append(torch.compiler.is_compiling())
        return x + 1

    closed = disable_compile(body)
    graphs = []

    def backend(graph: torch.fx.GraphModule, _: object) -> object:
        graphs.append(graph)
        return graph.forward

    def run(x: torch.Tensor) -> torch.Tensor:
        return closed(x.sin()).cos()

    x = torch.ones(2)
    assert torch.equal(torch.compile(run, backend=backend)(x), (x.sin() + 1).cos())
    assert len(graphs) == 2  # before and behind
    assert traced == [False]
