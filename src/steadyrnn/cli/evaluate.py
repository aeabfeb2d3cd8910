"""``steadyrnn eval``: scores of a trained network, or text that it writes."""

import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from steadyrnn.errors import printable

from .output import Output, short
from .parsing import add_json, check_count, make_main, make_parser

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser

__all__ = ["EXAMPLES", "main", "parser"]

EXAMPLES = (
    "steadyrnn train addition --model.width 32 --task.length 20 --train.steps 50",
    "steadyrnn eval runs",
    "steadyrnn eval runs/addition/spectral --split validation --checkpoint last --json",
)


def parser() -> "ArgumentParser":
    """Return the command's parser."""
    made = make_parser(
        "eval",
        "Score a trained network on a split of its task.\n"
        "RUN is the folder of a run, or a folder above it: then the newest run in it is used.\n"
        "A language model writes text: --generate 20 --prompt 'the company said' --temperature 0.8",
        EXAMPLES,
    )
    made.add_argument("run", type=str, metavar="RUN", help="Folder of the run.")
    made.add_argument("--split", type=str, default="test", help="test, validation, or train where the task has a finite one.")
    made.add_argument("--checkpoint", type=str | None, default=None, help="best or last; null is the best there is.")
    made.add_argument("--batch-size", type=int | None, default=None, help="Rows of a batch; null is the run's.")
    made.add_argument("--device", type=str, default="auto", help="auto, cpu, cuda or cuda:1.")
    made.add_argument("--threads", type=int | None, default=None, help="CPU threads.")
    made.add_argument("--data-dir", type=str | None, default=None, help="Data folder, where it is not the run's.")
    made.add_argument(
        "--data", type=str | None, default=None,
        help="For data of your own: where the file is now, or another file, which is scored as a whole.",
    )  # fmt: skip
    made.add_argument("--generate", type=int | None, default=None, help="Write so many words instead of scoring.")
    made.add_argument("--prompt", type=str | None, default=None, help="Words the text starts with; null is a fresh line.")
    made.add_argument("--temperature", type=float | None, default=None, help="Of drawn words; null is the likeliest.")
    made.add_argument("--seed", type=int, default=0, help="Of drawn words.")
    add_json(made)
    return made


def _run(own: "ArgumentParser", args: Any, argv: Sequence[str]) -> int:
    for option in ("--threads", "--batch-size", "--generate"):
        check_count(own, option, getattr(args, option[2:].replace("-", "_")))
    if args.generate is None and (args.prompt is not None or args.temperature is not None):
        own.error("--prompt and --temperature belong to text: give --generate too")

    import torch

    if args.threads is not None:
        torch.set_num_threads(args.threads)
    where = {"checkpoint": args.checkpoint, "device": args.device, "data_dir": args.data_dir}
    return _score(args, where) if args.generate is None else _write(args, where)


def _score(args: Any, where: dict[str, Any]) -> int:
    from steadyrnn.jobs.evaluate import evaluate_run

    found = evaluate_run(args.run, args.split, batch_size=args.batch_size, data=args.data, **where)
    output = Output(args.json)
    rows = [[name, short(value), short(found.baselines.get(name))] for name, value in found.scores.items()]
    title = f"{found.run}: {found.split}, checkpoint {found.checkpoint} (step {found.step:,})"
    output.table(title, ("score", "value", "without looking at the input"), rows)
    output.result(asdict(found))
    return 0


def _write(args: Any, where: dict[str, Any]) -> int:
    from steadyrnn.jobs.evaluate import write_text
    from steadyrnn.tasks.vocabulary import END, UNKNOWN

    found = write_text(args.run, args.generate, args.prompt, temperature=args.temperature, seed=args.seed, **where)
    if found.unknown:
        print(printable(f"steadyrnn: not in the vocabulary, read as {UNKNOWN}: {', '.join(found.unknown)}"), file=sys.stderr)
    output = Output(args.json)
    output.text(found.text if found.prompt == END else f"{found.prompt} {found.text}")
    output.result(asdict(found))
    return 0


main = make_main(parser, _run)
