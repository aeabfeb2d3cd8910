"""A stable recurrent layer that runs in windows of time, all at once, with a proven error."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple, overload

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from steadyrnn.bounds.norms import above, input_slack
from steadyrnn.cells.base import State
from steadyrnn.certificates.certify import certify_layer, read_layers, refresh
from steadyrnn.certificates.layer import LayerCertificate, dropout_scale, read_weights
from steadyrnn.certificates.rounding import Sizes, largest_norm, sizes_of_layers
from steadyrnn.certificates.theories import THEORIES
from steadyrnn.checks import carries_transform, check_number, check_positive_int, disable_compile, without_autocast
from steadyrnn.constraints.slot import cached
from steadyrnn.engines.base import Comparison, Windows
from steadyrnn.errors import ArgumentError, CertificateError, ConversionError, EngineError, NotFiniteError, SteadyError
from steadyrnn.layers.base import RecurrentLayer
from steadyrnn.layers.from_torch import from_torch
from steadyrnn.layers.saturation import refuse_saturation
from steadyrnn.layers.sequence import Opened, close_call, initial_states, open_call
from steadyrnn.models.converted import M, WholeModel, convert_layer_of

from .gradients import gradient_refusal
from .plan import Request, measure_decay, share_tolerance, stack_gain
from .report import LayerRun, ParallelReport
from .run import LayerResult, record_run, run_layer
from .verify import Proofs

__all__ = ["Parallel", "to_parallel"]

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

    Example:
        >>> fast = sr.to_parallel(sr.RNN(2, 4, transition=sr.SpectralBall(0.5)), tol=1e-5)
        >>> fast(torch.zeros(7, 3, 2))[0].shape, fast.report.windows
        (torch.Size([7, 3, 4]), 1)
    """

    def __init__(
        self, layer: RecurrentLayer, tol: float, chunk: int | None = None, input_bound: float | None = None,
        gradient_tol: float | None = None, verify: bool = False,
    ) -> None:  # fmt: skip
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
        layer = self.layer
        opened, batched, given = open_call(layer, input, hx, lengths)
        if carries_transform(opened.data, *layer.parameters()):
            raise EngineError(
                "Windows are proven from numbers, which forward-mode AD and torch.func do not give: use the layer."
            )
        self._check_bound(opened.data)
        proven, comparison = self._prove()
        try:
            output, states = self._run(opened, given, proven, comparison)
            stale = comparison is not None and not comparison.holds()
        except SteadyError:
            if comparison is None or comparison.holds():
                raise
            stale = True
        if stale:  # weights were changed behind torch's back: what was run was not what was proven
            output, states = self._run(opened, given, self._prove(trust=False)[0], None)
        return close_call(layer, output, states, opened, input, batched)

    def _run(self, opened: Opened, given: State | None, proven: Proven, comparison: Comparison | None) -> tuple[Tensor, State]:
        """Run every layer with what is proven of it."""
        with without_autocast(opened.data.device):
            start = initial_states(self.layer, opened, given)
            certificates = proven.certificates if given is None else self._covering(proven.certificates, start)
            return self._run_stack(opened, start, certificates, proven, given is None, comparison)

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
        comparison: Comparison | None,
    ) -> tuple[Tensor, State]:  # fmt: skip
        """Run every layer in windows; return the last one's outputs (T, B, H) and all final states."""
        layer, data, finals = self.layer, opened.data, []
        records: list[LayerRun] = []
        gains = [stack_gain(one) * dropout_scale(layer) for one in certificates]
        refusal = gradient_refusal(list(certificates))
        done: LayerResult | None = None
        entering: Tensor | None = None
        for place, certificate in enumerate(certificates):
            state = tuple(s[place] for s in start)
            run = layer._recurrence(data, state, layer.suffix(place, 0), opened.batch_sizes, False, layer.recompute)
            request = Request(
                share_tolerance(self.tol, gains, place), self.chunk, self.gradient_tol, refusal, proven.decays[place],
                cold and not layer.learn_initial_state, None if comparison is None else comparison.start,
            )  # fmt: skip
            done = run_layer(run, layer.engine, certificate, proven.sizes[place], request)
            record = done.record.add_errors_below(records[-1], gains[place]) if records else done.record
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


@overload
def to_parallel(  # type: ignore[overload-overlap]
    rnn: M, tol: float, chunk: int | None = None, *, input_bound: float | None = None, gradient_tol: float | None = None,
    verify: bool = False,
) -> M: ...  # fmt: skip
@overload
def to_parallel(
    rnn: nn.Module, tol: float, chunk: int | None = None, *, input_bound: float | None = None,
    gradient_tol: float | None = None, verify: bool = False,
) -> Parallel: ...  # fmt: skip


def to_parallel(
    rnn: nn.Module,
    tol: float,
    chunk: int | None = None,
    *,
    input_bound: float | None = None,
    gradient_tol: float | None = None,
    verify: bool = False,
) -> nn.Module:
    r"""Return a module that computes what a stable layer does, in C + k steps one after another instead of T.

    Time is cut into windows of C steps, each run from zero k steps earlier, all of them as one batch. A network that
    contracts by :math:`\lambda < 1` per step forgets the wrong start: the error is at most :math:`\lambda^{k+i} R` at
    position i. What is really lost is measured: where window j - 1 ends, window j has its own state, and their difference
    bounds the error of both. While that is above ``tol``, all windows are run again from where the ones before ended,
    each time with :math:`\lambda^C` of the error; Note [mathematics], section 6. So the promise needs no luck:

    - the error of every h_t, in the 2-norm, is at most ``report.truncation + report.rounding``, and
      ``report.truncation <= tol``. It is an error against the layer run sequentially, exactly or in the same dtype;
      in a stack, of every layer's h_t. Rounding is reported and cannot be chosen: its bound is a worst case over all orders
      of summation. With ``verify`` one number takes the place of both, ``report.error``: what :func:`steadyrnn.verify` proves
      of the states as they were computed, against the exact run.
    - gradients flow through warm-up and sweeps; ``report.gradient`` bounds what truncation does to them after ``backward``.
      Rounding is not in it.

    The layer is shared, not copied; one of torch is copied by :func:`steadyrnn.from_torch`. Before every call the weights
    are compared with those certified, and certified anew where they changed. Eager only: under ``torch.compile`` it breaks
    the graph. Bidirectional layers are refused: run one layer per direction.

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
    if isinstance(rnn, WholeModel):
        wishes = {"input_bound": input_bound, "gradient_tol": gradient_tol}
        return convert_layer_of(rnn, lambda layer: to_parallel(layer, tol, chunk, **wishes, verify=verify))
    layer = as_layer(rnn)
    if input_bound is None and layer.cell.record.activation is None:
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
    if layer.cell.record.theorem is None:
        refuse_saturation(layer, ConversionError, "it cannot be run in windows of time")
        raise ConversionError(f"`rnn` has the cell {layer.cell.key!r}, and no theorem says that it contracts.")
    if layer.bidirectional:
        raise ConversionError("`rnn` is bidirectional, and windows are proven one way only: convert one layer per direction.")
    return layer


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
