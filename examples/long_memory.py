"""Compare a Spectral-RNN, a plain RNN and an LSTM on addition and copy with a hundred steps.

All models have the same data, batches, steps, schedule and clipping. The learning rate of each model is chosen by validation
from the same three values. The table shows the test scores of the chosen runs; results/long-memory.json contains all runs.
"""

import json
import os
import platform
import shlex
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

FAST = bool(os.environ.get("STEADYRNN_EXAMPLE_FAST"))
OUT = Path("out/long-memory")
RESULT = OUT / "long-memory.json" if FAST else Path("results/long-memory.json")
RATES = (3e-3,) if FAST else (1e-3, 3e-3, 1e-2)
STEPS = 8 if FAST else 3000
TASKS = {"addition": "L = 100", "copy": "T = 100"}
# The Spectral-RNN uses the recipe of each task, the others use the activation and width of the papers.
MODELS = {"spectral": "", "rnn": "--model.width 128", "lstm": "--model.width 128"}
SPECTRAL = {"addition": "--model.nonlinearity relu --model.radius 0.01", "copy": ""}


def command(task: str, model: str, rate: float) -> str:
    """Return the command line of one run; the reflectors of the Spectral-RNN have a tenth of the learning rate."""
    own = f"{SPECTRAL[task]} --train.optimizer.transition_lr {rate / 10:g}" if model == "spectral" else ""
    return (
        f"train {task} --model {model} {MODELS[model]} {own} --train.optimizer.lr {rate:g} --train.steps {STEPS}"
        f" --train.batch_size 50 --train.probe.every 0 --train.stop.below 0.002 --threads 1 --out {OUT}/runs --quiet --json"
    )


def run(task: str, model: str, rate: float) -> dict[str, Any]:
    """Train with the program; return its result."""
    words = shlex.split(command(task, model, rate))
    done = subprocess.run(
        [sys.executable, "-m", "steadyrnn", *words],
        capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=False,
    )  # fmt: skip
    if done.returncode != 0:
        return {
            "task": task,
            "model": model,
            "rate": rate,
            "command": shlex.join(["steadyrnn", *words]),
            "failed": done.stderr.strip(),
        }
    told = json.loads(done.stdout)
    print(f"  {task} {model} {rate:g}: {told['result']['test']} after {told['result']['seconds']:.0f} s", flush=True)
    return {
        "task": task, "model": model, "rate": rate, "command": shlex.join(["steadyrnn", *words]),
        **{name: told[name] for name in ("configuration", "parameters", "baselines", "result")},
    }  # fmt: skip


def score(row: dict[str, Any]) -> float:
    """Return the validation loss of the best weights, by which the rate is chosen."""
    return float("inf") if "failed" in row else float(row["result"]["best"]["loss"])


def main() -> None:
    """Train all, choose, show."""
    cases = [(task, model, rate) for task in TASKS for model in MODELS for rate in RATES]
    with ThreadPoolExecutor(max_workers=2) as pool:
        rows = list(pool.map(lambda case: run(*case), cases))
    environment = {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "processor": platform.machine(),
        "threads": 1,
    }
    RESULT.parent.mkdir(parents=True, exist_ok=True)
    RESULT.write_text(json.dumps({"environment": environment, "seeds": [0], "runs": rows}, indent=1) + "\n", encoding="utf-8")
    print(f"\n{'task':<20}{'model':<12}{'rate':<8}{'test loss':<12}{'accuracy':<10}{'of a guess':<12}{'steps':<8}seconds")
    for task, size in TASKS.items():
        for model in MODELS:
            best = min((row for row in rows if (row["task"], row["model"]) == (task, model)), key=score)
            if "failed" in best:
                print(f"{task + ', ' + size:<20}{model:<12}{best['failed']}")
                continue
            result, test = best["result"], best["result"]["test"]
            accuracy = f"{test['accuracy']:.3f}" if "accuracy" in test else ""
            print(
                f"{task + ', ' + size:<20}{model:<12}{best['rate']:<8g}{test['loss']:<12.4g}{accuracy:<10}"
                f"{best['baselines']['loss']:<12.4g}{result['steps']:<8}{result['seconds']:.0f}"
            )
    print(f"All runs: {RESULT}")


if __name__ == "__main__":
    main()
