"""Which series several processes can read together, each its own steps."""

from collections.abc import Mapping

import torch

from steadyrnn.errors import ArgumentError

from .examples import Examples
from .problem import Problem

__all__ = ["check_time_can_be_shared"]


def check_time_can_be_shared(problem: Problem, examples: Mapping[str, Examples]) -> None:
    """Refuse series that are not read with an answer at every step, or windows of several lengths.

    Args:
        problem: What is asked.
        examples: Of every part; none with truncated backpropagation.

    Raises:
        ArgumentError: They are; the message says what else to do.
    """
    if not problem.each:
        what = "a window" if problem.kind == "forecasting" else "a series"
        raise ArgumentError(
            f"`parallel` is 'ranks', which needs an answer at every step, but here {what} has one answer. "
            + ("Give `bptt`, which forecasts at every step." if problem.kind == "forecasting" else "Leave `parallel` out.")
        )
    lengths = torch.cat([one.length for one in examples.values()]).unique().tolist() if examples else []
    if len(lengths) > 1:
        raise ArgumentError(
            f"`parallel` is 'ranks', which needs windows of one length, but there are some of {lengths[0]:,} and of "
            f"{lengths[-1]:,} steps. Give a `window` that no part of a series is shorter than, or `bptt`."
        )
