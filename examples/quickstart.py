"""Recall the first of 100 numbers: a Spectral-RNN compared with plain RNNs of the same size on the same data.

A network that forgets cannot solve this task, and a network whose gradients explode cannot learn it. Each network is trained
with two learning rates; the better run is shown.
"""

import os
import time
from dataclasses import dataclass
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import torch
from torch import Tensor

import steadyrnn as sr

LENGTH, LARGEST, HIDDEN, BATCH = 100, 9, 128, 64
STEPS = 60 if os.environ.get("STEADYRNN_EXAMPLE_FAST") else 600
RATES = (1e-2, 1e-3)
PICTURE = Path("out/quickstart.png")


@dataclass
class Result:
    """What the table and the picture show of one training run."""

    name: str
    rate: float
    curve: list[float]
    accuracy: float
    gradient_kept: float
    sigma: Tensor
    parameters: int
    seconds: float


def draw(rows: int, seed: int) -> Tensor:
    """Return sequences of whole numbers from 0 to 9, scaled to [-1, 1]; shape (T, B, 1)."""
    numbers = torch.randint(LARGEST + 1, (LENGTH, rows, 1), generator=torch.Generator().manual_seed(seed))
    return 2 * numbers / LARGEST - 1


def make(nonlinearity: str, transition: str | sr.Constraint) -> sr.SequenceModel:
    """Return a recurrent network with a linear readout from its last state."""
    torch.manual_seed(0)
    rnn = sr.RNN(1, HIDDEN, nonlinearity=nonlinearity, bias=False, transition=transition)
    return sr.SequenceModel(rnn, 1)


def loss_of(model: sr.SequenceModel, x: Tensor) -> Tensor:
    """Return the mean squared distance between the answer and the first number."""
    answer, _ = model(x)
    return (answer - x[0]).square().mean()


def gradient_kept(model: sr.SequenceModel, x: Tensor) -> float:
    """Return the norm of the loss's gradient at the first input, relative to the last one."""
    x = x.clone().requires_grad_()
    (grad,) = torch.autograd.grad((model(x)[0] - x[0].detach()).square().mean(), x)
    return float(grad[0].double().norm() / grad[-1].double().norm())  # squares of tiny float32 numbers underflow


def train(name: str, model: sr.SequenceModel, rate: float) -> Result:
    """Train on fresh sequences and test on others."""
    optimizer = torch.optim.Adam(sr.parameter_groups(model, lr=rate, transition_lr=rate / 100))
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    curve, start, kept = [], time.perf_counter(), gradient_kept(model, draw(BATCH, seed=1))
    for step in range(STEPS):
        loss = loss_of(model, draw(BATCH, seed=1000 + step))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        curve.append(float(loss.detach()))
    seconds, x = time.perf_counter() - start, draw(1000, seed=2)
    with torch.no_grad():
        right = ((model(x)[0] - x[0]).abs() < 1 / LARGEST).float().mean()  # rounds to the right number
    weight = torch.as_tensor(model.rnn.weight_hh_l0).detach()
    sigma = torch.linalg.svdvals(weight.nan_to_num())
    count = sum(p.numel() for p in model.parameters())
    print(f"  {name:22s} learning rate {rate:g}: last loss {curve[-1]:.4f}, {100 * right:.1f} % right", flush=True)
    return Result(name, rate, curve, float(right), kept, sigma, count, seconds)


def best(name: str, nonlinearity: str, transition: str | sr.Constraint) -> Result:
    """Train at every learning rate and return the better run."""
    runs = [train(name, make(nonlinearity, transition), rate) for rate in RATES]
    return max(runs, key=lambda run: run.accuracy)


def picture(results: list[Result]) -> None:
    """Draw the loss curves and the singular values after training."""
    fig, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
    for run in results:
        smooth = torch.tensor(run.curve).unfold(0, 10, 1).mean(1)
        left.semilogy(smooth, label=f"{run.name}: {100 * run.accuracy:.0f} % right")
        right.plot(range(1, len(run.sigma) + 1), run.sigma, label=run.name)
    left.set(xlabel="training step", ylabel="squared error", title=f"Recall the first of {LENGTH} numbers")
    right.set(xlabel="index", ylabel="singular value", title="Recurrent matrix after training", ylim=(0, 1.6))
    left.legend()
    right.legend()
    PICTURE.parent.mkdir(exist_ok=True)
    fig.savefig(PICTURE, dpi=120)


def main() -> None:
    """Train all networks and print the comparison."""
    print(f"Recall the first of {LENGTH} numbers from 0 to {LARGEST}: {STEPS} steps of {BATCH} fresh sequences each.")
    results = [
        best("Spectral-RNN", "identity", sr.Spectral(radius=0.01)),
        best("plain RNN, linear", "identity", "free"),
        best("plain RNN, tanh", "tanh", "free"),
    ]
    picture(results)
    print(
        f"\n{'model':20s}{'parameters':>11s}{'rate':>8s}{'test accuracy':>15s}{'last loss':>11s}{'gradient kept':>15s}{'s':>6s}"
    )
    for run in results:
        loss = f"{run.curve[-1]:.5f}" if run.curve[-1] == run.curve[-1] else "diverged"
        print(
            f"{run.name:20s}{run.parameters:>11d}{run.rate:>8g}{100 * run.accuracy:>13.1f} %{loss:>11s}"
            f"{run.gradient_kept:>15.1e}{run.seconds:>6.1f}"
        )
    print("\nsingular values of the recurrent matrix after training")
    for run in results:
        low, middle, high = float(run.sigma.min()), float(run.sigma.median()), float(run.sigma.max())
        print(f"  {run.name:20s}smallest {low:.4f}   median {middle:.4f}   largest {high:.4f}")
    print("\n'gradient kept': the loss's gradient at the first input relative to the last one, before training.")
    print(f"Picture: {PICTURE}")


if __name__ == "__main__":
    main()
