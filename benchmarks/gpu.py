"""Our layers on a GPU beside torch.nn's (cuDNN) and a loop in Python: ``python benchmarks/gpu.py``.

T = 784 steps of 64 inputs, float32 without TF32 or bfloat16 for all alike, orthogonal recurrent weights, errors against
float64. Activations that cuDNN lacks stand beside its ReLU (``torch-relu``). Ours and torch's take turns. Four calls follow
one another; the time of one alone stands beside it as ``..._alone``. Every row is written to the file of results as it
comes, and one that is there is not measured again, so that ``--shard 1/4`` to ``4/4``, one after another, make one table.
``--verdict`` judges the file and measures nothing.
"""

import argparse
import json
import random
import sys
from fnmatch import fnmatchcase
from itertools import product
from pathlib import Path
from typing import Any

import torch
from gpu_peers import (
    INPUTS,
    REFLECTORS,
    Case,
    Loop,
    Peer,
    engine_of,
    error_of,
    forward,
    microseconds,
    peers,
    training,
    truth_of,
    with_engine,
)
from gpu_targets import BANDWIDTH, PEAK, floor, verdict
from measure import RESULTS, environment
from torch import Tensor

from steadyrnn import __version__
from steadyrnn.engines.select import ENGINES
from steadyrnn.errors import EngineError

STEPS = 784
KINDS = ("rnn-relu", "rnn-tanh", "rnn-leaky_relu", "rnn-abs", "gru", "lstm")
REPEATS = {"ours": 5, "torch": 5, "eager": 1, "named": 3}
CALLS = {"ours": 4, "torch": 4, "eager": 1, "named": 4}  # that follow one another
ENOUGH = 0.3
"""Seconds for which short calls of ours and of torch's are repeated, in turn."""
OFF = 32
"""How many times the reference's error, or 16 units of rounding, an output may be off before it counts as wrong."""


def cases(quick: bool) -> list[Case]:
    """Return every row, or a few that tell whether all is well."""
    if quick:
        dense = [Case(*one) for one in product(("rnn-relu", "rnn-abs", "lstm"), (128, 512), (128,), PEAK)]
        return [*dense, Case("rnn-relu", 512, 128, "float32", True)]
    dense = [Case(*one) for one in product(KINDS, (64, 128, 256, 512, 1024), (16, 128, 1024), PEAK)]
    return dense + [Case("rnn-relu", n, 128, dtype, True) for n in (256, 512, 1024) for dtype in PEAK]


def chosen(all_cases: list[Case], only: str | None, shard: str) -> list[Case]:
    """Return the rows whose names have a pattern in them, and of these one part."""
    found = [case for case in all_cases if fnmatchcase(case.label, f"*{only or ''}*")]
    part, parts = map(int, shard.split("/"))
    if not 1 <= part <= parts:
        raise SystemExit(f"--shard must be i/n with i from 1 to n, but is {shard}")
    dealt = random.Random(0).sample(range(len(found)), len(found))  # in order one part would get all large batches
    return [found[place] for place in sorted(dealt[part - 1 :: parts])]


def measure(case: Case, device: str, steps: int = STEPS, eager: bool = True, named: list[str] | None = None) -> dict[str, Any]:
    """Return one row: errors first, then the time of whoever is right."""
    known = peers(case, device)
    ours = known["ours"]
    x = torch.randn(steps, case.B, INPUTS, device=device).to(getattr(torch, case.dtype))
    cotangent = torch.randn(steps, case.B, case.n, device=device).to(x.dtype)
    rows, truth, own = truth_of(known.pop("reference"), x)
    row: dict[str, Any] = {**case._asdict(), "label": case.label, "times": {}, "errors": {"reference": own}, "wrong": {}}
    allowed = OFF * max(own, 8 * torch.finfo(x.dtype).eps)
    if eager and not case.factored:
        known["eager"] = Peer(Loop(case.kind, ours.module))
    checks = (rows, truth, allowed)
    take(row, {name: peer for name, peer in known.items() if name != "eager"}, x, cotangent, checks)
    take(row, {name: peer for name, peer in known.items() if name == "eager"}, x, cotangent, checks)
    row["engine"] = ran = engines_of(ours, x, cotangent) if "ours" in row["times"] else {}
    for name in ENGINES if named is None else named:
        if name not in ("cpu", "reference") and {name} != {*ran.values()}:
            take(row, {name: ours._replace(module=with_engine(ours.module, name))}, x, cotangent, checks)
    return finish(row, case)


