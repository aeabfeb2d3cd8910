"""The mutants: faults of the kinds people make, in every package (a sign, one step too many, a term or a mask forgotten)."""

from tests.mutants.mutant import Mutant

__all__ = ["MUTANTS"]

_LINALG = [
    Mutant("a bound of the norm without its rounding", "linalg/norms.py",
           "    return _above(_norm_of_symmetric(square, squarings) + error)",
           "    return _above(_norm_of_symmetric(square, squarings))", ("linalg/test_norms.py",)),
    Mutant("projection onto the spectral ball forgets the margin", "linalg/projections.py",
           "sigma.clamp(inner_low, max(high - margin, middle))", "sigma.clamp(inner_low, high)",
           ("linalg/test_projections.py",)),
    Mutant("level of the l1 ball from a sum one short", "linalg/projections.py",
           "steps = torch.arange(1, rows.shape[1] + 1,", "steps = torch.arange(0, rows.shape[1],",
           ("linalg/test_projections.py",)),
]  # fmt: skip

_BOUNDS = [
    Mutant("rows of a truncated gradient decay once too often", "bounds/gradients.py",
           "truncation_error(rate, 1.0, steps - 1), loss_gain", "truncation_error(rate, 1.0, steps), loss_gain",
           ("bounds/test_gradients.py",)),
    Mutant("gradient's change with the parameters without b_ww", "bounds/gradients.py",
           "        product_above(loss_gain, c.b_ww, total),\n", "", ("bounds/test_gradients.py",)),
    Mutant("state radius forgets where the state started", "bounds/memory.py",
           "    return max(initial, product_above(start, 1 / (1 - rate)))",
           "    return product_above(start, 1 / (1 - rate))", ("bounds/test_memory.py",)),
    Mutant("comparison matrix of an LSTM without its forget weights", "bounds/lstm.py",
           "enters * g + cell * f / 4, squashed * o / 4", "enters * g, squashed * o / 4", ("bounds/test_lstm.py",)),
    Mutant("LSTM's output gate acts on the old cell", "bounds/lstm.py",
           "        return torch.cat([top, box.output * top + rest @ hidden])",
           "        return torch.cat([top, box.output * cell + rest @ hidden])", ("bounds/test_lstm.py",)),
    Mutant("layers of a stack pass no error up", "bounds/stack.py",
           "        rows.append([*passed, rate])", "        rows.append([*(0.0 for _ in passed), rate])",
           ("bounds/test_stack.py",)),
    Mutant("error of a tanh dilation half as large", "bounds/unitary.py",
           "enters = above(2 * coupling * math.sqrt(rank)", "enters = above(coupling * math.sqrt(rank)",
           ("bounds/test_unitary.py",)),
]  # fmt: skip

_CELLS = [
    Mutant("update gate of the GRU the other way round", "cells/gru.py",
           "return (n + z * (h - n),)", "return (h + z * (n - h),)", ("cells/test_cells.py",)),
    Mutant("reset gate of the first form forgotten", "cells/gru.py",
           "recur(r * h, \"n\")", "recur(h, \"n\")", ("cells/test_cells.py",)),
    Mutant("LSTM's cell state leaves unsquashed", "cells/lstm.py",
           "return o.sigmoid() * c.tanh(), c", "return o.sigmoid() * c, c", ("cells/test_cells.py",)),
]  # fmt: skip

_ENGINES = [
    Mutant("loop over time in the wrong direction", "engines/reference.py",
           "for t in reversed(range(steps)) if recurrence.reverse else range(steps):", "for t in range(steps):",
           ("layers/test_torch_parity.py",)),
    Mutant("padding keeps its outputs", "engines/reference.py",
           "outputs[t] = torch.where(on, new[0], torch.zeros_like(new[0]))", "outputs[t] = new[0]",
           ("layers/test_sequences.py",)),
    Mutant("gradient of the forget gate from the new cell", "engines/cpu/lstm.py",
           "torch.mul(dc, visit.before[1], out=work)", "torch.mul(dc, cell, out=work)", ("engines/test_autograd.py",)),
    Mutant("gradient of the learned activation from the last step only", "engines/cpu/rnn.py",
           "grad_theta += change", "grad_theta = change", ("engines/test_autograd.py", "layers/test_derivatives.py")),
    Mutant("no step back from the update gate to the state", "engines/cpu/gru.py",
           "        torch.mul(total, z, out=kept)\n", "        kept.zero_()\n", ("engines/test_autograd.py",)),
]  # fmt: skip

