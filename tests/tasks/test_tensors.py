"""A user's own tensors as a task."""

import pytest
import torch
from torch import Tensor

import steadyrnn as sr
from steadyrnn.errors import ArgumentError, ArgumentTypeError, DtypeError, NotFiniteError, ShapeError
from steadyrnn.tasks.tensors import Part, TensorClassification, TensorRegression, TensorTask
from steadyrnn.train.settings import OptimizerSettings, TrainSettings
from steadyrnn.train.trainer import train

T, N, D = 6, 11, 3


def numbered(*shape: int) -> Tensor:
    return torch.arange(float(torch.Size(shape).numel())).view(shape)


def tasks() -> dict[str, TensorTask]:
    x, row = numbered(T, N, D), numbered(N, D)
    classes = torch.arange(N) % 4
    return {
        "class of a sequence": TensorClassification(Part(x, classes), Part(x, classes)),
        "class of a step": TensorClassification(*[Part(x, (torch.arange(T * N) % 5).view(T, N))] * 2),
        "class of a row": TensorClassification(Part(row, classes), Part(row, classes)),
        "numbers of a sequence": TensorRegression(Part(x, x[-1]), Part(x, x[-1])),
        "numbers of a step": TensorRegression(Part(x, x), Part(x, x)),
        "numbers of a row": TensorRegression(Part(row, row), Part(row, row)),
    }


KINDS = tuple(tasks())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1, 4, N, 40])
def test_a_split_is_covered_once_in_order(kind: str, size: int) -> None:
    task = tasks()[kind]
    batches = list(task.batches("validation", size))
    along = task.parts["train"].input.dim() - 2
    assert torch.equal(torch.cat([b.input for b in batches], along), task.parts["validation"].input)
    each = int(task.reads == "each")
    assert torch.equal(torch.cat([b.target for b in batches], each), task.parts["validation"].target)


@pytest.mark.parametrize("kind", KINDS)
def test_an_epoch_sees_every_example_with_its_target(kind: str) -> None:
    task = tasks()[kind]
    rows = task.order.rows(0, N)
    batch = task.train_batch(0, N)
    assert sorted(rows.tolist()) == list(range(N))
    whole = task.parts["train"]
    assert torch.equal(batch.input, whole.input[..., rows, :])
    assert torch.equal(batch.target, whole.target[:, rows] if task.reads == "each" else whole.target[rows])
    assert torch.equal(task.train_batch(0, N).input, batch.input)


@pytest.mark.parametrize(
    ("kind", "reads", "outputs"),
    [
        ("class of a sequence", "last", 4), ("class of a step", "each", 5), ("class of a row", "row", 4),
        ("numbers of a sequence", "last", D), ("numbers of a step", "each", D), ("numbers of a row", "row", D),
    ],
)  # fmt: skip
def test_shapes_say_what_a_model_reads(kind: str, reads: str, outputs: int) -> None:
    face = tasks()[kind].interface
    assert (face.inputs, face.outputs, face.reads) == (D, outputs, reads)


def test_as_many_steps_as_examples_are_not_mixed_up() -> None:
    x, target = numbered(5, 5, 2), numbered(5, 5)
    assert TensorRegression(Part(x, target), Part(x, target)).reads == "last"
    classes = torch.zeros(5, 5, dtype=torch.int64)
    assert TensorClassification(Part(x, classes), Part(x, classes)).reads == "each"


def test_lengths_go_with_their_rows() -> None:
    lengths = torch.arange(N) % (T + 1)
    part = Part(numbered(T, N, D), torch.arange(N) % 2, lengths)
    task = TensorClassification(part, part)
    batch = task.train_batch(3, 4)
    assert batch.lengths is not None
    assert torch.equal(batch.lengths, lengths[task.order.rows(3, 4)])


def test_baselines_are_those_of_the_best_constant() -> None:
    x = numbered(T, 4, D)
    assert TensorClassification(*[Part(x, torch.tensor([0, 0, 0, 1]))] * 2).baselines["accuracy"] == 0.75
    target = torch.tensor([[0.0], [0.0], [2.0], [2.0]])
    assert TensorRegression(*[Part(x, target)] * 2).baselines == {"loss": 1.0}


