"""How many bytes a call has sent to other ranks."""

from dataclasses import dataclass

__all__ = ["Traffic"]


@dataclass
class Traffic:
    """Bytes that this rank has sent since the call began, each counted once however many ranks receive it.

    Args:
        states: States at the ends of parts, the final state and an initial state that is shared.
        adjoints: Their adjoints, after ``backward``.
        scalars: Numbers that ranks compare or prove the error from.
    """

    states: int = 0
    adjoints: int = 0
    scalars: int = 0
