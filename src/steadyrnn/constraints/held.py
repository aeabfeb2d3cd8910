"""Parameters that a constraint keeps: no tool may take them away or put others in their place."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from torch import nn

from steadyrnn.errors import WeightError

__all__ = ["HeldParameters", "Holder"]

_WAY_OUT = (
    "Prune, normalize or parametrize a plain copy of the layer (`sr.to_torch`), or choose the constraint that does what "
    "you want (`transition=`, `weight=`)."
)


class HeldParameters(dict[str, nn.Parameter | None]):
    """The parameters of a module, some of which must stay where they are.

    ``torch.nn.utils.prune``, ``weight_norm``, ``spectral_norm`` and ``parametrize`` all take a parameter out of its
    module, register others (``weight_orig``, ``weight_g``) and leave a computed tensor under its name: the constraint
    would go on with a tensor that nobody uses. Both steps go through this table, which refuses the first of them, so
    that the module stays as it was. New values and new parameters under a held name are welcome.

    Attributes:
        held: Why each name is held, also of weights that are computed and so not in the table.
    """

    def __init__(self, parameters: Mapping[str, nn.Parameter | None] = MappingProxyType({})) -> None:
        super().__init__(parameters)
        self.held: dict[str, str] = {}

    def __setitem__(self, name: str, parameter: nn.Parameter | None) -> None:
        self.check_new(name)
        super().__setitem__(name, parameter)

    def __delitem__(self, name: str) -> None:
        if name in self.held:
            self._refuse(name)
        super().__delitem__(name)

    def __missing__(self, name: str) -> None:
        if name in self.held:
            self._refuse(name)
        raise KeyError(name)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (dict(self), self.held)

    def check_new(self, name: str) -> None:
        """Refuse a parameter that a tool registers beside a held one, under its name and an ending."""
        if name in self or name in self.held:
            return
        beside = [held for held in self.held if name.startswith(f"{held}_")]
        if beside:
            self._refuse(max(beside, key=len))

    def _refuse(self, name: str) -> None:
        raise WeightError(
            f"`{name}` cannot be pruned, normalized, parametrized or deleted: {self.held[name]}, which would not see what "
            f"takes its place. {_WAY_OUT}"
        )


def _rebuild(parameters: dict[str, nn.Parameter | None], held: dict[str, str]) -> HeldParameters:
    table = HeldParameters(parameters)
    table.held = held
    return table


class Holder(nn.Module):
    """A module that lets no tool replace some of its parameters.

    Example:
        >>> torch.nn.utils.weight_norm(sr.LSTM(2, 3, transition="stable-lstm"), "weight_hh_l0")
        Traceback (most recent call last):
        ...
        steadyrnn.errors.WeightError: `weight_hh_l0` cannot be pruned, normalized, parametrized or deleted: StableLSTM(...
    """

    def hold(self, names: Iterable[str], reason: str) -> None:
        """Hold the parameters of these names, or weights that are computed under them; ``reason`` is for the error."""
        table = self._parameters
        if not isinstance(table, HeldParameters):
            table = HeldParameters(table)
            self.__dict__["_parameters"] = table
        table.held |= dict.fromkeys(names, reason)

    def register_parameter(self, name: str, param: nn.Parameter | None) -> None:
        """Register a parameter as torch does, unless a tool wants to put it in the place of a held one."""
        if isinstance(self._parameters, HeldParameters):
            self._parameters.check_new(name)
        super().register_parameter(name, param)
