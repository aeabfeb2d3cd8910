"""The published numbers agree with a second transcription, with what is quoted beside them, and with what their notes say."""

import math
import re
import subprocess
import sys
from pathlib import Path

import pytest

from steadyrnn.errors import ArgumentError
from steadyrnn.experiments.published import emami, lin, miller, zhang
from steadyrnn.experiments.published.base import Published, listed, tabulated
from steadyrnn.tasks.reshape import features_per_step
from steadyrnn.tasks.ucr_sets import UCR_SETS
from tests.experiments import printed_tables

PAPERS = {"emami": emami, "zhang": zhang, "lin": lin, "miller": miller}
ENTRIES = [(paper, key) for paper, module in PAPERS.items() for key in module.VALUES]
TABLES = [
    name for name in vars(printed_tables) if name not in {"ZHANG_1", "LIN_1", "LIN_6"} and re.fullmatch(r"[A-Z]+_\d", name)
]
QUOTED = re.compile(r'"([^"]+)"')
WORDS = {"two": "2", "(1/4)": "0.25", "9.3 x 10^{-10}": "9.3e-10", "10^{-5}": "1e-5", "a_9": "", "W_{65}": ""}


def value(paper: str, key: str) -> float:
    published: Published = PAPERS[paper].VALUES[key]
    return published.value


def rows(table: str) -> list[tuple[str, str]]:
    """Return label and text of the rows of a table of the second transcription."""
    text: str = getattr(printed_tables, table)
    return [(label, cells) for label, cells in (line.split(" | ") for line in text.strip().splitlines())]


def numbers(text: str) -> list[float]:
    return [float(number) for number in re.findall(r"\d+(?:\.\d+)?(?:e-\d+)?", text)]


def in_table(table: str) -> tuple[str, str]:
    """Return the paper of a table and how the places in it begin."""
    paper, number = table.lower().split("_")
    return paper, f"Table {number}, row "


@pytest.mark.parametrize("table", TABLES)
def test_a_second_transcription_has_the_same_numbers(table: str) -> None:
    paper, begin = in_table(table)
    found = [(one.place.removeprefix(begin), one.value) for one in PAPERS[paper].VALUES.values() if one.place.startswith(begin)]
    assert len(found) == sum(len(numbers(cells)) for _, cells in rows(table))
    for label, cells in rows(table):
        assert [number for place, number in found if place.split(", column ")[0] == label] == numbers(cells), label


def test_bounds_of_gradient_norms_have_the_same_numbers() -> None:
    for label, cells in rows("LIN_6"):
        keys = [f"table6/{activation}/{label.lower()}" for activation in ("abs", "relu", "leaky-relu")]
        assert [value("lin", key) for key in keys] == numbers(cells)
        assert all(lin.VALUES[key].place.startswith(f"Table 6, row {label}, column ") for key in keys)


def test_operation_counts_are_written_as_the_paper_writes_them() -> None:
    def coefficient(row: str, term: str) -> str:
        return f"{value('zhang', f'table1/{row}/{term}'):+g}"

    written = {
        "Hprod(h, u_k)": f"{coefficient('hprod', 'k')}k",
        "Hgrad(h, u_k, g)": f"{coefficient('hgrad', 'n')}n{coefficient('hgrad', 'k')}k",
    }
    for label, row in (("FP", "forward"), ("BP", "backward")):
        first, square = (coefficient(f"spectral-rnn-{row}", term) for term in ("nm", "mm"))
        written[f"Spectral-RNN-Local {label}(n, m_1, m_2)"] = f"{first}n(m_1+m_2){square}m_1^2{square}m_2^2"
        first, square = (coefficient(f"ornn-{row}", term) for term in ("nm", "mm"))
        written[f"oRNN-Local {label}(n, m)"] = f"{first}nm{square}m^2".replace("-1m", "-m")
    assert {label: f"+{cells}" for label, cells in rows("ZHANG_1")} == written
    assert {
        one.place.split(", row ")[1].split(", column ")[0] for key, one in zhang.VALUES.items() if key.startswith("table1/")
    } == {*written}


def test_regimes_have_the_same_cells() -> None:
    assert list(lin.REGIMES.values()) == printed_tables.LIN_1.split()
    sides = ("below-1", "equal-1", "above-1")
    assert list(lin.REGIMES) == [f"table1/{low}/{high}" for low in sides for high in sides]


@pytest.mark.parametrize(("paper", "key"), [(p, k) for p, k in ENTRIES if QUOTED.search(PAPERS[p].VALUES[k].place)])
def test_a_number_is_in_the_passage_that_is_quoted_for_it(paper: str, key: str) -> None:
    quoted = " ".join(QUOTED.findall(PAPERS[paper].VALUES[key].place))
    for word, number in WORDS.items():
        quoted = quoted.replace(word, number)
    found = numbers(quoted)
    if which := re.search(r", (first|second|last) number$|, number (\d+) of (\d+)$", PAPERS[paper].VALUES[key].place):
        name, i, count = which.groups()
        found = [found[{"first": 0, "second": 1, "last": -1}[name] if name else int(i) - 1 - int(count)]]
    assert abs(value(paper, key)) in found


