"""A run in, a proven bound on its error out."""

import math
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import replace
from threading import Lock
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from steadyrnn.bounds.norms import TINY, above
from steadyrnn.cells.base import Cell, State
from steadyrnn.checks import autocasts, carries_transform, check_finite, without_autocast
from steadyrnn.engines.reference import running_rows
from steadyrnn.engines.select import ENGINES, select
from steadyrnn.errors import (
    ArgumentError,
    ArgumentTypeError,
    CertificateError,
    DeviceError,
    EngineError,
    NotFiniteError,
    ShapeError,
)
from steadyrnn.layers.sequence import Opened, check_input, check_states, open_sequence

from .certify import certify_layer, check_bound, check_effort, cover_rounding, digest_of, only_layer
from .layer import Weights, cell_of, is_recurrent, read_weights, used_tensors
from .layer_errors import LayerErrors, layer_errors
from .proof import Proof, covering_state, proof_of, recurrence_of, round_coarsely
from .rounding import largest_norm
from .theories import THEORIES
from .verification import LayerVerification, Verification

__all__ = ["verify"]


def verify(
    module: nn.Module,
    input: Tensor | PackedSequence,
    output: Tensor | PackedSequence,
    hx: Any = None,
    *,
    lengths: Tensor | Sequence[int] | None = None,
    input_bound: float | None = None,
    effort: str = "auto",
) -> Verification:
    r"""Bound the error of a computed run, rounding included, from its outputs alone.

    .. math:: e_t = \lambda e_{t-1} + r_t, \qquad r_t = N(\hat h_t - \varphi(\hat h_{t-1}, x_t))

    The outputs :math:`\hat h_t` may come from anywhere: float32 or less, any engine, windows of time, another program,
    or hands that changed them. Each step is evaluated once more in float64, from the output before it; what the output behind
    it has over is :math:`r_t`. Since a step contracts by :math:`\lambda < 1`, the error of every :math:`\hat h_t` is at
    most :math:`e_t`. See Note [verification] for LSTM, stacks and directions.

    No step waits for another: all time steps are one matrix product in float64. The first call for some weights
    also looks for the norm in which they contract, as :func:`certify` does. Of a stack, layers below the last are
    run again, as their outputs are not among the module's.

    Args:
        module: An RNN, GRU or LSTM of ours or of ``torch.nn``, or a module that holds exactly one; a stack, bidirectional
            or both.
        input: What the layer was given: (T, B, D), (B, T, D) if ``batch_first``, (T, D) unbatched, or packed.
        output: What is to be verified, in the form the layer returns it; any real floating dtype.
        hx: The initial state the run started from, as the layer takes it; zero or the learned one if None.
        lengths: Length of each row, where the layer was given them.
        input_bound: Bound on the 2-norm of every :math:`x_t`, checked. A gated layer's contraction depends on it; without
            one the largest entry of ``input`` is taken.
        effort: How far to look for a norm, as :func:`certify` has it.

    Returns:
        The bound for all outputs, and for each.

    Raises:
        CertificateError: No contraction is proven for a layer, so its run cannot be verified.
        NotFiniteError: NaN or infinity in input, output, initial state or weights.
        ShapeError: ``output`` is not of the shape the layer returns.
        ArgumentError: Dropout is at work between layers, or ``input`` is larger than ``input_bound``.

    Example:
        >>> rnn = sr.RNN(3, 8, transition=sr.SpectralBall(0.8))
        >>> x = torch.randn(1000, 2, 3)
        >>> output, _ = rnn(x)
        >>> sr.verify(rnn, x, output).error < 1e-5
        True
        >>> output[500, 1] += 0.1
        >>> sr.verify(rnn, x, output).error > 0.1
        True
    """
    check_effort(effort)
    layer = check_layer(module, input, output)
    weights = known_weights(layer)
    cell, ways, batch_first = weights[0][0].cell, len(weights[0]), bool(getattr(layer, "batch_first", False))
    opened, batched = open_sequence(input, lengths, batch_first)
    dtype = check_input(layer, opened.data, layer.weight_ih_l0)
    data = opened.data.detach().to(dtype)
    start = starts(weights, hx, cell, opened, batched, dtype, layer.weight_ih_l0)
    computed = open_output(input, output, opened, batched, batch_first, ways * weights[0][0].size)
    bound = check_input_bound(input_bound, data)
    with torch.no_grad(), without_autocast(data.device):
        try:
            errors, records = Run(weights, data, start, opened.batch_sizes, effort).through(computed, bound)
        except NotFiniteError:  # which is looked for here only: each time it would cost as much as a step
            check_finite("input", data)
            check_finite("output", computed)
            raise
    if opened.restore is not None:
        errors = errors.index_select(1, opened.restore)
    errors = errors if batched else errors.squeeze(1)
    plain = opened.batch_sizes is None and ways == 1  # else errors are put together of those of layers
    largest = records[-1].error if plain else float(errors.max()) if errors.numel() else 0.0
    shown = errors.transpose(0, 1) if batch_first and batched and isinstance(input, Tensor) else errors
    return Verification(type(module).__name__, largest, tuple(records), shown)


