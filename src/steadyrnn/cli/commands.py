"""The program's commands, and its first page of help; reads nothing but this table."""

from dataclasses import dataclass

__all__ = ["COMMANDS", "Command", "first_page"]


@dataclass(frozen=True)
class Command:
    """A command: where it lives, what it does in a line, how it is used."""

    module: str
    description: str
    usage: str


COMMANDS: dict[str, Command] = {
    "train": Command(
        "train",
        "train a network on a task or a file of yours; a certificate comes with it",
        "TASK|DATA [--model NAME] [options]",
    ),
    "compare": Command(
        "compare", "train several networks on a task or a file of yours; one table, one page", "TASK|DATA [options]"
    ),
    "sweep": Command(
        "sweep", "try many settings with several seeds; the best by validation", "CONFIG|--resume FOLDER|--example [options]"
    ),
    "eval": Command("evaluate", "score a trained network, or let it write text", "RUN [options]"),
    "certify": Command("certify", "say with proof how a network behaves", "RUN|FILE [options]"),
    "convert": Command("convert", "turn a trained network into an equivalent one", "RUN --to FORM [options]"),
    "report": Command("report", "write one page about one or many runs", "RUN... [options]"),
    "reproduce": Command("reproduce", "run tables and figures of the papers by name", "ID...|--list|--all [options]"),
    "data": Command(
        "data",
        "say how a file of yours is understood; list data sets, check their files",
        "describe DATA|list|check [NAME...] [options]",
    ),
    "bench": Command("bench", "compare a training step with torch.nn on this machine", "[NAME...] [options]"),
    "completion": Command("completion", "print a script that completes commands in a shell", "SHELL"),
}
"""Every command by name."""

EXAMPLES = (
    "steadyrnn train addition --model.width 32 --task.length 20 --train.steps 50",
    "steadyrnn train addition --model lstm --model.width 32 --task.length 20 --train.steps 50",
    "steadyrnn certify runs --input-bound 2",
    "steadyrnn report runs --out report.html",
)


def first_page() -> str:
    """Return the help of the program itself.

    Example:
        >>> first_page().splitlines()[0]
        'usage: steadyrnn COMMAND [options]'
    """
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {command.description}" for name, command in COMMANDS.items()]
    return "\n".join(
        [
            *("usage: steadyrnn COMMAND [options]", "", "Recurrent networks with guarantees.", "", "commands:"),
            *lines,
            *("", "options:", "  -h, --help     this page; `steadyrnn COMMAND --help` says more"),
            *("  --version      the version", "  --debug        with any command: show where an error came from", ""),
            *("exit status: 0 done, 1 failed, 2 misused, 3 data missing or damaged, 130 or 143 interrupted (saved),"),
            *("  141 output not read (| head)", ""),
            *("Examples:", *(f"  {example}" for example in EXAMPLES)),
        ]
    )
