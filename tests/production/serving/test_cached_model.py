"""Logits with a cache beside the model's own, for texts of different lengths in slots in any order."""

from dataclasses import replace

import pytest
import torch

from dtlearn.models import GPT
from dtlearn.production.serving.cached_model import CachedGPT
from dtlearn.production.serving.kv_cache import KVCache
from tests.production.serving.texts import CONFIG, model


def test_logits_are_those_of_the_whole_text():
    gpt = model()
    cached = CachedGPT(gpt, KVCache(CONFIG, 3, dtype=torch.float64))
    texts = torch.randint(13, (2, 20), generator=torch.Generator().manual_seed(0))
    ends, slots = [7, 3], torch.tensor([2, 0])
    for text, end, slot in zip(texts, ends, slots, strict=True):  # prompts of different lengths
        logits = cached(text[None, :end], torch.arange(end)[None], slot[None])
        assert torch.allclose(logits, gpt(text[None, :end])[:, -1], rtol=0, atol=1e-12)
    for more in range(10):  # then together, token by token
        places = torch.tensor([[end + more] for end in ends])
        logits = cached(texts.gather(1, places), places, slots)
        for row, (text, end) in enumerate(zip(texts, ends, strict=True)):
            assert torch.allclose(logits[row], gpt(text[None, : end + more + 1])[0, -1], rtol=0, atol=1e-12)


def test_a_slot_that_another_text_had_is_as_good_as_new():
    gpt, prompt, first = model(), torch.tensor([[3, 1, 4]]), torch.arange(12)[None]
    used, new = (KVCache(CONFIG, 1, dtype=torch.float64) for _ in range(2))
    slot = torch.tensor([0])
    CachedGPT(gpt, used)(first, first, slot)
    logits = [CachedGPT(gpt, cache)(prompt, torch.arange(3)[None], slot) for cache in (used, new)]
    assert torch.equal(*logits)
    assert not torch.equal(used.keys[0], new.keys[0])  # the other text is still there, where nobody looks


def test_what_would_give_other_texts_is_refused():
    with pytest.raises(ValueError, match=r"call model\.eval\(\)"):
        CachedGPT(GPT(replace(CONFIG, dropout=0.1)), KVCache(CONFIG, 1))
    with pytest.raises(ValueError, match="3 blocks here, and the cache 2"):
        CachedGPT(model(), KVCache(CONFIG, 1, num_layers=2))
