"""``steadyrnn reproduce``: tables and figures of the papers, published and measured side by side."""

import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steadyrnn.errors import SteadyError

from .output import Output
from .parsing import add_flag, add_json, check_count, check_names, make_main, make_parser
from .seeds import read_seeds

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser

    from steadyrnn.experiments.base import Experiment
    from steadyrnn.jobs.reproduce import Reproduced
    from steadyrnn.jobs.work import Work

__all__ = ["EXAMPLES", "main", "parser"]

EXAMPLES = (
    "steadyrnn reproduce --list",
    "steadyrnn reproduce lin-table6 --quick",
    "steadyrnn reproduce lin-table2 miller-counterexamples --out results",
    "steadyrnn reproduce lin-table1 --quick --seeds 0..2 --out seeds --json",
)
_MOST_SEEDS = 1000


def parser() -> "ArgumentParser":
    """Return the command's parser."""
    made = make_parser(
        "reproduce",
        "Run tables and figures of the four papers by name, and print what is published beside what is measured.\n"
        "Names that begin with ours- are targets of this package beyond the papers, each with a goal.\n"
        "Each result is one JSON file, OUT/ID.json, or OUT/ID-quick.json with --quick; its picture is drawn into OUT/pictures\n"
        "if matplotlib is installed. Each finished cell is kept at once:\n"
        "after an interruption the same command goes on where it stopped. Exit status: 0 done, 1 cannot run, 2 misused,\n"
        "3 data missing, 130 interrupted.",
        EXAMPLES,
    )
    made.add_argument("ids", type=str, nargs="*", metavar="ID", help="Tables, figures and targets; --list shows all.")
    add_flag(
        made, "--list", "Show state, date, verdict and price of all; also what it is, of those that are named. Runs nothing."
    )
    add_flag(
        made,
        "--all",
        "Run all of the papers that this machine can: its data is there, and a GPU where a full run needs one. Goes on past "
        "one that fails, and ends with status 1.",
    )
    add_flag(made, "--quick", "Run a small version, which shows the effect in at most three minutes on two cores.")
    made.add_argument("--seeds", type=str | None, default=None, help="Seeds in place of the declared ones: 0..9, or 0,2,5.")
    made.add_argument("--out", type=str, default="results", help="Folder of the results.")
    add_flag(made, "--again", "Run all cells anew.")
    made.add_argument(
        "--jobs",
        type=int,
        default=1,
        help="Cells at a time, each in its own process; on one GPU 1, or with NVIDIA's Multi-Process Service about 6.",
    )
    made.add_argument("--threads", type=int | None, default=None, help="CPU threads of a process; with several --jobs, 1.")
    add_json(made)
    return made


def _run(own: "ArgumentParser", args: Any, argv: Sequence[str]) -> int:
    from steadyrnn.experiments.registry import EXPERIMENTS
    from steadyrnn.experiments.targets import TARGETS

    known = {**EXPERIMENTS, **TARGETS}
    check_count(own, "--threads", args.threads)
    check_count(own, "--jobs", args.jobs)
    check_names(own, "table, figure or target", args.ids, known)
    if len({*args.ids}) < len(args.ids):
        own.error("an ID is given twice")
    if args.list:
        return _list(args, [known[name] for name in args.ids or known])
    if bool(args.ids) == args.all:
        own.error("give IDs or --all, and not both; --list shows what there is")
    seeds = _read_seeds(own, args.seeds)
    chosen = [known[name] for name in args.ids] or _runnable_here(EXPERIMENTS.values(), args.quick)
    planned = [(one, one.work(args.quick, seeds if args.ids or one.draws(args.quick) else None)) for one in chosen]
    return _reproduce(args, planned)


def _list(args: Any, chosen: Sequence["Experiment"]) -> int:
    """Show where each stands; reads files, imports no torch."""
    from steadyrnn.experiments.standing import find_standing

    output, rows, found = Output(args.json), [], {}
    for one in chosen:
        stands = find_standing(one, args.out)
        state = f"{stands.state} ({stands.unfinished} cells done)" if stands.unfinished else stands.state
        rows.append([one.id, state, stands.date, stands.verdict, one.price, *([one.title] if args.ids else [])])
        found[one.id] = {
            "title": one.title, "place": one.place, "state": stands.state, "date": stands.date or None,
            "verdict": stands.verdict, "price": one.price, "where": one.where, "minutes": one.minutes, "runnable": one.runnable,
            "unfinished_cells": stands.unfinished,
        }  # fmt: skip
    columns = ("ID", "state", "date", "verdict", "price", *(["what"] if args.ids else []))  # all titles would not fit beside
    output.table(f"results in {args.out}", columns, rows)
    output.result({"out": args.out, "experiments": found})
    return 0


