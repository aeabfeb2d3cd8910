"""Recall the first of 100 numbers: a Spectral-RNN and a plain RNN, same size, same data, same optimizer."""

import os
import time
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, one_hot

import steadyrnn as sr

LENGTH, NUMBERS, HIDDEN, BATCH, RATE = 100, 10, 64, 64, 1e-3
FAST = bool(os.environ.get("STEADYRNN_EXAMPLE_FAST"))
STEPS = 60 if FAST else 1000
PICTURE = Path("out/quickstart.png")


def draw(rows: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Return sequences of one-hot numbers, shape (T, B, numbers), and the first number of each."""
    numbers = torch.randint(NUMBERS, (LENGTH, rows), generator=generator)
    return one_hot(numbers, NUMBERS).float(), numbers[0]


def make(transition: str | sr.Spectral) -> sr.SequenceModel:
    """Return a recurrent network with a linear readout from its last state."""
    torch.manual_seed(0)
    rnn = sr.RNN(NUMBERS, HIDDEN, nonlinearity="leaky_relu", transition=transition)
    return sr.SequenceModel(rnn, NUMBERS)


def gradient_ratio(model: sr.SequenceModel, x: Tensor, y: Tensor) -> float:
    """Return how much of the loss's gradient reaches the first input, relative to the last."""
    x = x.clone().requires_grad_()
    (grad,) = torch.autograd.grad(cross_entropy(model(x)[0], y), x)
    return float(grad[0].norm() / grad[-1].norm())


def train(name: str, model: sr.SequenceModel) -> dict[str, object]:
    """Train on fresh sequences; return what the table and the picture show."""
    generator = torch.Generator().manual_seed(1)
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
    curve, start = [], time.perf_counter()
    for step in range(STEPS):
        x, y = draw(BATCH, generator)
        logits, _ = model(x)
        loss = cross_entropy(logits, y)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        curve.append(float(loss.detach()))
        if step % max(STEPS // 5, 1) == 0:
            print(f"  {name:12s} step {step:5d}  loss {curve[-1]:.4f}", flush=True)
    x, y = draw(1000, torch.Generator().manual_seed(2))  # fresh sequences that training never saw
    with torch.no_grad():
        accuracy = float((model(x)[0].argmax(-1) == y).float().mean())
    sigma = torch.linalg.svdvals(model.rnn.weight_hh_l0.detach())
    return {
        "name": name, "curve": curve, "accuracy": accuracy, "sigma": sigma, "seconds": time.perf_counter() - start,
        "flow": gradient_ratio(model, x, y), "size": sum(p.numel() for p in model.parameters()),
    }  # fmt: skip


def picture(results: list[dict[str, object]]) -> None:
    """Draw the loss curves and the singular values of both networks."""
    fig, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
    for result in results:
        curve, sigma = torch.tensor(result["curve"]), result["sigma"]
        smooth = curve.unfold(0, min(20, len(curve)), 1).mean(1)
        left.plot(smooth, label=f"{result['name']} ({100 * result['accuracy']:.1f} %)")  # type: ignore[operator]
        right.plot(range(1, len(sigma) + 1), sigma, label=result["name"])  # type: ignore[arg-type]
    left.axhline(torch.tensor(float(NUMBERS)).log(), color="gray", linestyle=":", label="guessing")
    left.set(xlabel="training step", ylabel="loss", title=f"Recall the first of {LENGTH} numbers")
    right.set(xlabel="index", ylabel="singular value", title="Recurrent matrix after training", ylim=(0, None))
    left.legend()
    right.legend()
    PICTURE.parent.mkdir(exist_ok=True)
    fig.savefig(PICTURE, dpi=120)


def main() -> None:
    """Train both and print the comparison."""
    print(f"Recall the first of {LENGTH} numbers from 0 to {NUMBERS - 1}; {STEPS} steps of {BATCH} sequences each.")
    results = [
        train("Spectral-RNN", make(sr.Spectral(reflectors=16, radius=0.01))),
        train("plain RNN", make("free")),
    ]
    picture(results)
    print(
        f"\n{'model':14s}{'parameters':>11s}{'test accuracy':>15s}{'last loss':>11s}{'gradient kept':>15s}{'seconds':>9s}"
    )
    for r in results:
        print(
            f"{r['name']:14s}{r['size']:>11d}{100 * r['accuracy']:>13.1f} %{r['curve'][-1]:>11.4f}"  # type: ignore[index, operator]
            f"{r['flow']:>15.1e}{r['seconds']:>9.1f}"
        )
    print("\nsingular values of the recurrent matrix")
    for r in results:
        sigma: Tensor = r["sigma"]  # type: ignore[assignment]
        print(f"  {r['name']:14s}smallest {sigma.min():.4f}   median {sigma.median():.4f}   largest {sigma.max():.4f}")
    print("\n'gradient kept': norm of the gradient at the first input, relative to the last one.")
    print(f"Picture: {PICTURE}")


if __name__ == "__main__":
    main()
