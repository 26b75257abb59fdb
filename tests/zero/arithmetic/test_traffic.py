"""The formula, by hand and call by call of the record on real ranks."""

from collections import Counter

import pytest

from dtlearn.runtime.run import run_ranks
from dtlearn.zero import num_messages, plan_flat, sent_bytes, step_traffic
from tests.zero.arithmetic.runs import STAGES, a_step, calls_between_barriers, sharded, trained_in

# Stage, backward passes, and whether all but the last are in no_sync().
STEPS = [(stage, 1, False) for stage in STAGES]
STEPS += [(stage, 3, no_sync) for stage in ("0", "2", "3", "3, kept") for no_sync in (False, True)]
STEPS += [("1, local", 3, False), ("1, averaged", 3, True)]


def all_steps():
    partitions = []
    for stage, accumulation, no_sync in STEPS:
        model, optimizer, partition, _ = sharded(stage)
        a_step(model, optimizer, accumulation, no_sync)
        partitions.append(partition)
    return partitions


def test_the_record_has_the_same_calls():
    result = run_ranks(all_steps, 3, device="cpu", record=True)
    for rank in range(3):
        recorded = calls_between_barriers(result.record, rank)
        for step, partition, calls in zip(STEPS, result[rank], recorded, strict=True):
            stage, accumulation, no_sync = step
            formula = step_traffic(
                partition,
                int(stage[0]),
                gradients="averaged" if "averaged" in stage else "local",
                accumulation=accumulation,
                no_sync=no_sync,
                kept=range(len(partition.buckets)) if "kept" in stage else (),
                trained=trained_in(stage, partition),
            )
            expected = Counter()
            for call in formula:
                expected[call.op, call.nbytes, call.num_ranks] += call.times
            if "averaged" in stage:  # DDP's buckets are its own: the bytes count
                of_ddp = [c for c in calls if c[0] == "all_reduce"]
                ours = [c for c in formula if c.op == "all_reduce"]
                assert sum(nbytes for _, nbytes, _ in of_ddp) == sum(c.nbytes * c.times for c in ours)
                calls = [c for c in calls if c[0] != "all_reduce"]
                expected = Counter({key: times for key, times in expected.items() if key[0] != "all_reduce"})
            assert Counter(calls) == expected, step


def test_two_two_two_three():
    size, n = 4000, 8
    partition = plan_flat([size], n)
    unit = 4 * size * (n - 1) / n
    assert [sent_bytes(step_traffic(partition, stage)) / unit for stage in range(4)] == [2, 2, 2, 3]
    assert sent_bytes(step_traffic(partition, 1, gradients="averaged")) == 3 * unit
    assert sent_bytes(step_traffic(partition, 3, kept=[0])) == 2 * unit
    assert [num_messages(step_traffic(partition, stage)) for stage in range(4)] == [14, 14, 14, 21]


def test_accumulation():
    partition = plan_flat([40], 4)
    unit = 4 * 40 * 3 / 4

    def sent(stage, **options):
        return sent_bytes(step_traffic(partition, stage, accumulation=5, **options)) / unit

    assert [sent(stage, no_sync=False) for stage in range(4)] == [10, 2, 6, 15]
    assert [sent(stage) for stage in range(4)] == [2, 2, 2, 11]
    assert sent(3, kept=[0], no_sync=False) == 10 and sent(3, kept=[0]) == 6


def test_hybrid_sharding_averages_the_shards_over_the_replicas():
    partition = plan_flat([40], 4)
    calls = step_traffic(partition, 3, replicas=2, element_bytes=2)
    assert [(c.op, c.nbytes, c.num_ranks, c.times) for c in calls] == [
        ("all_gather", 80, 4, 1),
        ("all_gather", 80, 4, 1),
        ("reduce_scatter", 80, 4, 1),
        ("all_reduce", 20, 2, 1),
    ]
    assert sent_bytes(calls) == 3 * 80 * 3 / 4 + 2 * 20 / 2
    assert sent_bytes(step_traffic(partition, 2, replicas=2)) == 2 * 160 * 3 / 4 + 40


def test_frozen_parameters_are_gathered_and_not_reduced():
    partition = plan_flat([8, 4], 2, kinds=["frozen", "trained"])
    calls = {stage: Counter(c.op for c in step_traffic(partition, stage, trained=[1])) for stage in range(4)}
    assert calls[0] == {"all_reduce": 1} and calls[1] == calls[2] == {"reduce_scatter": 1, "all_gather": 1}
    assert calls[3] == {"all_gather": 4, "reduce_scatter": 1}


@pytest.mark.parametrize("options", [{"stage": 5}, {"stage": 1, "accumulation": 0}, {"stage": 1, "replicas": 0}])
def test_bad_input(options):
    with pytest.raises(ValueError, match="expected a stage from 0 to 3, and 1 backward pass and 1 replica or more"):
        step_traffic(plan_flat([4], 2), **options)
