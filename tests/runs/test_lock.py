"""One writer a folder: the second is told who the first is, and a dead one stands in nobody's way."""

import errno
import os
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from steadyrnn.errors import RunError
from steadyrnn.runs import exclusive as fallback
from steadyrnn.runs import lock as lock_module
from steadyrnn.runs.lock import Lock
from steadyrnn.runs.owner import Owner
from tests.runs.faulty import child_that_waits, in_child, names_in


def unsupported(descriptor: int, operation: int) -> None:
    raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))


SYSTEMS: dict[str, Callable[[], Any]] = {
    "kernel's locks": lambda: lock_module._fcntl,
    "no such module": lambda: None,
    "no such locks on the file system": lambda: SimpleNamespace(flock=unsupported, LOCK_EX=2, LOCK_NB=4),
}


@pytest.fixture(params=SYSTEMS)
def path(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(lock_module, "_fcntl", SYSTEMS[request.param]())
    return tmp_path / "lock"


def refused(path: Path) -> None:
    with pytest.raises(RunError, match="is being written by"):
        Lock(path)


def kill(child: int) -> None:
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


def test_a_lock_is_taken_released_and_taken_again(path: Path) -> None:
    for _ in range(2):
        lock = Lock(path)
        assert lock.held
        lock.release()
        lock.release()
        assert not lock.held


def test_a_second_lock_in_the_same_process_is_refused(path: Path) -> None:
    lock = Lock(path)
    with pytest.raises(RunError, match=f"is being written by process {os.getpid()} on {socket.gethostname()}"):
        Lock(path)
    lock.release()


def test_another_process_is_refused_and_told_who_holds_it(path: Path) -> None:
    child = child_that_waits(lambda: Lock(path))
    try:
        with pytest.raises(RunError, match=rf"`{path.parent}` is being written by process {child} on {socket.gethostname()}"):
            Lock(path)
    finally:
        kill(child)


def test_a_lock_whose_owner_was_killed_is_taken_over(path: Path) -> None:
    kill(child_that_waits(lambda: Lock(path)))
    lock = Lock(path)
    assert lock.held
    assert in_child(lambda: refused(path)) == 0
    lock.release()


@pytest.mark.parametrize("attempt", range(5))
def test_of_many_heirs_one_takes_over(path: Path, attempt: int) -> None:
    kill(child_that_waits(lambda: Lock(path)))
    go_reader, go_writer = os.pipe()
    won_reader, won_writer = os.pipe()
    done_reader, done_writer = os.pipe()

    def heir() -> None:
        os.close(go_writer)
        os.close(done_writer)
        os.read(go_reader, 1)  # until the parent closes its end: all at once
        try:
            Lock(path)
        except RunError:
            os.write(won_writer, b"-")
        else:
            os.write(won_writer, b"+")
        os.read(done_reader, 1)  # a winner holds it until all have tried

    children = []
    for _ in range(6):
        children.append(os.fork())
        if children[-1] == 0:
            heir()
            os._exit(0)
    os.close(go_reader)
    os.close(go_writer)
    results = b"".join(os.read(won_reader, 1) for _ in children)
    os.close(done_reader)
    os.close(done_writer)
    for child in children:
        os.waitpid(child, 0)
    os.close(won_reader)
    os.close(won_writer)
    assert results.count(b"+") == 1


def test_a_forked_child_does_not_hold_its_parents_lock(path: Path) -> None:
    lock = Lock(path)

    def child() -> None:
        assert not lock.held
        lock.release()  # of no effect here
        with pytest.raises(RunError, match=f"process {os.getppid()}"):
            Lock(path)

    assert in_child(child) == 0
    assert lock.held
    assert in_child(lambda: refused(path)) == 0
    lock.release()


def test_a_worker_that_outlives_its_killed_parent_does_not_keep_the_lock(path: Path) -> None:
    reader, writer = os.pipe()

    def parent() -> None:
        Lock(path)
        os.write(writer, child_that_waits(lambda: None).to_bytes(8, "little"))

    kill(child_that_waits(parent))
    worker = int.from_bytes(os.read(reader, 8), "little")
    try:
        Lock(path).release()
    finally:
        os.kill(worker, signal.SIGKILL)  # an orphan: the system reaps it


def test_a_lock_file_that_was_removed_meanwhile_is_not_taken_for_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, real, taken = tmp_path / "lock", lock_module._fcntl, []

    def removed_first(descriptor: int, operation: int) -> None:
        if not taken:
            path.unlink()
        taken.append(descriptor)
        real.flock(descriptor, operation)

    monkeypatch.setattr(lock_module, "_fcntl", SimpleNamespace(flock=removed_first, LOCK_EX=real.LOCK_EX, LOCK_NB=real.LOCK_NB))
    lock = Lock(path)
    assert len(taken) == 2
    assert in_child(lambda: refused(path)) == 0
    lock.release()


def test_the_kernels_lock_leaves_an_empty_file_and_no_other(tmp_path: Path) -> None:
    lock = Lock(tmp_path / "lock")
    assert Owner.from_bytes((tmp_path / "lock").read_bytes()) == Owner.me()
    lock.release()
    assert names_in(tmp_path) == ["lock"]
    assert (tmp_path / "lock").read_bytes() == b""


def test_an_owner_that_has_not_written_its_name_is_another_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock_module, "_PATIENCE", 0.0)
    lock = Lock(tmp_path / "lock")
    (tmp_path / "lock").write_bytes(b"")
    with pytest.raises(RunError, match="is being written by another process"):
        Lock(tmp_path / "lock")
    lock.release()


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="could not be opened for writing: No such file or directory"):
        Lock(tmp_path / "none" / "lock")


