"""What has ended and what was begun, by the journal and by the folders of trials, which must agree."""

from steadyrnn.errors import RunError

from .folder import SweepFolder, TrialRecord, read_record, trial_folder
from .journal import JOURNAL
from .study import Known, Studies

__all__ = ["reconcile"]


def reconcile(sweep: SweepFolder, studies: Studies) -> tuple[dict[int, TrialRecord], dict[int, Known], list[str]]:
    """Return what trials came to, which were begun and have not ended, and a sentence about each that was put right.

    The record in a trial's folder is written before the journal learns of it. So a trial may have ended for its folder and
    still run for the journal, which is then told. The other way round something was lost or altered.

    Raises:
        RunError: Journal and folders disagree; nothing was changed.
    """
    known = studies.known()
    read = {number: read_record(trial_folder(sweep.folder, number)) for number in {*known, *sweep.trials()}}
    for number, record in read.items():
        if number not in known:
            raise RunError(
                f"`{trial_folder(sweep.folder, number)}` is a trial that `{JOURNAL}` does not have: the journal has lost "
                "lines, or the folder is another sweep's. Restore the journal, or move the folder away."
            )
        _check_agreement(sweep, known[number], record)
    studies.close_cut_off()
    records, begun, notes = dict[int, TrialRecord](), dict[int, Known](), list[str]()
    for number, trial in sorted(known.items()):
        record = read[number]
        if trial.state == "running" and record is None:
            begun[number] = trial
            continue
        if record is None:  # its failure could not be written to its folder
            record = TrialRecord(number, trial.model, trial.settings, trial.state, reason=trial.reason)
        if trial.state == "running":
            studies.tell(trial, record)
            notes.append(f"trial {number} had ended ({record.state}) without the journal knowing, which was told")
        records[number] = record
    return records, begun, notes


def _check_agreement(sweep: SweepFolder, trial: Known, record: TrialRecord | None) -> None:
    """Refuse a trial of which journal and folder say different things."""
    folder = trial_folder(sweep.folder, trial.number)
    if record is None:
        if trial.state in ("finished", "pruned"):
            raise RunError(
                f"`{JOURNAL}` has trial {trial.number} as {trial.state}, but `{folder}` does not say what it came to: the "
                "folder is lost, or was altered. Restore it."
            )
        return
    same = record.number == trial.number and record.model == trial.model and dict(record.settings) == dict(trial.settings)
    if trial.state != "running":
        same = same and record.state == trial.state and record.value == trial.value
    if not same:
        raise RunError(
            f"`{JOURNAL}` and `{folder}` say different things of trial {trial.number}: one of them was altered, or is another "
            "sweep's. Restore it."
        )
