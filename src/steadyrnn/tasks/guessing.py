"""What the best guess scores that does not look at the input."""

import math

import torch
from torch import Tensor

__all__ = ["class_guess", "label_guess"]


def class_guess(target: Tensor) -> dict[str, float]:
    r"""Return the best loss and accuracy on classes: their entropy, and the share of the commonest.

    .. math:: -\sum_c p_c \ln p_c, \qquad \max_c p_c, \qquad p_c \text{ the share of class } c \text{ in } \texttt{target}

    By Gibbs' inequality no fixed distribution has a smaller cross-entropy than the shares themselves.

    Example:
        >>> class_guess(torch.tensor([0, 0, 3, 3]))
        {'loss': 0.6931471805599453, 'accuracy': 0.5}
    """
    share = target.unique(return_counts=True)[1].double() / target.numel()
    return {"loss": -math.fsum((share * share.log()).tolist()), "accuracy": float(share.max())}


def label_guess(target: Tensor, depths: tuple[int, ...]) -> dict[str, float]:
    """Return the best loss and precisions on sets of labels, (N, C): each label's own share, the commonest labels first.

    Example:
        >>> label_guess(torch.tensor([[1, 0], [1, 1]]), (1, 2))
        {'loss': 0.34657359027997264, 'precision@1': 1.0, 'precision@2': 0.75}
    """
    share = target.double().mean(0)  # (C,)
    entropy = -(torch.xlogy(share, share) + torch.xlogy(1 - share, 1 - share))
    best = share.sort(descending=True).values
    return {"loss": float(entropy.mean())} | {f"precision@{k}": float(best[:k].sum() / k) for k in depths}
