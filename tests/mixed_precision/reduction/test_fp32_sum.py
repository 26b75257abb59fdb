import pytest
import torch
import torch.distributed as dist

import dtlearn
from dtlearn.memory import StorageLedger
from dtlearn.mixed_precision.reduction.average import average
from dtlearn.mixed_precision.reduction.fp32_sum import average_with_fp32_sum
from tests.devices import run_ranks


def whole_numbers(rank):
    """Gradients whose sum in float32 is exact, in any order."""
    generator = torch.Generator().manual_seed(rank)
    drawn = [torch.randint(-200, 200, shape, generator=generator).float() for shape in ((30, 50), (), (6,))]
    return [gradient.to(dtlearn.device()) for gradient in drawn]


def are_rounded_once():
    return {dtype: is_rounded_once(dtype) for dtype in (torch.bfloat16, torch.float16)}


def is_rounded_once(dtype):
    """Whether a mean is rounded only once: one that is added in float32, and one that an all-reduce adds in `dtype`."""
    size = dist.get_world_size()
    mine, in_turn = whole_numbers(dist.get_rank()), whole_numbers(dist.get_rank())
    average_with_fp32_sum(mine, in_dtype=dtype)
    average(in_turn, when="after", in_dtype=dtype)
    of_ranks = zip(*[[gradient.to(dtype) for gradient in whole_numbers(rank)] for rank in range(size)], strict=True)
    once = [(torch.stack(rows).double().sum(0) / size).to(dtype).float() for rows in of_ranks]
    return [all(torch.equal(a, b) for a, b in zip(result, once, strict=True)) for result in (mine, in_turn)]


@pytest.mark.parametrize("world_size", [1, 2, 3, 4])
def test_the_mean_is_rounded_once(world_size, device):
    for rounded_once in run_ranks(are_rounded_once, world_size, device=device):
        assert all(ours for ours, _ in rounded_once.values())
        if world_size > 2:
            assert not rounded_once[torch.bfloat16][1]  # an all-reduce in bfloat16 rounds in between


def peaks_of_averages(sizes):
    peaks = []
    for numel in sizes:
        gradient = torch.ones(numel)
        with StorageLedger() as ledger:
            average_with_fp32_sum([gradient])
        peaks.append(ledger.peak)
    return peaks


def test_bytes_and_memory():
    """The peak is two buffers in 16 bits, padded to a multiple of the ranks, and a shard in float32 and in 16 bits."""
    run = run_ranks(peaks_of_averages, 3, (1200, 1201), device="cpu", record=True)
    for rank in range(3):
        sent = [(e.op, e.nbytes) for e in run.record.select(rank=rank)]
        assert [nbytes for op, nbytes in sent if op.startswith("all_to_all")] == [2 * 1200, 2 * 1203]
        assert [nbytes for op, nbytes in sent if op.startswith("all_gather")] == [2 * 400, 2 * 401] and len(sent) == 4
        assert run[rank] == [2 * 2 * numel + (4 + 2) * numel // 3 for numel in (1200, 1203)]


def without_the_all_gather():
    """Sabotage: the ranks keep what they had of all shards but their own."""
    dist.all_gather_into_tensor = lambda *args, **kwargs: None
    return is_rounded_once(torch.bfloat16)[0]


def test_without_the_all_gather_it_is_noticed():
    assert not any(run_ranks(without_the_all_gather, 2, device="cpu"))


def test_no_gradients():
    with pytest.raises(Exception, match="no gradients to average"):
        run_ranks(average_with_fp32_sum, 1, [], device="cpu")
