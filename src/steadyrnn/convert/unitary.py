"""A unitary network that computes what a contractive one computes: Theorem 1, its limits, and what to do beyond them."""

import copy
from typing import overload

import torch
from torch import Tensor, nn

from steadyrnn.bounds.unitary import unitary_size_bound
from steadyrnn.certificates.layer import read_weights
from steadyrnn.checks import without_autocast
from steadyrnn.errors import CertificateError, ConversionError
from steadyrnn.layers.rnn import RNN
from steadyrnn.models.converted import M, WholeModel, convert_layer_of

from .rnn import as_rnn
from .unitary_plan import Plan, Wish, assemble, make_plan, report_on
from .unitary_rnn import UnitaryRNN

__all__ = ["minimal_unitary_size", "to_unitary"]

CHECKED_STEPS = 256
"""Steps of the comparison that every conversion ends with."""


@overload
def to_unitary(  # type: ignore[overload-overlap]
    rnn: M, input_bound: float | None, horizon: int | None = None, approximate: bool = False, *,
    initial_bound: float = 0.0, precision: float = 1e-12,
) -> M: ...  # fmt: skip
@overload
def to_unitary(
    rnn: nn.Module, input_bound: float | None, horizon: int | None = None, approximate: bool = False, *,
    initial_bound: float = 0.0, precision: float = 1e-12,
) -> UnitaryRNN: ...  # fmt: skip


def to_unitary(
    rnn: nn.Module,
    input_bound: float | None,
    horizon: int | None = None,
    approximate: bool = False,
    *,
    initial_bound: float = 0.0,
    precision: float = 1e-12,
) -> nn.Module:
    r"""Return an RNN with an orthogonal recurrent weight that computes the same outputs.

    .. math::
        W_u = \begin{pmatrix} W & P_I \operatorname{diag}(c_I) \\ \operatorname{diag}(c_I) Q_I^\top & -\operatorname{diag}(s_I)
        \end{pmatrix}, \quad b_u = \begin{pmatrix} b \\ -R\, c_I \end{pmatrix}, \quad c_i = \sqrt{1 - s_i^2}

    for :math:`W = P \operatorname{diag}(s) Q^\top`, :math:`\lVert W \rVert \le 1`, and I the r places where :math:`s_i < 1`.
    No state leaves the ball of radius R, so each of the r extra units sees a pre-activation of at most 0, is 0 after every
    step, and the first n units do not notice it. R follows from the input bound, the bias and the initial state
    (:func:`~steadyrnn.bounds.unitary.dilation_radius`); for :math:`\lVert W \rVert = 1` it grows with the number of steps.

    A ReLU network is first rescaled, :math:`W_d = \operatorname{diag}(d) W \operatorname{diag}(d)^{-1}`, where
    :math:`\lVert W \rVert > 1 \ge \lVert W_d \rVert`, or where that saves extra units; the module takes and gives
    unscaled states. Stacks and both directions are converted one by one, the input bound of a layer being the radius of
    those below; all get the width of the widest. Sigmoid and tanh have no exact equivalent (Theorem 3); with
    ``approximate`` they get one whose error is below ``precision``.

    The recurrent weight of ``.layer`` is a free parameter that starts orthogonal: nothing keeps it so in training
    (:class:`~steadyrnn.constraints.exponential.ExpOrthogonal` would). The promise is for the dtype of ``rnn``:
    convert after casting. Dropout between layers acts alike in distribution. The result is compared with ``rnn`` on
    random admissible inputs before it is returned.

    Args:
        rnn: An :class:`~steadyrnn.layers.rnn.RNN` or a :class:`torch.nn.RNN`; or a ``SequenceModel``, whose layer is
            converted.
        input_bound: Bound on the 2-norm of every :math:`x_t`, checked on every call. None where none is needed: for
            weights that are orthogonal already, and for sigmoid and tanh.
        horizon: The longest sequence, needed where the layer does not contract; checked on every call.
        approximate: Whether sigmoid and tanh may be converted up to an error.
        initial_bound: Bound on the 2-norm of each state in an ``hx`` that is not the state of an earlier call.
        precision: The largest error of an approximate conversion, in the 2-norm of every state.

    Returns:
        A module called as ``rnn`` is, with ``.layer`` (the RNN of n + r units) and ``.report``. Of a ``SequenceModel``:
        one with the same embedding and readout, whose ``rnn`` is that module; ``.report`` is the layer's.

    Raises:
        ConversionError: There is no equivalent (another cell, activation or norm; the theorem is named), or an
            assumption is missing.

    Example:
        >>> rnn = sr.RNN(3, 8, nonlinearity="relu", dtype=torch.float64)
        >>> rnn.weight_hh_l0 = torch.nn.Parameter(0.5 * torch.eye(8, dtype=torch.float64).roll(1, dims=0))
        >>> unitary = to_unitary(rnn, input_bound=2.0)
        >>> print(unitary.report.size_before, "->", unitary.report.size_after)
        8 -> 9
        >>> x = torch.nn.functional.normalize(torch.randn(100, 4, 3, dtype=torch.float64), dim=-1)
        >>> torch.allclose(unitary(x)[0], rnn(x)[0], rtol=1e-13)
        True

    References:
        Emami, Sahraee-Ardakan, Fletcher, Rangan. Input-Output Equivalence of Unitary and Contractive RNNs.
        NeurIPS 2019. https://arxiv.org/abs/1910.13672
    """
    if isinstance(rnn, WholeModel):
        limits = {"initial_bound": initial_bound, "precision": precision}
        return convert_layer_of(rnn, lambda layer: to_unitary(layer, input_bound, horizon, approximate, **limits))
    wish = Wish(input_bound, horizon, approximate, initial_bound, precision)
    ours = as_rnn(rnn)
    with torch.no_grad(), without_autocast(ours.weight_ih_l0.device):
        plan = make_plan(ours, wish)
        module = assemble(ours, plan)
        module.report = report_on(ours, plan, _self_check(ours, module, plan))
    return module.train(rnn.training)


