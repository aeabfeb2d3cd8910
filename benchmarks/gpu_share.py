"""Several trainings on one GPU: ``python benchmarks/gpu_share.py``, where NVIDIA's Multi-Process Service can be started.

Some processes train at the same time, each its own network by captured steps. The throughput of all of them is compared with
that of one process alone. Without the service the GPU takes processes in turn; with it their kernels run side by side.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time

import torch
from gpu_graph import recipes
from measure import save, show

import steadyrnn as sr
from steadyrnn.models.sequence import SequenceModel
from steadyrnn.train.step import Stepper

SECONDS = 3.0
CHOSEN = (
    "addition 784, spectral leaky_relu 128, batch 128",
    "addition 784, lstm 128, batch 128",
    "copy, delay 200, spectral gru 128, batch 128",
)
CONTROL = "nvidia-cuda-mps-control"


def serve() -> None:
    """Train each recipe for some seconds whenever a line asks for it, and print the steps per second."""
    made = recipes()
    layer = sr.RNN(2, 128, nonlinearity="leaky_relu", transition=sr.Spectral(reflectors=16, radius=0.01))
    made[CHOSEN[0]] = SequenceModel(layer, 1), *made["addition 784, lstm 128, batch 128"][1:]
    for name in CHOSEN:
        model, task, settings = made[name]
        stepper = Stepper(model.to("cuda"), task.to("cuda"), settings, model)
        for number in range(10):
            stepper.step(number + 1, stepper.task.train_batch(number, settings.batch_size), 1.0)
        torch.cuda.synchronize()
        print("ready", flush=True)
        sys.stdin.readline()
        begin, number = time.perf_counter(), 10
        while time.perf_counter() - begin < SECONDS:
            for _ in range(10):
                number += 1
                stepper.step(number, stepper.task.train_batch(number, settings.batch_size), 1.0)
            torch.cuda.synchronize()
        print((number - 10) / (time.perf_counter() - begin), flush=True)


def throughput(processes: int, environment: dict[str, str]) -> list[float]:
    """Return, for each recipe, the steps per second of so many processes together."""
    command = [sys.executable, __file__, "--serve"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "env": environment}
    workers = [subprocess.Popen(command, **pipes) for _ in range(processes)]  # type: ignore[call-overload]
    found = []
    for _ in CHOSEN:
        for worker in workers:
            if worker.stdout.readline().strip() != "ready":
                raise SystemExit("a process ended before it was ready")
        for worker in workers:
            worker.stdin.write("go\n")
            worker.stdin.flush()
        found.append(sum(float(worker.stdout.readline()) for worker in workers))
    for worker in workers:
        worker.wait()
    return found


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--processes", default="1,6", help="how many at a time")
    parser.add_argument("--control", default=CONTROL, help="the program that starts the service")
    chosen = parser.parse_args()
    if chosen.serve:
        return serve()
    if shutil.which(chosen.control) is None:
        raise SystemExit(f"{chosen.control} is not installed: it comes with the driver of the GPU")
    counts = [int(word) for word in chosen.processes.split(",")]
    lines = []
    with tempfile.TemporaryDirectory() as folder:
        own = {**os.environ, "CUDA_MPS_PIPE_DIRECTORY": folder, "CUDA_MPS_LOG_DIRECTORY": folder}
        apart = {name: value for name, value in os.environ.items() if not name.startswith("CUDA_MPS")}
        alone = throughput(1, apart)
        for service, environment in (("no", apart), ("yes", own)):
            if service == "yes":
                subprocess.run([chosen.control, "-d"], env=own, check=True)
            for count in counts:
                if (service, count) == ("no", 1):
                    continue
                for name, rate, one in zip(CHOSEN, throughput(count, environment), alone, strict=True):
                    lines.append(
                        {"recipe": name, "service": service, "processes": count, "steps_per_s": rate, "gain": rate / one}
                    )
                    print(lines[-1], flush=True)
                save("gpu-share", lines)
        subprocess.run([chosen.control], input="quit\n", text=True, env=own, check=False)
    show(lines)


if __name__ == "__main__":
    main()
