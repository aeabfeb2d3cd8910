"""Blocks, padded buffers and the launch of a loop: all that knows how the kernels see memory."""

from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..loop.call import Call
from .specs import CellSpec

__all__ = ["Blocks", "Loop", "blocks_for", "inside", "pad_parts", "row_lengths"]

LANES = 132
"""Programs that run side by side: multiprocessors of an H100 or H200."""


class Blocks(NamedTuple):
    """How a call is cut up; powers of two."""

    rows: int
    units: int
    depth: int
    warps: int = 4
    stages: int = 2
    precision: str = "ieee"
    """Of products: ``"tf32x3"`` and ``"tf32"`` are for benchmarks."""
    stay: bool = False
    """Whether a weight of one block per gate stays in registers for all time steps."""
    upcast: bool = False
    """Whether 16-bit operands are widened before products, as the interpreter needs it."""


def shared_memory_of(x: Tensor) -> int:
    """Return how many bytes of shared memory one program may have where ``x`` lies; without a GPU, what an H200 gives."""
    if x.device.type != "cuda":
        return 227 * 1024
    properties = torch.cuda.get_device_properties(x.device)
    return int(getattr(properties, "shared_memory_per_block_optin", properties.shared_memory_per_block))


def blocks_for(call: Call, spec: CellSpec) -> Blocks:
    """Return the blocks for a call on a GPU, chosen so that the compiler keeps everything in registers.

    A tile has at least as many entries as its program has threads, so that no two threads hold the same one: gates are
    overwritten in place, and the slower of the two would read what the faster wrote. Float32 products run on the plain
    cores, where a tile may be as low as the batch allows: the lower, the more programs share the work. 16-bit and float64
    products run on tensor cores, whose tiles are 16 rows high; what stays for them may lie in shared memory, beside the
    48 KiB that all else takes.
    """
    (_, batch, _), hidden, dtype = call.input.shape, call.state[0].shape[1], call.input.dtype
    if dtype == torch.float64:
        return Blocks(16, 32, 32)
    gate = spec.gate(hidden)
    units = 128 if gate > 64 else 64 if gate > 32 else 32
    warps = 8 if units == 128 else 4
    if dtype != torch.float32:
        depth = 128 if 64 < hidden <= 128 else 64
        stay = spec.gates * depth * units * dtype.itemsize + 48 * 1024 <= shared_memory_of(call.input)
        return Blocks(16, units, depth, warps, 3, stay=stay)
    rows = 4 if batch <= 4 * LANES else 8 if batch <= 8 * LANES else 16
    return Blocks(rows, units, 32, warps, 3)


def row_lengths(sizes: list[int], batch: int) -> Tensor:
    """Return how many of ``sizes``, which never grow, are above the number of each row: its length; (B,) int64.

    Example:
        >>> row_lengths([3, 2, 2], 4)
        tensor([3, 3, 1, 0])
    """
    growing = torch.tensor(sizes, dtype=torch.int64).flip(0)
    return len(sizes) - torch.searchsorted(growing, torch.arange(batch), right=True)


