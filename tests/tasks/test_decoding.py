"""Text by greedy decoding and by sampling."""

from typing import Any

import pytest
import torch
from torch import Tensor

import steadyrnn as sr
from steadyrnn.errors import ArgumentError, NotFiniteError, ShapeError
from steadyrnn.tasks.decoding import generate

LOGITS = torch.tensor([0.0, 1.0, 2.0, -1.0])


def same_every_step(tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
    return LOGITS.expand(*tokens.shape, -1), state


def test_greedy_decoding_takes_the_likeliest_word_and_hands_it_back() -> None:
    seen: list[list[int]] = []

    def counting(tokens: Tensor, state: int | None) -> tuple[Tensor, int]:
        seen.append(tokens.flatten().tolist())
        done = (state or 0) + tokens.numel()
        return torch.nn.functional.one_hot(torch.full(tokens.shape, done % 7), 7).float(), done

    assert generate(counting, torch.tensor([5, 6]), 3).tolist() == [2, 3, 4]
    assert seen == [[5, 6], [2], [3]]


def test_sampling_follows_the_models_distribution() -> None:
    count = 20_000
    drawn = generate(same_every_step, torch.tensor([0]), count, temperature=2.0, seed=3)
    share = torch.bincount(drawn, minlength=4) / count
    want = (LOGITS / 2).softmax(0)
    assert bool(((share - want).abs() < 4.5 * (want * (1 - want) / count).sqrt()).all())


def test_a_seed_gives_the_same_text_and_leaves_torchs_own_generator_alone() -> None:
    before = torch.get_rng_state()
    texts = [generate(same_every_step, torch.tensor([0]), 30, temperature=1.0, seed=seed).tolist() for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]
    assert torch.get_rng_state().equal(before)


@pytest.mark.parametrize("temperature", [1e-3, 1e-300, 5e-324])
def test_a_low_temperature_is_greedy(temperature: float) -> None:
    assert generate(same_every_step, torch.tensor([0]), 20, temperature).tolist() == [2] * 20


def test_a_word_of_logit_minus_infinity_is_never_drawn() -> None:
    logits = torch.tensor([0.0, float("-inf"), 1.0]).view(1, 1, 3)
    drawn = generate(lambda tokens, state: (logits, state), torch.tensor([0]), 50, temperature=1.0)
    assert set(drawn.tolist()) == {0, 2}


def test_a_model_reads_its_prompt_once_and_then_word_by_word() -> None:
    model = sr.SequenceModel(sr.GRU(4, 8), 6, vocab_size=6, readout="each").eval()
    prompt = torch.tensor([1, 5, 2])
    added = generate(model, prompt, 5)
    whole = prompt
    for _ in range(5):
        logits, _ = model(whole.unsqueeze(1))
        whole = torch.cat([whole, logits[-1].argmax(-1)])
    assert whole[3:].equal(added)


@pytest.mark.parametrize("temperature", [0.0, -1.0, float("nan"), float("inf")])
def test_a_temperature_that_is_none_is_refused(temperature: float) -> None:
    with pytest.raises(ArgumentError, match="`temperature`"):
        generate(same_every_step, torch.tensor([0]), 1, temperature)


@pytest.mark.parametrize("prompt", [torch.tensor([], dtype=torch.int64), torch.zeros(2, 1, dtype=torch.int64)])
def test_an_empty_or_batched_prompt_is_refused(prompt: Tensor) -> None:
    with pytest.raises(ShapeError, match="`prompt`"):
        generate(same_every_step, prompt, 1)


@pytest.mark.parametrize("temperature", [None, 1.0])
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_logits_that_are_not_finite_give_no_word(bad: float, temperature: float | None) -> None:
    with pytest.raises(NotFiniteError, match="logits"):
        generate(lambda tokens, state: (torch.full((1, 1, 3), bad), state), torch.tensor([0]), 1, temperature)
