"""The mean in 16 bits: equal to the reference, torch's hook and FSDP2's divisors; what it loses, and its bytes."""

import pytest
import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.distributed.fsdp._fully_shard import _fsdp_collectives

import dtlearn
from dtlearn.memory import StorageLedger
from dtlearn.mixed_precision.reduction import average as module
from dtlearn.mixed_precision.reduction.average import WHEN, average, divisors, pack, unpack
from tests.devices import run_ranks

SHAPES = [(5, 7), (), (0,), (33,)]
NUMEL = 5 * 7 + 1 + 33
# For the mean of a few numbers below 4, divided twice and added in that format.
TOLERANCE = {torch.float32: 1e-6, torch.float16: 0.02, torch.bfloat16: 0.15}


def gradients_of(rank, dtypes=(torch.float32,)):
    generator = torch.Generator().manual_seed(rank)
    drawn = [torch.randn(shape, generator=generator).to(dtype) for shape in SHAPES for dtype in dtypes]
    return [gradient.to(dtlearn.device()) for gradient in drawn]


def worst_distance(group=None):
    """The largest distance to the mean in float64, by way and dtype; and whether dtypes and all ranks' bits agree."""
    ranks = dist.get_process_group_ranks(group or dist.group.WORLD)
    reference = [torch.stack(of_ranks).double().mean(0) for of_ranks in zip(*map(gradients_of, ranks), strict=True)]
    away, same = {}, True
    for when in WHEN:
        for dtype in TOLERANCE:
            mine = gradients_of(dist.get_rank())
            average(mine, when=when, in_dtype=dtype, group=group)
            distances = [(a - b).abs().max().item() for a, b in zip(mine, reference, strict=True) if a.numel()]
            away[when, dtype] = max(distances)
            flat = torch.cat([gradient.flatten() for gradient in mine])
            everybody = [torch.empty_like(flat) for _ in ranks]
            dist.all_gather(everybody, flat, group=group)
            same &= flat.dtype is torch.float32 and all(torch.equal(flat, other) for other in everybody)
    return away, same


def in_a_group():
    groups = [dist.new_group([0, 2]), dist.new_group([1, 3])]
    return worst_distance(groups[dist.get_rank() % 2])


def distance_and_hook():
    return *worst_distance(), beside_torchs_hook()


def without_the_sum():
    """Sabotage: the all-reduce is left out. The largest distance to the mean."""
    module.dist.all_reduce = lambda *args, **kwargs: None
    mine = gradients_of(dist.get_rank())
    average(mine)
    return (mine[0] - torch.stack([gradients_of(rank)[0] for rank in range(2)]).mean(0)).abs().max().item()


@pytest.mark.parametrize("world_size", [1, 2, 3, 4])
def test_the_mean_is_the_references(world_size):
    for away, same, like_the_hook in run_ranks(distance_and_hook, world_size, device="cpu"):
        assert len(away) == 9 and same and like_the_hook
        assert not {way: distance for way, distance in away.items() if not distance < TOLERANCE[way[1]]}
        assert world_size == 1 or away["before", torch.bfloat16] > 1e-4  # it was bfloat16


def test_the_mean_is_the_references_on_another_device(other_device):
    for away, same in run_ranks(worst_distance, 2, device=other_device):
        assert len(away) == 9 and same and all(distance < TOLERANCE[way[1]] for way, distance in away.items())


def test_the_mean_within_a_group():
    for away, same in run_ranks(in_a_group, 4, device="cpu"):
        assert same and all(distance < TOLERANCE[way[1]] for way, distance in away.items())


def test_without_the_sum_it_is_noticed():
    assert min(run_ranks(without_the_sum, 2, device="cpu")) > 0.1


class Bucket:
    def __init__(self, buffer):
        self.content = buffer

    def buffer(self):
        return self.content


def beside_torchs_hook():
    """Whether division before the sum in float16 gives the bits of PyTorch's hook."""
    mine = gradients_of(dist.get_rank())
    bucket = Bucket(torch.cat([gradient.flatten() for gradient in mine]))
    theirs = default_hooks.fp16_compress_hook(None, bucket).wait()
    average(mine, when="before", in_dtype=torch.float16)
    return torch.equal(torch.cat([gradient.flatten() for gradient in mine]), theirs)


class Group:
    def __init__(self, num_ranks):
        self.num_ranks = num_ranks

    def size(self):
        return self.num_ranks


def test_both_divides_as_fsdp2_does_in_float16():
    for size in range(2, 1025):
        factors = _fsdp_collectives._get_gradient_divide_factors(Group(size), None, torch.float16)[:2]
        assert divisors(size, "both") == factors
    for when in WHEN:
        assert all(first * last == size for size in range(1, 100) for first, last in [divisors(size, when)])


def means_of(value, dtype):
    means = {}
    for when in WHEN:
        gradient = torch.full((1,), value)
        average([gradient], when=when, in_dtype=dtype)
        means[when] = gradient.item()
    return means


def means_of_extremes():
    cases = (20_000.0, torch.float16), (2**-23, torch.float16), (1e30, torch.bfloat16)
    return [means_of(value, dtype) for value, dtype in cases]


def test_what_float16_loses_depends_on_the_order():
    for large, small, brain in run_ranks(means_of_extremes, 4, device="cpu"):
        assert large == {"before": 20_000, "after": torch.inf, "both": 20_000}  # the sum, 80,000, is above 65,504
        assert small == {"before": 0, "after": 2**-23, "both": 2**-23}  # a quarter is half the smallest number
        assert all(abs(mean / 1e30 - 1) < 0.01 for mean in brain.values())


def averaged():
    peaks = []
    for in_dtype in TOLERANCE:
        mine = gradients_of(dist.get_rank())
        with StorageLedger() as ledger:
            average(mine, in_dtype=in_dtype)
        peaks.append(ledger.peak)
    return peaks


def test_bytes_and_memory():
    run = run_ranks(averaged, 2, device="cpu", record=True)
    nbytes = [NUMEL * in_dtype.itemsize for in_dtype in TOLERANCE]
    for rank in (0, 1):
        assert [(e.op, e.nbytes) for e in run.record.select(rank=rank)] == [("all_reduce", each) for each in nbytes]
        assert run[rank] == nbytes


def test_the_buffer_has_all_gradients_and_gives_them_back_in_their_dtypes():
    mine = gradients_of(0, (torch.float32, torch.bfloat16))
    buffer = pack(mine, torch.float32, multiple_of=8)
    assert buffer.numel() == 2 * NUMEL + -2 * NUMEL % 8
    unpack(2 * buffer, mine)
    before = gradients_of(0, (torch.float32, torch.bfloat16))
    assert all(torch.equal(a, 2 * b) and a.dtype == b.dtype for a, b in zip(mine, before, strict=True))


def test_bad_input_is_told():
    with pytest.raises(ValueError, match=r"no gradients to average: call it after backward\(\)"):
        pack([], torch.float32)
    for dtype in (torch.int32, torch.float8_e4m3fn):
        with pytest.raises(ValueError, match="summed in float16, bfloat16, float32 or float64; got torch"):
            pack([torch.ones(1)], dtype)
    with pytest.raises(ValueError, match="when must be one of before, after, both; got 'never'"):
        divisors(2, "never")