def inside(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype of sums and states inside the loop.

    Example:
        >>> inside(torch.bfloat16)
        torch.float32
    """
    return torch.float64 if dtype == torch.float64 else torch.float32


def up(number: int, block: int) -> int:
    """Return ``number`` rounded up to a multiple of ``block``.

    Example:
        >>> up(17, 16)
        32
    """
    return -(-number // block) * block


def pad_parts(parts: Tensor, rows: int, columns: int) -> Tensor:
    """Return matrices (G, M, N) as a contiguous copy (G, ``rows``, ``columns``), 0 beyond them."""
    result = parts.new_zeros(parts.shape[0], rows, columns)
    result[:, : parts.shape[1], : parts.shape[2]] = parts
    return result


class Loop:
    """The buffers and the launch of one run over time, forwards or backwards."""

    def __init__(self, kernels: ModuleType, call: Call, spec: CellSpec, blocks: Blocks, back: bool) -> None:
        self.kernels, self.call, self.spec, self.blocks, self.back = kernels, call, spec, blocks, back
        (steps, batch), hidden = call.input.shape[:2], call.state[0].shape[1]
        self.gate = spec.gate(hidden)
        self.width, self.span = up(hidden, blocks.depth), up(self.gate, blocks.units)
        self.rows, self.hidden, self.batch, self.steps = up(batch, blocks.rows), hidden, batch, steps
        zeros, wide = call.input.new_zeros, inside(call.input.dtype)
        self.shared = zeros(2, spec.shared[back], self.rows, self.width)
        self.carry = zeros(2, max(spec.carried[back], 1), self.rows, self.width, dtype=wide)
        self.weights = self.prepare()

    def prepare(self) -> dict[str, Tensor | None]:
        """Return the recurrent weight as the products read it: depth first, units of one gate side by side."""
        call, gates, gate, blocks = self.call, self.spec.gates, self.gate, self.blocks
        if len(call.recurrent) == 1:
            (weight,) = call.recurrent
            if self.spec.step == "modrelu" and self.back:
                parts = weight.unflatten(1, (gates, gate)).transpose(0, 1)  # (2, H, P)
            else:
                parts = weight.unflatten(0, (gates, -1))
                parts = parts if self.back else parts.mT  # (G, H, P)
            return {"weight": pad_parts(parts, self.width, self.span), "thin": None, "diagonal": None, "middle": None}
        diagonal, left, right = call.recurrent
        narrow, broad = (left, right) if self.back else (right, left)  # v W' = d v + (v R) L', a W = d a + (a L) R'
        rank = up(max(narrow.shape[1], 1), max(blocks.units, blocks.depth))
        return {
            "weight": pad_parts(broad.unflatten(0, (gates, gate)).mT, rank, self.span),
            "thin": pad_parts(narrow.unsqueeze(0), self.width, rank),
            "diagonal": pad_parts(diagonal.view(gates, 1, gate), 1, self.span),
            "middle": call.input.new_zeros(self.rows, rank),
        }

    def resident(self) -> int:
        """Return how many matrices stay in registers: all where each is one block, or none."""
        one = (self.width, self.span) == (self.blocks.depth, self.blocks.units)
        return self.spec.gates if one and self.blocks.stay and len(self.call.recurrent) == 1 else 0

    def lengths(self) -> Tensor | None:
        """Return the length of every row, (B,), where they differ."""
        if self.call.sizes is None:
            return None
        return row_lengths(self.call.sizes, self.batch).to(self.call.input.device)

    def seed(self, buffer: Tensor, part: int, values: Tensor) -> None:
        """Put ``values`` (B, H) where the first step reads them."""
        buffer[0, part, : self.batch, : self.hidden] = values

    def result(self, buffer: Tensor, part: int) -> Tensor:
        """Return what the last step left, (B, H), a view."""
        return buffer[self.steps % 2, part, : self.batch, : self.hidden]

    def run(self, keep: bool, **memory: Tensor | None) -> None:
        """Launch the loop on these and its own buffers."""
        kernels, spec, blocks, call = self.kernels, self.spec, self.blocks, self.call
        own = {"shared": self.shared, "carry": self.carry, "lengths": self.lengths(), **self.weights}
        pointers: dict[str, Any] = {**dict.fromkeys(kernels.Memory._fields), **own, **memory}
        weight = self.weights["weight"]
        rank = weight.shape[1] if weight is not None and len(call.recurrent) > 1 else 0
        sizes = kernels.Sizes(self.steps, self.batch, self.rows, self.width, self.gate, self.span, rank)
        factored, ragged, wide = len(call.recurrent) > 1, call.sizes is not None, self.carry.dtype == torch.float64
        counts = self.shared.shape[1], self.carry.shape[1], spec.adjoints * self.hidden // self.gate
        setup = kernels.Setup(
            blocks.rows, blocks.units, blocks.depth, *counts, blocks.precision, blocks.upcast, wide, keep, ragged,
            call.reverse, factored, self.resident(), spec.slope,
        )  # fmt: skip
        step, value = kernels.FUNCTIONS[spec.step][self.back], kernels.FUNCTIONS[spec.value][self.back]
        kernels.loop[(self.rows // blocks.rows,)](
            kernels.Memory(**pointers), sizes, step, value, setup, num_warps=blocks.warps, num_stages=blocks.stages
        )
