"""Train a stable tanh RNN and a stable LSTM, certify and convert them, and check the proven bounds on new data.

The task is a moving average of a noisy series. It needs memory, but only a limited one.
"""

import os

import torch
from torch import Tensor

import steadyrnn as sr

INPUTS, HIDDEN, LENGTH, LONG, ROWS, BOUND = 2, 24, 200, 4000, 32, 1.0
STEPS = 20 if os.environ.get("STEADYRNN_EXAMPLE_FAST") else 300
EPS = 1e-3


def series(rows: int, seed: int, length: int = LENGTH) -> tuple[Tensor, Tensor]:
    """Return inputs (T, B, 2) of norm at most 1 and the running averages (T, B) of their first entries."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(length, rows, INPUTS, generator=generator)
    x = x / torch.linalg.vector_norm(x, dim=-1, keepdim=True).clamp(min=BOUND)
    target, average = [], torch.zeros(rows)
    for step in x[..., 0]:
        average = 0.8 * average + 0.2 * step
        target.append(average)
    return x, torch.stack(target)


def train(rnn: sr.RNN | sr.LSTM) -> tuple[sr.SequenceModel, float]:
    """Train a model with ``rnn`` and return it with its last loss; weights are projected after every step."""
    torch.manual_seed(0)
    model = sr.SequenceModel(rnn, 1, readout="each")
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    sr.attach_projection(optimizer, model)
    loss = torch.zeros(())
    for step in range(STEPS):
        x, target = series(ROWS, seed=step)
        loss = (model(x)[0].squeeze(-1) - target).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model, float(loss.detach())


def largest(difference: Tensor) -> float:
    """Return the largest 2-norm of a difference of states (T, B, H)."""
    return float(torch.linalg.vector_norm(difference.detach().double(), dim=-1).max())


def check(name: str, rnn: sr.RNN | sr.LSTM) -> None:
    """Certify a trained layer, convert it, and compare the proven bounds with the errors on new data."""
    certificate = sr.certify(rnn, input_bound=BOUND)
    print(f"\n{name}\n{certificate}")
    x, _ = series(2, seed=10**6, length=LONG)
    sequential = rnn(x)[0]
    print(f"  remembers at most {certificate.horizon(EPS)} steps, to {EPS:g}")

    windows = sr.to_feedforward(rnn, EPS, BOUND)
    error = largest(windows(x) - sequential)
    print(f"  feed-forward on windows of {windows.window}: error {error:.2e}, proven {windows.bound:.2e}")
    if error > windows.bound + 1e-5:
        raise SystemExit("the feed-forward network breaks its promise")

    fast = sr.to_parallel(rnn, 1e-5, input_bound=BOUND)
    error = largest(fast(x)[0] - sequential)
    promised = fast.report.truncation + fast.report.rounding
    print(f"  parallel in {fast.report.depth} steps instead of {LONG}: error {error:.2e}, proven {promised:.2e}")
    if error > promised:
        raise SystemExit("the parallel run breaks its promise")


def main() -> None:
    """Train, certify, convert, check."""
    torch.manual_seed(0)
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    rnn = sr.RNN(INPUTS, HIDDEN, transition=sr.SpectralBall(0.95))
    lstm = sr.LSTM(INPUTS, HIDDEN, transition=sr.StableLSTM(input_bound=BOUND))
    for name, layer in (("stable tanh RNN", rnn), ("stable LSTM", lstm)):
        _, loss = train(layer)
        print(f"{name}: last loss {loss:.2e}")
        check(name, layer)


if __name__ == "__main__":
    main()
