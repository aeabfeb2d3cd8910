"""Zhang, Lei, Dhillon: Stabilizing Gradients for Deep Neural Networks via Efficient SVD Parameterization."""

from .base import Published, listed, tabulated

__all__ = ["PATTERNS", "VALUES"]

PATTERNS = {
    "section4/center": "middle of the interval of singular values",
    "section4.2/<algorithm>/<variant>/<term>": "coefficient of the term (n or k) in a count of operations",
    "table1/<algorithm>/<term>": "coefficient of the term: n, k, nm for n(m1+m2) or nm, mm for m1^2+m2^2 or m^2",
    "section7/resnet/block-layers": "layers of a residual block",
    "section7.1/addition/baseline": "mean squared error of the constant answer 1",
    "section7.1/addition/length/<i>": "steps, L",
    "section7.1/copy/<part>": "steps: beyond the lag, to the marker beyond the lag, and to be copied",
    "section7.2/<split>/images": "images of MNIST",
    "section7.2/pixels": "pixels of an image, the input of the feed-forward networks",
    "section7.2/spectral-rnn/hidden": "hidden dimension",
    "section7.2/spectral-rnn/parameters-k": "parameters in units that the paper writes as k",
    "section7.2/spectral-rnn/accuracy": "test accuracy on pixel-MNIST, percent",
    "section7.2/steps/<i>": "temporal steps of Figure 3(a) and (b)",
    "section7.2/grid/<setting>/<i>": "values that were searched",
    "section7.2/feedforward/<setting>": "least and most layers, and hidden dimension, of the feed-forward networks",
    "section7.2/<model>/deepest": "number of layers beyond which the model fails",
    "table2/<model>/hidden": "hidden dimension",
    "table2/<model>/reflectors": "reflectors per orthogonal matrix: m1 = m2, or m",
    "table2/<model>/parameters-k": "parameters in units that the paper writes as k, rounded",
    "table2/<model>/accuracy": "test accuracy on pixel-MNIST, percent",
    "section7.3/words-k/<split>": "words in units that the paper writes as k",
    "section7.3/<setting>": "training on Penn Treebank",
    "section7.3/dropout/<reading>": "dropout of the models with two layers, percent",
    "table3/<model>/<layers>/hidden": "hidden dimension, n_h",
    "table3/<model>/<layers>/parameters-k": "recurrent parameters in units that the paper writes as k",
    "table3/<model>/<layers>/<split>-perplexity": "perplexity per word on Penn Treebank",
    "appendixC/<setting>": "networks on UCR: hidden dimension, reflectors, validation share in percent",
    "appendixC/<dataset>/depth": "layers, that is steps",
    "table4/<dataset>/<description>": "sizes of a data set (train, test, length, classes), and depth: steps of the network",
    "table4/<dataset>/<model>/accuracy": "test accuracy, from 0 to 1",
    "table4/<dataset>/<model>/parameters": "number of parameters",
    "table5/<dataset>/<size>": "features, labels, and rows of the two parts",
    "figure7/<setting>": "networks on multi-label data, in the caption",
}
"""What the keys of ``VALUES`` mean."""

_OPERATIONS = tabulated(
    "Table 1",
    {"n": "flops, coefficient of n", "k": "flops, coefficient of k", "nm": "flops, first term", "mm": "flops, squares of m"},
    {
        "hprod": ("Hprod(h, u_k)", (None, 4, None, None)),
        "hgrad": ("Hgrad(h, u_k, g)", (3, 6, None, None)),
        "spectral-rnn-forward": ("Spectral-RNN-Local FP(n, m_1, m_2)", (None, None, 4, -2)),
        "spectral-rnn-backward": ("Spectral-RNN-Local BP(n, m_1, m_2)", (None, None, 6, -1.5)),
        "ornn-forward": ("oRNN-Local FP(n, m)", (None, None, 4, -1)),
        "ornn-backward": ("oRNN-Local BP(n, m)", (None, None, 7, -2)),
    },
    {
        "table1/spectral-rnn-backward/nm": "Contradicts the row Hgrad, whose sum has 9.",
        "table1/spectral-rnn-backward/mm": "Contradicts the row Hgrad, whose sum has -3.",
        "table1/ornn-forward/mm": "The sum of the row Hprod has -2.",
        "table1/ornn-backward/nm": "The sum of the row Hgrad has 9; the paper does not say what was counted.",
        "table1/ornn-backward/mm": "The sum of the row Hgrad has -3; the paper does not say what was counted.",
    },
)

