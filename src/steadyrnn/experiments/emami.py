"""Figures and theorems of Emami et al.: unitary networks beside contractive ones."""

from .base import Claim, Experiment, Series

__all__ = ["EXPERIMENTS"]

_WORK = "steadyrnn.experiments.equivalence"
_NOT_WRITTEN = "its cells, not written yet"

_SEEDS = (0, 1, 2, 3, 4)
_NETWORKS = ((4, 0.9), (16, 0.99), (64, 0.9999))


def _theorems(steps: int, draws: int, seeds: tuple[int, ...]) -> tuple[Series, ...]:
    return (
        *(
            Series(f"theorem1/n{n}", f"{_WORK}:match_contractive", {"width": n, "norm": norm, "steps": steps}, seeds)
            for n, norm in _NETWORKS
        ),
        *(Series(f"theorem2/n{n}", f"{_WORK}:miss_with_fewer", {"width": n, "draws": draws}, seeds) for n in (1, 2, 3, 4)),
        *(Series(f"near/{r:g}", f"{_WORK}:approximate_with_fewer", {"width": 3, "ratio": r}) for r in (0.1, 0.001)),
        *(Series(f"theorem3/N{n}", f"{_WORK}:collapse_readout", {"units": n, "steps": n + 4}, seeds) for n in (3, 6)),
        *(Series(f"tanh/{p:g}", f"{_WORK}:approximate_with_twice", {"width": 4, "precision": p}, (0,)) for p in (1e-4, 1e-12)),
    )


EXPERIMENTS = (
    Experiment(
        "emami-fig2", "system identification at 20 dB: R^2 against hidden units, RNN, URNN and LSTM", "Figure 2", "gpu", 8,
        "the URNN needs about twice the states of the RNN, then matches it", waits_for=_NOT_WRITTEN,
    ),
    Experiment(
        "emami-fig3", "system identification at 15 dB: R^2 against hidden units, RNN, URNN and LSTM", "Figure 3", "gpu", 8,
        "the URNN needs about twice the states of the RNN, then matches it", waits_for=_NOT_WRITTEN,
    ),
    Experiment(
        "emami-fig4", "permuted MNIST: accuracy of RNN, URNN, LSTM and kin", "Figure 4", "gpu", 8,
        "accuracy and order of the models", waits_for=_NOT_WRITTEN,
    ),
    Experiment(
        "emami-theorems", "Theorems 1 to 3 as demonstrations that run", "Main Results", "seconds", 0.2,
        "2n unitary units equal n contractive ReLU units, fewer do not; no number of sigmoid units does",
        quick=_theorems(500, 20, (0,)), full=_theorems(10_000, 200, _SEEDS), curves=f"{_WORK}:show_theorems",
        claims=(
            Claim(
                "theorem-1",
                "Every contractive ReLU network of n units has a unitary one of at most 2n units with the same outputs",
                "at most 2n hidden states with the identical input-output mapping", "Theorem 1", f"{_WORK}:judge_identical",
            ),
            Claim(
                "theorem-2", "For every n some contractive ReLU network needs 2n unitary units",
                "every equivalent URNN has at least 2n states", "Theorem 2", f"{_WORK}:judge_size",
            ),
            Claim(
                "theorem-3", "Some contractive sigmoid network equals no finite unitary one",
                "no URNN with any finite number of states that exactly matches the input-output mapping", "Theorem 3",
                f"{_WORK}:judge_collapse",
            ),
        ),
    ),
)  # fmt: skip
"""In the order of the paper."""
