"""A default device that the user has set: what reads or converts a module computes where it always does."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import steadyrnn as sr


def stable(kind: str = "rnn") -> nn.Module:
    torch.manual_seed(0)
    match kind:
        case "gru":
            layer: nn.Module = nn.GRU(3, 4)
        case "lstm":
            layer = nn.LSTM(3, 4)
        case "stack":
            layer = sr.RNN(3, 4, num_layers=2, transition=sr.SpectralBall(0.5))
        case "both":
            layer = sr.RNN(3, 4, bidirectional=True, transition=sr.SpectralBall(0.5))
        case _:
            layer = sr.RNN(3, 4, nonlinearity=kind, transition=sr.SpectralBall(0.5))
    for parameter in layer.parameters():
        parameter.data.mul_(0.25)
    return layer


KINDS = ("tanh", "relu", "gru", "lstm", "stack", "both")
x = torch.randn(300, 2, 3, generator=torch.Generator().manual_seed(1)) / 10
few = torch.tensor([300, 17])


def numbers(certificate: Any) -> str:
    return str(certificate.to_dict())


JOBS: dict[str, tuple[Callable[[nn.Module], Any], tuple[str, ...]]] = {
    "certify": (lambda m: numbers(sr.certify(m, input_bound=1.0)), KINDS),
    "certify on inputs": (lambda m: numbers(sr.certify(m, input_bound=1.0, inputs=x)), ("tanh", "relu")),
    "certify the gradient": (lambda m: sr.certify(m, input_bound=1.0).gradient_bounds(3), ("tanh", "relu", "lstm")),
    "parallel": (lambda m: sr.to_parallel(m, tol=1e-3, input_bound=1.0)(x)[0], ("tanh", "relu", "gru", "lstm", "stack")),
    "feed-forward": (lambda m: sr.to_feedforward(m, eps=1e-2, input_bound=1.0)(x), ("tanh", "relu")),
    "unitary": (lambda m: sr.to_unitary(m, input_bound=1.0)(x)[0], ("relu",)),
    "approximately unitary": (lambda m: sr.to_unitary(m, input_bound=1.0, approximate=True, horizon=20)(x[:20])[0], ("tanh",)),
    "truncation length": (lambda m: sr.suggest_bptt(m, eps=1e-2, input_bound=1.0), ("tanh", "relu", "stack")),
    "gradient flow": (lambda m: sr.gradient_flow(m, x[:20]).low, ("tanh", "relu", "gru", "lstm")),
    "gradient flow of a loss": (lambda m: sr.gradient_flow(m, x[:9], loss=lambda y: y.square().sum()).high, ("tanh",)),
    "spectrum": (lambda m: next(iter(sr.spectrum(m).values())), KINDS),
    "verify": (lambda m: sr.verify(m, x, m(x)[0]).error, ("tanh", "relu", "gru", "lstm", "stack")),
    "lengths": (lambda m: m(x, lengths=[300, 17])[0], ("tanh", "stack", "both")),
    "packed": (lambda m: m(nn.utils.rnn.pack_padded_sequence(x, few.cpu()))[0].data, ("tanh", "stack", "both")),
}
CASES = [(job, kind) for job, (_, kinds) in JOBS.items() for kind in kinds]


@pytest.mark.parametrize(("job", "kind"), CASES)
def test_a_default_device_changes_nothing(job: str, kind: str) -> None:
    run, module = JOBS[job][0], stable(kind)
    expected = run(module)
    with torch.device("meta"):  # nothing computed there has a value
        result = run(module)
    if isinstance(expected, Tensor):
        assert result.device == expected.device
        assert torch.equal(result, expected)
    else:
        assert result == expected
