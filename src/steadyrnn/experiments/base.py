"""The record of a table or figure: what is run, what the paper says, and how the two are compared; free of torch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pkgutil import resolve_name
from statistics import fmean, stdev
from typing import Any

from steadyrnn.errors import ArgumentError
from steadyrnn.jobs.work import Cell, Work

from .published.base import Published

__all__ = [
    "PAPERS",
    "TARGET_VERDICTS",
    "VERDICTS",
    "Claim",
    "Experiment",
    "Judgement",
    "Series",
    "group_by_seed",
    "judge_numbers",
]

PAPERS: dict[str, str] = {
    "emami": "Emami, Sahraee-Ardakan, Fletcher, Rangan. Input-Output Equivalence of Unitary and Contractive RNNs. NeurIPS 2019",
    "zhang": "Zhang, Lei, Dhillon. Stabilizing Gradients for Deep Neural Networks via Efficient SVD Parameterization. "
    "ICML 2018",
    "lin": "Lin, Wang. uRNN: An Approach to Bounded Gradients",
    "miller": "Miller, Hardt. When Recurrent Models Don't Need To Be Recurrent. ICLR 2019",
}
"""The papers by the first word of an experiment's name."""

_SOURCES = {**PAPERS, "ours": "Targets of this package, beyond the papers"}

VERDICTS: dict[str, str] = {
    "seen": "our measurement shows what the paper says",
    "not seen": "our measurement does not show it",
    "different": "we measured something else: a score clearly better than the printed one, or what we know the reason for, "
    "such as a misprint or a statement that holds in another form",
    "not measured": "we did not measure it: its data is not there",
}
"""What a claim can be judged, and what it means."""

TARGET_VERDICTS: dict[str, str] = {
    "met": "the mean over seeds reaches our goal",
    "missed": "it does not, or a run diverged",
}
"""What a target of ours can be judged, and what it means."""

_ANY_VERDICT = (*VERDICTS, *TARGET_VERDICTS)

PLACES = ("seconds", "cpu", "gpu")
"""Where an experiment runs in full: anywhere in seconds, on a CPU in minutes, or on a GPU."""


@dataclass(frozen=True)
class Series:
    """Cells that differ in their seed alone.

    Args:
        name: The cells are called ``NAME/seed0`` and so on, or ``NAME`` where there is no seed.
        function: ``package.module:function``; called with ``arguments``, and with ``seed`` where there are seeds.
        arguments: JSON values by name.
        seeds: One cell each; empty for one cell that draws nothing.
        after: The name of an earlier cell, whose numbers the function gets as ``found``.
        resumable: Whether the function gets a ``folder`` where it keeps what it needs to go on.
        together: Whether one cell has all seeds, which the function gets as ``seeds``: a group of networks.

    Example:
        >>> [cell.name for cell in Series("rnn", "math:sqrt", seeds=(0, 1)).cells()]
        ['rnn/seed0', 'rnn/seed1']
    """

    name: str
    function: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    seeds: tuple[int, ...] = ()
    after: str | None = None
    resumable: bool = False
    together: bool = False

    def cells(self, seeds: Sequence[int] | None = None) -> list[Cell]:
        """Return the cells, with other seeds where these are given and there are any."""
        chosen = self.seeds if seeds is None or not self.seeds else seeds
        single = self.together or not self.seeds
        named = {self.name: None} if single else {f"{self.name}/seed{seed}": seed for seed in chosen}
        given = {**self.arguments, "seeds": [*chosen]} if self.together else self.arguments
        return [Cell(name, self.function, given, seed, self.after, self.resumable) for name, seed in named.items()]


