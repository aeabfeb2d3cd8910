"""The page: one file that needs nothing else, says what is missing, and lets nothing through unescaped."""

import json
import re
import shlex
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from steadyrnn.errors import RunError
from steadyrnn.report.page import write_report

from .folders import certificate, config, end, records, write_comparison, write_run

VOID = {"meta", "link", "br", "path", "circle", "rect", "line", "img"}
COMMAND = ["steadyrnn", "report", "runs", "--out", "a b.html"]


class Structure(HTMLParser):
    """Checks that elements nest, and collects what a test asks for."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]

    def charts(self) -> list[str]:
        return [str(svg["aria-label"]) for svg in self.all("svg") if svg.get("class") == "chart"]


def parse(path: Path) -> Structure:
    structure = Structure()
    structure.feed(path.read_text(encoding="utf-8"))
    structure.close()
    assert structure.open == []
    return structure


def report(root: Path, **options: Any) -> Structure:
    return parse(write_report([root], root / "out" / "report.html", **options))


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("runs")
    write_comparison(root, seeds=3)
    return root


@pytest.fixture(scope="module")
def page(runs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report([runs], tmp_path_factory.mktemp("out") / "report.html", command=COMMAND)


def test_nothing_is_asked_of_the_network(page: Path) -> None:
    structure = parse(page)
    targets = [
        value for _, attributes in structure.tags for key, value in attributes.items() if key in ("src", "href", "srcset")
    ]
    assert all(target and (target.startswith("#") or target == "data:,") for target in targets)
    source = page.read_text(encoding="utf-8")
    assert not re.search(r"https?://|url\(|@import|<script", source)
    policy = next(meta["content"] for meta in structure.all("meta") if meta.get("http-equiv") == "Content-Security-Policy")
    assert policy == "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def test_measurements_of_one_number_have_a_picture_each(tmp_path: Path) -> None:
    more: list[dict[str, Any]] = []
    for step in (0, 200, 400):
        values = {
            "gradient-h0": {"mean": 10.0 ** (-step / 100), "shared": 1e-3},
            "dead-units": {"dead": step / 1000, "inactive": 0.5},
            "state-jacobian": {"mean": 8.0, "lag": 99, "batches": [8.0, 8.0]},
            "margin": {"weight_hh_l0": 0.75},
        }
        more += [{"kind": "probe", "name": name, "step": step, "value": value} for name, value in values.items()]
    more.append({"kind": "probe", "name": "dead-units", "step": 600, "value": {}, "reason": "units with gates"})
    write_run(tmp_path / "runs", lines=[*records(probe_every=0), *more])
    structure = parse(write_report([tmp_path / "runs"], tmp_path / "page.html"))
    assert [label.split(" by step")[0] for label in structure.charts()][3:] == [
        "Gradient of the loss by the initial state, mean norm of a row",
        "Share of dead units",
        "Frobenius norm of ∂s(T)/∂s(1), mean of the batches",
        "Spectral margin, max |σ − 1|",
    ]
    assert "0.75" in structure.text


def test_every_picture_is_there_in_words_and_in_numbers(page: Path) -> None:
    structure = parse(page)
    addition = [label.split(" by ")[0] for label in structure.charts()][:12]
    assert addition == [
        *("Training loss", "Validation mse (the loss)", "Norm of the gradient", "lstm", "rnn", "spectral"),
        *("Spectral margin, max |σ − 1|", "Certified contraction"),
        *("lstm: weight_hh_l0.i", "rnn: weight_hh_l0", "spectral: weight_hh_l0", "lstm: weight_hh_l0.f"),
    ]
    assert len(structure.all("figure")) == len(structure.charts())
    assert structure.text.count("Numbers") == len(structure.charts())


def test_seeds_have_a_band_and_a_spread(page: Path) -> None:
    structure = parse(page)
    bands = [path for path in structure.all("path") if str(path.get("class", "")).startswith("band c")]
    assert len(bands) >= 3 * 3
    assert "over 3 seeds; the best constant answer gets 0.1667" in structure.text
    assert structure.text.count(" ± ") >= 6


def test_the_certified_band_is_drawn_where_there_is_one(page: Path) -> None:
    structure = parse(page)
    certified = [path for path in structure.all("path") if "certified" in str(path.get("class"))]
    assert len(certified) == 3  # rnn and spectral on addition, spectral on copy; the lstm has none
    assert "No certified band." in structure.text


def test_commands_environment_and_differences_are_shown(page: Path) -> None:
    text = parse(page).text
    assert shlex.join(COMMAND) in text
    assert "steadyrnn train addition --model lstm --seed 2" in text
    assert "train.optimizer.lr" in text
    assert "packages.numpy" in text


def test_a_run_that_has_not_ended_is_marked(page: Path) -> None:
    text = parse(page).text
    assert "unfinished" in text
    assert "the run goes on, or was cut off" in text


def test_the_page_is_small(page: Path) -> None:
    assert page.stat().st_size < 600_000


def test_ten_different_runs_with_long_series_stay_below_a_megabyte(tmp_path: Path) -> None:
    for number in range(10):
        settings = config(model="rnn", width=32 + number)
        lines = end(records("rnn", number, steps=5000, every=2, probe_every=50, width=32))
        write_run(tmp_path, model="rnn", seed=number, settings=settings, lines=lines)
    path = write_report([tmp_path], tmp_path / "report.html")
    assert path.stat().st_size < 1_000_000


def test_the_same_runs_give_the_same_bytes(runs: Path, page: Path, tmp_path: Path) -> None:
    again = write_report([runs / "copy", runs / "addition"], tmp_path / "again.html", command=COMMAND)
    assert again.read_bytes() == page.read_bytes()


EVIL = "<script>alert(1)</script>\"'&{{ 7*7 }}"


def test_everything_from_files_stays_text(tmp_path: Path) -> None:
    settings = config()
    settings["task"] |= {"name": EVIL, EVIL: EVIL}
    settings["model"] |= {"name": EVIL, EVIL: EVIL}
    settings["command"] = [EVIL]
    proof = certificate()
    proof["certificate"] |= {"module": EVIL, "regime": EVIL, "digest": EVIL}
    proof["certificate"]["claims"][0] |= {"name": EVIL, "value": EVIL, "theorem": EVIL, "assumptions": [EVIL]}
    lines = records(steps=400)
    for line in lines:
        if line.get("name") == "spectrum":
            line["value"] = {EVIL: next(iter(line["value"].values()))}
        if "mse" in line:
            line[EVIL] = line.pop("mse")
    lines.append({"kind": "end", "step": 400, "reason": EVIL})
    folder = write_run(tmp_path, settings=settings, proof=proof, lines=lines, facts={"metric": EVIL, "baselines": {EVIL: 0.1}})
    (folder / "environment.json").write_text(json.dumps({EVIL: EVIL}), encoding="utf-8")
    structure = report(tmp_path, command=[EVIL], title=EVIL)
    assert structure.all("script") == []
    assert structure.text.count("{{ 7*7 }}") == structure.text.count("<script>alert(1)</script>") > 10  # commands are quoted


def test_a_run_without_anything_but_a_configuration_is_shown_as_such(tmp_path: Path) -> None:
    folder = write_run(tmp_path)
    for name in ("metrics.jsonl", "certificate.json", "environment.json", "facts.json"):
        (folder / name).unlink()
    text = report(tmp_path).text
    for words in (
        "No run has a loss on validation or test data yet.",
        "Nothing was recorded.",
        "No run measured its gradient flow",
        "No run measured its singular values",
        "No certificate was written.",
        "no metrics were recorded yet",
        "The environment was not recorded.",
    ):
        assert words in text


def mangled(change: Any) -> list[dict[str, Any]]:
    """Return a run's lines after a change to each."""
    lines = end(records("rnn", steps=400))
    for line in lines:
        change(line)
    return lines