@pytest.mark.parametrize("paper", PAPERS)
def test_every_number_is_finite_and_has_a_place_of_its_own(paper: str) -> None:
    values = PAPERS[paper].VALUES
    assert all(math.isfinite(one.value) for one in values.values())
    places = [one.place for one in values.values()]
    assert len(set(places)) == len(places)
    assert all(re.match(r"(Table|Section|Appendix|Caption|Main Results|Synthetic Data|Numerical)\b", place) for place in places)


@pytest.mark.parametrize("paper", PAPERS)
def test_every_key_has_a_pattern_that_says_what_it_is(paper: str) -> None:
    patterns = PAPERS[paper].PATTERNS
    used = []
    for key in PAPERS[paper].VALUES:
        fitting = [pattern for pattern in patterns if re.fullmatch(re.sub(r"<[\w-]+>", r"[\\w-]+", pattern), key)]
        fewest = min((pattern.count("<") for pattern in fitting), default=0)
        closest = [pattern for pattern in fitting if pattern.count("<") == fewest]
        assert len(closest) == 1, (key, closest)
        used += closest
    assert set(used) == set(patterns)
    assert all(patterns.values())


@pytest.mark.parametrize("paper", PAPERS)
def test_the_numbers_are_read_without_torch(paper: str) -> None:
    code = f"import sys, steadyrnn.experiments.published.{paper}; sys.exit('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


CONTRADICTIONS = [
    ("zhang", ["table2/spectral-rnn/accuracy", "section7.2/spectral-rnn/accuracy"], [97.7, 97.6]),
    ("lin", ["table9/bptt", "table6/bptt", "section5.3/bptt/1"], [50, 30, 30]),
    ("lin", ["table9/hidden", "table6/abs/hidden"], [200, 100]),
    ("miller", ["section7.2/unconstrained/test-perplexity", "figure2/rnn/test-perplexity"], [146.7, 146.7]),
    ("miller", ["section6.2/tanh/smoothness", "appendixA.3/tanh/smoothness"], [1, 2]),
    ("miller", ["appendixA.5/synthetic/weight/variance", "appendixA.5/synthetic/weight/deviation"], [0.5, 0.5]),
    ("zhang", ["section7.3/dropout/dropped", "section7.3/dropout/kept"], [80, 80]),
    ("zhang", ["appendixC/spectral-rnn-reflectors"], [8]),
    ("lin", ["table3/rnn/100/accuracy"], [0.936]),
    ("lin", ["table4/urnn/400/loss"], [0.10]),
    (
        "lin",
        [f"table7/{model}/35/{split}" for model in ("gru", "ugru") for split in ("validation", "test")],
        [100.8, 97.25, 101.76, 98.05],
    ),
]
"""Where a paper contradicts itself, prints what cannot be, or can be read in two ways: paper, keys, printed numbers."""


@pytest.mark.parametrize(("paper", "keys", "printed"), CONTRADICTIONS)
def test_contradictions_are_kept_as_printed_and_noted(paper: str, keys: list[str], printed: list[float]) -> None:
    assert [value(paper, key) for key in keys] == printed
    assert all(PAPERS[paper].VALUES[key].note for key in keys)


def test_an_impossible_loss_is_below_the_bound_in_its_note_and_no_other_is() -> None:
    def bound(model: str, length: int) -> float:
        return (1 - value("lin", f"table4/{model}/{length}/accuracy") / 100) * math.log(2)

    below = [
        (model, length)
        for model in ("rnn", "urnn")
        for length in (100, 200, 400)
        if value("lin", f"table4/{model}/{length}/loss") < bound(model, length)
    ]
    assert below == [("urnn", 400)]
    assert f"= {bound('urnn', 400):.3f}" in lin.VALUES["table4/urnn/400/loss"].note


def test_predicted_gradient_norms_are_what_their_note_says() -> None:
    units, steps = value("lin", "table6/leaky-relu/hidden"), value("lin", "table6/bptt")
    slope, note = value("lin", "table5/leaky-relu/slope"), lin.VALUES["table6/leaky-relu/lower"].note
    assert value("lin", "table6/leaky-relu/lower") == pytest.approx(slope**steps, rel=5e-3)
    assert value("lin", "table6/leaky-relu/upper") == round(math.sqrt(units), 2)
    assert value("lin", "table6/abs/upper") == math.sqrt(value("lin", "table6/abs/hidden"))
    for power in (steps, steps - 1):
        assert f"{math.sqrt(units) * slope**power:.2e}".replace("e-0", "e-") in note


