"""The settings of the trainer, free of torch: the command line reads them to show its help."""

from dataclasses import dataclass, field

__all__ = [
    *(
        "MOST_THREADS",
        "AverageSettings",
        "ClipSettings",
        "OptimizerSettings",
        "ProbeSettings",
        "ScheduleSettings",
        "StopSettings",
    ),
    "TrainSettings",
]

MOST_THREADS = 1024
"""More would end the process: the system does not start as many."""


@dataclass(frozen=True)
class OptimizerSettings:
    """The optimizer.

    Args:
        name: ``adam``, ``adamw``, ``sgd`` or ``rmsprop``.
        lr: Learning rate.
        transition_lr: Learning rate of constrained transitions; None is ``lr``.
        weight_decay: L2 penalty (decoupled for ``adamw``).
        momentum: Of ``sgd`` and ``rmsprop``.
        betas: Of ``adam`` and ``adamw``.
        alpha: Smoothing constant of ``rmsprop``.
        eps: Added to a denominator.
        transition_scale: ``none``; ``sqrt``: unit reflectors of n entries have the rate of transitions over sqrt(n), so that
            each turns by about that rate in a step at any width (not for ``sgd``).
    """

    name: str = "adam"
    lr: float = 1e-3
    transition_lr: float | None = None
    weight_decay: float = 0.0
    momentum: float = 0.0
    betas: tuple[float, float] = (0.9, 0.999)
    alpha: float = 0.99
    eps: float = 1e-8
    transition_scale: str = "none"


@dataclass(frozen=True)
class ScheduleSettings:
    """How the learning rate goes with time; every rate of the optimizer is multiplied by the same factor.

    Args:
        name: ``constant``; ``decay``: ``factor`` to the power of full epochs; ``cosine``: from 1 to 0 over the run;
            ``inverse``: 1/t with t the step counted from 1 (alpha/t); ``inverse-sqrt``: 1/sqrt(t);
            ``plateau``: times ``factor`` when the validation loss has not improved for ``patience`` validations.
        factor: Of ``decay`` and ``plateau``, above 0 and at most 1.
        patience: Of ``plateau``.
        warmup: Steps over which the factor first rises from 0 linearly.
    """

    name: str = "constant"
    factor: float = 0.5
    patience: int = 2
    warmup: int = 0


@dataclass(frozen=True)
class ClipSettings:
    """Clipping of gradients.

    Args:
        norm: Largest norm of all gradients together; None is no clipping.
        recurrent: Largest absolute entry of the gradient of a recurrent weight, in each backward pass where a constraint
            computes the weight; None is none.
        recurrent_of: ``weight``: the gradient of the weight matrix is clipped, before it goes back through the constraint;
            ``raw``: the gradients of the raw parameters of the transition are.
    """

    norm: float | None = 1.0
    recurrent: float | None = None
    recurrent_of: str = "weight"


@dataclass(frozen=True)
class AverageSettings:
    """Averaged weights, which are validated, kept as the best and tested in place of those that are trained.

    Args:
        name: ``none``; ``ema``: the exponential moving average; ``mean``: the plain mean. Constrained weights are averaged as
            matrices and put into their sets.
        decay: Of ``ema``, 0 or above and below 1.
        start: Steps before the first weights are taken.
        every: Steps between two updates of the average.
    """

    name: str = "none"
    decay: float = 0.999
    start: int = 0
    every: int = 1


@dataclass(frozen=True)
class StopSettings:
    """When to stop before the end.

    Args:
        patience: Validations without a better validation metric, or an equal one with a lower validation loss; None is never.
        below: Stop when the validation loss is below this; None is never.
    """

    patience: int | None = None
    below: float | None = None


@dataclass(frozen=True)
class ProbeSettings:
    """What is measured on the model while it trains.

    Args:
        every: Steps between two measurements; 0 measures nothing.
        names: Of ``spectrum`` (singular values, spectral margin), ``gradient-flow`` (by lag, with the certified band),
            ``certificate`` (contraction, stability, regime), ``gradient-h0`` (norm of the gradient of the loss by the initial
            state), ``dead-units`` (share of units of an RNN whose slope is 0 at every step), ``state-jacobian`` (Frobenius norm
            of the derivative of the last state by the first, of several batches), ``margin`` (largest distance of a singular
            value from 1), ``input-gradient`` (norm of the gradient of the loss at a step by an earlier input, by lag),
            ``weights`` (keeps every recurrent weight in the run folder), ``weight-distance`` (difference to the weights that
            another run kept).
        against: Folder of the other run of ``weight-distance``.
    """

    every: int = 0
    names: tuple[str, ...] = ("spectrum", "gradient-flow", "certificate")
    against: str | None = None


@dataclass(frozen=True)
class TrainSettings:
    """How a module is trained.

    Args:
        steps: Optimizer steps; None takes ``epochs``.
        epochs: Epochs, used where ``steps`` is None.
        batch_size: Rows of an optimizer step.
        accumulate: Parts of a batch that share an optimizer step, each of ``batch_size / accumulate`` rows; a state that is
            carried along is cut with its rows.
        evaluation_batch_size: Rows of a batch in validation and test; None is ``batch_size``.
        validate_every: Steps between two validations; None is an epoch.
        log_every: Steps between two lines of training metrics.
        save_every: Steps between two checkpoints; None is with every validation.
        seed: Of weights and dropout, an integer from 0 to 2^64 - 1.
        device: ``auto``, ``cpu``, ``cuda`` or ``cuda:1``.
        threads: CPU threads; None leaves torch's number.
        autocast: ``bfloat16`` or ``float16``; None is full precision.
        compile: Whether to run the model through ``torch.compile``.
        deterministic: Whether to ask torch for deterministic algorithms.
        graph: Whether optimizer steps on a GPU are captured as CUDA graphs, which changes no bit: ``auto`` captures models and
            losses of torch and of this package, where shapes stay the same and nothing waits for the host; ``on`` captures
            modules of one's own, too, and refuses a run whose steps cannot be captured; ``off`` captures nothing.
        optimizer: The optimizer.
        schedule: How the learning rate goes with time.
        clip: Clipping of gradients.
        stop: When to stop early.
        probe: What is measured on the way.
        check_ranks: Steps between two comparisons of the weights of several processes, which must be equal to the last bit; of
            one process there is nothing to compare.
        penalty: What the penalties of constraints (``sigma="penalty"``) are multiplied by before they are added to the loss.
        average: Averaged weights.
    """

    steps: int | None = None
    epochs: int = 10
    batch_size: int = 128
    accumulate: int = 1
    evaluation_batch_size: int | None = None
    validate_every: int | None = None
    log_every: int = 50
    save_every: int | None = None
    seed: int = 0
    device: str = "auto"
    threads: int | None = None
    autocast: str | None = None
    compile: bool = False
    deterministic: bool = False
    graph: str = "auto"
    check_ranks: int = 100
    optimizer: OptimizerSettings = field(default_factory=OptimizerSettings)
    schedule: ScheduleSettings = field(default_factory=ScheduleSettings)
    clip: ClipSettings = field(default_factory=ClipSettings)
    stop: StopSettings = field(default_factory=StopSettings)
    probe: ProbeSettings = field(default_factory=ProbeSettings)
    penalty: float = 1.0
    average: AverageSettings = field(default_factory=AverageSettings)
