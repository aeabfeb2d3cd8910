"""The pictures of a contest: learning, gradient flow, singular values, contraction over training."""

from collections.abc import Iterator, Sequence
from typing import Any

from .chart import Band, Chart, Curve, Guide
from .groups import Configuration, Contest
from .numbers import finite, number
from .reading import Record, Trial, mapping
from .scales import wants_logarithm
from .series import Line, Series, average, thin

__all__ = ["contraction", "gradient_flow", "learning_curves", "margins", "measured", "singular_values"]

FAN = ((0.0, 1.0), (0.1, 0.9), (0.25, 0.75))
FAN_POINTS = 120
MOMENTS = ("first", "middle", "last")
MEASURED = (
    ("gradient-h0", "mean", "Gradient of the loss by the initial state, mean norm of a row"),
    ("dead-units", "dead", "Share of dead units"),
    ("state-jacobian", "mean", "Frobenius norm of ∂s(T)/∂s(1), mean of the batches"),
)
"""Probes of one number, with its key and the title of its picture."""
FLOOR = 1e-16  # of a gradient, relative to the largest: what is below is as good as nothing


def learning_curves(contest: Contest) -> list[Chart]:
    """Return the training loss, the validation loss, the score to watch, and the gradient's norm, as far as recorded."""
    metric = contest.metric
    wanted = [("train", "loss", "Training loss"), ("validation", "loss", "Validation loss")]
    if metric != "loss" and not same_as_loss(contest):
        wanted.append(("validation", metric, f"Validation {metric}"))
    elif metric != "loss":
        wanted[1] = ("validation", metric, f"Validation {metric} (the loss)")
    wanted.append(("train", "gradient_norm", "Norm of the gradient"))
    charts = []
    for kind, key, title in wanted:
        lines = [(configuration, configuration.line(kind, key)) for configuration in contest.configurations]
        guide = contest.baseline(key) if key != "gradient_norm" else None
        guides = [Guide(f"baseline {number(guide)}", guide)] if guide is not None else []
        charts.append(over_training(title, [(c, line) for c, line in lines if line], guides))
    return [chart for chart in charts if chart.curves or chart.title == "Training loss"]


def measured(contest: Contest) -> list[Chart]:
    """Return what some probes measured, one number by step, as far as recorded."""
    charts = []
    for name, key, title in MEASURED:
        lines = []
        for configuration in contest.configurations:
            line = average([probe_series(trial, name, key) for trial in configuration.trials])
            if line is not None:
                lines.append((configuration, line))
        charts.append(over_training(title, lines))
    return [chart for chart in charts if chart.curves]


def probe_series(trial: Trial, name: str, key: str) -> Series:
    """Return one number of a probe by step."""
    found = [(float(p["step"]), finite(p["value"].get(key))) for p in trial.probes(name)]
    return sorted({step: value for step, value in found if value is not None}.items())


def same_as_loss(contest: Contest) -> bool:
    """Return whether the score to watch is the validation loss under another name."""
    lines = [(c.line("validation", "loss"), c.line("validation", contest.metric)) for c in contest.configurations]
    return all(loss == score for loss, score in lines)


def over_training(title: str, lines: Sequence[tuple[Configuration, Line]], guides: Sequence[Guide] = ()) -> Chart:
    """Return a chart of one number by step, a curve a configuration, with the range of its seeds as a band."""
    thinned = [(configuration, thin(line)) for configuration, line in lines]
    several = [(c, line) for c, line in thinned if line.seeds > 1]
    values = [value for _, line in thinned for value in line.mean] + [guide.value for guide in guides]
    log = wants_logarithm(values)
    if log:  # one seed near 0 must not fill the whole picture
        values += [value for _, line in several for value in (*line.low, *line.high) if value > min(values) / 10]
    return Chart(
        title,
        "step",
        curves=[Curve(c.label, c.style, line.x, line.mean) for c, line in thinned],
        bands=[Band(c.label, c.style, line.x, line.low, line.high) for c, line in several],
        guides=guides,
        log=log,
        range=values if log else None,
    )


