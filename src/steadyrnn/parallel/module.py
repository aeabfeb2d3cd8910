"""A stable recurrent layer that runs in windows of time, all at once, with a proven error."""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from steadyrnn.bounds.norms import above, input_slack
from steadyrnn.cells.base import State
from steadyrnn.certificates.certify import certify_layer, read_layers, refresh
from steadyrnn.certificates.layer import LayerCertificate, dropout_scale, read_weights
from steadyrnn.certificates.rounding import Sizes, largest_norm, sizes_of_layers
from steadyrnn.certificates.theories import THEORIES
from steadyrnn.checks import carries_transform, disable_compile, without_autocast
from steadyrnn.constraints.slot import cached
from steadyrnn.engines.base import Comparison, Recurrence, Windows
from steadyrnn.errors import ArgumentError, CertificateError, ConversionError, EngineError, NotFiniteError, SteadyError
from steadyrnn.layers.base import RecurrentLayer
from steadyrnn.layers.sequence import Opened, close_call, initial_states, open_call

from .gradients import Evidence, gradient_refusal, is_kinked
from .layer import run_layer
from .line import Line
from .opening import WIDTH, Ready, facts_of, open_line, share_initial
from .plan import Request, measure_decay, share_tolerance, stack_gain
from .ranks import Alone, Ranks
from .report import LayerRun, ParallelReport
from .run import LayerResult, record_run
from .verify import Proofs

__all__ = ["Parallel"]

_SLACK = 1 + 2.0**-10
"""By how much more than proven the entries between gated layers may be, so that rounding stays inside the box."""


class Proven(NamedTuple):
    """Certificates of every layer, and what they are about: computed once for given weights."""

    certificates: tuple[LayerCertificate, ...]
    sizes: tuple[Sizes, ...]
    decays: tuple[tuple[float, ...], ...]
    stamp: tuple[Any, ...]
    weights: tuple[Tensor, ...]
    counted: tuple[tuple[int, int], ...]  # where the weights lay and how often torch had seen them change


