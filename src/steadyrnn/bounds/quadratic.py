"""Contraction in a quadratic norm, for activations of slopes from 0 up: Note [mathematics], section 5.3.

The weights d of the norm are searched for, by descent on the numerical radius. The metric S of the norm then solves a matrix
equation. The rate of the norm found is verified, whatever the search did.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from steadyrnn.checks import check_finite, check_matrix, check_positive_int
from steadyrnn.errors import ArgumentError, ShapeError
from steadyrnn.linalg.lanczos import ritz_pairs

from .norms import ROUND_OFF, Contraction, Ellipsoid, above, frobenius_above, spectral_norm_bound
from .scaling import (
    DIAGONAL_SCALING,
    SQUARINGS,
    UNDERFLOW,
    best_scaling,
    check_recurrent,
    check_scaling,
    check_slope,
    from_raw,
    log_limit,
    normalize,
    raw_slopes,
    scale_matrix,
    scaled_rate,
    times_slope,
    to_raw,
    undo_normalizing,
)

__all__ = ["estimate_radius", "quadratic_contraction", "quadratic_rate", "solve_by_doubling"]

QUADRATIC_NORM = "quadratic norm by Ando's theorem (docs/notes/mathematics.md, 5.3)"
"""The theorem behind :func:`quadratic_contraction`."""
MARGINS = (1e-5, 3e-4, 1e-2)
"""By how much the target rate is above the estimated numerical radius: the next where the one before finds no norm."""
COMPLETE = 32
"""Up to this width every eigenvalue is computed, in float64; beyond, the outermost ones by Lanczos, in float32."""
KEPT = 8
"""How many eigenvectors per angle are differentiated: the others hardly count."""
_DOUBLINGS = 40
_OUTSIDE = "`root` must have S = root^T root strictly between 0 and 2I, further from both than rounding, as the identity has."


class Stage(NamedTuple):
    """How sharply the largest eigenvalue is told from the others, at how many angles, by how many Lanczos steps."""

    sharpness: float
    angles: int
    steps: int


STAGES = (Stage(32, 6, 24), Stage(128, 10, 40), Stage(512, 16, 60), Stage(2048, 32, 80))


@torch.no_grad()
def quadratic_rate(weight: Tensor, root: Tensor, scaling: Tensor) -> float:
    r"""Return a proven rate of :math:`h^+ = \varphi(Wh + v)` in the norm :math:`\lVert R \operatorname{diag}(d) h \rVert`.

    For slopes in :math:`[0, 1]`, and with :math:`D = \operatorname{diag}(d)` and :math:`S = R^\top R \prec 2I`,

    .. math:: \lambda = \bigl\lVert (2I - S)^{-1/2} \, D W D^{-1} R^{-1} \bigr\rVert .

    Why it holds: the change of the state is :math:`\Delta^+ = \Theta W \Delta` with a diagonal
    :math:`0 \le \Theta \le I`, so :math:`(\Delta^+)^\top D^2 (W \Delta - \Delta^+) \ge 0`. The matrix inequality

    .. math::
        \begin{pmatrix} \lambda^2 P & -W^\top D^2 \\ -D^2 W & 2 D^2 - P \end{pmatrix} \succeq 0, \qquad P = D S D,

    says that :math:`\lambda^2 \Delta^\top P \Delta - (\Delta^+)^\top P \Delta^+` is at least twice that number. By a Schur
    complement it is the formula. With :math:`S = I` it is :func:`~steadyrnn.bounds.scaling.scaled_rate`.

    Rounding: for approximate inverses Y of R and Z of a root of :math:`2I - S`, let
    :math:`\lVert I - RY \rVert \le \varepsilon_1 < 1` and :math:`\lVert I - Z(2I - S)Z^\top \rVert \le \varepsilon_2 < 1`, the
    errors of computing both included. Then R is nonsingular, :math:`S \prec 2I`, and
    :math:`\lambda \le \lVert Z D W D^{-1} Y \rVert / ((1 - \varepsilon_1) \sqrt{1 - \varepsilon_2})`. The rate returned also
    holds in the norm of the matrix :math:`RD` as rounded to float64.

    Args:
        weight: :math:`W`, shape ``(H, H)``; times :math:`\gamma` for slopes in :math:`[0, \gamma]`.
        root: :math:`R`, shape ``(H, H)``: the symmetric root of :math:`S`, or any other.
        scaling: :math:`d > 0`, shape ``(H,)``.

    Raises:
        ArgumentError: S is not strictly between 0 and 2I, or too close to either to be told from it.

    Example:
        >>> weight = torch.tensor([[-0.51, 0.75], [-0.37, 0.44]])
        >>> metric = torch.tensor([[1.0, -0.901], [-0.901, 1.0]], dtype=torch.float64)
        >>> values, vectors = torch.linalg.eigh(metric)
        >>> root = vectors @ values.sqrt().diag() @ vectors.T
        >>> round(quadratic_rate(weight, root, torch.tensor([1.0, 1.424])), 3)
        0.533

    References:
        Boyd, El Ghaoui, Feron, Balakrishnan. Linear Matrix Inequalities in System and Control Theory. SIAM 1994
        (the S-procedure).
    """
    wide, exponent = normalize(check_recurrent(weight))
    if root.shape != wide.shape:
        raise ShapeError(f"`root` must have shape {tuple(wide.shape)}, as `weight` has, but has {tuple(root.shape)}.")
    root = check_finite("root", root).detach().double().to(wide.device)
    d = check_scaling(scaling, len(wide)).to(wide.device)
    inverse, first = _inverse(root)
    whitening, second = _whitening(root)
    if exponent is None:
        return 0.0
    middle = scale_matrix(wide, d)
    product = whitening @ middle @ inverse
    sizes = frobenius_above(whitening) * frobenius_above(middle) * frobenius_above(inverse)
    error = above(4 * (len(wide) + 4) * ROUND_OFF * sizes)
    error += UNDERFLOW * (1 + frobenius_above(whitening) * frobenius_above(inverse))
    bound = above(spectral_norm_bound(product, SQUARINGS) + error)
    stored = 4 * ROUND_OFF * frobenius_above(root) * frobenius_above(inverse) / (1 - first)  # of rounding RD
    return undo_normalizing(above(bound / ((1 - first) * math.sqrt(1 - second)) * (1 + stored)), exponent)


@torch.no_grad()
def quadratic_contraction(
    weight: Tensor,
    slope: float,
    start_scaling: Tensor | None = None,
    steps: int = 20,
    max_condition: float = 1e6,
    stages: int = 4,
) -> Contraction:
    r"""Return the best contraction found of :math:`h^+ = \varphi(Wh + v)` in a quadratic norm.

    The norm is that of :func:`quadratic_rate`. For given d its best rate over all S is a number without S in it:

    .. math:: \min_S \lambda(D, S) = \max_{\lVert x \rVert = 1} \bigl| x^* D W D^{-1} x \bigr| ,

    the numerical radius w of :math:`A = D W D^{-1}`. Why: the matrix inequality of :func:`quadratic_rate` is, with
    :math:`Z = S - I`,

    .. math:: \begin{pmatrix} I + Z & -A^\top / \lambda \\ -A / \lambda & I - Z \end{pmatrix} \succeq 0 ,

    which by Ando's theorem has a solution Z exactly if :math:`w(A) \le \lambda`. So d alone is searched, by quasi-Newton
    steps from the best diagonal norm; :math:`\log w` is convex in :math:`\log d`. Then, for a :math:`\lambda` a little
    above w, the smallest and the largest S are :math:`2(I - X)` and :math:`2Y` for the solutions X, Y of
    :func:`solve_by_doubling` with :math:`C = A / 2\lambda`. Their mean is taken, which is far from singular. The search need
    not be exact: only the rate of the norm found, verified in float64, is returned, or that of the diagonal norm if it is
    smaller. Only for activations whose slopes are not negative (not the absolute value).

    Args:
        weight: :math:`W`, shape ``(H, H)``.
        slope: :math:`\gamma`; all slopes lie in :math:`[0, \gamma]`.
        start_scaling: :math:`d > 0` to start from, shape ``(H,)``; None finds the best one.
        steps: Quasi-Newton steps for each stage.
        max_condition: Largest :math:`d_i / d_j`.
        stages: How many stages of the search, each sharper and some two times as dear as the one before, from 1 to 4.

    Example:
        >>> found = quadratic_contraction(torch.tensor([[-0.51, 0.75], [-0.37, 0.44]]), slope=1.0)
        >>> round(found.rate, 3), found.norm.name
        (0.533, 'quadratic norm')

    References:
        Ando. Structure of operators with numerical radius one. Acta Scientiarum Mathematicarum 34, 1973.
    """
    check_slope(slope)
    check_positive_int("steps", steps)
    if check_positive_int("stages", stages) > len(STAGES):
        raise ArgumentError(f"`stages` must be at most {len(STAGES)}, but is {stages}.")
    d = best_scaling(weight, max_condition) if start_scaling is None else start_scaling
    rate = scaled_rate(weight, d)
    best = Contraction(times_slope(rate, slope), Ellipsoid(d), DIAGONAL_SCALING)
    wide, exponent = normalize(check_recurrent(weight))
    if exponent is None:
        return best
    limit = log_limit(max_condition)
    raw = to_raw(check_scaling(d, len(wide)).to(wide.device), limit)
    searched = wide if len(wide) <= COMPLETE else wide.float()
    for stage in STAGES[:stages]:
        raw = descend_radius(searched, raw, limit, stage, steps)
    d = from_raw(raw.double(), limit)
    verified, root = _best_root(weight, scale_matrix(wide, d), d)
    if root is None or not verified < rate:
        return best
    return Contraction(times_slope(verified, slope), Ellipsoid(root * d, d), QUADRATIC_NORM)


def _best_root(weight: Tensor, matrix: Tensor, d: Tensor) -> tuple[float, Tensor | None]:
    """Return the verified rate and the root of a metric S for given weights d, ``matrix`` being ``D W D^-1``."""
    radius = estimate_radius(matrix)
    best: tuple[float, Tensor | None] = (math.inf, None)
    for margin in MARGINS if len(matrix) <= COMPLETE else MARGINS[1:]:
        solutions = solve_by_doubling(matrix / (2 * (1 + margin) * radius)) if radius else None
        if solutions is None:
            continue
        metric = torch.eye(len(matrix), dtype=matrix.dtype, device=matrix.device) + solutions[1] - solutions[0]
        values, vectors = torch.linalg.eigh((metric + metric.mT) / 2)
        root = (vectors * values.clamp(min=0).sqrt()) @ vectors.mT
        root = (root + root.mT) / 2
        try:
            verified = quadratic_rate(weight, root, d)
        except ArgumentError:  # the rounding of a large matrix does not let it be verified
            continue
        if verified < best[0]:
            best = (verified, root)
        if verified <= (1 + 2 * margin) * radius:
            break
    return best


def _inverse(root: Tensor) -> tuple[Tensor, float]:
    """Return an approximate inverse and a bound on the norm of ``I - R Y``."""
    if float(root.abs().max()) < 2.0**-200:  # squares of its entries might underflow
        raise ArgumentError(_OUTSIDE)
    inverse, failed = torch.linalg.inv_ex(root)
    if int(failed) or not bool(inverse.isfinite().all()):
        raise ArgumentError(_OUTSIDE)
    identity = torch.eye(len(root), dtype=root.dtype, device=root.device)
    error = (len(root) + 4) * ROUND_OFF * (frobenius_above(root) * frobenius_above(inverse) + len(root))
    return inverse, _below_one(frobenius_above(identity - root @ inverse) + error)


def _whitening(root: Tensor) -> tuple[Tensor, float]:
    """Return Z with ``Z (2I - S) Z^T`` about the identity, and a bound on the norm of the difference."""
    size = len(root)
    identity = torch.eye(size, dtype=root.dtype, device=root.device)
    rest = 2 * identity - root.mT @ root
    values, vectors = torch.linalg.eigh((rest + rest.mT) / 2)
    if not float(values.min()) > 0:
        raise ArgumentError(_OUTSIDE)
    whitening = vectors.mT / values.sqrt().unsqueeze(1)
    left = frobenius_above(whitening) ** 2
    error = 4 * (size + 4) * ROUND_OFF * (left * (frobenius_above(root) ** 2 + 2 * size + frobenius_above(rest)) + size)
    return whitening, _below_one(frobenius_above(identity - whitening @ rest @ whitening.mT) + error)


def _below_one(error: float) -> float:
    """Return an error, rounded up, that leaves something to divide by."""
    if not error < 0.5:
        raise ArgumentError(_OUTSIDE)
    return above(error)


class _Outer(NamedTuple):
    """Outermost eigenpairs of the Hermitian parts of a matrix A turned by K angles."""

    turns: Tensor  # (K,): exp(i theta)
    values: Tensor  # (K, M), float64
    inner: Tensor  # (K, M, M): eigenvectors in the basis
    basis: Tensor  # (K, N, M)


@torch.no_grad()
def estimate_radius(matrix: Tensor) -> float:
    r"""Return an estimate, from below, of the numerical radius :math:`\max_{\lVert x \rVert = 1} |x^* A x|`.

    It is the largest eigenvalue of all Hermitian parts :math:`H_\theta = (e^{i\theta} A + e^{-i\theta} A^\top) / 2`. Of a
    real matrix, shape ``(N, N)``, a quarter of a turn is enough. A grid of angles is followed by a finer one around the best.

    Example:
        >>> round(estimate_radius(torch.tensor([[0.0, 2.0], [0.0, 0.0]], dtype=torch.float64)), 9)
        1.0
    """
    low, high, radius = 0.0, math.pi / 2, 0.0
    for _ in range(3 if len(matrix) <= COMPLETE else 2):
        angles = torch.linspace(low, high, 17, dtype=torch.float64, device="cpu")
        found = _outer(matrix, angles, 60).values.abs().amax(1)
        step, best = (high - low) / 16, float(angles[found.argmax()])
        low, high, radius = best - step, best + step, max(radius, float(found.max()))
    return radius


def descend_radius(wide: Tensor, raw: Tensor, limit: float, stage: Stage, steps: int) -> Tensor:
    r"""Return raw weights after quasi-Newton steps that lower the numerical radius of :math:`D W D^{-1}`.

    Lowered is the smooth :math:`\frac1\beta \log \sum |\mu|^\beta` over the outermost eigenvalues :math:`\mu` of the
    Hermitian parts at some angles, :math:`\beta` the sharpness. The logarithm of the radius is convex in
    :math:`\log d`: it is a maximum of logarithms of moduli of functions that are analytic in :math:`\log d`, and does not
    change with its imaginary part.

    Args:
        wide: W, shape ``(N, N)``.
        raw: Start, shape ``(N,)``; ``d = from_raw(raw, limit)``, ``limit`` bounds the logarithms of d.
        limit: See ``raw``.
        stage: How sharp the maximum is.
        steps: Quasi-Newton steps.
    """
    raw = raw.to(wide.dtype).clone()
    optimizer = torch.optim.LBFGS(
        [raw], max_iter=steps, max_eval=2 * steps, history_size=20, tolerance_change=1e-5, line_search_fn="strong_wolfe"
    )

    @torch.no_grad()
    def closure() -> Tensor:
        value, gradient = smooth_radius(scale_matrix(wide, from_raw(raw, limit)), stage)
        raw.grad = gradient * raw_slopes(raw, limit)
        return raw.new_tensor(value)

    optimizer.step(closure)
    return raw


def smooth_radius(matrix: Tensor, stage: Stage) -> tuple[float, Tensor]:
    r"""Return the smooth logarithm of the radius of :math:`A = D W D^{-1}`, and its gradient in :math:`\log d`.

    An eigenvalue :math:`x^* H_\theta x` changes with :math:`\log d_j` by
    :math:`\operatorname{Re} e^{i\theta} (\bar x_j (Ax)_j - \overline{(A^\top x)_j} x_j)`.
    """
    angles = torch.linspace(0, math.pi / 2, stage.angles, dtype=torch.float64, device="cpu")
    turns, values, inner, basis = _outer(matrix, angles, stage.steps)
    size = values.abs()
    largest = float(size.max())
    shares = (size / largest) ** stage.sharpness
    total = float(shares.sum())
    kept, places = shares.topk(min(KEPT, shares.shape[1]), dim=1)
    chosen = places.unsqueeze(1).expand(-1, inner.shape[1], -1)
    vectors = (basis @ inner.to(basis.dtype).gather(2, chosen)).transpose(0, 1)  # (N, K, kept)
    flat = vectors.reshape(len(matrix), -1)
    forward, back = _both(matrix, flat)
    chosen_values = values.gather(1, places)
    weights = torch.where(kept > 0, kept / (chosen_values * total), 0)  # (K, kept); an eigenvalue 0 counts for nothing
    factors = (turns.unsqueeze(1) * weights).reshape(-1).to(flat.dtype)
    gradient = (factors * (flat.conj() * forward - back.conj() * flat)).real.sum(1)
    return math.log(largest) + math.log(total / stage.angles) / stage.sharpness, gradient.to(matrix.dtype)


def _both(matrix: Tensor, vectors: Tensor) -> tuple[Tensor, Tensor]:
    """Return ``A x`` and ``A^T x`` for complex columns and a real matrix."""
    parts = torch.cat([vectors.real, vectors.imag], 1)
    matrix = matrix.to(parts.dtype)
    products = torch.cat([matrix @ parts, matrix.mT @ parts])
    whole = torch.complex(*products.tensor_split(2, dim=1))
    forward, back = whole.split(len(matrix))
    return forward, back


def _outer(matrix: Tensor, angles: Tensor, steps: int) -> _Outer:
    """Return all eigenpairs of a small matrix's Hermitian parts, the outermost of a large one's."""
    turns = torch.polar(torch.ones_like(angles), angles).to(matrix.device)
    if len(matrix) > COMPLETE:
        narrow, turns = matrix.float(), turns.to(torch.complex64)
        generator = torch.Generator().manual_seed(0)  # the same matrix has the same result
        start = torch.randn(len(matrix), len(turns), dtype=turns.dtype, generator=generator, device="cpu").to(matrix.device)

        def hermitian_part(vectors: Tensor) -> Tensor:
            forward, back = _both(narrow, vectors)
            return (turns * forward + turns.conj() * back) / 2

        return _Outer(turns, *ritz_pairs(hermitian_part, start, steps))
    turned = turns.view(-1, 1, 1) * matrix.double()
    values, vectors = torch.linalg.eigh((turned + turned.mH) / 2)
    unit = torch.eye(len(matrix), dtype=vectors.dtype, device=matrix.device).expand_as(vectors)
    return _Outer(turns, values, vectors, unit)


@torch.no_grad()
def solve_by_doubling(matrix: Tensor) -> tuple[Tensor, Tensor] | None:
    r"""Return the largest symmetric solutions of two equations, or None where rounding finds none.

    .. math:: X + C^\top X^{-1} C = I, \qquad Y + C Y^{-1} C^\top = I

    Both exist if and only if the numerical radius of C is at most 1/2. With :math:`Q_0 = I`, :math:`P_0 = 0`,
    :math:`C_0 = C`, :math:`M_k = Q_k - P_k`,

    .. math::
        C_{k+1} = C_k M_k^{-1} C_k, \quad Q_{k+1} = Q_k - C_k^\top M_k^{-1} C_k, \quad
        P_{k+1} = P_k + C_k M_k^{-1} C_k^\top ,

    reduces every second row of a block Toeplitz matrix with blocks :math:`(C^\top, I, C)`; :math:`Q_k` falls to X and
    :math:`I - P_k` to Y, with an error that is squared at each step if the radius is below 1/2. C has shape ``(N, N)``.

    Example:
        >>> x, y = solve_by_doubling(torch.tensor([[0.4]], dtype=torch.float64))
        >>> round(float(x), 6), round(float(y), 6)
        (0.8, 0.8)

    References:
        Engwerda, Ran, Rijkeboer. Necessary and sufficient conditions for the existence of a positive definite solution of
        the matrix equation X + A*X^{-1}A = Q. Linear Algebra and its Applications 186, 1993. Meini. Efficient computation
        of the extreme solutions of X + A*X^{-1}A = Q, X - A*X^{-1}A = Q. Mathematics of Computation 71, 2002.
    """
    c = check_finite("matrix", check_matrix("matrix", matrix, square=True)).detach()
    size, negligible = len(c), torch.finfo(c.dtype).eps
    q = torch.eye(size, dtype=c.dtype, device=c.device)
    p = torch.zeros_like(q)
    for _ in range(_DOUBLINGS):
        factor, failed = torch.linalg.cholesky_ex(q - p)
        if int(failed):
            return None
        u, v = torch.linalg.solve_triangular(factor, torch.cat([c, c.mT], 1), upper=False).split(size, 1)
        c, q, p = v.mT @ u, q - u.mT @ u, p + v.mT @ v
        if not bool(c.isfinite().all()):
            return None
        if float(c.norm()) ** 2 <= negligible * size:  # what the next step would change
            return q, torch.eye(size, dtype=c.dtype, device=c.device) - p
    return None
