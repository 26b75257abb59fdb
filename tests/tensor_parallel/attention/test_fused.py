"""The two layouts of a fused weight, by hand; and what a cut into thirds of a part gives."""

import pytest
import torch

from dtlearn.tensor_parallel.attention.fused import QKV, fuse_qkv, split_fused_qkv

# H = 4, H_kv = 2, D = 1: a row is named by its head.
BLOCKS = ["q0", "q1", "q2", "q3", "k0", "k1", "v0", "v1"]
GROUPS = ["q0", "q1", "k0", "v0", "q2", "q3", "k1", "v1"]
NUMBERS = {name: float(number) for number, name in enumerate(BLOCKS)}


def named(rows):
    return [BLOCKS[int(number)] for number in rows]


@pytest.mark.parametrize(("layout", "rows"), [("blocks", BLOCKS), ("groups", GROUPS)])
def test_rows_by_head(layout, rows):
    fused = torch.tensor([NUMBERS[name] for name in rows])
    q, k, v = split_fused_qkv(fused, 4, num_kv_heads=2, layout=layout)
    assert (named(q), named(k), named(v)) == (["q0", "q1", "q2", "q3"], ["k0", "k1"], ["v0", "v1"])


@pytest.mark.parametrize("num_kv_heads", [1, 2, 4, None])
@pytest.mark.parametrize("layout", ["blocks", "groups"])
def test_there_and_back(layout, num_kv_heads):
    size = 3 * (num_kv_heads or 4)
    whole = QKV(torch.randn(12, 5), torch.randn(size, 5), torch.randn(size, 5))
    fused = fuse_qkv(whole, 4, num_kv_heads=num_kv_heads, layout=layout)
    back = split_fused_qkv(fused, 4, num_kv_heads=num_kv_heads, layout=layout)
    assert all(torch.equal(a, b) for a, b in zip(whole, back, strict=True))
    biases = split_fused_qkv(fused[:, 0], 4, num_kv_heads=num_kv_heads, layout=layout)
    assert all(torch.equal(a[:, 0], b) for a, b in zip(whole, biases, strict=True))


def test_a_part_of_blocks_in_thirds_is_silently_wrong_and_a_part_of_groups_is_whole_groups():
    """With as many key-value heads as query heads: 12 rows, 6 on each of 2 ranks, 2 in each third."""
    names = [f"{kind}{head}" for kind in "qkv" for head in range(4)]
    whole = QKV(*torch.arange(12.0).view(3, 4))
    in_thirds = fuse_qkv(whole, 4).chunk(2)[0].chunk(3)
    assert [[names[int(n)] for n in part] for part in in_thirds] == [["q0", "q1"], ["q2", "q3"], ["k0", "k1"]]
    of_groups = split_fused_qkv(fuse_qkv(whole, 4, layout="groups").chunk(2)[0], 2, layout="groups")
    assert [[names[int(n)] for n in part] for part in of_groups] == [["q0", "q1"], ["k0", "k1"], ["v0", "v1"]]


def test_bad_input():
    with pytest.raises(ValueError, match=r"4 query, 2 key and 2 value heads have a multiple of 8 rows; .* has 12"):
        split_fused_qkv(torch.ones(12, 2), 4, num_kv_heads=2)
    with pytest.raises(ValueError, match='layout must be "blocks" or "groups", got \'thirds\''):
        split_fused_qkv(torch.ones(12, 2), 4, layout="thirds")
    with pytest.raises(ValueError, match="4 query heads cannot share 3 key-value heads"):
        fuse_qkv(QKV(*torch.ones(3, 4)), 4, num_kv_heads=3)