# Without the kernel's locks


@pytest.fixture
def exclusive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(lock_module, "_fcntl", None)
    return tmp_path / "lock"


def leave(path: Path, owner: Owner) -> None:
    path.with_name("lock.exclusive").write_bytes(owner.to_bytes())


def test_an_exclusive_file_is_removed_on_release(exclusive: Path) -> None:
    Lock(exclusive).release()
    assert names_in(exclusive.parent) == []


def test_a_number_that_another_process_got_is_not_taken_for_the_owner(exclusive: Path) -> None:
    leave(exclusive, Owner(os.getpid(), socket.gethostname(), "an earlier boot:1"))
    Lock(exclusive).release()


def test_of_an_owner_on_another_machine_nothing_is_known(exclusive: Path) -> None:
    leave(exclusive, Owner(1, "another-machine", None))
    with pytest.raises(RunError, match=r"process 1 on another-machine.*If that process is gone, remove `.*lock\.exclusive`"):
        Lock(exclusive)


@pytest.mark.parametrize("content", [b"", b"{}", b'{"pid": "1", "host": "a", "started": null}', b"\xff\x00"])
def test_an_exclusive_file_without_a_name_is_respected(exclusive: Path, content: bytes) -> None:
    exclusive.with_name("lock.exclusive").write_bytes(content)
    with pytest.raises(RunError, match="is being written by another process"):
        Lock(exclusive)


def test_a_takeover_under_way_is_respected(exclusive: Path) -> None:
    leave(exclusive, Owner(os.getpid(), socket.gethostname(), "an earlier boot:1"))
    exclusive.with_name("lock.takeover").write_bytes(Owner.me().to_bytes())
    with pytest.raises(RunError, match=r"Another process is taking over .* remove `.*lock\.takeover`"):
        Lock(exclusive)


def test_an_heir_looks_again_once_it_alone_may_take_over(exclusive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    leave(exclusive, Owner(os.getpid(), socket.gethostname(), "an earlier boot:1"))
    create = fallback._create

    def overtaken(file: Path, owner: Owner) -> bool:
        if file.name == "lock.takeover":
            leave(exclusive, Owner.me())  # another heir was faster
        return create(file, owner)

    monkeypatch.setattr(fallback, "_create", overtaken)
    refused(exclusive)
    assert names_in(exclusive.parent) == ["lock.exclusive"]


def test_a_full_disk_leaves_no_lock_without_a_name(exclusive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(fallback.os, "write", full)
        with pytest.raises(RunError, match="could not be written: No space left on device"):
            Lock(exclusive)
    assert names_in(exclusive.parent) == []


def test_this_process_lives_and_a_dead_one_does_not() -> None:
    me = Owner.me()
    assert me.may_live()
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)
    assert not Owner(child, me.host, None).may_live()
    assert Owner.from_bytes(me.to_bytes()) == me
