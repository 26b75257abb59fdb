"""Casts round to the nearest, within the bounds that the text gives."""

import pytest
import torch

from dtlearn.gradient_compression.codecs.casts import CastCodec
from tests.gradient_compression.codecs.test_codec import normal


@pytest.mark.parametrize(("dtype", "bits"), [(torch.float16, 11), (torch.bfloat16, 8)])
def test_the_relative_error_is_bounded(dtype, bits):
    x = normal(100_000)
    x = x[x.abs() > 6.2e-5]
    codec = CastCodec(dtype)
    error = ((codec.decode(codec.encode(x), len(x)) - x) / x).abs().max().item()
    assert 2 ** -(bits + 1) < error <= 2**-bits


def test_only_float16_overflows():
    x = torch.tensor([65504.0, 1e5])
    assert CastCodec(torch.float16).decode(CastCodec(torch.float16).encode(x), 2).tolist() == [65504.0, torch.inf]
    assert CastCodec(torch.bfloat16).decode(CastCodec(torch.bfloat16).encode(x), 2).isfinite().all()


def test_another_dtype_is_refused():
    with pytest.raises(ValueError, match=r"CastCodec sends float16, bfloat16 or float32; got torch.int8"):
        CastCodec(torch.int8)
