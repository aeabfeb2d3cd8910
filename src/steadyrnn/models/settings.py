"""The settings of a named model, free of torch: the command line reads them to show its help."""

from dataclasses import asdict, dataclass, replace

from steadyrnn.errors import ArgumentError, not_among

from .registry import SYSTEMS, System

__all__ = ["ModelSettings", "complete"]


@dataclass(frozen=True)
class ModelSettings:
    """A system by name, and its options; None is the system's own value, an option that it does not have is refused.

    Args:
        name: The system; ``steadyrnn train --help`` lists them.
        width: Hidden units, n (an even number for complex systems).
        layers: Recurrent layers in the stack.
        nonlinearity: ``tanh``, ``relu``, ``leaky_relu``, ``abs``, ``identity``, ``sigmoid`` or ``modrelu``.
        slope: Of ``leaky_relu`` for negative values.
        reflectors: Householder reflectors, of a spectral system on each side; the width is all of them.
        center: Middle of the interval of singular values; around 0 they are at most the radius.
        radius: Half its width; ``center + radius < 1`` makes a contraction.
        sigma: How the interval is kept: ``sigmoid``, ``clip`` or ``penalty``.
        gradient: ``exact``, ``lie`` (multiplicative steps) or ``printed`` (the paper's direction).
        bound: Largest singular value.
        forget_bound: Largest value of the forget gate.
        input_bound: Largest absolute entry of the input that stability is proven for.
        margin: How far from the border of the stable set to stay.
        init: First recurrent weight: ``identity`` or ``orthogonal``.
        init_std: Standard deviation of the first input and output weights, Gaussian.
        learn_initial_state: Whether the initial state is a parameter.
        skip: Whether the readout sees the input too.
        dropout: Probability on embedded tokens, between layers and where the state is read; behind every activation of a
            network without time.
        dropout_logits: Probability on the result.
        embedding: Size of an embedded token.
        tied: Whether the embedding's weight is the readout's.
        depth: Square layers behind the input layer.
        blocks: Residual blocks, of two layers each.
        base: The system that is truncated.
        context: Number of last inputs that an output depends on, k.
    """

    name: str = "spectral"
    width: int | None = None
    layers: int | None = None
    nonlinearity: str | None = None
    slope: float | None = None
    reflectors: int | None = None
    center: float | None = None
    radius: float | None = None
    sigma: str | None = None
    gradient: str | None = None
    bound: float | None = None
    forget_bound: float | None = None
    input_bound: float | None = None
    margin: float | None = None
    init: str | None = None
    init_std: float | None = None
    learn_initial_state: bool | None = None
    skip: bool | None = None
    dropout: float | None = None
    dropout_logits: float | None = None
    embedding: int | None = None
    tied: bool | None = None
    depth: int | None = None
    blocks: int | None = None
    base: str | None = None
    context: int | None = None


def complete(settings: ModelSettings) -> ModelSettings:
    """Return the settings with the system's own values where none is given.

    Raises:
        ArgumentError: There is no such system, or it has no such option.

    Example:
        >>> complete(ModelSettings("ornn", width=8)).reflectors
        8
    """
    system = _system("name", settings.name)
    given = {name: value for name, value in asdict(settings).items() if value is not None and name != "name"}
    if system.wraps:
        base = _system("base", given.get("base", system.options["base"]))
        if base.wraps or base.reads == "row":
            raise ArgumentError(f"`base` must be a recurrent system that can be truncated, but is {base.name!r}.")
        system = replace(system, options={**base.options, **system.options})
    unknown = [name for name in given if name not in system.options]
    if unknown:
        raise ArgumentError(
            f"`{unknown[0]}` is no option of the model {settings.name!r}, which has: {', '.join(system.options)}."
        )
    values = {**system.options, **given}
    for name in ("width", "layers", "embedding", "depth", "blocks", "context"):
        if values.get(name) is not None and values[name] < 1:
            raise ArgumentError(f"`{name}` must be greater than zero, but is {values[name]}.")
    for name in ("dropout", "dropout_logits"):
        if not 0 <= values.get(name, 0.0) <= 1:
            raise ArgumentError(f"`{name}` must be a number from 0 to 1, but is {values[name]}.")
    if "reflectors" not in given and "reflectors" in values:
        values["reflectors"] = min(values["reflectors"], values["width"])
    if "slope" in values and values["nonlinearity"] != "leaky_relu":
        if "slope" in given:
            raise ArgumentError(f"`slope` belongs to the nonlinearity leaky_relu, but that is {values['nonlinearity']!r}.")
        del values["slope"]
    return ModelSettings(settings.name, **values)


def _system(argument: str, name: str) -> System:
    if name not in SYSTEMS:
        raise ArgumentError(not_among(argument, name, SYSTEMS))
    return SYSTEMS[name]
