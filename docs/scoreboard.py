"""Write docs/scoreboard.md and its pictures from the results of `steadyrnn reproduce` in results/ alone.

python docs/scoreboard.py            # write the page and docs/pictures/scoreboard/*.svg (needs matplotlib)
python docs/scoreboard.py --check    # say whether they are up to date; status 1 if not
"""

import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from steadyrnn.errors import RunError
from steadyrnn.experiments.base import PAPERS, TARGET_VERDICTS, VERDICTS, Experiment
from steadyrnn.experiments.picture import render_picture
from steadyrnn.experiments.registry import EXPERIMENTS
from steadyrnn.experiments.standing import Standing, find_standing
from steadyrnn.experiments.targets import TARGETS

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "scoreboard.md"
PICTURES = ROOT / "docs" / "pictures" / "scoreboard"
RESULTS = ROOT / "results"
MARKS = {
    "seen": "✓ seen",
    "not seen": "✗ not seen",
    "different": "≠ different",
    "not measured": "– not measured",
    "met": "✓ met",
    "missed": "✗ missed",
}
ALL = {**EXPERIMENTS, **TARGETS}
COLUMNS = ("ID", "verdict", "claim", "published", "ours")  # what does not fit beside is scrolled to: never the verdict
INTRODUCTION = """# Scoreboard

Every table and figure of the four papers that this package reproduces, one row per claim: what is published, what we
measured, and the verdict.

{verdicts}

The page is made from the JSON files in `results/` by `python docs/scoreboard.py`. Each file holds settings, seeds,
command, environment and all numbers. `steadyrnn reproduce ID` runs it, or prints it where it is finished. A number after
± is the standard deviation over seeds; a row without seeds draws nothing at random. A row that was not run names its price.
A quick run is a demonstration: a smaller problem than the paper's, with settings chosen so that the effect can show, and
often one seed. Only a full run is evidence.
[Our own targets](#our-own-targets) and [commands and pictures](#commands-and-pictures) are below the table.

{summary}
"""

TARGET_COLUMNS = ("ID", "verdict", "target", "goal (best published, or condition)", "ours")
TARGET_INTRODUCTION = """## Our own targets

Goals beyond the papers, and rivals on the same data. In parentheses stands the best published number of a comparable
network, or what a goal refers to. Settings are chosen on validation data; a score is the mean of three seeds on the test
data, and with fewer seeds a goal is missed.

{verdicts}

{summary}
"""
PICTURE_NOTE = """\
A shaded area or an error bar is the standard deviation over seeds; on a logarithmic axis it reaches by the same factor
down as up. A gap in a line is a run that diverged, or a value of exactly 0 on a logarithmic axis.
"""


def find_standings(folder: Path) -> dict[str, Standing]:
    """Return where each experiment stands; a damaged file stops the program."""
    found = {name: find_standing(one, folder) for name, one in ALL.items()}
    damaged = [standing.verdict for standing in found.values() if standing.state == "damaged"]
    if damaged:
        raise SystemExit(f"docs/scoreboard.py: {damaged[0]}")
    return found


def draw(folder: Path) -> dict[str, bytes]:
    """Return the pictures of the results in a folder, by the name of the file."""
    pictures = {}
    for name, standing in find_standings(folder).items():
        try:
            picture = None if standing.record is None else render_picture(standing.record)
        except RunError as error:
            raise SystemExit(f"docs/scoreboard.py: {error}") from None
        if picture is not None:
            pictures[f"{ALL[name].stem(standing.state == 'quick')}.svg"] = picture
    return pictures


def build(folder: Path) -> str:
    """Return the page from the results in a folder."""
    found = find_standings(folder)
    papers, ours = ({name: found[name] for name in group} for group in (EXPERIMENTS, TARGETS))
    head = INTRODUCTION.format(verdicts=explain(VERDICTS), summary=sum_up(papers, "tables and figures", VERDICTS))
    names = "\n".join(f"- `{name}`: {title}." for name, title in PAPERS.items())
    parts = [
        f"{head}\n{tabulate(COLUMNS, papers)}",
        f"The first word of an ID is the paper:\n\n{names}",
        TARGET_INTRODUCTION.format(verdicts=explain(TARGET_VERDICTS), summary=sum_up(ours, "targets", TARGET_VERDICTS)),
        tabulate(TARGET_COLUMNS, ours),
    ]
    shown = [show(one, found[name]) for name, one in ALL.items() if found[name].record is not None]
    tail = [f"\n{text}" for text in ["\n".join(["## Commands and pictures\n", PICTURE_NOTE, *shown])] if shown]
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n" + "".join(tail)