_LAYERS = [
    Mutant("dropout also behind the last layer", "layers/base.py",
           "if self.dropout and layer < self.num_layers - 1:", "if self.dropout:", ("layers/test_options.py",)),
    Mutant("states of the reverse direction taken from the forward one", "layers/base.py",
           "state = tuple(s[place] for s in start)", "state = tuple(s[layer * self.directions] for s in start)",
           ("layers/test_torch_parity.py",)),
    Mutant("a refused assignment leaves the gates before it changed", "layers/transition.py",
           "            self.restore(kept)\n            raise", "            raise", ("layers/test_transitions.py",)),
]  # fmt: skip

_CONSTRAINTS = [
    Mutant("weight under autocast in half precision", "constraints/base.py",
           "        with without_autocast(raw[0].device):\n            value: Tensor = super().__call__(*raw)\n            return value",
           "        value: Tensor = super().__call__(*raw)\n        return value",
           ("constraints/test_contract.py", "constraints/test_attach.py", "layers/test_transitions.py")),
    Mutant("a matrix outside its set is taken", "constraints/base.py",
           "        if violation <= allowed:\n            return matrix", "        return matrix", ("constraints/test_contract.py",)),
    Mutant("all reflectors' learning rate is the others'", "constraints/optimizer.py",
           "\"lr\": lr if transition_lr is None else transition_lr", "\"lr\": lr", ("constraints/test_optimizer.py",)),
]  # fmt: skip

_MODELS = [
    Mutant("readout sees the input of another step", "models/truncated.py",
           "state = seen[max(seen.shape[0] - self.context + 1, 0) :]", "state = seen[max(seen.shape[0] - self.context, 0) :]",
           ("models/test_truncated.py",)),
    Mutant("a readout that skips the layer is left out", "models/sequence.py",
           "logits = logits + self.skip(_data(x))", "logits = logits + 0 * self.skip(_data(x))", ("models/test_sequence.py",)),
]  # fmt: skip

_PROBES = [
    Mutant("band of a loss without what it sees last", "probes/band.py",
           "weights = high[first - (steps - lag) : lag + 1].unsqueeze(-1)",
           "weights = high[first - (steps - lag) : lag + 1].unsqueeze(-1) * (torch.arange(len(seen)) < len(seen) - 1).unsqueeze(-1)",
           ("probes/test_gradient_flow.py",)),
    Mutant("margin of the largest singular value only", "probes/spectrum.py",
           "(check_finite(name, values) - 1).abs().max()", "(check_finite(name, values) - 1).max()", ("probes/test_spectrum.py",)),
]  # fmt: skip

_TASKS = [
    Mutant("the signal of the copy task one step late", "tasks/copying.py",
           "symbols[self.settings.delay + _MESSAGE - 1] = _GO", "symbols[self.settings.delay + _MESSAGE] = _GO",
           ("tasks/test_copying.py",)),
    Mutant("both marks of the addition task in the first half", "tasks/addition.py",
           "below=length - half) + half", "below=half)", ("tasks/test_addition.py",)),
    Mutant("an epoch starts over before it is through", "tasks/splits.py",
           "start = wanted[0] - first * self.count", "start = 0", ("tasks/test_splits.py",)),
]  # fmt: skip

_TRAIN = [
    Mutant("entries are clipped on one side", "train/clipping.py",
           "parameter.grad.clamp_(-settings.recurrent, settings.recurrent)", "parameter.grad.clamp_(max=settings.recurrent)",
           ("train/test_clipping.py",)),
    Mutant("warm-up one step too long", "train/schedules.py",
           "(moment.step + 1) / settings.warmup", "moment.step / settings.warmup", ("train/test_schedules.py",)),
    Mutant("a tie in the metric is never the best", "train/stopping.py",
           " or (_equal(metric, self.best) and _better(loss, self.loss_at_best, higher=False))", "", ("train/test_stopping.py",)),
    Mutant("parts of a batch are not weighted", "train/step.py",
           "            loss, total = loss * part.share, total * part.share", "            loss = loss * part.share",
           ("train/test_trainer.py",)),
]  # fmt: skip

_REPORT = [
    Mutant("test score of the last weights instead of the best", "report/groups.py",
           "for record in best or tests]", "for record in tests]", ("report/test_groups.py",)),
    Mutant("standard deviation by n", "report/numbers.py",
           "/ (len(values) - 1))", "/ len(values))", ("report/test_page.py", "report/test_groups.py")),
]  # fmt: skip

MUTANTS: list[Mutant] = [
    *_LINALG, *_BOUNDS, *_CELLS, *_ENGINES, *_LAYERS, *_CONSTRAINTS, *_MODELS, *_PROBES, *_TASKS, *_TRAIN, *_REPORT,
]  # fmt: skip
