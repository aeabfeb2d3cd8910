"""Settings that an older release stored: what it did without saying so is written out; free of torch."""

from collections.abc import Mapping
from typing import Any

__all__ = ["complete_older"]


def complete_older(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return the trainer's settings of a run as this release would have stored them, so that it goes on as it began.

    Before there was ``clip.recurrent_of``, ``clip.recurrent`` clipped the gradients of raw parameters.

    Args:
        stored: What ``config.json`` or a checkpoint holds under ``train``.

    Example:
        >>> complete_older({"steps": 5, "clip": {"norm": None, "recurrent": 0.25}})
        {'steps': 5, 'clip': {'norm': None, 'recurrent': 0.25, 'recurrent_of': 'raw'}}
        >>> complete_older({"clip": {"norm": 1.0, "recurrent": None}})
        {'clip': {'norm': 1.0, 'recurrent': None}}
    """
    clip = stored.get("clip")
    if not isinstance(clip, Mapping) or clip.get("recurrent") is None or "recurrent_of" in clip:
        return dict(stored)
    return {**stored, "clip": {**clip, "recurrent_of": "raw"}}
