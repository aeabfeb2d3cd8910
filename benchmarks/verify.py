"""The time of ``sr.verify`` beside a forward pass of the same layer: ``python benchmarks/verify.py``.

``--device cuda`` for a GPU; ``--only-T 1000 --sizes 128 --batches 1 --cells LSTM --layers 1`` keep a run short.

The certificate of some weights is looked for once, and verification is done for every run, so both are measured:
``first_ms`` is the first call, certificate included, and ``verify_ms`` every other call. The ratio to a forward pass is the
latter's. ``met`` says whether it is within the aim, 2 on a CPU and 1.1 on a GPU. ``product_ratio`` is what the float64
matrix product takes by itself. On a CPU the clock is the process's own time, so that others on the machine are not counted;
on a GPU it is the wall's.
"""

import time
from importlib import import_module
from typing import Any

import torch
from measure import options, pairs, save, show
from torch import Tensor, nn

import steadyrnn as sr

CELLS = ("RNN", "GRU", "LSTM")
AIMS = {"cpu": 2.0, "cuda": 1.1}


def stable(cell: str, size: int, layers: int, device: str) -> nn.Module:
    """Return torch's layer with small recurrent weights, so that it contracts."""
    layer: nn.RNNBase = getattr(nn, cell)(size, size, num_layers=layers)
    with torch.no_grad():
        for name, parameter in layer.named_parameters():
            if cell == "RNN" and name.startswith("weight_hh"):
                parameter.mul_(0.9 / torch.linalg.matrix_norm(parameter, 2))
            elif cell != "RNN":
                parameter.mul_(0.25 / size**0.5 if name.startswith("weight_hh") else 0.2)
    return sr.from_torch(layer).to(device)


def finished(call: Any, device: str) -> Any:
    """Return a call that ends when the device has."""

    def run() -> None:
        call()
        if device == "cuda":
            torch.cuda.synchronize()

    return run


def first_call(call: Any) -> float:
    """Return the milliseconds of a first call, which reads the weights and looks for their norm."""
    module = import_module("steadyrnn.certificates.verify")
    module._KNOWN.clear(), module._READ.clear()
    start = time.perf_counter()
    call()
    return 1e3 * (time.perf_counter() - start)


def product(layer: Any, steps: int, batch: int, device: str) -> Any:
    """Return the float64 products that verification needs of a layer, in blocks that stay in a cache, and nothing else."""
    size, layers = layer.hidden_size, layer.num_layers
    weight = torch.randn(len(layer.weight_ih_l0), 2 * size, dtype=torch.float64, device=device)
    block = min(steps * batch, 1024 if device == "cpu" else 2**18)
    states = torch.randn(block, 2 * size, dtype=torch.float64, device=device)
    gates = weight.new_empty(len(weight), block)

    def run() -> None:
        for _ in range(layers * round(steps * batch / block)):
            torch.mm(weight, states.mT, out=gates)

    return run


@torch.no_grad()
def measure(cell: str, case: tuple[int, int, int], layers: int, device: str, repeats: int) -> dict[str, Any]:
    """Return one row of the table."""
    steps, batch, size = case
    torch.manual_seed(0)
    layer = stable(cell, size, layers, device)
    x: Tensor = nn.functional.normalize(torch.randn(steps, batch, size, device=device), dim=-1)
    output, _ = layer(x)
    truth = layer.double()(x.double())[0]
    layer = layer.float()
    verified, forward = finished(lambda: sr.verify(layer, x, output), device), finished(lambda: layer(x), device)
    first = first_call(verified)
    error, found = float((output.double() - truth).norm(dim=-1).max()), sr.verify(layer, x, output)
    if not error <= found.error:
        raise SystemExit(f"broken promise: {error}, {found}")
    clock = time.process_time if device == "cpu" else time.perf_counter
    times = pairs(verified, forward, repeats, clock)
    alone = pairs(finished(product(layer, steps, batch, device), device), forward, repeats, clock)["ratio"]
    row = {"cell": cell, "T": steps, "B": batch, "n": size, "layers": layers}
    row |= {"verify_ms": times["ours_ms"], "forward_ms": times["theirs_ms"]}
    row |= {name: times[name] for name in ("ratio", "ratio_low", "ratio_high")}
    row |= {"aim": AIMS[device], "met": times["ratio"] <= AIMS[device], "product_ratio": alone, "first_ms": first}
    name = torch.cuda.get_device_name() if device == "cuda" else "cpu"
    return row | {"rate": found.rate, "norm": found.norm, "true_error": error, "bound": found.error, "device": name}


def numbers(text: str) -> list[int]:
    """Return numbers written with commas."""
    return [int(part) for part in text.split(",")]


def main() -> None:
    """Measure, print, save."""
    parser = options(__doc__)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--only-T", type=numbers, default=[1000, 10_000])
    parser.add_argument("--sizes", type=numbers, default=[32, 128, 512])
    parser.add_argument("--batches", type=numbers, default=[1, 32])
    parser.add_argument("--layers", type=numbers, default=[1, 2])
    parser.add_argument("--cells", type=lambda text: text.split(","), default=list(CELLS))
    parser.add_argument("--most", type=float, default=4e9, help="leave out rows with more multiplications than this")
    parser.add_argument("--seconds", type=float, default=100.0, help="begin no row behind this time; those left out are named")
    parser.add_argument("--name", default="", help="of the file of results")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    cases = [
        (cell, (steps, batch, size), layers)
        for layers in args.layers
        for steps in args.only_T
        for size in args.sizes
        for batch in args.batches
        for cell in args.cells
        if steps * batch * size * size * layers <= args.most
    ]
    rows, start = [], time.perf_counter()
    for cell, case, layers in cases:
        if time.perf_counter() - start > args.seconds:
            print(f"left out, as time is up: {cell}, (T, B, n) = {case}, {layers} layers")
            continue
        rows.append(measure(cell, case, layers, args.device, args.repeats))
    show(rows)
    met = sum(row["met"] for row in rows)
    print(f"aim {AIMS[args.device]:g} met in {met} of {len(rows)} rows; largest ratio {max(row['ratio'] for row in rows):.3f}")
    save(args.name or f"verify-{args.device}", rows)


if __name__ == "__main__":
    main()
