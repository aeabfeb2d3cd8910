import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from steadyrnn.errors import ArgumentError
from steadyrnn.tasks.hashing import Stream, bits, gaussian, integers, permutation, uniform

WORD = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15
GRID = (torch.arange(512), torch.arange(512).unsqueeze(1))  # index along rows, position down


def finalizer(word: int) -> int:
    """splitmix64's, in Python integers."""
    word &= WORD
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9 & WORD
    word = (word ^ (word >> 27)) * 0x94D049BB133111EB & WORD
    return word ^ (word >> 31)


def word(seed: int, stream: int, index: int, position: int) -> int:
    """The docstring's formula, in Python integers."""
    key = finalizer(finalizer(seed + GOLDEN) + stream * GOLDEN)
    return finalizer(finalizer(key + (index + 1) * GOLDEN) + (position + 1) * GOLDEN)


def test_the_finalizer_is_that_of_splitmix64() -> None:
    # the published first outputs of splitmix64 with seed 0
    assert [finalizer((i + 1) * GOLDEN) for i in range(2)] == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4]


@given(
    seed=st.integers(0, 2**63 - 1),
    stream=st.sampled_from(Stream),
    index=st.integers(-(2**62), 2**62),
    position=st.integers(-(2**62), 2**62),
)
def test_tensor_operations_give_the_bits_of_the_formula(seed: int, stream: Stream, index: int, position: int) -> None:
    got = bits(seed, stream, torch.tensor([index]), torch.tensor([position]))
    assert got.item() & WORD == word(seed, stream, index, position)


def test_golden_values_do_not_change() -> None:
    index = torch.arange(3)
    assert bits(0, Stream.TRAIN, index, 0).tolist() == [6752573004810752849, 1573241713160145837, 2774818892573306825]
    assert bits(7, Stream.TEST, 5, torch.tensor([-1, 10**9])).tolist() == [2643410080737486620, 404021064400866752]
    assert integers(1, Stream.VALIDATION, index, 4, below=1000).tolist() == [607, 383, 443]
    assert (uniform(1, Stream.TRAIN, index, 4).double() * 2**24).tolist() == [12829055, 1181912, 9168008]
    assert permutation(3, Stream.ORDER, 8, index=2).tolist() == [4, 0, 2, 6, 1, 5, 7, 3]


def test_numbers_as_index_and_position_take_the_device_requested() -> None:
    assert bits(0, Stream.TRAIN, 1, 2, device="cpu") == bits(0, Stream.TRAIN, torch.tensor(1), torch.tensor(2))
    assert permutation(0, Stream.ORDER, 3, device="meta").device.type == "meta"


def test_index_and_position_broadcast_and_are_left_as_they_were() -> None:
    index, position = torch.arange(3), torch.arange(4).unsqueeze(1)
    table = bits(0, Stream.TRAIN, index, position)
    assert table.shape == (4, 3)
    assert table[2, 1] == bits(0, Stream.TRAIN, 1, 2)
    assert index.tolist() == [0, 1, 2]
    assert position.flatten().tolist() == [0, 1, 2, 3]


def correlation(a: Tensor, b: Tensor) -> float:
    return torch.corrcoef(torch.stack([a.flatten(), b.flatten()]).double())[0, 1].item()


# Samples are fixed, so these cannot flake; a bound of 4.5 standard errors is passed by a good hash with odds of 150,000 to 1.
NUMBERS = 512 * 512


@pytest.mark.parametrize("stream", Stream)
def test_uniforms_have_the_moments_of_the_uniform_distribution(stream: Stream) -> None:
    u = uniform(0, stream, *GRID).double()
    assert u.min() >= 0
    assert u.max() < 1
    assert abs(u.mean() - 0.5) < 4.5 * math.sqrt(1 / 12 / NUMBERS)
    assert abs(u.var() - 1 / 12) < 4.5 * math.sqrt(1 / 180 / NUMBERS)


def test_uniforms_are_multiples_of_two_to_the_minus_24() -> None:
    u = uniform(0, Stream.TRAIN, *GRID)
    assert u.dtype == torch.float32
    scaled = u.double() * 2**24
    assert torch.equal(scaled, scaled.round())


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(lambda f: f(0, Stream.TRAIN, GRID[0] + 1, GRID[1]), id="next index"),
        pytest.param(lambda f: f(0, Stream.TRAIN, GRID[0], GRID[1] + 1), id="next position"),
        pytest.param(lambda f: f(0, Stream.TRAIN, GRID[0] + 1, GRID[1] - 1), id="diagonal"),
        pytest.param(lambda f: f(0, Stream.TRAIN, GRID[1], GRID[0]), id="index and position exchanged"),
        pytest.param(lambda f: f(1, Stream.TRAIN, *GRID), id="next seed"),
        pytest.param(lambda f: f(0, Stream.VALIDATION, *GRID), id="next stream"),
        pytest.param(lambda f: f(1, Stream.TRAIN, GRID[0], GRID[1] - 1), id="next seed, position before"),
    ],
)
@pytest.mark.parametrize("draw", [uniform, gaussian])
def test_neighbours_are_not_correlated(draw: Callable[..., Tensor], other: Callable[..., Tensor]) -> None:
    here, there = draw(0, Stream.TRAIN, *GRID), other(draw)
    differ = here != there  # exchanged, the diagonal meets itself
    assert differ.float().mean() > 0.99
    assert abs(correlation(here[differ], there[differ])) < 4.5 / math.sqrt(NUMBERS)


