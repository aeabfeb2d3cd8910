"""Write docs/scoreboard.md from the results of `steadyrnn reproduce` in results/ alone.

python docs/scoreboard.py            # write the page
python docs/scoreboard.py --check    # say whether it is up to date; status 1 if not
"""

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from steadyrnn.experiments.base import PAPERS, VERDICTS, Experiment
from steadyrnn.experiments.registry import EXPERIMENTS
from steadyrnn.experiments.standing import Standing, find_standing

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "scoreboard.md"
RESULTS = ROOT / "results"
MARKS = {"seen": "✓ seen", "not seen": "✗ not seen", "different": "≠ different"}
COLUMNS = ("ID", "claim", "published", "ours", "verdict")
INTRODUCTION = """# Scoreboard

Every table and figure of the four papers that this package reproduces, one row per claim: what is published, what we
measured, and the verdict.

{verdicts}

The page is made from the JSON files in `results/` by `python docs/scoreboard.py`. Each file holds settings, seeds,
command, environment and all numbers. `steadyrnn reproduce ID` runs it, or prints it where it is finished. A number after
± is the standard deviation over seeds; a row without seeds draws nothing at random. A row that was not run names its price.

{summary}
"""


def build(folder: Path) -> str:
    """Return the page from the results in a folder."""
    found = {name: find_standing(one, folder) for name, one in EXPERIMENTS.items()}
    damaged = [standing.verdict for standing in found.values() if standing.state == "damaged"]
    if damaged:
        raise SystemExit(f"docs/scoreboard.py: {damaged[0]}")
    rows = [row for name, one in EXPERIMENTS.items() for row in list_rows(one, found[name])]
    verdicts = "\n".join(f"- **{MARKS[word]}**: {meaning}." for word, meaning in VERDICTS.items())
    head = INTRODUCTION.format(verdicts=verdicts, summary=sum_up(found))
    papers = "\n".join(f"- `{name}`: {title}." for name, title in PAPERS.items())
    table = "\n".join(f"| {' | '.join(map(escape, row))} |" for row in [COLUMNS, ["---"] * len(COLUMNS), *rows])
    return f"{head}\n{table}\n\nThe first word of an ID is the paper:\n\n{papers}\n"


def list_rows(one: Experiment, standing: Standing) -> Iterator[list[str]]:
    """Yield one row per claim of a record, or one row that says why there is none."""
    if standing.record is None:
        state = "not run yet" if one.runnable else "cannot run yet"
        yield [f"`{one.id}`", f"{one.title} ({one.place})", one.judged_by, f"{state}: {one.price}", ""]
        return
    for claim in standing.record["claims"]:
        said, ours = claim["published"], claim["ours"]
        file = f"[JSON](../results/{one.stem(standing.state == 'quick')}.json)"
        measured = "<br>".join(filter(None, [ours["text"], spread(ours)]))
        yield [
            f"`{one.id}`<br>{standing.state}, {standing.date}, {file}",
            claim["claim"],
            f"{said['says']} ({said['place']})",
            measured,
            MARKS[claim["verdict"]],
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


def sum_up(found: dict[str, Standing]) -> str:
    """Return how much was run, and what came out, in a sentence."""
    states = Counter(standing.state for standing in found.values())
    records = [standing.record for standing in found.values() if standing.record is not None]
    verdicts = Counter(claim["verdict"] for record in records for claim in record["claims"])
    count = ", ".join(f"{verdicts[word]} {word}" for word in VERDICTS)
    return (
        f"Of {len(found)} tables and figures {states['full']} were run in full and {states['quick']} in the quick form; "
        f"{states['never run'] + states['not yet runnable']} were not run. Claims: {count}."
    )


def escape(cell: str) -> str:
    """Return a text that Markdown shows as it is in a table; code and links are kept."""
    return cell.replace("|", "\\|").replace("\n", " ").replace(" * ", " \\* ").replace("m^2", "m²").replace("^2 ", "² ")


def main(words: list[str]) -> int:
    text = build(RESULTS)
    if words == ["--check"]:
        fresh = PAGE.exists() and PAGE.read_text(encoding="utf-8") == text
        print("up to date" if fresh else f"{PAGE.relative_to(ROOT)} is not up to date: run python docs/scoreboard.py")
        return 0 if fresh else 1
    PAGE.write_text(text, encoding="utf-8")
    print(PAGE.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
