"""Miller, Hardt: When Recurrent Models Don't Need To Be Recurrent."""

from .base import Published, listed

__all__ = ["PATTERNS", "VALUES"]

_TWICE = (
    "The paper prints 146.7 for two networks: the unconstrained one of Section 7.2 (256 units, learning rate 2, dropout 0.25, "
    "length 35) and the one of Figure 2 (1500 units, learning rate 5, dropout 0.65, length 65)."
)
_SMOOTH = "The paper contradicts itself, 1 and 2; tanh is 4/(3 sqrt 3) = 0.7698-smooth."
_SPREAD = "The paper does not say whether it is a variance or a standard deviation."
_DEFAULT = "Printed in the description of the RNN; for the LSTM the text says nothing but defaults."
_LAB, _STABLE, _LONG = (f"Appendix A.5, {part}" for part in ("Synthetic data", "Stable models", "Vanishing gradients"))

PATTERNS = {
    "section6.2/tanh/<constant>": "constants of tanh: smoothness and Lipschitz constant",
    "appendixA.3/<activation>/<constant>": "constants of activations: smoothness and Lipschitz constant",
    "proposition5/candidate-factor": "bound on the norm of W_z in units of 1 - |f|",
    "section7.1/<setting>": "random instances: lengths, sizes, contraction, learning rate, steps, runs",
    "section7.1/target/<end>": "interval of the uniform target",
    "section7.1/input-variance": "variance of each entry of the inputs",
    "appendixA.5/synthetic/<setting>": "random instances, as the appendix prints them",
    "appendixA.5/synthetic/target/<end>": "interval of the uniform target, as the appendix prints it",
    "appendixA.5/synthetic/weight/<reading>": "the second argument of N(0, 0.5), from which U and W are drawn",
    "proposition3/<symbol>": "the system of the proof: a and b, and the impulse",
    "proposition4/<symbol>": "the system of the proof: b, the optimal a, inputs and targets",
    "section7.2/<model>/test-perplexity": "test perplexity per word on WikiText-2, 256 units",
    "section7.2/<model>/norm": "largest spectral norm of W that is allowed",
    "section7.2/lag/<end>": "steps from an input to the loss, i",
    "section7.2/full": "truncation length that stands for the full model",
    "section7.2/truncation/<i>": "truncation lengths, k",
    "figure2/<model>/test-perplexity": "test perplexity per word on WikiText-2, 1500 units, in the caption",
    "figure3/<model>/norm": "spectral norm of W_65 at convergence, in the caption",
    "appendixA.5/stable/<setting>": "networks with and without the constraint, of Section 7.2",
    "appendixA.5/vanishing/<setting>": "networks of Figures 2 and 3",
    "appendixA.5/vanishing/<model>/<setting>": "networks of Figures 2 and 3, one of the two models",
}
"""What the keys of ``VALUES`` mean."""

_THEORY = {
    "section6.2/tanh/smoothness": Published(1, 'Section 6.2: "tanh, which is 1-smooth and 1-Lipschitz", first number', _SMOOTH),
    "section6.2/tanh/lipschitz": Published(1, 'Section 6.2: "tanh, which is 1-smooth and 1-Lipschitz", second number'),
    "appendixA.3/tanh/smoothness": Published(
        2, 'Appendix A.3.1: "tanh(x) is 1-Lipschitz and 2-smooth", second number', _SMOOTH
    ),
    "appendixA.3/tanh/lipschitz": Published(1, 'Appendix A.3.1: "tanh(x) is 1-Lipschitz and 2-smooth", first number'),
    "appendixA.3/sigmoid/lipschitz": Published(0.25, 'Appendix A.3.2, proof of Proposition 5: "sigma is (1/4)-Lipschitz"'),
    "proposition5/candidate-factor": Published(0.25, 'Section 6.3, Proposition 5: "(1/4)(1 - |f|_inf)"'),
    "proposition3/a": Published(2, 'Appendix A.4, proof of Proposition 3: "a=2"'),
    "proposition3/b": Published(1, 'Appendix A.4, proof of Proposition 3: "b=1"'),
    "proposition3/impulse": Published(
        1, 'Appendix A.4, proof of Proposition 3: "x_0=1"', "It must be x_1 = 1, since h_0 = 0 is given."
    ),
    "proposition4/b": Published(1, 'Appendix A.4, proof of Proposition 4: "suppose further b = 1"'),
    "proposition4/optimal-a": Published(0, 'Appendix A.4, proof of Proposition 4: "the problem reduces to finding a = 0"'),
    "proposition4/input": Published(1, 'Appendix A.4, proof of Proposition 4: "(x_t, y_t) = (1, 1)", first number'),
    "proposition4/target": Published(1, 'Appendix A.4, proof of Proposition 4: "(x_t, y_t) = (1, 1)", second number'),
}

