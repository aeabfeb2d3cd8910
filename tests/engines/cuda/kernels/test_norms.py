"""2-norms of many vectors: its kernel's own source on the CPU, and on a GPU."""

import math

import pytest
import torch
from torch import Tensor

from steadyrnn.certificates.rounding import largest_norm
from steadyrnn.engines.cuda.kernels import norms
from steadyrnn.engines.cuda.kernels.norms import every_norm, largest_square, supports
from tests.support.emulated import emulated_kernel, is_there
from tests.support.memory import poisoned_memory

EPS = torch.finfo(torch.float32).eps


def drawn(rows: int, size: int, device: str = "cpu") -> Tensor:
    torch.manual_seed(0)
    return torch.randn(rows, size, device=device)


def is_right(x: Tensor) -> bool:
    """Say whether the largest square is right up to rounding."""
    truth = float(x.double().square().sum(-1).max())
    return abs(float(largest_square(x)) - truth) <= (x.shape[-1] + 2) * EPS * truth


@pytest.fixture
def _emulated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(norms, "kernel", emulated_kernel)
    monkeypatch.setattr(norms, "OnDevice", lambda device: torch.no_grad())
    monkeypatch.setattr(norms, "multiprocessors", lambda device: 1)
    monkeypatch.setattr(norms, "_BLOCKS", 2)  # 16 warps


@pytest.mark.skipif(not is_there(), reason="g++ is not installed, or this is not Linux")
@pytest.mark.usefixtures("_emulated")
class TestEmulated:
    @pytest.mark.parametrize(("rows", "size"), [(1, 1), (3, 128), (16, 5), (50, 4), (33, 132), (40, 300)])
    def test_every_vector_counts(self, rows: int, size: int) -> None:
        with poisoned_memory():
            x = drawn(rows, size)
            assert is_right(x)
            for row in {0, rows // 2, rows - 1}:
                larger = x.clone()
                larger[row, -1] = 100.0
                assert is_right(larger)

    def test_vectors_that_begin_anywhere_in_memory(self) -> None:
        assert is_right(drawn(9, 4).flatten()[1:33].view(8, 4))

    @pytest.mark.parametrize(("rows", "size"), [(1, 1), (3, 128), (16, 5), (50, 4), (40, 300)])
    def test_the_norm_of_every_vector(self, rows: int, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(norms, "supports", lambda vectors: True)
        x = drawn(rows, size)
        x[0, 0] = 1e30  # whose square is above float32
        with poisoned_memory():
            torch.testing.assert_close(every_norm(x), x.double().norm(dim=-1), rtol=1e-14, atol=0)
        x[-1, -1] = math.nan
        assert every_norm(x).isnan().tolist() == [False] * (rows - 1) + [True]

    @pytest.mark.parametrize("row", [0, 7, 39])
    def test_nan_and_infinity_stay(self, row: int) -> None:
        x = drawn(40, 8)
        x[row, 3] = math.nan
        assert math.isnan(largest_square(x))
        x[row, 3] = math.inf
        assert math.isinf(largest_square(x))


def test_it_is_for_the_gpu() -> None:
    assert not supports(torch.empty(2**16, 64))


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [(2**16, 64), (2**17, 1, 33), (5000, 3, 1001)])
def test_on_a_gpu(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    x = torch.randn(shape, device="cuda")
    assert supports(x)
    assert not supports(x.double())
    assert not supports(x.transpose(0, -1))
    assert not supports(x[:8])
    with poisoned_memory():
        assert is_right(x)
    truth = float(x.double().square().sum(-1).max().sqrt())
    assert truth <= largest_norm(x) <= truth * (1 + 4 * (shape[-1] + 8) * EPS)
    torch.testing.assert_close(every_norm(x), x.double().norm(dim=-1), rtol=1e-14, atol=0)
    x.view(-1)[12345] = math.nan
    assert math.isnan(largest_norm(x))
