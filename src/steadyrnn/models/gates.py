"""The option that names gates of a layer, as it is typed; free of torch."""

from steadyrnn.errors import ArgumentError

__all__ = ["read_gates"]


def read_gates(text: str, gates: str) -> tuple[str, ...]:
    """Return the gates that a text names, separated by commas.

    Args:
        text: As ``--model.gates`` takes it.
        gates: The letters of the layer's gates.

    Raises:
        ArgumentError: There is no such gate, one comes twice, or there is none.

    Example:
        >>> read_gates("g, i", "ifgo")
        ('g', 'i')
    """
    named = tuple(part.strip() for part in text.split(","))
    wrong = [part for part in named if len(part) != 1 or part not in gates]
    if wrong:
        raise ArgumentError(
            f"`gates` must name some of the gates {', '.join(gates)}, separated by commas, but is {text!r}: "
            f"there is no gate {wrong[0]!r}."
        )
    twice = [part for part in named if named.count(part) > 1]
    if twice:
        raise ArgumentError(f"`gates` must name every gate once, but is {text!r}: leave out the second {twice[0]!r}.")
    return named
