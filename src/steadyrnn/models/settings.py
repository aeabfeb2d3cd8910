"""The settings of a named model, free of torch: the command line reads them to show its help."""

from dataclasses import asdict, dataclass, replace

from steadyrnn.errors import ArgumentError, not_among

from .option_checks import OF_NONLINEARITY, check_values
from .registry import SYSTEMS, System

__all__ = ["ModelSettings", "complete"]


@dataclass(frozen=True)
class ModelSettings:
    """A system by name, and its options; None is the system's own value, an option that it does not have is refused.

    Args:
        name: The system; ``steadyrnn train --help`` lists them.
        width: Hidden units, n (an even number for complex systems).
        layers: Recurrent layers in the stack.
        nonlinearity: ``tanh``, ``relu``, ``leaky_relu``, ``abs``, ``identity``, ``sigmoid``, ``modrelu`` (one learned
            shift per pair of units), ``modrelu_real`` (one per unit, as in the expRNN) or ``adaptive_tanh`` (learned
            saturation, as in the asRNN).
        slope: Of ``leaky_relu`` for negative values.
        saturation_basis: Of ``adaptive_tanh``: ``full``, where directions are learned too; ``diagonal``, a scale for each unit.
        saturation_start: Of ``adaptive_tanh``: the first value of every scale, from 1e-6 to 1e6; a network of small ones is
            nearly linear.
        reflectors: Householder reflectors, of a spectral system on each side; the width is all of them.
        center: Middle of the interval of singular values; around 0 they are at most the radius.
        radius: Half its width; ``center + radius < 1`` makes a contraction.
        sigma: How the interval is kept: ``sigmoid``, ``clip`` or ``penalty``.
        gates: Gates whose weights the set holds, separated by commas: of ``i,f,g,o`` (LSTM) or ``r,z,n`` (GRU).
        reset_after: Whether the reset gate of a GRU acts behind the recurrent product (torch's form) or before it.
        gradient: ``exact``, ``lie`` (multiplicative steps) or ``printed`` (the paper's direction).
        bound: Largest singular value.
        forget_bound: Largest value of the forget gate.
        input_bound: Largest absolute entry of the input that stability is proven for.
        margin: How far from the border of the stable set to stay.
        init: First recurrent weight: ``orthogonal``, ``identity``, ``gaussian``, or ``cayley`` and ``henaff`` of the expRNN.
            None is the set's own.
        recurrent_std: Standard deviation of ``init`` gaussian; None is 1 / sqrt(n).
        init_std: Standard deviation of the first input and output weights, Gaussian; biases are then 0.
        output_std: Standard deviation of the first output weights, where it is another one.
        init_uniform: Embedding and readout start uniform in plus and minus this number, as language models do with 0.1.
        input_scale: Factor of the first input weight of the first layer.
        frozen: Whether only the recurrent weight is trained (and what is learned beside it: initial states, shifts of modReLU);
            embedding, input and output keep their first weights and biases.
        gate_bias: First bias of every gate but the candidate.
        forget_bias: First bias of the forget gate of an LSTM, where it is another one.
        learn_initial_state: Whether the initial state is a parameter.
        skip: Whether the readout sees the input too.
        readout: What a sequence with one answer is answered from: ``last``, the last state; ``mean``, the mean of the states.
        dropout: Probability on embedded tokens, between layers and where the state is read; behind every activation of a
            network without time.
        dropout_input: Probability on embedded tokens; None is ``dropout``.
        dropout_layers: Probability on states between layers; None is ``dropout``.
        dropout_output: Probability on the state where it is read; None is ``dropout``.
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
    saturation_basis: str | None = None
    saturation_start: float | None = None
    reflectors: int | None = None
    center: float | None = None
    radius: float | None = None
    sigma: str | None = None
    gates: str | None = None
    reset_after: bool | None = None
    gradient: str | None = None
    bound: float | None = None
    forget_bound: float | None = None
    input_bound: float | None = None
    margin: float | None = None
    init: str | None = None
    recurrent_std: float | None = None
    init_std: float | None = None
    output_std: float | None = None
    init_uniform: float | None = None
    input_scale: float | None = None
    frozen: bool | None = None
    gate_bias: float | None = None
    forget_bias: float | None = None
    learn_initial_state: bool | None = None
    skip: bool | None = None
    readout: str | None = None
    dropout: float | None = None
    dropout_input: float | None = None
    dropout_layers: float | None = None
    dropout_output: float | None = None
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
    system = base = _system("name", settings.name)
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
    check_values(values, base.blueprint)
    if "reflectors" not in given and "reflectors" in values:
        values["reflectors"] = min(values["reflectors"], values["width"])
    for name, nonlinearity in OF_NONLINEARITY.items():
        if name in values and values["nonlinearity"] != nonlinearity:
            if name in given:
                raise ArgumentError(
                    f"`{name}` belongs to the nonlinearity {nonlinearity}, but that is {values['nonlinearity']!r}."
                )
            del values[name]
    return ModelSettings(settings.name, **values)


def _system(argument: str, name: str) -> System:
    if name not in SYSTEMS:
        raise ArgumentError(not_among(argument, name, SYSTEMS))
    return SYSTEMS[name]
