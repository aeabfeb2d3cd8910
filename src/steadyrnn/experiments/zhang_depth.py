"""Feed-forward networks of Zhang, Lei and Dhillon: digits, and rows with several labels; free of torch."""

from typing import Any

from .base import Claim, Experiment, Series
from .trained_series import search_series, train_series

__all__ = ["FIGURE_5", "FIGURE_7", "TABLE_5"]

_SCORES = "steadyrnn.experiments.scores"
_WORK = "steadyrnn.experiments.deep_networks"
_MODELS = ("mlp", "resnet", "spectral-mlp", "spectral-resnet")
_CANDIDATES = [{"train.optimizer.lr": lr, "model.slope": slope} for lr in (0.01, 0.001) for slope in (0.2, 0.6)]
"""The paper gives neither: two rates of its grid, and two slopes of the leaky rectifier."""


def _network(model: str, layers: int, width: int, reflectors: int) -> dict[str, Any]:
    """Return the settings of a network; a residual block has two layers."""
    depth = {"model.blocks": layers // 2} if model.endswith("resnet") else {"model.depth": layers}
    own = {"model.reflectors": reflectors, "model.radius": 0.1} if model.startswith("spectral") else {}
    return {"model.name": model, "model.width": width, **depth, **own}


def _train(settings: dict[str, Any], model: str, layers: int, seeds: tuple[int, ...], search: str | None = None) -> Series:
    return train_series(f"{model}/{layers}", settings, seeds, search)


def _searched(task: dict[str, Any], groups: dict[int, tuple[int, ...]], search_steps: int) -> tuple[Series, ...]:
    """Return full runs of all models: for each group of depths one search at the depth that is its key, then three seeds."""
    series = []
    for model in _MODELS:
        for deepest, depths in groups.items():
            name, own = f"{model}/{deepest}", {**task, **_network(model, deepest, 128, 16)}
            series.append(search_series(name, own, _CANDIDATES, search_steps))
            for layers in depths:
                if layers % 2 == 0 or not model.endswith("resnet"):
                    series.append(_train({**task, **_network(model, layers, 128, 16)}, model, layers, (0, 1, 2), name))
    return tuple(series)


_DIGITS = {
    "task.name": "mnist", "task.test": 0.2, "task.seed": 0, "train.epochs": 5, "train.batch_size": 512,
    "train.evaluation_batch_size": 2000, "train.validate_every": 25, "train.log_every": 25,
}  # fmt: skip
_QUICK_DIGITS = {
    "task.name": "mnist", "task.test": 0.2, "task.validation": 1000, "train.steps": 100, "train.batch_size": 128,
    "train.evaluation_batch_size": 2000, "train.validate_every": 20, "train.log_every": 20, "model.slope": 0.6,
    "train.optimizer.lr": 0.001,
}  # fmt: skip
_SECTION_7_2 = "Section 7.2 and Figure 5"


def _works(name: str, text: str, says: str, works: list[str], fails: list[str], published: str | None = None) -> Claim:
    """Return the claim that networks name more than half of the test images, and that others do not."""
    arguments = {"beat": works, "fail": fails, "score": "accuracy", "baseline": 0.5, "higher": True}
    return Claim(name, text, says, _SECTION_7_2, f"{_SCORES}:judge_baseline", published, arguments)


def _ahead(name: str, text: str, says: str, layers: int, ahead: tuple[str, ...], behind: tuple[str, ...]) -> Claim:
    arguments = {"first": [f"{one}/{layers}" for one in ahead], "then": [f"{one}/{layers}" for one in behind]}
    return Claim(name, text, says, _SECTION_7_2, f"{_SCORES}:judge_order", arguments={**arguments, "score": "accuracy"})


_RESILIENT = "SVD based methods are resilient to increasing depth"
_HIGHER = "SVD based methods achieve higher precision"

FIGURE_5 = Experiment(
    "zhang-fig5", "MLP, ResNet and their spectral forms on MNIST, 30 to 100 layers", "Figure 5", "gpu", 15,
    "the MLP fails past 35 layers, the ResNet past 70, the spectral ones do not",
    quick=tuple(
        _train({**_QUICK_DIGITS, **_network(model, layers, 32, 8)}, model, layers, (0,))
        for model, depths in {"mlp": (6, 30), "resnet": (30, 100), "spectral-mlp": (30,), "spectral-resnet": (30,)}.items()
        for layers in depths
    ),
    full=_searched(_DIGITS, {30: (30, 35, 40), 100: (70, 80, 100)}, 300),
    claims=(
        Claim(
            "shallow", "30 layers: the spectral networks are at most 0.01 less accurate than the ResNet",
            "similar performance as ResNet", _SECTION_7_2, f"{_WORK}:judge_similar",
            arguments={
                "models": ["spectral-mlp/30", "spectral-resnet/30"], "like": "resnet/30", "score": "accuracy", "within": 0.01,
            },
        ),
        Claim(
            "slower", "30 layers: the MLP learns more slowly than the others, in the mean of its validation accuracy",
            "MLP's convergence is slower", _SECTION_7_2, f"{_WORK}:judge_slower",
            arguments={"slow": "mlp/30", "fast": [f"{model}/30" for model in _MODELS[1:]], "curve": "validation accuracy"},
        ),
        _works(
            "mlp", "The MLP names more than half of the images with 30 and 35 layers, and with 40 and more it does not",
            "not able to function with L > 35", ["mlp/30", "mlp/35"], [f"mlp/{layers}" for layers in (40, 70, 80, 100)],
            "section7.2/mlp/deepest",
        ),
        _works(
            "resnet", "The ResNet names more than half of the images with up to 70 layers, and with 80 and 100 it does not",
            "not able to function with L > 70", ["resnet/30", "resnet/40", "resnet/70"], ["resnet/80", "resnet/100"],
            "section7.2/resnet/deepest",
        ),
        _works(
            "spectral", "Both spectral networks name more than half of the images at every depth", _RESILIENT,
            ["spectral-mlp/35", *(f"{model}/{layers}" for model in _MODELS[2:] for layers in (30, 40, 70, 80, 100))], [],
        ),
        _ahead(
            "precision", "100 layers: both spectral networks are more accurate than MLP and ResNet", _HIGHER,
            100, _MODELS[2:], _MODELS[:2],
        ),
    ),
    quick_claims=(
        _works(
            "mlp", "The MLP of 32 units names more than half of the images with 6 layers, and with 30 it does not",
            "an MLP that is too deep is not able to function", ["mlp/6"], ["mlp/30"],
        ),
        _works(
            "resnet", "The ResNet of 32 units names more than half of the images with 30 layers, and with 100 it does not",
            "a ResNet that is too deep is not able to function", ["resnet/30"], ["resnet/100"],
        ),
        _works(
            "spectral", "Both spectral networks name more than half of the images with 30 layers", _RESILIENT,
            ["spectral-mlp/30", "spectral-resnet/30"], [],
        ),
        _ahead(
            "precision", "30 layers: both spectral networks are more accurate than the MLP", _HIGHER,
            30, _MODELS[2:], _MODELS[:1],
        ),
    ),
    curves=f"{_WORK}:collect_accuracies", data=("mnist",),
)  # fmt: skip


def _sizes(data_set: str, says: str) -> Claim:
    name = data_set.capitalize()
    judge = "steadyrnn.experiments.multilabel_sizes:judge_sizes"
    return Claim(data_set, f"Sizes of {name}", says, f"Table 5, row {name}", judge, arguments={"data_set": data_set})


_COUNTS = tuple(
    Series(name, "steadyrnn.experiments.multilabel_sizes:count_rows", {"data_set": name}) for name in ("bibtex", "mediamill")
)

TABLE_5 = Experiment(
    "zhang-table5", "sizes of the multi-label data sets", "Table 5", "cpu", 1, "printed sizes", quick=_COUNTS, full=_COUNTS,
    claims=(
        _sizes("bibtex", "1836 features, 159 labels, 4880 + 2515 rows"),
        _sizes("mediamill", "120 features, 101 labels, 30993 + 12914 rows"),
    ),
    data=("bibtex",),
)  # fmt: skip

_TAGS = {
    "task.name": "bibtex", "model.dropout": 0.1, "train.steps": 300, "train.batch_size": 256,
    "train.evaluation_batch_size": 1000, "train.validate_every": 18, "train.log_every": 18,
}  # fmt: skip
_QUICK_TAGS = {**_TAGS, "train.steps": 150, "train.optimizer.lr": 0.01, "model.slope": 0.6}


def _best(layers: int) -> Claim:
    arguments = {
        "first": [f"spectral-resnet/{layers}"], "then": [f"{model}/{layers}" for model in _MODELS[:3]], "score": "precision@1",
    }  # fmt: skip
    return Claim(
        f"layers-{layers}", f"{layers} layers on Bibtex: the Spectral-ResNet has the highest precision of its first label",
        "consistently outperforms all other models, especially when network is deep", "Appendix C.1.1 and Figure 7",
        f"{_SCORES}:judge_order", arguments=arguments,
    )  # fmt: skip


FIGURE_7 = Experiment(
    "zhang-fig7", "multi-label classification with MLP, ResNet and their spectral forms", "Figure 7", "cpu", 20,
    "the Spectral-ResNet is best when deep",
    quick=tuple(
        _train({**_QUICK_TAGS, **_network(model, layers, 64, 8)}, model, layers, (0,))
        for model in _MODELS
        for layers in (4, 24)
    ),
    full=_searched(_TAGS, {16: (4, 16), 40: (40,)}, 54),
    claims=(_best(4), _best(16), _best(40)), quick_claims=(_best(4), _best(24)),
    curves=f"{_WORK}:collect_precisions", data=("bibtex",),
)  # fmt: skip
