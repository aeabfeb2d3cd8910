"""Parameter counts of real models: the formulas of Note [mathematics], section 2.10, and every count that the paper prints.

Zhang, Lei, Dhillon. Stabilizing Gradients for Deep Neural Networks via Efficient SVD Parameterization. ICML 2018.
"""

from typing import NamedTuple

import pytest

import steadyrnn as sr
from steadyrnn.constraints.householder import HouseholderOrthogonal
from steadyrnn.layers.lstm import LSTM
from steadyrnn.layers.rnn import RNN
from steadyrnn.models.sequence import SequenceModel

SIZES = [(1, 1), (1, 10), (3, 2), (16, 5)]  # n_i, n_y


def count(model: SequenceModel) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


# The text's formulas: recurrent, input and output weights and one bias vector, nothing else.


@pytest.mark.parametrize(("n_i", "n_y"), SIZES)
@pytest.mark.parametrize("n", [1, 2, 7, 32])
def test_an_rnn_has_the_count_of_the_text(n: int, n_i: int, n_y: int) -> None:
    assert count(SequenceModel(RNN(n_i, n, bias="single"), n_y, bias=False)) == (n_y + n_i + n + 1) * n


@pytest.mark.parametrize(("n_i", "n_y"), SIZES)
@pytest.mark.parametrize(("n", "m1", "m2"), [(7, 1, 1), (7, 0, 3), (8, 6, 2), (32, 16, 16), (32, 31, 31)])
def test_a_spectral_rnn_has_the_count_of_the_text(n: int, m1: int, m2: int, n_i: int, n_y: int) -> None:
    rnn = RNN(n_i, n, bias="single", transition=sr.Spectral(reflectors=(m1, m2)))
    printed = (n_y + n_i + m1 + m2 + 2) * n - (m1**2 + m2**2 - m1 - m2) // 2
    assert count(SequenceModel(rnn, n_y, bias=False)) == printed


@pytest.mark.parametrize("n", [2, 7, 32])
def test_all_reflectors_cost_the_printed_count_less_the_two_dead_ones(n: int) -> None:
    rnn = RNN(3, n, bias="single", transition=sr.Spectral(reflectors=n))
    assert count(SequenceModel(rnn, 5, bias=False)) == (5 + 3 + n + 3) * n - 2


# Table 4: UCR time series, with an output bias and learned initial states.


class Row(NamedTuple):
    """One data set of Table 4; ``extra`` outputs beyond the classes are the e of Note [mathematics], section 2.10."""

    name: str
    length: int
    classes: int
    depth: int
    rnn: int
    lstm: int
    ornn: int
    spectral: int
    extra: int = 1

    @property
    def sizes(self) -> tuple[int, int]:
        """n_i and n_y."""
        return self.length // self.depth, self.classes + self.extra


TABLE_4 = [
    Row("50words", 270, 50, 27, 3058, 7218, 2426, 2850, extra=0),
    Row("Adiac", 176, 37, 16, 2694, 6950, 2062, 2486),
    Row("ArrowHead", 251, 3, 251, 1219, 4515, 587, 1011, extra=0),
    Row("Beef", 470, 5, 47, 1606, 5766, 974, 1398),
    Row("BeetleFly", 512, 2, 32, 1699, 6435, 1067, 1491),
    Row("CBF", 128, 3, 16, 1476, 5444, 844, 1268),
    Row("Coffee", 286, 2, 22, 1570, 6018, 938, 1362, extra=0),
    Row("Cricket X", 300, 12, 20, 1997, 6637, 1365, 1789),
    Row("DistalPhalanxOutlineCorrect", 80, 2, 10, 1410, 5378, 778, 1202, extra=0),
    Row("DistalPhalanxTW", 80, 6, 10, 1641, 5609, 1009, 1433, extra=3),
    Row("ECG200", 96, 2, 12, 1410, 5378, 778, 1202, extra=0),
    Row("ECG5000", 140, 5, 14, 1606, 5766, 974, 1398),
    Row("ECGFiveDays", 136, 2, 17, 1443, 5411, 811, 1235),
    Row("FaceAll", 131, 14, 131, 1615, 4911, 983, 1407),
    Row("FaceFour", 350, 4, 25, 1701, 6245, 1069, 1493),
    Row("FacesUCR", 131, 14, 131, 1615, 4911, 983, 1407),
    Row("Gun Point", 150, 2, 15, 1507, 5667, 875, 1299),
    Row("InsectWingbeatSound", 256, 11, 16, 1996, 6732, 1364, 1788),
    Row("ItalyPowerDemand", 24, 2, 6, 1315, 4899, 683, 1107),
    Row("Lighting2", 637, 2, 49, 1570, 6018, 938, 1362, extra=0),
    Row("MiddlePhalanxOutlineCorrect", 80, 2, 10, 1410, 5378, 778, 1202, extra=0),
]