def test_a_model_learns_ragged_sequences_of_ones_own() -> None:
    random = torch.Generator().manual_seed(0)
    x = torch.randn(12, 400, 2, generator=random)
    lengths = torch.randint(1, 13, (400,), generator=random)
    last = x[lengths - 1, torch.arange(400)]
    part = Part(x, (last[:, 0] > 0).long(), lengths)
    torch.manual_seed(0)
    model = sr.SequenceModel(sr.RNN(2, 16, transition="spectral"), 2)
    settings = TrainSettings(steps=150, batch_size=50, optimizer=OptimizerSettings(lr=1e-2))
    result = train(model, TensorClassification(part, part), settings)
    assert result.test["accuracy"] > 0.95


X, Y = numbered(T, N, D), torch.arange(N) % 2


@pytest.mark.parametrize(
    ("part", "error", "words"),
    [
        ((X, Y), ArgumentTypeError, "Part"),
        (Part(X.long(), Y), ShapeError, "floating-point"),
        (Part(X[0, 0], Y), ShapeError, "input"),
        (Part(X[..., :2], Y), ShapeError, rf"any N, {D}\), as `train.input` has, but has"),
        (Part(X[0], Y), ShapeError, rf"any T, any N, {D}\), as `train.input` has, but has"),
        (Part(X, Y[:-1]), ShapeError, rf"`validation.target` must have shape \({N},\), one target for each example, as"),
        (Part(X[:, :0], Y[:0]), ShapeError, "`validation.input` must hold at least one example"),
        (None, ArgumentTypeError, "`validation` must be a Part"),
        (Part(X.tolist(), Y), ArgumentTypeError, "`validation.input` must be a tensor, but is of type list"),
        (Part(X, Y.tolist()), ArgumentTypeError, "`validation.target` must be a tensor, but is of type list"),
        (Part(X, Y, Y.tolist()), ArgumentTypeError, "`validation.lengths` must be a tensor, but is of type list"),
        (Part(X, Y, torch.full((N,), T + 1)), ArgumentError, rf"`validation.lengths` must lie from 0 to {T}"),
        (Part(X, Y, torch.ones(N)), DtypeError, "`validation.lengths` must hold integers"),
        (Part(X, Y.float()), DtypeError, "int64"),
        (Part(X, Y + 1), ArgumentError, "0 to 1"),
        (Part(X, Y - 1), ArgumentError, "-1"),
        (Part(X / 0, Y), NotFiniteError, "validation.input"),
        (Part(X, Y, torch.ones(N + 1).long()), ShapeError, "`validation.lengths` must have shape"),
    ],
)
def test_a_part_that_does_not_fit_is_refused_by_name(part: Part, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        TensorClassification(Part(X, Y), part)


def test_numbers_must_be_numbers() -> None:
    with pytest.raises(NotFiniteError, match=r"train\.target"):
        TensorRegression(Part(X, X[-1] / 0), Part(X, X[-1]))
    with pytest.raises(DtypeError, match=r"train\.target"):
        TensorRegression(Part(X, X[-1].long()), Part(X, X[-1]))
    with pytest.raises(ShapeError, match=rf"`train\.target` must have shape \({N}, C\), one target .* or \({T}, {N}, C\)"):
        TensorRegression(Part(X, X[-1, :, 0]), Part(X, X[-1]))


@pytest.mark.parametrize("task", [TensorClassification, TensorRegression])
def test_missing_examples_are_named_with_the_way_out(task: type[TensorTask]) -> None:
    with pytest.raises(ArgumentTypeError, match=r"`validation` must be a Part.*Hold some"):
        task(Part(X, Y if task is TensorClassification else X[-1]))
    with pytest.raises(TypeError, match=f"{task.__name__}.* 'train'"):
        task()
    with pytest.raises(ArgumentTypeError, match="`train` must be a Part"):
        task((X, Y), (X, Y))
