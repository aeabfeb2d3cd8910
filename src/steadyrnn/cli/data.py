"""``steadyrnn data``: which data sets there are, where they come from, whether their files are the right ones."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from steadyrnn.errors import DataError

from .output import Output
from .parsing import add_json, check_names, make_main, make_parser

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser

__all__ = ["EXAMPLES", "main", "parser"]

EXAMPLES = (
    "steadyrnn data list",
    "steadyrnn data list --json",
    "steadyrnn data check mnist ptb",
)

NO_DATA = 3


def parser() -> "ArgumentParser":
    """Return the command's parser."""
    made = make_parser(
        "data",
        "list: every data set, whether it is there, and where a person gets it.\n"
        "check: compare size and SHA-256 of every file with the published ones; status 3 where one is missing or wrong.\n"
        "Data is looked for in --data-dir, else in the folder that the environment variable STEADYRNN_DATA names.\n"
        "Nothing is ever downloaded.",
        EXAMPLES,
    )
    made.add_argument("action", type=str, choices=["list", "check"], help="What to do.")
    made.add_argument("names", type=str, nargs="*", metavar="NAME", help="Data sets; none means all.")
    made.add_argument("--data-dir", type=str | None, default=None, help="The data folder.")
    add_json(made)
    return made


def _run(own: "ArgumentParser", args: Any, argv: Sequence[str]) -> int:
    from steadyrnn.tasks.locate import DATA_SETS

    check_names(own, "data set", args.names, DATA_SETS)
    names, output = args.names or list(DATA_SETS), Output(args.json)
    return _list(args, names, output) if args.action == "list" else _check(args, names, output)


def _list(args: Any, names: Sequence[str], output: Output) -> int:
    """Show what there is; files are looked for, not read."""
    from steadyrnn.tasks.locate import DATA_SETS, VARIABLE, data_folder, is_there

    try:
        folder = data_folder(args.data_dir)
    except DataError:
        folder = None
    rows, found = [], {}
    for name in names:
        data = DATA_SETS[name]
        there = folder is not None and is_there(name, folder)
        rows.append([name, "yes" if there else "no", f"{data.title}. From: {data.obtain}."])
        found[name] = {"present": there, "title": data.title, "obtain": data.obtain, "files": [f.path for f in data.files]}
    title = f"data folder: {folder}" if folder else f"no data folder: set {VARIABLE} or give --data-dir"
    output.table(title, ("name", "there", "what"), rows)
    output.result({"folder": folder, "data": found})
    return 0


def _check(args: Any, names: Sequence[str], output: Output) -> int:
    """Read every file; say what is wrong."""
    from steadyrnn.tasks.locate import DATA_SETS, check_data_set, data_folder

    folder = data_folder(args.data_dir)
    problems = {name: check_data_set(folder, name) for name in names}
    rows = [[name, "right" if not wrong else "\n".join(wrong)] for name, wrong in problems.items()]
    output.table(f"data folder: {folder}", ("name", "files"), rows)
    for name in (name for name in names if problems[name]):
        output.text(f"{name}: {DATA_SETS[name].obtain}")
    output.result({"folder": folder, "problems": problems})
    return NO_DATA if any(problems.values()) else 0


main = make_main(parser, _run)
