"""The time of ``sr.verify`` beside a forward pass of the same layer: ``python benchmarks/verify.py``.

``--device cuda`` for a GPU; ``--only-T 1000 --sizes 128 --batches 1 --cells LSTM --layers 1`` keep a run short. The norm in
which the layer contracts is looked for before: that is done once for some weights.
"""

from typing import Any

import torch
from measure import options, pairs, save, show
from torch import Tensor, nn

import steadyrnn as sr

CELLS = ("RNN", "GRU", "LSTM")


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


@torch.no_grad()
def measure(cell: str, case: tuple[int, int, int], layers: int, device: str, repeats: int) -> dict[str, Any]:
    """Return one row of the table."""
    steps, batch, size = case
    torch.manual_seed(0)
    layer = stable(cell, size, layers, device)
    x: Tensor = nn.functional.normalize(torch.randn(steps, batch, size, device=device), dim=-1)
    output, _ = layer(x)
    wide = layer.double()
    truth = wide(x.double())[0]
    layer = layer.float()
    error, found = float((output.double() - truth).norm(dim=-1).max()), sr.verify(layer, x, output)
    if not error <= found.error:
        raise SystemExit(f"broken promise: {error}, {found}")
    times = pairs(finished(lambda: sr.verify(layer, x, output), device), finished(lambda: layer(x), device), repeats)
    row = {"cell": cell, "T": steps, "B": batch, "n": size, "layers": layers}
    row |= {"verify_ms": times["ours_ms"], "forward_ms": times["theirs_ms"]}
    row |= {name: times[name] for name in ("ratio", "ratio_low", "ratio_high")}
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
    parser.add_argument("--name", default="", help="of the file of results")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    rows = [
        measure(cell, (steps, batch, size), layers, args.device, args.repeats)
        for cell in args.cells
        for size in args.sizes
        for batch in args.batches
        for steps in args.only_T
        for layers in args.layers
        if steps * batch * size * size * layers <= args.most
    ]
    show(rows)
    print(f"largest ratio {max(row['ratio'] for row in rows):.3f}")
    save(args.name or f"verify-{args.device}", rows)


if __name__ == "__main__":
    main()
