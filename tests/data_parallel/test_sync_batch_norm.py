"""Batch norm over all ranks: what one process gives on the whole batch."""

import pytest
import torch
from torch import nn

from dtlearn.data_parallel.sync_batch_norm import SyncBatchNorm, combine_moments, convert_sync_batchnorm
from dtlearn.runtime.run import run_ranks

SIZES = [1, 2, 3, 4]
SPLITS = {1: [6], 2: [4, 2], 3: [3, 0, 3], 4: [1, 3, 0, 2]}  # samples per rank; one has none
SHAPES = [(5,), (5, 3), (5, 2, 4)]  # C, then the rest


def batch(shape, rank_counts, seed):
    """The whole batch, a target for its output, and where each rank's part lies."""
    g = torch.Generator().manual_seed(seed)
    total = sum(rank_counts)
    x = 3 + 2 * torch.randn(total, *shape, generator=g, dtype=torch.float64)
    return x, torch.randn(total, *shape, generator=g, dtype=torch.float64)


def plain(shape, **kwargs):
    return (nn.BatchNorm2d if len(shape) == 3 else nn.BatchNorm1d)(shape[0], **kwargs).double()


def differences(counts, sabotage=""):
    """On each rank: the largest difference from `nn.BatchNorm` on the whole batch, of each kind of result."""
    import torch.distributed as dist

    from dtlearn.data_parallel import sync_batch_norm as module

    rank = dist.get_rank()
    real_gather, real_reduce = dist.all_gather, dist.all_reduce
    if sabotage == "forward":
        dist.all_gather = lambda parts, mine, group=None: [p.copy_(mine) for p in parts]
    if sabotage == "backward":
        module.dist.all_reduce = lambda tensor, group=None: None
    here = slice(sum(counts[:rank]), sum(counts[: rank + 1]))
    found = {"y": 0.0, "dx": 0.0, "d_parameters": 0.0, "running": 0.0, "eval": 0.0}

    def note(kind, ours, theirs):
        assert ours.shape == theirs.shape and ours.dtype == theirs.dtype
        if ours.numel():
            found[kind] = max(found[kind], (ours - theirs).abs().max().item())

    for shape in SHAPES:
        for options in ({}, {"momentum": None}, {"affine": False}, {"track_running_stats": False}, {"eps": 0.1}):
            theirs = plain(shape, **options)
            ours = module.SyncBatchNorm(shape[0], **options).double()
            if theirs.affine:
                for layer in (ours, theirs):
                    nn.init.normal_(layer.weight, generator=torch.Generator().manual_seed(1))
                    nn.init.normal_(layer.bias, generator=torch.Generator().manual_seed(2))
            for seed in range(3):  # several batches: the running statistics add up
                whole, dy = batch(shape, counts, seed)
                x = whole[here].clone().requires_grad_()
                whole.requires_grad_()
                y, whole_y = ours(x), theirs(whole)
                y.backward(dy[here])
                whole_y.backward(dy)
                note("y", y, whole_y[here])
                note("dx", x.grad, whole.grad[here])
            for mine, right in zip(ours.parameters(), theirs.parameters(), strict=True):
                total = mine.grad.clone()
                real_reduce(total)  # each rank has its own part of the sum
                note("d_parameters", total, right.grad)
            for (name, mine), (also, right) in zip(ours.named_buffers(), theirs.named_buffers(), strict=True):
                assert name == also
                note("running", mine, right)
            if options.get("track_running_stats", True):
                ours.eval(), theirs.eval()
                note("eval", ours(whole[here]), theirs(whole)[here])
    dist.all_gather, dist.all_reduce = real_gather, real_reduce
    return found


@pytest.mark.parametrize("world_size", SIZES)
def test_uneven_ranks_give_what_one_process_gives(world_size):
    for found in run_ranks(differences, world_size, SPLITS[world_size]).values:
        assert max(found.values()) < 1e-12, found


def test_without_the_forward_exchange_the_values_are_wrong():
    for found in run_ranks(differences, 2, [4, 2], "forward").values:
        assert found["y"] > 0.1 and found["running"] > 0.01, found


def test_without_the_backward_exchange_only_the_input_gradients_are_wrong():
    for found in run_ranks(differences, 2, [4, 2], "backward").values:
        assert found["dx"] > 0.01, found
        assert max(found["y"], found["d_parameters"], found["running"]) < 1e-12, found


COUNTS = [[3, 4, 1, 2], [4, 2, 2, 1]]  # samples of each rank, step by step


