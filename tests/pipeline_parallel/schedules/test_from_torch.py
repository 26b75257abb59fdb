"""torch.distributed.pipelining as the reference of our generators: the same actions in the same order on every rank."""

import pytest
import torch.distributed.pipelining as pipelining

from dtlearn.pipeline_parallel import make_schedule, torch_schedule, validate
from dtlearn.pipeline_parallel.schedules.from_torch import TORCH_SCHEDULES

# torch's, ours, stages on each rank, fewest micro-batches (torch refuses 1F1B with fewer than ranks; ours has them).
SAME = [
    ("GPipe", "gpipe", 1, lambda p: 1),
    ("1F1B", "1f1b", 1, lambda p: p),
    ("InterleavedZeroBubble", "zb_h1", 1, lambda p: 1),
    ("ZBVZeroBubble", "zbv", 2, lambda p: 1),
]


@pytest.mark.parametrize(("theirs", "ours", "chunks", "fewest"), SAME, ids=[case[0] for case in SAME])
@pytest.mark.parametrize("num_ranks", range(2, 9))
def test_our_orders_are_torch_s(theirs, ours, chunks, fewest, num_ranks):
    p = num_ranks
    for m in {max(fewest(p), number) for number in (1, 2, p - 1, p, p + 1, 2 * p - 1, 2 * p, 3 * p + 1)}:
        try:
            expected = torch_schedule(theirs, p, m, chunks)
        except ValueError:
            # Its zero bubble comes from interleaving, and asks for groups of micro-batches; ours needs none.
            assert theirs == "InterleavedZeroBubble" and m % max(1, m // p)
            continue
        ours_now = make_schedule(ours, p, m)
        assert ours_now.orders == expected.orders and ours_now.placement == expected.placement


@pytest.mark.parametrize("num_ranks", range(2, 9))
@pytest.mark.parametrize("chunks", [1, 2, 3, 4])
def test_our_interleaving_is_torch_s(num_ranks, chunks):
    for m in (num_ranks, 2 * num_ranks, 3 * num_ranks):
        expected, ours = (
            torch_schedule("Interleaved1F1B", num_ranks, m, chunks),
            make_schedule("interleaved", num_ranks, m, chunks),
        )
        assert ours.orders == expected.orders and ours.placement == expected.placement


@pytest.mark.parametrize("name", TORCH_SCHEDULES)
def test_all_of_torch_s_schedules_are_right(name):
    for num_ranks, num_microbatches in ((1, 2), (2, 4), (4, 8)):
        schedule = torch_schedule(name, num_ranks, num_microbatches)
        assert validate(schedule) == [] and schedule.name == f"torch {name}"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("gpipe", 2, 2), "expected one of GPipe, 1F1B.*got 'gpipe'"),
        (("GPipe", 2, 2, 2), "chunks=1; got 2, 2 and 2"),
        (("Interleaved1F1B", 0, 2), "chunks=any; got 0, 2 and 2"),
        (("1F1B", 4, 2), r"Number of microbatches \(2\) must be greater"),
    ],
)
def test_what_torch_does_not_have_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        torch_schedule(*arguments)


def test_another_torch_is_told(monkeypatch):
    """As if the attribute had another name there, and as if a constructor took something else."""
    plain = pipelining.ScheduleInterleaved1F1B
    monkeypatch.setattr(pipelining, "ScheduleInterleaved1F1B", lambda *args: [vars(plain(*args)).pop("pipeline_order")])
    monkeypatch.setattr(pipelining, "ScheduleGPipe", lambda: None)
    for name in ("Interleaved1F1B", "GPipe"):
        with pytest.raises(RuntimeError, match=f"does not keep {name}'s order where"):
            torch_schedule(name, 2, 2)
