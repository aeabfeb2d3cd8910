"""The LSTM through torch's own oneDNN layer, where that supports the call: in eager mode as it is, elsewhere inside our op."""

import torch
from torch import Tensor

from steadyrnn.cells.base import State

from ..base import Recurrence
from ..loop.call import Forward, Gradients
from ..loop.family import Family

__all__ = ["OneDNNFamily", "run_onednn", "supports_onednn"]

_LSTM_MODE = 2  # torch's number for an LSTM in its own recurrent ops
_layer = torch.ops.aten.mkldnn_rnn_layer.default
_layer_backward = torch.ops.aten.mkldnn_rnn_layer_backward.default


def supports_onednn(x: Tensor, h: Tensor, recurrent: list[Tensor], ragged: bool) -> bool:
    """Say whether torch's oneDNN layer can run a call: float32, stacked gates, every row of full length, nothing empty.

    Args:
        x: The input, shape (T, B, D).
        h: The first of the initial states, shape (B, H).
        recurrent: The tensors of the recurrent weight.
        ragged: Whether rows have lengths of their own.
    """
    plain = len(recurrent) == 1 and not ragged and x.dtype == torch.float32 and x.device.type == "cpu"
    return plain and 0 not in (x.numel(), h.numel()) and torch.backends.mkldnn.is_available()


def run_onednn(run: Recurrence, weight_hh: Tensor, keep: bool) -> tuple[Tensor, State]:
    """Run the layer under torch's own autograd, which can differentiate it twice: nothing of ours stands around it."""
    weight_ih, bias_ih, bias_hh = run.weight_ih, run.bias_ih, run.bias_hh
    if bias_ih is None or bias_hh is None:
        zero = weight_ih.new_zeros(weight_ih.shape[0])
        bias_ih, bias_hh = (zero if bias is None else bias for bias in (bias_ih, bias_hh))
    h, c = (state.contiguous() for state in run.state)
    output, h_n, c_n, _ = _layer(
        run.input.contiguous(), weight_ih, weight_hh.contiguous(), bias_ih, bias_hh, h, c, run.reverse, [], _LSTM_MODE,
        weight_hh.shape[1], 1, True, False, False, keep,
    )  # fmt: skip
    return output, (h_n, c_n)


class OneDNNFamily(Family):
    """The same function through the op that ``torch.nn.LSTM`` uses; the stash is its workspace."""

    def stash_like(self) -> Tensor:
        """Return bytes of a size that a traced graph leaves open: only oneDNN knows that of its workspace."""
        return self.call.input.new_empty(torch.library.get_ctx().new_dynamic_size(), dtype=torch.uint8)

    def weights(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return both weights and both biases, zero where there is none."""
        call = self.call
        rows = call.weight_ih.shape[0]
        b_ih, b_hh = (call.weight_ih.new_zeros(rows) if b is None else b for b in (call.bias_ih, call.bias_hh))
        return call.weight_ih, call.recurrent[0].contiguous(), b_ih, b_hh

    def forward(self, keep: bool) -> Forward:
        """Run the layer."""
        h, c = (s.contiguous().unsqueeze(0) for s in self.call.state)
        with torch.set_grad_enabled(keep):  # below autograd nothing is recorded; the op makes its workspace only so
            output, h_n, c_n, workspace = _layer(
                self.call.input.contiguous(), *self.weights(), h, c, self.call.reverse, [], _LSTM_MODE, self.hidden, 1,
                True, False, False, keep,
            )  # fmt: skip
        return Forward(output, [h_n[0], c_n[0]], workspace if keep else output.new_empty(0))

    def backward(
        self, done: Forward, grad_output: Tensor | None, grad_state: list[Tensor | None], needs_input: bool
    ) -> Gradients:
        """Run its adjoint."""
        call = self.call
        h, c = (s.contiguous().unsqueeze(0) for s in call.state)
        given = [None if g is None else g.contiguous().unsqueeze(0) for g in grad_state]
        grad = torch.zeros_like(done.output) if grad_output is None else grad_output.contiguous()
        d_x, d_ih, d_hh, d_b, _, d_h, d_c = _layer_backward(
            call.input.contiguous(), *self.weights(), h, c, done.output, *(s.unsqueeze(0) for s in done.state), grad,
            *given, call.reverse, _LSTM_MODE, self.hidden, 1, True, True, False,
            [], False, done.stash,
        )  # fmt: skip
        b_ih = None if call.bias_ih is None else d_b
        b_hh = None if call.bias_hh is None else d_b.clone()
        states = [d_h.view_as(call.state[0]), d_c.view_as(call.state[1])]
        return Gradients(d_x if needs_input else None, states, d_ih, [d_hh], b_ih, b_hh, None)
