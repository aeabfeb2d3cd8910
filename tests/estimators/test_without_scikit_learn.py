"""The package without scikit-learn: it imports, and an estimator says what is missing."""

import subprocess
import sys

WITHOUT = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "sklearn":
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Absent())
import importlib.util
found = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: None if name == "sklearn" else found(name, *rest)
import steadyrnn as sr

sr.RNN(2, 3)
try:
    sr.SequenceClassifier
except ImportError as error:
    print(error)
"""


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_an_estimator_says_how_to_install_it() -> None:
    assert "pip install 'steadyrnn[sklearn]'" in run(WITHOUT)


def test_a_first_use_of_a_layer_does_not_load_scikit_learn() -> None:
    assert run("import sys, steadyrnn; steadyrnn.RNN(2, 3); print('sklearn' in sys.modules)").strip() == "False"
