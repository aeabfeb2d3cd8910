"""The file of a run that says what was known of task and model when it was made, with a checksum of itself."""

import hashlib
from collections.abc import Mapping
from typing import Any

from steadyrnn.errors import RunError
from steadyrnn.runs.folder import Run
from steadyrnn.runs.json_text import null_for_nonfinite, render

__all__ = ["FACTS", "read_choices", "read_facts", "write_facts"]

FACTS = "facts.json"
"""What was known of task and model when the run was made: it can be certified, converted and reported without its data."""

_CHECKSUM = "sha256"


def write_facts(run: Run, facts: Mapping[str, Any]) -> None:
    """Write the facts of a run, with their checksum."""
    run.write_json(FACTS, {**facts, _CHECKSUM: _digest(facts)})


def read_facts(run: Run) -> dict[str, Any]:
    """Return the facts of a run; empty if it has none.

    Scaling and classes of a user's own data are read from here: an altered digit would give wrong scores.

    Raises:
        RunError: They are damaged, or were altered since they were written.
    """
    if not (run.folder / FACTS).is_file():
        return {}
    facts = run.read_json(FACTS)
    if not isinstance(facts, dict):
        raise RunError(f"`{run.folder / FACTS}` is damaged: it must hold an object.")
    if facts.pop(_CHECKSUM, None) not in (None, _digest(facts)):  # those of an earlier release have none
        raise RunError(f"`{run.folder / FACTS}` was altered since it was written. Restore it, or train again.")
    return facts


def read_choices(run: Run) -> dict[str, Any]:
    """Return what a run notes of how its settings were chosen, so that they are not chosen again; empty where that is lost."""
    try:
        facts = read_facts(run)
    except RunError:
        return {}
    return {name: facts[name] for name in ("model_choice", "rate_test") if name in facts}


def _digest(facts: Mapping[str, Any]) -> str:
    """Return the SHA-256 of facts as they are written."""
    return hashlib.sha256(render(null_for_nonfinite(dict(facts))).encode()).hexdigest()
