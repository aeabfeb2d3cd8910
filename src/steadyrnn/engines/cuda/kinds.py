"""Where kernels lie, and the numbers under which they know activations and dtypes."""

import torch

from steadyrnn.activations import Absolute, Activation, Identity, LeakyReLU, ReLU, Sigmoid, Tanh

__all__ = ["KINDS", "NUMBERS", "PACKAGE"]

PACKAGE = __name__.rpartition(".")[0]
"""The package whose folder ``source`` holds the kernels."""

KINDS: dict[type[Activation], int] = {Tanh: 0, Sigmoid: 1, ReLU: 2, LeakyReLU: 3, Absolute: 4, Identity: 5}
"""Activations."""

NUMBERS: dict[torch.dtype, int] = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}
"""Dtypes of the tensors a kernel reads and writes."""
