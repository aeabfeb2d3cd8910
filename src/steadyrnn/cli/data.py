"""``steadyrnn data``: how a file of one's own is understood; which data sets there are, and whether their files are right."""

import shlex
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, get_type_hints

from steadyrnn.errors import DataError
from steadyrnn.tasks.series.settings import SeriesSettings

from .output import Output, short
from .parsing import add_json, check_names, make_main, make_parser

if TYPE_CHECKING:
    from jsonargparse import ArgumentParser

__all__ = ["EXAMPLES", "main", "parser"]

EXAMPLES = (
    "steadyrnn data list",
    "steadyrnn data list --json",
    "steadyrnn data check mnist ptb",
)

_OWN = ("target", "series", "time", "group", "channels", "layout", "kind", "horizon", "window", "bptt", "missing", "test_data")
"""Settings of a user's own data that are options of `describe`; all of them are options of `train`, as `--task.NAME`."""

NO_DATA = 3
_MOST_SHOWN = 30


def parser() -> "ArgumentParser":
    """Return the command's parser."""
    made = make_parser(
        "data",
        "describe: read a file or folder of series of yours and say how it is understood: shapes, lengths, classes, missing\n"
        "values, scales, parts. Nothing is trained. The options are those of `steadyrnn train DATA`.\n"
        "list: every data set, whether it is there, and where a person gets it.\n"
        "check: compare size and SHA-256 of every file with the published ones; status 3 where one is missing or wrong.\n"
        "Data is looked for in --data-dir, else in the folder that the environment variable STEADYRNN_DATA names.\n"
        "Nothing is ever downloaded.",
        EXAMPLES,
    )
    made.add_argument("action", type=str, choices=["describe", "list", "check"], help="What to do.")
    made.add_argument("names", type=str, nargs="*", metavar="NAME", help="Your file, or data sets; none means all of them.")
    _add_own(made)
    made.add_argument("--data-dir", type=str | None, default=None, help="The data folder.")
    add_json(made)
    return made


def _run(own: "ArgumentParser", args: Any, argv: Sequence[str]) -> int:
    if args.action == "describe":
        return _describe(own, args)
    given = [name for name in _OWN if args[name] is not None]
    if given:
        own.error(f"--{given[0].replace('_', '-')} belongs to `steadyrnn data describe FILE`")
    from steadyrnn.tasks.locate import DATA_SETS

    check_names(own, "data set", args.names, DATA_SETS)
    names, output = args.names or list(DATA_SETS), Output(args.json)
    return _list(args, names, output) if args.action == "list" else _check(args, names, output)


def _add_own(parser: "ArgumentParser") -> None:
    """Add the settings of a user's own data; all are open unless given."""
    hints = get_type_hints(SeriesSettings)
    for name in _OWN:
        parser.add_argument(
            f"--{name.replace('_', '-')}",
            type=hints[name] | None,
            default=None,
            help=f"As `--task.{name}` of `steadyrnn train`.",
        )
    parser.add_argument("--header", type=bool, default=True, help="Whether the first line of a CSV file names the columns.")


def _describe(own: "ArgumentParser", args: Any) -> int:
    """Show what is understood of a file."""
    if len(args.names) != 1:
        own.error("describe needs one file or folder: steadyrnn data describe FILE")
    from steadyrnn.jobs.describe import describe_data

    given = {name: args[name] for name in _OWN if args[name] is not None}
    found, output = describe_data(SeriesSettings(data=args.names[0], header=args.header, **given)), Output(args.json)
    lengths, intervals = found.lengths, found.intervals
    rows = [
        ["series", short(found.series)],
        ["steps", f"{found.steps:,}; of a series {_in_words(lengths)}"],
        *([["time", f"from one step to the next {_in_words(intervals)}"]] if intervals is not None else []),
        *(["", note] for note in found.notes),
    ]
    output.table(args.names[0], ("", ""), rows)
    columns = ("channel", "missing", "mean", "deviation", "smallest", "largest")
    cells = [
        [c.name, *map(short, (c.missing, c.mean, c.deviation, c.smallest, c.largest))] for c in found.channels[:_MOST_SHOWN]
    ]
    output.table(f"{len(found.channels)} channels", columns, cells)
    if len(found.channels) > _MOST_SHOWN:
        output.text(f"... and {len(found.channels) - _MOST_SHOWN} more channels (--json shows all)\n")
    if found.parts:
        output.table(*_parts_table(found.parts))
    output.text(f"not ready: {found.problem}" if found.problem else f"next: steadyrnn train {_words_of(args)}")
    output.result(found.to_dict())
    return 0


def _in_words(span: Any) -> str:
    """Return smallest, middle and largest, or the one number that they are."""
    if span.smallest == span.largest:
        return f"{span.smallest:,.6g}"
    return f"{span.smallest:,.6g} to {span.largest:,.6g}, median {span.median:,.6g}"


def _parts_table(parts: Mapping[str, Mapping[str, Any]]) -> tuple[str, tuple[str, ...], list[list[str]]]:
    """Return title, columns and rows of the table of parts."""
    names = [name for name in ("runs", "steps", "examples") if name in parts["train"]]
    classes = list(parts["train"].get("classes", {}))[:_MOST_SHOWN]
    rows = [
        [part, *(short(found[name]) for name in names), *(short(found["classes"][label]) for label in classes)]
        for part, found in parts.items()
    ]
    return "parts", ("", *names, *classes), rows


def _words_of(args: Any) -> str:
    """Return the words with which the same is trained."""
    given = [f"--{name.replace('_', '-')} {shlex.quote(str(args[name]))}" for name in _OWN if args[name] is not None]
    known = [word.replace("--layout", "--task.layout").replace("--kind", "--task.kind") for word in given]
    return " ".join([shlex.quote(args.names[0]), *known, *(["--task.header false"] if not args.header else [])])


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
