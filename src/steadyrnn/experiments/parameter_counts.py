"""Parameters of a network, counted and compared with what a paper prints."""

from collections.abc import Mapping
from typing import Any

from steadyrnn.jobs.configuration import Configuration
from steadyrnn.models.settings import complete
from steadyrnn.models.systems import build_model
from steadyrnn.tasks.base import Interface

from .base import Judgement

__all__ = ["count_parameters", "judge_count"]

_UNITS = {"all": 1000, "unbiased": 1000, "recurrent": 1024, "factors": 1024, "formula": 1000}
_REASONS = {
    "all": "",
    "unbiased": "without the input bias, which the published network does not have",
    "recurrent": "printed are the entries of the recurrent weights alone, in units of 1024",
    "factors": "printed are the entries of U, sigma and V alone, in units of 1024",
    "formula": "the paper's own formula (n_y + n_i + n + 1) n, with output bias and initial state, gives this and no other",
}


def count_parameters(settings: Mapping[str, Any], inputs: int, outputs: int) -> dict[str, int]:
    """Count the parameters of a network with one recurrent layer.

    Args:
        settings: Dotted settings of the model: ``{"model.name": "lstm", "model.width": 128}``.
        inputs: Features of a step, n_i.
        outputs: n_y.

    Returns:
        ``all`` that are trained; ``unbiased``, without the input bias; ``recurrent``, those of the recurrent weight alone;
        ``factors``, entries of two square matrices of the width n and a diagonal; ``formula``, the paper's count for an RNN,
        (n_y + n_i + n + 1) n, with n_y output biases and n entries of the initial state.

    Example:
        >>> found = count_parameters({"model.name": "rnn", "model.width": 4}, inputs=1, outputs=2)
        >>> found["all"], found["recurrent"], found["formula"]
        (34, 16, 38)
    """
    configuration = Configuration.from_dotted({"task.name": "pixel-mnist", **settings})
    model = build_model(configuration.model, Interface(inputs=inputs, outputs=outputs))
    counts = {name: parameter.numel() for name, parameter in model.named_parameters()}
    n, count = complete(configuration.model).width or 0, sum(counts.values())
    return {
        "all": count,
        "unbiased": count - sum(size for name, size in counts.items() if "bias_ih" in name),
        "recurrent": sum(size for name, size in counts.items() if "weight_hh" in name or "transition" in name),
        "factors": 2 * n * n + n,
        "formula": (outputs + inputs + n + 1) * n + outputs + n,
    }


def judge_count(cells: Mapping[str, Any], cell: str, printed: float, part: str = "all") -> Judgement:
    """Judge a printed number of parameters, in units that the paper writes as k.

    Seen where the whole count rounds to the printed one; different where another count, which the claim names, explains it.

    Args:
        cells: Numbers by name.
        cell: That of :func:`count_parameters`.
        printed: As printed.
        part: Which count explains the printed number; ``"formula"`` where none does and the paper's own formula gives ours.

    Example:
        >>> judge_count({"lstm": {"all": 68106, "recurrent": 65536}}, "lstm", 64, "recurrent").verdict
        'different'
    """
    found = cells[cell]
    fits = round(found[part] / _UNITS[part]) == printed
    explained = found["all"] == found[part] and not fits if part == "formula" else fits
    verdict = "not seen" if not explained else "seen" if part == "all" else "different"
    more = f"; {found[part]:,}: {_REASONS[part]}" if part != "all" else ""
    return Judgement(verdict, f"{found['all']:,}{more}", found["all"], unit="parameters")
