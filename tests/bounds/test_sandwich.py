"""The gradient between two powers: the enclosure of singular values, Theorem 1 as corrected, and the printed one's failures."""

import math
from collections.abc import Callable
from itertools import pairwise

import mpmath
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from steadyrnn.activations import Absolute, LeakyReLU, ReLU, Sigmoid, Tanh
from steadyrnn.bounds.sandwich import Enclosure, gradient_sandwich, regime, singular_enclosure
from steadyrnn.errors import ArgumentError, ArgumentTypeError, NotFiniteError, ShapeError
from tests.linalg.matrices import gaussian, gaussian_complex, orthogonal

SHEAR = torch.tensor([[0.5, 10.0], [0.0, 0.4]], dtype=torch.float64)
TURN = torch.tensor([[1.0, -1.5], [0.9, -1.0]], dtype=torch.float64)
NORMS: dict[str, Callable[[Tensor], Tensor]] = {
    "spectral": lambda matrix: torch.linalg.matrix_norm(matrix, 2),
    "frobenius": torch.linalg.matrix_norm,
}


def jacobian(weight: Tensor, slopes: Tensor) -> Tensor:
    """Return the product of diag(slope) W over the rows of ``slopes``, the first row applied first."""
    product = torch.eye(len(weight), dtype=weight.dtype)
    for row in slopes:
        product = row.unsqueeze(1) * (weight @ product)
    return product


def exact_values(matrix: Tensor) -> list[mpmath.mpf]:
    with mpmath.workdps(60):
        return sorted(mpmath.svd_r(mpmath.matrix(matrix.double().tolist()), compute_uv=False))


@given(n=st.integers(1, 5), m=st.integers(1, 5), exponent=st.integers(-200, 200), seed=st.integers(0, 2**31))
def test_the_enclosure_holds_the_exact_singular_values(n: int, m: int, exponent: int, seed: int) -> None:
    matrix = gaussian(n, m, seed=seed) * 2.0**exponent
    found, exact = singular_enclosure(matrix), exact_values(matrix)
    with mpmath.workdps(60):
        mean = mpmath.exp(sum(map(mpmath.log, exact)) / len(exact))
        frobenius = mpmath.sqrt(sum(value**2 for value in exact))
        assert found.smallest <= exact[0]
        assert found.mean <= mean
        assert found.largest >= exact[-1]
        assert found.frobenius >= frobenius
        assert found.smallest >= exact[0] - 1e-12 * exact[-1]
        assert found.mean >= mean * (1 - 1e-11 * exact[-1] / exact[0])
        assert found.largest <= exact[-1] * (1 + 1e-12)
        assert found.frobenius <= frobenius * (1 + 1e-12)
    assert found.size == min(n, m)


@pytest.mark.parametrize("n", [1, 2, 16, 100])
def test_an_orthogonal_matrix_is_enclosed_to_rounding(n: int) -> None:
    found, width = singular_enclosure(orthogonal(n)), 16 * n * n * 2.0**-53 + 1e-14
    assert 1 - width <= found.smallest <= found.mean * (1 + 1e-13) <= 1 + 1e-13
    assert 1 - 1e-13 <= found.largest <= 1 + width


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_any_floating_dtype_is_enclosed_as_stored(dtype: torch.dtype) -> None:
    matrix = gaussian(4, 4, dtype=dtype)
    found, exact = singular_enclosure(matrix), exact_values(matrix)
    assert found.smallest <= exact[0] <= exact[-1] <= found.largest


@pytest.mark.parametrize(
    "matrix",
    [torch.zeros(3, 3), torch.ones(3, 3), torch.diag(torch.tensor([1.0, 1e-20], dtype=torch.float64))],
    ids=["zero", "singular", "nearly singular"],
)
def test_a_matrix_that_cannot_be_told_from_singular_has_no_lower_bound(matrix: Tensor) -> None:
    found = singular_enclosure(matrix)
    assert (found.smallest, found.mean) == (0.0, 0.0)
    assert gradient_sandwich(matrix, (1.0, 1.0), lag=3)[0] == 0.0


@pytest.mark.parametrize("entry", [5e-324, 1e-310, 1e-200, 1e200, 1e307])
def test_tiny_and_huge_entries_neither_under_nor_overflow(entry: float) -> None:
    found = singular_enclosure(entry * torch.tensor([[1.0, 1.0], [1.0, -1.0]], dtype=torch.float64))
    truth = math.sqrt(2) * entry
    assert found.smallest <= truth * (1 + 1e-15) + 5e-324
    assert found.largest >= truth * (1 - 1e-15)
    if 1e-300 < entry < 1e300:
        assert truth * (1 - 1e-12) <= found.smallest <= found.largest <= truth * (1 + 1e-12)


