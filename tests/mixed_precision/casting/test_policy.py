"""The tables are PyTorch's: the same operations, and the same formats of what they give."""

import pytest
import torch
import torch.nn.functional as F
from packaging.version import Version

from dtlearn.mixed_precision.casting.policy import POLICIES

# Names in Python -> PyTorch's operator, where they differ.
OPERATORS = {"cross_entropy": "cross_entropy_loss"}
# Rows that PyTorch gets from other rows: these call an operator that has one.
DERIVED = {"cpu": {"einsum"}, "cuda": {"cross_entropy"}}
# Rows of torch 2.13 that torch 2.11 has not: its autocast leaves these operations alone.
LATER = {"cuda": {"rms_norm"}} if Version(torch.__version__) < Version("2.13") else {}


def in_torchs_table(device):
    key = {"cpu": "AutocastCPU", "cuda": "AutocastCUDA"}[device]
    registered = torch._C._dispatch_get_registrations_for_dispatch_key(key)
    return {name.removeprefix("aten::").partition(".")[0] for name in registered}


@pytest.mark.parametrize("device", POLICIES)
def test_every_row_is_in_torchs_table(device):
    names = {OPERATORS.get(name, name) for name in POLICIES[device] if name not in DERIVED[device]}
    assert len(names) > 35
    assert names - in_torchs_table(device) <= LATER.get(device, set())


def matrix(*shape):
    return torch.rand(*shape or (4, 4)) + 0.5


ONE_HOT = torch.ones(4, dtype=torch.int64)
# One call of each row that a CPU can run, on tensors that `lower` makes of float32 ones.
CALLS = {
    "linear": lambda lower: F.linear(lower(matrix()), lower(matrix())),
    "matmul": lambda lower: lower(matrix()) @ lower(matrix()),
    "mm": lambda lower: lower(matrix()).mm(lower(matrix())),
    "bmm": lambda lower: torch.bmm(lower(matrix(2, 4, 4)), lower(matrix(2, 4, 4))),
    "addmm": lambda lower: torch.addmm(lower(matrix()), lower(matrix()), lower(matrix())),
    "addbmm": lambda lower: torch.addbmm(lower(matrix()), lower(matrix(2, 4, 4)), lower(matrix(2, 4, 4))),
    "baddbmm": lambda lower: torch.baddbmm(*(lower(matrix(2, 4, 4)) for _ in range(3))),
    "einsum": lambda lower: torch.einsum("ij,jk->ik", lower(matrix()), lower(matrix())),
    "linalg_vecdot": lambda lower: torch.linalg.vecdot(lower(matrix()), lower(matrix())),
    "scaled_dot_product_attention": lambda lower: F.scaled_dot_product_attention(*[lower(matrix(1, 2, 4, 4))] * 3),
    "conv1d": lambda lower: F.conv1d(lower(matrix(1, 2, 8)), lower(matrix(2, 2, 3))),
    "conv2d": lambda lower: F.conv2d(lower(matrix(1, 2, 8, 8)), lower(matrix(2, 2, 3, 3))),
    "conv3d": lambda lower: F.conv3d(lower(matrix(1, 2, 4, 4, 4)), lower(matrix(2, 2, 3, 3, 3))),
    "conv_tbc": lambda lower: torch.conv_tbc(lower(matrix(8, 1, 2)), lower(matrix(3, 2, 2)), lower(matrix(2))),
    "conv_transpose1d": lambda lower: F.conv_transpose1d(lower(matrix(1, 2, 8)), lower(matrix(2, 2, 3))),
    "conv_transpose2d": lambda lower: F.conv_transpose2d(lower(matrix(1, 2, 8, 8)), lower(matrix(2, 2, 3, 3))),
    "conv_transpose3d": lambda lower: F.conv_transpose3d(lower(matrix(1, 2, 4, 4, 4)), lower(matrix(2, 2, 3, 3, 3))),
    "prelu": lambda lower: F.prelu(lower(matrix()), lower(matrix(1))),
    "cross_entropy": lambda lower: F.cross_entropy(lower(matrix()), ONE_HOT),
    "nll_loss": lambda lower: F.nll_loss(lower(matrix()), ONE_HOT),
    "binary_cross_entropy": lambda lower: F.binary_cross_entropy(lower(matrix() / 2), lower(matrix() / 2)),
    "binary_cross_entropy_with_logits": lambda lower: F.binary_cross_entropy_with_logits(
        lower(matrix()), lower(matrix() / 2)
    ),
    "kl_div": lambda lower: F.kl_div(lower(matrix()), lower(matrix()), reduction="batchmean"),
    "mse_loss": lambda lower: F.mse_loss(lower(matrix()), lower(matrix())),
    "l1_loss": lambda lower: F.l1_loss(lower(matrix()), lower(matrix())),
    "smooth_l1_loss": lambda lower: F.smooth_l1_loss(lower(matrix()), lower(matrix())),
    "huber_loss": lambda lower: F.huber_loss(lower(matrix()), lower(matrix())),
    "soft_margin_loss": lambda lower: F.soft_margin_loss(lower(matrix()), lower(matrix())),
    "poisson_nll_loss": lambda lower: F.poisson_nll_loss(lower(matrix()), lower(matrix())),
    "cosine_embedding_loss": lambda lower: F.cosine_embedding_loss(lower(matrix()), lower(matrix()), ONE_HOT),
    "hinge_embedding_loss": lambda lower: F.hinge_embedding_loss(lower(matrix()), ONE_HOT),
    "margin_ranking_loss": lambda lower: F.margin_ranking_loss(lower(matrix(4)), lower(matrix(4)), lower(matrix(4))),
    "multi_margin_loss": lambda lower: F.multi_margin_loss(lower(matrix()), ONE_HOT),
    "triplet_margin_loss": lambda lower: F.triplet_margin_loss(*(lower(matrix()) for _ in range(3))),
    "prod": lambda lower: lower(matrix()).prod(),
    "cdist": lambda lower: torch.cdist(lower(matrix()), lower(matrix())),
    "trace": lambda lower: lower(matrix()).trace(),
    "quantile": lambda lower: torch.quantile(lower(matrix()), 0.5),
    "cat": lambda lower: torch.cat([lower(matrix()), matrix()]),
    "stack": lambda lower: torch.stack([lower(matrix()), matrix()]),
    "index_copy": lambda lower: lower(matrix()).index_copy(0, ONE_HOT[:1], matrix(1, 4)),
}


def test_every_row_of_the_cpus_table_is_called_here():
    assert set(CALLS) == set(POLICIES["cpu"])
