"""The kernels behind the factors of the SVD parametrisation: what they take anywhere, and on a GPU what they give."""

import shutil
import subprocess
from contextlib import nullcontext
from importlib.resources import files
from pathlib import Path

import pytest
import torch
from torch import Tensor

import steadyrnn.linalg as package
from steadyrnn.gpu.nvrtc import source
from steadyrnn.linalg import spectral_kernel as kernel_module
from steadyrnn.linalg.operators import DiagonalLowRank
from steadyrnn.linalg.spectral_factors import spectral_factors
from steadyrnn.linalg.spectral_kernel import can_launch, fits, kept_numbers, launch_backward, launch_forward, shared_bytes
from tests.linalg.matrices import gaussian, relative
from tests.linalg.test_spectral_factors import COLUMNS, UNIT, Arguments, arguments, composed, fast, gradients, wide
from tests.support.emulated import emulated_kernel, is_there
from tests.support.memory import poisoned_memory

SHAPES = [(2, 1), (5, 3), (8, 8), (70, 24), (129, 16), (777, 7), (1024, 16), (1024, 24)]


def test_the_package_ships_its_kernels() -> None:
    assert [file.name for file in files(package).joinpath("source").iterdir()] == ["spectral_factors.cu"]


def test_what_is_kept_has_a_place_for_each_number() -> None:
    assert kept_numbers(5, 3) == 2 * (2 * 5 * 3) + 2 * 3 + 3 * 9


def test_tensors_that_are_not_on_a_gpu_are_not_taken() -> None:
    assert not can_launch(arguments("random", 5, 2), 5, 2)


@pytest.mark.parametrize(("rows", "count"), [(1, 1), (1024, 1), (1024, 24)])
def test_what_fits_leaves_no_row_without_a_thread_and_no_byte_without_memory(rows: int, count: int) -> None:
    assert fits(rows, count)
    assert shared_bytes(count) <= 227 * 1024