def ucr_model(system: str, n_i: int, n_y: int) -> SequenceModel:
    """Return the model of one column of Table 4."""
    transition = {
        "rnn": "free",
        "ornn": HouseholderOrthogonal(reflectors=16),
        "spectral": sr.Spectral(reflectors=16),
    }
    if system == "lstm":
        return SequenceModel(LSTM(n_i, 32, bias="single", learn_initial_state=True), n_y)
    rnn = RNN(n_i, 32, bias="single", transition=transition[system], learn_initial_state=True)
    return SequenceModel(rnn, n_y)


def ucr_rule(system: str, n: int, n_i: int, n_y: int, m: int = 16) -> int:
    """Return the count by the rule of Note [mathematics], section 2.10."""
    reflectors = n * m - m * (m - 1) // 2
    if system == "lstm":
        return 4 * (n * n + n * n_i + n) + n * n_y + n_y + 2 * n
    recurrent = {"rnn": n * n, "ornn": reflectors, "spectral": 2 * reflectors + n}
    return recurrent[system] + n * n_i + n + n * n_y + n_y + n


@pytest.mark.parametrize("system", ["rnn", "lstm", "ornn", "spectral"])
@pytest.mark.parametrize("row", TABLE_4, ids=lambda row: row.name)
def test_table_4_is_reproduced(row: Row, system: str) -> None:
    assert count(ucr_model(system, *row.sizes)) == getattr(row, system)


@pytest.mark.parametrize("system", ["rnn", "lstm", "ornn", "spectral"])
@pytest.mark.parametrize(("n_i", "n_y"), SIZES)
def test_a_model_of_table_4_has_the_count_of_its_rule(system: str, n_i: int, n_y: int) -> None:
    assert count(ucr_model(system, n_i, n_y)) == ucr_rule(system, 32, n_i, n_y)


def test_table_4_was_not_counted_with_the_eight_reflectors_a_side_of_the_text() -> None:
    rnn = RNN(1, 32, bias="single", transition=sr.Spectral(reflectors=8), learn_initial_state=True)
    assert count(ucr_model("spectral", 1, 3)) - count(SequenceModel(rnn, 3)) == 328


# Table 2: pixel MNIST, one number in, ten classes out.


def test_table_2_counts_a_spectral_rnn_without_output_bias_and_initial_state() -> None:
    rnn = RNN(1, 128, bias="single", transition=sr.Spectral(reflectors=16))
    assert count(SequenceModel(rnn, 10, bias=False)) == 5520


@pytest.mark.parametrize(
    ("n", "transition", "expected"),
    [
        (128, sr.Spectral(reflectors=16), 5658),
        (256, HouseholderOrthogonal(reflectors=32), 11034),
        (128, "free", 18058),
    ],
)
def test_table_2_with_output_bias_and_initial_state(n: int, transition: object, expected: int) -> None:
    rnn = RNN(1, n, bias="single", transition=transition, learn_initial_state=True)
    assert count(SequenceModel(rnn, 10)) == expected


# Table 3: Penn Tree Bank, recurrent weights only, in units of 1024, digits behind the point cut off.


@pytest.mark.parametrize(
    ("layer", "printed"),
    [
        (RNN(128, 128), 16),
        (LSTM(128, 128), 64),
        (RNN(512, 512, transition=sr.Spectral(reflectors=32)), 31),
        (RNN(128, 128, 2), 32),
        (LSTM(128, 128, 2), 128),
        (RNN(512, 512, 2, transition=sr.Spectral(reflectors=32)), 63),
    ],
    ids=["RNN(1,128)", "LSTM(1,128)", "Spectral-RNN(1,512)", "RNN(2,128)", "LSTM(2,128)", "Spectral-RNN(2,512)"],
)
def test_table_3_counts_recurrent_weights_in_units_of_1024(layer: RNN | LSTM, printed: int) -> None:
    names = ("weight_hh", "transition")
    recurrent = sum(p.numel() for name, p in layer.named_parameters() if name.startswith(names))
    assert recurrent // 1024 == printed


def test_table_3s_spectral_count_is_that_of_32_reflectors_a_side() -> None:
    layer = RNN(512, 512, transition=sr.Spectral(reflectors=32))
    recurrent = sum(p.numel() for name, p in layer.named_parameters() if name.startswith("transition"))
    assert round(recurrent / 1024, 2) == 31.53
