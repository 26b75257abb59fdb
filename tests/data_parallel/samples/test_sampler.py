"""The samplers: torch's own indices, number for number; and each sample once where that is promised."""

import itertools
from collections import Counter

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset, TensorDataset
from torch.utils.data.distributed import DistributedSampler as TorchSampler

from dtlearn.data_parallel import DistributedSampler, EvaluationSampler, epoch_order, shard_indices
from dtlearn.runtime.run import run_ranks

# Less than, equal to and more than the ranks; divided by them and not; 0 < n < N / 2 repeats more than once.
LENGTHS = [0, 1, 2, 3, 4, 5, 7, 8, 9, 10, 16, 17, 23, 100, 257]


def torch_indices(n, size, rank, shuffle, seed, epoch, drop_last):
    sampler = TorchSampler(range(n), size, rank, shuffle=shuffle, seed=seed, drop_last=drop_last)
    sampler.set_epoch(epoch)
    return list(sampler), len(sampler), sampler.total_size


@pytest.mark.parametrize("size", range(1, 9))
def test_the_indices_are_torchs(size):
    compared = 0
    for n, rank, drop_last in itertools.product(LENGTHS, range(size), (False, True)):
        for shuffle, seed, epoch in [
            (False, 0, 0),
            (False, 3, 2),
            (True, 0, 0),
            (True, 0, 1),
            (True, 7, 0),
            (True, 7, 5),
        ]:
            theirs, length, total = torch_indices(n, size, rank, shuffle, seed, epoch, drop_last)
            how = {"shuffle": shuffle, "seed": seed, "drop_last": drop_last}
            assert shard_indices(n, size, rank, epoch=epoch, **how) == theirs
            ours = DistributedSampler(n, size, rank, **how)
            ours.set_epoch(epoch)
            assert list(ours) == theirs
            assert (len(ours), ours.num_samples, ours.total_size) == (length, length, total)
            compared += 1
    assert compared == len(LENGTHS) * size * 12


def test_the_example_of_the_docstring():
    assert [shard_indices(10, 4, r) for r in range(4)] == [[0, 4, 8], [1, 5, 9], [2, 6, 0], [3, 7, 1]]
    assert [shard_indices(10, 4, r, drop_last=True) for r in range(4)] == [[0, 4], [1, 5], [2, 6], [3, 7]]
    assert [list(EvaluationSampler(10, 4, r)) for r in range(4)] == [[0, 4, 8], [1, 5, 9], [2, 6], [3, 7]]


def test_defaults_are_torchs():
    theirs = TorchSampler(range(50), 3, 1)
    ours = DistributedSampler(range(50), 3, 1)
    assert list(ours) == list(theirs)
    for name in ("shuffle", "seed", "drop_last", "epoch", "num_replicas", "rank", "num_samples", "total_size"):
        assert getattr(ours, name) == getattr(theirs, name), name


def test_epochs_differ_only_with_set_epoch():
    sampler = DistributedSampler(100, 2, 0)
    first, again = list(sampler), list(sampler)
    sampler.set_epoch(1)
    assert first == again != list(sampler)


def test_an_order_is_that_of_epoch_0_and_seed_0_if_nothing_else_is_said():
    first = torch.randperm(40, generator=torch.Generator().manual_seed(0)).tolist()
    assert epoch_order(40, shuffle=True) == first != epoch_order(40, shuffle=True, epoch=1)
    assert epoch_order(40) == list(range(40))
    assert shard_indices(40, 2, 1, shuffle=True) == first[1::2]
    assert shard_indices(41, 2, 1) == [*range(1, 41, 2), 0]


def test_seed_and_epoch_are_added():
    assert epoch_order(40, shuffle=True, seed=0, epoch=1) == epoch_order(40, shuffle=True, seed=1, epoch=0)


def test_the_global_generator_is_left_alone():
    torch.manual_seed(5)
    state = torch.get_rng_state()
    shard_indices(100, 2, 0, shuffle=True, seed=9)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("size", range(1, 9))
def test_evaluation_sees_each_sample_once(size):
    for n in LENGTHS:
        samplers = [EvaluationSampler(n, size, r) for r in range(size)]
        shards = [list(s) for s in samplers]
        assert sorted(itertools.chain(*shards)) == list(range(n))
        assert [len(s) for s in samplers] == [len(s) for s in shards]
        assert max(map(len, shards)) - min(map(len, shards)) <= 1


@pytest.mark.parametrize("make", [DistributedSampler, EvaluationSampler])
def test_with_dataloader(make):
    dataset = TensorDataset(torch.arange(10))
    seen = Counter()
    for rank in range(4):
        sampler = make(dataset, 4, rank)
        batches = [batch.tolist() for (batch,) in DataLoader(dataset, batch_size=2, sampler=sampler)]
        assert list(itertools.chain(*batches)) == list(sampler)
        seen.update(itertools.chain(*batches))
    assert set(seen) == set(range(10))
    assert sum(seen.values()) == (10 if make is EvaluationSampler else 12)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((10, 4, 4), "rank must be between 0 and 3"),
        ((10, 4, -1), "rank must be between 0 and 3"),
        ((10, 0, 0), "num_replicas must be 1 or more"),
        ((-1, 2, 0), "n must be 0 or more"),
    ],
)
def test_numbers_that_make_no_shard(arguments, words):
    for call in (shard_indices, DistributedSampler, EvaluationSampler):
        with pytest.raises(ValueError, match=words):
            call(*arguments)


def test_start_leaves_out_what_has_been_used():
    assert [shard_indices(10, 3, r, start=4) for r in range(3)] == [[4, 7], [5, 8], [6, 9]]
    assert [shard_indices(10, 4, r, start=4) for r in range(4)] == [[4, 8], [5, 9], [6, 0], [7, 1]]
    assert shard_indices(10, 4, 0, start=10) == []
    for start in (-1, 11):
        with pytest.raises(ValueError, match="start must be between 0 and 10"):
            shard_indices(10, 4, 0, start=start)


class Stream(IterableDataset):
    def __iter__(self):
        return iter(range(3))


def test_what_cannot_be_sampled():
    with pytest.raises(TypeError, match="Stream has none"):
        DistributedSampler(Stream(), 2, 0)
    with pytest.raises(RuntimeError, match="give num_replicas= and rank="):
        DistributedSampler(10)
    with pytest.raises(RuntimeError, match="give num_replicas= and rank="):
        EvaluationSampler(10, rank=0)


def test_a_data_set_that_grows_is_noticed():
    data = [1, 2, 3]
    for sampler in (DistributedSampler(data, 2, 0), EvaluationSampler(data, 2, 0)):
        assert len(list(sampler)) == 2
        data.append(4)
        with pytest.raises(RuntimeError, match="now has 4"):
            iter(sampler)
        data.pop()


def from_the_group():
    import torch.distributed as dist

    from dtlearn.data_parallel import DistributedSampler, EvaluationSampler

    pair = dist.new_group([1, 2])
    world, found = DistributedSampler(10), []
    if dist.get_rank() in (1, 2):
        inner = EvaluationSampler(10, group=pair)
        found = [inner.num_replicas, inner.rank]
    else:
        try:
            DistributedSampler(10, group=pair)
        except ValueError as error:
            found = str(error)
    return [world.num_replicas, world.rank], found


def test_size_and_rank_come_from_the_group():
    values = run_ranks(from_the_group, 3).values
    assert [v[0] for v in values] == [[3, 0], [3, 1], [3, 2]]
    assert values[1][1] == [2, 0] and values[2][1] == [2, 1]
    assert isinstance(values[0][1], str)  # not a rank of that group
