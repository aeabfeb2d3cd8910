"""The project is written in the words of the field, and cites nothing that is not in it."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("src", "docs", "examples", "tests", "benchmarks")
PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "Makefile", "pyproject.toml")
KINDS = {".py", ".md", ".cu", ".h", ".css", ".html", ".toml"}

_COUNTED = (
    "pages?|rows?|lines?|certificates?|numbers?|tokens?|seeds?|launch|vectors?|decompositions?|labels?|loss|values?|bias|us|ms"
    "|microseconds|features|reflectors|registers|rounding|files?|sorts?|columns?|once|roundings|objects?"
)
_COUNTED_BY = (
    "page|room|row|model|line|direction|gate|step|side|block|unit|weight|word|pair|thread|class|layer|second|entry|call|batch"
    "|command|device|tile|lane|op|curve"
)
WORDS: dict[str, str] = {
    # metaphors and made-up names, with the word of the field
    r"\b(?:this|one|each|every|own|another|other) rooms?\b|\brooms\b|\bhouses?\b": "package or module",
    r"\bas room\b|\broom_of\b|\bown_room\b|\.\. room::|(?-i:\b_?ROOMS?\b)": "package or module",
    r"\bdoors?\b": "import rule",
    r"\bmatrix units?\b": "tensor cores",
    r"\bsecond-level cache\b": "L2 cache",
    r"\bevery_time\b": "input_projection",
    r"\bover_time\b": "weight_gradient",
    r"\bplane(?:s|d)\b": "bf16x3",
    r"\babreast\b": "vector_io",
    r"\bawaited\b": "async_result",
    r"\ball of time\b": "all time steps",
    # turns of phrase that have to be read twice
    r"\bbut for\b": "except",
    r"\b(?:it|that|this|what|windows?|form|route) pays\b": "is faster",
    r"\bspeaks? for all\b": "holds for all",
    r"\bof two (?:rows|steps) as near\b": "if two are equally near",
    r"\bguess that does not look\b|\bdoes not look at (?:the|its) inputs?\b": "constant answer",
    r"\bmade by itself\b": "automatic",
    r"\bheader lies\b|\bheader that lies\b": "header that does not fit",
    r"\bnothing can be said of it\b": "say what is expected",
    r"\bis no (?:folder;|certificate of|number, so|JSON)": "is not a",
    r"\bis no run\b": "is not a run",
    r"\bone a column\b": "one per column",
    r"\btwice as long a step\b": "twice as long per step",
    r"\bwhoever knows everything\b": "a model that knows everything except",
    r"\boutputs are off\b": "outputs are wrong",
    rf"\b(?:{_COUNTED}) an? (?:{_COUNTED_BY})\b": "per",
    # documents that are not part of the project
    r"\bMATH(?:\.md)?,? \d": "Note [mathematics], section ...",
    r"\b(?:STYLE|DESIGN|USERS|MATH)\.md\b": "a page of docs/",
    r"\b(?:see|in|of|by|from|and) (?:STYLE|DESIGN|USERS|MATH)\b(?! \d)": "a page of docs/",
}
"""Regular expressions of what must not be written, each with what to write instead."""

ALLOWED: dict[str, str] = {
    r"(?:turns? disjoint|angles, whose|in|whatever the|two) planes\b": "the planes of a rotation",
    r"\bplanes = torch\.view_as_real|torch\.linalg\.qr\(planes\b": "the same, in `linalg/exponential.py`",
}
"""What a pattern finds and may stay, with the reason."""


def files() -> Iterator[Path]:
    """Yield every file that people read, except this one."""
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in KINDS and not {"_build", "__pycache__"} & set(path.parts) and path != Path(__file__):
                yield path
    yield from (ROOT / name for name in PAGES)


def faults(text: str) -> Iterator[tuple[int, str, str]]:
    """Yield the line, the words and what to write instead, for each place that must not stay."""
    kept = re.sub("|".join(ALLOWED), lambda match: "\n" * match[0].count("\n"), text)
    for pattern, better in WORDS.items():
        spread = pattern.replace(" ", r"\s+(?:(?:#|//|\*)\s*)?")  # a phrase may go on behind a line end, also of a comment
        for match in re.finditer(spread, kept, 0 if "MATH" in pattern else re.IGNORECASE):
            yield kept.count("\n", 0, match.start()) + 1, " ".join(match[0].split()), better


def test_the_project_is_written_in_the_words_of_the_field() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {words!r}: write {better!r}"
        for path in files()
        for line, words, better in faults(path.read_text(encoding="utf-8"))
    ]
    assert not found, "\n" + "\n".join(found)


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("one certificate\na direction", [1]),
        ("# sums on the matrix\n# units", [1]),
        ("a\nproved in MATH 5.1", [2]),
        ("the rooms of the package", [1]),
        ("everything but for one", [1]),
        ("Householder reflections leave room for rounding", []),
        ('assert "MATH" in font', []),
        ("one bias per gate, except the first", []),
    ],
)
def test_a_fault_is_found_on_its_line(text: str, lines: list[int]) -> None:
    assert [line for line, _, _ in faults(text)] == lines
