"""``steadyrnn sweep``: many settings, each with several seeds, from one file; the best by validation."""

import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .output import Output, short
from .parsing import add_flag, add_json, check_count, make_parser
from .preparse import SHORT_FORMS, split_options, write_out

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser

    from steadyrnn.jobs.search.plan import SweepPlan
    from steadyrnn.jobs.search.plan_file import SweepFile
    from steadyrnn.jobs.search.result import Standing

__all__ = ["EXAMPLES", "main", "parser"]

EXAMPLES = (
    "steadyrnn sweep --example > sweep.yaml",
    "steadyrnn sweep sweep.yaml --train.steps 20 --jobs 1",
    "steadyrnn sweep sweep.yaml --trials 1 --seeds 0..2 --jobs 1 --json",
    "steadyrnn sweep --resume runs --jobs 1",
    "steadyrnn report runs/addition/sweep --out sweeps.html",
)
EXAMPLE = """\
# What `steadyrnn sweep` is to try: each model with each combination of the grid, with settings drawn from the search.
task: addition  # or, for a file of yours, `data: FILE`
models: [spectral, gru]
seeds: 0..1  # each trial is trained with each seed of weights, and has the mean of their scores
settings:  # what all trials have in common, as in a file for `train --config`
  task: {length: 10, validation: 100, test: 100}
  train: {steps: 40, batch_size: 16, device: cpu, probe: {every: 0}}
grid:
  model.width: [4, 8]
search:  # a range, or a list of choices
  train.optimizer.lr: {low: 0.001, high: 0.1, log: true}
trials: 2  # settings drawn for each combination
sampler: random  # tpe, random, grid
pruner: none  # none, median, halving
"""
_DOTTED = ("--task.", "--model.", "--train.")
_FLAGS = ("-h", "--help", "--json", "--quiet", "--example")
_SHOWN = 12
"""Trials that are printed; the table in the folder has all."""


def parser() -> "ArgumentParser":
    """Return the command's parser."""
    made = make_parser(
        "sweep",
        "Try many settings, each with several seeds, and show the best by validation. CONFIG is a YAML or JSON file;\n"
        "`--example` prints one. Everything is kept in runs/TASK/sweep/ID: a run folder per trial and seed, the journal of\n"
        "optuna, which chooses the settings, table.csv, table.tex, table.json and report.html. Settings behind CONFIG, such\n"
        "as --train.steps 50, take the place of those in the file. Ctrl-C saves; `--resume` goes on and repeats nothing that\n"
        "has ended. Needs the extra `sweep`. Exit status: 0 all trials have ended, 1 some have not, or none could finish.",
        EXAMPLES,
    )
    made.add_argument("config", type=str, nargs="?", metavar="CONFIG", help="What to try: a YAML or JSON file.")
    add_flag(made, "--example", "Print a file to start from, and leave.")
    made.add_argument("--out", type=str, default="runs", help="Folder of all runs.")
    made.add_argument(
        "--resume", type=str | None, default=None, help="Go on with the sweep in this folder, or the newest below it."
    )
    made.add_argument("--trials", type=int | None, default=None, help="Settings drawn, in place of `trials` in the file.")
    made.add_argument("--seeds", type=str | None, default=None, help="Seeds in place of those in the file: 0..9, or 0,2,5.")
    made.add_argument(
        "--jobs", type=int | None, default=None,
        help="Trials at a time, each in its own process; 1 runs them in this one. Null: the number of cores, or 1 on a GPU.",
    )  # fmt: skip
    made.add_argument("--threads", type=int, default=1, help="CPU threads of a process.")
    made.add_argument(
        "--executor", type=str, default="processes", choices=["processes", "local", "slurm"],
        help="Where trials run: processes of this machine, the same as jobs of submitit, or jobs on Slurm.",
    )  # fmt: skip
    made.add_argument(
        "--slurm", type=str | None, default=None, metavar="KEY=VALUE,...",
        help="Run trials on Slurm with these options of submitit: partition=gpu,time=60 (minutes).",
    )  # fmt: skip
    add_flag(made, "--quiet", "Print nothing but the folder of the sweep.")
    add_json(made)
    return made


def main(argv: Sequence[str]) -> int:
    """Run the command; return the exit status."""
    own, args, dotted = parser(), list[str](), list[str]()
    forms = {name: form for name, form in SHORT_FORMS.items() if name not in ("--threads", "--seed", "--model")}
    for name, _, taken in split_options(write_out(argv, forms), _FLAGS):
        (dotted if name.startswith(_DOTTED) else args).extend(taken)
    return _run(own, own.parse_args(args), dotted, argv)


