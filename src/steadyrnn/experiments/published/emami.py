"""Emami, Sahraee-Ardakan, Fletcher, Rangan: Input-Output Equivalence of Unitary and Contractive RNNs (the poster)."""

from .base import Published, listed

__all__ = ["PATTERNS", "VALUES"]

_DATA, _RUNS = "Synthetic Data Generation", "Numerical Simulation"
"""Sections of the poster."""

PATTERNS = {
    "theorem<number>/states-per-state": "states of the unitary network per state of the contractive one",
    "synthetic/hidden-units": "states of the true system",
    "synthetic/epsilon": "how far the eigenvalues of W are below 1",
    "synthetic/on-percent": "share of time in which a unit is on, percent",
    "synthetic/snr/<i>": "signal-to-noise ratio of the outputs, dB",
    "synthetic/length": "steps of one trial, T",
    "synthetic/time-constants": "T in time constants 1/epsilon",
    "synthetic/test-ratio": "share of the data that is tested on",
    "training/hidden-units/<i>": "states of the networks that are trained",
    "training/batch-size": "sequences per batch",
    "training/learning-rate": "learning rate",
    "training/realizations": "true systems, averaged over",
    "figure<number>/snr": "signal-to-noise ratio of the outputs, dB, in the caption",
}
"""What the keys of ``VALUES`` mean."""

VALUES: dict[str, Published] = {
    "theorem1/states-per-state": Published(
        2,
        'Main Results, Theorem 1: "there exists a URNN with at most 2n hidden states"',
        "n + rank(I - W^T W) states are enough.",
    ),
    "theorem2/states-per-state": Published(
        2, 'Main Results, Theorem 2: "every equivalent URNN has at least 2n states"', "For exact equality."
    ),
    "synthetic/hidden-units": Published(4, f'{_DATA}: "Multiple instances of a synthetic RNN with 4 hidden units"'),
    "synthetic/epsilon": Published(
        0.01, f'{_DATA}: "epsilon = 0.01"', "In the formula beside it, W = I - epsilon A^T A / |A|^2, the minus sign is lost."
    ),
    "synthetic/on-percent": Published(60, f'{_DATA}: "hidden states are on 60% of the time"'),
    **listed("synthetic/snr", f'{_DATA}: "Additive output noise with SNR= 15, 20 dB"', (15, 20)),
    "synthetic/length": Published(1000, f'{_DATA}: "Each trial: T= 1000"'),
    "synthetic/time-constants": Published(
        10,
        f'{_DATA}: "10 x time constant(1/epsilon)"',
        "True of the fastest mode only: the slowest one has a median of 11,000 steps.",
    ),
    "synthetic/test-ratio": Published(0.3, f'{_DATA}: "test ratio = 0.3"'),
    **listed(
        "training/hidden-units",
        f'{_RUNS}: "Standard RNNs, URNNs, LSTMs with [2,4,6,8,10,12,14] hidden units"',
        (2, 4, 6, 8, 10, 12, 14),
    ),
    "training/batch-size": Published(10, f'{_RUNS}: "batch-size = 10"'),
    "training/learning-rate": Published(0.01, f'{_RUNS}: "learning-rate = 0.01"'),
    "training/realizations": Published(30, f'{_RUNS}: "Averaged over 30 realization of original contractive system"'),
    "figure2/snr": Published(20, 'Caption of Figure 2: "output SNR=20 dB"'),
    "figure3/snr": Published(15, 'Caption of Figure 3: "output SNR=15 dB"'),
}
"""Every number by its key. No R^2 and no accuracy is printed: the curves of the figures are not numbers."""