def network():
    """A small convolutional network with both kinds of batch norm."""
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(),
        nn.Linear(16, 6), nn.BatchNorm1d(6, momentum=None), nn.ReLU(), nn.Linear(6, 3),
    ).double()  # fmt: skip


def images(step, counts):
    g = torch.Generator().manual_seed(step)
    n = sum(counts)
    return torch.randn(n, 2, 4, 4, generator=g, dtype=torch.float64), torch.randint(0, 3, (n,), generator=g)


def train(synchronised):
    """On each rank, in torch's DDP with uneven batches: the largest difference from one process on whole batches."""
    import torch.distributed as dist

    from dtlearn.data_parallel.samples.token_mean import global_mean
    from dtlearn.data_parallel.sync_batch_norm import convert_sync_batchnorm

    rank, size = dist.get_rank(), dist.get_world_size()
    alone, model = network(), network()
    if rank:
        nn.init.normal_(model[0].weight)  # DDP has to bring rank 0's
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.2, momentum=0.9) for m in (alone, model)]
    if synchronised:
        model = convert_sync_batchnorm(model)
    ddp = nn.parallel.DistributedDataParallel(model)
    for step, counts in enumerate(COUNTS * 2):
        counts = counts[:size]
        x, labels = images(step, counts)
        here = slice(sum(counts[:rank]), sum(counts[: rank + 1]))
        for optimizer in optimizers:
            optimizer.zero_grad()
        nn.functional.cross_entropy(alone(x), labels).backward()
        loss_sum = nn.functional.cross_entropy(ddp(x[here]), labels[here], reduction="sum")
        global_mean(loss_sum, counts[rank]).backward()
        for optimizer in optimizers:
            optimizer.step()
    mine, right = model.state_dict(), alone.state_dict()
    assert mine.keys() == right.keys()
    return max((mine[name].double() - right[name].double()).abs().max().item() for name in mine)


@pytest.mark.parametrize("world_size", [2, 3, 4])
def test_training_in_ddp_is_training_in_one_process(world_size):
    assert max(run_ranks(train, world_size, True).values) < 1e-11


def test_training_with_local_batch_norms_is_not():
    assert min(run_ranks(train, 2, False).values) > 0.01


def forward_and_backward(channels, needs_grad):
    layer = SyncBatchNorm(channels)
    x = torch.randn(4, channels, 3, generator=torch.Generator().manual_seed(0), requires_grad=needs_grad)
    layer(x).sum().backward()
    layer.eval()(x)


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_messages_and_bytes_are_those_of_the_docstring(world_size):
    C = 7
    for needs_grad, backward in ((True, [("all_reduce", 2 * C * 4)]), (False, [])):
        record = run_ranks(forward_and_backward, world_size, C, needs_grad, record=True, device="cpu").record
        for rank in range(world_size):
            mine = [(e.op, e.nbytes) for e in record if e.rank == rank]
            assert mine == [("all_gather", (2 * C + 1) * 4), *backward]


def memory(channels, shape):
    from dtlearn.data_parallel.sync_batch_norm import SyncBatchNorm
    from dtlearn.memory import StorageLedger

    layer = SyncBatchNorm(channels)
    x = torch.randn(shape, requires_grad=True)
    with StorageLedger() as ledger:
        y = layer(x)
        forward, kept = ledger.peak, ledger.now
    dy = torch.ones_like(y)
    with StorageLedger() as ledger:
        torch.autograd.backward(y, dy)
    return forward, kept, ledger.peak


def test_memory_is_that_of_the_docstring():
    N, C, shape = 2, 8, (16, 8, 50, 50)
    size = 4 * 16 * 8 * 50 * 50
    small = 4 * (N + 1) * (2 * C + 1) + 20 * 4 * C  # the statistics of all ranks, and a few of size C
    for forward, kept, backward in run_ranks(memory, N, C, shape, device="cpu").values:
        assert size <= forward <= size + small, (forward - size, small)
        assert size + (2 * C + 1) * 4 <= kept <= size + small
        assert 2 * size <= backward <= 2 * size + small, (backward - 2 * size, small)


def refused():
    import torch.distributed as dist

    from dtlearn.data_parallel.sync_batch_norm import SyncBatchNorm

    said = []
    rank = dist.get_rank()
    for x in (torch.ones(0, 3), torch.ones(1 - rank, 3), torch.ones(2, 4), torch.ones(3)):
        with pytest.raises(ValueError) as error:
            SyncBatchNorm(3)(x)
        said.append(str(error.value))
    with pytest.raises(ValueError, match="GPU"):
        nn.SyncBatchNorm(3)(torch.ones(2, 3))  # torch's own: the reason why this module can be tried on a laptop
    return said


