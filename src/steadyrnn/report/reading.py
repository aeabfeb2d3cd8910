"""What a report needs of a run folder, as far as it is there."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from steadyrnn.errors import RunError
from steadyrnn.runs.folder import Run
from steadyrnn.runs.layout import find_runs

from .numbers import finite

__all__ = ["Record", "Trial", "flatten", "mapping", "read_all"]

Record = Mapping[str, Any]
ENDS = {
    "finished": "finished",
    "patience": "stopped: no better for long enough",
    "below": "stopped: good enough",
    "interrupted": "interrupted",
}
UNFINISHED = "unfinished"


@dataclass(frozen=True)
class Trial:
    """One run, read; what is missing is empty, and ``notes`` says so.

    Args:
        place: The last parts of the folder's path: ``task/model/id``.
        config: ``config.json``.
        records: ``metrics.jsonl``.
        certificate: The certificate in ``certificate.json``, empty if there is none.
        proof: The other entries of ``certificate.json``: why there is none, of which step and checkpoint it is.
        facts: ``facts.json``: what whoever started the run knew of task and model (metric, baselines, parameters).
        environment: ``environment.json``.
        status: How the run ended.
        notes: What a reader should know before trusting the numbers.
    """

    place: str
    config: Record
    records: Sequence[Record]
    certificate: Record
    proof: Record
    facts: Record
    environment: Record
    status: str
    notes: tuple[str, ...]

    @property
    def task(self) -> str:
        """The task's name, or that of a user's own file."""
        task = mapping(self.config.get("task"))
        data = task.get("data")
        return Path(data).stem if isinstance(data, str) and data else str(task.get("name", "unnamed task"))

    @property
    def model(self) -> str:
        """The model's name."""
        return str(mapping(self.config.get("model")).get("name", "unnamed model"))

    @property
    def seed(self) -> str:
        """The seed of weights, with that of the data where it is not 0."""
        weights, data = (mapping(self.config.get(part)).get("seed") for part in ("train", "task"))
        return " ".join([*([str(weights)] if weights is not None else []), *([f"(data {data})"] if data else [])])

    @property
    def steps(self) -> float | None:
        """Optimizer steps done."""
        return max((step for record in self.records if (step := finite(record.get("step"))) is not None), default=None)

    @property
    def seconds(self) -> float | None:
        """Time the run took."""
        return max((time for record in self.records if (time := finite(record.get("time"))) is not None), default=None)

    def probes(self, name: str) -> list[Record]:
        """Return the measurements of a name, in order of steps."""
        found = [
            r for r in self.records if r.get("kind") == "probe" and r.get("name") == name and isinstance(r.get("value"), dict)
        ]
        return sorted((record for record in found if finite(record.get("step")) is not None), key=lambda record: record["step"])


def mapping(value: Any) -> Record:
    """Return a JSON object as it is, and anything else as an empty one."""
    return value if isinstance(value, Mapping) else {}


def flatten(value: Any, prefix: str = "") -> dict[str, Any]:
    """Return nested objects as one, with dotted keys.

    Example:
        >>> flatten({"train": {"optimizer": {"lr": 0.1}, "steps": 5}})
        {'train.optimizer.lr': 0.1, 'train.steps': 5}
    """
    if not isinstance(value, Mapping):
        return {prefix: value}
    result: dict[str, Any] = {}
    for key, inner in value.items():
        result |= flatten(inner, f"{prefix}.{key}" if prefix else str(key))
    return result


def read_all(folders: Sequence[Path], refusals: list[str]) -> list[Trial]:
    """Read every run among some folders and below them, each once, in the order of their paths.

    Args:
        folders: Runs, or folders above them.
        refusals: Takes a sentence about each run that cannot be read, where another one can.

    Raises:
        RunError: No run was found, or none can be read.
    """
    found = find_runs([Path(folder) for folder in folders])
    if not found:
        raise RunError(
            "`folders` must name at least one run or a folder above runs, but is empty. `steadyrnn train` makes runs."
        )
    trials: list[Trial] = []
    errors: list[RunError] = []
    for folder in sorted(found, key=lambda folder: folder.resolve().parts):
        try:
            trials.append(read(folder))
        except RunError as error:
            errors.append(error)
    if not trials:
        raise errors[0]
    refusals.extend(map(str, errors))
    return trials


def read(folder: Path) -> Trial:
    """Read one run; nothing but an unreadable configuration is an error."""
    run = Run.open(folder)
    notes: list[str] = []
    records = read_records(run, notes)
    found = mapping(read_part(run, "certificate.json", notes))
    environment = mapping(read_part(run, "environment.json", notes))
    status = how_it_ended(records)
    if not records and not notes:
        notes.append("no metrics were recorded yet")
    elif records and status == UNFINISHED:
        notes.append("the run goes on, or was cut off: its numbers are those so far")
    elif status == "interrupted":
        notes.append("the run was interrupted and may be resumed: its numbers are those so far")
    proof = {key: value for key, value in found.items() if key != "certificate"}
    facts = mapping(read_part(run, "facts.json", notes))
    place = "/".join(folder.resolve().parts[-3:])
    certificate = mapping(found.get("certificate"))
    return Trial(place, run.config, records, certificate, proof, facts, environment, status, tuple(notes))


def read_records(run: Run, notes: list[str]) -> list[Record]:
    """Return a run's metrics; where a line is damaged none, and a note."""
    try:
        return list(run.metrics())
    except RunError as error:
        notes.append(f"the metrics cannot be read: {error}")
        return []


def read_part(run: Run, name: str, notes: list[str]) -> Any:
    """Return a JSON file of a run, None where it is missing; one that cannot be read is noted."""
    if not (run.folder / name).exists():
        return None
    try:
        return run.read_json(name)
    except RunError as error:
        notes.append(f"{name} cannot be read: {error}")
        return None


def how_it_ended(records: Sequence[Record]) -> str:
    """Return the reason of the end, ``unfinished`` where training went on after the last one or none is there."""
    kinds = [record.get("kind") for record in records]
    if "end" not in kinds:
        return UNFINISHED
    last = len(kinds) - 1 - kinds[::-1].index("end")
    if "train" in kinds[last:] or "validation" in kinds[last:]:
        return UNFINISHED
    return ENDS.get(str(records[last].get("reason")), str(records[last].get("reason")))
