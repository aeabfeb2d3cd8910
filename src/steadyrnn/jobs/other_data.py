"""A network that was trained on a file of one's own, on the same file elsewhere, or on another one."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from steadyrnn.errors import RunError
from steadyrnn.tasks.base import Task
from steadyrnn.tasks.series.prepared import prepare_as
from steadyrnn.tasks.series.read import read_test_series
from steadyrnn.tasks.series.settings import SeriesSettings
from steadyrnn.tasks.series.task import make_series_task, task_from

from .facts_file import read_facts
from .loading import Trained, read_configuration

__all__ = ["task_on"]


def task_on(trained: Trained, data: Path) -> tuple[Task, bool]:
    """Return the task of a trained network on a file, and whether it is the file that the network was trained on.

    The file of the training is divided as it was then. Any other is prepared as the training data were, with the scaling and
    the classes of the training, and each part of the task is all of it.

    Args:
        trained: The network, of a run on data of one's own.
        data: The file or folder.

    Raises:
        RunError: The network was trained on something else, or its test series have changed.
    """
    noted: Any = read_facts(trained.run).get("data")
    settings = read_configuration(trained.run).task
    if (
        not isinstance(noted, dict)
        or not isinstance(noted.get("preparation"), dict)
        or not isinstance(settings, SeriesSettings)
    ):
        raise RunError(f"`{trained.run.folder}` was not trained on a file of your own: leave `--data` out.")
    series = read_test_series(replace(settings, test_data=str(data)))
    before = [file.get("sha256") for file in noted.get("files", []) if isinstance(file, dict)]
    now = [file.sha256 for file in series.files]
    if now == before[: len(now)] and (settings.test_data is None) == (len(now) == len(before)):
        task = make_series_task(replace(settings, data=str(data)))
        if [file["sha256"] for file in task.data_facts()["files"]] != before:
            raise RunError(f"`{trained.run.folder}` was trained on other data: {settings.test_data} has changed since.")
        return task, True
    own = replace(settings, test_data=str(data), parallel="none")  # one process reads it
    return task_from(prepare_as(series, own, noted["preparation"])), False
