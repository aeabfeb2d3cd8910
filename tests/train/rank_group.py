"""Starting several processes that train together, as torchrun would; each calls a function with its folder."""

import os
import socket
import subprocess
import sys
from pathlib import Path
from pkgutil import resolve_name

__all__ = ["launch", "rank_variables"]

ROOT = Path(__file__).parents[2]


def rank_variables(rank: int, size: int, port: int) -> dict[str, str]:
    """Return what torchrun puts into the environment of a process."""
    numbers = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size, "MASTER_PORT": port}
    return {**{name: str(number) for name, number in numbers.items()}, "MASTER_ADDR": "127.0.0.1"}


def free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port: int = server.getsockname()[1]
        return port


def launch(size: int, function: str, folder: Path, seconds: float = 240) -> list[tuple[int, str, str]]:
    """Call ``module:function`` with a folder in ``size`` processes; return the status, stdout and stderr of each."""
    port = free_port()
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.train.rank_group", function, str(folder)],
            env=os.environ | rank_variables(rank, size, port) | {"OMP_NUM_THREADS": "1"},
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(size)
    ]
    ended = []
    try:
        for process in started:
            out, err = process.communicate(timeout=seconds)
            ended.append((process.returncode, out, err))
    finally:
        for process in started:
            process.kill()
    return ended


if __name__ == "__main__":
    os.fsync = lambda descriptor: None  # as in `conftest.py`: nothing here cuts the power
    resolve_name(sys.argv[1])(Path(sys.argv[2]))