def test_too_few_values_are_refused_on_all_ranks():
    for none, one, channels, dims in run_ranks(refused, 2, device="cpu").values:
        assert "all ranks have 0" in none and "all ranks have 1" in one
        assert "(B, 3, ...); got (2, 4)" in channels and "got (3,)" in dims


def in_groups():
    import torch.distributed as dist

    from dtlearn.data_parallel.sync_batch_norm import SyncBatchNorm

    rank = dist.get_rank()
    groups = [dist.new_group([0, 2]), dist.new_group([1])]
    layer = SyncBatchNorm(1, momentum=1.0, group=groups[rank % 2])
    layer(torch.full((2, 1), float(rank**2)))
    return layer.running_mean.item()


def test_only_the_group_shares_statistics():
    assert run_ranks(in_groups, 3).values == [2.0, 1.0, 2.0]  # (0 + 4) / 2 on ranks 0 and 2


def low_precision():
    from dtlearn.data_parallel.sync_batch_norm import SyncBatchNorm

    torch.manual_seed(0)
    x = (100 + torch.randn(64, 4)).bfloat16().requires_grad_()
    y = SyncBatchNorm(4)(x)
    y.backward(torch.randn_like(y))
    right = nn.BatchNorm1d(4)(x.detach().float())
    return str(y.dtype), str(x.grad.dtype), (y - right).abs().max().item()


def test_statistics_of_bfloat16_are_made_in_float32():
    for dtype, gradient, difference in run_ranks(low_precision, 2).values:
        assert dtype == gradient == "torch.bfloat16"
        assert difference < 0.02  # the rounding of y, which is below 4


def test_moments_combine_where_sums_of_squares_cancel():
    torch.manual_seed(0)
    parts = [1e4 + torch.randn(n, 3) for n in (5, 1, 40)]
    right = torch.cat(parts).double().var(0, correction=0)
    counts = torch.tensor([float(len(p)) for p in parts] + [0.0])
    means = torch.stack([p.mean(0) for p in parts] + [torch.zeros(3)])  # the last part is empty
    m2s = torch.stack([p.var(0, correction=0) * len(p) for p in parts] + [torch.zeros(3)])
    n, mean, m2 = combine_moments(counts, means, m2s)
    assert n == 46 and mean.sub(1e4).abs().max() < 1
    assert ((m2 / n).double() / right - 1).abs().max() < 1e-2
    whole = torch.cat(parts)
    squares = whole.square().mean(0) - whole.mean(0).square()
    assert (squares.double() / right - 1).abs().max() > 1, "the sums of squares have lost every digit"


def test_conversion_keeps_parameters_buffers_and_sharing():
    shared = nn.BatchNorm1d(3, eps=0.1, momentum=None)
    no_bias = nn.BatchNorm2d(2)
    no_bias.register_parameter("bias", None)
    model = nn.Sequential(
        shared, nn.Sequential(nn.Linear(3, 3), shared), no_bias, nn.BatchNorm3d(2, affine=False), None
    )
    model.again = model[1]
    before = dict(model.named_parameters()) | dict(model.named_buffers())
    model.eval()
    new = convert_sync_batchnorm(model)
    assert new is model and new[0] is new[1][1] and new.again is new[1]
    assert not [m for m in new.modules() if isinstance(m, nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d)]
    after = dict(new.named_parameters()) | dict(new.named_buffers())
    assert before.keys() == after.keys() and all(before[name] is after[name] for name in before)
    assert isinstance(new[0], SyncBatchNorm) and (new[0].eps, new[0].momentum, new[0].training) == (0.1, None, False)
    assert new[2].bias is None and not new[3].affine
    assert str(convert_sync_batchnorm(nn.BatchNorm1d(3))) == ("SyncBatchNorm(3, eps=1e-05, momentum=0.1, affine=True)")


def test_a_lazy_batch_norm_is_not_silently_left_out():
    with pytest.raises(ValueError, match="lazy"):
        convert_sync_batchnorm(nn.Sequential(nn.LazyBatchNorm1d()))


@pytest.mark.parametrize("options", [{}, {"momentum": None}, {"track_running_stats": False}])
def test_without_a_process_group_it_is_a_batch_norm(options):
    ours, theirs = SyncBatchNorm(3, **options), nn.BatchNorm1d(3, **options)
    for _ in range(2):
        x = torch.randn(5, 3)
        torch.testing.assert_close(ours(x), theirs(x))
    ours.load_state_dict(theirs.state_dict())
    ours.eval(), theirs.eval()
    torch.testing.assert_close(ours(x), theirs(x))
