"""Every kind of kernel once, small: ``compute-sanitizer --tool memcheck python benchmarks/sanitize.py``.

``--only far`` runs one group of them, ``--but far`` all but one. ``--poisoned`` fills fresh memory with NaN and looks for it in
every result, for which no sanitizer is needed: what initcheck says of memory that kernels fill through messages can be held
against it.
"""

import argparse
from collections.abc import Callable

import torch

import steadyrnn as sr

STEPS = 4
LENGTHS = [4, 2, 3, 0, 1]
DENSE = (20, 128, 129, 300, 777)  # in one block and in clusters of several sizes
GATED = (20, 129, 384)
FAR = 600  # rows: with as many, 777 units (505 of an LSTM in float32) are in blocks that are no cluster, and 300 post messages
DTYPES = (torch.float32, torch.bfloat16)


def check(*tensors: torch.Tensor | None) -> None:
    """Refuse NaN: nothing here gives any, unless memory is read that nobody has written."""
    for tensor in tensors:
        if tensor is not None and bool(tensor.isnan().any()):
            raise SystemExit("NaN: memory was read that nobody had written")


def train(layer: torch.nn.Module, batch: int, lengths: list[int] | None = None, steps: int = STEPS) -> None:
    """Run a layer forward and backward."""
    weight = layer.get_parameter("weight_ih_l0")
    x = torch.randn(steps, batch, weight.shape[1], device="cuda", dtype=weight.dtype, requires_grad=True)
    output = layer(x, lengths=lengths)[0] if lengths else layer(x)[0]
    output.backward(torch.ones_like(output))
    check(output, x.grad, *(parameter.grad for parameter in layer.parameters()))


def dense() -> None:
    """Elman layers in one block and in clusters."""
    for dtype in DTYPES:
        for nonlinearity in ("tanh", "abs"):
            for size in DENSE:
                train(sr.RNN(3, size, nonlinearity=nonlinearity, engine="cuda", device="cuda", dtype=dtype), 5, LENGTHS)
        train(sr.RNN(3, 128, engine="cuda", device="cuda", dtype=dtype), 600)


def gated() -> None:
    """GRU and LSTM."""
    for dtype in DTYPES:
        for size in GATED:
            for kind in (sr.GRU, sr.LSTM):
                train(kind(3, size, engine="cuda", device="cuda", dtype=dtype), 5, LENGTHS)


def far() -> None:
    """Messages by way of device memory, in a cluster and in blocks that are none."""
    for dtype in DTYPES:
        for size in (300, 777):
            train(sr.RNN(3, size, engine="cuda", device="cuda", dtype=dtype), FAR)
            train(sr.RNN(3, size, engine="cuda", device="cuda", dtype=dtype), FAR, LENGTHS * (FAR // len(LENGTHS)))
        train(sr.LSTM(3, 505, engine="cuda", device="cuda", dtype=dtype), FAR)


def factored() -> None:
    """Weights in factors, whose adjoint puts sums aside every 64 steps."""
    for dtype in DTYPES:
        for size in (300, 700):
            layer = sr.RNN(3, size, transition=sr.Spectral(reflectors=8), engine="cuda", device="cuda", dtype=dtype)
            train(layer, 5, LENGTHS)
            train(layer, 300, steps=70)


def bf16x3() -> None:
    """Weight gradients and input projections on the tensor cores."""
    for width in (3, 8):
        train(sr.RNN(width, 512, engine="cuda", device="cuda"), 2800)
    train(sr.LSTM(36, 256, engine="cuda", device="cuda"), 2800)
    train(sr.GRU(40, 344, engine="cuda", device="cuda"), 2800)


def windows() -> None:
    """Windows of time and their adjoint, and norms of many inputs and cotangents."""
    for size, name in ((20, "tanh"), (77, "relu"), (128, "tanh")):
        layer = torch.nn.RNN(64, size, nonlinearity=name).cuda()
        weight = layer.get_parameter("weight_hh_l0")
        with torch.no_grad():
            weight.mul_(0.5 / torch.linalg.matrix_norm(weight, 2))
        fast, x = sr.to_parallel(layer, 1e-4, chunk=250), torch.randn(2**16, 1, 64, device="cuda")
        with torch.no_grad():
            check(fast(x)[0])
        output = fast(x)[0]
        check(output)
        output.square().sum().backward()
        for parameter in fast.parameters():
            check(parameter.grad)


GROUPS: dict[str, Callable[[], None]] = {
    "dense": dense, "gated": gated, "far": far, "factored": factored, "bf16x3": bf16x3, "windows": windows,
}  # fmt: skip


def main() -> None:
    """Run them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=GROUPS, help="run one group")
    parser.add_argument("--but", choices=GROUPS, help="leave one out")
    parser.add_argument("--poisoned", action="store_true", help="fill fresh memory with NaN")
    options = parser.parse_args()
    if options.poisoned:
        torch.use_deterministic_algorithms(True, warn_only=True)  # then torch fills what nobody has written yet
    torch.manual_seed(0)
    for name, run in GROUPS.items():
        if options.only in (None, name) and options.but != name:
            run()
    torch.cuda.synchronize()
    print("every kind of kernel has run" if options.only is options.but is None else "those kernels have run")


if __name__ == "__main__":
    main()
