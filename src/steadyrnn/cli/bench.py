"""``steadyrnn bench``: a training step of our layers beside torch's, on this machine."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from steadyrnn.models.registry import SYSTEMS

from .output import Output
from .parsing import add_flag, add_json, check_count, check_names, make_main, make_parser

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser

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
    add_json(made)
    return made


def _run(own: "ArgumentParser", args: Any, argv: Sequence[str]) -> int:
    fitting = [name for name, system in SYSTEMS.items() if system.reads == "time" and not system.wraps]
    check_names(own, "recurrent model", args.names, fitting)
    for name in ("steps", "batch", "inputs", "width", "pairs", "threads"):
        check_count(own, f"--{name}", getattr(args, name))
    if args.calibrate and args.names:
        own.error("--calibrate measures engines, not models: leave the names out")
    given = next((name for name in ("out", "only", "shard", "engines", "again") if getattr(args, name)), None)
    if given is not None and not args.calibrate:
        own.error(f"--{given} needs --calibrate")
    return _calibrate(args, argv) if args.calibrate else _compare(args)


def _calibrate(args: Any, argv: Sequence[str]) -> int:
    """Measure the engines of a GPU; 1 where one failed or was wrong."""
    from steadyrnn.jobs.calibrate import calibrate

    output = Output(args.json)
    which = {"only": args.only, "shard": args.shard, "engines": args.engines, "again": args.again}
    command = ["steadyrnn", "bench", *argv]
    found = calibrate(args.out, device=args.device, **which, command=command, note=output.note)
    output.text(f"{found.path}: {found.rows} of {found.of} rows. STEADYRNN_CALIBRATION={found.path} makes `auto` go by it.")
    output.result({"table": found.path, "rows": found.rows, "of": found.of, "faults": found.faults})
    return 1 if found.faults else 0


def _compare(args: Any) -> int:
    """Measure models beside torch's layers, and print."""
    import torch

    from steadyrnn.jobs.compare import compare_with_torch

    if args.threads is not None:
        torch.set_num_threads(args.threads)
    sizes, output = {name: args[name] for name in ("steps", "batch", "inputs", "width")}, Output(args.json)
    found = compare_with_torch(args.names or DEFAULT, **sizes, pairs=args.pairs, device=args.device)
    rows = [[name, *(f"{1e3 * one[key]:.3g} ms" for key in ("ours", "torch")), f"{one['ratio']:.2f}", one["beside"]]
            for name, one in found.systems.items()]  # fmt: skip
    shape = f"T={args.steps} B={args.batch} D={args.inputs} H={args.width}"
    title = f"training step, {shape}, {found.device}, torch {torch.__version__}"
    output.table(title, ("model", "ours", "torch.nn", "ratio", "beside"), rows)
    told = {"shape": sizes, "device": found.device, "torch": torch.__version__, "pairs": args.pairs}
    output.result({**told, "systems": found.systems})
    return 0


main = make_main(parser, _run)
