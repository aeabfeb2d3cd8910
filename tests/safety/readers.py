"""Every reader of a file that may come from somebody else, as a function of its bytes; a new one is a line in a table."""

import gzip
import io
import json
import os
import shutil
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save

from steadyrnn.certificates.certify import certify
from steadyrnn.cli.train_arguments import read as read_arguments
from steadyrnn.cli.train_arguments import train_parser
from steadyrnn.engines.calibration_table import parse_table
from steadyrnn.jobs.certify import recheck_trained
from steadyrnn.jobs.loading import find_input_bound, load_trained
from steadyrnn.jobs.result_file import parse_result
from steadyrnn.jobs.search.folder import SweepFolder, read_record, write_record
from steadyrnn.jobs.search.folder import TrialRecord as Trial
from steadyrnn.jobs.search.journal import JOURNAL, quiet_optuna
from steadyrnn.jobs.search.plan import Range, SweepPlan
from steadyrnn.jobs.search.plan_file import SweepFile, make_plan
from steadyrnn.jobs.search.study import Studies
from steadyrnn.jobs.settings_file import parse_settings
from steadyrnn.jobs.weights_file import load_layer
from steadyrnn.layers.lstm import LSTM
from steadyrnn.models.description import describe_model, rebuild_model
from steadyrnn.models.sequence import SequenceModel
from steadyrnn.report.page import write_report
from steadyrnn.runs.folder import Run
from steadyrnn.runs.json_text import parse_file
from steadyrnn.runs.layout import find_runs
from steadyrnn.runs.lock import Lock
from steadyrnn.runs.owner import Owner
from steadyrnn.runs.source_commit import read_commit
from steadyrnn.tasks.arff import read_arff, read_label_names
from steadyrnn.tasks.idx import gunzip, read_idx
from steadyrnn.tasks.repository_file import read_repository, read_split
from steadyrnn.tasks.series_file import read_series
from steadyrnn.tasks.vocabulary import Vocabulary, read_words
from tests.safety.run_folders import make_run

WHERE = Path("given.file")
ARFF = b"@relation r\n@attribute x numeric\n@attribute 'a tag' {0,1}\n@attribute y real\n@data\n{0 2.5, 1 1}\n1,0,2.5\n%\n{}\n"
IDX = bytes([0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 2, 0, 0, 0, 3]) + bytes(range(12))
REPOSITORY = b"3 4 2\n0,1 0:0.5 2:1\n 1:2\n1 3:-1e-3 0:7\n"
YAML = b"""task: &t {name: addition, length: 10}
model: {name: spectral, width: 8}
train:
  steps: 6
  optimizer: {lr: 1.0e-3, betas: [0.9, 0.999]}
  probe: {every: 0, names: [spectrum]}
"""
TABLE = json.dumps({
    "format": 1, "device": "a", "made": [{"command": "steadyrnn bench", "date": "2026"}],
    "rows": [{"cell": "lstm", "dtype": "float32", "n": 64, "B": 1, "rank": 8, "forward": {"a": 1.5}, "training": {"a": 2}}],
}).encode()  # fmt: skip

MODEL = SequenceModel(LSTM(2, 3, 2, transition={"i": "spectral", "g": "exp-lie"}, bias="single"), 4, vocab_size=5)

RESULT = json.dumps({
    "format": 1, "config": {"cells": {"a": {"function": "f", "arguments": {}, "seed": 0}}}, "cells": {"a": {"x": 1.5}},
    "made": {"date": "2026-01-01", "command": ["steadyrnn"], "environment": {}, "seconds": {"a": 1}, "resumed_in": [{}]},
}).encode()  # fmt: skip


@dataclass(frozen=True)
class Reader:
    """A reader: what it takes when all is well, and the call."""

    valid: bytes
    read: Callable[[bytes], Any]


