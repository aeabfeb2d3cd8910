"""IDX files, the form of MNIST: a header that names type and shape, then the numbers."""

import gzip
import io
import math
import zlib
from pathlib import Path

import numpy
import torch
from torch import Tensor

from steadyrnn.errors import DataError

__all__ = ["gunzip", "read_idx"]

_MOST_BYTES = 2**28  # MNIST has a fifth of it
_BYTES = 8  # the header's code of unsigned bytes


def gunzip(data: bytes, where: Path) -> bytes:
    """Return what a gzip'ed file holds, at most 256 MiB; ``where`` is named in errors."""
    try:
        with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
            unpacked = file.read(_MOST_BYTES + 1)
    except EOFError as error:
        raise DataError(f"{where} must be a whole gzip file, but ends in the middle. Obtain it again.") from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"{where} must be a gzip file, but cannot be unpacked: {error}. Obtain it again.") from error
    if len(unpacked) > _MOST_BYTES:
        raise DataError(f"{where} must unpack to at most {_MOST_BYTES:,} bytes, but holds more.")
    return unpacked


def read_idx(data: bytes, where: Path, shape: tuple[int | None, ...]) -> Tensor:
    """Return the unsigned bytes of an unpacked IDX file as a tensor.

    The header is two zero bytes, the type's code, the number of dimensions, then each size as a big-endian 32-bit number.
    It is believed only where the file has as many bytes as it says.

    Args:
        data: The whole file, unpacked.
        where: Its path, named in errors.
        shape: What is expected; None stands for any size of at least 1.

    Returns:
        uint8, of the shape in the header.

    Example:
        >>> read_idx(bytes([0, 0, 8, 1, 0, 0, 0, 2, 7, 9]), Path("labels"), (None,))
        tensor([7, 9], dtype=torch.uint8)
    """
    start = 4 + 4 * len(shape)
    expected = bytes([0, 0, _BYTES, len(shape)])
    if len(data) < start or data[:4] != expected:
        raise DataError(
            f"{where} must be an IDX file of unsigned bytes in {len(shape)} dimensions and begin with {expected.hex()}, "
            f"but has {len(data)} bytes and begins with {data[:4].hex()}. Images and labels may be exchanged."
        )
    sizes = tuple(int.from_bytes(data[at : at + 4], "big") for at in range(4, start, 4))
    if any(size == 0 or size != (want or size) for size, want in zip(sizes, shape, strict=True)):
        wanted = tuple("any" if want is None else want for want in shape)
        raise DataError(f"{where} must have shape {wanted} (and none of size 0), but its header says {sizes}.")
    if len(data) - start != math.prod(sizes):
        raise DataError(
            f"{where}: the header promises {math.prod(sizes):,} numbers of shape {sizes}, but {len(data) - start:,} follow. "
            "The file is cut off, or its header is wrong; obtain it again."
        )
    return torch.from_numpy(numpy.frombuffer(data, numpy.uint8, offset=start).reshape(sizes).copy())
