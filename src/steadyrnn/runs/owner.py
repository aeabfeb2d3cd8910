"""Who holds a run: a process, told apart from a later one with the same number."""

import os
import socket
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from .json_text import parse, render_line

__all__ = ["Owner"]

_START_FIELD = 19  # of /proc/<pid>/stat, counted behind the process's name


@dataclass(frozen=True)
class Owner:
    """A process.

    Args:
        pid: Its number.
        host: The machine it runs on.
        started: When it started, in the system's own count; None where the system does not tell.
    """

    pid: int
    host: str
    started: str | None

    @staticmethod
    def me() -> "Owner":
        """Return this process.

        Example:
            >>> Owner.me().may_live()
            True
        """
        return Owner(os.getpid(), socket.gethostname(), _start_time(os.getpid()))

    @staticmethod
    def from_bytes(data: bytes) -> "Owner | None":
        """Return the owner that :meth:`to_bytes` wrote, None where the bytes do not name one."""
        try:
            match parse(data):
                case {"pid": int(pid), "host": str(host), "started": str() | None as started}:
                    return Owner(pid, host, started)
        except ValueError:
            pass
        return None

    def to_bytes(self) -> bytes:
        """Return the owner as a line of JSON."""
        return render_line(asdict(self)).encode()

    def may_live(self) -> bool:
        """Say whether the process may still run: False only where it is known to be gone.

        A number that was given to another process is told by the time of the start; of another machine nothing is known.
        """
        if self.host != socket.gethostname() or sys.platform == "win32":
            return True
        try:
            os.kill(self.pid, 0)  # signal 0 only asks
        except ProcessLookupError:
            return False
        except (OSError, OverflowError):
            return True
        return self.started is None or _start_time(self.pid) in (None, self.started)

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


def _start_time(pid: int) -> str | None:
    """Return the start of a process as boot and clock ticks since then, None where there is no such record."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        return f"{boot}:{fields[_START_FIELD]}"
    except (OSError, IndexError, ValueError):
        return None
