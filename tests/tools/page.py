"""The page of the documentation that says which tool works with which layer: written and read here.

``python -m tests.tools.page`` tries every tool on every subject and writes the page; the tests try them again and
compare. A result that is neither right nor an error of ours is not written but raised.
"""

import inspect
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path

import torch

from tests.tools import compilers, derivatives, training
from tests.tools.outcome import Outcome, Tool, outcome
from tests.tools.subjects import SUBJECTS

__all__ = ["GROUPS", "PAGE", "TOOLS", "Table", "read", "render"]

PAGE = Path(__file__).parents[2] / "docs" / "tools.md"
GROUPS: dict[str, dict[str, Tool]] = {
    "Compile, export, count": compilers.TOOLS,
    "Differentiate, vectorize, change precision": derivatives.TOOLS,
    "Train, average, prune, store": training.TOOLS,
}
TOOLS: dict[str, Tool] = {name: tool for group in GROUPS.values() for name, tool in group.items()}
Table = dict[tuple[str, str], Outcome]
"""What became of a tool on a subject, by the names of both."""

_MARKS = {Outcome.WORKS: "✓", Outcome.REFUSED: "refused"}
_OPENING = """# Layers and the tools around them

This page shows which tools of PyTorch and its ecosystem work with which layer. A tick means that the tool works and that its
result was compared with that of the layer. "refused" means that an error of `steadyrnn.errors` says so and names an
alternative. There is no third case. `python -m tests.tools.page` writes this page, and every run of the tests checks each
entry again.

A row with the name of a constraint is the layer with `transition=` set to that constraint. Every check is small and runs
on one CPU.
"""


def render(table: Mapping[tuple[str, str], Outcome]) -> str:
    """Return the page's text."""
    parts = [_OPENING]
    for title, tools in GROUPS.items():
        parts.append(f"\n## {title}\n\n")
        parts.append(f"| | {' | '.join(tools)} |\n|---|{'---|' * len(tools)}\n")
        for subject in SUBJECTS:
            marks = [_MARKS[table[tool, subject]] for tool in tools]
            parts.append(f"| {subject} | {' | '.join(marks)} |\n")
        parts.append("\n")
        parts.extend(_said_of(name, tool, table) for name, tool in tools.items())
    return "".join(parts)


def _said_of(name: str, tool: Tool, table: Mapping[tuple[str, str], Outcome]) -> str:
    """Return the line under the table on one tool: what was compared, and the way out where it is refused."""
    said = inspect.getdoc(tool) or ""
    refused = any(table[name, subject] is Outcome.REFUSED for subject in SUBJECTS)
    if refused is not (name in _WAYS_OUT):
        raise ValueError(f"{name}: a way out is needed exactly where a tool is refused")
    way_out = f" Where refused: {_WAYS_OUT[name]}" if refused else ""
    return f"- **{name}**: {said}{way_out}\n"


_WAYS_OUT = {
    "ONNX": "pass `dynamo=False`, which writes the weight as a constant, or export `sr.to_torch(module)`.",
    "jit.trace": "the gradient of complex products in TorchScript is not reliable; use `torch.export.export`.",
    "jit.script": "use `torch.export.export` or `torch.jit.trace`, or script `sr.to_torch(module)`.",
    "quantize_dynamic": "torch skips classes that it does not know; quantize `sr.to_torch(module)`.",
    "AveragedModel": "a mean of orthogonal matrices is not orthogonal; `sr.averaged` averages on the set.",
    "prune": "a constrained weight cannot have a mask; prune `sr.to_torch(module)`, or a free weight.",
}
"""What to do instead, by tool: one line for each tool that is refused anywhere."""


def read(text: str) -> Table:
    """Return the outcomes that a page shows."""
    outcomes = {mark: value for value, mark in _MARKS.items()}
    table: Table = {}
    tools: list[str] = []
    for line in text.splitlines():
        if not line.startswith("|") or line.startswith("|---"):
            continue
        first, *cells = (cell.strip() for cell in line.strip("|").split("|"))
        if not first:
            tools = cells
        else:
            table |= {(tool, first): outcomes[mark] for tool, mark in zip(tools, cells, strict=True)}
    return table


def main() -> None:
    """Try everything and write the page."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    table: Table = {}
    for name, tool in TOOLS.items():
        for place, subject in SUBJECTS.items():
            sys.stderr.write(f"{name} / {place}\n")
            table[name, place] = outcome(tool, subject)
    PAGE.write_text(render(table), encoding="utf-8")


if __name__ == "__main__":
    main()