@dataclass(frozen=True)
class Judgement:
    """What our numbers say about a claim.

    Args:
        verdict: One of :data:`VERDICTS`, or of :data:`TARGET_VERDICTS`.
        ours: Our figure in words, for people.
        mean: Our figure; None where it is not one number.
        spread: Standard deviation over seeds; None for fewer than two.
        seeds: Number of seeds; 0 where nothing was drawn.
        unit: What mean and spread are, in a few words.

    Raises:
        ArgumentError: The verdict is another word.

    Example:
        >>> Judgement("seen", "10.0", 10.0).seeds
        0
    """

    verdict: str
    ours: str
    mean: float | None = None
    spread: float | None = None
    seeds: int = 0
    unit: str = ""

    def __post_init__(self) -> None:
        if self.verdict not in _ANY_VERDICT:
            raise ArgumentError(f"`verdict` must be one of {', '.join(_ANY_VERDICT)}, but is {self.verdict!r}.")


def judge_numbers(verdict: str, ours: str, numbers: Sequence[float], unit: str = "") -> Judgement:
    """Return a judgement with mean and spread of one number per seed.

    Example:
        >>> judge_numbers("seen", "about 2", [1.0, 3.0]).spread
        1.4142135623730951
    """
    return Judgement(verdict, ours, fmean(numbers), stdev(numbers) if len(numbers) > 1 else None, len(numbers), unit)


def group_by_seed(cells: Mapping[str, Any], start: str) -> list[list[Any]]:
    """Return the numbers of all cells whose names start alike, one list per seed in the order of seeds.

    Example:
        >>> group_by_seed({"rnn/n4/seed1": 1, "rnn/n8/seed1": 2, "rnn/n4/seed0": 3, "other": 4}, "rnn/")
        [[3], [1, 2]]
    """
    groups: dict[int, list[Any]] = {}
    for name, numbers in cells.items():
        if name.startswith(start):
            groups.setdefault(int(name.rpartition("/seed")[2]), []).append(numbers)
    return [groups[seed] for seed in sorted(groups)]


@dataclass(frozen=True)
class Claim:
    """A statement of a paper, and who judges it.

    Args:
        name: Its name in the experiment.
        text: The statement in words that need no paper at hand.
        says: What the paper prints or says.
        place: Where.
        judge: ``package.module:function``, from the numbers of all cells, by name, to a :class:`Judgement`.
        published: The printed number, where it is one: itself, or its key in the paper's file of published values.
        arguments: What else the judge is called with, JSON values by name.
    """

    name: str
    text: str
    says: str
    place: str
    judge: str
    published: Published | str | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def number(self, paper: str) -> Published | None:
        """Return the printed number; a key is looked up in the published values of ``paper``."""
        if not isinstance(self.published, str):
            return self.published
        values: Mapping[str, Published] = resolve_name(f"steadyrnn.experiments.published.{paper}:VALUES")
        return values[self.published]

    def decide(self, paper: str, cells: Mapping[str, Any]) -> dict[str, Any]:
        """Return the claim with our figure and the verdict, as JSON."""
        found: Judgement = resolve_name(self.judge)(cells, **self.arguments)
        number = self.number(paper)
        value = None if number is None else {"value": number.value, "place": number.place, "note": number.note}
        ours = {"text": found.ours, "mean": found.mean, "spread": found.spread, "seeds": found.seeds, "unit": found.unit}
        said = {"says": self.says, "place": self.place, "number": value}
        return {"name": self.name, "claim": self.text, "published": said, "ours": ours, "verdict": found.verdict}


