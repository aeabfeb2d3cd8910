"""A stable recurrent layer that runs in windows of time, all at once, with a proven error."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, overload

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from steadyrnn.bounds.norms import input_slack
from steadyrnn.cells.base import State
from steadyrnn.certificates.certify import read_layers, refresh
from steadyrnn.certificates.layer import LayerCertificate, dropout_scale, read_weights
from steadyrnn.certificates.rounding import Sizes, largest_norm, sizes_of_layers
from steadyrnn.certificates.theories import THEORIES
from steadyrnn.checks import carries_transform, check_number, check_positive_int, disable_compile, without_autocast
from steadyrnn.constraints.slot import cached
from steadyrnn.engines.base import Comparison, Recurrence, Windows
from steadyrnn.errors import ArgumentError, ConversionError, EngineError, SteadyError
from steadyrnn.layers.base import RecurrentLayer
from steadyrnn.layers.from_torch import from_torch
from steadyrnn.layers.sequence import Opened, close_call, initial_states, open_call
from steadyrnn.models.converted import M, WholeModel, convert_layer_of

from .gated import cover_start, read_gated
from .gradients import Evidence, gradient_refusal, is_kinked
from .layer import run_part_of_layer
from .line import Line
from .opening import Ready, open_line
from .plan import Request, measure_decay, share_tolerance, stack_gain
from .ranks import Ranks, ranks_of
from .refusals import refuse_input, refuse_module, refuse_rate, refuse_readout
from .report import LayerRun, ParallelReport
from .run import LayerResult, record_run, run_layer
from .traffic import Traffic
from .verify import Proofs

__all__ = ["Parallel", "to_parallel"]


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

    _ranks: Ranks | None = None  # also of what was pickled before there were groups

    def __init__(
        self, layer: RecurrentLayer, tol: float, chunk: int | None = None, input_bound: float | None = None,
        gradient_tol: float | None = None, verify: bool = False, ranks: Ranks | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self._ranks = ranks
        self.layer = layer
        self.tol, self.chunk, self.input_bound, self.gradient_tol = tol, chunk, input_bound, gradient_tol
        self.verify = verify
        self._proofs = Proofs(layer.num_layers)
        self._proven: Proven | None = None
        proven, _ = self._prove()
        refusal = self._refusal(proven.certificates)
        if gradient_tol is not None and refusal is not None:
            raise ConversionError(f"`gradient_tol` cannot be kept: {refusal}.")
        self._report = ParallelReport(
            tol, tuple(record_run(one, Windows(0, 0, 0), 0, 0.0, 0.0, "") for one in proven.certificates)
        )

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
        opening = partial(self._open, input, hx, lengths)
        ranks = self._ranks
        ready, line = open_line(self, ranks, opening) if ranks is not None and ranks.size > 1 else (opening(), None)
        opened, given, proven, comparison = ready.opened, ready.given, ready.proven, ready.comparison
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

    def _in_group(self) -> bool:
        return self._ranks is not None and self._ranks.size > 1

    def _open(self, input: Tensor | PackedSequence, hx: Any, lengths: Tensor | Sequence[int] | None) -> Ready:
        """Check the arguments of a call, and prove what is needed of the weights as they are."""
        layer, group = self.layer, self._in_group()
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
        covered = self._covered()
        if covered is not None and not largest_norm(opened.data) <= covered:  # NaN is not, either
            refuse_input(opened.data, covered, self.input_bound)
        return Ready(opened, batched, given, *self._prove(trust=not group))

    def _run(
        self, opened: Opened, given: State | None, proven: Proven, comparison: Comparison | None, line: Line | None
    ) -> tuple[Tensor, State]:
        """Run every layer with what is proven of it."""
        with without_autocast(opened.data.device):
            start = initial_states(self.layer, opened, given)
            certificates = proven.certificates
            if given is not None and self.layer.cell.record.activation is None:
                certificates = cover_start(self.layer, self._covered(), certificates, start)
            return self._run_stack(opened, start, certificates, proven, given is None, comparison, line)

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
            for one in certificates:
                if not one.best.stable:
                    refuse_rate(one)
            sizes = sizes_of_layers(self.layer)
        kept = tuple(tensor.clone() for tensor in weights)
        self._proven = Proven(tuple(certificates), sizes, tuple(map(measure_decay, certificates)), stamp, kept, counted)
        return self._proven, None

    def _read(self, known: Proven | None) -> Sequence[LayerCertificate]:
        """Return certificates: those known, verified for the weights as they are now, or new ones."""
        if self.layer.cell.record.activation is None:
            return read_gated(self.layer, self._covered())
        theory = THEORIES.get(self.layer.cell.record.theorem)
        if theory is None or self.layer.bidirectional:
            return read_layers(self.layer, self._covered())  # which says why there is none
        stack = [weights for (weights,) in read_weights(self.layer)]
        if known is None:
            return theory.certify_stack(stack, self._covered(), "auto", dropout_scale(self.layer))
        return [refresh(one, now) for one, now in zip(known.certificates, stack, strict=True)]

    def _run_stack(
        self, opened: Opened, start: State, certificates: tuple[LayerCertificate, ...], proven: Proven, cold: bool,
        comparison: Comparison | None, line: Line | None,
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
            first = line is None or line.first
            request = Request(
                share_tolerance(self.tol, gains, place), self.chunk, self.gradient_tol, refusal, proven.decays[place],
                not first or (cold and not layer.learn_initial_state), None if comparison is None else comparison.start,
            )  # fmt: skip
            make = partial(self._recurrence_of, place, data, initial, opened.batch_sizes, first)
            of_layer = layer.engine, certificate, proven.sizes[place], request
            done = run_layer(make(), *of_layer) if line is None else run_part_of_layer(make, *of_layer, line)
            record = done.record.add_errors_below(records[-1], gains[place]) if records else done.record
            if self.verify:
                entering, verified = self._proofs.errors(certificate, done, entering, initial, line or Line())
                record = replace(record, verified=verified)
                entering = entering * dropout_scale(layer)
            data = done.output
            finals.append(done.state)
            records.append(record)
        states = tuple(torch.stack(states) for states in zip(*finals, strict=True))
        evidence = Evidence() if done is None else done.evidence
        if line is not None:
            data, states = line.finish(data, states, evidence)
        elif done is not None:
            evidence.watch(done.output, done.state)
        sent = Traffic() if line is None else line.traffic
        self._report = ParallelReport(self.tol, tuple(records), evidence, None if self._ranks is None else sent)
        return data, states

    def _recurrence_of(self, place: int, data: Tensor, initial: State, batch_sizes: Tensor | None, first: bool) -> Recurrence:
        """Return a layer of the stack with its input, and the state that its own run starts from."""
        layer = self.layer
        state = initial if first else tuple(torch.zeros_like(s) for s in initial)
        if layer.dropout and place:
            data = nn.functional.dropout(data, layer.dropout, layer.training)
        return layer._recurrence(data, state, layer.suffix(place, 0), batch_sizes, False, layer.recompute)

    def _refusal(self, certificates: Sequence[LayerCertificate]) -> str | None:
        """Return why no theorem bounds the gradient, as a clause; None where one does."""
        refusal = gradient_refusal(list(certificates))
        if refusal is None and self._in_group() and is_kinked(certificates[0]):
            return "over the ranks of a group it is given for smooth activations only"
        return refusal


@overload
def to_parallel(  # type: ignore[overload-overlap]
    rnn: M, tol: float, chunk: int | None = None, *, input_bound: float | None = None, gradient_tol: float | None = None,
    verify: bool = False, group: bool | dist.ProcessGroup | None = None,
) -> M: ...  # fmt: skip
@overload
def to_parallel(
    rnn: nn.Module, tol: float, chunk: int | None = None, *, input_bound: float | None = None,
    gradient_tol: float | None = None, verify: bool = False, group: bool | dist.ProcessGroup | None = None,
) -> Parallel: ...  # fmt: skip


def to_parallel(
    rnn: nn.Module,
    tol: float,
    chunk: int | None = None,
    *,
    input_bound: float | None = None,
    gradient_tol: float | None = None,
    verify: bool = False,
    group: bool | dist.ProcessGroup | None = None,
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

    With ``group`` the ranks of a process group run one series together. Each calls the module with its own consecutive part,
    :math:`(T_r, B, D)`, ranks in order of time; parts may differ in length, and be empty. Each gets its own part of the
    outputs, :math:`(T_r, B, H)`, and on every rank the final state of the whole series. Every part is run at once, from
    zero. Its end state goes to the next rank, which runs its first steps again from there until both runs are close enough;
    while the bound that follows (Note [mathematics], section 6.7) is above ``tol``, states are passed on again. States, their
    adjoints and a few numbers are all that is sent, whatever T is; ``report.exchanged`` counts the bytes. Truncation,
    rounding, ``verified`` and ``gradient`` are the same numbers on every rank, for the whole series. All ranks
    have the same weights, which is checked, and make the same calls: the loss is the sum of what each rank calls
    ``backward`` on, and one without a loss calls it on ``0 * output.sum()``. Each rank has its part of the weights'
    gradient; they are to be summed, ``for p in rnn.parameters(): dist.all_reduce(p.grad)``. ``hx`` is read from rank 0.

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
        group: The ranks that run one series: True for all processes, or a process group of ``torch.distributed``; None
            for this process alone.

    Returns:
        A module with the layer's own call, and ``report``; of a ``SequenceModel`` one with the same embedding and readout.

    Raises:
        ConversionError: No contraction is proven, or the module is none of the above.
        ArgumentError: A gated layer without ``input_bound``, or ``group`` without a process group of this process.

    Example:
        >>> rnn = sr.RNN(3, 8, transition=sr.SpectralBall(0.8), dtype=torch.float64)
        >>> fast = to_parallel(rnn, tol=1e-8, chunk=100)
        >>> x = torch.randn(1000, 2, 3, dtype=torch.float64)
        >>> output, h_n = fast(x)
        >>> float((output - rnn(x)[0]).detach().norm(dim=-1).max()) <= fast.report.truncation + fast.report.rounding
        True
        >>> fast.report.windows, fast.report.depth < 300
        (10, True)

        One process of a group; ``torchrun`` starts many, each with its own part of x:

        >>> import torch.distributed as dist
        >>> dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        >>> part, h_n = to_parallel(rnn, tol=1e-8, group=True)(x)
        >>> part.shape, h_n.shape
        (torch.Size([1000, 2, 8]), torch.Size([1, 2, 8]))
        >>> dist.destroy_process_group()

    References:
        Miller, Hardt. When Recurrent Models Don't Need To Be Recurrent. https://arxiv.org/abs/1805.10369
    """
    ranks = None if group is None or group is False else ranks_of(group)
    if isinstance(rnn, WholeModel):
        wishes = {"input_bound": input_bound, "gradient_tol": gradient_tol}
        if ranks is not None and ranks.size > 1:
            refuse_readout(rnn)
        return convert_layer_of(rnn, lambda layer: to_parallel(layer, tol, chunk, **wishes, verify=verify, group=group))
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
        ranks,
    )


def as_layer(rnn: nn.Module) -> RecurrentLayer:
    """Return a layer of ours that runs one way."""
    layer = from_torch(rnn) if type(rnn) in (nn.RNN, nn.GRU, nn.LSTM) else rnn
    if not isinstance(layer, RecurrentLayer) or layer.cell.record.theorem is None or layer.bidirectional:
        refuse_module(layer)
    return layer
