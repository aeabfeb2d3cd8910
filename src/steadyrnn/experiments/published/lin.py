"""Lin, Wang: uRNN: An Approach to Bounded Gradients."""

from .base import Published, listed, tabulated

__all__ = ["PATTERNS", "REGIMES", "VALUES"]

PATTERNS = {
    "table2/<activation>/<bound>": "least and largest slope; of the leaky ReLU the least slope is printed as an interval",
    "section4.2/slowdown/<end>": "time per batch, uRNN divided by RNN",
    "section4.2/long": "least length N of a long input",
    "section4.2/chance-percent": "accuracy of random answers in experiment I, percent",
    "figure<number>/<symbol>": "M, N and k of the experiment, in the caption",
    "table3/<model>/<length>/loss": "final test loss of experiment I (recall the first of N)",
    "table3/<model>/<length>/accuracy": "final test accuracy of experiment I, percent",
    "table4/<model>/<length>/loss": "final test loss of experiment II (the k-th largest of N)",
    "table4/<model>/<length>/accuracy": "final test accuracy of experiment II, percent",
    "section5.1/clip": "largest entry of the gradient of W_rec",
    "table5/<model>/<activation>/<split>": "best perplexity per word on Penn Treebank",
    "table5/leaky-relu/slope": "slope of the leaky ReLU for negative inputs, in the header",
    "table6/<activation>/<bound>": "predicted range of the gradient norm",
    "table6/<activation>/hidden": "hidden units, in the caption",
    "table6/bptt": "steps of backpropagation, in the caption",
    "section5.2/<activation>/<quantity>": "predicted gradient norm, its deviation, and slopes",
    "section5.2/orders-of-magnitude": "by which gradient norms of the uRNN are larger than those of the RNN",
    "section5.2/epoch/<i>": "epochs at which gradient norms are shown",
    "section5.2/fluctuation-epoch": "epoch around which the gradient norm of the uRNN with ReLU starts to fluctuate",
    "section5.3/perplexity-bound": "perplexity that the uGRU is said to be below",
    "section5.3/bptt/<i>": "steps of backpropagation, as the text names the columns of Table 7",
    "section5.3/extra-milliseconds": "by which a batch of the uGRU takes longer",
    "section5.3/extra-percent/<end>": "by which a batch of the uGRU takes longer, percent",
    "table7/<model>/<bptt>/<split>": "best perplexity per word on Penn Treebank",
    "table8/<setting>": "settings of experiments I and II",
    "table9/<setting>": "settings of the language model",
}
"""What the keys of ``VALUES`` mean."""

REGIMES = {
    "table1/below-1/below-1": "0",
    "table1/below-1/equal-1": "0*",
    "table1/below-1/above-1": "0/inf*",
    "table1/equal-1/below-1": "-",
    "table1/equal-1/equal-1": "Constant",
    "table1/equal-1/above-1": "inf*",
    "table1/above-1/below-1": "-",
    "table1/above-1/equal-1": "-",
    "table1/above-1/above-1": "inf",
}
"""The cells of Table 1, the limit of the gradient norm: smallest times beta, then largest times gamma, each against 1.

A star means that the limit is possible. The paper has eigenvalues here; the table is right for singular values.
"""

_SLOPES = tabulated(
    "Table 2",
    {"lower": "lambda, underlined", "lower-end": "lambda, underlined, end of the interval", "upper": "lambda, overlined"},
    {
        "abs": ("|x|", (1, None, 1)),
        "relu": ("ReLU", (0, None, 1)),
        "leaky-relu": ("Leaky ReLU", (0, 1, 1)),
    },
    {
        "table2/leaky-relu/lower": "Printed as [0,1]: the least slope is one number, the slope for negative inputs.",
        "table2/leaky-relu/lower-end": "Printed as [0,1]: the least slope is one number, the slope for negative inputs.",
    },
)


def _scores_by_length(*lengths: int) -> dict[str, str]:
    """Return the columns of Tables 3 and 4."""
    scores = {"loss": "Loss", "accuracy": "Acc. (%)"}
    return {f"{n}/{score}": f"{header}, N = {n}" for score, header in scores.items() for n in lengths}


