"""Lists of seeds on a command line; free of torch."""

from steadyrnn.jobs.seeds_file import parse_seeds

__all__ = ["read_seeds"]


def read_seeds(text: str, most: int) -> list[int]:
    """Return the seeds of ``0..9`` or ``0,2,5``.

    Args:
        text: What was typed.
        most: How many there may be.

    Raises:
        ValueError: It is neither, names a seed twice, or too many; the message says what is expected.

    Example:
        >>> read_seeds("0..3", 10), read_seeds("0,2,5", 10)
        ([0, 1, 2, 3], [0, 2, 5])
    """
    seeds = parse_seeds(text, most)
    if not seeds or len({*seeds}) < len(seeds):
        raise ValueError(f"--seeds must be different numbers, as 0..9 or 0,2,5, at most {most}, but is {text!r}")
    return seeds