def test_sets_of_the_archive_are_as_printed_except_where_a_note_says_so() -> None:
    for name, known in UCR_SETS.items():
        sizes = dict(zip(("train", "test"), known.counts(), strict=True)) | {
            "length": known.length,
            "classes": len(known.labels),
        }
        for column, size in sizes.items():
            one = zhang.VALUES[f"table4/{name}/{column}"]
            assert one.value == size or f"{size} series" in one.note, (name, column)
        assert zhang.VALUES[f"table4/{name}/depth"].place.startswith(f"Table 4, row {known.paper.replace('_', ' ')}, ")
    assert {key.split("/")[1] for key in zhang.VALUES if key.startswith("table4/")} == {*UCR_SETS}


def test_depths_follow_the_rule_in_their_notes() -> None:
    kept = []
    for name in UCR_SETS:
        length, depth = (int(value("zhang", f"table4/{name}/{column}")) for column in ("length", "depth"))
        kept += [name] if depth <= math.sqrt(length) else []
        assert depth == length // features_per_step(length) or name == "FiftyWords"
    assert kept == ["InsectWingbeatSound"]
    assert 270 // features_per_step(270) == 18


def side(n: int, m: int) -> int:
    """Return the parameters of an orthogonal factor with m reflectors."""
    return n * m - m * (m - 1) // 2


@pytest.mark.parametrize("name", UCR_SETS)
def test_parameter_counts_follow_the_rule_of_the_note_on_mathematics(name: str) -> None:
    n, m = int(value("zhang", "appendixC/hidden")), int(value("zhang", "appendixC/reflectors"))
    length, depth, classes = (int(value("zhang", f"table4/{name}/{column}")) for column in ("length", "depth", "classes"))
    outputs = classes + UCR_SETS[name].extra
    shared = n * length // depth + n + n * outputs + outputs + n  # input, bias, output, its bias, initial state
    counted = {
        "rnn": n * n + shared,
        "lstm": 4 * (n * n + n * length // depth + n) + n * outputs + outputs + 2 * n,
        "ornn": side(n, m) + shared,
        "spectral-rnn": 2 * side(n, m) + n + shared,
    }
    assert {model: value("zhang", f"table4/{name}/{model}/parameters") for model in counted} == counted
    assert 2 * (side(n, m) - side(n, 8)) == 328
    assert "328 lower" in zhang.VALUES["appendixC/spectral-rnn-reflectors"].note


def test_parameters_in_thousands_are_what_their_notes_say() -> None:
    n = 128
    for key, count in {"rnn": (10 + 1 + n + 1) * n + 10 + n, "factorized-rnn": 2 * n * n + n, "lstm": 4 * n * n}.items():
        assert f"{count:,}" in zhang.VALUES[f"table2/{key}/parameters-k"].note
    for layers in (1, 2):
        units = layers * (2 * side(512, 32) + 512) / 1024
        one = zhang.VALUES[f"table3/spectral-rnn/{layers}/parameters-k"]
        assert (one.value, one.note[:5]) == (int(units), f"{units:.2f}")
    for model, gates in (("rnn", 1), ("lstm", 4)):
        for layers in (1, 2):
            assert value("zhang", f"table3/{model}/{layers}/parameters-k") == layers * gates * n * n / 1024


def test_smoothness_of_tanh_is_what_its_note_says() -> None:
    steepest = max(abs(2 * y * (1 - y * y)) for y in (i / 100000 for i in range(100001)))  # |tanh''| at tanh = y
    assert f"{steepest:.4f}-smooth" in miller.VALUES["section6.2/tanh/smoothness"].note
    assert steepest == pytest.approx(4 / (3 * math.sqrt(3)), rel=1e-8)


@pytest.mark.parametrize(
    ("bad", "place", "message"), [(math.nan, "Table 1", "`value`"), (math.inf, "Table 1", "`value`"), (1.0, " ", "`place`")]
)
def test_what_is_not_a_printed_number_is_refused(bad: float, place: str, message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        Published(bad, place)


@pytest.mark.parametrize(
    ("cells", "notes", "message"),
    [((1.0,), {}, "2 cells.*'a' has 1"), ((1.0, None), {"table1/a/d": "no number"}, "'table1/a/d' is not one")],
)
def test_a_table_with_a_wrong_row_or_note_is_refused(
    cells: tuple[float | None, ...], notes: dict[str, str], message: str
) -> None:
    with pytest.raises(ArgumentError, match=message):
        tabulated("Table 1", {"c": "C", "d": "D"}, {"a": ("A", cells)}, notes)


def test_a_list_is_numbered_from_one() -> None:
    values = listed("section1/sizes", "Section 1", (5, 7), "note")
    assert values == {
        "section1/sizes/1": Published(5, "Section 1, number 1 of 2", "note"),
        "section1/sizes/2": Published(7, "Section 1, number 2 of 2", "note"),
    }


def test_every_file_of_a_paper_is_tested() -> None:
    names = {path.stem for path in Path(str(emami.__file__)).parent.glob("*.py")}
    assert names - {"__init__", "base"} == set(PAPERS)