_INSTANCES = {
    "section7.1/input-variance": Published(4, 'Section 7.1: "N(0, 4I_{32})", factor of I'),
    "section7.1/input": Published(32, 'Section 7.1: "N(0, 4I_{32})", size of I'),
    "section7.1/target/least": Published(-2, 'Section 7.1: "Unif[-2, 2]", first number'),
    "section7.1/target/most": Published(2, 'Section 7.1: "Unif[-2, 2]", second number'),
    "section7.1/length": Published(200, 'Section 7.1: "for T = 200"'),
    "section7.1/contraction": Published(0.75, 'Section 7.1: "We fix lambda = 0.75"'),
    "section7.1/truncation": Published(35, 'Section 7.1: "We fix the truncation length to k = 35"'),
    "section7.1/learning-rate": Published(0.01, 'Section 7.1: "alpha_t = alpha/t for alpha = 0.01"'),
    "section7.1/steps": Published(200, 'Section 7.1: "and take N = 200 gradient steps"'),
    "section7.1/runs": Published(10, 'Section 7.1: "(averaged over 10 runs)"'),
    "appendixA.5/synthetic/length": Published(200, f'{_LAB}: "by fixing a sequence length T=200"'),
    "appendixA.5/synthetic/input-variance": Published(4, f'{_LAB}: "N(0, 4 I_{{32}})", factor of I'),
    "appendixA.5/synthetic/input": Published(32, f'{_LAB}: "N(0, 4 I_{{32}})", size of I'),
    "appendixA.5/synthetic/target/least": Published(-2, f'{_LAB}: "Unif[-2, 2]", first number'),
    "appendixA.5/synthetic/target/most": Published(2, f'{_LAB}: "Unif[-2, 2]", second number'),
    "appendixA.5/synthetic/contraction": Published(0.75, f'{_LAB}: "we set lambda=0.75"'),
    "appendixA.5/synthetic/weight/variance": Published(0.5, f'{_LAB}: "N(0, 0.5)", read as variance', _SPREAD),
    "appendixA.5/synthetic/weight/deviation": Published(0.5, f'{_LAB}: "N(0, 0.5)", read as standard deviation', _SPREAD),
    "appendixA.5/synthetic/readout": Published(
        32, f'{_LAB}: "N(0, I_{{32}})", size of I', "The paper does not say whether C and D are matrices."
    ),
    "appendixA.5/synthetic/truncation": Published(35, f'{_LAB}: "We fix the truncation length to k=35"'),
    "appendixA.5/synthetic/learning-rate": Published(0.01, f'{_LAB}: "alpha_t = alpha/t for alpha=0.01"'),
    "appendixA.5/synthetic/steps": Published(200, f'{_LAB}: "and take N=200 gradient steps"'),
}

_LANGUAGE = {
    "section7.2/unconstrained/test-perplexity": Published(
        146.7, 'Section 7.2: "The unconstrained model achieves a final test perplexity of 146.7"', _TWICE
    ),
    "section7.2/stable/test-perplexity": Published(
        143.5, 'Section 7.2: "constrained model achieves a final test perplexity of 143.5"'
    ),
    "section7.2/stable/norm": Published(
        1, 'Section 7.2: "the second model is constrained to |W| <= 1"', "A contraction needs a norm below 1."
    ),
    "section7.2/lag/least": Published(1, 'Section 7.2: "for i=1,...,50", first number'),
    "section7.2/lag/most": Published(50, 'Section 7.2: "for i=1,...,50", last number'),
    "section7.2/full": Published(65, 'Section 7.2: "we assume k = 65 well captures the full-recurrent model"'),
    **listed("section7.2/truncation", 'Section 7.2: "k in {5, 10, 15, 25, 35, 50, 64}"', (5, 10, 15, 25, 35, 50, 64)),
    "figure2/rnn/test-perplexity": Published(146.7, 'Caption of Figure 2: "The RNN has test perplexity 146.7"', _TWICE),
    "figure2/lstm/test-perplexity": Published(92.3, 'Caption of Figure 2: "the LSTM has test perplexity of 92.3"'),
    "figure3/rnn/norm": Published(2.95, 'Caption of Figure 3: "|W_{65}^{RNN}| = 2.95"'),
    "figure3/lstm/norm": Published(
        5.4, 'Caption of Figure 3: "|W_{65}^{LSTM}| = 5.4"', "Of the four gates' matrices, stacked."
    ),
    "appendixA.5/stable/embedding": Published(1024, f'{_STABLE}: "The embedding dimension is 1024"'),
    "appendixA.5/stable/hidden": Published(256, f'{_STABLE}: "the hidden state dimension is 256"'),
    "appendixA.5/stable/dropout": Published(0.25, f'{_STABLE}: "dropout is set to 0.25"'),
    "appendixA.5/stable/learning-rate": Published(2, f'{_STABLE}: "The initial learning rate is 2"'),
    "appendixA.5/stable/epochs": Published(40, f'{_STABLE}: "the model is trained for 40 epochs"'),
    "appendixA.5/stable/batch-size": Published(20, f'{_STABLE}: "using a batch size of 20"'),
    "appendixA.5/stable/length": Published(35, f'{_STABLE}: "a sequence length of 35"'),
    "appendixA.5/vanishing/rnn/embedding": Published(
        1500, f'{_LONG}: "The embedding and hidden state dimensions are both 1500", embedding'
    ),
    "appendixA.5/vanishing/rnn/hidden": Published(
        1500, f'{_LONG}: "The embedding and hidden state dimensions are both 1500", hidden state'
    ),
    "appendixA.5/vanishing/rnn/dropout": Published(0.65, f'{_LONG}: "dropout is set to 0.65"', _DEFAULT),
    "appendixA.5/vanishing/rnn/learning-rate": Published(5, f'{_LONG}: "The initial learning rate is 5"', _DEFAULT),
    "appendixA.5/vanishing/lstm/embedding": Published(
        1500, f'{_LONG}: "uses embedding and hidden state dimensions of 1500", embedding'
    ),
    "appendixA.5/vanishing/lstm/hidden": Published(
        1500, f'{_LONG}: "uses embedding and hidden state dimensions of 1500", hidden state'
    ),
    "appendixA.5/vanishing/epochs": Published(40, f'{_LONG}: "Both models are trained for 40 epochs"'),
    "appendixA.5/vanishing/batch-size": Published(20, f'{_LONG}: "using a batch size of 20"'),
    "appendixA.5/vanishing/length": Published(65, f'{_LONG}: "a sequence length of 65"'),
}

VALUES: dict[str, Published] = {**_THEORY, **_INSTANCES, **_LANGUAGE}
"""Every number by its key. The paper has no tables, and the curves of the figures are not numbers."""