_EARLY = "Training was stopped early."
_RECALL = tabulated(
    "Table 3",
    _scores_by_length(20, 50, 100),
    {
        "rnn": ("RNN", (2.33, 2.33, 2.33, 10.22, 10.56, 0.936)),
        "urnn": ("uRNN", (0.01, 0.01, 0.01, 99.98, 100.00, 100.00)),
    },
    {
        "table3/rnn/100/accuracy": "A misprint: it must be 9.36, about chance; the text says that it hovers around 10 %.",
        **{f"table3/urnn/{n}/{score}": _EARLY for n in (20, 50, 100) for score in ("loss", "accuracy")},
    },
)

_LARGEST = tabulated(
    "Table 4",
    _scores_by_length(100, 200, 400),
    {
        "rnn": ("RNN", (1.52, 2.12, 1.20, 38.12, 34.15, 15.23)),
        "urnn": ("uRNN", (0.31, 0.21, 0.10, 92.01, 80.45, 56.73)),
    },
    {"table4/urnn/400/loss": "Impossible: with 56.73 % accuracy the cross-entropy is at least (1 - 0.5673) ln 2 = 0.300."},
)

_ACTIVATIONS = {"abs": "|x|", "relu": "ReLU", "leaky-relu": "Leaky ReLU (0.5)"}
_SPLITS = {"validation": "first number", "test": "second number"}
_CUSTOM = tabulated(
    "Table 5",
    {f"{name}/{split}": f"{header}, {which}" for name, header in _ACTIVATIONS.items() for split, which in _SPLITS.items()},
    {
        "rnn": ("RNN", (784.53, 773.91, 754.65, 705.28, 756.48, 712.88)),
        "urnn": ("uRNN", (717.12, 613.89, 720.88, 666.93, 869.21, 810.21)),
    },
)

_CUSTOM["table5/leaky-relu/slope"] = Published(0.5, "Table 5, header of the column Leaky ReLU")

_BPTT = "The paper contradicts itself: 50 in Table 9, 30 in Table 6 and in the text, 35 in Table 7."
_UNITS = "The paper contradicts itself: 200 hidden units in Table 9, 100 for |x| in Table 6."
_NORMS = {
    "table6/abs/lower": Published(10, "Table 6, row Lower, column |x|"),
    "table6/abs/upper": Published(10, "Table 6, row Upper, column |x|"),
    "table6/relu/lower": Published(0, "Table 6, row Lower, column ReLU"),
    "table6/relu/upper": Published(14.14, "Table 6, row Upper, column ReLU"),
    "table6/leaky-relu/lower": Published(
        9.3e-10,
        "Table 6, row Lower, column Leaky ReLU (0.5)",
        "In the spectral norm. In the Frobenius norm of the row Upper it is 1.32e-8, or 2.63e-8 for the 29 factors from "
        "step 1 to step 30.",
    ),
    "table6/leaky-relu/upper": Published(14.14, "Table 6, row Upper, column Leaky ReLU (0.5)"),
    "table6/abs/hidden": Published(100, 'Caption of Table 6: "|x| experiment was conducted with 100 hidden units"', _UNITS),
    "table6/relu/hidden": Published(200, 'Caption of Table 6: "experiments were conducted with 200 hidden units", ReLU'),
    "table6/leaky-relu/hidden": Published(
        200, 'Caption of Table 6: "experiments were conducted with 200 hidden units", Leaky ReLU'
    ),
    "table6/bptt": Published(
        30, 'Caption of Table 6: "BPTT and thus maximum sequence length were 30 for all experiments"', _BPTT
    ),
}

_GATED = tabulated(
    "Table 7",
    {f"{bptt}/{split}": f"{bptt}, {which}" for bptt in (35, 150) for split, which in _SPLITS.items()},
    {"gru": ("GRU", (100.80, 97.25, 108.33, 105.34)), "ugru": ("uGRU", (101.76, 98.05, 105.05, 102.07))},
    {f"table7/{model}/35/{split}": f"{_BPTT}" for model in ("gru", "ugru") for split in _SPLITS},
)

