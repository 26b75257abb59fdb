import pytest
import torch

from dtlearn.gradient_compression.codecs.codec import Codec
from dtlearn.gradient_compression.codecs.sparse import TopK
from dtlearn.gradient_compression.comparing.codec_seconds import codec_seconds


class Counting(Codec):
    def __init__(self):
        self.encoded, self.decoded = 0, 0

    def encode(self, x, *, generator=None):
        self.encoded += 1
        return (x,)

    def decode(self, payload, numel):
        self.decoded += 1
        assert payload[0].shape == (numel,)
        return torch.zeros(numel)

    def nbytes(self, numel):
        return 4 * numel


def test_it_encodes_once_and_decodes_for_every_rank():
    codec = Counting()
    assert codec_seconds(codec, 10, 3, rounds=2) > 0
    assert (codec.encoded, codec.decoded) == (3, 9)  # with the round that does not count


def test_a_real_codec():
    assert 0 < codec_seconds(TopK(ratio=0.1), 1_000, 2, rounds=1) < 60


@pytest.mark.parametrize("arguments", [(0, 1, 1), (1, 0, 1), (1, 1, 0)])
def test_bad_input(arguments):
    with pytest.raises(ValueError, match="expected elements, ranks and rounds from 1"):
        codec_seconds(TopK(k=1), *arguments)
