"""The 21 UCR sets as files of one's own, beside the built-in task: ``python benchmarks/ucr_from_files.py``.

Each set is read from its two files, as ``steadyrnn train NAME_TRAIN.tsv --test-data NAME_TEST.tsv --task.header false
--task.layout rows --target 1`` does, with everything else left open. The built-in task has its recipe. Both are trained with
the same seeds. With the settings of the built-in task the files give its batches, bit for bit, and so its accuracies:
``tests/tasks/series/test_ucr_files.py``. What is in the file of results is not trained again.
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from measure import environment

from steadyrnn.jobs.own_data import settle
from steadyrnn.jobs.recipes import configure
from steadyrnn.jobs.train_seeds import train_seeds
from steadyrnn.tasks.locate import data_folder
from steadyrnn.tasks.ucr_sets import UCR_SETS

OUT = Path(__file__).parents[1] / "results" / "ucr-from-files.json"


def own_file(name: str, seeds: list[int], out: Path) -> dict[str, Any]:
    """Train on the two files of a set; return what came out."""
    train, test = (data_folder() / path for path in UCR_SETS[name].paths())
    files = {"task.data": str(train), "task.test_data": str(test), "task.header": False, "task.layout": "rows"}
    settled = settle({**files, "task.target": "1", "train.device": "cpu", "train.threads": 1})
    done = train_seeds(settled.configuration, seeds, out, task=settled.task)
    references = {method: scores["accuracy"] for method, scores in done.facts["references"].items()}
    return {
        "accuracy": [run.result.test["accuracy"] for run in done.runs.values()],
        "seconds": [round(run.result.seconds, 1) for run in done.runs.values()],
        "model": settled.configuration.model.name,
        "lr": settled.configuration.train.optimizer.lr,
        "references": references,
    }


def built_in(name: str, seeds: list[int], out: Path) -> dict[str, Any]:
    """Train the built-in task with its recipe."""
    configuration = configure("ucr", None, {"task.dataset": name, "train.device": "cpu", "train.threads": 1})
    done = train_seeds(configuration, seeds, out)
    return {
        "accuracy": [run.result.test["accuracy"] for run in done.runs.values()],
        "seconds": [round(run.result.seconds, 1) for run in done.runs.values()],
        "model": configuration.model.name,
    }


WAYS = {"built_in": built_in, "left_open": own_file}


def mean(numbers: list[float]) -> float:
    """Return the mean."""
    return sum(numbers) / len(numbers)


def show(rows: dict[str, Any]) -> None:
    """Print the table."""
    ways = ("built_in", "left_open")
    print(f"{'set':<32}{'built-in':>10}{'open':>10}{'linear':>10}{'commonest':>10}")
    means = {way: {name: mean(row[way]["accuracy"]) for name, row in rows.items()} for way in ways}
    for name, row in rows.items():
        references = [row["left_open"]["references"][method] for method in ("linear model", "commonest class")]
        print(f"{name:<32}" + "".join(f"{value:>10.3f}" for value in [*(means[way][name] for way in ways), *references]))
    for way in ways[1:]:
        better = sum(means[way][name] >= means["built_in"][name] for name in rows)
        print(
            f"{way}: at least the built-in task's accuracy on {better} of {len(rows)}, mean {mean([*means[way].values()]):.4f}"
        )
    print(f"built_in: mean {mean([*means['built_in'].values()]):.4f}")


def main() -> None:
    """Train what is missing; print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3, help="how many seeds")
    parser.add_argument("--only", default="", help="sets, between commas")
    args = parser.parse_args()
    stored = json.loads(OUT.read_text()) if OUT.is_file() else {"rows": {}}
    rows, seeds = stored["rows"], list(range(args.seeds))
    for name in args.only.split(",") if args.only else UCR_SETS:
        row = rows.setdefault(name, {})
        if row.keys() == WAYS.keys():
            continue
        with tempfile.TemporaryDirectory() as folder:
            row |= {way: train(name, seeds, Path(folder)) for way, train in WAYS.items() if way not in row}
        command = f"python benchmarks/ucr_from_files.py --seeds {args.seeds}"
        record = {"command": command, "seeds": seeds, "environment": environment(), "rows": rows}
        OUT.write_text(json.dumps(record, indent=1) + "\n")
        print(name, {way: found["accuracy"] for way, found in row.items()}, flush=True)
    show(rows)


if __name__ == "__main__":
    main()
