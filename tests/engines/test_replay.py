"""A function that is run again from a CUDA graph returns what it returns."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor

from steadyrnn.engines import replay
from steadyrnn.engines.replay import call_through_graph


def shifted_product(x: Tensor, shift: Tensor | None) -> tuple[Tensor, Tensor]:
    product = x @ x.mT
    product = product if shift is None else product + shift
    return product.tanh(), product.max()


def test_on_a_cpu_the_function_is_called() -> None:
    x = torch.randn(3, 4)
    assert all(
        torch.equal(a, b) for a, b in zip(call_through_graph(shifted_product, (x, None)), shifted_product(x, None), strict=True)
    )
    assert not replay._entries


@pytest.mark.gpu
@pytest.mark.parametrize("with_shift", [False, True])
def test_a_replay_returns_what_the_function_does(with_shift: bool) -> None:
    replay._entries.clear()
    kept = []
    for _ in range(5):
        x = torch.randn(64, 32, device="cuda").mT.contiguous().mT  # arguments need not be contiguous
        shift = torch.randn(64, 1, device="cuda") if with_shift else None
        kept.append((call_through_graph(shifted_product, (x, shift)), shifted_product(x, shift)))
    assert next(iter(replay._entries.values())).replay is not None
    for found, expected in kept:  # a later replay does not overwrite results
        for a, b in zip(found, expected, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


@pytest.mark.gpu
def test_other_shapes_dtypes_and_streams_have_graphs_of_their_own() -> None:
    replay._entries.clear()
    for _ in range(3):
        for x in (
            torch.randn(8, 3, device="cuda"),
            torch.randn(9, 3, device="cuda"),
            torch.randn(8, 3, device="cuda").double(),
        ):
            torch.testing.assert_close(call_through_graph(shifted_product, (x, None)), shifted_product(x, None))
        with torch.cuda.stream(torch.cuda.Stream()):
            x = torch.randn(8, 3, device="cuda")
            torch.testing.assert_close(call_through_graph(shifted_product, (x, None)), shifted_product(x, None))
    assert len(replay._entries) <= replay._ENTRIES


@pytest.mark.gpu
def test_threads_do_not_mix_their_numbers() -> None:
    replay._entries.clear()

    def run(seed: int) -> bool:
        generator = torch.Generator("cuda").manual_seed(seed)
        for _ in range(50):
            x = torch.randn(64, 64, device="cuda", generator=generator)
            found = call_through_graph(shifted_product, (x, None))[1]
            if abs(float(found - shifted_product(x, None)[1])) > 1e-3:
                return False
        return True

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(run, range(4)))


@pytest.mark.gpu
def test_where_memory_is_scarce_the_function_is_called_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    replay._entries.clear()
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (100, 10**9))
    for _ in range(3):
        x = torch.randn(8, 8, device="cuda")
        torch.testing.assert_close(call_through_graph(shifted_product, (x, None)), shifted_product(x, None))
    assert next(iter(replay._entries.values())).refused


@pytest.mark.gpu
def test_a_graph_captured_in_inference_mode_serves_outside_of_it() -> None:
    replay._entries.clear()
    for inside in (True, True, False, True, False):
        with torch.inference_mode(inside):
            x = torch.randn(8, 8, device="cuda")
            torch.testing.assert_close(call_through_graph(shifted_product, (x, None)), shifted_product(x, None))