class Folders:
    """A run folder of which one file at a time is replaced."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.run = make_run(root / "runs")
        self.weights = root / "weights.safetensors"

    def file(self, name: str) -> Path:
        return next(self.run.glob(name))

    def reader(self, name: str, read: Callable[[Path], Any]) -> Reader:
        path = self.file(name)
        valid = path.read_bytes()

        def with_file(data: bytes) -> Any:
            path.write_bytes(data)
            try:
                return read(self.run)
            finally:
                path.write_bytes(valid)

        return Reader(valid, with_file)

    def weights_file(self, data: bytes) -> Any:
        self.weights.write_bytes(data)
        return load_layer(self.weights)

    def commit(self, data: bytes) -> Any:
        folder = self.root / "tree" / ".git"
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("HEAD", "packed-refs"):
            (folder / name).write_bytes(data)
        return read_commit(folder.parent)

    def lock(self, data: bytes) -> Any:
        path = self.root / "lock"
        path.write_bytes(data)
        Lock(path).release()
        return Owner.from_bytes(data)

    def report(self, run: Path) -> Any:
        return write_report([run], self.root / "page.html")

    def copy_of(self, run: Path) -> Path:
        copy = self.root / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        return Path(shutil.copytree(run, copy))


class Sweeps:
    """The folder of a sweep of which one file at a time is replaced."""

    plan = SweepPlan("addition", ("gru",), (0,), search={"train.optimizer.lr": Range(0.001, 0.1)}, trials=2)

    def __init__(self, root: Path) -> None:
        self.folder = root / "sweep"
        self.folder.mkdir()
        SweepFolder.create(self.folder, self.plan, None, b"", {"label": "addition", "higher": False}).close()
        record = Trial(0, "gru", {"train.optimizer.lr": 0.01}, "finished", 0.5, {"0": 0.5}, "", 1.5)
        write_record(self.folder, record)
        with quiet_optuna():
            studies = Studies(self.folder, self.plan, higher=False)
            studies.tell(studies.ask(self.plan.entries()[0]), record)

    def reader(self, name: str, read: Callable[[], Any]) -> Reader:
        path = self.folder / name
        valid = path.read_bytes()

        def with_file(data: bytes) -> Any:
            path.write_bytes(data)
            try:
                with quiet_optuna():
                    return read()
            finally:
                path.write_bytes(valid)

        return Reader(valid, with_file)

    def opened(self) -> Any:
        return SweepFolder.open(self.folder).plan.entries()

    def trial(self) -> Any:
        return read_record(self.folder)

    def journal(self) -> Any:
        return Studies(self.folder, self.plan, higher=False).known()


SWEEP = b"""task: addition
models: [gru, spectral]
seeds: 0..2
settings: {train: {steps: 3}}
grid: {model.width: [8, 16]}
search: {train.optimizer.lr: {low: 1.0e-3, high: 0.1, log: true}}
trials: 2
"""


def everything(run: Path) -> Any:
    """Read a run as every command that only reads does, but its weights."""
    held = Run.open(find_runs([run])[0])
    return held.metrics(), held.environment(), held.checkpoints()


@cache
def proof(module: torch.nn.Module, bound: object, effort: object) -> Any:
    """Certify; what is proven does not depend on the damaged file, except for the two arguments."""
    return certify(module, bound, effort=effort)


class Certificates:
    """A run whose certificate alone is damaged: its weights are loaded once, and what is proven of them is proven once."""

    def __init__(self, run: Path) -> None:
        self.trained = load_trained(run)

    def bounds(self, run: Path) -> Any:
        """Certify a run with the bound that its certificate notes."""
        bound, source = find_input_bound(None, self.trained)
        return proof(self.trained.model, bound, "fast"), source

    def rechecked(self, run: Path) -> Any:
        """Prove a stored certificate anew."""
        with pytest.MonkeyPatch.context() as patch, redirect_stdout(io.StringIO()):
            patch.setattr("steadyrnn.certificates.certify.certify", self.certify)
            return recheck_trained(self.trained)

    @staticmethod
    def certify(module: torch.nn.Module, bound: Any = None, *, effort: Any = "auto") -> Any:
        try:
            return proof(module, bound, effort)
        except TypeError:  # a list cannot be looked up
            return certify(module, bound, effort=effort)


parser_of = cache(train_parser)  # resuming does not change it, and making one takes as long as all the rest


def resumed(run: Path) -> Any:
    """Read the settings of a run to resume; the parser complains by leaving."""
    said = io.StringIO()
    try:
        with redirect_stderr(said), pytest.MonkeyPatch.context() as patch:
            patch.setattr("steadyrnn.cli.train_arguments.train_parser", parser_of)
            return read_arguments(["--resume", os.fspath(run)])
    except SystemExit:
        words = said.getvalue()
    assert 0 < len(words) <= 2_000 + len(" ...\n")
    assert "Traceback" not in words
    return None


def text(data: bytes) -> Any:
    words = read_words(data, WHERE)
    return Vocabulary(words).tokens(words, WHERE)


def make_readers(root: Path) -> dict[str, Reader]:
    """Return every reader by name."""
    folders, sweeps = Folders(root), Sweeps(root)
    certificates = Certificates(folders.run)
    layer = torch.nn.GRU(3, 4)
    weights = save({f"rnn.{name}": tensor.detach().contiguous() for name, tensor in layer.state_dict().items()})
    return {
        "config.json": folders.reader("config.json", everything),
        "config.json of a model": folders.reader("config.json", load_trained),
        "config.json to resume": folders.reader("config.json", resumed),
        "config.json in a report": folders.reader("config.json", folders.report),
        "metrics.jsonl": folders.reader("metrics.jsonl", everything),
        "metrics.jsonl in a report": folders.reader("metrics.jsonl", folders.report),
        "environment.json": folders.reader("environment.json", everything),
        "environment.json in a report": folders.reader("environment.json", folders.report),
        "facts.json": folders.reader("facts.json", load_trained),
        "facts.json in a report": folders.reader("facts.json", folders.report),
        "certificate.json": folders.reader("certificate.json", certificates.bounds),
        "certificate.json again": folders.reader("certificate.json", certificates.rechecked),
        "certificate.json in a report": folders.reader("certificate.json", folders.report),
        "checkpoint.json": folders.reader("checkpoints/best/checkpoint.json", load_trained),
        "tensors": folders.reader("checkpoints/best/tensors-*", load_trained),
        "lock": Reader(Owner.me().to_bytes(), folders.lock),
        "weights file": Reader(weights, folders.weights_file),
        "git": Reader(b"ref: refs/heads/main\n" + b"0" * 40 + b" refs/heads/main\n", folders.commit),
        "description": Reader(
            json.dumps(describe_model(MODEL)).encode(), lambda data: rebuild_model(parse_file(data, WHERE), MODEL.state_dict())
        ),
        "settings": Reader(YAML, lambda data: parse_settings(data, WHERE)),
        "calibration": Reader(TABLE, lambda data: parse_table(data, "a", "the file")),
        "result": Reader(RESULT, lambda data: parse_result(data, WHERE)),
        "arff": Reader(ARFF, lambda data: read_arff(data, WHERE, ["a tag"])),
        "label names": Reader(b'<labels><label name="a &amp; &#98;"/></labels>', lambda data: read_label_names(data, WHERE)),
        "idx": Reader(IDX, lambda data: read_idx(data, WHERE, (None, 2, 3))),
        "gzip": Reader(gzip.compress(IDX, mtime=0), lambda data: read_idx(gunzip(data, WHERE), WHERE, (None, 2, 3))),
        "ucr": Reader(b"-1\t0.5\t2\n1\t-1e3\t7\n", lambda data: read_series(data, WHERE, 2, 2, (-1, 1))),
        "repository": Reader(REPOSITORY, lambda data: read_repository(data, WHERE, (3, 4, 2))),
        "split": Reader(b"3 1\n1 2\n", lambda data: read_split(data, WHERE, 3, 0)),
        "sweep file": Reader(SWEEP, lambda data: make_plan(SweepFile(WHERE, data)).entries()),
        "sweep.json": sweeps.reader("sweep.json", sweeps.opened),
        "trial.json": sweeps.reader("trial.json", sweeps.trial),
        "journal": sweeps.reader(JOURNAL, sweeps.journal),
        "text": Reader(b" the cat \n\n sat <unk>\n", text),
    }


NAMES = (
    *("config.json", "config.json of a model", "config.json to resume", "config.json in a report", "metrics.jsonl"),
    *("metrics.jsonl in a report", "environment.json", "environment.json in a report", "facts.json", "facts.json in a report"),
    *("certificate.json", "certificate.json again", "certificate.json in a report", "checkpoint.json", "tensors", "lock"),
    *("weights file", "git", "description", "settings", "calibration", "result", "arff", "label names", "idx", "gzip", "ucr"),
    *("repository", "split", "sweep file", "sweep.json", "trial.json", "journal", "text"),
)