_PIXEL_MNIST = tabulated(
    "Table 2",
    {
        "hidden": "Hidden dimension",
        "reflectors": "Hidden dimension, in parentheses",
        "parameters-k": "# parameters",
        "accuracy": "Test accuracy",
    },
    {
        "spectral-rnn": ("Spectral-RNN", (128, 16, 6, 97.7)),
        "ornn": ("oRNN", (256, 32, 11, 97.2)),
        "rnn": ("RNN", (128, None, 35, 94.1)),
        "urnn": ("uRNN", (512, None, 16, 95.1)),
        "rc-urnn": ("RC uRNN", (512, None, 16, 97.5)),
        "fc-urnn": ("FC uRNN", (116, None, 16, 92.8)),
        "factorized-rnn": ("factorized RNN", (128, None, 32, 94.6)),
        "lstm": ("LSTM", (128, None, 64, 97.3)),
    },
    {
        "table2/spectral-rnn/accuracy": "The text of Section 7.2 says 97.6.",
        "table2/rnn/parameters-k": "Does not fit: such a network has 18,058 parameters.",
        "table2/factorized-rnn/parameters-k": "The recurrent parameters only: 2 n^2 + n = 32,896.",
        "table2/lstm/parameters-k": "The recurrent parameters only, in units of 1024: 4 n^2 = 65,536.",
    },
)

_PENN_TREEBANK = tabulated(
    "Table 3",
    {
        "hidden": "Models(n_l, n_h)",
        "parameters-k": "# parameters",
        "train-perplexity": "Train perplexity",
        "test-perplexity": "Test perplexity",
    },
    {
        "rnn/1": ("RNN(1,128)", (128, 16, 68.1, 144.7)),
        "lstm/1": ("LSTM(1,128)", (128, 64, 69.1, 130.7)),
        "spectral-rnn/1": ("Spectral-RNN(1,512)", (512, 31, 65.4, 130.2)),
        "rnn/2": ("RNN(2,128)", (128, 32, 62.6, 142.5)),
        "lstm/2": ("LSTM(2,128)", (128, 128, 26.1, 122.7)),
        "spectral-rnn/2": ("Spectral-RNN(2,512)", (512, 63, 36.0, 121.3)),
    },
    {
        "table3/spectral-rnn/1/parameters-k": "31.53 units of 1024 for m1 = m2 = 32, which the paper does not print.",
        "table3/spectral-rnn/2/parameters-k": "63.06 units of 1024 for m1 = m2 = 32, which the paper does not print.",
    },
)

_UCR = tabulated(
    "Table 4",
    {
        "train": "training size",
        "test": "testing size",
        "length": "length",
        "classes": "#class",
        "depth": "Depth",
        "rnn/accuracy": "RNN, acc",
        "rnn/parameters": "RNN, n_param",
        "lstm/accuracy": "LSTM, acc",
        "lstm/parameters": "LSTM, n_param",
        "ornn/accuracy": "oRNN, acc",
        "ornn/parameters": "oRNN, n_param",
        "spectral-rnn/accuracy": "Spectral-RNN, acc",
        "spectral-rnn/parameters": "Spectral-RNN, n_param",
    },
    {
        "FiftyWords": ("50words", (450, 455, 270, 50, 27, 0.492, 3058, 0.598, 7218, 0.642, 2426, 0.651, 2850)),
        "Adiac": ("Adiac", (390, 391, 176, 37, 16, 0.552, 2694, 0.706, 6950, 0.668, 2062, 0.726, 2486)),
        "ArrowHead": ("ArrowHead", (36, 175, 251, 3, 251, 0.509, 1219, 0.537, 4515, 0.669, 587, 0.800, 1011)),
        "Beef": ("Beef", (30, 30, 470, 5, 47, 0.600, 1606, 0.700, 5766, 0.733, 974, 0.733, 1398)),
        "BeetleFly": ("BeetleFly", (20, 20, 512, 2, 32, 0.950, 1699, 0.850, 6435, 0.900, 1067, 0.950, 1491)),
        "CBF": ("CBF", (30, 900, 128, 3, 16, 0.702, 1476, 0.967, 5444, 0.881, 844, 0.948, 1268)),
        "Coffee": ("Coffee", (28, 28, 286, 2, 22, 1.000, 1570, 1.000, 6018, 1.000, 938, 1.000, 1362)),
        "CricketX": ("Cricket X", (390, 390, 300, 12, 20, 0.310, 1997, 0.456, 6637, 0.495, 1365, 0.500, 1789)),
        "DistalPhalanxOutlineCorrect": (
            "DistalPhalanxOutlineCorrect",
            (276, 600, 80, 2, 10, 0.790, 1410, 0.798, 5378, 0.830, 778, 0.840, 1202),
        ),
        "DistalPhalanxTW": (
            "DistalPhalanxTW",
            (154, 399, 80, 6, 10, 0.815, 1641, 0.795, 5609, 0.807, 1009, 0.815, 1433),
        ),
        "ECG200": ("ECG200", (100, 100, 96, 2, 12, 0.640, 1410, 0.640, 5378, 0.640, 778, 0.640, 1202)),
        "ECG5000": ("ECG5000", (500, 4500, 140, 5, 14, 0.941, 1606, 0.936, 5766, 0.940, 974, 0.945, 1398)),
        "ECGFiveDays": ("ECGFiveDays", (23, 861, 136, 2, 17, 0.947, 1443, 0.790, 5411, 0.976, 811, 0.948, 1235)),
        "FaceAll": ("FaceAll", (560, 1690, 131, 14, 131, 0.549, 1615, 0.455, 4911, 0.714, 983, 0.714, 1407)),
        "FaceFour": ("FaceFour", (24, 88, 350, 4, 25, 0.625, 1701, 0.477, 6245, 0.511, 1069, 0.716, 1493)),
        "FacesUCR": ("FacesUCR", (200, 2050, 131, 14, 131, 0.449, 1615, 0.629, 4911, 0.710, 983, 0.727, 1407)),
        "GunPoint": ("Gun Point", (50, 150, 150, 2, 15, 0.947, 1507, 0.920, 5667, 0.953, 875, 0.960, 1299)),
        "InsectWingbeatSound": (
            "InsectWingbeatSound",
            (220, 1980, 256, 11, 16, 0.534, 1996, 0.515, 6732, 0.598, 1364, 0.586, 1788),
        ),
        "ItalyPowerDemand": (
            "ItalyPowerDemand",
            (67, 1029, 24, 2, 6, 0.970, 1315, 0.969, 4899, 0.972, 683, 0.973, 1107),
        ),
        "Lightning2": ("Lighting2", (60, 61, 637, 2, 49, 0.541, 1570, 0.541, 6018, 0.541, 938, 0.541, 1362)),
        "MiddlePhalanxOutlineCorrect": (
            "MiddlePhalanxOutlineCorrect",
            (291, 600, 80, 2, 10, 0.793, 1410, 0.783, 5378, 0.712, 778, 0.820, 1202),
        ),
    },
    {
        "table4/FiftyWords/depth": "The largest divisor up to sqrt(L), which all other rows use, would give 18 steps of 15.",
        "table4/DistalPhalanxTW/train": "The size of another set of the archive: this one has 139 series.",
        "table4/DistalPhalanxTW/test": "The size of another set of the archive: this one has 400 series.",
        "table4/InsectWingbeatSound/depth": "The only row that keeps the printed rule, depth <= sqrt(L).",
    },
)

