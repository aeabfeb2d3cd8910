"""From a stable recurrent layer to one that runs in windows of time, all at once, with a proven error."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from steadyrnn.bounds.norms import above
from steadyrnn.cells.base import State
from steadyrnn.cells.rnn import RNNStep
from steadyrnn.certificates.certify import certify_layer, dropout_scale, read_layers, refresh
from steadyrnn.certificates.largest_norm import largest_norm
from steadyrnn.certificates.layer import LayerCertificate
from steadyrnn.certificates.reading import read_weights
from steadyrnn.certificates.rounding import Sizes, sizes_of
from steadyrnn.certificates.theories import THEORIES
from steadyrnn.checks import carries_transform, check_number, check_positive_int, without_autocast
from steadyrnn.convert.model import for_models
from steadyrnn.convert.torch_nn import from_torch
from steadyrnn.convert.unitary_rnn import input_slack
from steadyrnn.engines.compiler import uncompiled
from steadyrnn.errors import ArgumentError, CertificateError, ConversionError, EngineError, NotFiniteError, SteadyError
from steadyrnn.layers.base import RecurrentLayer
from steadyrnn.layers.sequence import Opened, check_input, check_states, close_sequence, open_sequence

from .gradients import gradient_refusal
from .report import LayerRun, ParallelReport
from .run import Asked, Done, decay_of, run_layer
from .stack import Doubt, carried, gain_of, not_run, share_of
from .verify import Proofs

__all__ = ["Parallel", "to_parallel"]

_ROOM = 1 + 2.0**-10
"""By how much more than proven the entries between gated layers may be, so that rounding stays inside the box."""


@for_models
def to_parallel(
    rnn: nn.Module,
    tol: float,
    chunk: int | None = None,
    *,
    input_bound: float | None = None,
    gradient_tol: float | None = None,
    verify: bool = False,
) -> "Parallel":
    r"""Return a module that computes what a stable layer does, in C + k steps one after another instead of T.

    Time is cut into windows of C steps, each run from zero k steps earlier, all of them as one batch. A network that
    contracts by :math:`\lambda < 1` a step forgets the wrong start: the error is at most :math:`\lambda^{k+i} R` at
    position i (MATH 6.1). What is really lost is measured: where window j - 1 ends, window j has its own state, and what
    they differ by bounds the error of both (MATH 6.2). While that is above ``tol``, all windows are run again from where
    the ones before ended, each time with :math:`\lambda^C` of the error (MATH 6.3). So the promise needs no luck:

    - the error of every h_t, in the 2-norm, is at most ``report.truncation + report.rounding``, and
      ``report.truncation <= tol``. It is an error against the layer run sequentially, exactly or in the same dtype;
      of a stack, every layer's h_t. Rounding cannot be asked for, only told, and its bound is a worst case over all orders
      of summation. With ``verify`` one number takes the place of both, ``report.error``: what :func:`steadyrnn.verify` proves
      of the states as they were computed, against the exact run.
    - gradients flow through warm-up and sweeps; ``report.gradient`` bounds what truncation does to them after ``backward``.
      Rounding is not in it.

    The layer is shared, not copied (one of torch is copied by :func:`steadyrnn.from_torch`). Before every call the weights are
    compared with those certified, and certified anew where they changed. Eager only: under ``torch.compile`` it breaks
    the graph. Bidirectional layers are refused, single ones too: run a layer each way.

    Args:
        rnn: An RNN, GRU or LSTM, of ours or of torch; or a ``SequenceModel``, whose layer is converted.
        tol: Bound on the truncation.
        chunk: C; chosen by cost if None.
        input_bound: Bound on the 2-norm of every x_t, checked on every call; needed for GRU and LSTM, whose contraction
            depends on it.
        gradient_tol: If given, warm-up and sweeps also make each :math:`F_t` of ``report.gradient`` at most this, so that
            the gradient's error by truncation is at most ``gradient_tol`` times the sum of the norms of the cotangents.
        verify: Whether every call evaluates its steps once more in float64, and reports the error that follows.

    Returns:
        A module with the layer's own call, and ``report``; of a ``SequenceModel`` one with the same embedding and readout.

    Raises:
        ConversionError: No contraction is proven, or the module is none of the above.
        ArgumentError: A gated layer without ``input_bound``.

    Example:
        >>> rnn = sr.RNN(3, 8, transition=sr.SpectralBall(0.8), dtype=torch.float64)
        >>> fast = to_parallel(rnn, tol=1e-8, chunk=100)
        >>> x = torch.randn(1000, 2, 3, dtype=torch.float64)
        >>> output, h_n = fast(x)
        >>> float((output - rnn(x)[0]).detach().norm(dim=-1).max()) <= fast.report.truncation + fast.report.rounding
        True
        >>> fast.report.windows, fast.report.depth < 300
        (10, True)

    References:
        Miller, Hardt. When Recurrent Models Don't Need To Be Recurrent. https://arxiv.org/abs/1805.10369
    """
    layer = as_layer(rnn)
    gated = not isinstance(layer.cell, RNNStep)
    if input_bound is None and gated:
        raise ArgumentError(
            "`input_bound` must be given for a gated layer, whose contraction depends on it: a bound on the 2-norm of "
            "every x_t."
        )
    if input_bound is not None:
        input_bound = check_number("input_bound", input_bound, finite=True)
    return Parallel(
        layer,
        check_number("tol", tol, low=torch.finfo(torch.float64).tiny, finite=True),
        None if chunk is None else check_positive_int("chunk", chunk),
        input_bound,
        None if gradient_tol is None else check_number("gradient_tol", gradient_tol, low=1e-300, finite=True),
        bool(verify),
    )


def as_layer(rnn: nn.Module) -> RecurrentLayer:
    """Return a layer of ours that runs one way.

    Example:
        >>> type(as_layer(torch.nn.GRU(2, 3))).__name__
        'GRU'
    """
    layer = from_torch(rnn) if type(rnn) in (nn.RNN, nn.GRU, nn.LSTM) else rnn
    if not isinstance(layer, RecurrentLayer):
        raise ConversionError(
            f"`rnn` must be an RNN, GRU or LSTM, of steadyrnn or of torch.nn, but is {type(rnn).__qualname__}. "
            "Convert the recurrent layer inside a larger module by itself."
        )
    if layer.bidirectional:
        raise ConversionError(
            "`rnn` is bidirectional, and windows are proven one way only: convert a layer for each direction."
        )
    return layer


class Proven(NamedTuple):
    """Certificates of every layer, and what they are about."""

    certificates: tuple[LayerCertificate, ...]
    sizes: tuple[Sizes, ...]
    decays: tuple[tuple[float, ...], ...]
    stamp: tuple[Any, ...]
    weights: tuple[Tensor, ...]
    counted: tuple[tuple[int, int], ...]  # where the weights lay and how often torch had seen them change


class Parallel(nn.Module):
    """A recurrent layer run in windows of time; :func:`to_parallel` makes it.

    Args:
        layer: The layer, shared.
        tol: Bound on the truncation.
        chunk: Steps of a window, or None.
        input_bound: Bound on the 2-norm of every input, or None.
        gradient_tol: Bound on the factors of the gradient's error, or None.
        verify: Whether to bound the error of every call by its residuals.

    Example:
        >>> fast = sr.to_parallel(sr.RNN(2, 4, transition=sr.SpectralBall(0.5)), tol=1e-5)
        >>> fast(torch.zeros(7, 3, 2))[0].shape, fast.report.windows
        (torch.Size([7, 3, 4]), 1)
    """

    def __init__(
        self,
        layer: RecurrentLayer,
        tol: float,
        chunk: int | None = None,
        input_bound: float | None = None,
        gradient_tol: float | None = None,
        verify: bool = False,
    ) -> None:
        super().__init__()
        self.layer = layer
        self.tol, self.chunk, self.input_bound, self.gradient_tol = tol, chunk, input_bound, gradient_tol
        self.verify = verify
        self._proofs = Proofs(layer.num_layers)
        self._proven: Proven | None = None
        proven, _ = self._prove()
        refusal = gradient_refusal(list(proven.certificates))
        if gradient_tol is not None and refusal is not None:
            raise ConversionError(f"`gradient_tol` cannot be kept: {refusal}.")
        self._report = ParallelReport(tol, tuple(not_run(one) for one in proven.certificates))

    @property
    def report(self) -> ParallelReport:
        """What the last call proves."""
        return self._report

    def extra_repr(self) -> str:
        """Show the arguments."""
        shown = {"tol": self.tol, "chunk": self.chunk, "input_bound": self.input_bound, "gradient_tol": self.gradient_tol}
        shown["verify"] = self.verify or None
        return ", ".join(f"{name}={value!r}" for name, value in shown.items() if value is not None)

    @uncompiled
    def forward(
        self, input: Tensor | PackedSequence, hx: Any = None, lengths: Tensor | Sequence[int] | None = None
    ) -> tuple[Tensor | PackedSequence, Any]:
        """Run the layer over a sequence; arguments and results are those of the layer.

        Args:
            input: Shape (T, B, D), (B, T, D) if ``batch_first``, (T, D) unbatched, or a packed sequence.
            hx: Initial state, each (L, B, H); zero or the learned one if None.
            lengths: Length of each row, shape (B,), each from 0 to T.

        Returns:
            Outputs of the last layer in the input's form, zero at padding, and the final states of all layers.

        Raises:
            ArgumentError: An input is larger than ``input_bound``.
            CertificateError: A gated layer starts from an ``hx`` so large that no contraction is proven from there.
            ConversionError: The weights have changed, and no contraction is proven of them.
            NotFiniteError: NaN or infinity in input, state or weights.
            EngineError: Forward-mode AD or a ``torch.func`` transform is at work.
        """
        layer = self.layer
        opened, batched = open_sequence(input, lengths, layer.batch_first)
        rows, weight = opened.data.shape[1], layer.weight_ih_l0
        if carries_transform(opened.data, *layer.parameters()):
            raise EngineError(
                "Windows are proven from numbers, which forward-mode AD and torch.func do not give: use the layer."
            )
        dtype = check_input(layer, opened.data, weight)
        expected = (layer.num_layers, rows, layer.hidden_size) if batched else (layer.num_layers, layer.hidden_size)
        given = check_states(layer._states(hx), expected, weight)
        if given is not None and not batched:
            given = tuple(state.unsqueeze(1) for state in given)
        opened = opened._replace(data=opened.data.to(dtype))
        self._check_bound(opened.data)
        proven, doubt = self._prove()
        try:
            output, states = self._run(opened, given, dtype, proven, doubt)
            stale = doubt is not None and not doubt.holds()
        except SteadyError:
            if doubt is None or doubt.holds():
                raise
            stale = True
        if stale:  # weights were changed behind torch's back: what was run was not what was proven
            output, states = self._run(opened, given, dtype, self._prove(trust=False)[0], None)
        finals = tuple(opened.recover(s) if batched else s.squeeze(1) for s in states)
        return close_sequence(output, opened, input, batched, layer.batch_first), layer._final(finals)

    def _run(
        self, opened: Opened, given: State | None, dtype: torch.dtype, proven: Proven, doubt: Doubt | None
    ) -> tuple[Tensor, State]:
        """Run every layer with what is proven of it."""
        with without_autocast(opened.data.device):
            start = self.layer._start(opened, given, dtype)
            certificates = proven.certificates if given is None else self._covering(proven.certificates, start)
            return self._run_stack(opened, start, certificates, proven, given is None, doubt)

    def _check_bound(self, data: Tensor) -> None:
        """Refuse an input that the certificate is not about."""
        covered = self._covered()
        if self.input_bound is None or covered is None or largest_norm(data) <= covered:
            return
        largest = float(torch.linalg.vector_norm(data.detach(), dim=-1, dtype=torch.float64).max())
        if not math.isfinite(largest):
            raise NotFiniteError("`input` holds NaN or infinity; nothing can be said of it or done with it.")
        if largest > covered:
            raise ArgumentError(
                f"`input` must have a 2-norm of at most {self.input_bound:g} (`input_bound`) at every step, but reaches "
                f"{largest:.6g}. Scale it, or convert the layer again with a larger bound."
            )

    def _covered(self) -> float | None:
        """Return the bound that is proven for: a vector scaled to the user's bound is rounded, and must still be inside."""
        if self.input_bound is None:
            return None
        return self.input_bound * input_slack(self.layer.input_size, self.layer.weight_ih_l0.dtype)

    def _prove(self, trust: bool = True) -> tuple[Proven, Doubt | None]:
        """Return certificates of the weights, and what will say whether these are still the weights.

        A change that torch has counted is seen at once. One behind its back (``.data``) shows in the numbers only, which
        are compared while the windows run; without ``trust`` before.
        """
        layer, known = self.layer, self._proven
        weights = tuple(tensor.detach() for tensor in layer.state_dict().values())
        first = weights[0]
        autocast = torch.is_autocast_enabled(first.device.type) and torch.get_autocast_dtype(first.device.type)
        counted = tuple((tensor.data_ptr(), tensor._version) for tensor in weights)
        stamp = (layer.training, autocast, first.device, first.dtype)
        if known is not None and known.stamp == stamp:
            doubt = Doubt(known.weights, weights)
            if trust and known.counted == counted:
                return known, doubt
            if doubt.holds():
                self._proven = known._replace(counted=counted)
                return self._proven, None
        certificates = self._read(known)
        for one in certificates:
            if not one.best.stable:
                advice = THEORIES[one.weights.cell.record.theorem].advise(one)
                raise ConversionError(
                    f"no certificate found: lambda = {one.best.rate:.6g} >= 1 for layer {one.name} in the {one.best.norm.name} "
                    f"({one.best.theorem}). Only what contracts can be run in windows. {advice}"
                )
        kept = tuple(tensor.clone() for tensor in weights)
        self._proven = Proven(tuple(certificates), self._sizes(), tuple(map(decay_of, certificates)), stamp, kept, counted)
        return self._proven, None

    def _read(self, known: Proven | None) -> Sequence[LayerCertificate]:
        """Return certificates: those known, verified for the weights as they are now, or new ones."""
        if not isinstance(self.layer.cell, RNNStep):
            return self._read_gated(None)
        if known is None:
            return read_layers(self.layer, self._covered(), "auto")
        return [refresh(one, self.layer) for one in known.certificates]

    def _read_gated(self, initial: Sequence[State] | None) -> list[LayerCertificate]:
        """Return certificates of gated layers, for these bounds on their initial states."""
        found: list[LayerCertificate] = []
        bound = entries = self._covered()
        for place, (weights,) in enumerate(read_weights(self.layer)):
            weights = weights if initial is None else replace(weights, initial=initial[place])
            one = certify_layer(weights, bound, entries, "auto")
            scale = dropout_scale(self.layer) * _ROOM
            bound, entries = above(scale * one.state_bound), above(scale * one.entry_bound)
            found.append(one)
        return found

    def _sizes(self) -> tuple[Sizes, ...]:
        """Return what rounding needs to know of every layer's weights."""
        layer, found = self.layer, []
        with torch.no_grad():
            for place in range(layer.num_layers):
                end = layer.suffix(place, 0)
                weight = getattr(layer, f"weight_ih{end}")
                state = tuple(weight.new_zeros(1, layer.hidden_size) for _ in range(layer.cell.states))
                nothing = weight.new_zeros(0, 1, weight.shape[1])
                found.append(sizes_of(layer._recurrence(nothing, state, end, None, False, False)))
        return tuple(found)

    def _covering(self, certificates: tuple[LayerCertificate, ...], start: State) -> tuple[LayerCertificate, ...]:
        """Return certificates that hold from a given initial state, too: a gated layer's hold in a box of states."""
        if isinstance(self.layer.cell, RNNStep):
            return certificates
        initial = []
        for place in range(len(certificates)):
            states = [s[place].detach().double().abs().cpu() for s in start]
            initial.append(tuple(s.amax(0) if s.numel() else s.new_zeros(s.shape[1]) for s in states))
            if not all(bool(s.isfinite().all()) for s in initial[-1]):
                raise NotFiniteError("`hx` holds NaN or infinity; nothing can be said of it or done with it.")
        if not any(bool(s.any()) for states in initial for s in states):
            return certificates
        wider = self._read_gated(initial)
        for one in wider:
            if not one.best.stable:
                raise CertificateError(
                    f"no certificate found from the `hx` given: lambda = {one.best.rate:.6g} >= 1 for layer {one.name}. "
                    "States closer to zero are certified more easily."
                )
        return tuple(wider)

    def _run_stack(
        self, opened: Opened, start: State, certificates: tuple[LayerCertificate, ...], proven: Proven, cold: bool,
        doubt: Doubt | None,
    ) -> tuple[Tensor, State]:  # fmt: skip
        """Run every layer in windows; return the last one's outputs (T, B, H) and all final states."""
        layer, data, finals = self.layer, opened.data, []
        records: list[LayerRun] = []
        gains = [gain_of(one) * dropout_scale(layer) for one in certificates]
        refusal = gradient_refusal(list(certificates))
        done: Done | None = None
        entering: Tensor | None = None
        for place, certificate in enumerate(certificates):
            state = tuple(s[place] for s in start)
            run = layer._recurrence(data, state, layer.suffix(place, 0), opened.batch_sizes, False, layer.recompute)
            asked = Asked(
                share_of(self.tol, gains, place), self.chunk, self.gradient_tol, refusal, proven.decays[place],
                cold and not layer.learn_initial_state, None if doubt is None else doubt.start,
            )  # fmt: skip
            done = run_layer(run, layer.engine, certificate, proven.sizes[place], asked)
            record = carried(done.record, records[-1] if records else None, gains[place])
            if self.verify:
                entering = self._proofs.errors(certificate, run, done.output, entering)
                record = replace(record, verified=float(entering.max()) if entering.numel() else 0.0)
                entering = entering * dropout_scale(layer)
            data = done.output
            finals.append(done.state)
            records.append(record)
            if layer.dropout and place < layer.num_layers - 1:
                data = nn.functional.dropout(data, layer.dropout, layer.training)
        self._report = ParallelReport(self.tol, tuple(records), *([] if done is None else [done.evidence]))
        if done is not None:
            done.evidence.watch(done.output, done.state)
        return data, tuple(torch.stack(states) for states in zip(*finals, strict=True))
