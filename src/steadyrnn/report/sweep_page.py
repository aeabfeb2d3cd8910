"""One self-contained HTML page about a sweep: what was chosen, every trial, and which settings decide."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .numbers import contraction, count, duration, number
from .parallel_coordinates import Line, draw_importance, draw_parallel, label
from .rendering import render_page, write_page
from .tables import command_line

__all__ = ["write_sweep_page"]

MOST_ROWS = 500
MOST_LINES = 1000
"""Trials that a picture shows: the best ones."""
MOST_AXES = 8
MANY_AXES = 4
"""Settings from which on a picture takes the whole width: in half of it, nobody could read it."""


def write_sweep_page(
    sweep: Mapping[str, Any], out: Path, command: Sequence[str] | None = None, title: str | None = None
) -> Path:
    """Write the page of a sweep; return its path.

    Args:
        sweep: What a sweep's ``table.json`` holds.
        out: The file to write; an older one is replaced as a whole.
        command: The command that made it, to be shown.
        title: The heading; None names the task.

    Raises:
        RunError: jinja2 is missing, or the file cannot be written.
    """
    values = {
        "title": title or f"Sweep on {sweep['task']}",
        "command": command_line(command) if command else None,
        **view(sweep),
    }
    return write_page(render_page("sweep.html", values), out)


def view(sweep: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the template shows of a sweep."""
    rows, plan = sweep["rows"], sweep["plan"]
    states = {state: sum(row["state"] == state for row in rows) for state in ("finished", "pruned", "failed")}
    ended = ", ".join(f"{count_} {state}" for state, count_ in states.items() if count_ or state == "finished")
    names = list(dict.fromkeys(name for row in rows for name in row["settings"]))
    chosen = {best["number"] for best in sweep["best"].values()}
    return {
        "summary": f"{len(rows):,} of {sweep['trials']:,} trials have ended: {ended}; seeds per trial: {len(plan['seeds'])}",
        "metric": sweep["metric"],
        "better": "higher is better" if sweep["higher_is_better"] else "lower is better",
        "best": [best_view(model, best, sweep["metric"]) for model, best in sweep["best"].items()],
        "scores": list(dict.fromkeys(name for best in sweep["best"].values() for name in best["test"])),
        "models": [model_view(model, sweep) for model in plan["models"]],
        "names": names,
        "rows": [row_view(row, names, row["number"] in chosen) for row in rows[:MOST_ROWS]],
        "more": max(len(rows) - MOST_ROWS, 0),
        "unfinished": sorted(sweep["unfinished"].items(), key=lambda pair: int(pair[0])),
        "plan": plan_view(plan),
    }


def best_view(model: str, best: Mapping[str, Any], metric: str) -> dict[str, Any]:
    """Return the line of a model: what validation chose, and its test."""
    spreads = best["test_deviation"]
    tests = {
        name: number(value) + (f" ± {number(spreads[name], 2)}" if name in spreads else "")
        for name, value in best["test"].items()
    }
    deviation = "" if best["deviation"] is None else f" ± {number(best['deviation'], 2)}"
    proven = {None: "–", True: "proven to forget", False: "not proven to forget"}[best["stable"]]
    return {
        "model": model, "number": best["number"], "validation": number(best["value"]) + deviation, "tests": tests,
        "settings": ", ".join(f"{name} {label(value)}" for name, value in best["settings"].items()) or "the common settings",
        "contraction": "–" if best["stable"] is None else contraction(best["contraction"]), "proven": proven,
        "parameters": count(best["parameters"]), "metric": metric,
    }  # fmt: skip


def model_view(model: str, sweep: Mapping[str, Any]) -> dict[str, Any]:
    """Return the pictures of a model."""
    rows = [row for row in sweep["rows"] if row["model"] == model and row["value"] is not None]
    lines = [Line(row["number"], row["settings"], row["value"]) for row in rows[:MOST_LINES]]
    shares = dict(sweep["importance"].get(model, {}))
    values: dict[str, set[str]] = {}
    for line in lines:
        for name, value in line.settings.items():
            values.setdefault(name, set()).add(repr(value))
    varied = sorted((name for name, found in values.items() if len(found) > 1), key=lambda name: -shares.get(name, 0.0))
    return {
        "name": model,
        "parallel": draw_parallel(lines, varied[:MOST_AXES], sweep["metric"], sweep["higher_is_better"]),
        "importance": draw_importance({name: share for name, share in shares.items() if name in varied}),
        "wide": len(varied) >= MANY_AXES,
        "left_out": ", ".join(varied[MOST_AXES:]),
        "count": len(lines),
    }


def row_view(row: Mapping[str, Any], names: Sequence[str], chosen: bool) -> dict[str, Any]:
    """Return the line of a trial."""
    return {
        **{"number": row["number"], "model": row["model"], "state": row["state"], "reason": row["reason"], "chosen": chosen},
        "settings": [label(row["settings"][name]) if name in row["settings"] else "" for name in names],
        "value": number(row["value"]),
        "seconds": duration(row["seconds"]),
        "level": {"finished": "good", "pruned": "none"}.get(row["state"], "warn"),
    }


def plan_view(plan: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what was asked for, as pairs of words."""
    shown = [("task", plan["task"]), ("models", ", ".join(plan["models"])), ("seeds", ", ".join(map(str, plan["seeds"])))]
    shown += [(f"grid: {name}", ", ".join(label(value) for value in values)) for name, values in plan["grid"].items()]
    for name, space in plan["search"].items():
        if isinstance(space, Mapping):
            more = ", logarithmic" if space["log"] else f", step {number(space['step'])}" if space["step"] else ""
            shown.append((f"search: {name}", f"{number(space['low'])} to {number(space['high'])}{more}"))
        else:
            shown.append((f"search: {name}", ", ".join(label(value) for value in space)))
    shown += [(name, label(value)) for name, value in plan["settings"].items()]
    drawn = [("trials", str(plan["trials"])), ("sampler", plan["sampler"])] if plan["search"] else []
    return [*shown, *drawn, ("pruner", plan["pruner"]), ("seed of the search", str(plan["seed"]))]
