"""From a file of sensor series to a table of two networks and the certificate of one.

The file has the vibration and the current of machines that are healthy, worn or loose. One network is the choice of the
package, a contraction by construction. The other is a GRU.
"""

import csv
import math
import os
import random
import tempfile
from pathlib import Path

import steadyrnn as sr
from steadyrnn.jobs.certify import certify_run
from steadyrnn.jobs.comparison import Comparison, compare_models

FAST = bool(os.environ.get("STEADYRNN_EXAMPLE_FAST"))
MACHINES = 30 if FAST else 120
KINDS = {"healthy": (0.30, 0.3), "worn": (0.36, 0.3), "loose": (0.30, 0.6)}
"""Radians per second, and deviation of the noise."""


def write_sensors(path: Path) -> None:
    """Write a row per second and machine."""
    draw = random.Random(0)
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow(["machine", "second", "vibration", "current", "state"])
        for machine in range(MACHINES):
            state = [*KINDS][machine % len(KINDS)]
            speed, noise = KINDS[state]
            phase = draw.uniform(0, 2 * math.pi)
            for second in range(draw.randint(60, 100)):
                wave = math.sin(speed * second + phase)
                vibration, current = wave + draw.gauss(0, noise), 5 + wave**2 + draw.gauss(0, 0.2)
                rows.writerow([f"m{machine}", second, f"{vibration:.3f}", f"{current:.3f}", state])


def train(path: Path, out: Path) -> Comparison:
    """Train both networks, of the same width, on the same training, validation and test machines."""
    settings = {"task.data": str(path), "task.series": "machine", "task.time": "second", "task.target": "state"}
    sizes = {"model.width": 64, "train.device": "cpu", "train.threads": int(os.environ.get("OMP_NUM_THREADS", "1"))}
    short = {"train.steps": 20, "train.optimizer.lr": 0.03} if FAST else {}
    return compare_models("series", ["stable-spectral", "gru"], {**settings, **sizes, **short}, out=out, note=print)


def main() -> None:
    """Write the file, train, print the table and the certificate."""
    folder = Path(tempfile.mkdtemp(prefix="steadyrnn-"))
    write_sensors(folder / "sensors.csv")
    series = sr.load_series(folder / "sensors.csv", series="machine", time="second", target="state")
    print(f"{series.count} series of {int(series.lengths.min())} to {int(series.lengths.max())} steps, {series.channels}")

    found = train(folder / "sensors.csv", folder / "runs")
    print(f"\n{'model':<20}{'validation':>12}{'test':>8}{'contraction':>13}")
    for row in found.rows:
        validation = "" if row.validation is None else f"{row.validation:.3f}"
        contraction = "" if row.contraction is None else f"{row.contraction:.4g}"
        print(f"{row.name:<20}{validation:>12}{(row.test or {})[found.metric]:>8.3f}{contraction:>13}")

    stable = next(row for row in found.rows if row.name == "stable-spectral")
    print(f"\n{certify_run(stable.runs[0]).certificate}")
    print(f"\ntable and report: {found.folder}")
    if not stable.stable:
        raise SystemExit("the stable network has no proof of stability")


if __name__ == "__main__":
    main()
