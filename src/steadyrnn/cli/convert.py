"""``steadyrnn convert``: an equivalent network in another form, checked, with a file that loads it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .output import Output
from .parsing import add_flag, add_json, make_main, make_parser

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser

__all__ = ["EXAMPLES", "main", "parser"]

NAMES = ("unitary", "feedforward", "parallel", "torch")
EXAMPLES = (
    "steadyrnn train addition --model contractive --model.width 16 --model.bound 0.9 --task.length 20 --train.steps 50",
    "steadyrnn convert runs --to unitary --out unitary",
    "steadyrnn convert runs --to feedforward --eps 1e-2 --input-bound 2",
    "steadyrnn convert runs --to parallel --tol 1e-6 --json",
    "steadyrnn convert runs --to torch",
)

OWNERS = {"eps": "feedforward", "tol": "parallel", "horizon": "unitary", "approximate": "unitary"}
"""The form that an option belongs to: of another one it would change nothing."""


def parser() -> "ArgumentParser":
    """Return the command's parser."""
    made = make_parser(
        "convert",
        "Turn a trained network into an equivalent one, embedding and readout included, and check it against the original.\n"
        "unitary: orthogonal recurrent weight, same outputs (contractive ReLU networks). feedforward: windows of the last k\n"
        "inputs, outputs within --eps. parallel: windows at once, not steps one by one, error at most --tol and rounding.\n"
        "torch: layers of torch.nn alone. What is impossible is refused with the theorem that says so.\n"
        "RUN is the folder of a run, or a folder above it: then the newest run in it is used.",
        EXAMPLES,
    )
    made.add_argument("run", type=str, metavar="RUN", help="Folder of the run.")
    made.add_argument("--to", type=str, choices=[*NAMES], required=True, help="The form.")
    made.add_argument("--out", type=str | None, default=None, help="Folder to write; null is converted/FORM.")
    made.add_argument(
        "--input-bound", type=float | None, default=None,
        help="Bound on the 2-norm of every input; null is what was measured when the run was trained.",
    )  # fmt: skip
    made.add_argument("--eps", type=float | None, default=None, help="Error allowed, of feedforward; null is 1e-3.")
    made.add_argument("--tol", type=float | None, default=None, help="Truncation allowed, of parallel; null is 1e-5.")
    made.add_argument("--horizon", type=int | None, default=None, help="Longest sequence, of unitary where nothing contracts.")
    made.add_argument("--checkpoint", type=str | None, default=None, help="best or last; null is the best there is.")
    add_flag(made, "--approximate", "Whether sigmoid and tanh may become unitary up to an error.")
    add_flag(made, "--force", "Replace a conversion that is in the folder already.")
    add_flag(made, "--quiet", "Print nothing but the folder that was written.")
    add_json(made)
    return made


def _run(own: "ArgumentParser", args: Any, argv: Sequence[str]) -> int:
    options = {name: args[name] for name in OWNERS if args[name] is not None and args[name] is not False}
    for name in options:
        if OWNERS[name] != args.to:
            own.error(f"--{name} belongs to --to {OWNERS[name]}, but the form is {args.to}")

    from steadyrnn.jobs.convert import convert_run

    where = {"input_bound": args.input_bound, "checkpoint": args.checkpoint, "force": args.force}
    found = convert_run(args.run, args.to, args.out, **where, **options)
    output = Output(args.json, args.quiet)
    output.text(found.text)
    output.text(f"self-check: outputs differ by at most {found.check:.3g} on random admissible inputs")
    output.path(found.folder, f"written: {found.folder} (`from load import load` there; `load()` returns the model)")
    output.result({"folder": found.folder, **found.report})
    return 0


main = make_main(parser, _run)
