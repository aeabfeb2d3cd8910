"""Four processes with gloo, and every kind of layer in them.

``python -m tests.parallel.processes FOLDER [DEVICE]`` writes what each found as JSON.

The processes are forked from one that has imported torch, so that this is paid for once.
"""

import json
import math
import multiprocessing
import os
import sys
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

import steadyrnn as sr
from tests.parallel.layers import gated_of, rnn_of, states_of, unit_inputs

SIZE = 4
LOST = 7
"""What the process that is killed returns."""
PARTS = {"long": (300, 280, 20, 300), "short": (9, 0, 5, 12)}


def main(folder: str, device: str = "cpu") -> None:
    """Run all processes, and wait for them."""
    context = multiprocessing.get_context("fork")
    workers = [context.Process(target=work, args=(rank, folder, device)) for rank in range(SIZE)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    Path(folder, "ends.json").write_text(json.dumps([worker.exitcode for worker in workers]))


def work(rank: int, folder: str, device: str) -> None:
    """Run every case as one rank, and write what was found."""
    torch.manual_seed(0)
    store = dist.FileStore(str(Path(folder, "store")), SIZE)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=SIZE, timeout=timedelta(seconds=60))
    found: dict[str, Any] = {name: case(rank, device=device) for name, case in cases().items()}
    found["errors"] = {name: message(lambda case=case: case(rank)) for name, case in mistakes().items()}
    found["pair"] = of_two(rank)
    if rank == SIZE - 1:
        Path(folder, f"{rank}.json").write_text(json.dumps(found))
        os._exit(LOST)  # in the middle of what the others wait for
    found["lost"] = message(lambda: sr.to_parallel(rnn_of(0.8), 1e-6, group=True)(unit_inputs(20, 2, 5)))
    Path(folder, f"{rank}.json").write_text(json.dumps(found))
    os._exit(0)


def message(call: Callable[[], Any]) -> str:
    """Return the class and the text of the error that a call raises."""
    try:
        call()
    except Exception as error:  # which one is the question
        return f"{type(error).__name__}: {error}"
    return "no error"


def cases() -> dict[str, Callable[[int], dict[str, Any]]]:
    """Return what is run, by name."""
    found: dict[str, Callable[[int], dict[str, Any]]] = {}
    kinds = [(name, 1, torch.float64) for name in ("tanh", "relu", "identity", "LSTM", "GRU")]
    kinds += [("tanh", 2, torch.float32), ("LSTM", 2, torch.float64), ("tanh", 1, torch.float32), ("GRU", 2, torch.float32)]
    for name, layers, dtype in kinds:
        for parts in PARTS:
            key = f"{name} {layers} {str(dtype)[-7:]} {parts}"
            found[key] = partial(compare, name=name, layers=layers, dtype=dtype, parts=parts)
    return found


def layer_of(name: str, layers: int, dtype: torch.dtype) -> nn.Module:
    torch.manual_seed(1)
    if name in ("LSTM", "GRU"):
        return gated_of(name, dtype, num_layers=layers)
    return rnn_of(0.8, name, num_layers=layers, dtype=dtype)


