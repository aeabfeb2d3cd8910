"""Score a trained network on a split of its task, or let a language model write text."""

from dataclasses import dataclass
from pathlib import Path

from steadyrnn.errors import ArgumentError
from steadyrnn.tasks.base import Task
from steadyrnn.tasks.decoding import generate
from steadyrnn.tasks.text import Language
from steadyrnn.tasks.vocabulary import END
from steadyrnn.train.device import choose_device
from steadyrnn.train.evaluation import evaluate

from .loading import Trained, check_same_data, load_trained
from .other_data import task_on

__all__ = ["Evaluation", "WrittenText", "evaluate_run", "write_text"]


@dataclass(frozen=True)
class Evaluation:
    """Scores of a run.

    Args:
        run: The run folder.
        split: Which examples.
        checkpoint: ``best`` or ``last``.
        step: The training step of that checkpoint.
        scores: By name.
        baselines: Scores, by the same names, of the best constant prediction.
    """

    run: Path
    split: str
    checkpoint: str
    step: int
    scores: dict[str, float]
    baselines: dict[str, float]


@dataclass(frozen=True)
class WrittenText:
    """Text that a language model wrote; ``unknown`` are the words of the prompt that it does not know."""

    run: Path
    checkpoint: str
    prompt: str
    unknown: list[str]
    text: str


def evaluate_run(
    path: str | Path,
    split: str = "test",
    *,
    checkpoint: str | None = None,
    batch_size: int | None = None,
    device: str = "auto",
    data_dir: str | None = None,
    data: str | Path | None = None,
) -> Evaluation:
    """Score the network of a run on a split of its task.

    Args:
        path: The run folder, or one above: then the newest run below it.
        split: ``"test"``, ``"validation"``, or ``"train"`` where the task has a finite one.
        batch_size: Rows of a batch; None is the run's.
        checkpoint: ``best`` or ``last``; None is the best there is.
        device: ``auto``, ``cpu``, ``cuda`` or ``cuda:1``.
        data_dir: Data folder, where it is not the run's.
        data: For a network that was trained on a file of one's own: where that file is now, or another one of the same form,
            which is scored as a whole.

    Example:
        >>> found = evaluate_run("runs/addition/stable-rnn")
        >>> found.step, sorted(found.scores)
        (2, ['loss'])
    """
    if data is None:
        trained, task = _load(path, checkpoint, device, data_dir)
    else:
        trained = load_trained(path, checkpoint)
        task, known = task_on(trained, Path(data))
        split = split if known else "test"
        trained.model.to(choose_device(device))
        task.to(choose_device(device))
    settings = trained.origin.train
    size = batch_size or settings.evaluation_batch_size or settings.batch_size
    scores = evaluate(trained.model, task, split, size)
    shown = split if data is None or known else f"all of {Path(data).name}"
    return Evaluation(trained.run.folder, shown, trained.checkpoint, trained.step, scores, dict(task.baselines))


def write_text(
    path: str | Path,
    length: int,
    prompt: str | None = None,
    *,
    temperature: float | None = None,
    seed: int = 0,
    checkpoint: str | None = None,
    device: str = "auto",
    data_dir: str | None = None,
) -> WrittenText:
    """Let the language model of a run continue a text.

    Args:
        path: The run folder, or one above: then the newest run below it.
        length: How many words to write.
        prompt: Words that the text starts with; None is a fresh line.
        temperature: Of drawn words; None takes the likeliest.
        seed: Of drawn words.
        checkpoint: ``best`` or ``last``; None is the best there is.
        device: ``auto``, ``cpu``, ``cuda`` or ``cuda:1``.
        data_dir: Data folder, where it is not the run's.
    """
    trained, task = _load(path, checkpoint, device, data_dir)
    if not isinstance(task, Language):
        raise ArgumentError(f"`--generate` needs a language model, but the run's task is {trained.origin.task_name!r}.")
    start = prompt or END
    unknown = [word for word in start.split() if word not in task.vocabulary.numbers]
    words = generate(trained.model, task.vocabulary.encode(start).to(task.device), length, temperature, seed)
    return WrittenText(trained.run.folder, trained.checkpoint, start, unknown, task.vocabulary.decode(words))


def _load(path: str | Path, checkpoint: str | None, device: str, data_dir: str | None) -> tuple[Trained, Task]:
    """Return a run's model and task, both on the device."""
    trained = load_trained(path, checkpoint)
    where = choose_device(device)
    trained.model.to(where)
    task = trained.origin.make_task(data_dir)
    check_same_data(trained.run, task)
    return trained, task.to(where)
