"""What every codec keeps: sizes by formula, shapes that do not depend on values, and a NaN that everybody sees."""

import pytest
import torch

from dtlearn.gradient_compression.codecs.casts import CastCodec
from dtlearn.gradient_compression.codecs.codec import in_chunks
from dtlearn.gradient_compression.codecs.qsgd import QSGD
from dtlearn.gradient_compression.codecs.sign import PackedSign
from dtlearn.gradient_compression.codecs.sparse import RandomK, TopK

CODECS = [
    CastCodec(torch.float32),
    CastCodec(torch.float16),
    CastCodec(torch.bfloat16),
    QSGD(1, 8),
    QSGD(7, 64),
    QSGD(127, 128),
    TopK(ratio=0.1),
    TopK(k=50),
    RandomK(ratio=0.1),
    RandomK(k=3, unbiased=True),
    PackedSign(8),
    PackedSign(),
]
SIZES = [0, 1, 7, 8, 1000, 1025]


def normal(numel, seed=0):
    return torch.randn(numel, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("codec", CODECS, ids=str)
@pytest.mark.parametrize("numel", SIZES)
def test_sizes_are_those_of_the_formula_and_depend_on_no_value(codec, numel):
    layouts = set()
    for x in (normal(numel), torch.zeros(numel), torch.full((numel,), torch.nan)):
        payload = codec.encode(x)
        layouts.add(tuple((tensor.dtype, tensor.shape) for tensor in payload))
        assert sum(tensor.nbytes for tensor in payload) == codec.nbytes(numel)
        assert codec.decode(payload, numel).shape == (numel,)
    assert len(layouts) == 1


@pytest.mark.parametrize("codec", CODECS, ids=str)
@pytest.mark.parametrize("broken", [torch.nan, torch.inf, -torch.inf])
def test_whoever_decodes_sees_what_is_not_finite(codec, broken):
    x = normal(1000)
    assert codec.decode(codec.encode(x), 1000).isfinite().all()
    x[517] = broken
    assert not codec.decode(codec.encode(x), 1000).isfinite().all()


@pytest.mark.parametrize("codec", CODECS, ids=str)
def test_zeros_stay_zeros(codec):
    assert torch.equal(codec.decode(codec.encode(torch.zeros(100)), 100), torch.zeros(100))


@pytest.mark.parametrize("codec", CODECS, ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_added_is_decoded_and_added(codec, dtype):
    total, payload = normal(1000, 1).to(dtype), codec.encode(normal(1000).to(dtype))
    expected = total - 0.5 * codec.decode(payload, 1000)
    codec.add_decoded(total, payload, alpha=-0.5)
    assert torch.allclose(total, expected, rtol=1e-6, atol=1e-7) and total.dtype == dtype


@pytest.mark.parametrize("codec", CODECS, ids=str)
def test_the_same_draws_give_the_same_payload(codec):
    payloads = [codec.encode(normal(1000), generator=torch.Generator().manual_seed(3)) for _ in range(2)]
    assert all(map(torch.equal, *payloads))


@pytest.mark.parametrize("codec", CODECS, ids=str)
def test_x_may_be_overwritten_when_it_is_encoded(codec):
    x = normal(1000)
    payload = codec.encode(x)
    before = codec.decode(payload, 1000)
    x.zero_()
    assert torch.equal(codec.decode(payload, 1000), before)


@pytest.mark.parametrize("codec", CODECS, ids=str)
@pytest.mark.parametrize(("x", "what"), [(torch.zeros(2, 3), r"float32 of shape \(2, 3\)"), (torch.arange(3), "int64")])
def test_what_is_no_flat_gradient_is_refused(codec, x, what):
    with pytest.raises(ValueError, match=f"encodes a flat tensor of floating-point numbers, .* got .*{what}"):
        codec.encode(x)


def on_a_rank():
    import dtlearn

    device, found = dtlearn.device(), []
    for codec in CODECS:
        x = normal(1000).to(device)
        payload = codec.encode(x, generator=torch.Generator(device).manual_seed(0))
        decoded = codec.decode(payload, 1000)
        if not isinstance(codec, QSGD | RandomK):  # these draw other numbers there
            found.append((decoded.cpu() - codec.decode(codec.encode(normal(1000)), 1000)).abs().max().item())
        assert all(tensor.device == device for tensor in (*payload, decoded))
    return max(found)


def test_on_another_device_they_do_the_same(other_device):
    from tests.devices import run_ranks

    assert run_ranks(on_a_rank, 1, device=other_device)[0] < 1e-6


def test_chunks_are_filled_with_zeros():
    assert in_chunks(torch.ones(5), 4).tolist() == [[1, 1, 1, 1], [1, 0, 0, 0]]
    assert in_chunks(torch.ones(0), 4).shape == (0, 4)
