"""Table 1 of Zhang et al.: the operations of a step in reflector form, counted one by one and compared with the formulas."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch

from steadyrnn.linalg.householder import householder_apply

from .base import Judgement
from .curves import Axis, Line, Mark, Panel

__all__ = [
    "count_orthogonal", "count_spectral", "judge_hgrad", "judge_hprod", "judge_orthogonal_backward", "judge_orthogonal_forward",
    "judge_spectral_backward", "judge_spectral_forward", "show_counts",
]  # fmt: skip

_NEAR = 8.0
"""Formulas leave out terms of order n: a count that is within this times n of a formula agrees with it."""


class _Counter:
    """Vector arithmetic on lists of numbers that counts every multiplication, addition and division."""

    def __init__(self) -> None:
        self.operations = 0

    def dot(self, a: Sequence[float], b: Sequence[float]) -> float:
        self.operations += 2 * len(a) - 1
        return sum(x * y for x, y in zip(a, b, strict=True))

    def multiply(self, a: float, b: float) -> float:
        self.operations += 1
        return a * b

    def scale(self, factor: float, a: Sequence[float]) -> list[float]:
        self.operations += len(a)
        return [factor * x for x in a]

    def add(self, a: Sequence[float], b: Sequence[float], sign: float = 1.0) -> list[float]:
        self.operations += len(a)
        return [x + sign * y for x, y in zip(a, b, strict=True)]


def _hprod(count: _Counter, h: list[float], u: list[float], over: float) -> tuple[list[float], float]:
    """Reflect the last entries of h; ``over`` is 2 / (u.u), computed once for a whole sequence. 4k operations."""
    tail = h[-len(u) :]
    alpha = count.multiply(count.dot(u, tail), over)
    return h[: -len(u)] + count.add(tail, count.scale(alpha, u), -1.0), alpha


def _hgrad_printed(
    count: _Counter, h: list[float], u: list[float], over: float, alpha: float, g: list[float]
) -> tuple[list[float], list[float]]:
    r"""Three terms on all n entries: :math:`-\alpha g - \beta h + \alpha \beta u`. 3n + 6k and two."""
    beta = count.multiply(count.dot(u, g[-len(u) :]), over)  # 2k
    back = g[: -len(u)] + count.add(g[-len(u) :], count.scale(beta, u), -1.0)  # 2k
    left = count.add(count.scale(-alpha, g), count.scale(beta, h), -1.0)  # 3n
    whole = left[: -len(u)] + count.add(left[-len(u) :], count.scale(count.multiply(alpha, beta), u))  # 2k
    return back, whole[-len(u) :]


def _hgrad_short(
    count: _Counter, after: list[float], u: list[float], over: float, alpha: float, g: list[float]
) -> tuple[list[float], list[float]]:
    r"""Two terms on the last k entries, from the output: :math:`-\alpha g - \beta \hat h`. 7k."""
    tail = g[-len(u) :]
    beta = count.multiply(count.dot(u, tail), over)  # 2k
    back = g[: -len(u)] + count.add(tail, count.scale(beta, u), -1.0)  # 2k
    grad = count.add(count.scale(-alpha, tail), count.scale(beta, after[-len(u) :]), -1.0)  # 3k
    return back, grad


class _Chain:
    """Reflectors applied one after another, forwards and backwards."""

    def __init__(self, reflectors: list[list[float]]) -> None:
        self.reflectors = reflectors
        self.over = [2.0 / sum(x * x for x in u) for u in reflectors]
        self.states: list[list[float]] = []
        self.alphas: list[float] = []

    def forward(self, count: _Counter, h: list[float]) -> list[float]:
        self.states, self.alphas = [h], []
        for u, over in zip(self.reflectors, self.over, strict=True):
            h, alpha = _hprod(count, h, u, over)
            self.states.append(h)
            self.alphas.append(alpha)
        return h

    def backward(self, count: _Counter, g: list[float], short: bool) -> tuple[list[float], list[list[float]]]:
        grads: list[list[float]] = []
        for i in reversed(range(len(self.reflectors))):
            rule, state = (_hgrad_short, self.states[i + 1]) if short else (_hgrad_printed, self.states[i])
            g, grad = rule(count, state, self.reflectors[i], self.over[i], self.alphas[i], g)
            grads.insert(0, grad)
        return g, grads


def _draw(width: int, reflectors: int, generator: torch.Generator) -> list[list[float]]:
    """Return random reflectors that act on the last n - m + 1 to n entries, shortest first."""
    sizes = range(width - reflectors + 1, width + 1)
    return [torch.randn(k, generator=generator, dtype=torch.float64).tolist() for k in sizes]


def _columns(reflectors: list[list[float]], width: int) -> torch.Tensor:
    """Return reflectors as columns padded on top, the last one first: their product is applied right to left."""
    padded = [[0.0] * (width - len(u)) + u for u in reversed(reflectors)]
    return torch.tensor(padded, dtype=torch.float64).mT.contiguous().requires_grad_()


def count_orthogonal(width: int, reflectors: int) -> dict[str, Any]:
    """Count the operations of one step of an oRNN, and compare its result and gradients with autograd.

    Args:
        width: Units n.
        reflectors: Number m.

    Returns:
        Operations forwards, backwards in the paper's three terms and in two terms, and the largest error of any gradient.

    Example:
        >>> found = count_orthogonal(width=8, reflectors=2)
        >>> found["forward"], found["error"] < 1e-12
        (60, True)
    """
    generator = torch.Generator().manual_seed(0)
    chain = _Chain(_draw(width, reflectors, generator))
    h = torch.randn(width, generator=generator, dtype=torch.float64, requires_grad=True)
    g = torch.randn(width, generator=generator, dtype=torch.float64)
    columns = _columns(chain.reflectors, width)
    expected = householder_apply(columns, h.unsqueeze(1)).squeeze(1)
    wanted = torch.autograd.grad(expected, (h, columns), g)
    forward, counts = _Counter(), {}
    errors = [_gap(chain.forward(forward, h.tolist()), expected)]
    for name, short in (("backward", False), ("backward_short", True)):
        backward = _Counter()
        errors += _compare(chain.backward(backward, g.tolist(), short), wanted, width)
        counts[name] = backward.operations
    return {"width": width, "reflectors": reflectors, "forward": forward.operations, **counts, "error": max(errors)}


def count_spectral(width: int, reflectors: int) -> dict[str, Any]:
    """Count the operations of one step of a Spectral-RNN, and compare its result and gradients with autograd.

    Args:
        width: Units n.
        reflectors: Numbers m1 = m2 = m.

    Returns:
        As :func:`count_orthogonal`.

    Example:
        >>> found = count_spectral(width=8, reflectors=2)
        >>> found["forward"], found["error"] < 1e-12
        (128, True)
    """
    generator = torch.Generator().manual_seed(0)
    right, left = _Chain(_draw(width, reflectors, generator)[::-1]), _Chain(_draw(width, reflectors, generator))
    sigma = (1 + 0.1 * torch.randn(width, generator=generator, dtype=torch.float64)).requires_grad_()
    h = torch.randn(width, generator=generator, dtype=torch.float64, requires_grad=True)
    g = torch.randn(width, generator=generator, dtype=torch.float64)
    columns = [_columns(chain.reflectors, width) for chain in (right, left)]
    inner = householder_apply(columns[0], h.unsqueeze(1)).squeeze(1)
    expected = householder_apply(columns[1], (sigma * inner).unsqueeze(1)).squeeze(1)
    wanted = torch.autograd.grad(expected, (h, sigma, *columns), g)
    forward, counts, values = _Counter(), {}, sigma.tolist()
    turned = right.forward(forward, h.tolist())
    forward.operations += width
    errors = [_gap(left.forward(forward, [s * x for s, x in zip(values, turned, strict=True)]), expected)]
    for name, short in (("backward", False), ("backward_short", True)):
        backward = _Counter()
        back, left_grads = left.backward(backward, g.tolist(), short)
        backward.operations += 2 * width  # of the singular values, and through them
        errors.append(_gap([b * t for b, t in zip(back, turned, strict=True)], wanted[1]))
        back = [b * s for b, s in zip(back, values, strict=True)]
        errors += _compare(right.backward(backward, back, short), (wanted[0], wanted[2]), width)
        errors += _compare((wanted[0].tolist(), left_grads), (wanted[0], wanted[3]), width)
        counts[name] = backward.operations
    return {"width": width, "reflectors": reflectors, "forward": forward.operations, **counts, "error": max(errors)}


def _gap(found: Sequence[float], expected: torch.Tensor) -> float:
    return float((torch.tensor(found, dtype=torch.float64) - expected.detach()).abs().max())


def _compare(found: tuple[list[float], list[list[float]]], wanted: Sequence[torch.Tensor], width: int) -> list[float]:
    """Return the largest errors of the gradient of the state and of each reflector."""
    back, grads = found
    free = [wanted[1][width - len(grad) :, i] for i, grad in enumerate(reversed(grads))]  # the zeros above are no parameters
    return [_gap(back, wanted[0]), *(_gap(grad, column) for grad, column in zip(reversed(grads), free, strict=True))]


_Factors = tuple[float, float]
"""Of nm and of m^2 in a formula, per set of m reflectors."""


class _Formula(NamedTuple):
    """A printed formula, the count it is about, and the right one where it is wrong."""

    kind: str
    key: str
    printed: _Factors
    right: _Factors | None = None
    remark: str = ""


_FORMULAS = {
    "Spectral-RNN FP": _Formula("spectral", "forward", (4.0, -2.0)),
    "Spectral-RNN BP": _Formula(
        "spectral", "backward", (6.0, -1.5), (9.0, -3.0),
        "right is 9n(m1+m2) - 3m1^2 - 3m2^2 with the table's own Hgrad; 7n(m1+m2) - 3.5m1^2 - 3.5m2^2 in two terms",
    ),
    "oRNN FP": _Formula(
        "orthogonal", "forward", (4.0, -1.0), (4.0, -2.0), "right is 4nm - 2m^2, the sum of the table's own Hprod"
    ),
    "oRNN BP": _Formula(
        "orthogonal", "backward_short", (7.0, -2.0), (7.0, -3.5),
        "right is 7nm - 3.5m^2 in two terms, which need the last k entries alone",
    ),
}  # fmt: skip
"""By the name of the row."""


def _evaluate(factors: _Factors, kind: str, one: Mapping[str, Any]) -> float:
    """Return a formula at the sizes of a count, without its terms of order n."""
    n, m = int(one["width"]), int(one["reflectors"])
    return (2 if kind == "spectral" else 1) * (factors[0] * n * m + factors[1] * m * m)


def _judge(cells: Mapping[str, Any], row: str) -> Judgement:
    """Compare counts with a printed formula, and with the right one: they agree if they differ by O(n) at every size."""
    kind, key, printed, right, remark = _FORMULAS[row]
    found = [numbers for name, numbers in cells.items() if name.startswith(f"{kind}/")]
    last, by_formula = found[-1], _evaluate(printed, kind, found[-1])
    text = f"n = {last['width']}, m = {last['reflectors']}: {last[key]:,} counted, {by_formula:,.0f} by the formula"
    verdict = "not seen"
    if all(one["error"] < 1e-9 for one in found):
        if _largest_gap(found, key, kind, printed) <= _NEAR:
            verdict = "seen"
        elif right is not None and _largest_gap(found, key, kind, right) <= _NEAR:
            verdict, text = "different", f"{text}; {remark}"
    return Judgement(verdict, text, last[key], unit="operations")


def _largest_gap(found: Sequence[Mapping[str, Any]], key: str, kind: str, factors: _Factors) -> float:
    """Return by how many times n a count differs from a formula at most."""
    gaps: list[float] = [abs(one[key] - _evaluate(factors, kind, one)) / one["width"] for one in found]
    return max(gaps)


def judge_hprod(cells: Mapping[str, Any]) -> Judgement:
    """One reflection, 4k operations."""
    found = [one for name, one in cells.items() if name.startswith("orthogonal/")]
    means = [one["forward"] / sum(range(one["width"] - one["reflectors"] + 1, one["width"] + 1)) for one in found]
    return Judgement("seen" if all(abs(mean - 4) < 1e-12 for mean in means) else "not seen", f"{means[-1]:g}k", means[-1])


def judge_hgrad(cells: Mapping[str, Any]) -> Judgement:
    """One gradient, 3n + 6k operations in three terms; 7k in two."""
    found = [one for name, one in cells.items() if name.startswith("orthogonal/")]
    off = []
    for one in found:
        n, m = one["width"], one["reflectors"]
        off.append(abs(one["backward"] - sum(3 * n + 6 * k for k in range(n - m + 1, n + 1))) / m)
    text = "3n + 6k and at most 2 more; 7k are enough, since a gradient needs the last k entries alone"
    return Judgement("seen" if max(off) <= 2 else "not seen", text)


def judge_spectral_forward(cells: Mapping[str, Any]) -> Judgement:
    """A step of the Spectral-RNN."""
    return _judge(cells, "Spectral-RNN FP")


def judge_spectral_backward(cells: Mapping[str, Any]) -> Judgement:
    """The gradient of a step of the Spectral-RNN; the printed formula contradicts the row of Hgrad."""
    return _judge(cells, "Spectral-RNN BP")


def judge_orthogonal_forward(cells: Mapping[str, Any]) -> Judgement:
    """A step of the oRNN; the printed formula contradicts the row of Hprod."""
    return _judge(cells, "oRNN FP")


def judge_orthogonal_backward(cells: Mapping[str, Any]) -> Judgement:
    """The gradient of a step of the oRNN, in its cheapest form."""
    return _judge(cells, "oRNN BP")


def show_counts(cells: Mapping[str, Any]) -> list[Panel]:
    """Show counts relative to the printed formulas, and to the right ones: with m = n/2, what is right tends to 1."""
    return [_show_ratios(cells, "printed", False), _show_ratios(cells, "right", True)]


def _show_ratios(cells: Mapping[str, Any], word: str, corrected: bool) -> Panel:
    lines = []
    for row, (kind, key, printed, right, _) in _FORMULAS.items():
        found = [one for name, one in cells.items() if name.startswith(f"{kind}/") and one["width"] == 2 * one["reflectors"]]
        factors = right if corrected and right is not None else printed
        y = [one[key] / _evaluate(factors, kind, one) for one in found]
        lines.append(Line(row, [one["width"] for one in found], y))
    title = f"Counted operations against the {word} formulas"
    y_axis = Axis(f"counted / {word}")
    return Panel(title, Axis("units n, with n/2 reflectors"), y_axis, lines, [Mark("equal", y=1)])
