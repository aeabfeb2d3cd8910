"""Every table and figure of the four papers by name; free of torch."""

from . import emami, lin, miller, zhang
from .base import Experiment

__all__ = ["EXPERIMENTS"]

EXPERIMENTS: dict[str, Experiment] = {
    experiment.id: experiment
    for paper in (emami, zhang, lin, miller)
    for experiment in paper.EXPERIMENTS
}  # fmt: skip
"""In the order of the papers. A new one is a record in the file of its paper, and the functions of its cells beside it."""
