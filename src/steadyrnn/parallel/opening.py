"""The beginning of a call over ranks: what every rank must have alike, and the initial state of the series."""

import hashlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from steadyrnn.bounds.norms import Norm
from steadyrnn.cells.base import State
from steadyrnn.certificates.tiers import Tier
from steadyrnn.engines.base import Comparison
from steadyrnn.errors import ArgumentError, CertificateError, ShapeError
from steadyrnn.layers.base import RecurrentLayer
from steadyrnn.layers.sequence import Opened

from .line import Line
from .ranks import Ranks

if TYPE_CHECKING:
    from .module import Parallel

__all__ = ["Ready", "open_line"]

WIDTH = 8
"""How many facts each rank tells of its call."""


class Ready(NamedTuple):
    """A call whose arguments have been checked."""

    opened: Opened
    batched: bool
    given: State | None
    proven: Any
    comparison: Comparison | None


def facts_of(module: "Parallel", ready: Ready) -> list[float]:
    """Return what other ranks are told of a call: rows, steps, gradients, initial state, arguments and weights."""
    layer, data = module.layer, ready.opened.data
    state = (*ready.proven.stamp[:2], data.dtype)
    settings = f"{type(layer).__name__} {layer.cell.key} {layer!r} {module.extra_repr()} {state}"
    wanted = any(t.requires_grad for t in reached(layer, ready))
    return [
        data.shape[1], data.shape[0], torch.is_grad_enabled(), wanted, ready.given is not None,
        checksum([settings.encode()]), *checksums(module, ready.proven),
    ]  # fmt: skip


def reached(layer: RecurrentLayer, ready: Ready) -> list[Tensor]:
    """Return every tensor that a gradient can reach."""
    return [*layer.parameters(), ready.opened.data, *(ready.given or ())]


def checksums(module: "Parallel", proven: Any) -> tuple[float, float]:
    """Return checksums of the weights and of what is proven of them, computed once for both."""
    known = module.__dict__.get("_checksums")
    if known is None or known[0] is not proven.weights:
        weights = checksum(as_bytes(tensor) for tensor in proven.weights)
        tiers = [tier for one in proven.certificates for tier in one.tiers]
        contractions = checksum(part for tier in tiers for part in (*numbers_of(tier), *described(tier.contraction.norm)))
        known = module.__dict__["_checksums"] = (proven.weights, weights, contractions)
    return known[1], known[2]


def numbers_of(tier: Tier) -> Iterator[bytes]:
    """Return the rate of a contraction and its gain of the input."""
    yield repr(tier.contraction.rate).encode()
    yield repr(tier.input_gain).encode()


def as_bytes(tensor: Tensor) -> bytes:
    """Return the numbers of a tensor."""
    found: bytes = tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()
    return found


def described(norm: Norm) -> Iterator[bytes]:
    """Return all that a norm consists of."""
    yield type(norm).__name__.encode()
    for name, value in sorted(vars(norm).items()):
        yield name.encode()
        yield as_bytes(value) if isinstance(value, Tensor) else repr(value).encode()


def checksum(parts: Any) -> float:
    """Return a checksum that a float64 holds.

    Example:
        >>> checksum([b"a"]) == checksum([b"a"]) < 2.0**48
        True
    """
    total = hashlib.sha256()
    for part in parts:
        total.update(part)
    return float(int.from_bytes(total.digest()[:6], "big"))


_ALIKE: tuple[tuple[int, type[Exception], str], ...] = (
    (
        5,
        ArgumentError,
        "`rnn` and the arguments of `to_parallel` must be the same on every rank, training mode and dtype included, but those "
        "of rank {rank} are not those of rank 0.",
    ),
    (
        6,
        ArgumentError,
        "the weights must be the same on every rank, but those of rank {rank} are not those of rank 0. Broadcast them from "
        "rank 0 first, or start every rank with the same seed.",
    ),
    (
        7,
        CertificateError,
        "the same contraction must be proven on every rank, but that of rank {rank} is not that of rank 0: norms are kept from "
        "earlier weights, and computed numbers differ between processors. Convert the layer again on all.",
    ),
    (
        0,
        ShapeError,
        "`input` must have the same number of rows on every rank, but has {own:.0f} on rank {rank} and {first:.0f} on rank 0.",
    ),
    (
        2,
        ArgumentError,
        "gradients must be on for every rank or for none, but rank {rank} and rank 0 differ: call all of them under "
        "`torch.no_grad()`, or none.",
    ),
)
"""Columns of the table of facts that must have one value, in the order in which they are compared."""


def check_alike(table: list[list[float]]) -> None:
    """Refuse calls that differ between ranks; every rank sees the same table, so all of them do."""
    first = table[0]
    for rank, row in enumerate(table):
        for column, error, message in _ALIKE:
            if row[column] != first[column]:
                raise error(message.format(rank=rank, own=row[column], first=first[column]))
        if row[4] and not first[4]:
            raise ArgumentError(f"`hx` is the state before the series, so rank 0 must give it, but rank {rank} alone does.")


def share_initial(layer: RecurrentLayer, ready: Ready, ranks: Ranks, table: list[list[float]]) -> State | None:
    """Check that all ranks agree, and return the initial state that rank 0 was given, each (L, B, H)."""
    check_alike(table)
    if not table[0][4]:
        return None
    weight, rows = next(layer.parameters()), ready.opened.data.shape[1]
    shape = (len(layer.cell.record.state_names), layer.num_layers, rows, layer.hidden_size)
    own = weight.new_zeros(shape) if ready.given is None else torch.stack(ready.given).detach().to(weight.dtype)
    shared = ranks.share(own, 0)

    def compare() -> None:
        if ready.given is not None and not torch.equal(own, shared):
            raise ArgumentError("`hx` is read from rank 0, and what another rank gives must equal it, or be None; it differs.")

    ranks.together(compare, lambda _: (), 0)
    return ready.given if ranks.rank == 0 else tuple(shared.unbind())


def open_line(module: "Parallel", ranks: Ranks, open_call: Callable[[], Ready]) -> tuple[Ready, Line]:
    """Open a call on all ranks; return what this one has of it, with rank 0's initial state, and the ranks in order of time.

    Args:
        module: What is called.
        ranks: That call it.
        open_call: Checks this rank's arguments, and proves what is needed of the weights.
    """
    ranks.prepare(next(module.layer.parameters()).device)
    ready, table = ranks.together(open_call, lambda ready: facts_of(module, ready), WIDTH)
    ready = ready._replace(given=share_initial(module.layer, ready, ranks, table))
    line = Line(ranks, [int(row[1]) for row in table], token_of(module.layer, ready, table))
    line.traffic.scalars += 8 * (WIDTH + 1)
    if table[0][4]:  # the initial state went from rank 0 to all, and a number said that what others gave is the same
        line.traffic.scalars += 8
        line.traffic.states += sum(s.numel() * s.element_size() for s in ready.given or ()) if line.first else 0
    return ready, line


def token_of(layer: RecurrentLayer, ready: Ready, table: list[list[float]]) -> Tensor | None:
    """Return, where a rank wants a gradient, the number that exchanges depend on.

    It depends on every tensor that a gradient can reach, so that ``backward`` and ``torch.autograd.grad`` make the same
    exchanges on all ranks; its own gradient is zero.
    """
    if not (table[0][2] and any(row[3] for row in table)):
        return None
    weight = next(layer.parameters())
    token = torch.zeros((), dtype=weight.dtype, device=weight.device, requires_grad=True)
    for tensor in reached(layer, ready):
        token = token + tensor.reshape(-1)[:0].sum().to(token.dtype)
    return token
