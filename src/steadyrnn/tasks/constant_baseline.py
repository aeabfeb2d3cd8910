"""The scores of the best constant prediction, which ignores the input."""

import math

import torch
from torch import Tensor

__all__ = ["class_baseline", "label_baseline"]


def class_baseline(target: Tensor) -> dict[str, float]:
    r"""Return loss and accuracy of the best constant prediction: the entropy of the classes, the share of the commonest.

    .. math:: -\sum_c p_c \ln p_c, \qquad \max_c p_c, \qquad p_c \text{ the share of class } c \text{ in } \texttt{target}

    By Gibbs' inequality no fixed distribution has a smaller cross-entropy than the shares themselves.

    Example:
        >>> class_baseline(torch.tensor([0, 0, 3, 3]))
        {'loss': 0.6931471805599453, 'accuracy': 0.5}
    """
    share = target.unique(return_counts=True)[1].double() / target.numel()
    return {"loss": -math.fsum((share * share.log()).tolist()), "accuracy": float(share.max())}


def label_baseline(target: Tensor, depths: tuple[int, ...]) -> dict[str, float]:
    """Return loss and precisions of the best constant prediction of label sets (N, C): each label with its own frequency.

    Example:
        >>> label_baseline(torch.tensor([[1, 0], [1, 1]]), (1, 2))
        {'loss': 0.34657359027997264, 'precision@1': 1.0, 'precision@2': 0.75}
    """
    share = target.double().mean(0)  # (C,)
    entropy = -(torch.xlogy(share, share) + torch.xlogy(1 - share, 1 - share))
    best = share.sort(descending=True).values
    return {"loss": float(entropy.mean())} | {f"precision@{k}": float(best[:k].sum() / k) for k in depths}
