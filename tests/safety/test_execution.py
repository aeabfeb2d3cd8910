"""Nothing in a folder that the program is given, or started in, is executed."""

import ast
import os
import subprocess
from pathlib import Path

import pytest

from steadyrnn.cli.main import main
from steadyrnn.runs.environment import describe_environment
from steadyrnn.runs.source_commit import read_commit, source_commit
from tests.cli.program import QUICK

SOURCE = Path(__file__).parents[2] / "src" / "steadyrnn"
NAME = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]


def git(folder: Path, *words: str) -> str:
    return subprocess.run(["git", *NAME, *words], cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


def make_hostile(folder: Path, marker: Path, *, bare: bool = False) -> None:
    """Make a repository whose configuration runs a program at every turn."""
    git(folder, "init", "-q", *(["--bare"] if bare else []))
    if not bare:
        (folder / "a").write_text("a")
        git(folder, "add", "a")
        git(folder, "commit", "-q", "-m", "a")
    inner = folder if bare else folder / ".git"
    program = marker.with_name("evil.sh")
    program.write_text(f"#!/bin/sh\ntouch {marker}\n")
    program.chmod(0o755)
    hooks = inner / "hooks"
    hooks.mkdir(exist_ok=True)
    for hook in ("post-index-change", "reference-transaction", "post-checkout"):
        (hooks / hook).write_text(program.read_text())
        (hooks / hook).chmod(0o755)
    work = f"worktree = {folder}\n\tbare = false\n" if bare else ""
    with (inner / "config").open("a") as file:
        file.write(f"[core]\n\tfsmonitor = {program}\n\tsshCommand = {program}\n\tpager = {program}\n\t{work}")
        file.write(f'[alias]\n\tstatus = "!{program}"\n[diff]\n\texternal = {program}\n[filter "x"]\n\tclean = {program}\n')


def is_dangerous(folder: Path, marker: Path) -> bool:
    """Say whether the trap works: git itself runs the program there."""
    subprocess.run(["git", "status", "--porcelain"], cwd=folder, capture_output=True, check=False)
    sprung = marker.exists()
    marker.unlink(missing_ok=True)
    return sprung


@pytest.mark.parametrize("where", ["current folder", "run folder", "bare in the run folder"])
def test_a_hostile_repository_is_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    marker, work = tmp_path / "marker", tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    train = ["train", "addition", "--model", "rnn", "--quiet", "--json", *QUICK]
    assert main([*train, "--out", "runs"]) == 0
    (run,) = (work / "runs" / "addition" / "rnn").iterdir()
    hostile = work if where == "current folder" else run
    make_hostile(hostile, marker, bare=where.startswith("bare"))
    assert is_dangerous(hostile, marker)
    monkeypatch.chdir(hostile)
    environment = describe_environment()["git"]
    assert main([*train, "--out", os.fspath(tmp_path / "others")]) == 0
    for command in ("eval", "certify"):
        main([command, os.fspath(run)])
    assert main(["train", "--resume", os.fspath(run), "--quiet"]) == 0
    assert not marker.exists()
    commit = source_commit()
    assert environment == describe_environment()["git"] == (None if commit is None else {"commit": commit})


def test_the_commit_of_a_hostile_source_tree_is_read_and_nothing_is_run(tmp_path: Path) -> None:
    root, marker = tmp_path / "tree", tmp_path / "marker"
    root.mkdir()
    make_hostile(root, marker)
    assert is_dangerous(root, marker)
    head = (root / ".git" / "refs" / "heads" / git_branch(root)).read_text().strip()
    assert read_commit(root) == head
    assert not marker.exists()


def git_branch(root: Path) -> str:
    return (root / ".git" / "HEAD").read_text().split("/")[-1].strip()


@pytest.mark.parametrize("form", ["branch", "detached", "packed", "worktree", "packed worktree"])
def test_the_commit_is_the_one_that_git_names(tmp_path: Path, form: str) -> None:
    root = tmp_path / "tree"
    root.mkdir()
    git(root, "init", "-q")
    for text in "ab":
        (root / "a").write_text(text)
        git(root, "add", "a")
        git(root, "commit", "-q", "-m", text)
    checkout = root
    if form == "detached":
        git(root, "checkout", "-q", "HEAD~1")
    if "worktree" in form:
        checkout = tmp_path / "second"
        git(root, "worktree", "add", "-q", os.fspath(checkout), "-b", "topic/one")
    if "packed" in form:
        git(root, "pack-refs", "--all")
    assert read_commit(checkout) == git(checkout, "rev-parse", "HEAD")


@pytest.mark.parametrize(
    "head",
    [
        "",
        "ref: ",
        "ref: ../../secret",
        "ref: refs/../../secret",
        "ref: /etc/hostname",
        "x" * 40,
        "ref: refs/heads/a",
        "\0",
        "é",
    ],
)
def test_what_is_no_commit_is_none(tmp_path: Path, head: str) -> None:
    (tmp_path / ".git" / "refs" / "heads").mkdir(parents=True)
    (tmp_path / "secret").write_text("0" * 40)
    (tmp_path / ".git" / "refs" / "heads" / "a").write_text("ref: refs/heads/a\n")
    (tmp_path / ".git" / "HEAD").write_text(head)
    assert read_commit(tmp_path) is None


@pytest.mark.parametrize("kind", ["link", "pipe", "folder", "large"])
def test_a_head_that_is_no_plain_file_is_not_read(tmp_path: Path, kind: str) -> None:
    head, other = tmp_path / ".git" / "HEAD", tmp_path / "other"
    head.parent.mkdir()
    other.write_text("0" * 40)
    if kind == "link":
        head.symlink_to(other)
    elif kind == "pipe":
        os.mkfifo(head)
    elif kind == "folder":
        head.mkdir()
    else:
        with head.open("wb") as file:
            file.truncate(1 << 33)
    assert read_commit(tmp_path) is None


STARTERS = {"subprocess", "pty", "popen2", "multiprocessing", "commands", "pexpect", "sh", "webbrowser", "submitit"}
CALLS = {"system", "popen", "fork", "forkpty", "posix_spawn", "posix_spawnp", "startfile", "eval", "exec", "execv", "execve",
         "execvp", "execvpe", "spawnl", "spawnv", "spawnve", "spawnvp"}  # fmt: skip
UNPICKLERS = {"pickle", "dill", "cloudpickle", "shelve", "marshal", "joblib"}


def starts(tree: ast.AST) -> list[str]:
    """Return what in a file could start a program or run text as code; ``model.eval()`` takes no argument and is none."""
    found = []
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                found += [name.name for name in names if name.name.split(".")[0] in STARTERS | UNPICKLERS]
            case ast.ImportFrom(module=str(module), level=0) if module.split(".")[0] in STARTERS | UNPICKLERS:
                found.append(module)
            case ast.Call(func=ast.Attribute(attr=name)) if name in CALLS and (node.args or name == "fork"):
                found.append(name)
            case ast.Call(func=ast.Name(id=name)) if name in CALLS:
                found.append(name)
            case ast.Call(func=ast.Attribute(value=ast.Name(id="torch"), attr="load")):
                found.append("torch.load")
            case ast.Call(func=ast.Attribute(value=ast.Name(id="yaml"), attr="load" | "unsafe_load" | "full_load" as name)):
                found.append(f"yaml.{name}")
    return found


ALLOWED = {
    "cli/report.py": {"webbrowser"},  # --open
    "jobs/cell_runner.py": {"multiprocessing"},  # the same Python again, for reproduce --jobs
    "jobs/processes.py": {"multiprocessing", "multiprocessing.process"},
    "jobs/search/executors.py": {"multiprocessing", "multiprocessing.process"},  # likewise for sweep --jobs
    "jobs/search/submitit_jobs.py": {"submitit", "submitit.helpers"},  # sweep --slurm, --executor local
}
"""Files of the package that may start a program, with what they may call."""


def test_no_module_of_the_package_starts_a_program_or_runs_text_as_code() -> None:
    files = sorted(SOURCE.rglob("*.py"))
    assert len(files) > 200
    for file in files:
        found = set(starts(ast.parse(file.read_text(encoding="utf-8"))))
        assert found <= ALLOWED.get(file.relative_to(SOURCE).as_posix(), set()), file


@pytest.mark.parametrize(
    "text",
    ["import subprocess", "from subprocess import run", "os.system('a')", "eval('1')", "exec('1')", "import pickle",
     "torch.load('a')", "yaml.load(a)", "os.fork()", "os.popen('a')"],
)  # fmt: skip
def test_a_module_that_would_is_found(text: str) -> None:
    assert starts(ast.parse(text))


def test_a_run_folders_name_does_not_become_a_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["train", "addition", "--model", "rnn", "--quiet", "--json", *QUICK]) == 0
    (run,) = (tmp_path / "runs" / "addition" / "rnn").iterdir()
    run.rename(tmp_path / 'x""" + open("marker", "w").name + """')
    hostile = next(path for path in tmp_path.iterdir() if path.name.startswith("x"))
    assert main(["convert", os.fspath(hostile), "--to", "torch", "--out", "out"]) == 0
    text = next((tmp_path / "out").glob("load*.py")).read_text()
    docstring = ast.get_docstring(ast.parse(text))
    assert docstring is not None
    assert "open(" not in "".join(ast.unparse(node) for node in ast.parse(text).body)