def compare(rank: int, *, name: str, layers: int, dtype: torch.dtype, parts: str, device: str) -> dict[str, Any]:
    """Run a series over the processes and alone, in float64; return errors and what is promised."""
    layer, sizes = layer_of(name, layers, dtype).to(device), list(PARTS[parts])
    fast = sr.to_parallel(layer, 1e-6, chunk=40, input_bound=1.0, verify=True, group=True)
    x = unit_inputs(sum(sizes), 2, 5, dtype=dtype).to(device)
    h = 0.3 * torch.ones(layers, 2, layer.hidden_size, dtype=dtype, device=device)
    hx = (h, h) if name == "LSTM" else h
    output, state = fast(x.split(sizes)[rank], hx if rank == 0 else None)
    weighted(output, state, rank).backward()
    gradient = [p.grad.double() for p in layer.parameters()]
    for one in gradient:
        dist.all_reduce(one)
    truth = layer_of(name, layers, dtype).double().to(device)
    whole, last = truth(x.double(), tuple(s.double() for s in hx) if name == "LSTM" else hx.double())
    sum(weighted(part, last, r) for r, part in enumerate(whole.split(sizes))).backward()
    pairs = [(output, whole.split(sizes)[rank]), *zip(states_of(state), states_of(last), strict=True)]
    gaps = [float((a.detach().double() - b.detach()).norm(dim=-1).max()) for a, b in pairs[:2] if a.numel()]
    named = zip(gradient, truth.named_parameters(), strict=True)
    kept = [(a, b) for a, (n, b) in named if "bias_hh" not in n]
    wrong = float(torch.cat([(a - b.grad).flatten() for a, b in kept]).norm())
    size = float(torch.cat([b.grad.flatten() for _, b in kept]).norm())
    report = json.loads(json.dumps(fast.report.to_dict()))
    return {"error": max(gaps), "wrong": wrong, "size": size, "report": report}


def weighted(output: Tensor, state: Any, rank: int) -> Tensor:
    """Return a linear loss, of the final state on the last rank."""
    total = (output * torch.cos(1.0 + torch.arange(output.numel(), device=output.device)).view(output.shape)).sum()
    return total + states_of(state)[0].sum() if rank == SIZE - 1 else total


def of_two(rank: int) -> dict[str, Any]:
    """Run over a group of two of the processes, in another order of time than their numbers."""
    groups = [dist.new_group([1, 3]), dist.new_group([0, 2])]
    group = groups[0] if rank in (1, 3) else groups[1]
    layer, x = layer_of("tanh", 1, torch.float64), unit_inputs(200, 2, 5)
    fast = sr.to_parallel(layer, 1e-6, group=group)
    with torch.no_grad():
        output = fast(x.split(100)[dist.get_rank(group)])[0]
        truth = layer(x)[0].split(100)[dist.get_rank(group)]
    stranger = message(lambda: sr.to_parallel(layer, 1e-6, group=groups[1 if rank in (1, 3) else 0]))
    return {"error": float((output - truth).norm(dim=-1).max()), "allowed": fast.report.error, "stranger": stranger}


def mistakes() -> dict[str, Callable[[int], Any]]:
    """Return calls that must fail on every rank, and alike."""
    x = unit_inputs(20, 2, 5)

    def run(*arguments: Any, layer: nn.Module | None = None, tol: float = 1e-6, **options: Any) -> Any:
        return sr.to_parallel(layer or layer_of("tanh", 1, torch.float64), tol, group=True)(*arguments, **options)

    def off(rank: int) -> None:
        with torch.set_grad_enabled(rank != 1):
            run(x)

    def other(rank: int) -> nn.Module:
        layer = layer_of("tanh", 1, torch.float64)
        with torch.no_grad():
            layer.bias_ih_l0[0] += 1e-9 * (rank == 2)
        return layer

    h = torch.zeros(1, 2, 12, dtype=torch.float64)
    return {
        "rows": lambda rank: run(unit_inputs(20, 2 + (rank == 2), 5)),
        "shape": lambda rank: run(unit_inputs(20, 2, 5 + (rank == 1))),
        "nan": lambda rank: run(x * (math.nan if rank == 2 else 1.0)),
        "weights": lambda rank: run(x, layer=other(rank)),
        "arguments": lambda rank: run(x, tol=1e-6 * (1 + (rank == 3))),
        "gradients": off,
        "lengths": lambda rank: run(x, lengths=[20, 3] if rank == 1 else None),
        "hx of another": lambda rank: run(x, h if rank == 2 else None),
        "hx differs": lambda rank: run(x, h + (rank == 2)),
    }


if __name__ == "__main__":
    main(*sys.argv[1:])