def check_layer(module: nn.Module, *sequences: Any) -> Any:
    """Return the recurrent layer that a run is of."""
    if not isinstance(module, nn.Module):
        raise ArgumentTypeError(f"`module` must be a module, but is of type {type(module).__name__}.")
    layer: Any = module if is_recurrent(module) else only_layer(module)
    if not hasattr(layer, "num_layers"):
        raise ArgumentTypeError(
            f"`module` must run over a sequence, but {type(layer).__name__} takes one step: verify a layer."
        )
    if carries_transform(*(s for s in sequences if isinstance(s, Tensor)), *layer.parameters()):
        raise EngineError("A run is verified by numbers, which forward-mode AD and torch.func do not give: call it outside.")
    if layer.training and layer.num_layers > 1 and layer.dropout:
        raise ArgumentError(
            "`module` drops outputs between its layers at random, so a run cannot be evaluated again: verify it after "
            "`eval()`, or have `to_parallel` verify its own."
        )
    return layer


def starts(
    weights: list[list[Weights]], hx: Any, cell: Cell, opened: Opened, batched: bool, dtype: torch.dtype, weight: Tensor
) -> list[State]:
    """Return the initial state of each layer and direction, each (B, H), rows sorted as the data's."""
    flat, rows = [way for ways in weights for way in ways], opened.data.shape[1]
    if hx is None:
        zeros = opened.data.new_zeros(rows, flat[0].size, dtype=dtype)
        return [tuple(s.to(zeros).expand_as(zeros) for s in way.initial) or (zeros,) * cell.states for way in flat]
    states = tuple(hx) if isinstance(hx, tuple | list) else (hx,)
    if len(states) != cell.states:
        wanted = "a pair (h_0, c_0)" if cell.states == 2 else "one tensor"
        raise ArgumentTypeError(f"`hx` must be {wanted} for this layer, but has {len(states)} parts.")
    expected = (len(flat), rows, flat[0].size) if batched else (len(flat), flat[0].size)
    given = check_states(states, expected, weight) or ()
    given = tuple(check_finite("hx", s.detach().to(dtype)) for s in given)
    given = tuple(opened.arrange(s if batched else s.unsqueeze(1)) for s in given)
    return [tuple(s[place] for s in given) for place in range(len(flat))]


def open_output(
    input: Tensor | PackedSequence, output: Any, opened: Opened, batched: bool, batch_first: bool, width: int
) -> Tensor:
    """Return outputs as (T, B, O), rows sorted as the data's, if they have the form of the layer's."""
    packed = isinstance(input, PackedSequence)
    kind = "a PackedSequence, as `input` is" if packed else "a tensor"
    if not isinstance(output, PackedSequence if packed else Tensor):
        hint = " Give the first of what the layer returns." if isinstance(output, tuple) and not packed else ""
        raise ArgumentTypeError(f"`output` must be {kind}, but is of type {type(output).__name__}.{hint}")
    numbers: Tensor = output.data if isinstance(output, PackedSequence) else output
    numbers = numbers.float() if numbers.dtype.itemsize == 1 and numbers.is_floating_point() else numbers  # exact
    like: Tensor = input.data if isinstance(input, PackedSequence) else input
    if numbers.device != like.device:
        raise DeviceError(f"`output` is on {numbers.device}, but `input` is on {like.device}. Move one of them.")
    if not numbers.is_floating_point():
        raise ArgumentTypeError(f"`output` must have a real floating dtype, but has {numbers.dtype}.")
    expected = (*like.shape[:-1], width)
    if tuple(numbers.shape) != expected:
        raise ShapeError(f"`output` must have shape {expected}, as the layer returns it, but has {tuple(numbers.shape)}.")
    if isinstance(input, PackedSequence) and isinstance(output, PackedSequence):
        if not same_rows(input, output):
            raise ArgumentError("`output` must be packed as `input` is, but its rows have other lengths or another order.")
        return open_sequence(output, None, batch_first)[0].data.detach()
    numbers = numbers.detach()
    if not batched:
        return numbers.unsqueeze(1)
    return opened.arrange(numbers.transpose(0, 1) if batch_first else numbers)


