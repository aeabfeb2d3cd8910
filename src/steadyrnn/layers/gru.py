"""The GRU layer."""

from typing import Literal

import torch

from steadyrnn.cells.gru import GRUStep
from steadyrnn.checks import check_flag

from .arguments import with_shared_arguments
from .base import RecurrentLayer
from .transition import TransitionLike

__all__ = ["GRU"]


@with_shared_arguments
class GRU(RecurrentLayer):
    r"""A drop-in for :class:`torch.nn.GRU` with a constraint on any gate.

    .. math:: h_t = (1 - z) \circ n + z \circ h_{t-1}

    One constraint is put on the candidate gate ``n`` (the uGRU of Lin and Wang); a mapping names gates ``r``, ``z``,
    ``n``. Each gate is in its set by itself, not the stack of all three. See Note [gates of a GRU].

    Args:
        <arguments of every layer>
        transition: The set of the candidate's weight, or a mapping from gates to sets.
        reset_after: Whether the reset gate acts behind the recurrent product (torch's form) or before it.

    Example:
        >>> gru = sr.GRU(3, 8, transition={"n": "ornn"}, reset_after=False)
        >>> output, h_n = gru(torch.randn(5, 2, 3), lengths=torch.tensor([5, 0]))
        >>> float(output[:, 1].abs().sum())
        0.0

    References:
        Lin, Wang. uRNN: An Approach to Bounded Gradients.
    """

    mode = "GRU"

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 1, bias: bool | Literal["single"] = True,
        batch_first: bool = False, dropout: float = 0.0, bidirectional: bool = False, *extra: object,
        device: torch.device | str | None = None, dtype: torch.dtype | None = None, transition: TransitionLike = "free",
        reset_after: bool = True, learn_initial_state: bool = False, engine: str = "auto", recompute: bool = False,
        proj_size: int = 0,
    ) -> None:  # fmt: skip
        self.reset_after = check_flag("reset_after", reset_after)
        self.cell = GRUStep(self.reset_after)
        super().__init__(
            input_size, hidden_size, num_layers, bias, batch_first, dropout, bidirectional,
            *extra, device=device, dtype=dtype, transition=transition, learn_initial_state=learn_initial_state, engine=engine,
            recompute=recompute, proj_size=proj_size,
        )  # fmt: skip

    def extra_repr(self) -> str:
        """Show the reset form too."""
        return super().extra_repr() + ("" if self.reset_after else ", reset_after=False")
