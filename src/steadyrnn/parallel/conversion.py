"""Conversion of a stable recurrent layer, or of a model around one, to windows of time and ranks of a group."""

from typing import overload

import torch
import torch.distributed as dist
from torch import nn

from steadyrnn.checks import check_number, check_positive_int
from steadyrnn.errors import ArgumentError, ConversionError
from steadyrnn.layers.base import RecurrentLayer
from steadyrnn.layers.from_torch import from_torch
from steadyrnn.layers.saturation import refuse_saturation
from steadyrnn.models.converted import M, WholeModel, convert_layer_of
from steadyrnn.models.sequence import SequenceModel

from .module import Parallel
from .ranks import ranks_of

__all__ = ["as_layer", "to_parallel"]


@overload
def to_parallel(  # type: ignore[overload-overlap]
    rnn: M, tol: float, chunk: int | None = None, *, input_bound: float | None = None, gradient_tol: float | None = None,
    verify: bool = False, group: bool | dist.ProcessGroup | None = None,
) -> M: ...  # fmt: skip
@overload
def to_parallel(
    rnn: nn.Module, tol: float, chunk: int | None = None, *, input_bound: float | None = None,
    gradient_tol: float | None = None, verify: bool = False, group: bool | dist.ProcessGroup | None = None,
) -> Parallel: ...  # fmt: skip


def to_parallel(
    rnn: nn.Module,
    tol: float,
    chunk: int | None = None,
    *,
    input_bound: float | None = None,
    gradient_tol: float | None = None,
    verify: bool = False,
    group: bool | dist.ProcessGroup | None = None,
) -> nn.Module:
    r"""Return a module that computes what a stable layer does, in C + k steps one after another instead of T.

    Time is cut into windows of C steps, each run from zero k steps earlier, all of them as one batch. A network that
    contracts by :math:`\lambda < 1` per step forgets the wrong start: the error is at most :math:`\lambda^{k+i} R` at
    position i. What is really lost is measured: where window j - 1 ends, window j has its own state, and their difference
    bounds the error of both. While that is above ``tol``, all windows are run again from where the ones before ended,
    each time with :math:`\lambda^C` of the error; Note [mathematics], section 6. So the promise needs no luck:

    - the error of every h_t, in the 2-norm, is at most ``report.truncation + report.rounding``, and
      ``report.truncation <= tol``. It is an error against the layer run sequentially, exactly or in the same dtype;
      in a stack, of every layer's h_t. Rounding is reported and cannot be chosen: its bound is a worst case over all orders
      of summation. With ``verify`` one number takes the place of both, ``report.error``: what :func:`steadyrnn.verify` proves
      of the states as they were computed, against the exact run.
    - gradients flow through warm-up and sweeps; ``report.gradient`` bounds what truncation does to them after ``backward``.
      Rounding is not in it.

    With ``group`` the ranks of a process group run one series together. Each calls the module with its own consecutive part,
    :math:`(T_r, B, D)`, ranks in order of time; parts may differ in length, and be empty. Each gets its own part of the
    outputs, :math:`(T_r, B, H)`, and on every rank the final state of the whole series. Every part is run at once, from
    zero. Then its end state goes to the next rank, which runs its first :math:`k_r` steps again from there, until both
    runs are :math:`m_r` apart. With :math:`T_r` the steps of a part and :math:`a_0 = 0`

    .. math::
        N(\text{error at position } i) \le \lambda^{i - k_r} (m_r + \lambda^{k_r} a_r) + o_r, \qquad
        a_{r+1} = d_{r+1} + \lambda^{T_r - k_r} (m_r + \lambda^{k_r} a_r) + o_r,

    with :math:`o_r` the error of windows inside a part, and :math:`d_r` by how much the end of the part before has moved
    since; while this is above ``tol``, states are passed on again (Note [mathematics], section 6.7). So states, their
    adjoints in ``backward`` and a few numbers are all that is sent, whatever T is; ``report.exchanged`` counts the bytes.
    Truncation, rounding, ``verified`` and ``gradient`` are the same numbers on every rank, for the whole series. All ranks
    have the same weights, which is checked, and make the same calls: the loss is the sum of what each rank calls
    ``backward`` on, and one without a loss calls it on ``0 * output.sum()``. Each rank has its part of the weights'
    gradient; they are to be summed, ``for p in rnn.parameters(): dist.all_reduce(p.grad)``. ``hx`` is read from rank 0.

    The layer is shared, not copied; one of torch is copied by :func:`steadyrnn.from_torch`. Before every call the weights
    are compared with those certified, and certified anew where they changed. Eager only: under ``torch.compile`` it breaks
    the graph. Bidirectional layers are refused: run one layer per direction.

    Args:
        rnn: An RNN, GRU or LSTM, of ours or of torch; or a ``SequenceModel``, whose layer is converted.
        tol: Bound on the truncation.
        chunk: C; chosen by cost if None.
        input_bound: Bound on the 2-norm of every x_t, checked on every call; needed for GRU and LSTM, whose contraction
            depends on it.
        gradient_tol: If given, warm-up and sweeps also make each :math:`F_t` of ``report.gradient`` at most this, so that
            the gradient's error by truncation is at most ``gradient_tol`` times the sum of the norms of the cotangents.
        verify: Whether every call evaluates its steps once more in float64, and reports the error that follows.
        group: The ranks that run one series: True for all processes, or a process group of ``torch.distributed``; None
            for this process alone.

    Returns:
        A module with the layer's own call, and ``report``; of a ``SequenceModel`` one with the same embedding and readout.

    Raises:
        ConversionError: No contraction is proven, or the module is none of the above.
        ArgumentError: A gated layer without ``input_bound``, or ``group`` without a process group of this process.

    Example:
        >>> rnn = sr.RNN(3, 8, transition=sr.SpectralBall(0.8), dtype=torch.float64)
        >>> fast = to_parallel(rnn, tol=1e-8, chunk=100)
        >>> x = torch.randn(1000, 2, 3, dtype=torch.float64)
        >>> output, h_n = fast(x)
        >>> float((output - rnn(x)[0]).detach().norm(dim=-1).max()) <= fast.report.truncation + fast.report.rounding
        True
        >>> fast.report.windows, fast.report.depth < 300
        (10, True)

        One process of a group; ``torchrun`` starts many, each with its own part of x:

        >>> import torch.distributed as dist
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> part, h_n = to_parallel(rnn, tol=1e-8, group=True)(x)
        >>> part.shape, h_n.shape
        (torch.Size([1000, 2, 8]), torch.Size([1, 2, 8]))
        >>> dist.destroy_process_group()

    References:
        Miller, Hardt. When Recurrent Models Don't Need To Be Recurrent. https://arxiv.org/abs/1805.10369
    """
    if isinstance(rnn, WholeModel):
        wishes = {"input_bound": input_bound, "gradient_tol": gradient_tol}
        if ranks_of(group).size > 1:
            refuse_readout(rnn)
        return convert_layer_of(rnn, lambda layer: to_parallel(layer, tol, chunk, **wishes, verify=verify, group=group))
    layer = as_layer(rnn)
    if input_bound is None and layer.cell.record.activation is None:
        raise ArgumentError(
            "`input_bound` must be given for a gated layer, whose contraction depends on it: a bound on the 2-norm of "
            "every x_t."
        )
    if input_bound is not None:
        input_bound = check_number("input_bound", input_bound, finite=True)
    return Parallel(
        layer,
        check_number("tol", tol, low=torch.finfo(torch.float64).tiny, finite=True),
        None if chunk is None else check_positive_int("chunk", chunk),
        input_bound,
        None if gradient_tol is None else check_number("gradient_tol", gradient_tol, low=1e-300, finite=True),
        bool(verify),
        ranks_of(group),
    )


