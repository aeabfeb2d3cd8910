"""Device, threads, deterministic algorithms, autocast."""

import pytest
import torch

from steadyrnn.errors import ArgumentError, DeviceError
from steadyrnn.train.device import autocast, choose_device, device_context, make_scaler
from steadyrnn.train.settings import TrainSettings


def test_auto_chooses_a_gpu_where_there_is_one() -> None:
    assert choose_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")


@pytest.mark.parametrize("name", ["gpu", "mps", "cuda:x", "meta", ""])
def test_an_unknown_device_is_refused(name: str) -> None:
    with pytest.raises(ArgumentError, match=r"`device` must be auto, cpu, cuda or cuda:1"):
        choose_device(name)


def test_a_device_that_is_not_there_is_refused() -> None:
    with pytest.raises(DeviceError, match=r"'cuda:77', but torch sees \d+ CUDA devices"):
        choose_device("cuda:77")


def test_threads_and_determinism_hold_inside_and_are_put_back() -> None:
    before = torch.get_num_threads()
    with device_context(TrainSettings(threads=3, deterministic=True)):
        assert torch.get_num_threads() == 3
        assert torch.are_deterministic_algorithms_enabled()
    assert torch.get_num_threads() == before
    assert not torch.are_deterministic_algorithms_enabled()


def test_without_settings_the_machine_is_left_alone() -> None:
    before = torch.get_num_threads()
    with device_context(TrainSettings()):
        assert torch.get_num_threads() == before
        assert not torch.are_deterministic_algorithms_enabled()


@pytest.mark.parametrize("deterministic", [False, True])
def test_a_user_who_wants_warnings_only_gets_them_back(deterministic: bool) -> None:
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        with device_context(TrainSettings(deterministic=deterministic)):
            assert torch.is_deterministic_algorithms_warn_only_enabled() is not deterministic
        assert torch.is_deterministic_algorithms_warn_only_enabled()
    finally:
        torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize(("name", "dtype"), [(None, torch.float32), ("bfloat16", torch.bfloat16), ("float16", torch.float16)])
def test_autocast_takes_the_named_dtype(name: str | None, dtype: torch.dtype) -> None:
    with autocast(name, torch.device("cpu")):
        assert (torch.ones(1, 1) @ torch.ones(1, 1)).dtype == dtype


@pytest.mark.parametrize(("name", "scales"), [(None, False), ("bfloat16", False), ("float16", True)])
def test_only_float16_scales_its_loss(name: str | None, scales: bool) -> None:
    assert (make_scaler(name, torch.device("cpu")) is not None) is scales