_SETTINGS = {
    "table8/embedding": Published(30, "Table 8, row Word embedding size"),
    "table8/hidden": Published(50, "Table 8, row Hidden units"),
    "table8/learning-rate": Published(0.00005, "Table 8, row Learning rate"),
    "table8/dropout": Published(0.2, "Table 8, row Dropout rate"),
    "table8/epochs": Published(200, "Table 8, row Training epochs"),
    "table8/patience": Published(5, "Table 8, row Patience"),
    "table8/batch-size": Published(100, "Table 8, row Batch size"),
    "table9/embedding": Published(400, "Table 9, row Word embedding size"),
    "table9/hidden": Published(200, "Table 9, row Hidden units", _UNITS),
    "table9/bptt": Published(50, "Table 9, row Backpropagation length", _BPTT),
    "table9/learning-rate": Published(0.0001, "Table 9, row Learning rate"),
    "table9/dropout": Published(0.2, "Table 9, row Dropout rate"),
    "table9/epochs": Published(300, "Table 9, row Training epochs"),
    "table9/batch-size": Published(80, "Table 9, row Batch size"),
}

_TEXT = {
    "section4.2/long": Published(50, 'Section 4.2: "by a large margin on long inputs (i.e. N >= 50)"'),
    "section4.2/slowdown/least": Published(2, 'Section 4.2: "each batch taking around 2-3 times longer", first number'),
    "section4.2/slowdown/most": Published(3, 'Section 4.2: "each batch taking around 2-3 times longer", second number'),
    "section4.2/chance-percent": Published(10, 'Section 4.2: "accuracy hovers around 10%, which is the expected accuracy"'),
    "figure1/M": Published(10, 'Caption of Figure 1: "experiment I with M=10"'),
    "figure1/N": Published(100, 'Caption of Figure 1: "M=10 and N=100"'),
    "figure2/N": Published(100, 'Caption of Figure 2: "experiment II (N=100"'),
    "figure2/k": Published(10, 'Caption of Figure 2: "N=100,k=10"'),
    "section5.1/clip": Published(0.25, 'Section 5.1: "to a maximum element-wise magnitude of 0.25"'),
    "section5.2/leaky-relu/predicted": Published(
        9.3e-10, 'Section 5.2: "the lower bound (0.5^{BPTT}=9.3 x 10^{-10})"', "In the spectral norm: see Table 6."
    ),
    "section5.2/orders-of-magnitude": Published(2, 'Section 5.2: "generally two orders of magnitude larger"'),
    **listed("section5.2/epoch", 'Section 5.2: "across batches in epochs 7 and 100"', (7, 100)),
    "section5.2/fluctuation-epoch": Published(60, 'Section 5.2: "the gradient norm started to fluctuate around epoch 60"'),
    "section5.2/abs/predicted": Published(10, 'Section 5.2: "the predicted value of 10 even at epoch 100"'),
    "section5.2/abs/deviation": Published(1e-5, 'Section 5.2: "with a difference on the order of 10^{-5}"'),
    "section5.2/leaky-relu/slope": Published(0.95, 'Section 5.2: "a Leaky ReLU with underlined lambda >= 0.95"'),
    "section5.3/perplexity-bound": Published(100, 'Section 5.3: "a test perplexity below 100"'),
    "section5.3/bptt/1": Published(30, 'Section 5.3: "slightly worse than the GRU with BPTT=30"', _BPTT),
    "section5.3/bptt/2": Published(150, 'Section 5.3: "but better with BPTT=150"'),
    "section5.3/extra-milliseconds": Published(2, 'Section 5.3: "remarkably only 2ms"'),
    "section5.3/extra-percent/least": Published(1, 'Section 5.3: "(1-10% depending on batch size)", first number'),
    "section5.3/extra-percent/most": Published(10, 'Section 5.3: "(1-10% depending on batch size)", second number'),
}

VALUES: dict[str, Published] = {
    **_SLOPES,
    **_RECALL,
    **_LARGEST,
    **_CUSTOM,
    **_NORMS,
    **_GATED,
    **_SETTINGS,
    **_TEXT,
}
"""Every number by its key. The curves of the figures are not numbers."""
