"""The tables of a report: comparison, certificates, configurations, the numbers behind a picture."""

import math
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from .chart import Chart
from .groups import Configuration, Contest, to_text
from .numbers import contraction, count, duration, finite, mean, number, with_spread
from .reading import Trial, flatten, mapping
from .series import interpolate

__all__ = ["Row", "Verdict", "behind", "comparison", "details", "differences", "headline", "verdict"]

TABLE_ROWS = 16


@dataclass(frozen=True)
class Verdict:
    """What is certified of a run or of several: words for a reader, ``level`` for the eye (good, warn, none)."""

    level: str
    word: str
    contraction: str
    regime: str
    memory: str


@dataclass(frozen=True)
class Row:
    """One configuration in the comparison table."""

    label: str
    style: str
    width: str
    parameters: str
    seeds: int
    validation: str
    test: str
    steps: str
    time: str
    verdict: Verdict
    best: bool
    remark: str


def comparison(contest: Contest) -> list[Row]:
    """Return one row per configuration, the best first; those without a score last."""
    order = rank(contest)
    winners = {c.label for c in order if score(contest, c) is not None and score(contest, c) == score(contest, order[0])}
    lonely = len(contest.configurations) < 2
    return [row(contest, c, c.label in winners and not lonely) for c in order]


def score(contest: Contest, configuration: Configuration) -> float | None:
    """Return the mean test score, or the mean best validation score where not every configuration was tested."""
    tested = all(c.values(contest.test) for c in contest.configurations)
    return mean(configuration.values(contest.test if tested else contest.best_validation))


def rank(contest: Contest) -> list[Configuration]:
    """Return the configurations, the best first, those without a score last, equals by name."""

    def key(configuration: Configuration) -> tuple[bool, float, str]:
        found = score(contest, configuration)
        return found is None, 0.0 if found is None else -found if contest.higher else found, configuration.label

    return sorted(contest.configurations, key=key)


def row(contest: Contest, configuration: Configuration, best: bool) -> Row:
    """Return one configuration's row."""
    trials = configuration.trials
    parameters = next((found for trial in trials if (found := finite(trial.facts.get("parameters")))), None)
    unfinished = [trial.status for trial in trials if trial.status in ("unfinished", "interrupted")]
    remark = f"{len(unfinished)} of {len(trials)} unfinished" if unfinished and len(trials) > 1 else "".join(unfinished)
    return Row(
        configuration.label,
        configuration.style,
        to_text(configuration.options["width"]) if configuration.options.get("width") is not None else "–",
        count(parameters),
        len(trials),
        with_spread(configuration.values(contest.best_validation)),
        with_spread(configuration.values(contest.test)),
        count(mean(configuration.values(lambda trial: trial.steps))),
        duration(mean(configuration.values(lambda trial: trial.seconds))),
        together([verdict(trial) for trial in trials], trials),
        best,
        remark,
    )


def headline(contest: Contest) -> str:
    """Return the contest in a sentence."""
    order = rank(contest)
    first = order[0]
    if score(contest, first) is None:
        return f"No run has a {contest.metric} on validation or test data yet."
    tested = all(c.values(contest.test) for c in contest.configurations)
    split, of = ("test", contest.test) if tested else ("validation", contest.best_validation)
    values = first.values(of)
    seeds = f" over {len(values)} seeds" if len(values) > 1 else ""
    claim = (
        f"{first.label} has the best {split} {contest.metric}, "
        if len(order) > 1
        else f"{first.label}: {split} {contest.metric} "
    )
    baseline = contest.baseline(contest.metric)
    rest = f"; the best constant answer gets {number(baseline)}" if baseline is not None else ""
    return f"{claim}{with_spread(values)}{seeds}{rest}."


def verdict(trial: Trial) -> Verdict:
    """Return what is certified of a run: by its certificate, else by the last certificate measured while it trained."""
    found = trial.certificate
    if not found:
        measured = trial.probes("certificate")
        found = mapping(measured[-1]["value"]) if measured else {}
    if not found:
        return Verdict("none", "no certificate", "–", "–", "–")
    rate = finite(found.get("contraction"))
    regime = str(found.get("regime") or "unknown")
    if found.get("stable") is True:
        return Verdict("good", "stable", contraction(rate), regime, memory(trial, rate))
    return Verdict("warn", "not proven", contraction(rate), regime, "–")


def memory(trial: Trial, rate: float | None) -> str:
    """Return how far back a stable network reaches: its proven horizon where known, else the time in which it forgets half."""
    horizon = mapping(trial.proof.get("horizon"))
    steps, eps = finite(horizon.get("steps")), finite(horizon.get("eps"))
    if steps is not None:
        return f"{count(steps)} steps" + (f" to {number(eps)}" if eps is not None else "")
    if rate is None or not 0 < rate < 1:
        return "–"
    return f"half in {count(math.ceil(math.log(2) / -math.log(rate)))} steps"


def together(verdicts: Sequence[Verdict], trials: Sequence[Trial]) -> Verdict:
    """Return one verdict of several seeds: the worst of them, and how many are stable where they differ."""
    rates = [math.inf if (rate := certified_rate(trial)) is None else rate for trial in trials]
    worst = verdicts[max(range(len(verdicts)), key=lambda i: rates[i])]  # what is not finite, or not known, is the worst
    regime = worst.regime if len({found.regime for found in verdicts}) == 1 else "differs by seed"
    if len({found.word for found in verdicts}) == 1:
        slowest = verdicts[max(range(len(verdicts)), key=lambda i: (horizon_steps(trials[i]), rates[i]))]
        return Verdict(worst.level, worst.word, worst.contraction, regime, slowest.memory)
    stable = sum(found.level == "good" for found in verdicts)
    return Verdict("warn", f"stable: {stable} of {len(verdicts)}", worst.contraction, regime, "–")


