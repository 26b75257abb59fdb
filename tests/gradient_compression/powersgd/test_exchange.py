"""Orthogonal columns, also of what has no direction; the exchange itself: `test_hook.py`."""

import pytest
import torch

from dtlearn.gradient_compression.powersgd.exchange import orthogonal
from tests.gradient_compression.codecs.test_codec import normal


@pytest.mark.parametrize("shape", [(2, 10, 1), (3, 8, 4), (1, 4, 4)])
def test_columns_become_orthogonal_and_span_the_same(shape):
    matrices = normal(torch.Size(shape).numel()).view(shape)
    q = orthogonal(matrices)
    assert torch.allclose(q.transpose(1, 2) @ q, torch.eye(shape[2]).expand(shape[0], -1, -1), atol=1e-5)
    assert torch.allclose(q @ (q.transpose(1, 2) @ matrices), matrices, atol=1e-5)


def test_zeros_and_equal_columns_become_orthogonal_too():
    matrices = torch.stack([torch.zeros(5, 2), torch.ones(5, 2)])
    q = orthogonal(matrices)
    assert torch.allclose(q.transpose(1, 2) @ q, torch.eye(2).expand(2, -1, -1), atol=1e-5)


def test_nan_goes_through():
    assert orthogonal(torch.full((1, 4, 2), torch.nan)).isnan().any()
