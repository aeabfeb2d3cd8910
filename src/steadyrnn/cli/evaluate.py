"""``steadyrnn eval``: scores of a trained network, or text that it writes."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from steadyrnn.errors import ArgumentError, printable

from .output import Output, short
from .parsing import add_flag, check_count, make_parser

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser

    from steadyrnn.tasks.base import Task

    from .loading import Trained

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
        "RUN is the folder of a run, or one above: then the newest below it is taken.\n"
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
    made.add_argument("--generate", type=int | None, default=None, help="Write so many words instead of scoring.")
    made.add_argument("--prompt", type=str | None, default=None, help="Words the text starts with; null is a fresh line.")
    made.add_argument("--temperature", type=float | None, default=None, help="Of drawn words; null takes the likeliest.")
    made.add_argument("--seed", type=int, default=0, help="Of drawn words.")
    add_flag(made, "--json", "Print one JSON object and nothing else on stdout.")
    return made


def main(argv: Sequence[str]) -> int:
    """Run the command; return the exit status."""
    own = parser()
    args = own.parse_args(argv)
    output = Output(args.json)
    for option in ("--threads", "--batch-size", "--generate"):
        check_count(own, option, getattr(args, option[2:].replace("-", "_")))
    if args.generate is None and (args.prompt is not None or args.temperature is not None):
        own.error("--prompt and --temperature belong to text: give --generate too")

    import torch

    from steadyrnn.train.device import choose_device

    from .loading import load_trained, task_of

    if args.threads is not None:
        torch.set_num_threads(args.threads)
    trained = load_trained(args.run, args.checkpoint)
    device = choose_device(args.device)
    trained.model.to(device)
    task = task_of(trained.configuration, args.data_dir).to(device)
    if args.generate is not None:
        return _write(args, trained, task, output)
    return _score(args, trained, task, output)


def _score(args: Any, trained: "Trained", task: "Task", output: Output) -> int:
    from steadyrnn.train.evaluation import evaluate

    settings = trained.configuration.train
    size = args.batch_size or settings.evaluation_batch_size or settings.batch_size
    scores = evaluate(trained.model, task, args.split, size)
    rows = [[name, short(value), short(task.baselines.get(name))] for name, value in scores.items()]
    title = f"{trained.run.folder}: {args.split}, checkpoint {trained.checkpoint} (step {trained.step:,})"
    output.table(title, ("score", "value", "without looking at the input"), rows)
    output.result({
        "run": trained.run.folder, "split": args.split, "checkpoint": trained.checkpoint, "step": trained.step,
        "scores": scores, "baselines": dict(task.baselines),
    })  # fmt: skip
    return 0


def _write(args: Any, trained: "Trained", task: "Task", output: Output) -> int:
    from steadyrnn.tasks.decoding import generate
    from steadyrnn.tasks.text import Language
    from steadyrnn.tasks.vocabulary import END, UNKNOWN

    if not isinstance(task, Language):
        raise ArgumentError(f"`--generate` needs a language model, but the run's task is {trained.configuration.task_name!r}.")
    prompt = args.prompt or END
    tokens = task.vocabulary.encode(prompt)
    unknown = [word for word in prompt.split() if word not in task.vocabulary.numbers]
    if unknown:
        print(printable(f"steadyrnn: not in the vocabulary, read as {UNKNOWN}: {', '.join(unknown)}"), file=sys.stderr)
    words = generate(trained.model, tokens.to(task.device), args.generate, args.temperature, args.seed)
    text = task.vocabulary.decode(words)
    output.text(text if prompt == END else f"{prompt} {text}")
    found = {"run": trained.run.folder, "checkpoint": trained.checkpoint, "prompt": prompt, "unknown": unknown, "text": text}
    output.result(found)
    return 0
