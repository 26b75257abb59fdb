from collections import Counter

import torch

from dtlearn.production.serving.requests import GenerationRequest
from dtlearn.production.serving.sampling import next_token

LOGITS = torch.tensor([0.0, 2.0, 1.0, -50.0])


def test_greedy_is_the_largest():
    assert next_token(LOGITS, GenerationRequest((0,), 1, seed=3), 5) == 1


def test_draws_have_the_frequencies_of_the_softmax():
    request = GenerationRequest((0,), 1, temperature=2.0, seed=1)
    drawn = Counter(next_token(LOGITS, request, number) for number in range(4000))
    wanted = torch.softmax(LOGITS / 2, 0).tolist()
    # Four standard deviations of a frequency among 4000; the seed is fixed.
    assert all(abs(drawn[token] / 4000 - p) < 4 * (p * (1 - p) / 4000) ** 0.5 + 1e-9 for token, p in enumerate(wanted))
    assert not drawn[3]


def test_a_draw_depends_on_seed_and_number_only():
    def draws(seed, logits=LOGITS):
        request = GenerationRequest((0,), 1, temperature=1.0, seed=seed)
        return [next_token(logits, request, number) for number in range(50)]

    first = draws(4)
    torch.rand(100)  # what others draw meanwhile
    assert draws(4) == first == draws(4, LOGITS.double())
    assert draws(5) != first and len(set(first)) == 3