def nulls(line: dict[str, Any]) -> None:
    for key in line.keys() - {"kind", "step", "name", "reason"}:
        line[key] = None


def nulls_inside(line: dict[str, Any]) -> None:
    if line["kind"] == "probe":
        value = line["value"]
        line["value"] = {key: [None] * len(v) if isinstance(v, list) else None for key, v in value.items()}
        line["margin"] = dict.fromkeys(line.get("margin", {}))


def wrong_types(line: dict[str, Any]) -> None:
    for key in line.keys() - {"kind", "step"}:
        line[key] = {"epoch": "x", "value": [1, 2], "margin": 3, "name": 4}.get(key, [{}])


def wrong_values(line: dict[str, Any]) -> None:
    if line["kind"] == "probe":
        line["value"] = {key: {"a": 1} if i % 2 else "text" for i, key in enumerate(line["value"])}


def one_value(line: dict[str, Any]) -> None:
    if line["kind"] == "probe":
        line["value"] = {key: v[:1] if isinstance(v, list) else v for key, v in line["value"].items()}


def extreme(line: dict[str, Any]) -> None:
    for key in ("loss", "mse", "gradient_norm"):
        if key in line:
            line[key] = [1e308, -1e308, 5e-324, 0.0][line["step"] % 80 // 20]
    if line.get("name") == "gradient-flow":
        line["value"] |= {"spectral": [1e300**0.5] * 101, "high": [1e308] * 101, "low": [0.0] * 101}
    if line.get("name") == "certificate":
        line["value"]["contraction"] = 1e308


def constant(line: dict[str, Any]) -> None:
    line |= {key: 0.0 for key in ("loss", "mse", "gradient_norm") if key in line}


@pytest.mark.parametrize("change", [nulls, nulls_inside, wrong_types, wrong_values, one_value, extreme, constant])
def test_strange_numbers_do_not_break_the_page(tmp_path: Path, change: Any) -> None:
    for seed in range(2):
        write_run(tmp_path, model="rnn", seed=seed, settings=config(model="rnn", seed=seed), lines=mangled(change))
    structure = report(tmp_path)
    assert "rnn" in structure.text
    drawn = [str(path.get("d")) for path in structure.all("path")]
    assert not [d for d in drawn if "nan" in d or "inf" in d or "e" in d]


@pytest.mark.parametrize(
    "proof", [[], {}, {"certificate": []}, {"certificate": {"claims": 3}}, {"certificate": {"claims": [3, {}]}}]
)
def test_a_strange_certificate_does_not_break_the_page(tmp_path: Path, proof: Any) -> None:
    folder = write_run(tmp_path, lines=end(records(steps=200)))
    (folder / "certificate.json").write_text(json.dumps(proof), encoding="utf-8")
    assert "Certificates" in report(tmp_path).text


def test_a_point_alone_is_a_dot(tmp_path: Path) -> None:
    write_run(tmp_path, lines=[{"kind": "train", "step": 1, "epoch": 0.0, "time": 0.1, "loss": 0.5}])
    assert [path for path in report(tmp_path).all("path") if "dot" in str(path.get("class")).split()]


def test_the_title_and_the_tasks_name_the_page(runs: Path, tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    assert "<title>addition · copy · steadyrnn report</title>" in write_report([runs], out).read_text(encoding="utf-8")
    assert "<h1>Mine</h1>" in write_report([runs], out, title="Mine").read_text(encoding="utf-8")


def test_an_older_report_is_replaced_and_nothing_else_is_left(runs: Path, tmp_path: Path) -> None:
    out = tmp_path / "new" / "report.html"
    write_report([runs / "copy"], out)
    write_report([runs / "copy"], out, title="Second")
    assert "Second" in out.read_text(encoding="utf-8")
    assert [path.name for path in out.parent.iterdir()] == ["report.html"]


def test_a_report_that_cannot_be_made_leaves_the_older_one(runs: Path, tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    out.write_text("older", encoding="utf-8")
    with pytest.raises(RunError):
        write_report([tmp_path / "nothing"], out)
    assert out.read_text(encoding="utf-8") == "older"


def test_without_jinja2_the_error_says_how_to_get_it(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(RunError, match=r"pip install steadyrnn\[report\]"):
        write_report([runs], tmp_path / "report.html")


def test_a_run_that_cannot_be_read_is_left_out_and_named(tmp_path: Path) -> None:
    write_run(tmp_path)
    broken = write_run(tmp_path, model="rnn")
    (broken / "config.json").write_text("{", encoding="utf-8")
    page = report(tmp_path)
    assert "1 run " in page.text
    assert "Left out" in page.text
    assert broken.name in page.text
