from dataclasses import replace

import pytest
import torch

from dtlearn.production.serving.kv_cache import KVCache, cache_bytes
from tests.production.serving.texts import CONFIG


@pytest.mark.parametrize("tp", [1, 2, 4])
@pytest.mark.parametrize("num_layers", [None, 1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_formula_is_the_bytes_held(tp, num_layers, dtype):
    cache = KVCache(CONFIG, 5, 9, tp=tp, num_layers=num_layers, dtype=dtype)
    sizes = {"tp": tp, "num_layers": num_layers, "element_bytes": dtype.itemsize}
    assert cache.nbytes == cache_bytes(CONFIG, 5, 9, **sizes)
    # Two of each number, keys and values: 5 texts, 9 positions, 16 numbers in all heads.
    assert cache.nbytes == 2 * (num_layers or 3) * 5 * 9 * 16 // tp * dtype.itemsize


def test_new_tokens_are_read_at_their_places():
    cache = KVCache(CONFIG, 3, 8, num_layers=2)
    keys, values = torch.randn(2, 2, 4, 2, 4)  # two texts, each with two new tokens
    cache.append(1, torch.tensor([2, 0]), torch.tensor([[0, 1], [5, 6]]), keys, values)
    read_keys, read_values = cache.read(1, torch.tensor([0, 2]), 7)
    assert read_keys.shape == (2, 4, 7, 4)
    assert torch.equal(read_keys[1, :, :2], keys[0]) and torch.equal(read_keys[0, :, 5:7], keys[1])
    assert torch.equal(read_values[1, :, :2], values[0]) and torch.equal(read_values[0, :, 5:7], values[1])
    assert not read_keys[0, :, :5].any() and not cache.keys[0].any()


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="4 heads cannot be divided among 3 ranks"):
        KVCache(CONFIG, 1, tp=3)
    with pytest.raises(ValueError, match="from 1 to context_length, 32; got 33"):
        KVCache(CONFIG, 1, 33)
    assert KVCache(replace(CONFIG, context_length=7), 1).length == 7
