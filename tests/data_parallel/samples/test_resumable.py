"""Stop in the middle of an epoch and go on with any number of ranks: each sample once, plus padding."""

import itertools
import json
from collections import Counter

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from dtlearn.data_parallel import DistributedSampler, ResumableSampler, epoch_order


def ranks(n, size, **how):
    return [ResumableSampler(n, size, r, **how) for r in range(size)]


def train(samplers, batch, steps=None):
    """Train that many steps (None: to the end of the epoch) on all ranks; return each rank's samples."""
    seen = [[] for _ in samplers]
    iterators = [iter(s) for s in samplers]
    for step in itertools.count():
        if step == steps:
            break
        batches = [list(itertools.islice(i, batch)) for i in iterators]
        assert len(set(map(len, batches))) == 1, "ranks in data parallelism step together"
        if not batches[0]:
            break
        for sampler, mine, samples in zip(samplers, seen, batches, strict=True):
            mine += samples
            sampler.advance(len(samples))
    return seen


def resume(samplers, size, **how):
    """Fresh samplers with the state of the old ones, which went through JSON and is the same on all ranks."""
    states = [json.dumps(s.state_dict()) for s in samplers]
    assert len(set(states)) == 1
    fresh = ranks(samplers[0].n, size, **how)
    for sampler in fresh:
        sampler.load_state_dict(json.loads(states[0]))
    return fresh


def flat(seen):
    return list(itertools.chain(*seen))


