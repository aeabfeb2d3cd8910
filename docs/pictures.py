"""Draw the pictures of the documentation into docs/pictures, from the package itself and from results of benchmarks.

Run it after a change to what they show, and look at the result before you commit it:

    python docs/pictures.py

Everything is seeded, float64 and on the CPU, and the files carry no date: the same versions of torch and matplotlib on the
same processor give the same bytes. Needs matplotlib (the extra ``report``); takes less than a minute.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

import steadyrnn as sr
from steadyrnn.certificates.certificate import Certificate

FOLDER = Path(__file__).parent / "pictures"
INPUTS, UNITS, STEPS, ROWS = 8, 64, 160, 16
LAGS = range(1, 62, 3)
BOUND = 1.0
"""Largest norm of an input; also the bound in the certificates."""
MEASURED, PROVEN, SPECTRAL = "C0", "C2", "C1"
RESULTS = Path(__file__).parents[1] / "benchmarks" / "results"
GPU, RANKS = RESULTS / "gpu.json", RESULTS / "parallel-ranks.json"
MEMORY = 139
"""GiB of one GPU of the prediction: fewer GPUs do not hold the series."""
PANELS = (("rnn-relu", "float32"), ("rnn-relu", "bfloat16"), ("lstm", "float32"))
BATCH = 128
"""Batch size of the rows of the GPU benchmark that are drawn."""


@dataclass(frozen=True)
class Case:
    """A network, what is proven of it, and what is measured on one batch, at each of ``LAGS``."""

    title: str
    certificate: Certificate
    gradient: Tensor
    truncation: Tensor


def main() -> None:
    """Draw every picture."""
    matplotlib.use("Agg")
    matplotlib.rcParams.update({"svg.hashsalt": "steadyrnn", "font.size": 9, "axes.grid": True, "grid.alpha": 0.3})
    FOLDER.mkdir(exist_ok=True)
    save(certificates(), "certificates.svg")
    if GPU.is_file():
        save(speeds(json.loads(GPU.read_text())), "gpu.svg")
    else:
        print(f"{GPU.name} is missing: the picture of GPU speeds is not changed")
    if RANKS.is_file():
        save(ranks(json.loads(RANKS.read_text())), "ranks.svg")
    else:
        print(f"{RANKS.name} is missing: the picture of one series over ranks is not changed")


def save(figure: Figure, name: str) -> None:
    """Write a picture without a date."""
    figure.savefig(FOLDER / name, metadata={"Date": None})
    print(f"{FOLDER.name}/{name}: {(FOLDER / name).stat().st_size / 1024:.0f} KiB")


def certificates() -> Figure:
    """Draw proven and measured gradients and truncation errors of three tanh networks, with and without a constraint."""
    figure = Figure(figsize=(10, 5.2), layout="constrained")
    grid = figure.subplots(2, 3, sharex=True, sharey=True)
    for column, case in enumerate((ball(), plain(1.0), plain(1.6))):
        draw(grid[0][column], case.gradient, *gradient_bounds(case.certificate))
        draw(grid[1][column], case.truncation, *window_bounds(case.certificate))
        grid[0][column].set_title(case.title)
        grid[1][column].set_xlabel("lag k, or length k of the window")
    grid[0][0].set_ylabel(r"gradient $\Vert \partial h_t / \partial h_{t-k} \Vert$")
    grid[1][0].set_ylabel(r"truncation error $\Vert h_t - h_t^k \Vert$")
    grid[0][0].set_ylim(1e-16, 1e6)
    grid[0][0].legend(loc="lower left")
    return figure


def draw(axes: Axes, measured: Tensor, spectral: list[float], best: list[float]) -> None:
    """Draw one panel."""
    axes.set_yscale("log")
    axes.minorticks_off()
    axes.plot(LAGS, spectral, color=SPECTRAL, linestyle="--", label="proven, spectral norm alone")
    axes.plot(LAGS, best, color=PROVEN, label="proven, best tier")
    axes.plot(LAGS, measured.tolist(), color=MEASURED, label="measured, largest")
    axes.fill_between(LAGS, best, 1e-17, color=PROVEN, alpha=0.1)


def speeds(results: dict[str, Any]) -> Figure:
    """Draw the time of a training step on a GPU by width: torch, ours, and the floor that no engine can beat."""
    figure = Figure(figsize=(10, 3.4), layout="constrained")
    grid = figure.subplots(1, len(PANELS), sharey=True)
    for axes, (kind, dtype) in zip(grid, PANELS, strict=True):
        rows = [row for row in results["rows"] if (row["kind"], row["dtype"], row["B"]) == (kind, dtype, BATCH)]
        rows = sorted((row for row in rows if not row["factored"]), key=lambda row: row["n"])
        for label, color, style, times in (
            ("torch.nn (cuDNN)", SPECTRAL, "--", [row["times"].get("torch") for row in rows]),
            ("ours", MEASURED, "-", [row["times"].get("ours") for row in rows]),
            ("floor", PROVEN, ":", [row["floor"] for row in rows]),
        ):
            points = [(row["n"], time["training"]) for row, time in zip(rows, times, strict=True) if time]
            axes.plot(*zip(*points, strict=True) if points else ([], []), color=color, linestyle=style, marker=".", label=label)
        axes.set(xscale="log", yscale="log", title=f"{kind}, {dtype}", xlabel="n")
        axes.minorticks_off()
        axes.set_xticks([row["n"] for row in rows], [str(row["n"]) for row in rows])
    grid[0].set_ylabel(f"us per step, B = {BATCH}, with gradients")
    grid[0].legend()
    return figure


def ranks(results: dict[str, Any]) -> Figure:
    """Draw measured processor time of one series over processes, and the time predicted for many GPUs."""
    figure = Figure(figsize=(10, 3.6), layout="constrained")
    left, right = figure.subplots(1, 2)
    for place, size in enumerate((1, 2, 4)):
        rows = [row for row in results["cpu"]["rows"] if row["ranks"] == size and row["mode"] == "train"]
        label = f"{size} process" + "es" * (size > 1)
        left.loglog([r["steps_per_rank"] for r in rows], [r["own_ms"] for r in rows], "o-", color=f"C{place}", label=label)
    left.set_xticks([4096, 16384, 65536], ["4,096", "16,384", "65,536"])
    left.set_xticks([], minor=True)
    left.set_xlabel("steps of a process")
    left.set_ylabel("processor time of a process, ms")
    left.set_title("Measured on a CPU (gloo): a training step")
    left.legend()
    for mode, colour in (("forward", "C0"), ("train", "C1")):
        rows = [row for row in results["prediction"]["rows"] if row["mode"] == mode and row["least_memory_gib"] < MEMORY]
        gpus = [row["gpus"] for row in rows]
        for latency, style in zip(rows[0]["total_s"], ("-", "--", ":"), strict=True):
            seconds = [row["total_s"][latency] for row in rows]
            right.loglog(gpus, seconds, style, color=colour, base=2, label=f"{mode}, {latency} µs an exchange")
    right.set_xlabel("GPUs")
    right.set_ylabel("seconds")
    right.set_title(r"Predicted, not measured: $10^9$ steps, 128 units")
    ticks = sorted({row["gpus"] for row in results["prediction"]["rows"] if row["least_memory_gib"] < MEMORY})
    right.set_xticks(ticks, [str(number) for number in ticks])
    right.set_yscale("log", base=10)
    right.legend(fontsize=7)
    return figure


def gradient_bounds(certificate: Certificate) -> tuple[list[float], list[float]]:
    """Return the bounds by the spectral norm, and by the best of all tiers."""
    spectral = certificate.layers[0].tiers[0].contraction
    return [spectral.after(lag) for lag in LAGS], [certificate.gradient_bounds(lag)[1] for lag in LAGS]


def window_bounds(certificate: Certificate) -> tuple[list[float], list[float]]:
    """Return the bounds by the spectral norm, no larger than two states can be apart, and by the best of all tiers."""
    spectral, most = certificate.layers[0].tiers[0], 2 * certificate.state_bound
    return [min(spectral.truncation_error(lag), most) for lag in LAGS], [certificate.truncation_error(lag) for lag in LAGS]


def ball() -> Case:
    """Return a network whose weight stays in a spectral ball."""
    torch.manual_seed(0)
    return measure("SpectralBall(0.9)", sr.RNN(INPUTS, UNITS, transition=sr.SpectralBall(0.9), dtype=torch.float64))


def plain(scale: float) -> Case:
    """Return a network as torch initializes it, except for the scale of the recurrent weight."""
    torch.manual_seed(0)
    rnn = torch.nn.RNN(INPUTS, UNITS, dtype=torch.float64)
    with torch.no_grad():
        dict(rnn.named_parameters())["weight_hh_l0"].mul_(scale)
    return measure("torch.nn.RNN" if scale == 1 else f"the same, weight times {scale}", rnn)


@torch.no_grad()
def measure(title: str, rnn: sr.RNN | torch.nn.RNN) -> Case:
    """Certify a network and measure it on inputs of norm up to the bound."""
    certificate = sr.certify(rnn, input_bound=BOUND)
    if not isinstance(certificate, Certificate):
        raise TypeError("one layer in one direction has one certificate")
    x = inputs()
    flow = sr.gradient_flow(rnn, x)
    states = rnn(x)[0]  # (T, B, H)
    truncation = torch.stack([window_error(rnn, x, states, length) for length in LAGS])
    found = "proven to forget" if certificate.stable else "no certificate"
    title = f"{title}\n{found}, contraction {certificate.contraction:.2f}"
    return Case(title, certificate, flow.spectral[LAGS.start : LAGS.stop : LAGS.step], truncation)


def inputs() -> Tensor:
    """Return rows of inputs of norms from 0 to the bound: near zero tanh is steepest."""
    x = torch.randn(STEPS, ROWS, INPUTS, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    return torch.linspace(0, BOUND, ROWS, dtype=x.dtype).unsqueeze(1) * x / torch.linalg.vector_norm(x, dim=-1, keepdim=True)


def window_error(rnn: sr.RNN | torch.nn.RNN, x: Tensor, states: Tensor, length: int) -> Tensor:
    """Return the largest error, over all times, of a state computed from the last ``length`` inputs."""
    windows = x.unfold(0, length, 1).permute(3, 0, 1, 2)  # (length, windows, B, D)
    ends = rnn(windows.flatten(1, 2))[1].view(-1, ROWS, UNITS)
    return torch.linalg.vector_norm(ends - states[length - 1 :], dim=-1).max()


if __name__ == "__main__":
    main()