def refuse_readout(model: WholeModel) -> None:
    """Refuse a model that reads more of the series than a rank has."""
    if isinstance(model, SequenceModel) and (model.reads == "each" or (model.reads == "last" and not model.skip)):
        return
    raise ConversionError(
        "`rnn` is a model that reads more than a rank has of the series: with `group` a `SequenceModel` has the readout "
        "'each', or 'last' without `skip`. Convert its layer, and read its outputs in a way of your own."
    )


def as_layer(rnn: nn.Module) -> RecurrentLayer:
    """Return a layer of ours that runs one way.

    Example:
        >>> type(as_layer(torch.nn.GRU(2, 3))).__name__
        'GRU'
    """
    layer = from_torch(rnn) if type(rnn) in (nn.RNN, nn.GRU, nn.LSTM) else rnn
    if not isinstance(layer, RecurrentLayer):
        raise ConversionError(
            f"`rnn` must be an RNN, GRU or LSTM, of steadyrnn or of torch.nn, but is {type(rnn).__qualname__}. "
            "Convert the recurrent layer inside a larger module by itself."
        )
    if layer.cell.record.theorem is None:
        refuse_saturation(layer, ConversionError, "it cannot be run in windows of time")
        raise ConversionError(f"`rnn` has the cell {layer.cell.key!r}, and no theorem says that it contracts.")
    if layer.bidirectional:
        raise ConversionError("`rnn` is bidirectional, and windows are proven one way only: convert one layer per direction.")
    return layer
