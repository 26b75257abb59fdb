import pytest
import torch
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as torchs

from dtlearn.gradient_compression.codecs.qsgd import QSGD
from dtlearn.gradient_compression.codecs.sign import PackedSign
from dtlearn.gradient_compression.codecs.sparse import TopK
from dtlearn.gradient_compression.compressed_all_reduce import CompressedAllReduce
from dtlearn.gradient_compression.hooks import CompressionState, compress_hook
from dtlearn.gradient_compression.powersgd.hook import powersgd_hook
from dtlearn.gradient_compression.powersgd.state import PowerSGDState
from dtlearn.gradient_compression.traffic import (
    StepCall,
    all_reduced,
    compressed_all_reduce,
    every,
    gathered,
    messages,
    payload_bytes,
    powersgd,
    sent_bytes,
)
from dtlearn.runtime.run import run_ranks
from dtlearn.sharing.comm_hooks import GradBucket, allreduce_hook, fp16_compress_hook

SHAPES = [(40, 30), (40,), (8, 3, 5), (2, 3)]
NUMEL = 1200 + 40 + 120 + 6


def bucket():
    parameters = [torch.nn.Parameter(torch.zeros(shape)) for shape in SHAPES]
    buffer = torch.arange(float(NUMEL))
    pieces = buffer.split([p.numel() for p in parameters])
    return GradBucket(0, buffer, [v.view_as(p) for v, p in zip(pieces, parameters, strict=True)], parameters, True)


def with_fp16():
    fp16_compress_hook(None, bucket()).wait()


def with_powersgd(rank):
    powersgd_hook(PowerSGDState(rank), bucket()).wait()


def with_torchs_powersgd(rank):
    state = torchs.PowerSGDState(None, rank, start_powerSGD_iter=2)
    state.iter = 2
    torchs.powerSGD_hook(state, bucket()).wait()


def with_a_payload(codec):
    compress_hook(CompressionState(codec), bucket()).wait()


def with_onebit():
    CompressedAllReduce(NUMEL, PackedSign(), like=torch.zeros(1)).mean(torch.ones(NUMEL))


def without_compression():
    allreduce_hook(None, bucket()).wait()


@pytest.mark.parametrize(
    ("step", "arguments", "calls"),
    [
        (without_compression, (), all_reduced(NUMEL)),
        (with_fp16, (), all_reduced(NUMEL, 2)),
        (with_powersgd, (1,), powersgd(SHAPES, 1)),
        (with_powersgd, (4,), powersgd(SHAPES, 4)),
        (with_torchs_powersgd, (4,), powersgd(SHAPES, 4)),
        (with_a_payload, (TopK(k=10),), gathered(80)),
        (with_a_payload, (PackedSign(),), gathered(PackedSign().nbytes(NUMEL))),
        (with_a_payload, (QSGD(),), gathered(QSGD().nbytes(NUMEL))),
        (with_onebit, (), compressed_all_reduce(NUMEL, 3, PackedSign().nbytes)),
    ],
)
def test_the_formula_is_what_a_recorded_step_hands_over(step, arguments, calls):
    record = run_ranks(step, 3, *arguments, device="cpu", record=True).record
    for rank in range(3):
        recorded = [StepCall(e.op, e.nbytes) for e in record.select(rank=rank)]
        assert payload_bytes(recorded) == payload_bytes(calls)
        assert sent_bytes(recorded, 3) == pytest.approx(sent_bytes(calls, 3))
        if step is not with_torchs_powersgd:  # which sends small tensors in a call of their own
            assert messages(recorded, 3) == messages(calls, 3)


def test_powersgd_keeps_vectors_and_small_matrices():
    # 40 x 30 at rank 1: 40 and 30; 8 x 15: 8 and 15; the rest is 46 elements. At rank 4 only the first is compressed.
    assert [c.nbytes for c in powersgd(SHAPES, 1)] == [4 * (46 + 48), 4 * 45]
    assert [c.nbytes for c in powersgd(SHAPES, 4)] == [4 * (166 + 160), 4 * 120]
    assert powersgd([(3,)], 2) == [StepCall("all_reduce", 12)]
    assert [c.nbytes for c in powersgd([(40, 30)], 1)] == [160, 120]


@pytest.mark.parametrize("num_ranks", [2, 3, 8])
def test_pairs_win_below_one_gradient_in_N(num_ranks):
    n = 240
    dense = sent_bytes(all_reduced(n), num_ranks)
    assert dense == pytest.approx(8 * n * (num_ranks - 1) / num_ranks)
    for k in (n // num_ranks - 1, n // num_ranks, n // num_ranks + 1):
        pairs = sent_bytes(gathered(4 * k, 4 * k), num_ranks)
        assert pairs == 8 * k * (num_ranks - 1)
        assert pairs == pytest.approx(dense) if k * num_ranks == n else (pairs < dense) is (k * num_ranks < n)


def test_messages_follow_each_other():
    assert messages(all_reduced(10), 4) == 6 and messages(gathered(1, 1), 4) == 6 and messages(gathered(1), 4) == 3
    assert messages(all_reduced(10), 1) == sent_bytes(all_reduced(10), 1) == 0


def test_once_in_H_steps():
    calls = every(8, all_reduced(100))
    assert payload_bytes(calls) == 50 and messages(calls, 4) == 6 / 8
    assert sent_bytes(calls, 4) == pytest.approx(sent_bytes(all_reduced(100), 4) / 8)
    assert every(1, all_reduced(3)) == all_reduced(3)


def test_bad_input():
    with pytest.raises(ValueError, match="expected a number of steps from 1, got 0"):
        every(0, [])
    with pytest.raises(ValueError, match="expected a number of ranks from 1, got 0"):
        sent_bytes(all_reduced(1), 0)
