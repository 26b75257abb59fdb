"""Bytes and floating-point operations of the operations of a block, by hand."""

import torch
import torch.nn.functional as F

from dtlearn.memory.recomputation.operation_costs import OperationCost, operation_costs
from dtlearn.memory.recomputation.selective import FUSED_ATTENTION, LINEAR_LAYERS
from dtlearn.models import GPTConfig
from dtlearn.models.gpt import Block

BATCH, LENGTH, HIDDEN = 2, 8, 16


def test_a_linear_layer_and_an_activation_function():
    x, weight = torch.ones(3, 4), torch.ones(5, 4)
    assert operation_costs(lambda: F.gelu(x @ weight.T)) == [
        OperationCost("mm", 1, 4 * 3 * 5, 2 * 3 * 4 * 5),
        OperationCost("gelu", 1, 4 * 3 * 5, 3 * 5),
    ]


def test_in_a_block_products_cost_most_per_byte():
    block, x = Block(GPTConfig(16, LENGTH, 1, 2, HIDDEN)), torch.randn(BATCH, LENGTH, HIDDEN)
    rows = operation_costs(block, x)
    assert {row.name for row in rows} == {"addmm", "native_layer_norm", "add", "gelu"} | {rows[0].name, rows[1].name}
    assert {rows[0].name, rows[1].name} <= LINEAR_LAYERS | FUSED_ATTENTION
    assert all(row.flops_per_byte < 1 < rows[1].flops_per_byte for row in rows[2:])
    (linear,) = (row for row in rows if row.name == "addmm")
    tokens = BATCH * LENGTH
    assert linear == OperationCost("addmm", 6, 4 * tokens * 9 * HIDDEN, 2 * tokens * 12 * HIDDEN**2)
    (attention,) = (row for row in rows if row.name in FUSED_ATTENTION)
    assert attention.flops == 2 * 2 * BATCH * LENGTH**2 * HIDDEN  # q k^T and scores v, all of it: no half for causal


def test_views_make_nothing():
    assert operation_costs(lambda: torch.ones(4).view(2, 2).add_(1)) == [OperationCost("ones", 1, 16, 4)]
    assert OperationCost("nothing", 0, 0, 0).flops_per_byte == 0.0
