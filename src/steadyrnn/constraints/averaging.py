"""Averages of models whose weights are constrained: the weights are averaged, and the average is put into the set."""

import copy
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from steadyrnn.checks import check_interval
from steadyrnn.errors import ArgumentError, ArgumentTypeError, ConstraintError, NotInvertibleError, WeightError

from .base import Constraint, Kind
from .membership import Site, joint_modules, refuse_not_finite, sites
from .slot import is_sharded, whole

__all__ = ["Averaged", "averaged"]


def averaged(model: nn.Module, decay: float | None = None, *, device: torch.device | str | None = None) -> "Averaged":
    r"""Return an average over models, each constrained weight of which is in its set.

    Used as :class:`torch.optim.swa_utils.AveragedModel` is: ``update_parameters(model)`` after each step (or epoch), and
    then ``average(input)`` or ``average.module``. Of the weights :math:`W_1, \dots, W_n` of the updates it holds

    .. math::
        P_S\Bigl(\sum_k a_k W_k\Bigr) = \arg\min_{W \in S} \sum_k a_k \lVert W - W_k \rVert_F^2, \qquad
        a_k = \frac1n \;\text{ (SWA)} \quad\text{or}\quad a_1 = d^{n-1}, \; a_k = (1-d) d^{n-k} \;\text{ (EMA)}

    with the set S, its projection :math:`P_S` and :math:`d` = ``decay``. The equation holds for every set: with
    :math:`M = \sum_k a_k W_k` the sum is :math:`\lVert W - M \rVert_F^2` plus what does not depend on W. So the average is
    the member nearest to all the weights; where they lie close together it is as near to them as they are to each other.

    *What is averaged.* The matrices, not the raw tensors they are made of: raw tensors of one matrix are not unique (a
    reflector and its negative, or any multiple of it, are the same reflection; angles count modulo :math:`2\pi`; of
    ``gradient="lie"`` they are 0 after each step), so their mean may be the mean of nothing. The sum :math:`M` is kept
    beside the model, since a mean of projected means is another one. The projected mean then goes through the right
    inverse of the constraint. Where there is none (``unitary``, fewer reflectors than a matrix needs), or no projection,
    or no set (``"printed"``, ``sigma="penalty"``), raw tensors are averaged, which stays in the set of a map; that is
    meaningful only for models of one training run, whose raw tensors lie close together. Jointly constrained weights
    (``StableLSTM``) form a convex set, which holds their mean. All other parameters are averaged, and all other
    buffers copied from the last model, as torch does; ``torch.optim.swa_utils.update_bn`` works.

    An update costs one evaluation, one projection and one inversion of each constrained weight: about as much as the
    projection after a step, and more for ``exp`` and ``unitary-full`` (eigenvalues). Average every few steps where it counts.

    Args:
        model: Any module; it is copied. Wrap a sharded model (FSDP2) before it is sharded; ``update_parameters`` takes
            the sharded one.
        decay: :math:`d` of an exponential moving average, from 0 to 1; None weighs all updates equally (SWA).
        device: Where the average lives; None is where the model is.

    Returns:
        A module with ``update_parameters``, ``module`` (the average, a model like any other) and ``n_averaged``.

    Example:
        >>> model = sr.RNN(2, 4, transition="polar")
        >>> average = sr.averaged(model, decay=0.9)
        >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> handle = sr.attach_projection(optimizer, model)
        >>> for _ in range(3):
        ...     model(torch.randn(5, 1, 2))[0].sum().backward()
        ...     optimizer.step()
        ...     average.update_parameters(model)
        >>> weight = average.module.weight_hh_l0.detach()
        >>> torch.allclose(weight @ weight.mT, torch.eye(4), atol=1e-6)
        True

    References:
        Izmailov, Podoprikhin, Garipov, Vetrov, Wilson. Averaging Weights Leads to Wider Optima and Better Generalization.
        UAI 2018. https://arxiv.org/abs/1803.05407 (SWA)
        Moakher. Means and averaging in the group of rotations. SIAM J. Matrix Anal. Appl. 2002 (the projected mean).
    """
    if not isinstance(model, nn.Module):
        raise ArgumentTypeError(f"`model` must be a module, but is of type {type(model).__name__}.")
    if any(is_sharded(parameter) for parameter in model.parameters()):
        raise WeightError("`model` is sharded, and cannot be copied. Make the average before `fully_shard(model)`.")
    return Averaged(model, None if decay is None else check_interval("decay", decay, 0.0, 1.0), device)


