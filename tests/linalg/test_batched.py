"""Affine maps of many networks: values and derivatives are those of each network alone."""

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from steadyrnn.linalg.batched import map_rows


def draw(*shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, generator=generator, dtype=torch.float64).requires_grad_()


@pytest.mark.parametrize("outputs", [1, 2, 15, 16, 40])
@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("length", [0, 1, 7])
def test_each_network_is_mapped_by_its_own_matrix(outputs: int, biased: bool, length: int) -> None:
    rows, weight, bias = draw(3, length, 5), draw(3, outputs, 5), draw(3, outputs) if biased else None
    image = map_rows(rows, weight, bias)
    assert image.is_contiguous()
    for place in range(3):
        alone = torch.nn.functional.linear(rows[place], weight[place], None if bias is None else bias[place])
        torch.testing.assert_close(image[place], alone)


@pytest.mark.parametrize("outputs", [2, 16])
def test_derivatives_of_first_and_second_order_are_exact(outputs: int) -> None:
    arguments = draw(2, 3, 4), draw(2, outputs, 4), draw(2, outputs)
    assert gradcheck(map_rows, arguments)
    assert gradgradcheck(map_rows, arguments)


@pytest.mark.parametrize("outputs", [2, 16])
def test_a_network_that_is_not_finite_leaves_the_others_bit_for_bit(outputs: int) -> None:
    rows, weight, bias = draw(3, 6, 5), draw(3, outputs, 5), draw(3, outputs)
    fine = map_rows(rows, weight, bias)
    with torch.no_grad():
        weight[1] = torch.nan
    found = map_rows(rows, weight, bias)
    assert torch.equal(found[[0, 2]], fine[[0, 2]])
    (grad,) = torch.autograd.grad(found.sum(), rows)
    assert grad[[0, 2]].isfinite().all()
    assert grad[1].isnan().all()
