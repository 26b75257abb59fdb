"""Blocks made of other parts: the paper's formula again, and autograd on blocks that are built like that."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from dtlearn.memory.arithmetic.activations import ActivationSizes, paper_block, table_bytes
from dtlearn.memory.arithmetic.block_variants import GPT_BLOCK, LLAMA_BLOCK, BlockKind, block_activations, effects
from dtlearn.memory.arithmetic.kept_tensors import kept_tensors

GPT_3 = ActivationSizes(1, 2048, 12288, 96)


class SmallBlock(nn.Module):
    """A block of any kind, without dropout, from torch's operations; key and value may have fewer heads."""

    def __init__(self, sizes, kind):
        super().__init__()
        self.sizes, self.kind = sizes, kind
        hidden, width = sizes.hidden, sizes.feed_forward or 4 * sizes.hidden
        self.kv_heads = sizes.kv_heads or sizes.heads
        kv = hidden * self.kv_heads // sizes.heads
        norm = nn.LayerNorm if kind.norm == "layer norm" else nn.RMSNorm
        self.attention_norm, self.feed_forward_norm = norm(hidden), norm(hidden)
        self.query, self.key, self.value = nn.Linear(hidden, hidden), nn.Linear(hidden, kv), nn.Linear(hidden, kv)
        self.output, self.up, self.down = nn.Linear(hidden, hidden), nn.Linear(hidden, width), nn.Linear(width, hidden)
        self.gate = nn.Linear(hidden, width) if kind.swiglu else None

    def attention(self, x):
        heads = self.sizes.heads
        q, k, v = (layer(x).unflatten(-1, (n, -1)).transpose(1, 2) for layer, n in self.projections())
        if self.kind.fused_attention:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            scores = (q.flatten(0, 1) @ k.flatten(0, 1).transpose(1, 2)).softmax(-1)
            y = (scores @ v.flatten(0, 1)).unflatten(0, (-1, heads))
        return self.output(y.transpose(1, 2).flatten(2))

    def projections(self):
        return (self.query, self.sizes.heads), (self.key, self.kv_heads), (self.value, self.kv_heads)

    def forward(self, x):
        x = x + self.attention(self.attention_norm(x))
        inner = self.feed_forward_norm(x)
        hidden = F.silu(self.gate(inner)) * self.up(inner) if self.gate else F.gelu(self.up(inner))
        return x + self.down(hidden)


@pytest.mark.parametrize("swiglu", [False, True])
@pytest.mark.parametrize("norm", ["layer norm", "RMSNorm, unfused"])
@pytest.mark.parametrize("fused_attention", [False, True])
def test_it_is_what_autograd_keeps(fused_attention, norm, swiglu):
    sizes = ActivationSizes(3, 10, 24, 4, feed_forward=40)
    kind = BlockKind(fused_attention, swiglu, norm, dropout=False, element_bytes=4)
    block, x = SmallBlock(sizes, kind), torch.randn(3, 10, 24, requires_grad=True)
    kept = kept_tensors(lambda: block(x * 1), block, x)
    assert sorted(tensor.bytes for tensor in kept) == sorted(term.bytes for term in block_activations(sizes, kind))


def test_key_and_value_of_fewer_heads_are_smaller():
    """Their projections give fewer features; what attention makes of them is the kernel's."""
    sizes = ActivationSizes(2, 5, 32, 8, kv_heads=2)
    block = SmallBlock(sizes, LLAMA_BLOCK)
    rows = {term.kept: term for term in block_activations(sizes, replace(LLAMA_BLOCK, element_bytes=4))}
    for name in ("key", "value"):
        assert rows[name].elements == getattr(block, name)(torch.randn(2, 5, 32)).numel() == 2 * 5 * 32 // 4


@pytest.mark.parametrize("sizes", [GPT_3, ActivationSizes(3, 5, 12, 4)])
def test_with_gpt_3s_parts_it_is_the_papers_and_the_statistics_of_norms(sizes):
    statistics = 2 * (4 + 4) * sizes.batch * sizes.length  # of two norms: mean and scale
    assert table_bytes(block_activations(sizes, GPT_BLOCK)) == table_bytes(paper_block(sizes)) + statistics


def test_llama_3_8b_keeps_41_bytes_for_each_element_of_its_input():
    sizes = ActivationSizes(1, 8192, 4096, 32, kv_heads=8, feed_forward=14336)
    assert table_bytes(block_activations(sizes, LLAMA_BLOCK)) / sizes.sbh == pytest.approx(41.03, abs=0.01)


def test_effects_on_gpt_3():
    share = {effect.name: effect.after / effect.before for effect in effects(GPT_3)}
    assert share["FlashAttention"] == pytest.approx(34 / 114, abs=0.001)  # the term 5as/h is gone
    assert share["grouped-query attention"] == pytest.approx(1 - 4 * (1 - 8 / 96) / 114, abs=0.001)
    assert share["SwiGLU"] == pytest.approx(1 + (4 * 2 * 8 / 3 - 16) / 114, abs=0.001)  # it costs memory
    assert 0.999 < share["RMSNorm"] < 1
    assert share["no dropout"] == pytest.approx(1 - (2 + 3 * 16) / 114, abs=0.001)


def test_bad_input():
    with pytest.raises(ValueError, match="element_bytes must be 2 or 4, got 1"):
        BlockKind(element_bytes=1)
    with pytest.raises(ValueError, match="norm must be one of layer norm, RMSNorm, RMSNorm, unfused; got 'batch norm'"):
        BlockKind(norm="batch norm")


@pytest.mark.gpu
def test_on_a_gpu_rms_norm_is_one_operation():
    sizes, kind = ActivationSizes(3, 10, 24, 4), BlockKind(False, True, "RMSNorm", dropout=False, element_bytes=4)
    block, x = SmallBlock(sizes, kind).cuda(), torch.randn(3, 10, 24, device="cuda", requires_grad=True)
    kept = kept_tensors(lambda: block(x * 1), block, x)
    assert sum(tensor.bytes for tensor in kept) == table_bytes(block_activations(sizes, kind))
