"""Train, certify, convert and report with the command-line program.

Three networks learn the addition problem: a Spectral-RNN, a plain RNN and an LSTM add the two marked numbers of a hundred. The
Spectral-RNN is certified and converted into a unitary network with the same outputs. A report compares all three. Every command
that is printed can be run as it is. With 3,500 steps instead of 2,500 the LSTM learns the task, too;
`examples/long_memory.py` tries three learning rates per model.
"""

import os
import shlex
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

FAST = bool(os.environ.get("STEADYRNN_EXAMPLE_FAST"))
OUT = Path(os.environ.get("STEADYRNN_DEMO_OUT", time.strftime("out/demo-%Y%m%d-%H%M%S")))
STEPS = 30 if FAST else 2500
TRAINING = (
    f"--out {OUT}/runs --threads 1 --model.width 64 --train.steps {STEPS} --train.batch_size 50 --train.optimizer.lr 3e-3"
    f" --train.probe.every {STEPS // 3} --quiet"
)
MODELS = {
    "LSTM": "--model lstm",
    "Spectral-RNN": "--model spectral --model.nonlinearity relu --model.center 0.995 --model.radius 0.005"
    " --train.optimizer.transition_lr 3e-4",
    "plain RNN": "--model rnn",
}


def steadyrnn(command: str) -> str:
    """Print a command of the program and run it; return its output."""
    print(f"$ steadyrnn {command}", flush=True)
    words = [sys.executable, "-m", "steadyrnn", *shlex.split(command)]
    done = subprocess.run(words, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{done.stderr}\nsteadyrnn exited with status {done.returncode}")
    return done.stdout


def main() -> None:
    """Train, certify, convert, report."""
    start = time.perf_counter()
    print("Three networks learn to add the two marked numbers of a hundred. The best constant answer has an error of 0.167.\n")
    with ThreadPoolExecutor(max_workers=2) as pool:  # two at a time, one core each
        told = dict(zip(MODELS, pool.map(lambda m: steadyrnn(f"train addition {m} {TRAINING}"), MODELS.values()), strict=True))
    for name, text in told.items():
        print(f"\n{name}\n{text}", end="")
    newest = f"{OUT}/runs/addition/spectral"
    print()
    print(steadyrnn(f"certify {newest} --input-bound 1.5"))
    print(steadyrnn(f"convert {newest} --to unitary --input-bound 1.5 --out {OUT}/unitary --force"))
    print(steadyrnn(f"report {OUT}/runs --out {OUT}/report.html"))
    print(f"Open {OUT}/report.html in a browser: curves, gradients beside their certified band, singular values, proofs.")
    print(f"It took {time.perf_counter() - start:.0f} s.")


if __name__ == "__main__":
    main()