_MULTI_LABEL = tabulated(
    "Table 5",
    {"features": "Feature dimension", "labels": "Label dimension", "train": "N_train", "test": "N_test"},
    {"bibtex": ("Bibtex", (1836, 159, 4880, 2515)), "mediamill": ("Mediamill", (120, 101, 30993, 12914))},
)

_TEXT = {
    "section4/center": Published(1, 'Section 4: "sigma^* is usually set to 1"'),
    "section4.2/algorithm-2/plain/k": Published(6, 'Section 4.2: "Algorithm 2 needs 6k flops"'),
    "section4.2/algorithm-2/norm-once/k": Published(4, 'Section 4.2: "we can further decrease the flops to 4k", Algorithm 2'),
    "section4.2/algorithm-3/plain/n": Published(3, 'Section 4.2: "while Algorithm 3 uses (3n + 10k) flops", term in n'),
    "section4.2/algorithm-3/plain/k": Published(10, 'Section 4.2: "while Algorithm 3 uses (3n + 10k) flops", term in k'),
    "section4.2/algorithm-3/norm-once/n": Published(3, 'Section 4.2: "to 4k and (3n + 8k)", Algorithm 3, term in n'),
    "section4.2/algorithm-3/norm-once/k": Published(8, 'Section 4.2: "to 4k and (3n + 8k)", Algorithm 3, term in k'),
    "section4.2/algorithm-3/reuse/k": Published(
        -2, 'Section 4.2: "we can reuse alpha in forward propagation to save 2k flops"', "Table 1 has the difference, 6k."
    ),
    "section7/resnet/block-layers": Published(2, 'Section 7: "We used a residual block of two layers in ResNet"'),
    "section7.1/addition/baseline": Published(
        0.167, 'Section 7.1, Addition task: "every model outperforms the baseline of 0.167"'
    ),
    **listed("section7.1/addition/length", 'Section 7.1, Addition task: "L=30", "L=100", "L=300"', (30, 100, 300)),
    "section7.1/copy/beyond-lag": Published(20, 'Section 7.1, Copy task: "The input data sequence x in A^{T+20}"'),
    "section7.1/copy/marker-beyond-lag": Published(10, 'Section 7.1, Copy task: "x_{T+10} is set to a_9"'),
    "section7.1/copy/copied": Published(
        10,
        'Section 7.1, Copy task: "randomly sample from {a_i}_{i=1}^7 for the last 10 digits"',
        "The digits are drawn from a_0 to a_7, as the task says before.",
    ),
    "section7.2/train/images": Published(60000, 'Section 7.2: "a training set of 60000 instances"'),
    "section7.2/test/images": Published(10000, 'Section 7.2: "a test set of 10000 instances"'),
    "section7.2/pixels": Published(784, 'Section 7.2: "each instance is flattened to a vector of length 784"'),
    "section7.2/spectral-rnn/hidden": Published(128, 'Section 7.2: "with only 128 hidden dimensions"'),
    "section7.2/spectral-rnn/parameters-k": Published(6, 'Section 7.2: "hidden dimensions and 6k parameters"'),
    "section7.2/spectral-rnn/accuracy": Published(
        97.6, 'Section 7.2: "Spectral-RNN reaches the highest 97.6% accuracy on pixel-MNIST"', "Table 2 says 97.7."
    ),
    **listed("section7.2/steps", 'Section 7.2: "networks with 392 and 784 temporal steps respectively"', (392, 784)),
    **listed(
        "section7.2/grid/learning-rate",
        'Section 7.2: "learning rates rho = {0.1, 0.01, 0.001, 0.0001}"',
        (0.1, 0.01, 0.001, 0.0001),
    ),
    **listed("section7.2/grid/decay", 'Section 7.2: "decay rate alpha = {0.9, 0.8, 0.5}"', (0.9, 0.8, 0.5)),
    **listed("section7.2/grid/batch-size", 'Section 7.2: "batch size B = {64, 128, 256, 512}"', (64, 128, 256, 512)),
    "section7.2/feedforward/least-layers": Published(30, 'Section 7.2: "there are 30-100 layers", first number'),
    "section7.2/feedforward/most-layers": Published(100, 'Section 7.2: "there are 30-100 layers", second number'),
    "section7.2/feedforward/hidden": Published(128, 'Section 7.2: "layers with hidden dimension 128 (Figure 5)"'),
    "section7.2/mlp/deepest": Published(35, 'Section 7.2: "MLP is not able to function with L>35"'),
    "section7.2/resnet/deepest": Published(70, 'Section 7.2: "and ResNet with L>70"'),
    "section7.3/words-k/train": Published(929, 'Section 7.3: "929k training words"'),
    "section7.3/words-k/validation": Published(73, 'Section 7.3: "73k validation words"'),
    "section7.3/words-k/test": Published(82, 'Section 7.3: "82k test words"'),
    "section7.3/vocabulary-k": Published(10, 'Section 7.3: "with 10k vocabulary"'),
    "section7.3/length": Published(300, 'Section 7.3: "word sequences of length 300"'),
    "section7.3/learning-rate": Published(0.1, 'Section 7.3: "initial learning rate of 0.1"'),
    "section7.3/decay": Published(0.8, 'Section 7.3: "decay by factor of 0.8 at each epoch"'),
    "section7.3/dropout/dropped": Published(
        80, 'Section 7.3: "80% dropout is applied on 2-layered models", read as share dropped', "The other reading is kept."
    ),
    "section7.3/dropout/kept": Published(
        80, 'Section 7.3: "80% dropout is applied on 2-layered models", read as share kept', "The other reading is dropped."
    ),
    "appendixC/hidden": Published(32, 'Appendix C.1: "we used hidden dimension n_h = 32"'),
    "appendixC/reflectors": Published(16, 'Appendix C.1: "total number of reflectors for oRNN and Spectral-RNN to be m = 16"'),
    "appendixC/spectral-rnn-reflectors": Published(
        8,
        'Appendix C.1: "for Spectral-RNN m_1 = m_2 = 8"',
        "The parameter counts of Table 4 are those of m1 = m2 = 16; with 8 they would be 328 lower in every row.",
    ),
    "appendixC/validation-percent": Published(20, 'Appendix C.1: "randomly choose 20% of the training set as validation data"'),
    "appendixC/ArrowHead/depth": Published(251, 'Appendix C.1: "ArrowHead(251 layers)"'),
    "appendixC/FaceAll/depth": Published(131, 'Appendix C.1: "FaceAll(131 layers)"'),
    "figure7/hidden": Published(128, 'Caption of Figure 7: "L layers and 128 hidden dimension"'),
    "figure7/dropout": Published(0.1, 'Caption of Figure 7: "Dropout rate of 0.1 is used"'),
}

VALUES: dict[str, Published] = {**_OPERATIONS, **_PIXEL_MNIST, **_PENN_TREEBANK, **_UCR, **_MULTI_LABEL, **_TEXT}
"""Every number by its key; data sets have their names of the release of 2018. The curves of the figures are not numbers."""