def same_rows(one: PackedSequence, other: PackedSequence) -> bool:
    """Say whether two packed sequences have the same lengths in the same order."""
    if not torch.equal(one.batch_sizes, other.batch_sizes):
        return False
    rows = range(int(one.batch_sizes[0]) if len(one.batch_sizes) else 0)
    orders = (list(rows) if p.sorted_indices is None else p.sorted_indices.tolist() for p in (one, other))
    return next(orders) == next(orders)


def check_input_bound(input_bound: Any, data: Tensor) -> float | None:
    """Return a bound on the inputs that covers them, or None."""
    bound = check_bound(input_bound)
    if bound is None:
        return None
    covered = cover_rounding(bound)
    if data.numel() and not largest_norm(data.double()) <= (covered or 0.0):
        largest = float(torch.linalg.vector_norm(data.double(), dim=-1).max())
        raise ArgumentError(f"`input` must have a 2-norm of at most {bound:g} (`input_bound`), but reaches {largest:.6g}.")
    return covered


class Run(NamedTuple):
    """What a stack was run on, opened."""

    weights: list[list[Weights]]
    data: Tensor  # (T, B, D)
    start: list[State]
    batch_sizes: Tensor | None
    effort: str

    def through(self, output: Tensor, bound: float | None) -> tuple[Tensor, list[LayerVerification]]:
        """Return bounds on the errors of outputs (T, B, O), and a record for each layer and direction."""
        data, entering, records = self.data, None, []
        for place, ways in enumerate(self.weights):
            last = place == len(self.weights) - 1
            measured = bound is None and needs_inputs(ways[0])
            entries = reach_of(data, entering) if measured else bound or 0.0
            parts, computed = [], []
            for way, weights in enumerate(ways):
                state = self.start[place * len(ways) + way]
                run = recurrence_of(weights, data, state, self.batch_sizes, bool(way))
                done = output[..., way * weights.size :][..., : weights.size] if last else run_layer(run)
                proof = known_proof(weights, state, entries, self.effort, exactly=bound is not None)
                parts.append(layer_errors(proof, run, done, entering))
                computed.append(done)
            data = computed[0] if len(ways) == 1 else torch.cat(computed, dim=-1)
            entering, bound = join_errors(parts), None
            records += [part.record for part in parts]
        if entering is None:
            raise ArgumentError("`module` has no layers.")
        return behind_the_end(entering, output, self.batch_sizes), records


def needs_inputs(weights: Weights) -> bool:
    """Say whether a layer's proof is for inputs of bounded entries only; an Elman layer's is for any input."""
    theory = THEORIES.get(weights.cell.record.theorem)
    return theory is not None and theory.needs_inputs


def run_layer(run: Any) -> Tensor:
    """Return the outputs of a layer, from the engine that is best for it."""
    return ENGINES[select("auto", run).engine].run(run)[0]


def reach_of(data: Tensor, entering: Tensor | None) -> float:
    """Return a bound on the entries of the true input of a layer, from the computed one and its error."""
    if not data.numel():
        return 0.0
    largest = float(torch.stack(torch.aminmax(data)).abs().max())  # NaN where there is one
    if not math.isfinite(largest):
        raise NotFiniteError("`input` holds NaN or infinity.")
    return largest if entering is None else above(largest + float(entering.max()))


def join_errors(parts: list[LayerErrors]) -> Tensor:
    """Return the errors of both directions side by side."""
    if len(parts) == 1:
        return parts[0].errors
    return torch.hypot(parts[0].errors, parts[1].errors).mul_(above(1.0))