@dataclass(frozen=True)
class Experiment:
    """A table or figure of a paper.

    Args:
        id: As ``steadyrnn reproduce`` takes it; starts with the paper's name.
        title: What it shows, in a line.
        place: Its place in the paper.
        where: ``"seconds"``, ``"cpu"`` or ``"gpu"``.
        minutes: Price of the full run, in minutes on one GPU or on two cores; experiments that share runs share the price.
        judged_by: What the paper says that it shows, in a line.
        quick: What ``--quick`` runs, at most three minutes on two cores.
        full: What runs otherwise. Empty where nobody has written it yet.
        claims: What it is judged by.
        waits_for: What a run needs that is not there; empty for one that can run.
        curves: ``package.module:function``, from the numbers of all cells to a list of :class:`~.curves.Panel`, from which
            the picture is drawn; None for none.
        data: Data sets that it reads, as ``steadyrnn data`` names them.
        quick_data: Those of the quick run, where they are others.
        quick_claims: What the quick run is judged by, where its smaller problem cannot show the same; None is ``claims``.

    Example:
        >>> from steadyrnn.experiments.registry import EXPERIMENTS
        >>> EXPERIMENTS["lin-table6"].paper, EXPERIMENTS["lin-table6"].price
        ('lin', 'seconds')
    """

    id: str
    title: str
    place: str
    where: str
    minutes: float
    judged_by: str
    quick: tuple[Series, ...] = ()
    full: tuple[Series, ...] = ()
    claims: tuple[Claim, ...] = ()
    waits_for: str = ""
    curves: str | None = None
    data: tuple[str, ...] = ()
    quick_claims: tuple[Claim, ...] | None = None
    quick_data: tuple[str, ...] | None = None

    @property
    def paper(self) -> str:
        """The key of its paper in :data:`PAPERS`, or ``ours``."""
        return self.id.partition("-")[0]

    @property
    def runnable(self) -> bool:
        """Whether its cells are written."""
        return bool(self.full)

    @property
    def price(self) -> str:
        """What a full run costs, in words."""
        return "seconds" if self.where == "seconds" else f"{self.where.upper()} {self.minutes:g} min"

    def stem(self, quick: bool) -> str:
        """Return the name of its result file without the ending."""
        return f"{self.id}-quick" if quick else self.id

    def draws(self, quick: bool) -> bool:
        """Say whether it has seeds that can be replaced."""
        return any(series.seeds for series in (self.quick if quick else self.full))

    def work(self, quick: bool = False, seeds: Sequence[int] | None = None) -> Work:
        """Return what :func:`steadyrnn.jobs.reproduce.reproduce` runs.

        Args:
            quick: Whether to run the small version.
            seeds: Seeds in place of the declared ones.

        Raises:
            ArgumentError: Its cells are not written yet, or it has no seeds to replace.
        """
        if not self.runnable:
            raise ArgumentError(f"`{self.id}` cannot run yet: it waits for {self.waits_for}.")
        if seeds is not None and not self.draws(quick):
            raise ArgumentError(f"`seeds` must not be given for `{self.id}`: it draws no random numbers. Leave it out.")
        cells = tuple(cell for series in (self.quick if quick else self.full) for cell in series.cells(seeds))
        drawn = [series.seeds for series in (self.quick if quick else self.full) if series.seeds]
        used = sorted({seed for own in drawn for seed in (own if seeds is None else seeds)})
        header = {
            "id": self.id, "title": self.title, "paper": _SOURCES[self.paper], "place": self.place,
            "mode": "quick" if quick else "full", "seeds": used,
        }  # fmt: skip
        return Work(self.stem(quick), header, cells, partial(self._finish, self.select_claims(quick)))

    def select_data(self, quick: bool) -> tuple[str, ...]:
        """Return the data sets that a run reads."""
        return self.quick_data if quick and self.quick_data is not None else self.data

    def select_claims(self, quick: bool) -> tuple[Claim, ...]:
        """Return what a run is judged by."""
        return self.quick_claims if quick and self.quick_claims is not None else self.claims

    def _finish(self, judged: Sequence[Claim], cells: Mapping[str, Any]) -> dict[str, Any]:
        claims = [claim.decide(self.paper, cells) for claim in judged]
        curves = [] if self.curves is None else [panel.to_dict() for panel in resolve_name(self.curves)(cells)]
        return {"claims": claims, "verdict": _sum_up([claim["verdict"] for claim in claims]), "curves": curves}


def _sum_up(verdicts: Sequence[str]) -> str:
    """Return how many claims got each verdict, in words.

    Example:
        >>> _sum_up(["seen", "different", "seen"])
        '2 seen, 1 different'
    """
    return ", ".join(f"{verdicts.count(word)} {word}" for word in _ANY_VERDICT if word in verdicts)
