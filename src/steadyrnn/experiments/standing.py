"""Where each experiment stands, read from the files of results; free of torch."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steadyrnn.errors import RunError
from steadyrnn.jobs.result_file import PARTIAL, read_result

from .base import Experiment

__all__ = ["Standing", "find_standing"]


@dataclass(frozen=True)
class Standing:
    """What is known of an experiment in a folder.

    Args:
        state: ``"full"``, ``"quick"``, ``"never run"``, ``"not yet runnable"`` or ``"damaged"``.
        date: Day of the first start of the run that is shown; empty without one.
        verdict: How many claims got which verdict; of a damaged file, what is wrong with it; what a run waits for.
        unfinished: Finished cells of a run that was interrupted.
        record: The record that is shown; None without one.
    """

    state: str
    date: str = ""
    verdict: str = ""
    unfinished: int = 0
    record: dict[str, Any] | None = None


def find_standing(experiment: Experiment, folder: str | Path) -> Standing:
    """Return where an experiment stands: its full record if there is one, else its quick one.

    Args:
        experiment: The experiment.
        folder: Where results are.

    Example:
        >>> from steadyrnn.experiments.registry import EXPERIMENTS
        >>> find_standing(EXPERIMENTS["lin-table2"], "nowhere").state
        'never run'
    """
    try:
        for quick in (False, True):
            path = Path(folder, f"{experiment.stem(quick)}.json")
            record = read_result(path)
            if record is not None:
                _check_owner(record, experiment, quick, path)
                date, verdict = str(record["made"].get("date", "")), str(record.get("verdict", ""))
                return Standing("quick" if quick else "full", date, verdict, record=record)
        begun = [read_result(Path(folder, f"{experiment.stem(quick)}{PARTIAL}")) for quick in (False, True)]
    except RunError as error:
        return Standing("damaged", verdict=str(error))
    if not experiment.runnable:
        return Standing("not yet runnable", verdict=f"waits for {experiment.waits_for}")
    return Standing("never run", unfinished=sum(len(record["cells"]) for record in begun if record is not None))


def _check_owner(record: dict[str, Any], experiment: Experiment, quick: bool, path: Path) -> None:
    """Refuse the record of another experiment, or of its other mode, under this one's name."""
    mode = "quick" if quick else "full"
    if (record.get("id"), record.get("mode")) != (experiment.id, mode):
        raise RunError(f"`{path}` holds {record.get('id')!r} in mode {record.get('mode')!r}, not {experiment.id!r} ({mode}).")