def engines_of(ours: Peer, x: Tensor, cotangent: Tensor) -> dict[str, str]:
    """Return the engine that ``auto`` takes without gradients and with; a layer tells of its last run only."""
    ran = {}
    for mode, call in (("forward", forward), ("training", training)):
        call(ours, x[:2], cotangent[:2])
        ran[mode] = engine_of(ours.module)
    return ran


def take(
    row: dict[str, Any], group: dict[str, Peer], x: Tensor, cotangent: Tensor, checks: tuple[Tensor, Tensor, float]
) -> None:  # fmt: skip
    """Put errors and, unless they are wrong, times of peers in turn into a row; an engine that refuses leaves nothing."""
    reason = None
    try:
        right = {name: peer for name, peer in group.items() if is_right(row, name, peer, x, checks)}
        if right:
            who = next((name for name in right if name in REPEATS), "named")
            enough = ENOUGH if who in ("ours", "torch") else 0.0
            row["times"] |= microseconds(right, x, cotangent, REPEATS[who], CALLS[who], enough)
    except EngineError:
        reason = ""
    except Exception as error:  # of memory, of a kernel: the other peers can still be measured
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    if reason is None:
        return
    torch.cuda.empty_cache()  # now that nothing holds on to what the failed call had
    for name, peer in group.items():
        if len(group) > 1:
            take(row, {name: peer}, x, cotangent, checks)
        elif reason:
            row["wrong"][name] = reason


def is_right(row: dict[str, Any], name: str, peer: Peer, x: Tensor, checks: tuple[Tensor, Tensor, float]) -> bool:
    """Say whether outputs are near the truth, after putting their error into the row; of another layer nothing is known."""
    rows, truth, allowed = checks
    if name == "torch-relu" or (row["factored"] and name == "torch"):  # a dense weight is another one
        return True
    row["errors"][name] = error = error_of(peer, x, rows, truth)
    if error <= allowed:
        return True
    row["wrong"][name] = f"off by {error:.2g}, where {allowed:.2g} is much"
    return False


def finish(row: dict[str, Any], case: Case) -> dict[str, Any]:
    """Add what follows from times and errors."""
    times, least = row["times"], floor(case.kind, case.n, case.B, case.dtype, INPUTS, case.factored)
    ours = times.get("ours", {})
    for mode, time in ours.items():
        ran = row["engine"][mode.removesuffix("_alone")]
        times.setdefault(ran, {}).setdefault(mode, time)  # the same code, by its own name
    row["floor"] = least
    both = ours and "torch" in times
    row["ours_over_torch"] = {mode: time / times["torch"][mode] for mode, time in ours.items()} if both else None
    row["ours_over_floor"] = {mode: ours[mode] / time for mode, time in least.items()} if ours else {}
    if "ours" in row["errors"]:
        row["errors"]["quotient"] = row["errors"]["ours"] / max(row["errors"]["reference"], 1e-300)
    return row