def _run(own: "ArgumentParser", args: Any, dotted: Sequence[str], argv: Sequence[str]) -> int:
    if args.example:
        print(EXAMPLE, end="")
        return 0
    check_count(own, "--jobs", args.jobs)
    check_count(own, "--threads", args.threads)
    options = _read_options(own, args)
    if (args.config is None) == (args.resume is None):
        own.error("give CONFIG to start a sweep, or --resume to go on with one, and not both; --example prints a CONFIG")
    if args.resume is not None and (dotted or args.trials is not None or args.seeds is not None):
        own.error("--resume goes on with the settings of the sweep: others cannot be given with it")

    from steadyrnn.errors import ArgumentError

    file, plan = None, None
    try:
        if args.config is not None:
            file, plan = _read_plan(args, dotted)
    except ArgumentError as error:
        own.error(str(error))

    from steadyrnn.jobs.search.folder import find_newest_sweep
    from steadyrnn.jobs.sweep import SweepInterruptedError, run_sweep

    output = Output(args.json, args.quiet)
    resume = None if args.resume is None else find_newest_sweep(Path(args.resume))
    try:
        standing = run_sweep(
            plan, args.out, file=file, resume=resume, jobs=args.jobs, threads=args.threads,
            executor="slurm" if args.slurm is not None else args.executor, options=options,
            progress="silent" if output.quiet else "auto", command=["steadyrnn", "sweep", *argv], note=output.note,
        )  # fmt: skip
    except SweepInterruptedError as error:
        print(f"steadyrnn: go on with: steadyrnn sweep --resume {shlex.quote(str(error.folder))}", file=sys.stderr)
        raise
    _print(output, standing)
    return 1 if standing.unfinished or not standing.best else 0


def _read_plan(args: Any, dotted: Sequence[str]) -> "tuple[SweepFile, SweepPlan]":
    """Return the user's file and what it asks for, with what the command line says in its place."""
    from steadyrnn.jobs.search.plan_file import make_plan, read_sweep_file, task_of_file

    from .train_arguments import train_parser

    file = read_sweep_file(Path(args.config))
    given: Mapping[str, Any] = {}
    if dotted:
        values = train_parser(task_of_file(file), command="sweep").parse_args(dotted, defaults=False)
        given = {name: value for name, value in values.items() if f"--{name}".startswith(_DOTTED)}
    return file, make_plan(file, given, trials=args.trials, seeds=args.seeds)


def _read_options(own: "ArgumentParser", args: Any) -> dict[str, Any]:
    """Return the options for Slurm, numbers as numbers."""
    if args.slurm is None:
        return {}
    if args.executor == "local":
        own.error("--slurm and --executor local cannot both be given")
    found: dict[str, Any] = {}
    for part in filter(None, args.slurm.split(",")):
        name, equals, value = part.partition("=")
        if not equals or not name.isidentifier() or not value or name in found:
            own.error(f"--slurm must be KEY=VALUE,..., each key once, such as partition=gpu,time=60, but has {part!r}")
        found[name] = int(value) if value.isascii() and value.isdecimal() else value
    return found


def _print(output: Output, standing: "Standing") -> None:
    """Print what validation chose, the first trials, and where everything is."""
    from steadyrnn.jobs.search.result import to_dict

    metric, scores = standing.metric, list(dict.fromkeys(name for best in standing.best.values() for name in best.test))
    rows = [
        [
            model, str(best.trial.number), _words(best.trial.settings), _with(best.trial.value, best.deviation),
            *(_with(best.test.get(name), best.test_deviation.get(name)) for name in scores),
            "" if best.stable is None else "yes" if best.stable else "no",
        ]
        for model, best in standing.best.items()
    ]  # fmt: skip
    tests = [f"test {name}" for name in scores]
    columns = ("model", "trial", "settings", f"validation {metric}", *tests, "proven to forget")
    output.table("chosen by validation", columns, rows)
    shown = [
        [str(trial.number), trial.model, _words(trial.settings), short(trial.value), trial.state]
        for trial in standing.trials[:_SHOWN]
    ]
    counts = ", ".join(f"{standing.count(state)} {state}" for state in ("finished", "pruned", "failed"))
    output.table(
        f"{len(standing.trials)} of {standing.total} trials: {counts}",
        ("trial", "model", "settings", f"validation {metric}", "state"), shown,
    )  # fmt: skip
    for number, why in standing.unfinished.items():
        print(f"steadyrnn: trial {number} has not ended: {why}; go on with --resume {standing.folder}", file=sys.stderr)
    page = shlex.quote(str(standing.folder / "report.html"))
    output.path(standing.folder, f"table: {standing.folder}/table.csv, table.tex, table.json\npage: {page}")
    output.result({"folder": standing.folder, **to_dict(standing)})


def _words(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {short(value)}" for name, value in settings.items()) or "-"


def _with(value: float | None, deviation: float | None) -> str:
    return short(value) if deviation is None else f"{short(value)} ± {short(deviation)}"