def behind_the_end(errors: Tensor, output: Tensor, batch_sizes: Tensor | None) -> Tensor:
    """Return errors (T, B) with those where rows have ended: outputs are zero there, so what they are is their error."""
    if batch_sizes is None:
        return errors
    running = running_rows(batch_sizes, output.shape[1], output.device)
    width, there = output.shape[-1], (output != 0).any(-1)
    norms = torch.linalg.vector_norm(output.double(), dim=-1) * above(1.0, 64 + width) + there.double() * math.sqrt(
        width * TINY
    )
    found = torch.where(running, errors, norms)
    if found.numel() and not math.isfinite(float(found.max())):
        raise NotFiniteError("`output` holds NaN or infinity behind the end of a row, or numbers whose squares overflow.")
    return found


_READ: "WeakKeyDictionary[nn.Module, tuple[tuple[Any, ...], Tensor, list[list[Weights]]]]" = WeakKeyDictionary()
"""What was read of a module last, and the numbers that it was read from, one after another."""


@torch.no_grad()
def known_weights(layer: nn.Module) -> list[list[Weights]]:
    """Return a layer's weights in float64, converted anew only if one differs from what was read last.

    Every number is compared, on the device: an optimizer's step, a loaded file or a change through ``data`` all show.
    """
    given, cell = used_numbers(layer), cell_of(layer)
    autocast = [(autocasts(t.device), torch.get_autocast_dtype(t.device.type)) for t in given[:1] if not t.is_meta]
    form = (type(layer), cell.key, *autocast, *((t.dtype, t.device, t.shape) for t in given))
    numbers = torch.cat([t.flatten() for t in given])  # so that a GPU is waited for once
    if layer in _READ:
        known, before, weights = _READ[layer]
        if known == form and torch.equal(numbers, before):
            return [[way if way.cell is cell else same_numbers(way, cell) for way in ways] for ways in weights]
    weights = read_weights(layer)
    _READ[layer] = (form, numbers, weights)
    return weights


def used_numbers(layer: nn.Module) -> list[Tensor]:
    """Return the tensors that a layer uses; if a constraint cannot make its weight, NaN is looked for in what it is made of."""
    try:
        return used_tensors(layer)
    except RuntimeError:
        for name, tensor in (*layer.named_parameters(), *layer.named_buffers()):
            check_finite(name, tensor)
        raise


def same_numbers(weights: Weights, cell: Cell) -> Weights:
    """Return weights with another cell, and with what is known of their numbers."""
    found = replace(weights, cell=cell)
    found.casts.update(weights.casts)
    found.checksum.extend(weights.checksum)  # into which the cell's key goes, and that is the same
    return found


_KNOWN: OrderedDict[tuple[Any, ...], Proof] = OrderedDict()
"""Proofs by a checksum of the weights and the cell itself, as an activation may be defined anew under the same name."""
_MOST = 16
_LOCK = Lock()


def known_proof(weights: Weights, state: State, entry_bound: float, effort: str, exactly: bool = False) -> Proof:
    """Return what the error of a layer's run is proven from, looked for once.

    A gated layer's proof is for entries of the input up to a bound, which is rounded up a little, so that the next input finds
    it, too. Where ``exactly`` is requested, or nothing contracts up to the rounded bound, it is for the bound itself.
    """
    if not weights.checksum:
        weights.checksum.append(digest_of([[weights]]))
    checksum, weights = weights.checksum[0], covering_state(weights, state)
    if not needs_inputs(weights):
        return proof_for(weights, checksum, None, effort)
    if exactly:
        return proof_for(weights, checksum, entry_bound, effort)
    try:
        return proof_for(weights, checksum, round_coarsely(entry_bound), effort)
    except CertificateError:
        return proof_for(weights, checksum, entry_bound, effort)


def proof_for(weights: Weights, checksum: str, entry_bound: float | None, effort: str) -> Proof:
    """Return a proof for inputs up to a bound, and remember it."""
    starts = () if entry_bound is None else tuple(float(s[0]) for s in weights.initial if len(s))
    key = (checksum, weights.cell, weights.name, weights.slack, starts, entry_bound, effort)
    with _LOCK:
        if key in _KNOWN:
            _KNOWN.move_to_end(key)
            return _KNOWN[key]
    proof = proof_of(certify_layer(weights, entry_bound, entry_bound, effort), entry_bound or 0.0)
    with _LOCK:
        _KNOWN[key] = proof
        while len(_KNOWN) > _MOST:
            _KNOWN.popitem(last=False)
    return proof
