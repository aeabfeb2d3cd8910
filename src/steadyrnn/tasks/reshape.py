"""Rows of numbers reshaped into sequences, a fixed count per step."""

from torch import Tensor

__all__ = ["features_per_step", "time_major"]


def time_major(rows: Tensor, features: int | None) -> Tensor:
    """Return rows (B, F) as sequences (T, B, D) with D = ``features``, T = F/D; None leaves the rows as they are.

    Example:
        >>> time_major(torch.tensor([[1, 2, 3, 4], [5, 6, 7, 8]]), 2).tolist()
        [[[1, 2], [5, 6]], [[3, 4], [7, 8]]]
    """
    return rows if features is None else rows.unflatten(1, (-1, features)).transpose(0, 1).contiguous()


def features_per_step(length: int) -> int:
    r"""Return how many numbers of a series a step reads: the largest divisor D of L with :math:`D \le \sqrt{L}`.

    So there are :math:`T = L / D \ge \sqrt{L}` steps; a prime length gives one number per step.

    Example:
        >>> features_per_step(176), features_per_step(251)
        (11, 1)

    References:
        Zhang, Lei, Dhillon. Stabilizing Gradients for Deep Neural Networks via Efficient SVD Parameterization. ICML 2018,
        appendix C; it prints "depth at most the root", which its Table 4 contradicts.
    """
    return max(d for d in range(1, length + 1) if d * d <= length and length % d == 0)
