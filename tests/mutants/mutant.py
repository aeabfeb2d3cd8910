"""A mutant: one small fault in one file, and the tests that must notice it."""

from dataclasses import dataclass
from pathlib import Path

__all__ = ["SOURCE", "Mutant"]

SOURCE = Path(__file__).parents[2] / "src" / "steadyrnn"


@dataclass(frozen=True)
class Mutant:
    """A fault put into the package by replacing one piece of text.

    Attributes:
        name: What is wrong with it, in a few words.
        file: Where, below the package's folder.
        old: Text that stands in the file exactly once.
        new: What stands there instead.
        tests: Files or single tests below ``tests`` of which at least one must fail.
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def apply(self, package: Path) -> None:
        """Put the fault into a copy of the package."""
        path = package / self.file
        path.write_text(self.mutated(path.read_text(encoding="utf-8")), encoding="utf-8")

    def mutated(self, text: str) -> str:
        """Return a file's text with the fault in it."""
        if text.count(self.old) != 1:
            raise ValueError(f"{self.name}: the text to replace stands {text.count(self.old)} times in {self.file}")
        return text.replace(self.old, self.new)