@pytest.mark.parametrize("shape", [(0, 0), (0, 3)])
def test_a_matrix_without_entries_is_refused(shape: tuple[int, int]) -> None:
    with pytest.raises(ShapeError, match="`matrix`"):
        singular_enclosure(torch.zeros(shape))


def test_the_jacobian_is_a_product_of_as_many_factors_as_the_lag() -> None:
    """Note [mathematics], section 3.1, both forms of the recurrence, by autograd."""
    weight, lag = gaussian(3, 3), 4

    def pre(x: Tensor) -> Tensor:  # x_t = W f(x_{t-1})
        for _ in range(lag):
            x = weight @ torch.tanh(x)
        return x

    def post(h: Tensor) -> Tensor:  # h_t = f(W h_{t-1})
        for _ in range(lag):
            h = torch.tanh(weight @ h)
        return h

    start = gaussian(3, seed=1)
    x, h, in_x, in_h = start, start, torch.eye(3).double(), torch.eye(3).double()
    for _ in range(lag):
        in_x = weight @ torch.diag(1 - torch.tanh(x) ** 2) @ in_x
        x, h = weight @ torch.tanh(x), torch.tanh(weight @ h)
        in_h = torch.diag(1 - h**2) @ weight @ in_h
    torch.testing.assert_close(torch.autograd.functional.jacobian(pre, start), in_x, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(torch.autograd.functional.jacobian(post, start), in_h, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("side", ["left", "right"])
def test_a_diagonal_factor_changes_a_norm_by_its_entries_at_most(norm: str, side: str) -> None:
    """Note [mathematics], section 3.2, Lemma 1, in complex numbers."""
    size = NORMS[norm]
    for seed in range(200):
        a, d = gaussian_complex(4, 4, seed=seed), torch.diag(gaussian_complex(4, seed=seed + 1000))
        product, entries = (d @ a if side == "left" else a @ d), d.diagonal().abs()
        low, high = entries.min() * size(a), entries.max() * size(a)
        assert low * (1 - 1e-14) <= size(product) <= high * (1 + 1e-14)


@pytest.mark.parametrize("norm", NORMS)
def test_a_product_of_unitary_and_diagonal_factors_lies_between_the_products_of_entries(norm: str) -> None:
    """Note [mathematics], section 3.2, Lemma 2: its two n, of factors and of dimensions, are kept apart."""
    size, dimension, factors = NORMS[norm], 4, 3
    identity = size(torch.eye(dimension).double())
    for seed in range(200):
        product, low, high = torch.eye(dimension).to(torch.complex128), 1.0, 1.0
        for place in range(factors):
            unitary = torch.linalg.qr(gaussian_complex(dimension, dimension, seed=10 * seed + place))[0]
            entries = gaussian_complex(dimension, seed=10 * seed + place + 5)
            product = unitary @ torch.diag(entries) @ product
            low, high = low * float(entries.abs().min()), high * float(entries.abs().max())
        assert low * identity * (1 - 1e-13) <= size(product) <= high * identity * (1 + 1e-13)


@pytest.mark.parametrize(("lag", "norm", "printed"), [(1, 10.02, 0.5), (6, 1.15, 0.0156)])
def test_the_printed_upper_bound_fails_for_a_shear(lag: int, norm: float, printed: float) -> None:
    truth = float(torch.linalg.matrix_norm(torch.linalg.matrix_power(SHEAR, lag), 2))
    eigenvalues = torch.linalg.eigvals(SHEAR).abs()
    assert truth == pytest.approx(norm, rel=1e-2)
    assert float(eigenvalues.max()) ** lag == pytest.approx(printed, rel=5e-3)
    low, high = gradient_sandwich(SHEAR, (1.0, 1.0), lag)
    assert low <= truth <= high * (1 + 1e-15)
    assert float(eigenvalues.min()) ** lag <= low  # the printed lower bound is true, and the determinant's is sharper


def test_the_printed_upper_bound_fails_for_the_absolute_value() -> None:
    """Eigenvalues below 1 and |x|, its signs held: the gradient explodes where the printed theorem has it vanish."""
    radius, signs = float(torch.linalg.eigvals(TURN).abs().max()), torch.tensor([1.0, -1.0], dtype=torch.float64)
    norm = float(torch.linalg.matrix_norm(jacobian(TURN, signs.expand(60, 2))))
    assert radius == pytest.approx(0.592, abs=5e-4)
    assert math.sqrt(2) * radius**60 == pytest.approx(3.0e-14, rel=0.02)
    assert norm == pytest.approx(1.3e20, rel=0.03)
    low, high = gradient_sandwich(TURN, Absolute.steepness, 60, norm="frobenius")
    assert low <= norm <= high
    assert regime(TURN, Absolute.steepness) == "may explode"


def test_random_products_break_the_printed_upper_bound_and_never_the_others() -> None:
    broken, cases, lag = 0, 300, 4
    for seed in range(cases):
        weight = gaussian(3, 3, seed=seed)
        generator = torch.Generator().manual_seed(seed)
        slopes = 0.9 + 0.1 * torch.rand(lag, 3, generator=generator, dtype=torch.float64)
        signs = torch.randint(0, 2, (lag, 3), generator=generator) * 2 - 1
        truth = float(torch.linalg.matrix_norm(jacobian(weight, slopes * signs), 2))
        moduli, beta, gamma = torch.linalg.eigvals(weight).abs(), float(slopes.min()), float(slopes.max())
        broken += truth > (float(moduli.max()) * gamma) ** lag
        masked = float(torch.linalg.det(weight).abs() ** (lag / 3) * slopes.log().mean(1).sum().exp())
        values = singular_enclosure(weight)
        low, high = gradient_sandwich(values, (beta, gamma), lag)
        chain = [(values.smallest * beta) ** lag, (float(moduli.min()) * beta) ** lag, low, masked, truth, high]
        assert all(a <= b * (1 + 1e-12) for a, b in pairwise(chain))
    assert broken > cases / 2


@given(
    n=st.integers(1, 6),
    lag=st.integers(0, 12),
    steepness=st.tuples(st.just(0.0) | st.floats(1e-3, 1), st.floats(1e-3, 1)).map(lambda pair: (min(pair), max(pair))),
    norm=st.sampled_from(sorted(NORMS)),
    seed=st.integers(0, 2**31),
)
def test_the_jacobian_lies_in_the_sandwich(n: int, lag: int, steepness: tuple[float, float], norm: str, seed: int) -> None:
    weight, generator = gaussian(n, n, seed=seed), torch.Generator().manual_seed(seed)
    slopes = steepness[0] + (steepness[1] - steepness[0]) * torch.rand(lag, n, generator=generator, dtype=torch.float64)
    sign = torch.randint(0, 2, (lag, n), generator=generator) * 2 - 1
    truth = float(NORMS[norm](jacobian(weight, slopes * sign)))
    low, high = gradient_sandwich(weight, steepness, lag, norm)
    assert low * (1 - 1e-11) <= truth <= high * (1 + 1e-11)  # the product itself is rounded


@pytest.mark.parametrize("activation", [Tanh(), Sigmoid(), ReLU(), LeakyReLU(0.3), Absolute()], ids=lambda a: a.name)
def test_the_gradient_of_a_running_network_lies_in_the_sandwich(activation: ReLU) -> None:
    weight, h, lag = 1.2 * orthogonal(5), gaussian(5, seed=1), 6

    def run(h: Tensor) -> Tensor:
        for step in range(lag):
            h = activation.value(weight @ h + gaussian(5, seed=step + 2))
        return h

    truth = float(torch.linalg.matrix_norm(torch.autograd.functional.jacobian(run, h), 2))
    low, high = gradient_sandwich(weight, activation.steepness, lag)
    assert low * (1 - 1e-12) <= truth <= high


def test_the_absolute_value_with_an_orthogonal_matrix_keeps_the_gradient_s_norm() -> None:
    """Note [mathematics], section 3.4, Table 6: 100 units, 30 steps."""
    weight, signs = orthogonal(100), gaussian(30, 100, seed=1).sign()
    assert float(torch.linalg.matrix_norm(jacobian(weight, signs))) == pytest.approx(10, abs=2e-13)
    low, high = gradient_sandwich(weight, Absolute.steepness, 30, norm="frobenius")
    assert 10 - 1e-8 < low <= 10 <= high < 10 + 1e-8


@pytest.mark.parametrize(
    ("lag", "norm", "figure"), [(30, "frobenius", 1.317e-8), (30, "spectral", 9.3e-10), (29, "frobenius", 2.63e-8)]
)
def test_the_lower_bound_of_a_leaky_network_is_the_corrected_figure(lag: int, norm: str, figure: float) -> None:
    low, high = gradient_sandwich(torch.eye(200), LeakyReLU(0.5).steepness, lag, norm)
    assert low == pytest.approx(figure, rel=2e-3)
    assert high == pytest.approx(math.sqrt(200) if norm == "frobenius" else 1.0)


def test_half_of_the_units_active_give_the_determinant_s_figure() -> None:
    slopes = torch.ones(30, 200, dtype=torch.float64)
    slopes[:, ::2] = 0.5
    weight = orthogonal(200)
    bound = math.sqrt(200) * 0.5**15
    assert bound == pytest.approx(4.3e-4, rel=0.01)
    assert float(torch.linalg.matrix_norm(jacobian(weight, slopes))) >= bound


def test_the_sign_of_zero_must_be_one_or_a_zero_state_kills_the_gradient() -> None:
    weight, h = orthogonal(100), torch.zeros(100, dtype=torch.float64)
    ours = torch.autograd.functional.jacobian(lambda h: Absolute().value(weight @ h), h)
    usual = torch.autograd.functional.jacobian(lambda h: (weight @ h).abs(), h)
    assert float(torch.linalg.matrix_norm(ours)) == pytest.approx(10, abs=2e-13)
    assert float(torch.linalg.matrix_norm(usual)) == 0


def test_many_lags_may_share_one_enclosure() -> None:
    weight = gaussian(6, 6)
    values = singular_enclosure(weight)
    assert [gradient_sandwich(values, (0.1, 1.0), lag) for lag in range(5)] == [
        gradient_sandwich(weight, (0.1, 1.0), lag) for lag in range(5)
    ]


def test_a_lag_of_zero_is_the_identity() -> None:
    low, high = gradient_sandwich(gaussian(4, 4), (0.0, 1.0), 0, norm="frobenius")
    assert 2 - 1e-14 < low <= 2 <= high < 2 + 1e-14


def test_long_lags_end_at_zero_and_infinity_and_stay_true() -> None:
    low, high = gradient_sandwich(2 * torch.eye(2), (1.0, 1.0), 10_000)
    assert low < math.inf == high
    low, high = gradient_sandwich(0.5 * torch.eye(2), (1.0, 1.0), 10_000)
    assert low == 0 < high < 1e-300


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("n", [1, 2, 50])
@pytest.mark.parametrize(
    ("scale", "steepness", "expected"),
    [
        (1.0, (1.0, 1.0), "constant"),
        (0.9, (1.0, 1.0), "vanishes"),
        (0.9, (0.0, 1.0), "vanishes"),
        (3.9, (0.0, 0.25), "vanishes"),
        (1.1, (0.0, 1.0), "may explode"),
        (1.1, (1.0, 1.0), "may explode"),
    ],
)
def test_the_regime_is_that_of_the_table(
    dtype: torch.dtype, n: int, scale: float, steepness: tuple[float, float], expected: str
) -> None:
    assert regime((scale * orthogonal(n)).to(dtype), steepness) == expected


@pytest.mark.parametrize("steepness", [ReLU.steepness, Tanh.steepness, LeakyReLU(0.5).steepness])
def test_a_norm_of_one_says_nothing_where_slopes_may_be_smaller(steepness: tuple[float, float]) -> None:
    assert regime(torch.eye(4), steepness) == "unknown"


def test_eigenvalues_below_one_do_not_make_the_gradient_vanish() -> None:
    assert float(torch.linalg.eigvals(SHEAR).abs().max()) < 1
    assert regime(SHEAR, (1.0, 1.0)) == "may explode"


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_nothing_is_said_of_what_is_not_finite(bad: float) -> None:
    with pytest.raises(NotFiniteError, match="`matrix`"):
        gradient_sandwich(torch.full((2, 2), bad), (1.0, 1.0), 1)


@pytest.mark.parametrize("ask", [lambda w: gradient_sandwich(w, (1.0, 1.0), 1), lambda w: regime(w, (1.0, 1.0))])
def test_a_recurrent_weight_is_square(ask: Callable[[Tensor], object]) -> None:
    with pytest.raises(ShapeError, match="`weight`"):
        ask(torch.ones(2, 3))


@pytest.mark.parametrize(
    ("steepness", "error"),
    [
        ((1.0, 0.5), ArgumentError),
        ((-0.1, 1.0), ArgumentError),
        ((0.0, math.inf), NotFiniteError),
        ((math.nan, 1.0), NotFiniteError),
        (1.0, ArgumentError),
        (("0", 1.0), ArgumentTypeError),
    ],
)
def test_a_steepness_is_a_pair_of_numbers_in_order(steepness: tuple[float, float], error: type[Exception]) -> None:
    with pytest.raises(error, match="`steepness`"):
        regime(torch.eye(2), steepness)


def test_a_norm_without_a_name_here_is_refused() -> None:
    with pytest.raises(ArgumentError, match="`norm` must be 'spectral' or 'frobenius', but is 'nuclear'"):
        gradient_sandwich(Enclosure(1.0, 1.0, 1.0, 1.0, 1), (1.0, 1.0), 1, norm="nuclear")


def test_a_negative_lag_is_refused() -> None:
    with pytest.raises(ArgumentError, match="`lag`"):
        gradient_sandwich(torch.eye(2), (1.0, 1.0), -1)
