"""Run folders made up by hand, that look like those of training."""

import json
import math
import random
from pathlib import Path
from typing import Any

ENVIRONMENT = {"python": "3.11.7", "torch": "2.13.0", "platform": "Linux", "threads": 1, "packages": {"numpy": "2.2.6"}}
FACTS = {"metric": "mse", "higher_is_better": False, "baselines": {"loss": 1 / 6, "mse": 1 / 6}, "parameters": 6400}
PROBED = ("spectrum", "gradient-flow", "certificate")


def write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=1), encoding="utf-8")


def config(
    task: str = "addition", model: str = "spectral", seed: int = 0, *, length: int = 100, width: int = 64
) -> dict[str, Any]:
    return {
        "format": 1,
        "task": {"name": task, "seed": 0, "length": length, "validation": 1000, "test": 1000},
        "model": {"name": model, "width": width, "reflectors": 16 if model == "spectral" else None},
        "train": {
            "steps": 2000,
            "batch_size": 128,
            "seed": seed,
            "optimizer": {"name": "adam", "lr": 0.01 if model == "spectral" else 0.001},
            "probe": {"every": 200, "names": [*PROBED]},
        },
        "command": ["steadyrnn", "train", task, "--model", model, "--seed", str(seed)],
    }


def records(
    model: str = "spectral", seed: int = 0, steps: int = 2000, every: int = 20, probe_every: int = 200, width: int = 64
) -> list[dict[str, Any]]:
    """Return lines of metrics: the spectral network learns, the others stay near the baseline."""
    noise = random.Random(f"{model} {seed}")
    rate = {"spectral": 0.004, "lstm": 0.0009}.get(model, 0.00002)
    lines: list[dict[str, Any]] = []
    for step in range(every, steps + 1, every):
        loss = (1 / 6) * math.exp(-rate * step) * math.exp(noise.gauss(0, 0.12)) + 2e-4
        both = {"step": step, "epoch": step / 1000, "time": step * 0.011}
        train = {"loss": loss, "lr": 0.001, "gradient_norm": 0.3 * math.exp(noise.gauss(0, 0.5))}
        lines.append({"kind": "train", **both, **train, "examples_per_second": 11000.0, "mse": loss})
        if step % (5 * every) == 0:
            score = loss * math.exp(noise.gauss(0, 0.05))
            lines.append({"kind": "validation", **both, "loss": score, "mse": score})
        if probe_every and step % probe_every == 0:
            lines += probes(model, step, steps, noise, width)
    return lines


def probes(model: str, step: int, steps: int, noise: random.Random, width: int = 64) -> list[dict[str, Any]]:
    """Return the three measurements of one moment."""
    done = step / steps
    wide = 0.02 if model == "spectral" else 0.25 + 0.6 * done
    names = ["weight_hh_l0.i", "weight_hh_l0.f"] if model == "lstm" else ["weight_hh_l0"]
    spectra = {name: sorted((1 + wide * noise.uniform(-1, 1) for _ in range(width)), reverse=True) for name in names}
    margin = {name: max(abs(value - 1) for value in values) for name, values in spectra.items()}
    top = max(max(values) for values in spectra.values())
    lag = list(range(101))
    fall = {"spectral": 0.997, "lstm": 0.93 + 0.05 * done}.get(model, 0.82 + 0.05 * done)
    known = model != "lstm"
    flow = {
        "lag": lag,
        "spectral": [fall**k for k in lag],
        "frobenius": [8 * fall**k for k in lag],
        "low": [(2 - top) ** k if model == "spectral" else 0.0 for k in lag] if known else [None] * 101,
        "high": [top**k for k in lag] if known else [None] * 101,
    }
    proven = {"contraction": top if known else None, "stable": False, "regime": "may explode" if known else "unknown"}
    return [
        {"kind": "probe", "name": "spectrum", "step": step, "value": spectra, "margin": margin},
        {"kind": "probe", "name": "gradient-flow", "step": step, "value": flow},
        {"kind": "probe", "name": "certificate", "step": step, "value": proven},
    ]


def certificate(contraction: float | str = 0.93, stable: bool = True) -> dict[str, Any]:
    under = ["every admissible input", "initial state zero or the learned one", "2-norm of every input at most 1.5"]
    claims = [
        ("l0: contraction, spectral norm", contraction, "2-norm", "MATH 5.1"),
        ("l0: contraction, diagonal scaling", contraction, "weighted 2-norm", "MATH 5.2"),
        ("l0: bound on states", 14.3 if stable else "inf", "2-norm", "MATH 4.1, 4.2"),
    ]
    return {
        "certificate": {
            "format": "steadyrnn certificate 1",
            "module": "SequenceModel",
            "valid_for": "every admissible input",
            "input_bound": 1.5,
            "digest": "846b32563bf5f293feb26df7d1ddbc1bba383572366c496e2fe3a88cfb8dd27c",
            "contraction": contraction,
            "stable": stable,
            "regime": "vanishes" if stable else "may explode",
            "claims": [
                dict(zip(("name", "value", "norm", "theorem"), c, strict=True)) | {"assumptions": under} for c in claims
            ],
            "norms": [],
        },
        "reason": None,
        "step": 1800,
        "checkpoint": "best",
    }


def end(lines: list[dict[str, Any]], reason: str = "finished") -> list[dict[str, Any]]:
    """Return the lines of a whole run: a test with the best weights, and the end."""
    last = lines[-1]["step"]
    score = min(line["mse"] for line in lines if line["kind"] == "validation")
    test = {"kind": "test", "step": last, "epoch": last / 1000, "time": last * 0.012, "loss": score, "mse": score}
    return [*lines, {**test, "checkpoint": "best"}, {"kind": "end", "step": last, "reason": reason}]


def write_run(
    root: Path,
    task: str = "addition",
    model: str = "spectral",
    seed: int = 0,
    *,
    settings: dict[str, Any] | None = None,
    lines: list[dict[str, Any]] | None = None,
    proof: dict[str, Any] | None = None,
    facts: dict[str, Any] | None = None,
) -> Path:
    """Write a whole run; what is given replaces what is made up."""
    folder = root / task / model / f"20260101T00000{seed}-abcd"
    (folder / "checkpoints").mkdir(parents=True)
    write_json(folder / "config.json", settings or config(task, model, seed))
    text = "".join(json.dumps(line) + "\n" for line in (end(records(model, seed)) if lines is None else lines))
    (folder / "metrics.jsonl").write_text(text, encoding="utf-8")
    write_json(folder / "environment.json", ENVIRONMENT)
    write_json(folder / "facts.json", FACTS if facts is None else facts)
    if proof is None:
        proof = certificate() if model == "spectral" else certificate(1.42, stable=False)
    if model == "lstm":
        proof = {"certificate": None, "reason": "an LSTM needs `input_bound`", "step": 1800, "checkpoint": "best"}
    write_json(folder / "certificate.json", proof)
    return folder


def write_comparison(root: Path, seeds: int) -> None:
    """Write runs of three models on one task, and a shorter one on another."""
    for model in ("spectral", "rnn", "lstm"):
        for seed in range(seeds):
            write_run(root, "addition", model, seed)
    write_run(root, "copy", "spectral", lines=records("spectral")[:60])