class Averaged(nn.Module):
    """What :func:`averaged` returns: a copy of a model that holds the average of all it was updated with.

    Its state dict holds the average under ``module.``, the sums of weights under ``means.`` and ``n_averaged``, and is
    all that is needed to go on.

    Args:
        model: The model that is copied.
        decay: See :func:`averaged`.
        device: See :func:`averaged`.
    """

    n_averaged: Tensor

    def __init__(self, model: nn.Module, decay: float | None, device: torch.device | str | None) -> None:
        super().__init__()
        self.decay = decay
        self.module = copy.deepcopy(model)
        if device is not None:
            self.module.to(device)
        self.register_buffer("n_averaged", torch.tensor(0, dtype=torch.long, device=device))
        self.means = nn.Module()
        for place, site in enumerate(self._matrices(self.module)):
            self.means.register_buffer(str(place), site.weight().clone())

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Call the average."""
        return self.module(*args, **kwargs)

    def extra_repr(self) -> str:
        """Show the decay."""
        return f"decay={self.decay}"

    @torch.no_grad()
    def update_parameters(self, model: nn.Module) -> None:
        """Take the weights of a model into the average; one that cannot be averaged changes nothing.

        Args:
            model: The model that was copied, as it is now, or one of the same layout, also wrapped (DDP, FSDP2).
        """
        share = self._share()
        mine, theirs = list(self._matrices(self.module)), list(self._matrices(model))
        refuse_not_finite(theirs, [])
        pairs = list(self._others(model, mine, theirs))
        means = [getattr(self.means, str(place)) for place in range(len(mine))]
        values = [site.weight().to(mean) for mean, site in zip(means, theirs, strict=True)]
        values = [mean + share * (value - mean) if share < 1 else value for mean, value in zip(means, values, strict=True)]
        self._put(mine, values)
        for mean, value in zip(means, values, strict=True):
            mean.copy_(value)
        for own, parameter in pairs:
            own.copy_(own + share * (parameter - own) if share < 1 else parameter)
        self._copy_buffers(model, mine, theirs)
        for site in sites(self.module):
            if site.moves and not _by_matrix(site.constraint):
                site.put_back()
        for _, module in joint_modules(self.module):
            module.after_optimizer_step()
        self.n_averaged += 1

    def _share(self) -> float:
        """Return the weight of the next model; the first is taken as it is."""
        count = int(self.n_averaged)
        if count == 0:
            return 1.0
        return 1 / (count + 1) if self.decay is None else 1 - self.decay

    @staticmethod
    def _matrices(model: nn.Module) -> Iterator[Site]:
        """Yield the constrained weights that are averaged as matrices."""
        return (site for site in sites(model) if _by_matrix(site.constraint))

    @staticmethod
    def _put(mine: list[Site], values: list[Tensor]) -> None:
        """Set each weight to the projection of a matrix; on an error all are as before."""
        before = [[tensor.clone() for tensor in _state(site)] for site in mine]
        try:
            for site, value in zip(mine, values, strict=True):
                constraint = site.constraint
                site.write(constraint.right_inverse(constraint.project(value)))
        except Exception as error:
            for site, kept in zip(mine, before, strict=True):
                for tensor, value in zip(_state(site), kept, strict=True):
                    tensor.copy_(value)
            if isinstance(error, ConstraintError | NotInvertibleError):
                raise ConstraintError(f"The average of these models has no raw tensors, and is as before: {error}") from error
            raise

    def _others(self, model: nn.Module, mine: list[Site], theirs: list[Site]) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield this average's parameters that are averaged one by one, each with that of the model."""
        own, given = _without(self.module, mine), _without(model, theirs)
        shapes = [[tuple(p.shape) for p in parameters] for parameters in (own, given)]
        if len(mine) != len(theirs) or shapes[0] != shapes[1]:
            raise ArgumentError(
                f"`model` must have the parameters of the model that is averaged, {len(own)} and {len(mine)} constrained "
                f"weights, but has {len(given)} and {len(theirs)}, or others by shape."
            )
        for parameter, value in zip(own, given, strict=True):
            yield parameter, whole(value.detach()).to(parameter.device)

    def _copy_buffers(self, model: nn.Module, mine: list[Site], theirs: list[Site]) -> None:
        """Copy buffers as torch does, except those that belong to an averaged weight."""
        kept, left = ({id(b) for site in some for b in site.constraint.buffers()} for some in (mine, theirs))
        own = [buffer for buffer in self.module.buffers() if id(buffer) not in kept]
        given = [buffer for buffer in model.buffers() if id(buffer) not in left]
        for buffer, value in zip(own, given, strict=True):
            buffer.copy_(value)


def _by_matrix(constraint: Constraint) -> bool:
    """Say whether a projected mean of matrices can be assigned: to a set that has a projection and a right inverse."""
    projects = type(constraint).project is not Constraint.project
    return constraint.kind is not Kind.BASELINE and constraint.invertible and projects


def _state(site: Site) -> list[Tensor]:
    return [*site.raw.values(), *site.constraint.buffers()]


def _without(model: nn.Module, matrices: list[Site]) -> list[Tensor]:
    """Return the parameters of a model that are not raw tensors of these weights."""
    raw = {id(tensor) for site in matrices for tensor in site.raw.values()}
    return [parameter for parameter in model.parameters() if id(parameter) not in raw]