@pytest.mark.parametrize(("rows", "count"), [(1025, 1), (1024, 25), (64, 32)])
def test_more_than_a_cluster_has_does_not_fit(rows: int, count: int) -> None:
    assert not fits(rows, count)


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
@pytest.mark.parametrize("count", [1, 16, 24])
def test_nvcc_compiles_them_without_a_word(count: int, tmp_path: Path) -> None:
    file = tmp_path / "kernel.cu"
    file.write_text(source(package.__name__, ("ptx", "spectral_factors"), (("count", count),)))
    command = ["nvcc", "-arch=sm_90", "-cubin", "-o", str(tmp_path / "kernel.cubin"), str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.skipif(not is_there(), reason="g++ is not installed, or this is not Linux")
@pytest.mark.parametrize("columns", ["random", "parallel to 1e-2", "of all lengths", "some of them zero"])
@pytest.mark.parametrize(("n", "k"), [(2, 1), (7, 3), (20, 5), (70, 8)])
def test_their_source_on_a_cpu_gives_factors_and_gradients(
    n: int, k: int, columns: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernel_module, "kernel", emulated_kernel)
    monkeypatch.setattr(kernel_module, "OnDevice", lambda device: nullcontext())
    kernel_module.compile_kernel.cache_clear()
    left, right, sigma = arguments(columns, n, k)
    with poisoned_memory():
        factors, kept = launch_forward(left, right, sigma, k)
        for got, reference, true in zip(
            factors, fast(left, right, sigma, k)[1:], composed(*wide((left, right, sigma)), k)[1:], strict=True
        ):
            assert relative(got, true) <= 2 * max(relative(reference, true), 16 * UNIT)
        _, lower, upper = weights_for(n, k)
        found = launch_backward((lower, upper), sigma, kept, k, len(left))
    leaves = [t.double().requires_grad_() for t in (left, right, sigma)]
    made = composed(leaves[0], leaves[1], leaves[2], k)
    exact = torch.autograd.grad((made.left, made.right), leaves, (lower.double(), upper.double()))
    own = [t.clone().requires_grad_() for t in (left, right, sigma)]
    plain = torch.autograd.grad(fast(own[0], own[1], own[2], k)[1:], own, (lower, upper))
    for got, reference, true in zip(found, plain, exact, strict=True):
        assert relative(got, true) <= 2 * max(relative(reference, true), 16 * UNIT)
    kernel_module.compile_kernel.cache_clear()


def on_gpu(left: Tensor, right: Tensor, sigma: Tensor, k: int) -> DiagonalLowRank:
    """Return the factors as the GPU finds them, on the CPU again."""
    with poisoned_memory():
        made = spectral_factors(left.cuda(), right.cuda(), sigma.cuda(), k)
    return DiagonalLowRank(*(part.cpu() for part in made))


def weights_for(n: int, k: int) -> tuple[Tensor, ...]:
    return tuple(w.float() for w in (gaussian(n, seed=1), gaussian(n, 2 * k, seed=2), gaussian(n, 2 * k, seed=3)))


@pytest.mark.gpu
@pytest.mark.parametrize("columns", COLUMNS)
@pytest.mark.parametrize(("n", "k"), SHAPES)
def test_factors_and_gradients_are_as_accurate_as_on_the_cpu(n: int, k: int, columns: str) -> None:
    given = arguments(columns, n, k)
    assert can_launch(tuple(t.cuda() for t in given), n, k)
    truth = composed(*wide(given), k)
    for got, reference, true in zip(on_gpu(*given, k), fast(*given, k), truth, strict=True):
        assert relative(got, true) <= 2 * max(relative(reference, true), 16 * UNIT)
    found = [gradients(way, given, k, *weights_for(n, k)) for way in (on_gpu, fast, composed)]
    right = gradients(composed, wide(given), k, *weights_for(n, k))
    for got, *others, true in zip(*found, right, strict=True):
        assert relative(got, true) <= 2 * max(*(relative(other, true) for other in others), 16 * UNIT)


@pytest.mark.gpu
def test_the_same_arguments_give_the_same_bits() -> None:
    given = [t.cuda().requires_grad_() for t in arguments("random", 128, 16)]
    g = torch.randn(128, 32, device="cuda")

    def compute() -> list[Tensor]:
        made = spectral_factors(given[0], given[1], given[2], 16)
        assert "Launched" in type(made.left.grad_fn).__name__
        return [made.left, made.right, *torch.autograd.grad((made.left, made.right), given, (g, g))]

    assert all(torch.equal(one, two) for one, two in zip(compute(), compute(), strict=True))


@pytest.mark.gpu
def test_second_derivatives_and_many_cotangents_at_once() -> None:
    given = arguments("random", 20, 3)

    def second(device: str) -> list[Tensor]:
        leaves = [t.to(device).requires_grad_() for t in given]
        made = spectral_factors(leaves[0], leaves[1], leaves[2], 3)
        first = torch.autograd.grad((made.left**2).sum() + (made.right**3).sum(), leaves, create_graph=True)
        again = torch.autograd.grad(sum((g**2).sum() for g in first), leaves, retain_graph=True)
        many = torch.autograd.grad(
            made.left, leaves, torch.ones(4, 20, 6, device=device), is_grads_batched=True, allow_unused=True
        )
        return [t.cpu() for t in (*first, *again, *many)]

    for got, true in zip(second("cuda"), second("cpu"), strict=True):
        assert relative(got, true.double()) <= 1e-4


@pytest.mark.gpu
def test_nan_stays_visible_and_more_rows_than_fit_are_composed() -> None:
    left, right, sigma = (t.cuda() for t in arguments("random", 20, 3))
    left[0] = torch.nan
    assert spectral_factors(left, right, sigma, 3).left.isnan().any()
    wider: Arguments = arguments("random", 1030, 3)
    truth = composed(*wide(wider), 3)
    for got, true in zip(on_gpu(*wider, 3), truth, strict=True):
        assert relative(got, true) <= 32 * UNIT
