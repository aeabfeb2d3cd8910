"""Count the tensor operations that a piece of code dispatches: on a GPU each is a launch."""

from collections import Counter
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

__all__ = ["Operations"]

_VIEWS = {
    *("alias", "detach", "diagonal", "expand", "select", "slice"),
    *("split", "t", "transpose", "unbind", "unsqueeze", "view"),
}


class Operations(TorchDispatchMode):
    """Inside this context count operations by name, in ``names``; a view computes nothing and is left out."""

    def __init__(self) -> None:
        super().__init__()
        self.names: Counter[str] = Counter()

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = function.overloadpacket.__name__
        if name not in _VIEWS:
            self.names[name] += 1
        return function(*args, **(kwargs or {}))
