"""Turn a trained network into an equivalent one: weights, a report, and a file that loads them, in a folder."""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors.torch import save

from steadyrnn.errors import ArgumentError, ConversionError, RunError, not_among
from steadyrnn.layers.base import RecurrentLayer
from steadyrnn.layers.from_torch import from_torch
from steadyrnn.models.converted import convert_layer_of
from steadyrnn.runs.files import make_folder, write_atomically
from steadyrnn.runs.json_text import null_for_nonfinite, render

from .conversions import FORMS, ConversionOptions, ConvertedModel
from .loading import Trained, find_input_bound, load_trained, require_sequence_model

__all__ = ["FILES", "Conversion", "convert_run"]

FILES = ("model.safetensors", "load.py", "report.json")
"""What a conversion writes."""

_LOAD = '''"""Load the {form} form of {name}."""

{imports}

{classes}
def load():
    """Return the whole model: `{call}`."""
    folder = Path(__file__).parent
    {code}
    return model.eval()
'''


@dataclass(frozen=True)
class Conversion:
    """A network that was converted and written.

    Args:
        folder: Where it was written; ``load.py`` there has ``load()``, which returns the model.
        report: What ``report.json`` holds: form, run, checkpoint, input bound, what is proven, how far the self-check was off.
        text: What is proven, for people.
        check: How far outputs were from the original's on random admissible inputs, largest 2-norm.
    """

    folder: Path
    report: dict[str, Any]
    text: str
    check: float


def convert_run(
    path: str | Path,
    form: str,
    folder: str | Path | None = None,
    *,
    input_bound: float | None = None,
    checkpoint: str | None = None,
    force: bool = False,
    **options: Any,
) -> Conversion:
    """Convert the network of a run, check it against the original, and write it.

    Args:
        path: The run folder, or one above: then the newest run below it.
        form: ``unitary``, ``feedforward``, ``parallel`` or ``torch``.
        folder: Where to write; None is ``converted/FORM``.
        input_bound: Bound on the 2-norm of every input; None is what was measured when the run was trained.
        checkpoint: ``best`` or ``last``; None is the best there is.
        force: Whether to replace a conversion that is in the folder already.
        options: ``eps``, ``tol``, ``horizon``, ``approximate``: see :class:`~steadyrnn.jobs.conversions.ConversionOptions`.

    Raises:
        ConversionError: It is impossible; the message names the theorem.
        RunError: The folder holds a conversion already.

    Example:
        >>> convert_run("runs", "torch", "plain").check < 1e-5
        True
    """
    if form not in FORMS:
        raise ArgumentError(not_among("form", form, FORMS))
    target = Path("converted") / form if folder is None else Path(folder)
    _refuse_another(target, force)
    trained = load_trained(path, checkpoint)
    part = require_sequence_model(trained, ConversionError)
    bound, _ = find_input_bound(input_bound, trained)
    model: Any = trained.model
    if not isinstance(part.rnn, RecurrentLayer):  # forms are written as layers of ours
        model = convert_layer_of(model, from_torch)
    converted = FORMS[form](model, ConversionOptions(bound, **options))
    report = {
        "form": form, "run": str(trained.run.folder), "checkpoint": trained.checkpoint, "input_bound": bound,
        "report": converted.report, "self_check": converted.check,
    }  # fmt: skip
    _write(target, form, trained, converted, report)
    return Conversion(target, report, converted.words, converted.check)


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


def _write(folder: Path, form: str, trained: Trained, converted: ConvertedModel, report: dict[str, Any]) -> None:
    """Write weights, report and the file that loads them."""
    make_folder(folder)
    tensors = {name: tensor.detach().contiguous().clone() for name, tensor in converted.tensors.items()}
    name = re.sub(r"[^\w.+-]", "_", trained.run.folder.name, flags=re.ASCII)  # it becomes a part of a program
    code = _LOAD.format(
        form=form, name=name, imports=_imports(converted.imports), classes=converted.classes,
        call=converted.call, code="\n    ".join(converted.code),
    )  # fmt: skip
    write_atomically(folder / "model.safetensors", save(tensors))
    write_atomically(folder / "load.py", code.encode())
    write_atomically(folder / "report.json", render(null_for_nonfinite(report, "report")).encode())


def _imports(more: Sequence[str]) -> str:
    """Return the lines that import: of the standard library, then the others."""
    standard = [*(line for line in more if line == "import json"), "from pathlib import Path"]
    others = ["import torch", "from safetensors.torch import load_file", *(line for line in more if line not in standard)]
    return "\n".join([*standard, "", *others])