class Parallel(nn.Module):
    """A recurrent layer run in windows of time; :func:`steadyrnn.to_parallel` makes it.

    Args:
        layer: The layer, shared.
        tol: Bound on the truncation.
        chunk: Steps of a window, or None.
        input_bound: Bound on the 2-norm of every input, or None.
        gradient_tol: Bound on the factors of the gradient's error, or None.
        verify: Whether to bound the error of every call by its residuals.
        ranks: That run one series together; None is this process alone.

    Example:
        >>> fast = sr.to_parallel(sr.RNN(2, 4, transition=sr.SpectralBall(0.5)), tol=1e-5)
        >>> fast(torch.zeros(7, 3, 2))[0].shape, fast.report.windows
        (torch.Size([7, 3, 4]), 1)
    """

    _ranks: Ranks = Alone()  # also of what was pickled before there were groups

    def __init__(
        self, layer: RecurrentLayer, tol: float, chunk: int | None = None, input_bound: float | None = None,
        gradient_tol: float | None = None, verify: bool = False, ranks: Ranks | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self._ranks = ranks or Alone()
        self.layer = layer
        self.tol, self.chunk, self.input_bound, self.gradient_tol = tol, chunk, input_bound, gradient_tol
        self.verify = verify
        self._proofs = Proofs(layer.num_layers)
        self._proven: Proven | None = None
        proven, _ = self._prove()
        refusal = self._refusal(proven.certificates)
        if gradient_tol is not None and refusal is not None:
            raise ConversionError(f"`gradient_tol` cannot be kept: {refusal}.")
        self._report = ParallelReport(tol, tuple(_not_run(one) for one in proven.certificates))

    @property
    def report(self) -> ParallelReport:
        """What the last call proves."""
        return self._report

    def extra_repr(self) -> str:
        """Show the arguments."""
        shown = {"tol": self.tol, "chunk": self.chunk, "input_bound": self.input_bound, "gradient_tol": self.gradient_tol}
        shown["verify"] = self.verify or None
        return ", ".join(f"{name}={value!r}" for name, value in shown.items() if value is not None)

    @disable_compile
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
        ranks, group = self._ranks, self._ranks.size > 1
        ranks.prepare(next(self.layer.parameters()).device)
        ready, table = ranks.together(
            lambda: self._open(input, hx, lengths),
            lambda ready: facts_of(self, ready) if group else [],
            WIDTH,
        )
        given = share_initial(self.layer, ready, ranks, table) if group else ready.given
        line = open_line(self.layer, ready._replace(given=given), ranks, table) if group else Line()
        opened, proven, comparison = ready.opened, ready.proven, ready.comparison
        try:
            output, states = self._run(opened, given, proven, comparison, line)
            stale = comparison is not None and not comparison.holds()
        except SteadyError:
            if comparison is None or comparison.holds():
                raise
            stale = True
        if stale:  # weights were changed behind torch's back: what was run was not what was proven
            output, states = self._run(opened, given, self._prove(trust=False)[0], None, line)
        return close_call(self.layer, output, states, opened, input, ready.batched)

    def _open(self, input: Tensor | PackedSequence, hx: Any, lengths: Tensor | Sequence[int] | None) -> Ready:
        """Check the arguments of a call, and prove what is needed of the weights as they are."""
        layer, group = self.layer, self._ranks.size > 1
        if group and (lengths is not None or isinstance(input, PackedSequence)):
            raise ArgumentError(
                "`lengths` and packed sequences are not supported with `group`: every row goes on from rank to rank, to the "
                "end of the series. Run rows of other lengths in calls of their own."
            )
        opened, batched, given = open_call(layer, input, hx, lengths)
        if carries_transform(opened.data, *layer.parameters()):
            raise EngineError(
                "Windows are proven from numbers, which forward-mode AD and torch.func do not give: use the layer."
            )
        self._check_bound(opened.data)
        return Ready(opened, batched, given, *self._prove(trust=not group))

    def _run(
        self, opened: Opened, given: State | None, proven: Proven, comparison: Comparison | None, line: Line
    ) -> tuple[Tensor, State]:
        """Run every layer with what is proven of it."""
        with without_autocast(opened.data.device):
            start = initial_states(self.layer, opened, given)
            certificates = proven.certificates if given is None else self._covering(proven.certificates, start)
            return self._run_stack(opened, start, certificates, proven, given is None, comparison, line)

    def _check_bound(self, data: Tensor) -> None:
        """Refuse an input that the certificate is not about."""
        covered = self._covered()
        if covered is None or largest_norm(data) <= covered:
            return
        largest = float(torch.linalg.vector_norm(data.detach(), dim=-1, dtype=torch.float64).max())
        if not math.isfinite(largest):
            raise NotFiniteError("`input` holds NaN or infinity, of which nothing can be proven.")
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

    def _prove(self, trust: bool = True) -> tuple[Proven, Comparison | None]:
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
            comparison = Comparison(known.weights, weights)
            if trust and known.counted == counted:
                return known, comparison
            if comparison.holds():
                self._proven = known._replace(counted=counted)
                return self._proven, None
        with cached():  # a weight is read twice: what is proven of it, and how large its rounding is
            certificates = self._read(known)
            _refuse_unstable(certificates)
            sizes = sizes_of_layers(self.layer)
        kept = tuple(tensor.clone() for tensor in weights)
        self._proven = Proven(tuple(certificates), sizes, tuple(map(measure_decay, certificates)), stamp, kept, counted)
        return self._proven, None

    def _read(self, known: Proven | None) -> Sequence[LayerCertificate]:
        """Return certificates: those known, verified for the weights as they are now, or new ones."""
        if self.layer.cell.record.activation is None:
            return self._read_gated(None)
        theory = THEORIES.get(self.layer.cell.record.theorem)
        if theory is None or self.layer.bidirectional:
            return read_layers(self.layer, self._covered())  # which says why there is none
        stack = [weights for (weights,) in read_weights(self.layer)]
        if known is None:
            return theory.certify_stack(stack, self._covered(), "auto", dropout_scale(self.layer))
        return [refresh(one, now) for one, now in zip(known.certificates, stack, strict=True)]

    def _read_gated(self, initial: Sequence[State] | None) -> list[LayerCertificate]:
        """Return certificates of gated layers, for these bounds on their initial states."""
        found: list[LayerCertificate] = []
        bound = entries = self._covered()
        for place, (weights,) in enumerate(read_weights(self.layer)):
            weights = weights if initial is None else replace(weights, initial=initial[place])
            one = certify_layer(weights, bound, entries, "auto")
            scale = dropout_scale(self.layer) * _SLACK
            bound, entries = above(scale * one.state_bound), above(scale * one.entry_bound)
            found.append(one)
        return found

    def _covering(self, certificates: tuple[LayerCertificate, ...], start: State) -> tuple[LayerCertificate, ...]:
        """Return certificates that hold from a given initial state, too: a gated layer's hold in a box of states."""
        if self.layer.cell.record.activation is not None:
            return certificates
        initial = []
        for place in range(len(certificates)):
            states = [s[place].detach().double().abs().cpu() for s in start]
            initial.append(tuple(s.amax(0) if s.numel() else s.new_zeros(s.shape[1]) for s in states))
            if not all(bool(s.isfinite().all()) for s in initial[-1]):
                raise NotFiniteError("`hx` holds NaN or infinity, of which nothing can be proven.")
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
        comparison: Comparison | None, line: Line,
    ) -> tuple[Tensor, State]:  # fmt: skip
        """Run every layer in windows; return the last one's outputs (T, B, H) and all final states."""
        layer, data, finals = self.layer, opened.data, []
        records: list[LayerRun] = []
        gains = [stack_gain(one) * dropout_scale(layer) for one in certificates]
        refusal = self._refusal(certificates)
        done: LayerResult | None = None
        entering: Tensor | None = None
        for place, certificate in enumerate(certificates):
            initial = tuple(s[place] for s in start)
            request = Request(
                share_tolerance(self.tol, gains, place), self.chunk, self.gradient_tol, refusal, proven.decays[place],
                not line.first or (cold and not layer.learn_initial_state), None if comparison is None else comparison.start,
            )  # fmt: skip
            make = partial(self._recurrence_of, place, data, initial, opened.batch_sizes, line)
            done = run_layer(make, layer.engine, certificate, proven.sizes[place], request, line)
            record = done.record.add_errors_below(records[-1], gains[place]) if records else done.record
            if self.verify:
                entering, verified = self._proofs.errors(certificate, done, entering, initial, line)
                record = replace(record, verified=verified)
                entering = entering * dropout_scale(layer)
            data = done.output
            finals.append(done.state)
            records.append(record)
        states = tuple(torch.stack(states) for states in zip(*finals, strict=True))
        evidence = Evidence() if done is None else done.evidence
        if line.ranks.size > 1:
            data, states = line.finish(data, states, evidence)
        elif done is not None:
            evidence.watch(done.output, done.state)
        self._report = ParallelReport(
            self.tol, tuple(records), evidence, None if isinstance(self._ranks, Alone) else line.traffic
        )
        return data, states

    def _recurrence_of(self, place: int, data: Tensor, initial: State, batch_sizes: Tensor | None, line: Line) -> Recurrence:
        """Return a layer of the stack with its input, and the state that its own run starts from."""
        layer = self.layer
        state = initial if line.first else tuple(torch.zeros_like(s) for s in initial)
        if layer.dropout and place:
            data = nn.functional.dropout(data, layer.dropout, layer.training)
        return layer._recurrence(data, state, layer.suffix(place, 0), batch_sizes, False, layer.recompute)

    def _refusal(self, certificates: Sequence[LayerCertificate]) -> str | None:
        """Return why no theorem bounds the gradient, as a clause; None where one does."""
        refusal = gradient_refusal(list(certificates))
        if refusal is None and self._ranks.size > 1 and is_kinked(certificates[0]):
            return "over the ranks of a group it is given for smooth activations only"
        return refusal


def _refuse_unstable(certificates: Sequence[LayerCertificate]) -> None:
    """Refuse layers of which no contraction is proven."""
    for one in certificates:
        if not one.best.stable:
            advice = THEORIES[one.weights.cell.record.theorem].advise(one)
            raise ConversionError(
                f"no certificate found: lambda = {one.best.rate:.6g} >= 1 for layer {one.name} in the {one.best.norm.name} "
                f"({one.best.theorem}). Only what contracts can be run in windows. {advice}"
            )


def _not_run(certificate: LayerCertificate) -> LayerRun:
    """Return the record of a layer that has not run yet."""
    return record_run(certificate, Windows(0, 0, 0), 0, 0.0, 0.0, "")
