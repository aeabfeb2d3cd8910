"""Every kind of kernel once, small: ``compute-sanitizer --tool memcheck python benchmarks/sanitize.py``."""

import torch

import steadyrnn as sr

STEPS = 4
LENGTHS = [4, 2, 3, 0, 1]
DENSE = (20, 128, 129, 300, 777)  # in one block and in clusters of several sizes
GATED = (20, 129, 384)
FAR = 600  # rows: with as many, 777 units (a gated layer's 505) are in blocks that are no cluster, and 300 in sets


def train(layer: torch.nn.Module, batch: int, lengths: list[int] | None = None) -> None:
    """Run a layer forward and backward."""
    weight = layer.get_parameter("weight_ih_l0")
    x = torch.randn(STEPS, batch, weight.shape[1], device="cuda", dtype=weight.dtype, requires_grad=True)
    output = layer(x, lengths=lengths)[0] if lengths else layer(x)[0]
    output.backward(torch.ones_like(output))


def main() -> None:
    """Run them all."""
    torch.manual_seed(0)
    for dtype in (torch.float32, torch.bfloat16):
        for nonlinearity in ("tanh", "abs"):
            for size in DENSE:
                train(sr.RNN(3, size, nonlinearity=nonlinearity, engine="cuda", device="cuda", dtype=dtype), 5, LENGTHS)
        train(sr.RNN(3, 128, engine="cuda", device="cuda", dtype=dtype), 600)
        for size in GATED:
            for kind in (sr.GRU, sr.LSTM):
                train(kind(3, size, engine="cuda", device="cuda", dtype=dtype), 5, LENGTHS)
        for size in (300, 777):
            train(sr.RNN(3, size, engine="cuda", device="cuda", dtype=dtype), FAR)
            train(sr.RNN(3, size, engine="cuda", device="cuda", dtype=dtype), FAR, LENGTHS * (FAR // len(LENGTHS)))
        train(sr.LSTM(3, 505, engine="cuda", device="cuda", dtype=dtype), FAR)
    for size in (128, 300, 700):
        train(sr.RNN(3, size, transition=sr.Spectral(reflectors=8), engine="cuda", device="cuda"), 5, LENGTHS)
    layer = torch.nn.RNN(3, 20).cuda()
    weight = layer.get_parameter("weight_hh_l0")
    with torch.no_grad():
        weight.mul_(0.5 / torch.linalg.matrix_norm(weight, 2))
        sr.to_parallel(layer, 1e-4)(torch.randn(4096, 1, 3, device="cuda"))
    torch.cuda.synchronize()
    print("every kind of kernel has run")


if __name__ == "__main__":
    main()
