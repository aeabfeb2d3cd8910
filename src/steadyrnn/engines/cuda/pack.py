"""A weight in the order in which the lanes of a kernel read it."""

from functools import cache

import torch
from torch import Tensor

from .plan import Layout, Product

__all__ = ["packed_columns", "packed_rows"]


def turned(lane: Tensor, each: int) -> Tensor:
    """Return the low bits of ``lane``, as many as ``each`` has, in reverse order.

    Example:
        >>> turned(torch.arange(4), 4)
        tensor([0, 2, 1, 3])
    """
    result, bit, to = torch.zeros_like(lane), 1, each // 2
    while to:
        result += torch.where((lane & bit) > 0, to, 0)
        bit, to = bit * 2, to // 2
    return result


def tile_index(product: Product, each: int, first: int) -> Tensor:
    """Return the place of each number of a tile in a matrix (results, reach), as ``source/product.cu`` orders them."""
    lane = torch.arange(32)
    split, group, lanes = lane % product.split, lane // product.split, 32 // product.split
    warp, slot = torch.arange(product.warps_o), torch.arange(each)
    mine = group * each + (slot.view(-1, 1) ^ turned(split, each))  # (each, 32)
    row = first + warp.view(-1, 1, 1) * (lanes * each) + mine  # (warps_o, each, 32)
    part, quad = torch.arange(product.warps_k), torch.arange(product.depth // 4)
    fourth = (part.view(-1, 1, 1) * len(quad) + quad.view(-1, 1)) * product.split + split  # (warps_k, depth / 4, 32)
    column = fourth.unsqueeze(-1) * 4 + torch.arange(4)  # (warps_k, depth / 4, 32, 4)
    index = row.view(product.warps_o, 1, each, 1, 32, 1) * product.reach + column.unsqueeze(1)
    return index.reshape(-1)


@cache
def index_of(product: Product, device: torch.device) -> Tensor:
    """Return the places of all tiles' numbers, one tile after another."""
    lanes, tiles, first = 32 // product.split, [], 0
    for each in (product.each, *[product.each_later] * product.tiles):
        tiles.append(tile_index(product, each, first))
        first += product.warps_o * lanes * each
    return torch.cat(tiles).to(device)


def packed_rows(weight: Tensor, gates: int, layout: Layout) -> Tensor:
    """Return, for each block, the rows of its own units, (blocks, numbers), from ``weight`` (G * H, H)."""
    size, product, blocks, units = weight.shape[1], layout.product, layout.blocks, layout.units
    wide = weight.new_zeros(gates, blocks * units, product.reach, dtype=torch.float32)
    wide[:, :size, :size] = weight.view(gates, size, size)
    matrix = wide.new_zeros(blocks, product.results, product.reach)
    matrix[:, : gates * units] = wide.view(gates, blocks, units, -1).transpose(0, 1).flatten(1, 2)
    return matrix.flatten(1).index_select(1, index_of(product, weight.device))


def packed_columns(weight: Tensor, gates: int, layout: Layout) -> Tensor:
    """Return, for each block, what carries adjoints of its own gates to all units, from ``weight`` (G * H, H)."""
    size, product, blocks, units = weight.shape[1], layout.product, layout.blocks, layout.units
    wide = weight.new_zeros(gates, blocks * units, product.results, dtype=torch.float32)
    wide[:, :size, :size] = weight.view(gates, size, size)
    matrix = wide.new_zeros(blocks, product.results, product.reach)
    turned_over = wide.view(gates, blocks, units, -1).permute(1, 3, 0, 2)  # (blocks, results, G, units)
    matrix[..., : gates * units] = turned_over.flatten(2)
    return matrix.flatten(1).index_select(1, index_of(product, weight.device))