def spoken(row: dict[str, Any]) -> str:
    """Return a row as a line."""
    ran = row["engine"].values()
    times = [
        f"{name} {time['forward']:.2f}/{time['training']:.2f}"
        for name, time in row["times"].items()
        if {name} != {*ran} and {"forward", "training"} <= time.keys()
    ]
    ratio, over = row["ours_over_torch"], row["ours_over_floor"]
    parts = [f"{row['label']:36}", f"{'/'.join(dict.fromkeys(ran)):9}", *times]
    parts += [f"| ours/torch {ratio['forward']:.2f}/{ratio['training']:.2f}"] if ratio else []
    parts += [f"| ours/floor {over['forward']:.1f}/{over['training']:.1f}"] if over else []
    parts += [f"| error {row['errors']['quotient']:.2f}"] if "quotient" in row["errors"] else []
    parts += [f"| {name} WRONG: {reason}" for name, reason in row["wrong"].items()]
    return "  ".join(parts)


def contents(path: Path) -> dict[str, Any]:
    """Return what the file of results holds, or an empty one."""
    if path.is_file():
        found: dict[str, Any] = json.loads(path.read_text())
        return found
    facts = {"T": STEPS, "D": INPUTS, "reflectors": REFLECTORS, "peak": PEAK, "bandwidth": BANDWIDTH}
    return {"commands": [], "environment": {}, **facts, "unit": "microseconds per step", "rows": []}


def machine() -> dict[str, Any]:
    """Return what the figures depend on beside the code."""
    gpu = {"device": torch.cuda.get_device_name(), "cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version()}
    return {**environment(), **gpu, "steadyrnn": __version__}


def write(path: Path, content: dict[str, Any]) -> None:
    """Write the file, one line per row."""
    head = json.dumps({name: value for name, value in content.items() if name != "rows"}, indent=1).removesuffix("\n}")
    body = ",\n".join(f"  {json.dumps(row)}" for row in content["rows"])
    temporary = path.with_suffix(".tmp")
    temporary.write_text(f'{head},\n "rows": [\n{body}\n ]\n}}\n')
    temporary.replace(path)


def judge(path: Path) -> None:
    """Print the verdict on a file; leave with status 1 where a target is missed."""
    told = verdict(contents(path)["rows"])
    for status, words, figure in told:
        print(f"{status:12}  {words:52}  {figure}")
    raise SystemExit(any(status == "MISSED" for status, _, _ in told))


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="part of the names of rows, as rnn-relu/n512/B128/float32, * for anything")
    parser.add_argument("--shard", default="1/1", help="i/n: the i-th of n parts of the rows")
    parser.add_argument("--out", type=Path, default=RESULTS / "gpu.json", help="the file of results")
    parser.add_argument("--quick", action="store_true", help="a few rows only")
    parser.add_argument("--again", action="store_true", help="measure rows that are there already, too")
    parser.add_argument("--eager-all", action="store_true", help="the loop in Python also for the largest sizes")
    parser.add_argument("--no-eager", action="store_true", help="leave out the loop in Python")
    parser.add_argument("--engines", help="engines to measure by name beside `auto`, separated by commas; all where left out")
    parser.add_argument("--verdict", action="store_true", help="judge the file of results, and measure nothing")
    options = parser.parse_args()
    if options.verdict:
        judge(options.out)
    if not torch.cuda.is_available():
        raise SystemExit("There is no GPU here to measure on.")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    content = contents(options.out)
    content["commands"].append("python benchmarks/" + " ".join([Path(sys.argv[0]).name, *sys.argv[1:]]))
    content["environment"] = machine()
    wrong = False
    for case in chosen(cases(options.quick), options.only, options.shard):
        there = [row["label"] for row in content["rows"]]
        if case.label in there and not options.again:
            continue
        eager = not options.no_eager and (options.eager_all or (case.B < 1024 and case.n < 1024))
        row = measure(case, "cuda", eager=eager, named=None if options.engines is None else options.engines.split(","))
        content["rows"] = [*(old for old in content["rows"] if old["label"] != case.label), row]
        write(options.out, content)
        print(spoken(row), flush=True)
        wrong |= bool(row["wrong"])
        torch.cuda.empty_cache()
    raise SystemExit(wrong)


if __name__ == "__main__":
    main()
