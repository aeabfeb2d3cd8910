"""Multi-label learning: several labels per row."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from steadyrnn.errors import ArgumentError, DataError, ShapeError, not_among

from .arff import read_arff, read_label_names
from .base import Batch, Interface
from .constant_baseline import label_baseline
from .examples import Examples, Splits, StoredTask, count_held_out
from .locate import DATA_SETS, data_folder, read_file
from .repository_file import read_repository, read_split
from .settings import MultiLabelSettings

__all__ = ["DEPTHS", "MultiLabel", "read_labelled"]

DEPTHS = (1, 3, 5)
"""The k of precision@k."""


@dataclass(frozen=True)
class Sizes:
    """What a data set must count: training and test rows, features, labels."""

    rows: tuple[int, int]
    features: int
    labels: int


SIZES: dict[str, Sizes] = {
    "bibtex": Sizes((4880, 2515), 1836, 159),
    "mediamill": Sizes((30993, 12914), 120, 101),
}
"""Every data set's counts, as in the paper's Table 5."""


class MultiLabel(StoredTask):
    r"""Name the labels of a row of features, for networks without time.

    The loss is the binary cross-entropy of one sigmoid per output, a mean over rows and labels. The paper's figure does not
    name its measure; the repository it takes its data from ranks labels, so the metric is

    .. math:: \text{precision@}k = \tfrac1k \, \# \bigl( \{k \text{ largest outputs}\} \cap \{\text{labels of the row}\} \bigr)

    averaged over rows, for k = 1, 3, 5. A row without labels counts as 0.

    Args:
        settings: Which data set, and its form.

    References:
        Zhang, Lei, Dhillon. Stabilizing Gradients for Deep Neural Networks via Efficient SVD Parameterization.
        ICML 2018 (appendix C.1.1). https://arxiv.org/abs/1803.09327
        Bhatia et al. The Extreme Classification Repository.
    """

    metric = "precision@1"
    higher_is_better = True

    def __init__(self, settings: MultiLabelSettings) -> None:
        super().__init__()
        self.settings, self.sizes = settings, SIZES[settings.data_set]
        train, test = read_labelled(data_folder(settings.data_dir), settings, self.sizes)
        self.splits = Splits(train, test, count_held_out(settings.validation, len(train)), settings.seed)

    @property
    def interface(self) -> Interface:
        """A row of features in, a logit for each label out."""
        return Interface(self.sizes.features, self.sizes.labels, reads="row")

    @property
    def baselines(self) -> Mapping[str, float]:
        """Each label with its own share of the test rows."""
        return label_baseline(self.splits.parts["test"].targets, DEPTHS)

    def loss(self, output: Tensor, batch: Batch) -> Tensor:
        """Return the mean binary cross-entropy, in nats."""
        return binary_cross_entropy_with_logits(_wide(output, batch.target), batch.target)

    def scores(self, output: Tensor, batch: Batch) -> dict[str, Tensor]:
        """Return sums over rows: of the mean cross-entropy of a row, and of its hits among the first k."""
        each = binary_cross_entropy_with_logits(_wide(output, batch.target), batch.target, reduction="none")
        ranked = output.topk(min(max(DEPTHS), output.shape[1])).indices  # (B, 5)
        hits = batch.target.gather(1, ranked).double()
        sums = {f"hits@{k}": hits[:, :k].sum() for k in DEPTHS}
        return {"cross_entropy": each.sum(dtype=torch.float64) / output.shape[1], **sums, "count": hits.new_tensor(len(hits))}

    def summary(self, sums: Mapping[str, float]) -> dict[str, float]:
        """Return loss and precisions."""
        precisions = {f"precision@{k}": sums[f"hits@{k}"] / (k * sums["count"]) for k in DEPTHS}
        return {"loss": sums["cross_entropy"] / sums["count"]} | precisions

    def _batch(self, examples: Examples) -> Batch:
        return Batch(examples.features, examples.targets.to(torch.float32))


def read_labelled(folder: Path, settings: MultiLabelSettings, sizes: Sizes) -> tuple[Examples, Examples]:
    """Return rows to train and to test on, if they count what the data set must."""
    forms = DATA_SETS[settings.data_set].forms
    present = [form for form, files in forms.items() if all((folder / file.path).is_file() for file in files)]
    form = settings.form if settings.form is not None else (present or list(forms))[0]
    if form not in READERS:
        raise ArgumentError(not_among("form", form, READERS))
    parts = READERS[form](folder, settings)
    for part, name, rows in zip(parts, ("training", "test"), sizes.rows, strict=True):
        counts = len(part), part.features.shape[1], part.targets.shape[1]
        if counts != (rows, sizes.features, sizes.labels):
            raise DataError(
                f"{folder / settings.data_set} must have {rows} {name} rows, {sizes.features} features and {sizes.labels} "
                f"labels, but has {counts[0]}, {counts[1]} and {counts[2]}. Files may be exchanged or cut off."
            )
    return parts


def _read_mulan(folder: Path, settings: MultiLabelSettings) -> tuple[Examples, Examples]:
    name = settings.data_set
    if settings.split != 0:
        raise ArgumentError(
            f"`split` must be 0 for the form `mulan`, which parts its rows in one way, but is {settings.split}."
        )
    xml, *paths = f"{name}/{name}.xml", f"{name}/{name}-train.arff", f"{name}/{name}-test.arff"
    labels, sizes = read_label_names(read_file(folder, xml), folder / xml), SIZES[name]
    train, test = (
        read_arff(read_file(folder, path), folder / path, labels, (rows, sizes.features + sizes.labels))
        for path, rows in zip(paths, sizes.rows, strict=True)
    )
    return train, test


def _read_repository(folder: Path, settings: MultiLabelSettings) -> tuple[Examples, Examples]:
    name = settings.data_set
    text, *paths = f"{name}/{name.capitalize()}_data.txt", f"{name}/{name}_trSplit.txt", f"{name}/{name}_tstSplit.txt"
    sizes = SIZES[name]
    rows = read_repository(read_file(folder, text), folder / text, (sum(sizes.rows), sizes.features, sizes.labels))
    train, test = (read_split(read_file(folder, path), folder / path, len(rows), settings.split) for path in paths)
    if bool(torch.isin(train, test).any()):
        raise DataError(f"{folder / paths[1]} and {folder / paths[0]} must share no row, but do. Obtain both again.")
    return rows.take(train), rows.take(test)


READERS: dict[str, Callable[[Path, MultiLabelSettings], tuple[Examples, Examples]]] = {
    "mulan": _read_mulan,
    "repository": _read_repository,
}
"""Every form by name."""


def _wide(output: Tensor, target: Tensor) -> Tensor:
    """Return logits of at least float32, (B, C) as the target."""
    if output.shape != target.shape:
        raise ShapeError(f"`output` must have shape {tuple(target.shape)}, one logit per label, but has {tuple(output.shape)}.")
    return output if output.dtype == torch.float64 else output.float()
