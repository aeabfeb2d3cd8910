"""The 21 UCR sets as files of one's own, beside the built-in task: ``python benchmarks/ucr_from_files.py``.

Each set is read from its two files, as ``steadyrnn train NAME_TRAIN.tsv --test-data NAME_TEST.tsv --task.header false
--task.layout rows --target 1`` does: once with the settings of the built-in task, once with everything else left open. The
built-in task has its recipe. All are trained with the same seeds. A set that is in the file of results is not trained again.
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


BUILT_IN = {
    **{"model.name": "spectral", "model.width": 32, "model.learn_initial_state": True, "model.readout": "last"},
    **{"train.epochs": 100, "train.batch_size": 64, "train.optimizer.lr": 3e-3, "train.stop.patience": 20},
    **{"train.schedule.name": "constant", "task.validation": 0.2},
}
"""The recipe of the built-in task, as settings of a file of one's own."""


def own_file(name: str, seeds: list[int], out: Path, more: dict[str, Any]) -> dict[str, Any]:
    """Train on the two files of a set; return what came out."""
    train, test = (data_folder() / path for path in UCR_SETS[name].paths())
    files = {"task.data": str(train), "task.test_data": str(test), "task.header": False, "task.layout": "rows"}
    settled = settle({**files, "task.target": "1", "train.device": "cpu", "train.threads": 1, **more})
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


def mean(numbers: list[float]) -> float:
    """Return the mean."""
    return sum(numbers) / len(numbers)


def show(rows: dict[str, Any]) -> None:
    """Print the table."""
    ways = ("built_in", "same_settings", "left_open")
    print(f"{'set':<32}{'built-in':>10}{'same':>10}{'open':>10}{'linear':>10}{'commonest':>10}")
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
        if name in rows:
            continue
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder)
            rows[name] = {
                "built_in": built_in(name, seeds, out),
                "same_settings": own_file(name, seeds, out, BUILT_IN),
                "left_open": own_file(name, seeds, out, {}),
            }
        command = f"python benchmarks/ucr_from_files.py --seeds {args.seeds}"
        record = {"command": command, "seeds": seeds, "environment": environment(), "rows": rows}
        OUT.write_text(json.dumps(record, indent=1) + "\n")
        print(name, {way: found["accuracy"] for way, found in rows[name].items()}, flush=True)
    show(rows)


if __name__ == "__main__":
    main()
