"""A training step of RNN, GRU and LSTM beside torch.nn's: ``python benchmarks/bench_layers.py``."""

import torch
from measure import options, pairs, save, show
from torch import Tensor, nn

import steadyrnn as sr

SHAPES = [(784, 128, 128), (300, 32, 512), (100, 64, 256), (200, 1, 64)]
FACTORED = [(100, 64, 1024, 16), (50, 64, 2048, 32)]


def torch_layer(kind: str, size: int) -> nn.RNNBase:
    """Return torch's layer with as many inputs as units."""
    layer: nn.RNNBase = getattr(nn, kind)(size, size)
    return layer


def our_layer(kind: str, size: int, transition: str, recompute: bool = False) -> nn.Module:
    """Return our layer; ``transition`` is "free", or the reflectors per side of a Spectral candidate weight."""
    constraint = "free" if transition == "free" else sr.Spectral(reflectors=int(transition), radius=0.01)
    layer: nn.Module = getattr(sr, kind)(size, size, transition=constraint, recompute=recompute)
    return layer


def step(layer: nn.Module, x: Tensor, last: bool = False) -> None:
    """Run one forward and backward, as training does: from every output, or from the last state only."""
    layer.zero_grad(set_to_none=True)
    output, state = layer(x)
    used = (state[0] if isinstance(state, tuple) else state) if last else output
    del output, state
    used.square().mean().backward()


def check(kind: str) -> None:
    """Refuse to measure a layer that does not compute what torch's does."""
    theirs = torch_layer(kind, 16)
    ours = sr.from_torch(theirs)
    x = torch.randn(20, 4, 16)
    step(ours, x)
    step(theirs, x)
    for name, p in theirs.named_parameters():
        torch.testing.assert_close(dict(ours.named_parameters())[name].grad, p.grad)


def measure(kind: str, shape: tuple[int, int, int], transition: str, repeats: int) -> dict[str, object]:
    """Return one row of the table."""
    steps, batch, size = shape
    x = torch.randn(steps, batch, size)
    ours, theirs = our_layer(kind, size, transition), torch_layer(kind, size)
    row: dict[str, object] = {"layer": kind, "T": steps, "B": batch, "n": size, "reflectors": transition}
    return row | pairs(lambda: step(ours, x), lambda: step(theirs, x), repeats)


def main() -> None:
    """Measure and print."""
    parser = options(__doc__)
    parser.add_argument("--only", default="RNN,GRU,LSTM", help="layers to measure")
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    rows = []
    for kind in chosen.only.split(","):
        check(kind)
        for shape in SHAPES:
            rows += [measure(kind, shape, transition, chosen.repeats) for transition in ("free", "16")]
        for steps, batch, size, reflectors in FACTORED:
            rows.append(measure(kind, (steps, batch, size), str(reflectors), chosen.repeats))
    show(rows)
    save(f"layers-{chosen.threads}-threads", rows)


if __name__ == "__main__":
    main()
