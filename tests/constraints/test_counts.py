"""Numbers of parameters: the packed storage gives the published counts (Note [mathematics], section 2.10)."""

import pytest
import torch
from torch import nn

from steadyrnn.constraints import CayleySpectral, Constraint, HouseholderOrthogonal, Spectral
from steadyrnn.constraints.registry import as_constraint
from steadyrnn.layers.lstm import LSTM
from steadyrnn.layers.rnn import RNN


def numbers(constraint: str | Constraint, rows: int, columns: int | None = None) -> int:
    """Return how many numbers a constraint, or the one of this name, stores of a matrix."""
    stored = as_constraint("constraint", constraint).raw(rows, rows if columns is None else columns)
    return sum(raw.numel() for raw in stored)


def parameters(*modules: nn.Module) -> int:
    return sum(parameter.numel() for module in modules for parameter in module.parameters())


@pytest.mark.parametrize(
    ("constraint", "count"),
    [
        ("free", 64),
        ("ornn", 8 * 9 // 2 - 1),
        (HouseholderOrthogonal(reflectors=8), 8 * 9 // 2 - 1),
        (HouseholderOrthogonal(reflectors=3), 8 * 3 - 3),
        ("spectral", 8 * 9 - 2 + 8),
        (Spectral(reflectors=(3, 1)), (8 * 3 - 3) + 8 + 8),
        (Spectral(reflectors=0), 8),
        ("exp", 28),
        ("exp-lie", 28),
        ("cayley", 28),
        ("factorized", 64),
        (CayleySpectral(gradient="lie"), 64),
        ("unitary", 7 * 4),
        ("unitary-full", 4 * 4),
        ("ball", 64),
        ("polar", 64),
    ],
    ids=str,
)
def test_numbers_of_a_matrix_of_size_eight(constraint: str | Constraint, count: int) -> None:
    assert numbers(constraint, 8) == count


@pytest.mark.parametrize(("n", "m1", "m2"), [(128, 16, 16), (32, 16, 16), (512, 32, 32), (9, 2, 5), (7, 0, 3)])
def test_recurrent_numbers_of_spectral(n: int, m1: int, m2: int) -> None:
    sides = [n * m - m * (m - 1) // 2 for m in (m1, m2)]
    assert numbers(Spectral(reflectors=(m1, m2)), n) == sum(sides) + n
    assert numbers(HouseholderOrthogonal(reflectors=m1), n) == sides[0]


@pytest.mark.parametrize(("rows", "columns"), [(3, 7), (7, 3), (4, 4)])
def test_a_full_rectangle_has_no_more_numbers_than_entries_and_its_scales(rows: int, columns: int) -> None:
    # each reflector has a free length: one number too many, and a rectangle needs as many more as its rank
    rank, extra = min(rows, columns), numbers("spectral", rows, columns) - rows * columns
    assert extra == (2 * rank - 2 if rows == columns else 2 * rank - 1)


@pytest.mark.parametrize(
    ("n", "inputs", "outputs", "m1", "m2"),
    [(128, 1, 10, 16, 16), (32, 10, 50, 16, 16), (6, 2, 3, 1, 4)],
)
def test_formula_of_a_spectral_network(n: int, inputs: int, outputs: int, m1: int, m2: int) -> None:
    rnn = RNN(inputs, n, bias="single", transition=Spectral(reflectors=(m1, m2)))
    formula = (outputs + inputs + m1 + m2 + 2) * n - (m1**2 + m2**2 - m1 - m2) // 2
    assert parameters(rnn, nn.Linear(n, outputs, bias=False)) == formula


def test_formula_of_a_full_spectral_network_less_its_two_dead_numbers() -> None:
    n, inputs, outputs = 12, 3, 4
    rnn = RNN(inputs, n, bias="single", transition=Spectral())
    assert parameters(rnn, nn.Linear(n, outputs, bias=False)) == (outputs + inputs + n + 3) * n - 2


def test_published_counts_of_table_2() -> None:
    spectral = {"bias": "single", "transition": Spectral(reflectors=16)}
    assert parameters(RNN(1, 128, **spectral), nn.Linear(128, 10, bias=False)) == 5520
    assert parameters(RNN(1, 128, learn_initial_state=True, **spectral), nn.Linear(128, 10)) == 5658
    ornn = {"bias": "single", "transition": HouseholderOrthogonal(reflectors=32)}
    assert parameters(RNN(1, 256, learn_initial_state=True, **ornn), nn.Linear(256, 10)) == 11034
    assert parameters(RNN(1, 128, bias="single", learn_initial_state=True), nn.Linear(128, 10)) == 18058


def test_published_recurrent_counts_of_table_3_in_units_of_1024() -> None:
    assert numbers("free", 128) / 1024 == 16
    assert round(numbers(Spectral(reflectors=32), 512) / 1024, 2) == 31.53
    assert round(2 * numbers(Spectral(reflectors=32), 512) / 1024, 2) == 63.06
    assert LSTM(1, 128, bias=False).weight_hh_l0.numel() / 1024 == 64


# length, classes, depth, extra outputs, and the counts of RNN, LSTM, oRNN and Spectral-RNN
TABLE_4 = {
    "50words": (270, 50, 27, 0, 3058, 7218, 2426, 2850),
    "Adiac": (176, 37, 16, 1, 2694, 6950, 2062, 2486),
    "ArrowHead": (251, 3, 251, 0, 1219, 4515, 587, 1011),
    "Beef": (470, 5, 47, 1, 1606, 5766, 974, 1398),
    "BeetleFly": (512, 2, 32, 1, 1699, 6435, 1067, 1491),
    "CBF": (128, 3, 16, 1, 1476, 5444, 844, 1268),
    "Coffee": (286, 2, 22, 0, 1570, 6018, 938, 1362),
    "Cricket X": (300, 12, 20, 1, 1997, 6637, 1365, 1789),
    "DistalPhalanxOutlineCorrect": (80, 2, 10, 0, 1410, 5378, 778, 1202),
    "DistalPhalanxTW": (80, 6, 10, 3, 1641, 5609, 1009, 1433),
    "ECG200": (96, 2, 12, 0, 1410, 5378, 778, 1202),
    "ECG5000": (140, 5, 14, 1, 1606, 5766, 974, 1398),
    "ECGFiveDays": (136, 2, 17, 1, 1443, 5411, 811, 1235),
    "FaceAll": (131, 14, 131, 1, 1615, 4911, 983, 1407),
    "FaceFour": (350, 4, 25, 1, 1701, 6245, 1069, 1493),
    "FacesUCR": (131, 14, 131, 1, 1615, 4911, 983, 1407),
    "Gun Point": (150, 2, 15, 1, 1507, 5667, 875, 1299),
    "InsectWingbeatSound": (256, 11, 16, 1, 1996, 6732, 1364, 1788),
    "ItalyPowerDemand": (24, 2, 6, 1, 1315, 4899, 683, 1107),
    "Lighting2": (637, 2, 49, 0, 1570, 6018, 938, 1362),
    "MiddlePhalanxOutlineCorrect": (80, 2, 10, 0, 1410, 5378, 778, 1202),
}


@pytest.mark.parametrize("row", TABLE_4)
def test_published_counts_of_table_4(row: str) -> None:
    length, classes, depth, extra, *published = TABLE_4[row]
    inputs, outputs, n = length // depth, classes + extra, 32
    options = {"bias": "single", "learn_initial_state": True}
    layers = [
        RNN(inputs, n, **options),
        LSTM(inputs, n, **options),
        RNN(inputs, n, transition=HouseholderOrthogonal(reflectors=16), **options),
        RNN(inputs, n, transition=Spectral(reflectors=16), **options),
    ]
    head = nn.Linear(n, outputs)
    assert [parameters(layer, head) for layer in layers] == published


def largest_divisor(length: int, bound: float) -> int:
    return max(divisor for divisor in range(1, length + 1) if length % divisor == 0 and divisor <= bound)


@pytest.mark.parametrize("row", [row for row in TABLE_4 if row != "50words"])
def test_inputs_a_step_are_the_largest_divisor_of_the_length_up_to_its_root(row: str) -> None:
    length, _, depth, *_ = TABLE_4[row]
    assert length // largest_divisor(length, length**0.5) == depth >= length**0.5


def test_one_row_of_table_4_breaks_the_rule_of_its_depth() -> None:
    length, _, depth, *_ = TABLE_4["50words"]
    inputs = largest_divisor(length, length**0.5)
    assert (inputs, length // inputs) == (15, 18)
    assert (length // depth, depth) == (10, 27)


@pytest.mark.parametrize("row", TABLE_4)
def test_the_printed_rule_of_the_depth_would_give_a_single_step(row: str) -> None:
    length = TABLE_4[row][0]
    steps = [length // inputs for inputs in range(1, length + 1) if length % inputs == 0]
    allowed = [depth for depth in steps if depth <= length**0.5]  # printed: the most inputs of a depth up to the root
    assert min(allowed) == 1


def test_eight_reflectors_as_the_text_says_would_be_328_parameters_fewer() -> None:
    assert numbers(Spectral(reflectors=16), 32) - numbers(Spectral(reflectors=8), 32) == 328


def test_the_factorized_network_of_the_paper_counts_unrestricted_factors() -> None:
    # published: 2 n^2 + n = 32 896, about 32k; the skew matrices of both factors and the singular values are n^2
    assert 2 * 128**2 + 128 == 32_896
    assert numbers("factorized", 128) == 128**2


def test_counts_do_not_depend_on_the_random_state() -> None:
    torch.manual_seed(1)
    first = numbers("unitary", 10)
    torch.manual_seed(2)
    assert numbers("unitary", 10) == first == 35
