"""From the training set to new data: the margin bound of a ReLU network (Note [mathematics], section 2.12)."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from steadyrnn.checks import check_count, check_finite, check_matrix, check_number
from steadyrnn.errors import ArgumentError, ArgumentTypeError, CertificateError, ShapeError

from .norms import ROUND_OFF, above, below, power_above, product_above, state_radius
from .sandwich import singular_enclosure

__all__ = [
    "GeneralizationBound",
    "WeightNorms",
    "complexity",
    "cover_size",
    "generalization_bound",
    "kl_bound",
    "margin_loss",
    "spectral_norms",
    "weight_norms",
]

_RESOLUTION = 20  # of the cover where there is no number of steps: neighbours differ by a factor of 21 / 19
_FIRST = 1 + 2.0**-20  # the first point of a grid from 1 on, so that what is 1 up to rounding lies on it


@dataclass(frozen=True)
class WeightNorms:
    r"""Spectral and Frobenius norm of each weight of :math:`h_t = \sigma(W h_{t-1} + M x_t)`, :math:`\hat y_t = Y h_t`.

    Args:
        recurrent: :math:`(\lVert W \rVert, \lVert W \rVert_F)`.
        input: Those of M.
        output: Those of Y.
        size: n, the largest of the numbers of units, inputs and outputs.
    """

    recurrent: tuple[float, float]
    input: tuple[float, float]
    output: tuple[float, float]
    size: int


@dataclass(frozen=True)
class GeneralizationBound:
    """What :func:`generalization_bound` finds.

    Args:
        bound: On the probability of an error on new data: margin loss plus gap. From 1 on it says nothing.
        gap: The part that weights and samples make.
        kl: The divergence in it, at the grid's point.
        complexity: B(w) of the paper, the same up to a factor that depends on the size only.
        grid: How many priors share the confidence.
    """

    bound: float
    gap: float
    kl: float
    complexity: float
    grid: int

    @property
    def vacuous(self) -> bool:
        """Whether the bound says nothing."""
        return self.bound >= 1


@torch.no_grad()
def margin_loss(logits: Tensor, labels: Tensor, margin: float) -> float:
    r"""Return the share of examples whose label does not win by more than a margin.

    .. math:: \hat L_\gamma = \frac1m \#\bigl\{ i : f(x_i)[y_i] \le \gamma + \max_{j \ne y_i} f(x_i)[j] \bigr\}

    At :math:`\gamma = 0` it is the error rate, ties counted as errors. What is within rounding of the margin counts as within.

    Args:
        logits: :math:`f(x_i)`, shape ``(m, C)`` with at least two classes.
        labels: :math:`y_i`, integers, shape ``(m,)``.
        margin: :math:`\gamma`, from 0 on.

    Returns:
        The share.

    Example:
        >>> margin_loss(torch.tensor([[2.0, 0.0], [0.5, 0.0], [0.0, 1.0]]), torch.tensor([0, 0, 0]), margin=1.0)
        0.6666666666666666

    References:
        Zhang, Lei, Dhillon. Stabilizing Gradients for Deep Neural Networks via Efficient SVD Parameterization.
        ICML 2018. Definition 1. https://arxiv.org/abs/1803.09327
    """
    wide = check_finite("logits", check_matrix("logits", logits)).double()
    if len(wide) == 0 or wide.shape[1] < 2:
        raise ShapeError(f"`logits` must hold an example and two classes at least, but has shape {tuple(logits.shape)}.")
    if labels.shape != logits.shape[:1]:
        raise ShapeError(f"`labels` must have shape {tuple(logits.shape[:1])} as `logits`, but has {tuple(labels.shape)}.")
    if labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise ArgumentTypeError(f"`labels` must be integers, but have dtype {labels.dtype}.")
    if int(labels.min()) < 0 or int(labels.max()) >= wide.shape[1]:
        raise ArgumentError(f"`labels` must lie from 0 to {wide.shape[1] - 1}, but go from {labels.min()} to {labels.max()}.")
    margin, column = check_number("margin", margin, finite=True), labels.long().unsqueeze(1)
    own = wide.gather(1, column).squeeze(1)
    other = wide.scatter(1, column, -math.inf).amax(1)
    slack = 2 * ROUND_OFF * (other.abs() + margin)
    return float((own <= margin + other + slack).sum()) / len(wide)


def weight_norms(weight: Tensor, input_weight: Tensor, output_weight: Tensor) -> WeightNorms:
    r"""Return the norms of the three weights of a network, rounded up.

    Args:
        weight: W, shape ``(H, H)``.
        input_weight: M, shape ``(H, D)``; a bias is a column of it, beside an input of 1.
        output_weight: Y, shape ``(C, H)``.

    Returns:
        The norms; the size is the largest of H, D and C.

    Example:
        >>> [round(norm, 9) for norm in weight_norms(torch.eye(4), torch.eye(4), torch.eye(4)).recurrent]
        [1.0, 2.0]
    """
    hidden = len(check_matrix("weight", weight, square=True))
    if check_matrix("input_weight", input_weight).shape[0] != hidden:
        raise ShapeError(f"`input_weight` must have {hidden} rows as `weight`, but has shape {tuple(input_weight.shape)}.")
    if check_matrix("output_weight", output_weight).shape[1] != hidden:
        raise ShapeError(f"`output_weight` must have {hidden} columns as `weight`, but has shape {tuple(output_weight.shape)}.")
    named = (("weight", weight), ("input_weight", input_weight), ("output_weight", output_weight))
    found = [singular_enclosure(check_finite(name, matrix)) for name, matrix in named]
    recurrent, enters, leaves = [(values.largest, values.frobenius) for values in found]
    return WeightNorms(recurrent, enters, leaves, size=max(hidden, input_weight.shape[1], output_weight.shape[0]))


def spectral_norms(size: int, radius: float, input_norm: float, output_norm: float) -> WeightNorms:
    r"""Return bounds on the norms of every network whose W has its singular values within ``radius`` of 1.

    .. math:: \lVert W \rVert \le 1 + r, \qquad \lVert A \rVert_F \le \sqrt n \lVert A \rVert

    With them :func:`complexity` is at most three times :math:`B^2 t^4 n^2 \ln(n) (1+r)^{2t} \lVert M \rVert^2
    \lVert Y \rVert^2 / \gamma^2`, which is Corollary 1 of the paper.

    Args:
        size: n.
        radius: r, the ``radius`` of :class:`steadyrnn.Spectral` around the center 1.
        input_norm: :math:`\lVert M \rVert`.
        output_norm: :math:`\lVert Y \rVert`.

    Returns:
        The norms, rounded up.

    Example:
        >>> [round(norm, 9) for norm in spectral_norms(16, 0.5, 1.0, 1.0).recurrent]
        [1.5, 6.0]

    References:
        Zhang, Lei, Dhillon. Stabilizing Gradients for Deep Neural Networks via Efficient SVD Parameterization.
        ICML 2018. Corollary 1. https://arxiv.org/abs/1803.09327
    """
    size, root = check_count("size", size, low=1), math.sqrt(size)
    recurrent = above(1 + check_number("radius", radius))
    norms = (recurrent, check_number("input_norm", input_norm), check_number("output_norm", output_norm))
    first, enters, leaves = [(norm, product_above(norm, root)) for norm in norms]
    return WeightNorms(first, enters, leaves, size)


def complexity(norms: WeightNorms, *, input_bound: float, margin: float, steps: int | None = None) -> float:
    r"""Return B(w), what the generalization of a network depends on.

    Note [mathematics], section 2.12, Theorem 5 of Zhang, Lei and Dhillon, 2018.

    .. math::
        B(w) = \frac{B^2 t^2 \mu^2}{\gamma^2} \, n \ln n \, \bigl( t^2 \lVert M \rVert^2 \lVert Y \rVert^2 \lVert W \rVert_F^2
        + \lVert Y \rVert^2 \lVert M \rVert_F^2 + \lVert M \rVert^2 \lVert Y \rVert_F^2 \bigr),
        \qquad \mu = \max(\lVert W \rVert^{t-1}, 1)

    Without ``steps`` the network must contract, :math:`\lambda = \lVert W \rVert < 1`, and :math:`1/(1-\lambda)` takes the
    place of t (Note [mathematics], section 8.6). It is smooth where the norms are, and grows with each of them: a regulariser,
    and no number to take literally.

    Args:
        norms: From :func:`weight_norms` or :func:`spectral_norms`.
        input_bound: B, on the 2-norm of every input.
        margin: :math:`\gamma > 0`.
        steps: t, or None for a bound that holds at all times.

    Returns:
        B(w), rounded up.

    Example:
        >>> norms = weight_norms(torch.eye(32), torch.eye(32), torch.eye(32))
        >>> f"{complexity(norms, input_bound=1.0, margin=1.0, steps=16):.2g}"
        '2.3e+08'
    """
    span, reach = _span(norms, steps)
    total = _blocks(norms, span, product_above(reach, norms.input[0], norms.output[0]), reach, factor=1.0)
    return product_above(above(norms.size * math.log(norms.size)), _signal(input_bound, margin), total)


def kl_bound(norms: WeightNorms, *, input_bound: float, margin: float, steps: int | None = None) -> float:
    r"""Return a bound on the divergence of a randomly perturbed network from a prior (Note [mathematics], section 2.12).

    .. math::
        KL \le 144 \, n \ln(12n) \frac{B^2 t^2 \mu^2}{\gamma^2} \bigl( e^2 t^2 \lVert Y \rVert^2 \lVert M \rVert^2
        \lVert W \rVert_F^2 + e^2 \lVert Y \rVert^2 \lVert M \rVert_F^2 + \lVert M \rVert^2 \lVert Y \rVert_F^2 \bigr)
        \le 144 e^2 \frac{\ln 12n}{\ln n} B(w)

    Gaussian noise is added to each of the three weights, as strong as lets each of the three terms of
    :func:`~steadyrnn.bounds.perturbation.output_perturbation` be :math:`\gamma / 12`, with probability 1/2: a Gaussian
    matrix of size n and deviation :math:`\sigma` has a norm up to :math:`\sigma \sqrt{2n \ln 12n}` with probability 5/6. The
    prior is Gaussian with the same deviations around zero, block by block, and the divergence is
    :math:`\sum \lVert A \rVert_F^2 / 2 \sigma_A^2`.

    Args:
        norms: From :func:`weight_norms` or :func:`spectral_norms`.
        input_bound: B, on the 2-norm of every input.
        margin: :math:`\gamma > 0`.
        steps: t, or None for a contraction, where :math:`1/(1-\lambda)` takes the place of t (Note [mathematics], section 8.6).

    Returns:
        The bound, rounded up.

    Example:
        >>> norms = weight_norms(torch.eye(32), torch.eye(32), torch.eye(32))
        >>> f"{kl_bound(norms, input_bound=1.0, margin=1.0, steps=16):.2g}"
        '4.3e+11'
    """
    span, reach = _span(norms, steps)
    return _kl(norms, span, product_above(reach, norms.input[0], norms.output[0]), reach, _signal(input_bound, margin))


def cover_size(resolution: int, samples: int) -> int:
    r"""Return how many numbers cover a range of ratio :math:`\sqrt m` to within a factor of :math:`1 \pm 1/t`.

    .. math:: \Bigl\lceil \frac{\ln \sqrt m}{\ln \frac{1 + 1/t}{1 - 1/t}} \Bigr\rceil \approx \frac t4 \ln m

    since one number serves all from :math:`1/(1 + 1/t)` to :math:`1/(1 - 1/t)` times it. (The paper prints
    :math:`t m^{1/2t}`, which is too few.)

    Args:
        resolution: t; 1 is taken as 2.
        samples: m, from 2 on.

    Returns:
        The number.

    Example:
        >>> cover_size(28, 60_000)
        77
    """
    ratio, samples = _ratio(resolution), check_count("samples", samples, low=2)
    return math.ceil(math.log(samples) / 2 / math.log(ratio))


def generalization_bound(
    weight: Tensor,
    input_weight: Tensor,
    output_weight: Tensor,
    *,
    input_bound: float,
    margin: float,
    margin_loss: float,
    samples: int,
    steps: int | None = None,
    confidence: float = 0.95,
) -> GeneralizationBound:
    r"""Bound the error of a recurrent ReLU classifier on new data.

    Note [mathematics], section 2.12, Theorem 5 of Zhang, Lei and Dhillon, 2018, made a number.

    .. math::
        P\bigl[ \text{error} \bigr] \le \hat L_\gamma + 4 \sqrt{\frac{KL' + \ln(6m / \delta')}{m - 1}}

    with probability ``confidence`` over the draw of the training set, for all weights at once, for
    :math:`h_t = \operatorname{relu}(W h_{t-1} + M x_t)`, :math:`h_0 = 0`, :math:`\hat y = Y h_t` (or another activation with
    slopes up to 1 and :math:`\sigma(ca) = c \sigma(a)` for :math:`c > 0`).

    The prior must not know the weights, so it is chosen from a grid, and the confidence is shared,
    :math:`\delta' = \delta / \text{grid}`. As the network with :math:`(W, M/c, cY)` is the same one,
    :math:`\lVert M \rVert = 1` may be assumed; then the three deviations depend on two numbers,
    :math:`t \mu \lVert M \rVert \lVert Y \rVert` and :math:`t \mu` (:math:`1/(1-\lambda)` in place of :math:`t \mu`), each
    rounded up to a geometric grid of ratio :math:`(t+1)/(t-1)`: :math:`KL'` is :func:`kl_bound` at these. Outside of the
    grid nothing is claimed.

    The perturbation is small enough: unless :math:`\gamma < 2 t B \mu \lVert M \rVert \lVert Y \rVert` every output is
    below :math:`\gamma / 2` and the margin loss is 1. So :math:`\lVert \delta W \rVert \le 1/(6et)` and
    :math:`\lVert \delta Y \rVert \le \lVert Y \rVert / 6`, whence :math:`\lVert \Delta \hat y \rVert \le
    \frac{\gamma}{12} \bigl( 2 \cdot \tfrac76 e^{1/6e} / e + 1 \bigr) < \frac{\gamma}{4}`. For a contraction, with
    :math:`\lVert \delta W \rVert \le (1-\lambda)/6e`, the factor :math:`e^{1/6e}` becomes :math:`1/(1 - 1/6e)`.

    Args:
        weight: W, shape ``(H, H)``.
        input_weight: M, shape ``(H, D)``; a bias is a column of it, beside an input of 1.
        output_weight: Y, shape ``(C, H)``, without a bias.
        input_bound: B, on the 2-norm of every input.
        margin: :math:`\gamma > 0`, chosen before the data is seen.
        margin_loss: :math:`\hat L_\gamma` on the training set, from :func:`margin_loss`.
        samples: m, the size of the training set.
        steps: t, the length of the sequences; None asks for the bound of a contraction, for sequences of any length.
        confidence: :math:`1 - \delta`.

    Returns:
        The bound and its parts, rounded up. It is below 1 only for more than 16 KL samples, which is beyond any
        training set for networks of ordinary size: use it to compare and to regularise.

    Example:
        >>> found = generalization_bound(
        ...     torch.eye(32), torch.eye(32), torch.eye(32),
        ...     input_bound=1.0, margin=1.0, margin_loss=0.1, samples=60_000, steps=16,
        ... )
        >>> f"{found.complexity:.2g}", found.vacuous
        ('2.3e+08', True)

    References:
        Zhang, Lei, Dhillon. Stabilizing Gradients for Deep Neural Networks via Efficient SVD Parameterization.
        ICML 2018. Theorem 5. https://arxiv.org/abs/1803.09327

        Neyshabur, Bhojanapalli, Srebro. A PAC-Bayesian Approach to Spectrally-Normalized Margin Bounds for Neural
        Networks. ICLR 2018. https://arxiv.org/abs/1707.09564
    """
    samples = check_count("samples", samples, low=2)
    if not 0 < check_number("confidence", confidence) < 1:
        raise ArgumentError(f"`confidence` must lie between 0 and 1, but is {confidence}.")
    if check_number("margin_loss", margin_loss) > 1:
        raise ArgumentError(f"`margin_loss` must be a share from 0 to 1, but is {margin_loss}.")
    norms, signal = weight_norms(weight, input_weight, output_weight), _signal(input_bound, margin)
    size = complexity(norms, input_bound=input_bound, margin=margin, steps=steps)
    span, reach = _span(norms, steps)
    ratio, points = _ratio(steps or _RESOLUTION), cover_size(steps or _RESOLUTION, samples)
    reach_points = (steps - 1) * points if steps else points
    least = above(margin / input_bound) / 2  # of the outputs: below it the margin loss is 1
    output = _on_grid(product_above(reach, norms.input[0], norms.output[0]), product_above(least, ratio), ratio, points - 1)
    reach = _on_grid(reach, (steps or 1) * _FIRST, ratio, reach_points)
    kl = _kl(norms, span if steps else reach, output, reach, signal)
    grid = points * (reach_points + 1)
    share = math.log(6) + math.log(samples) + math.log(grid) - math.log(below(1 - confidence))
    gap = above(4 * math.sqrt(above(kl + above(share, 64)) / (samples - 1)))
    return GeneralizationBound(bound=above(margin_loss + gap), gap=gap, kl=kl, complexity=size, grid=grid)


def _span(norms: WeightNorms, steps: int | None) -> tuple[float, float]:
    r"""Return t and :math:`t\mu`, or :math:`1/(1-\lambda)` twice."""
    if steps is not None:
        steps = check_count("steps", steps, low=1)
        return float(steps), product_above(steps, max(1.0, power_above(norms.recurrent[0], steps - 1)))
    norm = norms.recurrent[0]
    if norm >= 1:
        raise CertificateError(
            f"the recurrent weight has a norm of up to {norm:.6g}, and without `steps` the bound is proven for "
            "contractions only, with a norm below 1. Give `steps`, the length of the sequences."
        )
    span = state_radius(norm, 1.0)
    return span, span


def _signal(input_bound: float, margin: float) -> float:
    for name, value in (("input_bound", input_bound), ("margin", margin)):
        if not check_number(name, value, finite=True) > 0:
            raise ArgumentError(f"`{name}` must be greater than zero, but is {value}.")
    return product_above(input_bound, input_bound, above(1 / margin), above(1 / margin))


def _blocks(norms: WeightNorms, span: float, output: float, reach: float, factor: float) -> float:
    """Return the sum over the three weights of the squares that stand in KL and in B(w)."""
    enters, frobenius = norms.input
    share = above(frobenius / enters) if enters else 0.0
    parts = (
        product_above(factor, span, output, norms.recurrent[1]),
        product_above(factor, output, share),
        product_above(reach, enters, norms.output[1]),
    )
    return above(sum(product_above(part, part) for part in parts))


def _kl(norms: WeightNorms, span: float, output: float, reach: float, signal: float) -> float:
    logarithm = above(math.log(12 * norms.size))
    return product_above(144, norms.size, logarithm, signal, _blocks(norms, span, output, reach, math.e))


def _ratio(resolution: int) -> float:
    resolution = max(2, check_count("resolution", resolution, low=1))
    return (resolution + 1) / (resolution - 1)


def _on_grid(value: float, first: float, ratio: float, points: int) -> float:
    """Return the first of ``first * ratio**j``, j up to ``points``, that is not below ``value``, rounded up; else infinity."""
    if not value < math.inf:
        return math.inf
    place = max(0, math.ceil((math.log(max(value, first)) - math.log(first)) / math.log(ratio)) - 1)
    while place <= points:
        point = product_above(first, power_above(ratio, place))
        if below(point, 128) >= value:
            return point
        place += 1
    return math.inf
