"""The 21 sets of the UCR archive in Zhang, Lei and Dhillon's Table 4; free of torch."""

from dataclasses import dataclass

from steadyrnn.errors import ArgumentError, not_among

__all__ = ["UCR_SETS", "UcrSet", "ucr_set"]


@dataclass(frozen=True)
class UcrSet:
    """A set of the archive.

    Args:
        name: Of the release of 2018, its folder's and files' name.
        paper: Of the release of 2015, the table's name.
        rows: Series in the files ``_TRAIN`` and ``_TEST`` of 2018.
        length: Numbers of a series, L.
        labels: Those in the files, in order; class c is the c-th.
        exchanged: Whether the two releases have TRAIN and TEST exchanged.
        extra: Outputs the table's networks have beyond one a class.
        features: Numbers of a step in the table, where it departs from its own rule.
    """

    name: str
    paper: str
    rows: tuple[int, int]
    length: int
    labels: tuple[int, ...]
    exchanged: bool = False
    extra: int = 1
    features: int | None = None

    def paths(self) -> tuple[str, str]:
        """Return the files to train and to test on in the split of 2015, inside the data folder."""
        train, test = (f"ucr/UCRArchive_2018/{self.name}/{self.name}_{part}.tsv" for part in ("TRAIN", "TEST"))
        return (test, train) if self.exchanged else (train, test)

    def counts(self) -> tuple[int, int]:
        """Return how many series these files have."""
        return (self.rows[1], self.rows[0]) if self.exchanged else self.rows


def _upto(last: int, first: int = 1) -> tuple[int, ...]:
    return tuple(range(first, last + 1))


_SIGNS = (-1, 1)
_BITS = (0, 1)
UCR_SETS: dict[str, UcrSet] = {
    known.name: known
    for known in (
        UcrSet("FiftyWords", "50words", (450, 455), 270, _upto(50), extra=0, features=10),
        UcrSet("Adiac", "Adiac", (390, 391), 176, _upto(37)),
        UcrSet("ArrowHead", "ArrowHead", (36, 175), 251, _upto(2, 0), extra=0),
        UcrSet("Beef", "Beef", (30, 30), 470, _upto(5)),
        UcrSet("BeetleFly", "BeetleFly", (20, 20), 512, _upto(2)),
        UcrSet("CBF", "CBF", (30, 900), 128, _upto(3)),
        UcrSet("Coffee", "Coffee", (28, 28), 286, _BITS, extra=0),
        UcrSet("CricketX", "Cricket_X", (390, 390), 300, _upto(12)),
        UcrSet("DistalPhalanxOutlineCorrect", "DistalPhalanxOutlineCorrect", (600, 276), 80, _BITS, exchanged=True, extra=0),
        UcrSet("DistalPhalanxTW", "DistalPhalanxTW", (400, 139), 80, _upto(8, 3), exchanged=True, extra=3),
        UcrSet("ECG200", "ECG200", (100, 100), 96, _SIGNS, extra=0),
        UcrSet("ECG5000", "ECG5000", (500, 4500), 140, _upto(5)),
        UcrSet("ECGFiveDays", "ECGFiveDays", (23, 861), 136, _upto(2)),
        UcrSet("FaceAll", "FaceAll", (560, 1690), 131, _upto(14)),
        UcrSet("FaceFour", "FaceFour", (24, 88), 350, _upto(4)),
        UcrSet("FacesUCR", "FacesUCR", (200, 2050), 131, _upto(14)),
        UcrSet("GunPoint", "Gun_Point", (50, 150), 150, _upto(2)),
        UcrSet("InsectWingbeatSound", "InsectWingbeatSound", (220, 1980), 256, _upto(11)),
        UcrSet("ItalyPowerDemand", "ItalyPowerDemand", (67, 1029), 24, _upto(2)),
        UcrSet("Lightning2", "Lighting2", (60, 61), 637, _SIGNS, extra=0),
        UcrSet("MiddlePhalanxOutlineCorrect", "MiddlePhalanxOutlineCorrect", (600, 291), 80, _BITS, exchanged=True, extra=0),
    )
}
"""Every set by its name in the release of 2018."""


def ucr_set(name: str) -> UcrSet:
    """Return a set by its name in either release.

    Example:
        >>> ucr_set("50words").name, ucr_set("FiftyWords").paper
        ('FiftyWords', '50words')
    """
    for known in UCR_SETS.values():
        if name in (known.name, known.paper):
            return known
    raise ArgumentError(not_among("dataset", name, UCR_SETS))