def minimal_unitary_size(rnn: nn.Module) -> int:
    r"""Return a number of units below which no unitary ReLU network computes the same outputs for all inputs.

    .. math:: n_u \ge n + \dim \ker W \qquad (\operatorname{rank} F = n)

    That is Theorem 2 where it applies: a ReLU layer whose outputs are its states and whose input weight F has rank n;
    see :func:`~steadyrnn.bounds.unitary.unitary_size_bound` for the proof. The bound is about exact equality: fewer units
    come as close as one likes, at the price of huge weights; Note [mathematics], section 1.5. :func:`to_unitary` needs at
    most 2n.

    Args:
        rnn: An RNN of ours or torch's, of one layer and direction.

    Raises:
        ConversionError: The theorem does not apply; the message says why.

    Example:
        >>> rnn = sr.RNN(3, 3, nonlinearity="relu")
        >>> _ = torch.nn.init.zeros_(rnn.weight_hh_l0)
        >>> minimal_unitary_size(rnn), to_unitary(rnn, input_bound=1.0).layer.hidden_size
        (6, 6)

    References:
        Theorem 2 of Emami, Sahraee-Ardakan, Fletcher, Rangan. Input-Output Equivalence of Unitary and Contractive RNNs.
        NeurIPS 2019. https://arxiv.org/abs/1910.13672
    """
    ours = as_rnn(rnn)
    if ours.activation.kernel != "relu":
        raise ConversionError(f"Theorem 2 of Emami et al. (2019) is about ReLU, but `rnn` has {ours.activation.name}.")
    if ours.num_layers > 1 or ours.bidirectional:
        raise ConversionError("Theorem 2 of Emami et al. (2019) is about one layer in one direction, but `rnn` has more.")
    with without_autocast(ours.weight_ih_l0.device):
        weights = read_weights(ours)[0][0]
    try:
        return unitary_size_bound(weights.weight_hh, weights.weight_ih)
    except CertificateError as error:
        raise ConversionError(str(error)) from error


def _self_check(rnn: RNN, module: UnitaryRNN, plan: Plan) -> float:
    """Run both on random admissible inputs; return the relative difference, or refuse one beyond rounding."""
    original = copy.deepcopy(rnn).eval()
    module.eval()
    inputs, hx = _admissible(rnn, plan)
    expected, found = original(inputs, hx)[0].double(), module(inputs, hx)[0].double()
    size, unit = rnn.hidden_size, torch.finfo(inputs.dtype).eps / 2
    if plan.exact:
        _check_silence(module, inputs, hx)
        gap, whole = float((found - expected).norm()), float(expected.norm())
        difference, allowed = gap / whole if whole else gap, 64 * size * unit
    else:  # saturating states are of size 1, whatever the input's is
        difference = float(torch.linalg.vector_norm(found - expected, dim=-1).max())
        allowed = plan.error * rnn.directions + 64 * size * unit * size**0.5
    if not difference <= allowed:
        raise ConversionError(
            f"The unitary network differs from `rnn` by {difference:.3g} on random inputs, more than rounding explains "
            f"({allowed:.3g}). Please report this with the layer's weights."
        )
    return difference


def _check_silence(module: UnitaryRNN, inputs: Tensor, hx: Tensor | None) -> None:
    """Refuse a network whose extra units are not exactly 0, at the end in any layer or at any time in the last one."""
    output, h_n = module.layer(inputs, None if hx is None else module.enlarged(hx))
    units = output.unflatten(-1, (module.layer.directions, -1))
    if bool(units[..., module.hidden_size :].any()) or bool(h_n[..., module.hidden_size :].any()):
        raise ConversionError(
            "The extra units of the unitary network are not silent. Please report this with the layer's weights."
        )


def _admissible(rnn: RNN, plan: Plan) -> tuple[Tensor, Tensor | None]:
    """Return inputs and initial states as large as is promised: one row constant, the others random."""
    generator = torch.Generator().manual_seed(0)
    weight, wish = rnn.weight_ih_l0, plan.wish
    steps = CHECKED_STEPS if plan.horizon is None else min(CHECKED_STEPS, plan.horizon)
    x = torch.randn(steps, 4, rnn.input_size, generator=generator, dtype=torch.float64, device="cpu")
    x[:, 0] = x[0, 0]
    x[:, 3] *= torch.rand(steps, 1, generator=generator, dtype=torch.float64, device="cpu")
    bound = 1.0 if wish.input_bound is None else wish.input_bound
    x[:, :3] = torch.nn.functional.normalize(x[:, :3], dim=-1)
    x[:, 3] /= x[:, 3].norm(dim=-1).max().clamp(min=1e-300)
    x = (x * bound).to(weight)
    hx = None
    if wish.initial_bound:
        places = rnn.num_layers * rnn.directions
        hx = torch.randn(places, 4, rnn.hidden_size, generator=generator, dtype=torch.float64, device="cpu")
        hx = (torch.nn.functional.normalize(hx, dim=-1) * wish.initial_bound).to(weight)
    return x.transpose(0, 1) if rnn.batch_first else x, hx
