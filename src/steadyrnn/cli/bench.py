"""``steadyrnn bench``: a training step of our layers beside torch's, on this machine."""

import statistics
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from steadyrnn.models.catalogue import CATALOGUE

from .output import Output
from .parsing import add_flag, check_count, check_names, make_parser

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser
    from torch import nn

__all__ = ["DEFAULT", "EXAMPLES", "main", "parser"]

EXAMPLES = (
    "steadyrnn bench rnn --steps 20 --batch 8 --width 32 --pairs 3 --threads 1",
    "steadyrnn bench spectral lstm --steps 20 --batch 8 --width 32 --pairs 3 --threads 1 --json",
)
DEFAULT = ("rnn", "gru", "lstm", "ornn", "spectral")
"""The systems that are measured where none is named."""


def parser() -> "ArgumentParser":
    """Return the command's parser."""
    made = make_parser(
        "bench",
        "Time forward and backward of our layers and of torch.nn's plain layer of the same kind and width, in alternating\n"
        "pairs; the ratio is the median over pairs of our time by torch's. NAME is a recurrent model of `steadyrnn train`.\n"
        "With --calibrate, time every engine on the GPU at hand at many sizes instead, and write the table by which\n"
        '`engine="auto"` chooses where STEADYRNN_CALIBRATION names it.',
        EXAMPLES,
    )
    made.add_argument("names", type=str, nargs="*", metavar="NAME", help=f"Models; none means {', '.join(DEFAULT)}.")
    for name, value, help in (
        ("steps", 100, "Time steps, T."), ("batch", 64, "Rows, B."), ("inputs", 32, "Features of a step, D."),
        ("width", 128, "Hidden units, H."), ("pairs", 9, "Pairs of measurements."),
    ):  # fmt: skip
        made.add_argument(f"--{name}", type=int, default=value, help=help)
    made.add_argument("--device", type=str, default="auto", help="auto, cpu, cuda or cuda:1.")
    made.add_argument("--threads", type=int | None, default=None, help="CPU threads.")
    add_flag(made, "--calibrate", "Measure the engines of a GPU and write their table.")
    for name, help in (
        ("out", "The table's file, which may hold a part of it already; None is the device's name."),
        ("only", "Parts of names of rows as rnn-relu/n512/B128/float32, * for anything, separated by commas."),
        ("shard", "i/n: the i-th of n parts of the rows."),
        ("engines", "Engines to measure, separated by commas; None is all."),
    ):  # fmt: skip
        made.add_argument(f"--{name}", type=str | None, default=None, help=f"With --calibrate: {help}")
    add_flag(made, "--again", "With --calibrate: measure rows that are there already, too.")
    add_flag(made, "--json", "Print one JSON object and nothing else on stdout.")
    return made


def main(argv: Sequence[str]) -> int:
    """Run the command; return the exit status."""
    own = parser()
    args = own.parse_args(argv)
    output = Output(args.json)
    fitting = [name for name, system in CATALOGUE.items() if system.reads == "time" and not system.wraps]
    check_names(own, "recurrent model", args.names, fitting)
    for name in ("steps", "batch", "inputs", "width", "pairs", "threads"):
        check_count(own, f"--{name}", getattr(args, name))
    if args.calibrate:
        if args.names:
            own.error("--calibrate measures engines, not models: leave the names out")
        from .calibrate import calibrate

        return calibrate(args, output, ["steadyrnn", "bench", *argv])
    given = next((name for name in ("out", "only", "shard", "engines", "again") if getattr(args, name)), None)
    if given is not None:
        own.error(f"--{given} needs --calibrate")
    return _compare(args, output)


def _compare(args: Any, output: Output) -> int:
    """Measure models beside torch's layers, and tell."""
    import torch

    from steadyrnn.train.device import choose_device

    if args.threads is not None:
        torch.set_num_threads(args.threads)
    device = choose_device(args.device)
    found = {name: _measure(name, args, device) for name in args.names or DEFAULT}
    rows = [[name, *(f"{1e3 * one[key]:.3g} ms" for key in ("ours", "torch")), f"{one['ratio']:.2f}", one["beside"]]
            for name, one in found.items()]  # fmt: skip
    where = torch.cuda.get_device_name(device) if device.type == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    shape = {"steps": args.steps, "batch": args.batch, "inputs": args.inputs, "width": args.width}
    title = f"training step, T={args.steps} B={args.batch} D={args.inputs} H={args.width}, {where}, torch {torch.__version__}"
    output.table(title, ("model", "ours", "torch.nn", "ratio", "beside"), rows)
    output.result({"shape": shape, "device": where, "torch": torch.__version__, "pairs": args.pairs, "systems": found})
    return 0


def _measure(name: str, args: Any, device: Any) -> dict[str, Any]:
    """Return the median times of a step of ours and of torch's, and the median of the pairs' ratios."""
    import torch

    from steadyrnn.models.settings import ModelSettings
    from steadyrnn.models.systems import build_model
    from steadyrnn.tasks.base import Interface

    model: Any = build_model(ModelSettings(name, width=args.width), Interface(args.inputs, 1))
    ours: nn.Module = model.rnn.to(device)
    kinds: dict[str, Any] = {"LSTM": torch.nn.LSTM, "GRU": torch.nn.GRU}
    kind = type(ours).__name__
    theirs = kinds.get(kind, torch.nn.RNN)(args.inputs, args.width).to(device)
    x = torch.randn(args.steps, args.batch, args.inputs, device=device)
    first, second = _step(ours, x, device), _step(theirs, x, device)
    for _ in range(2):
        first(), second()
    pairs = [(first(), second()) for _ in range(args.pairs)]
    return {
        "ours": statistics.median(a for a, _ in pairs),
        "torch": statistics.median(b for _, b in pairs),
        "ratio": statistics.median(a / b for a, b in pairs),
        "beside": f"torch.nn.{type(theirs).__name__}",
    }


def _step(layer: "nn.Module", x: Any, device: Any) -> Callable[[], float]:
    """Return a function that runs a training step without the optimizer, and returns its seconds."""
    import torch

    def wait() -> None:
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    def run() -> float:
        layer.zero_grad(set_to_none=True)
        wait()
        start = time.perf_counter()
        output = layer(x)[0]
        output.square().mean().backward()
        wait()
        return time.perf_counter() - start

    return run
