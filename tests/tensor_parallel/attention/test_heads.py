"""Heads by rank: for each number of ranks that fits, every query head meets the key-value head of its group."""

import pytest

from dtlearn.tensor_parallel.attention.heads import Heads, divide_heads


def test_the_table_of_the_module():
    assert divide_heads(8, 2, 4) == Heads(query=2, key_value=1, copies=2)
    assert divide_heads(8, 8, 4) == Heads(query=2, key_value=2, copies=1)
    assert divide_heads(12, 1, 3) == Heads(query=4, key_value=1, copies=3)


@pytest.mark.parametrize("num_ranks", [1, 2, 3, 4, 6])
@pytest.mark.parametrize("num_kv_heads", [1, 2, 3, 4, 6, 12])
def test_a_rank_has_what_its_query_heads_need(num_kv_heads, num_ranks):
    if num_kv_heads % num_ranks and num_ranks % num_kv_heads:
        with pytest.raises(ValueError, match=f"{num_kv_heads} key-value heads cannot be"):
            divide_heads(12, num_kv_heads, num_ranks)
        return
    heads = divide_heads(12, num_kv_heads, num_ranks)
    assert heads.query * num_ranks == 12 and heads.key_value * num_ranks == num_kv_heads * heads.copies
    for rank in range(num_ranks):
        first = rank // heads.copies * heads.key_value  # of this rank's key-value heads
        needed = {query // (12 // num_kv_heads) for query in range(rank * heads.query, (rank + 1) * heads.query)}
        assert needed == set(range(first, first + heads.key_value))


def test_what_does_not_divide_what():
    with pytest.raises(ValueError, match=r"7 heads cannot be divided among 2 ranks: 7 = 3 \* 2 \+ 1"):
        divide_heads(7, 7, 2)
    with pytest.raises(ValueError, match="8 query heads cannot share 3 key-value heads"):
        divide_heads(8, 3, 2)
    with pytest.raises(ValueError, match="8 query heads cannot share 0 key-value heads"):
        divide_heads(8, 0, 2)
    with pytest.raises(ValueError, match=r"3 key-value heads cannot be divided among 2 ranks"):
        divide_heads(12, 3, 2)
    with pytest.raises(ValueError, match=r"3 key-value heads cannot be copied to 4 ranks evenly: 4 = 1 \* 3 \+ 1"):
        divide_heads(12, 3, 4)