@pytest.mark.parametrize("below", [2, 3, 8, 10, 100, 1000])
def test_integers_pass_a_chi_square_test(below: int) -> None:
    counts = integers(0, Stream.TRAIN, *GRID, below=below).flatten().bincount(minlength=below).double()
    assert len(counts) == below
    chi = ((counts - NUMBERS / below).square() / (NUMBERS / below)).sum().item()
    # Wilson and Hilferty: (chi/f)^(1/3) is nearly normal with mean 1 - 2/(9f) and variance 2/(9f)
    f = below - 1
    assert abs(((chi / f) ** (1 / 3) - (1 - 2 / (9 * f))) / math.sqrt(2 / (9 * f))) < 4.5


def test_pairs_of_integers_of_neighbouring_positions_pass_a_chi_square_test() -> None:
    first, second = (integers(0, Stream.TRAIN, GRID[0], GRID[1] + shift, below=8) for shift in (0, 1))
    counts = (8 * first + second).flatten().bincount(minlength=64).double()
    chi = ((counts - NUMBERS / 64).square() / (NUMBERS / 64)).sum().item()
    assert abs(chi - 63) < 4.5 * math.sqrt(2 * 63)


@pytest.mark.parametrize("bit", range(0, 64, 7))
def test_every_bit_is_set_half_of_the_time(bit: int) -> None:
    ones = (bits(0, Stream.TRAIN, *GRID) >> bit & 1).double().mean()
    assert abs(ones - 0.5) < 4.5 * 0.5 / math.sqrt(NUMBERS)


@pytest.mark.parametrize("below", [0, -1, 2**31 + 1])
def test_integers_below_a_wrong_number_are_refused(below: int) -> None:
    with pytest.raises(ArgumentError, match="`below`"):
        integers(0, Stream.TRAIN, 0, 0, below=below)


def test_integers_reach_both_ends_of_the_largest_range() -> None:
    drawn = integers(0, Stream.TRAIN, *GRID, below=2**31)
    assert 0 <= drawn.min() < 2**31 / NUMBERS * 20
    assert 2**31 * (1 - 20 / NUMBERS) < drawn.max() < 2**31


@pytest.mark.parametrize("seed", [-1, 2**63, 1.5, True, "0"])
def test_a_wrong_seed_is_refused(seed: object) -> None:
    with pytest.raises(ArgumentError, match="`seed`"):
        bits(seed, Stream.TRAIN, 0, 0)  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gaussians_have_the_moments_of_the_normal_distribution(dtype: torch.dtype) -> None:
    z = gaussian(0, Stream.TRAIN, *GRID, dtype=dtype)
    assert z.dtype == dtype
    z = z.double()
    assert abs(z.mean()) < 4.5 / math.sqrt(NUMBERS)
    assert abs(z.square().mean() - 1) < 4.5 * math.sqrt(2 / NUMBERS)
    assert abs(z.pow(3).mean()) < 4.5 * math.sqrt(15 / NUMBERS)
    assert abs(z.pow(4).mean() - 3) < 4.5 * math.sqrt(96 / NUMBERS)
    assert z.abs().max() < 6.9


@pytest.mark.parametrize("limit", [-2.0, -1.0, 0.0, 0.5, 1.5, 3.0])
def test_gaussians_have_the_normal_distribution_function(limit: float) -> None:
    share = (gaussian(0, Stream.TEST, *GRID) < limit).double().mean().item()
    p = 0.5 * (1 + math.erf(limit / math.sqrt(2)))
    assert abs(share - p) < 4.5 * math.sqrt(p * (1 - p) / NUMBERS)


@given(n=st.integers(0, 200), seed=st.integers(0, 2**63 - 1), index=st.integers(0, 1000))
def test_a_permutation_holds_every_number_once(n: int, seed: int, index: int) -> None:
    assert permutation(seed, Stream.ORDER, n, index=index).sort().values.tolist() == list(range(n))


def test_every_permutation_of_four_is_equally_likely() -> None:
    drawn = [tuple(permutation(0, Stream.ORDER, 4, index=i).tolist()) for i in range(4800)]
    counts = [drawn.count(order) for order in set(drawn)]
    assert len(counts) == 24
    assert abs(sum((count - 200) ** 2 / 200 for count in counts) - 23) < 4.5 * math.sqrt(2 * 23)


def test_permutations_of_two_epochs_differ() -> None:
    assert not torch.equal(permutation(0, Stream.ORDER, 100, index=0), permutation(0, Stream.ORDER, 100, index=1))


@pytest.mark.gpu
def test_a_gpu_gives_the_same_bits() -> None:
    grid = tuple(number.cuda() for number in GRID)
    assert torch.equal(bits(5, Stream.TRAIN, *grid).cpu(), bits(5, Stream.TRAIN, *GRID))
    assert torch.equal(uniform(5, Stream.TRAIN, *grid).cpu(), uniform(5, Stream.TRAIN, *GRID))
    assert torch.equal(integers(5, Stream.TRAIN, *grid, below=97).cpu(), integers(5, Stream.TRAIN, *GRID, below=97))
    assert torch.equal(permutation(5, Stream.ORDER, 1000, "cuda").cpu(), permutation(5, Stream.ORDER, 1000))
    torch.testing.assert_close(gaussian(5, Stream.TRAIN, *grid).cpu(), gaussian(5, Stream.TRAIN, *GRID), atol=2e-6, rtol=0)