def explain(verdicts: Mapping[str, str]) -> str:
    """Return what each verdict means, as a list."""
    return "\n".join(f"- **{MARKS[word]}**: {meaning}." for word, meaning in verdicts.items())


def tabulate(columns: Sequence[str], found: Mapping[str, Standing]) -> str:
    """Return the table of some experiments."""
    rows = [row for name, standing in found.items() for row in list_rows(ALL[name], standing)]
    return "\n".join(f"| {' | '.join(map(escape, row))} |" for row in [columns, ["---"] * len(columns), *rows])


def show(one: Experiment, standing: Standing) -> str:
    """Return the command of a record, and its picture if it has curves."""
    record = standing.record or {}
    command = " ".join(record["made"]["command"])
    lines = [f"### {one.id}", f"{one.title} ({one.place}): `{command}`"]
    if record["curves"]:
        file = f"{one.stem(standing.state == 'quick')}.svg"
        lines.append(f"![{one.title}](pictures/{PICTURES.name}/{file})")
    return "\n\n".join(lines) + "\n"


def list_rows(one: Experiment, standing: Standing) -> Iterator[list[str]]:
    """Yield one row per claim of a record, or one row that says why there is none."""
    if standing.record is None:
        state = "not run yet" if one.runnable else "cannot run yet"
        yield [f"`{one.id}`", "", f"{one.title} ({one.place})", one.judged_by, f"{state}: {one.price}"]
        return
    for claim in standing.record["claims"]:
        said, ours = claim["published"], claim["ours"]
        file = f"[JSON](../results/{one.stem(standing.state == 'quick')}.json)"
        file += f", [picture](#{one.id})" if standing.record["curves"] else f", [command](#{one.id})"
        measured = "<br>".join(filter(None, [ours["text"], spread(ours)]))
        yield [
            f"`{one.id}`<br>{standing.state}, {standing.date}, {file}",
            MARKS[claim["verdict"]],
            claim["claim"],
            f"{said['says']} ({said['place']})",
            measured,
        ]


def spread(ours: dict[str, Any]) -> str:
    """Return mean, spread and number of seeds in words."""
    mean = ours["mean"]
    if mean is None:
        return ""
    parts = [
        f"{mean:,}" if isinstance(mean, int) else f"{mean:.4g}",
        f" ± {ours['spread']:.2g}" if ours["spread"] is not None else "",
    ]
    parts += [f" {ours['unit']}" if ours["unit"] else "", f" ({ours['seeds']} seeds)" if ours["seeds"] else ""]
    return "".join(parts)


def sum_up(found: Mapping[str, Standing], things: str, verdicts: Mapping[str, str]) -> str:
    """Return how much was run, and what came out, in a sentence."""
    states = Counter(standing.state for standing in found.values())
    ways = [
        f"Claims of {state} runs: {_count_verdicts(found, state, verdicts)}." for state in ("full", "quick") if states[state]
    ]
    return " ".join([
        f"Of {len(found)} {things} {states['full']} were run in full and {states['quick']} in the quick form; "
        f"{states['never run'] + states['not yet runnable']} were not run.",
        *ways,
    ])  # fmt: skip


def _count_verdicts(found: Mapping[str, Standing], state: str, verdicts: Mapping[str, str]) -> str:
    records = [standing.record for standing in found.values() if standing.record is not None and standing.state == state]
    counts = Counter(claim["verdict"] for record in records for claim in record["claims"])
    return ", ".join(f"{counts[word]} {word}" for word in verdicts)


def escape(cell: str) -> str:
    """Return a text that Markdown shows as it is in a table; code and links are kept."""
    return cell.replace("|", "\\|").replace("\n", " ").replace(" * ", " \\* ").replace("m^2", "m²").replace("^2 ", "² ")


def main(words: list[str]) -> int:
    text, pictures = build(RESULTS), draw(RESULTS)
    there = {path.name: path for path in PICTURES.glob("*.svg")}
    if words == ["--check"]:
        fresh = PAGE.exists() and PAGE.read_text(encoding="utf-8") == text
        fresh = fresh and pictures == {name: path.read_bytes() for name, path in there.items()}
        print("up to date" if fresh else f"{PAGE.relative_to(ROOT)} is not up to date: run python docs/scoreboard.py")
        return 0 if fresh else 1
    PICTURES.mkdir(parents=True, exist_ok=True)
    for name in there.keys() - pictures.keys():
        there[name].unlink()
    for name, picture in pictures.items():
        (PICTURES / name).write_bytes(picture)
    PAGE.write_text(text, encoding="utf-8")
    print(f"{PAGE.relative_to(ROOT)}, {len(pictures)} pictures")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
