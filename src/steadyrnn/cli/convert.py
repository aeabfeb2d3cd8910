"""``steadyrnn convert``: an equivalent network in another form, checked, with a file that loads it."""

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steadyrnn.errors import ConversionError, RunError

from .output import Output, plain
from .parsing import add_flag, make_parser

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser

    from .conversions import Converted
    from .loading import Trained

__all__ = ["EXAMPLES", "main", "parser"]

NAMES = ("unitary", "feedforward", "parallel", "torch")
EXAMPLES = (
    "steadyrnn train addition --model contractive --model.width 16 --model.bound 0.9 --task.length 20 --train.steps 50",
    "steadyrnn convert runs --to unitary --out unitary",
    "steadyrnn convert runs --to feedforward --eps 1e-2 --input-bound 2",
    "steadyrnn convert runs --to parallel --tol 1e-6 --json",
    "steadyrnn convert runs --to torch",
)

_LOAD = '''"""Load the {form} form of {name}."""

{imports}

{classes}
def load():
    """Return the whole model: `{call}`."""
    folder = Path(__file__).parent
    {code}
    return model.eval()
'''
OWNERS = {"eps": "feedforward", "tol": "parallel", "horizon": "unitary", "approximate": "unitary"}
"""The form that an option belongs to: of another one it would change nothing."""
FILES = ("model.safetensors", "load.py", "report.json")
"""What a conversion writes."""


def parser() -> "ArgumentParser":
    """Return the command's parser."""
    made = make_parser(
        "convert",
        "Turn a trained network into an equivalent one, embedding and readout included, and check it against the original.\n"
        "unitary: orthogonal recurrent weight, same outputs (contractive ReLU networks). feedforward: windows of the last k\n"
        "inputs, outputs within --eps. parallel: windows at once, not steps one by one, error at most --tol and rounding.\n"
        "torch: layers of torch.nn alone. What is impossible is refused with the theorem that says so.\n"
        "RUN is the folder of a run, or one above: then the newest below it.",
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
    add_flag(made, "--json", "Print one JSON object and nothing else on stdout.")
    return made


def main(argv: Sequence[str]) -> int:
    """Run the command; return the exit status."""
    own = parser()
    args = own.parse_args(argv)
    asked = {name: args[name] for name in OWNERS if args[name] is not None and args[name] is not False}
    for name in asked:
        if OWNERS[name] != args.to:
            own.error(f"--{name} belongs to --to {OWNERS[name]}, but the form is {args.to}")
    output = Output(args.json, args.quiet)

    from .conversions import FORMS, Wish
    from .loading import known_input_bound, load_trained, sequence_model

    folder = Path(args.out) if args.out is not None else Path("converted") / args.to
    _refuse_another(folder, args.force)
    trained = load_trained(args.run, args.checkpoint)
    sequence_model(trained, ConversionError)
    bound, _ = known_input_bound(args.input_bound, trained)
    model: Any = trained.model
    converted = FORMS[args.to](model, Wish(bound, **asked))
    report = {
        "form": args.to, "run": str(trained.run.folder), "checkpoint": trained.checkpoint, "input_bound": bound,
        "report": converted.report, "self_check": converted.check,
    }  # fmt: skip
    _write(folder, args.to, trained, converted, report)
    output.text(converted.words)
    output.text(f"self-check: outputs differ by at most {converted.check:.3g} on random admissible inputs")
    output.path(folder, f"written: {folder} (`from load import load` there; `load()` returns the model)")
    output.result({"folder": folder, **report})
    return 0


def _refuse_another(folder: Path, force: bool) -> None:
    """Refuse to write over what is there, unless told to."""
    if folder.exists() and not folder.is_dir():
        raise RunError(f"`--out` must name a folder, but {str(folder)!r} is a file.")
    there = [name for name in FILES if os.path.lexists(folder / name)]
    if there and not force:
        raise RunError(
            f"{str(folder)!r} holds a conversion already ({', '.join(there)}). Name another folder, --out FOLDER, or replace "
            "it, --force."
        )


def _write(folder: Path, form: str, trained: "Trained", converted: "Converted", report: dict[str, Any]) -> None:
    """Write weights, report and the file that loads them."""
    from safetensors.torch import save

    from steadyrnn.runs.files import make_folder, write_atomically

    make_folder(folder)
    tensors = {name: tensor.detach().contiguous().clone() for name, tensor in converted.tensors.items()}
    name = re.sub(r"[^\w.+-]", "_", trained.run.folder.name, flags=re.ASCII)  # it becomes a part of a program
    code = _LOAD.format(
        form=form, name=name, imports=_imports(converted.imports), classes=converted.classes,
        call=converted.call, code="\n    ".join(converted.code),
    )  # fmt: skip
    write_atomically(folder / "model.safetensors", save(tensors))
    write_atomically(folder / "load.py", code.encode())
    write_atomically(folder / "report.json", (json.dumps(plain(report), indent=2) + "\n").encode())


def _imports(more: Sequence[str]) -> str:
    """Return the lines that import: of the standard library, then the others."""
    standard = [*(line for line in more if line == "import json"), "from pathlib import Path"]
    others = ["import torch", "from safetensors.torch import load_file", *(line for line in more if line not in standard)]
    return "\n".join([*standard, "", *others])
