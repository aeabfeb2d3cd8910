"""A damaged or hostile file gives an error of ours that a terminal can show, or a valid value; never anything else."""

import os
import re
import resource
import shutil
import unicodedata
import zlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from steadyrnn.cli.main import main
from steadyrnn.engines.calibration_table import read_table
from steadyrnn.errors import DataError, SteadyError
from steadyrnn.tasks.arff import read_arff
from steadyrnn.tasks.checksums import CHECKSUMS
from steadyrnn.tasks.idx import gunzip
from steadyrnn.tasks.locate import DATA_SETS, check_data_set, read_file
from tests.runs.faulty import in_child
from tests.safety.mutations import damaged
from tests.safety.readers import NAMES, Reader, make_readers
from tests.safety.run_folders import make_run

LONG = os.environ.get("STEADYRNN_HYPOTHESIS") == "long"
EXAMPLES = 10_000 if LONG else 20


@pytest.fixture(scope="module")
def readers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Reader]:
    return make_readers(tmp_path_factory.mktemp("readers"))


def test_every_reader_is_listed(readers: dict[str, Reader]) -> None:
    assert tuple(readers) == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_valid_file_is_read(readers: dict[str, Reader], name: str) -> None:
    readers[name].read(readers[name].valid)


def check_message(message: str) -> None:
    """Check that an error is a few sentences that no terminal obeys."""
    assert 0 < len(re.sub(r"\\(x..|u....|U.{8})", "?", message)) <= 2_000  # a character that is written out is one
    assert all(letter == "\n" or unicodedata.category(letter) not in ("Cc", "Cf", "Cs") for letter in message)
    message.encode("utf-8")


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("name", NAMES)
def test_a_damaged_file_is_an_error_of_ours_or_a_valid_value(readers: dict[str, Reader], name: str) -> None:
    reader = readers[name]

    @settings(max_examples=EXAMPLES, suppress_health_check=list(HealthCheck))
    @given(data=st.data())
    def law(data: st.DataObject) -> None:
        given_bytes = data.draw(damaged(reader.valid))
        try:
            reader.read(given_bytes)
        except SteadyError as error:
            check_message(str(error))

    law()


# What was once found


FOUND: dict[str, tuple[str, bytes, bytes]] = {
    "a width of letters": ("config.json of a model", b'"width": 8', b'"width": "x"'),
    "a number of 6000 digits": ("config.json of a model", b'"width": 8', b'"width": ' + b"9" * 6000),
    "a width beyond any memory": ("config.json of a model", b'"width": 8', b'"width": 10000000000'),
    "deep nesting": ("config.json of a model", b'"width": 8', b'"width": ' + b"[" * 50_000 + b"]" * 50_000),
    "a header of 5000 digits": ("repository", b"3 4 2\n", b"9" * 5000 + b" 4 2\n"),
    "a bomb of aliases": (
        "settings",
        b"steps: 6",
        b"a: &a [x,x,x,x,x,x,x,x,x]\n"
        + b"".join(b"  %c: &%c [%s]\n" % (c + 1, c + 1, b",".join([b"*%c" % c] * 9)) for c in range(97, 105))
        + b"  steps: *i",
    ),
    "an object of Python": ("settings", b"steps: 6", b"steps: !!python/object/apply:os.system ['touch marker']"),
    "an alias of itself": ("settings", b"steps: 6", b"steps: &x [*x]"),
    **{
        f"`{name}` in a file": ("settings", b"task: &t", name.encode() + b": x\ntask: &t")
        for name in ("config", "resume", "out", "json", "quiet", "tensorboard", "print_config")
    },
    "a part twice": ("settings", b"train:\n", b"task: {name: copy}\ntrain:\n"),
    "a setting twice": ("settings", b"width: 8", b"width: 8, width: 9"),
    "half a table": ("calibration", b'"n": 64', b'"n": 1' + b"0" * 400),
    "a character of 5000 digits": ("label names", b"&#98;", b"&#" + b"9" * 5000 + b";"),
}


@pytest.mark.parametrize("case", FOUND)
def test_what_was_found_is_refused_in_a_sentence(readers: dict[str, Reader], case: str) -> None:
    name, old, new = FOUND[case]
    assert old in readers[name].valid
    with pytest.raises(SteadyError) as caught:
        readers[name].read(readers[name].valid.replace(old, new))
    check_message(str(caught.value))


def test_a_certificate_without_a_source_bounds_nothing(readers: dict[str, Reader]) -> None:
    reader = readers["certificate.json"]
    assert b'"source"' in reader.valid
    _, source = reader.read(reader.valid.replace(b'"source"', b'"sauce"'))
    assert source == "none is known"


def test_a_large_table_is_refused_before_memory_is_taken(tmp_path: Path) -> None:
    rows = b"@relation r\n" + b"".join(b"@attribute x%d numeric\n" % i for i in range(60_000)) + b"@data\n" + b"{}\n" * 60_000

    def read() -> None:
        size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (size + 2**29, size + 2**29))
        with pytest.raises(SteadyError, match="values, but has 60,000 rows of 60,000 attributes"):
            read_arff(rows, tmp_path / "a.arff", ["x0"])

    assert in_child(read) == 0


def test_a_gzip_bomb_is_refused(tmp_path: Path) -> None:
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    bomb = b"".join(packer.compress(bytes(1 << 20)) for _ in range(300)) + packer.flush()
    with pytest.raises(SteadyError, match="must unpack to at most"):
        gunzip(bomb, tmp_path / "a.gz")


READING = {
    "eval": ["eval", "{run}"],
    "certify": ["certify", "{run}"],
    "certify again": ["certify", "{run}", "--recheck"],
    "report": ["report", "{run}", "--out", "{new}/page.html"],
    "convert": ["convert", "{run}", "--to", "torch", "--out", "{new}/converted"],
    "resume": ["train", "--resume", "{run}"],
}
"""Every command that reads a run."""


@pytest.mark.parametrize("command", READING)
def test_a_file_larger_than_any_disk_is_refused_by_name(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    original = make_run(tmp_path / "runs")
    refused = set()
    for name in sorted(path.relative_to(original) for path in original.rglob("*") if path.is_file()):
        run = Path(shutil.copytree(original, tmp_path / "copies" / str(name).replace("/", "-")))
        os.truncate(run / name, 1 << 40)  # a hole: it needs no space on the disk
        capsys.readouterr()
        status = main([word.format(run=run, new=run.with_suffix(".new")) for word in READING[command]])
        said = capsys.readouterr().err
        if status != 0:  # what the command does not read does no harm
            assert str(name) in said
            assert "memory" not in said
            refused.add(name.name)
        shutil.rmtree(run)
    assert "config.json" in refused


def test_a_large_data_file_is_refused_before_memory_is_taken(tmp_path: Path) -> None:
    for path in [*CHECKSUMS, "mediamill/Mediamill_data.txt"]:
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
        os.truncate(file, 1 << 40)
        with pytest.raises(DataError, match=r"bytes, but has 1,099,511,627,776\."):
            read_file(tmp_path, path)
    problems = [problem for name in DATA_SETS for problem in check_data_set(tmp_path, name) if "is missing" not in problem]
    assert len(problems) == len(CHECKSUMS)


def test_a_large_table_of_engines_is_refused_before_memory_is_taken(tmp_path: Path) -> None:
    file = tmp_path / "table.json"
    file.touch()
    os.truncate(file, 1 << 40)
    with pytest.raises(DataError, match="must have at most"):
        read_table(str(file))
