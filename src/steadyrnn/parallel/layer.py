"""Run one layer over the ranks of a group, until the error of all parts is proven small enough."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from torch import Tensor

from steadyrnn.bounds.norms import above, product_above
from steadyrnn.bounds.parts import Part, part_errors, part_tolerance
from steadyrnn.certificates.layer import LayerCertificate
from steadyrnn.certificates.rounding import Sizes
from steadyrnn.engines.base import Recurrence
from steadyrnn.engines.cuda.loops.windows import input_part
from steadyrnn.errors import NotFiniteError

from .gradients import Evidence, GradientNorm, gradient_norms, gradient_warmup
from .line import Line
from .plan import Bounds, Request, list_ways, warmups_of
from .repair import Repair
from .run import LayerResult, can_fuse, run_part
from .spread import Spread

__all__ = ["run_part_of_layer"]

_NUMBERS = 7
"""How many numbers the others are told of a part."""
_ALL = 2.0**62
"""More inputs than there are: a gradient sees all of them."""


def run_part_of_layer(
    make: Callable[[], Recurrence], requested: str, certificate: LayerCertificate, sizes: Sizes, request: Request, line: Line
) -> LayerResult:
    """Run this rank's part of one layer until all parts are proven to be good enough.

    Args:
        make: Returns the layer with the input of this rank, and the initial state: on rank 0 the true one, on others zero.
        requested: An engine's name or ``"auto"``.
        certificate: Of the layer's weights, with a rate below 1.
        sizes: Of the layer's weights.
        request: Tolerances.
        line: The ranks that run it.
    """
    begin = partial(Start.of, make, requested, certificate, request)
    width = 1 + 3 * (len(certificate.tiers) + 1)
    (run, gates, ways), table = line.together(begin, lambda start: numbers_of_ways(start[2], request), width)
    certificate, bounds = agree_on_way(ways, table)
    steps = [line.steps[rank] for rank in line.members]
    own, least = request._replace(tol=part_tolerance(request.tol, certificate.best.rate, steps), linked=True), 0
    norms: tuple[GradientNorm, ...] = ()
    if request.refusal is None:
        norms = gradient_norms(certificate, bounds.radius, bounds.states, bounds.inputs)
        least = 0 if request.gradient_tol is None else gradient_warmup(norms, request.gradient_tol)

    def run_own() -> Repair:
        result = run_part(run, requested, certificate, bounds, sizes, own, gates)
        if not all(bool(s.isfinite().all()) for s in result.state):
            raise NotFiniteError("`input` holds NaN or infinity, or drives states there; nothing can be proven of it.")
        return Repair(run, requested, result, certificate, bounds, own, least)

    part, table = line.together(run_own, lambda part: numbers_of(part, sizes, line.first), _NUMBERS)
    table, errors = join_parts(part, sizes, request.tol, least, table, line)
    record = replace(
        part.result.record, truncation=truncation_of(certificate, errors), rounding=max(row[-1] for row in table),
        depth=part.result.record.depth + part.depth, repeated=part.repeated, exchanges=part.sweeps,
    )  # fmt: skip

    def close() -> LayerResult:
        factors = Spread(norms, *part.first_contexts(line.first)) if norms and line.token is not None else None
        return LayerResult(part.output(), part.end, record, Evidence(factors, request.refusal), None, run)

    return line.together(close, lambda _: (), 0)[0]


class Start(NamedTuple):
    """A layer before it runs."""

    run: Recurrence
    gates: Tensor | None
    ways: list[tuple[LayerCertificate, Bounds]]

    @classmethod
    def of(cls, make: Callable[[], Recurrence], requested: str, certificate: LayerCertificate, request: Request) -> "Start":
        """Return what every way to run the layer begins with."""
        run = make()
        gates = input_part(run) if can_fuse(run, requested) else None  # on its way while windows are planned
        return cls(run, gates, list_ways(run, certificate, request))


def numbers_of_ways(ways: Sequence[tuple[LayerCertificate, Bounds]], request: Request) -> list[float]:
    """Return the largest input, and of each way its warm-up and bounds on states."""
    found = [ways[0][1].inputs]
    for (_, bounds), warmup in zip(ways, warmups_of(ways, request), strict=True):
        found += [warmup, bounds.radius, bounds.states]
    return found


def agree_on_way(
    ways: Sequence[tuple[LayerCertificate, Bounds]], table: Sequence[Sequence[float]]
) -> tuple[LayerCertificate, Bounds]:
    """Return the contraction that needs the shortest warm-up on the rank that needs most, and bounds for all ranks."""
    worst = [max(row[place] for row in table) for place in range(1 + 3 * len(ways))]
    best = min(range(len(ways)), key=lambda way: worst[1 + 3 * way])
    certificate, bounds = ways[best]
    return certificate, replace(bounds, radius=worst[2 + 3 * best], states=worst[3 + 3 * best]).with_inputs(worst[0])


def numbers_of(part: Repair, sizes: Sizes, first: bool) -> list[float]:
    """Return what other ranks are told of a part."""
    own = part.part(0.0)
    context = min(part.end_context(first), _ALL)
    return [own.repeated, own.jump, own.own, part.change, part.moved, context, part.rounding(sizes)]


def join_parts(
    part: Repair, sizes: Sizes, tol: float, least: int, table: list[list[float]], line: Line
) -> tuple[list[list[float]], list[float]]:
    """Pass end states to the right until all parts are proven to be good enough; return numbers and errors of all ranks.

    Behind as many exchanges as there are ranks everything is exact, so this ends.
    """
    norm, rate = part.contraction.norm, part.contraction.rate
    errors = part_errors(rate, parts_of(table, line))
    for _ in line.members[1:]:
        moved = [bool(row[4]) for row in table]
        contexts = [math.inf if row[5] >= _ALL else row[5] for row in table]
        state = line.exchange(part.end, moved)
        seen = math.inf if line.left is None else contexts[line.left]
        _, table = line.together(
            lambda state=state, seen=seen: part.receive(state, seen),  # type: ignore[misc]
            lambda _: numbers_of(part, sizes, line.first),
            _NUMBERS,
        )
        errors = part_errors(rate, parts_of(table, line))
        good = above(max(errors) / norm.lower) <= tol
        still = any(table[rank][4] for rank in line.members[:-1])
        if not still or (good and least <= min(contexts[rank] for rank in line.members[:-1])):
            break
    return table, errors


def parts_of(table: Sequence[Sequence[float]], line: Line) -> list[Part]:
    """Return the parts of all members from their numbers."""
    found, change = [], 0.0
    for rank in line.members:
        repeated, jump, own = table[rank][:3]
        found.append(Part(line.steps[rank], int(repeated), jump, change, own))
        change = table[rank][3]
    return found


def truncation_of(certificate: LayerCertificate, errors: Sequence[float]) -> float:
    """Return the bound on the 2-norm of the error of every output."""
    largest = max(errors)
    return 0.0 if largest == 0 else above(product_above(largest, 1 / certificate.best.norm.lower))
