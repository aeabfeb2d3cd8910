"""The ways to copy a module whole."""

import copy
import io

import torch
from torch import nn


def saved_whole(module: nn.Module) -> nn.Module:
    file = io.BytesIO()
    torch.save(module, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


COPIES = [copy.deepcopy, saved_whole]