def horizon_steps(trial: Trial) -> float:
    """Return the proven horizon of a run, 0 where none is noted."""
    return finite(mapping(trial.proof.get("horizon")).get("steps")) or 0.0


def certified_rate(trial: Trial) -> float | None:
    """Return a run's certified contraction, the last measured where no certificate was written."""
    if trial.certificate:
        return finite(trial.certificate.get("contraction"))
    measured = trial.probes("certificate")
    return finite(measured[-1]["value"].get("contraction")) if measured else None


def differences(contest: Contest) -> tuple[list[str], list[tuple[str, list[str]]]]:
    """Return the configurations' labels, and for each setting in which they differ its name and values."""
    several = [flatten({key: c.trials[0].config.get(key) for key in ("model", "train")}) for c in contest.configurations]
    keys = list(dict.fromkeys(key for one in several for key in one))
    skipped = {"train.seed", "model.name"}
    differing = [key for key in keys if key not in skipped and any(one.get(key) != several[0].get(key) for one in several)]
    rows = [(key, [to_text(one[key]) if key in one else "–" for one in several]) for key in differing]
    return [c.label for c in contest.configurations], rows


def details(trial: Trial) -> dict[str, Any]:
    """Return a run as its folded part shows it."""
    command = trial.config.get("command")
    config = {key: value for key, value in trial.config.items() if key != "command"}
    return {
        "place": trial.place,
        "seed": trial.seed,
        "status": trial.status,
        "notes": trial.notes,
        "command": command_line(command) if isinstance(command, list) and command else None,
        "config": [(key, to_text(value)) for key, value in flatten(config).items()],
        "environment": [(key, to_text(value)) for key, value in flatten(trial.environment).items()]
        if trial.environment
        else [],
        "verdict": verdict(trial),
        "certificate": certificate(trial),
        "reason": trial.proof.get("reason"),
    }


def certificate(trial: Trial) -> dict[str, Any] | None:
    """Return a run's certificate: its claims, and the assumptions all of them share."""
    found = trial.certificate
    if not found:
        return None
    listing = found.get("claims")
    claims = [claim for claim in listing if isinstance(claim, dict)] if isinstance(listing, list) else []
    listed = [[str(a) for a in claim["assumptions"]] for claim in claims if isinstance(claim.get("assumptions"), list)]
    common = [a for a in listed[0] if all(a in other for other in listed)] if len(listed) == len(claims) and listed else []
    rows = []
    for claim in claims:
        own = [str(a) for a in claim.get("assumptions") or [] if str(a) not in common]
        value = finite(claim.get("value"))
        written = number(value, 6) if value is not None else to_text(claim.get("value")).replace("inf", "∞")
        if "contraction" in str(claim.get("name", "")) and not (value is not None and value < 1):
            written = contraction(value)
        rows.append(
            [str(claim.get("name", "")), written, str(claim.get("norm", "")), str(claim.get("theorem", "")), "; ".join(own)]
        )
    return {
        "module": str(found.get("module", "")),
        "valid_for": str(found.get("valid_for", "")),
        "assumptions": common,
        "rows": rows,
        "own": any(row[-1] for row in rows),
        "left_out": [str(text) for text in listed_texts(found.get("left_out"))],
        "step": to_text(trial.proof["step"]) if trial.proof.get("step") is not None else None,
        "checkpoint": trial.proof.get("checkpoint"),
        "digest": str(found.get("digest", "")),
    }


def listed_texts(found: Any) -> list[Any]:
    """Return a JSON list, nothing for what is none."""
    return found if isinstance(found, list) else []


def command_line(words: Sequence[Any]) -> str:
    """Return a command as a shell takes it."""
    return shlex.join(str(word) for word in words)


def behind(chart: Chart) -> tuple[list[str], list[list[str]]]:
    """Return the numbers behind a picture: one row for some of its places, one column per curve, with the range of a band."""
    xs = sorted({x for curve in chart.curves for x, _ in curve.points()})
    last = len(xs) - 1
    stops = [xs[i] for i in sorted({round(k * last / (TABLE_ROWS - 1)) for k in range(TABLE_ROWS)})] if last > 0 else xs
    bands = {band.label: band for band in chart.bands if band.label}
    readers: list[Callable[[float], str]] = []
    for curve in chart.curves:
        readers.append(cell(curve.points(), bands.get(curve.label)))
    header = [chart.x_label, *(f"{c.label} (from, to)" if c.label in bands else c.label for c in chart.curves)]
    return header, [[number(x, 6), *(read(x) for read in readers)] for x in stops]


def cell(points: Sequence[tuple[float, float]], band: Any) -> Callable[[float], str]:
    """Return a function that writes a curve's value at a place, with the band around it."""

    def read(x: float) -> str:
        text = number(interpolate(list(points), x))
        if band is None:
            return text
        ends = [
            interpolate([(a, b) for a, b in zip(band.x, side, strict=True) if b is not None], x)
            for side in (band.low, band.high)
        ]
        return f"{text} ({number(ends[0])}, {number(ends[1])})"

    return read