@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("new_size", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("drop_last", [False, True])
def test_the_epoch_is_each_sample_once(size, new_size, drop_last):
    how = {"seed": 3, "drop_last": drop_last}
    for n, batch, steps in itertools.product((1, 10, 41, 60), (1, 4), (0, 1, 2, 5, 100)):
        old = ranks(n, size, **how)
        for sampler in old:
            sampler.set_epoch(2)
        seen = flat(train(old, batch, steps))
        fresh = resume(old, new_size, drop_last=drop_last)
        for sampler in fresh:
            sampler.set_epoch(2)  # the loop says so again, and the place is kept
        rest = flat(train(fresh, batch))
        counts = Counter(seen + rest)
        if drop_last:
            assert set(counts.values()) <= {1} and n - len(counts) < new_size
        else:
            assert set(counts) == set(range(n))
            extra = sum(counts.values()) - n
            assert 0 <= extra < max(size, new_size)
            order = epoch_order(n, shuffle=True, seed=3, epoch=2)
            assert counts - Counter(range(n)) == Counter(order[i % n] for i in range(extra))


@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("drop_last", [False, True])
def test_the_same_number_of_ranks_sees_what_it_would_have_seen(size, drop_last):
    for n, steps in itertools.product((3, 29, 30), (0, 1, 2, 100)):
        plain = [list(DistributedSampler(n, size, r, drop_last=drop_last)) for r in range(size)]
        old = ranks(n, size, drop_last=drop_last)
        before = train(old, 4, steps)
        after = train(resume(old, size, drop_last=drop_last), 4)
        assert [a + b for a, b in zip(before, after, strict=True)] == plain


def test_stopped_twice():
    first = ranks(100, 4)
    seen = flat(train(first, 3, steps=2))  # 24
    second = resume(first, 3)
    seen += flat(train(second, 5, steps=3))  # 45, on other ranks and with other batches
    assert second[0].consumed == 69
    third = resume(second, 2)
    assert [len(s) for s in third] == [16, 16]
    seen += flat(train(third, 4))
    assert set(seen) == set(range(100)) and len(seen) == 101


def test_the_next_epoch_is_whole_again():
    old = ranks(20, 2)
    train(old, 5, steps=1)
    fresh = resume(old, 4)
    train(fresh, 5)
    for sampler in fresh:
        sampler.set_epoch(1)
    plain = [DistributedSampler(20, 4, r) for r in range(4)]
    for sampler in plain:
        sampler.set_epoch(1)
    assert train(fresh, 5) == [list(s) for s in plain]


def test_seed_and_shuffle_come_from_the_state():
    (old,) = ranks(20, 1, seed=9, shuffle=False)
    old.advance(5)
    (fresh,) = resume([old], 1, seed=1)
    assert list(fresh) == list(range(5, 20))


def test_skipping_batches_rank_by_rank_is_wrong_on_other_ranks():
    """The tempting way to resume: each rank skips as many of its batches as were trained. Right for the same N only."""
    shards = {size: [list(DistributedSampler(24, size, r)) for r in range(size)] for size in (2, 4)}
    used = [index for shard in shards[2] for index in shard[:6]]
    for size, right in ((2, True), (4, False)):
        rest = [index for shard in shards[size] for index in shard[6:]]
        assert (sorted(used + rest) == list(range(24))) is right
        old = ranks(24, 2)
        assert sorted(flat(train(old, 3, steps=2)) + flat(train(resume(old, size), 3))) == list(range(24))


class Counting(DistributedSampler):
    """The tempting way: count in __iter__."""

    count = 0

    def __iter__(self):
        for index in super().__iter__():
            self.count += 1
            yield index


# From Python 3.12 on, a fork beside torch's threads warns.
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_counting_in_iter_would_count_what_workers_prefetch():
    dataset = TensorDataset(torch.arange(80))
    counting, ours = Counting(dataset, 1, 0), ResumableSampler(dataset, 1, 0)
    for sampler, place in ((counting, lambda: counting.count), (ours, lambda: ours.consumed)):
        loader = DataLoader(dataset, batch_size=4, sampler=sampler, num_workers=2)
        for (batch,) in loader:
            if sampler is ours:
                ours.advance(len(batch))
            break
        # One batch used: the workers have 2 x 2 batches ahead (prefetch_factor 2), and one more for the one we took.
        assert place() == (4 if sampler is ours else 20)


def test_iterating_again_goes_on_where_training_is():
    (sampler,) = ranks(10, 1, shuffle=False)
    sampler.advance(4)
    assert len(sampler) == 6 and list(sampler) == list(range(4, 10))


def test_a_used_up_epoch_is_said():
    (sampler,) = ranks(10, 1)
    sampler.advance(10)
    with pytest.raises(RuntimeError, match=r"set_epoch\(1\)"):
        iter(sampler)
    (loaded,) = resume([sampler], 1)
    assert list(loaded) == []  # saved after the last step: nothing is left, and the loop goes on to the next epoch
    loaded.set_epoch(1)
    assert len(list(loaded)) == 10


def test_a_resumed_epoch_that_is_trained_to_its_end_is_used_up_too():
    (old,) = ranks(10, 1)
    old.advance(4)
    fresh = resume([old], 1)
    train(fresh, 2)
    with pytest.raises(RuntimeError, match="used up"):
        iter(fresh[0])


def test_advance_that_was_forgotten_is_said():
    (sampler,) = ranks(10, 1)
    list(sampler)
    with pytest.raises(RuntimeError, match="never called"):
        sampler.set_epoch(1)


def test_an_epoch_without_samples_is_no_mistake():
    for n, drop_last in ((0, False), (3, True)):
        sampler = ResumableSampler(n, 4, 0, drop_last=drop_last)
        for epoch in range(3):
            sampler.set_epoch(epoch)
            assert list(sampler) == []


@pytest.mark.parametrize("number", [-1, 6])
def test_advance_by_what_is_not_there(number):
    sampler = ResumableSampler(10, 2, 0)
    with pytest.raises(ValueError, match="5 samples left in epoch 0"):
        sampler.advance(number)


def test_states_that_do_not_fit():
    sampler = ResumableSampler(10, 2, 0)
    state = sampler.state_dict()
    with pytest.raises(ValueError, match="lacks consumed"):
        sampler.load_state_dict({k: v for k, v in state.items() if k != "consumed"})
    with pytest.raises(ValueError, match="11 samples, this one has 10"):
        sampler.load_state_dict(state | {"n": 11})
    with pytest.raises(ValueError, match="between 0 and 10"):
        sampler.load_state_dict(state | {"consumed": 12})
