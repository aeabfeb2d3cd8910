"""Count what a reader of one call has to read: ``python benchmarks/call_path.py``.

For each call: how many of our files and functions it runs, distinct ones, counted by ``sys.setprofile``. A call is made once
before, so that what is computed once and kept does not count. Then the length of the longest function of a ``.cu`` file, and
the places outside ``cells`` and ``activations`` that ask ``isinstance`` which cell or activation they have.
"""

import ast
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from measure import options, save, show

import steadyrnn as sr

PACKAGE = Path(sr.__file__).parent
GOALS = {"RNN, spectral, training": 18, "GRU, exp, training": 18, "to_parallel, first run": 24, "certify an RNN": 12}
KINDS = re.compile(r"(RNNStep|GRUStep|LSTMStep|Activation|Tanh|ReLU|LeakyReLU|Absolute|Identity|Sigmoid|ModReLU|Cell)\b")


def path_of(call: Callable[[], Any]) -> dict[str, list[str]]:
    """Return our files that a call runs, in the order of first use, each with its functions that the call runs."""
    functions: dict[tuple[str, str, int], None] = {}

    def record(frame: FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(str(PACKAGE)) and not code.co_name.startswith("<"):
            functions[code.co_filename, code.co_qualname, code.co_firstlineno] = None

    sys.setprofile(record)
    try:
        call()
    finally:
        sys.setprofile(None)
    files: dict[str, list[str]] = {}
    for file, name, _ in functions:
        files.setdefault(str(Path(file).relative_to(PACKAGE)), []).append(name)
    return files


def calls() -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield the calls that are counted."""
    x = torch.randn(10, 3, 8)
    rnn, gru = sr.RNN(8, 8, nonlinearity="relu", transition="spectral"), sr.GRU(8, 8, transition="exp")
    lstm, ball = sr.LSTM(8, 8), sr.RNN(8, 8, transition=sr.SpectralBall(0.5))
    long = torch.randn(4096, 1, 8)
    yield "RNN, spectral, training", lambda: rnn(x)[0].sum().backward()
    yield "GRU, exp, training", lambda: gru(x)[0].sum().backward()
    yield "LSTM, free, training", lambda: lstm(x)[0].sum().backward()
    yield "to_parallel, first run", lambda: sr.to_parallel(ball, tol=1e-6)(long)
    yield "certify an RNN", lambda: sr.certify(ball, input_bound=1.0)


def kernel_functions(source: str) -> Iterator[tuple[int, str]]:
    """Yield the lines and the head of each function of a CUDA source, member functions of structs included.

    A head, with its ``template`` line, may stand on several lines. A body ends with a brace at the depth at which its head
    began. Lines of the preprocessor belong to neither.
    """
    head, start, margins = "", 0, [0]  # margins: of the file, and of the members of each struct that is open
    body: int | None = None  # the margin of the function that is open
    for number, line in enumerate((line.split("//")[0].rstrip() for line in source.splitlines()), 1):
        text, margin = line.lstrip(), len(line) - len(line.lstrip())
        if not text or text.startswith("#"):
            continue
        if body is not None:
            if margin == body and text.startswith("}"):
                yield number - start + 1, head
                head, body = "", None
            continue
        if not head and len(margins) > 1 and text.startswith("}") and margin < margins[-1]:
            margins.pop()
            continue
        start = start if head else number
        head += f"{text} "
        if not text.endswith((";", "{", "}")):
            continue
        if text.endswith("{") and re.match(r"(template <.*?> )?(struct|union|namespace)\b", head) and not head.endswith("= { "):
            margins.append(margins[-1] + 4)
            head = ""
        elif text.endswith("{") and "(" in head:
            body = margins[-1]
        elif text.endswith("}") and "(" in head and "{" in text:
            yield number - start + 1, head
            head = ""
        else:
            head = ""


def longest_kernel() -> tuple[int, str]:
    """Return the lines of the longest function of a .cu file, and where it is."""
    found = (0, "")
    for path in sorted(PACKAGE.rglob("*.cu")):
        for lines, head in kernel_functions(path.read_text()):
            name = next(name for name in re.findall(r"(\w+)\s*\(", head) if not name.startswith("__"))
            found = max(found, (lines, f"{path.name}: {name}"))
    return found


def dispatches() -> list[str]:
    """Return the places outside ``cells`` and ``activations`` that ask for the type of a cell or an activation."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        place = path.relative_to(PACKAGE)
        if place.parts[0] in {"cells", "activations", "activations.py"}:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or ast.unparse(node.func) != "isinstance":
                continue
            if KINDS.search(ast.unparse(node.args[1])):
                found.append(f"{place}:{node.lineno} {ast.unparse(node)}")
    return found


def main() -> None:
    """Count, print, save."""
    parser = options(__doc__)
    parser.add_argument("--name", default="call-path", help="of the file of results")
    parser.add_argument("--verbose", action="store_true", help="name the files and functions of each call, and the dispatches")
    args = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for name, call in calls():
        call()
        files = path_of(call)
        rows.append({"what": name, "files": len(files), "functions": sum(map(len, files.values())), "goal": GOALS.get(name, 0)})
        if args.verbose:
            print(f"{name}:\n" + "".join(f"  {file}: {', '.join(names)}\n" for file, names in files.items()))
    lines, where = longest_kernel()
    kinds = dispatches()
    rows.append({"what": f"longest function of a kernel ({where})", "files": 0, "functions": lines, "goal": 80})
    rows.append({"what": "isinstance of a cell or an activation", "files": 0, "functions": len(kinds), "goal": 0})
    show(rows)
    if args.verbose:
        print("\n".join(kinds))
    save(args.name, rows)


if __name__ == "__main__":
    main()
