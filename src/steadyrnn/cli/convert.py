"""``steadyrnn convert``: an equivalent network in another form, checked, with a file that loads it."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steadyrnn.errors import ConversionError

from .output import Output, plain
from .parsing import add_flag, make_parser

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser

    from .forms import Converted
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

_LOAD = '''"""Load the {form} form of the recurrent layer of {name}."""

from pathlib import Path

import torch
from safetensors.torch import load_file
{imports}

def load():
    """Return the layer, and the tensors of embedding and readout by name."""
    folder = Path(__file__).parent
    layer = {code}
    layer.load_state_dict(load_file(folder / "layer.safetensors"))
    {wrap}
    return module, load_file(folder / "rest.safetensors")
'''


def parser() -> "ArgumentParser":
    """Return the command's parser."""
    made = make_parser(
        "convert",
        "Turn the recurrent layer of a trained network into an equivalent one, and check it against the original.\n"
        "unitary: orthogonal recurrent weight, same outputs (contractive ReLU networks). feedforward: windows of the last k\n"
        "inputs, error at most --eps. parallel: windows at once, not steps one by one, error at most --tol and rounding.\n"
        "torch: the plain torch.nn layer. What is impossible is refused with the theorem that says so.\n"
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
    made.add_argument("--eps", type=float, default=1e-3, help="Error allowed, of feedforward.")
    made.add_argument("--tol", type=float, default=1e-5, help="Truncation allowed, of parallel.")
    made.add_argument("--horizon", type=int | None, default=None, help="Longest sequence, of unitary where nothing contracts.")
    made.add_argument("--checkpoint", type=str | None, default=None, help="best or last; null is the best there is.")
    add_flag(made, "--approximate", "Whether sigmoid and tanh may become unitary up to an error.")
    add_flag(made, "--quiet", "Print nothing but the folder that was written.")
    add_flag(made, "--json", "Print one JSON object and nothing else on stdout.")
    return made


def main(argv: Sequence[str]) -> int:
    """Run the command; return the exit status."""
    args = parser().parse_args(argv)
    output = Output(args.json, args.quiet)

    from .forms import FORMS, Wish
    from .loading import known_input_bound, load_trained, sequence_model

    trained = load_trained(args.run, args.checkpoint)
    model = sequence_model(trained, ConversionError)
    bound, _ = known_input_bound(args.input_bound, trained)
    layer: Any = model.rnn
    converted = FORMS[args.to](layer, Wish(bound, args.eps, args.tol, args.horizon, args.approximate))
    folder = Path(args.out) if args.out is not None else Path("converted") / args.to
    report = {
        "form": args.to, "run": str(trained.run.folder), "checkpoint": trained.checkpoint, "input_bound": bound,
        "report": converted.report, "self_check": converted.check,
    }  # fmt: skip
    _write(folder, args.to, trained, converted, report)
    output.text(converted.words)
    output.text(f"self-check: outputs differ by at most {converted.check:.3g} on random admissible inputs")
    output.path(folder, f"written: {folder} (load it with `from load import load` there)")
    output.result({"folder": folder, **report})
    return 0


def _write(folder: Path, form: str, trained: "Trained", converted: "Converted", report: dict[str, Any]) -> None:
    """Write weights, report and the file that loads them."""
    from safetensors.torch import save

    from steadyrnn.runs.files import write_atomically

    from .loading import sequence_model

    whole = sequence_model(trained, ConversionError).state_dict()
    rest = {name: tensor.contiguous().clone() for name, tensor in whole.items() if not name.startswith("rnn.")}
    folder.mkdir(parents=True, exist_ok=True)
    layer = {name: tensor.detach().contiguous().clone() for name, tensor in converted.tensors.items()}
    imports = "\nimport steadyrnn as sr\n" if "sr." in "".join([converted.code, *converted.wrap]) else ""
    code = _LOAD.format(
        form=form, name=trained.run.folder.name, code=converted.code, wrap="\n    ".join(converted.wrap), imports=imports
    )  # fmt: skip
    write_atomically(folder / "layer.safetensors", save(layer))
    write_atomically(folder / "rest.safetensors", save(rest))
    write_atomically(folder / "load.py", code.encode())
    write_atomically(folder / "report.json", (json.dumps(plain(report), indent=2) + "\n").encode())