def gradient_flow(contest: Contest) -> list[Chart]:
    """Return for each configuration the gradient's spectral norm by lag, early, midway and late, and the certified band."""
    found = []
    for configuration in contest.configurations:
        trial = next((trial for trial in configuration.trials if usable_flows(trial)), None)
        if trial is not None:
            found.append((configuration, trial, moments(usable_flows(trial))))
    measured = [y for _, _, flows in found for _, flow in flows for y in numbers(flow.get("spectral")) if y and y > 0]
    top = max(measured, default=1.0)
    bounds = [min([*measured, top / 10, 0.5]), max(top, 2.0)]
    bounds[0] = max(bounds[0], top * FLOOR)
    return [flow_chart(configuration, trial, flows, bounds) for configuration, trial, flows in found]


def usable_flows(trial: Trial) -> list[Record]:
    """Return the measurements of gradient flow that have a point."""
    return [
        probe for probe in trial.probes("gradient-flow") if flow_curve(mapping(probe["value"]), "spectral", "", "").points()
    ]


def moments(probes: Sequence[Record]) -> list[tuple[str, Record]]:
    """Return the first, the middle and the last measurement with their names, fewer where there are fewer."""
    chosen = {0: "", len(probes) // 2: "", len(probes) - 1: ""}
    names = {1: MOMENTS[2:], 2: (MOMENTS[0], MOMENTS[2]), 3: MOMENTS}[len(chosen)]
    return [
        (f"{name}, step {probes[i]['step']}", mapping(probes[i]["value"]))
        for name, i in zip(names, sorted(chosen), strict=True)
    ]


def flow_curve(flow: Record, key: str, label: str, style: str) -> Curve:
    """Return one of the lists of a measurement by lag."""
    pairs = [(x, y) for x, y in zip(numbers(flow.get("lag")), numbers(flow.get(key)), strict=False) if x is not None]
    pairs.sort(key=lambda pair: pair[0])
    kept = (
        pairs
        if len(pairs) <= FAN_POINTS
        else [pairs[round(i * (len(pairs) - 1) / (FAN_POINTS - 1))] for i in range(FAN_POINTS)]
    )
    return Curve(label, style, [x for x, _ in kept], [y for _, y in kept])


def flow_chart(
    configuration: Configuration, trial: Trial, flows: Sequence[tuple[str, Record]], bounds: Sequence[float]
) -> Chart:
    """Return one configuration's gradient flow; the band is that of the last measurement, those before it are outlined."""
    curves, bands = [], []
    for (label, flow), style in zip(flows, ("t0", "t1", "t2")[-len(flows) :], strict=True):
        low, high = flow_curve(flow, "low", label, style), flow_curve(flow, "high", label, style)
        if (low.points() or high.points()) and list(low.x) == list(high.x):  # a damaged line has a side cut short
            bands.append(Band(label, f"{style} {'certified' if style == 't2' else 'outline'}", low.x, low.y, high.y))
        curves.append(flow_curve(flow, "spectral", label, style))
    last_known = bool(bands) and "certified" in bands[-1].style
    seed = f" of the run with seed {trial.seed}" if len(configuration.trials) > 1 else ""
    note = (
        "Shaded: where the certificate of the last measurement proves the norm to lie." if last_known else "No certified band."
    )
    return Chart(
        configuration.label,
        "lag",
        curves=curves,
        bands=bands,
        guides=[Guide("", 1.0)],
        log=True,
        range=bounds,
        note=f"Spectral norm of ∂h(t)/∂h(t−lag){seed}. {note}",
    )


def margins(contest: Contest) -> Chart:
    """Return the spectral margin, how far a singular value of a recurrent weight is from 1 at most, by step."""
    lines = []
    for configuration in contest.configurations:
        line = average([margin_series(trial) for trial in configuration.trials])
        if line is not None:
            lines.append((configuration, line))
    return over_training("Spectral margin, max |σ − 1|", lines)


def margin_series(trial: Trial) -> Series:
    """Return the largest spectral margin of a run's weights by step, from either of the probes that measure it."""
    result: Series = []
    margins = [(probe, mapping(probe.get("margin"))) for probe in trial.probes("spectrum")]
    margins += [(probe, mapping(probe["value"])) for probe in trial.probes("margin")]
    for probe, own in margins:
        values = [value for value in map(finite, own.values()) if value is not None]
        if values:
            result.append((float(probe["step"]), max(values)))
    return sorted(dict(result).items())


def singular_values(contest: Contest) -> Iterator[list[Chart]]:
    """Yield for each configuration a fan of singular values by step for each recurrent weight, of one of its runs."""
    for configuration in contest.configurations:
        trial = next((trial for trial in configuration.trials if trial.probes("spectrum")), None)
        if trial is None:
            continue
        names = list(dict.fromkeys(str(name) for probe in trial.probes("spectrum") for name in mapping(probe["value"])))
        charts = [fan(configuration, trial, name) for name in names]
        yield [chart for chart in charts if chart.curves]


def fan(configuration: Configuration, trial: Trial, name: str) -> Chart:
    """Return quantiles of one weight's singular values by step."""
    rows: list[tuple[float, list[float]]] = []
    for probe in trial.probes("spectrum"):
        values = sorted(value for value in numbers(mapping(probe["value"]).get(name)) if value is not None)
        if values:
            rows.append((float(probe["step"]), values))
    if len(rows) > FAN_POINTS:
        rows = [rows[round(i * (len(rows) - 1) / (FAN_POINTS - 1))] for i in range(FAN_POINTS)]
    if not rows:
        return Chart(name, "step")
    x = [step for step, _ in rows]
    at = {q: [quantile(values, q) for _, values in rows] for q in (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)}
    style = configuration.style
    bands = [Band("", f"{style} fan", x, at[low], at[high]) for low, high in FAN]
    curves = [Curve(label, f"{style} {kind}", x, at[q]) for label, q, kind in FAN_LINES]
    title = f"{configuration.label}: {name}"
    shown = [*at[0.0], *at[1.0], 1.0]
    seed = f", seed {trial.seed}" if len(configuration.trials) > 1 else ""
    note = f"{len(rows[-1][1])} singular values{seed}; shades: all, 10–90 %, 25–75 %."
    return Chart(
        title, "step", curves, bands, [Guide("", 1.0)], range=shown, note=note, legend=[(style, "median, least, largest")]
    )


FAN_LINES = (("largest", 1.0, "thin"), ("median", 0.5, ""), ("least", 0.0, "thin"))


def quantile(values: Sequence[float], share: float) -> float:
    """Return the value below which a share of some sorted values lies, between neighbours where it falls between."""
    place = share * (len(values) - 1)
    below = int(place)
    above = min(below + 1, len(values) - 1)
    return values[below] + (place - below) * (values[above] - values[below])


def contraction(contest: Contest) -> Chart:
    """Return the certified contraction by step; below 1 the network is proven to forget."""
    lines = []
    for configuration in contest.configurations:
        several = [
            [
                (float(p["step"]), v)
                for p in trial.probes("certificate")
                if (v := finite(p["value"].get("contraction"))) is not None
            ]
            for trial in configuration.trials
        ]
        line = average([sorted(dict(series).items()) for series in several])
        if line is not None:
            lines.append((configuration, line))
    return over_training("Certified contraction", lines, [Guide("no contraction from 1 up", 1.0)] if lines else [])


def numbers(value: Any) -> list[float | None]:
    """Return the entries of a JSON list, None for what is no finite number; nothing for what is no list."""
    return [finite(entry) for entry in value] if isinstance(value, list) else []
