"""How many rows, features and labels the multi-label data sets have."""

from collections.abc import Mapping
from typing import Any

from steadyrnn.tasks.locate import data_folder, is_there
from steadyrnn.tasks.multilabel import SIZES, read_labelled
from steadyrnn.tasks.settings import BibtexSettings, MediamillSettings

from .base import Judgement
from .published.zhang import VALUES

__all__ = ["count_rows", "judge_sizes"]

_SETTINGS = {settings.data_set: settings for settings in (BibtexSettings(), MediamillSettings())}
_SIZES = ("features", "labels", "train", "test")


def count_rows(data_set: str) -> dict[str, int] | None:
    """Read a multi-label data set and return its sizes; None where its files are not there.

    Raises:
        DataError: The files are damaged, or those of other data.
    """
    if not is_there(data_set):
        return None
    train, test = read_labelled(data_folder(None), _SETTINGS[data_set], SIZES[data_set])
    sizes = train.features.shape[1], train.targets.shape[1], len(train), len(test)
    return dict(zip(_SIZES, sizes, strict=True))


def judge_sizes(cells: Mapping[str, Any], data_set: str) -> Judgement:
    """Judge the printed sizes of a data set; without its files there is nothing to judge.

    Example:
        >>> judge_sizes({"bibtex": {"features": 1836, "labels": 159, "train": 4880, "test": 2515}}, "bibtex").verdict
        'seen'
        >>> judge_sizes({"mediamill": None}, "mediamill").verdict
        'not measured'
    """
    counted = cells[data_set]
    if counted is None:
        return Judgement("not measured", "data not there")
    text = f"{counted['features']} features, {counted['labels']} labels, {counted['train']} + {counted['test']} rows"
    seen = all(counted[size] == VALUES[f"table5/{data_set}/{size}"].value for size in _SIZES)
    return Judgement("seen" if seen else "not seen", text)