def _reproduce(args: Any, planned: Sequence[tuple["Experiment", "Work"]]) -> int:
    import torch

    from steadyrnn.jobs.reproduce import reproduce
    from steadyrnn.train.signals import Interrupted

    if args.threads is not None or args.jobs > 1:
        torch.set_num_threads(args.threads or 1)
    output, found, failed = Output(args.json), {}, dict[str, str]()
    for one, work in planned:
        command = ["steadyrnn", "reproduce", one.id, *(["--quick"] if args.quick else [])]
        command += ["--seeds", args.seeds] if args.seeds is not None and one.draws(args.quick) else []
        try:
            done = reproduce(work, args.out, again=args.again, jobs=args.jobs, command=command, progress="auto")
        except (KeyboardInterrupt, Interrupted) as error:
            print(
                f"steadyrnn: {one.id} goes on where it stopped with the same command; finished cells are kept", file=sys.stderr
            )
            if isinstance(error, Interrupted):
                return error.exit_code
            raise
        except Exception as error:
            if not args.all:
                raise
            failed[one.id] = str(error) if isinstance(error, SteadyError) else f"{type(error).__name__}: {error}"
            print(f"steadyrnn: {one.id} failed: {failed[one.id]}", file=sys.stderr)
            continue
        _show(output, one, done)
        picture = _draw(output, done)
        found[one.id] = {
            "path": Path(done.path).resolve(), "picture": picture and picture.resolve(), "verdict": done.record["verdict"],
            "claims": done.record["claims"],
        }  # fmt: skip
    output.result({"experiments": found, "failed": failed})
    return 1 if failed else 0


def _show(output: Output, one: "Experiment", done: "Reproduced") -> None:
    rows = [
        [claim["claim"], claim["published"]["says"], claim["ours"]["text"], _spread(claim["ours"]), claim["verdict"]]
        for claim in done.record["claims"]
    ]
    output.table(
        f"{one.id}: {one.title} ({one.place})", ("claim", "published", "ours", "mean ± spread (seeds)", "verdict"), rows
    )
    seconds = sum(done.record["made"]["seconds"].values())
    cells = f"{done.ran} cells run, {done.kept} finished before, {seconds:.0f} s in all"
    output.path(done.path, f"{done.path}: {done.record['verdict']}; {cells}")


def _draw(output: Output, done: "Reproduced") -> Path | None:
    """Write the picture beside the record, and return where; None where there is nothing to draw, or nothing to draw with."""
    from steadyrnn.experiments.picture import write_picture
    from steadyrnn.runs.files import remove_quietly

    path = done.path.parent / "pictures" / f"{done.path.stem}.svg"
    if done.record["curves"] and find_spec("matplotlib") is None:
        remove_quietly(path)  # it may be of other numbers
        output.note(f"{path}: not drawn, since matplotlib is missing. Install it with: pip install 'steadyrnn[report]'")
        return None
    if not write_picture(done.record, path):
        return None
    output.path(path)
    return path


def _spread(ours: dict[str, Any]) -> str:
    """Return mean, spread and number of seeds in words."""
    if ours["mean"] is None:
        return "-"
    spread = "" if ours["spread"] is None else f" ± {ours['spread']:.2g}"
    unit = f" {ours['unit']}" if ours["unit"] else ""
    return f"{ours['mean']:.4g}{spread}{unit}" + (f" ({ours['seeds']})" if ours["seeds"] else "")


def _runnable_here(experiments: Any, quick: bool) -> list["Experiment"]:
    """Return what this machine can run, and say what is left out: data that is not there, a GPU that a full run needs."""
    import torch

    from steadyrnn.tasks.locate import is_there

    device = torch.cuda.is_available()
    able = [one for one in experiments if one.runnable and (quick or device or one.where != "gpu")]
    missing = {one.id: [name for name in one.select_data(quick) if not is_there(name)] for one in able}
    for name, data in missing.items():
        if data:
            print(f"steadyrnn: {name} is left out: there is no data set {' or '.join(data)}", file=sys.stderr)
    return [one for one in able if not missing[one.id]]


def _read_seeds(own: "ArgumentParser", text: str | None) -> list[int] | None:
    """Read ``0..9`` or ``0,2,5``, or complain and leave."""
    if text is None:
        return None
    try:
        return read_seeds(text, _MOST_SEEDS)
    except ValueError as error:
        own.error(str(error))


main = make_main(parser, _run)
