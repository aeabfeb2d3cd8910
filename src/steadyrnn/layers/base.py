"""The one driver: stacks, directions, dropout and lengths around an engine that runs one layer one way."""

from collections.abc import Sequence
from types import FunctionType
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence

from steadyrnn.cells.base import State
from steadyrnn.checks import check_dense, check_flag, check_positive_int, without_autocast
from steadyrnn.constraints.base import Constraint
from steadyrnn.constraints.stable_lstm import StableLSTM
from steadyrnn.engines.select import ENGINES, Choice, check_engine, select

from .arguments import check_dropout, refuse_positional, refuse_projection, with_shared_arguments
from .sequence import Opened, check_traced, close_call, initial_states, open_call, warn_of_layout
from .weights import RecurrentWeights, Transition, TransitionLike

__all__ = ["RecurrentLayer"]


@with_shared_arguments
class RecurrentLayer(RecurrentWeights):
    """A cell over time, in layers and directions: what RNN, GRU and LSTM share, and the layer of a cell of one's own.

    A cell is a record and a step, which :func:`~steadyrnn.cells.registry.register_cell` makes known. Its layer is a subclass
    with the cell as its attribute. It runs on the reference engine; every faster engine refuses it in a sentence, and no
    theorem is said to hold of it.

    Args:
        input_size: D.
        hidden_size: H.
        <arguments of every layer>
        transition: The set of the candidate's weight, or a mapping from gates to sets.

    Example:
        >>> from dataclasses import dataclass
        >>> from steadyrnn.cells.base import Cell
        >>> from steadyrnn.cells.record import CellRecord
        >>> @dataclass(frozen=True)
        ... class LeakyStep(Cell):
        ...     record = CellRecord("leaky", gates="h")
        ...     def step(self, gates_x, state, recur, theta):
        ...         return ((state[0] + (gates_x + recur(state[0], "h")).tanh()) / 2,)
        >>> class LeakyRNN(RecurrentLayer):
        ...     cell = LeakyStep()
        >>> output, h_n = LeakyRNN(3, 4, num_layers=2, transition="spectral")(torch.ones(5, 2, 3))
        >>> output.shape, h_n.shape
        (torch.Size([5, 2, 4]), torch.Size([2, 2, 4]))
    """

    proj_size = 0
    _warned = False

    def __init_subclass__(cls, **options: Any) -> None:
        """Name an inherited constructor after the class, so that Python's message on a missing argument names it."""
        super().__init_subclass__(**options)
        if cls.__init__ is RecurrentLayer.__init__:
            shared = cast(FunctionType, RecurrentLayer.__init__)
            own = FunctionType(shared.__code__, shared.__globals__, shared.__name__, shared.__defaults__, shared.__closure__)
            own.__dict__.update(shared.__dict__)
            own.__kwdefaults__, own.__annotations__ = shared.__kwdefaults__, shared.__annotations__
            own.__qualname__ = f"{cls.__qualname__}.__init__"
            cls.__init__ = own  # type: ignore[method-assign]

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool | Literal["single"] = True,
        batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, *extra: object,
        device: torch.device | str | None = None, dtype: torch.dtype | None = None,
        transition: TransitionLike | StableLSTM = "free", learn_initial_state: bool = False, engine: str = "auto",
        recompute: bool = False, proj_size: int = 0,
    ) -> None:  # fmt: skip
        super().__init__()
        refuse_positional(extra)
        refuse_projection(proj_size)
        self._prepare(input_size, hidden_size, bias)
        self.num_layers = check_positive_int("num_layers", num_layers)
        self.batch_first = check_flag("batch_first", batch_first)
        self.dropout = check_dropout(dropout, self.num_layers)
        self.bidirectional = check_flag("bidirectional", bidirectional)
        self.learn_initial_state = check_flag("learn_initial_state", learn_initial_state)
        self.engine = check_engine(engine)
        self.recompute = check_flag("recompute", recompute)
        self._ran: Choice | None = None
        self._make(transition, {"device": device, "dtype": dtype})
        self._hold()
        self._draw()

    def _make(self, transition: TransitionLike | StableLSTM, kwargs: dict[str, Any]) -> None:
        """Make the parameters of every layer and direction, in torch's order."""
        constraints = self._read_transition(transition)
        for layer in range(self.num_layers):
            width = self.input_size if layer == 0 else self.hidden_size * self.directions
            if layer == 1 and isinstance(constraints, StableLSTM):
                # an LSTM's output lies in [-1, 1]; dropout scales what it keeps
                constraints = constraints.with_input_bound(1 / (1 - self.dropout) if self.dropout < 1 else 1.0)
            for direction in range(self.directions):
                self._add(self.suffix(layer, direction), width, constraints, self.learn_initial_state, kwargs)

    def transition_sets(self) -> dict[str, Constraint] | StableLSTM:
        """Return the sets that the recurrent weights stay in, as the argument ``transition`` takes them."""
        end = self.suffix(0, 0)
        slots = self._modules.get(f"transition{end}")
        if isinstance(slots, Transition):
            return {gate: slot.constraint for gate, slot in slots.slots().items()}
        return self._joint[end] if end in self._joint else dict(self._inits)

    def suffixes(self) -> list[str]:
        """Return the ends of the parameter names of all layers and directions, in torch's order."""
        return [self.suffix(layer, way) for layer in range(self.num_layers) for way in range(self.directions)]

    @property
    def all_weights(self) -> list[list[Tensor]]:
        """Every weight, one list per layer and direction, as in torch."""
        names = [
            "weight_ih",
            "weight_hh",
            *(["bias_ih"] if self.bias else []),
            *(["bias_hh"] if self.bias is True else []),
        ]
        return [[getattr(self, f"{name}{end}") for name in names] for end in self.suffixes()]

    def flatten_parameters(self) -> None:
        """Do nothing: torch's layers need it for cuDNN, ours do not; here so that code that calls it runs."""

    def extra_repr(self) -> str:
        """Show the arguments that differ from their defaults."""
        shown: dict[str, object] = {
            "num_layers": 1,
            "bias": True,
            "batch_first": False,
            "dropout": 0.0,
            "bidirectional": False,
        }
        shown |= {"learn_initial_state": False, "engine": "auto", "recompute": False}
        changed = [f"{name}={getattr(self, name)!r}" for name, usual in shown.items() if getattr(self, name) != usual]
        return ", ".join([f"{self.input_size}, {self.hidden_size}", *changed])

    def explain(self) -> str:
        """Say which engine ran last and why, or, before the first run, which one would."""
        if self._ran is not None:
            return f"{type(self).__name__} ran on {self._ran}"
        weight = self.weight_ih_l0
        state = tuple(weight.new_zeros(1, self.hidden_size) for _ in self.cell.record.state_names)
        with torch.no_grad():
            x = weight.new_zeros(1, 1, self.input_size)
            end = self.suffix(0, 0)
            choice = select(self.engine, self._recurrence(x, state, end, None, False, False, self._coordinates(end)))
        return f"{type(self).__name__} has not run yet (or compiled only); it would run on {choice}"

    # `lengths` is meant as a keyword; torch's tracing ONNX exporter hands every default over by its place
    def forward(
        self, input: Tensor | PackedSequence, hx: Any = None, lengths: Tensor | Sequence[int] | None = None
    ) -> tuple[Tensor | PackedSequence, Any]:
        """Run the layer over a sequence.

        Args:
            input: Shape (T, B, D), (B, T, D) if ``batch_first``, (T, D) unbatched, or a packed sequence.
            hx: Initial state, each (L * directions, B, H); zero or the learned one if None.
            lengths: Length of each row, shape (B,), each from 0 to T.

        Returns:
            Outputs of the last layer in the input's form, zero at padding, and the final states of all layers.
        """
        check_traced(input, lengths)
        if isinstance(input, Tensor):
            check_dense("input", input)
        opened, batched, given = open_call(self, input, hx, lengths)
        doubtful = given is None and batched and opened.batch_sizes is None and not self.batch_first
        if doubtful and not self._warned and warn_of_layout(self, opened.data):
            self._warned = True
        with without_autocast(opened.data.device):
            output, states = self._run_stack(opened, initial_states(self, opened, given))
        return close_call(self, output, states, opened, input, batched)

    def _run_stack(self, opened: Opened, start: State) -> tuple[Tensor, State]:
        """Run every layer; return the last one's outputs (T, B, directions * H) and all final states."""
        data, finals = opened.data, []
        for layer in range(self.num_layers):
            outputs = []
            for direction in range(self.directions):
                place = layer * self.directions + direction
                state = tuple(s[place] for s in start)
                end, sizes = self.suffix(layer, direction), opened.batch_sizes
                coordinates = self._coordinates(end)
                run = self._recurrence(data, state, end, sizes, bool(direction), self.recompute, coordinates)
                choice = select(self.engine, run)
                if not torch.compiler.is_compiling():
                    self._ran = choice
                output, final = ENGINES[choice.engine].run(run)
                if coordinates is not None:
                    output, final = coordinates.leave_run(output, final, state, sizes)
                outputs.append(output)
                finals.append(final)
            data = outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=-1)
            if self.dropout and layer < self.num_layers - 1:
                data = nn.functional.dropout(data, self.dropout, self.training)
        if len(finals) == 1:
            return data, tuple(state.unsqueeze(0) for state in finals[0])
        return data, tuple(torch.stack(states) for states in zip(*finals, strict=True))
