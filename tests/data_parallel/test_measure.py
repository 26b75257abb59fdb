"""Times on ranks: what is measured, not how long it takes."""

import pytest
import torch

from dtlearn.data_parallel.measure import (
    KINDS,
    Workload,
    added,
    batch_for,
    fastest,
    record_on_rank,
    samples_in,
    time_on_rank,
    wrap,
)
from dtlearn.models.mlp import MLP
from dtlearn.models.reference import num_parameters
from dtlearn.runtime.link.link import Link
from dtlearn.runtime.record.event import Span
from dtlearn.runtime.record.record import merge
from dtlearn.runtime.record.training_steps import arrival, recorded_steps
from dtlearn.runtime.run import run_ranks

SMALL = Workload((64, 64, 64), batch=8, bucket_cap_mb=0.01)


def test_the_default_has_ten_million_parameters():
    work = Workload()
    assert work.num_parameters >= 10_000_000 and work.nbytes == 4 * work.num_parameters
    assert Workload((3, 4, 2)).num_parameters == num_parameters(MLP((3, 4, 2)))


def test_every_kind_is_timed_in_every_round():
    told = run_ranks(time_on_rank, 2, SMALL, 3, device="cpu").values
    assert all(set(times) == set(KINDS) for times in told)
    assert all(len(seconds) == 3 and min(seconds) > 0 for times in told for seconds in times.values())


def test_all_kinds_but_local_average():
    def work():
        import torch.distributed as dist

        found = {}
        for kind in KINDS:
            torch.manual_seed(0)
            model = wrap(MLP((4, 3)), kind)
            model(torch.full((1, 4), 1.0 + dist.get_rank())).sum().backward()
            found[kind] = next(p.grad for p in model.parameters() if p.dim() == 2)[0, 0].item()
        return found

    assert run_ranks(work, 2, device="cpu").values == [
        {"local": 1.0, "naive": 1.5, "ours": 1.5, "torch's": 1.5},
        {"local": 2.0, "naive": 1.5, "ours": 1.5, "torch's": 1.5},
    ]
    with pytest.raises(ValueError, match="kind must be one of local, naive, ours, torch's; got 'theirs'"):
        wrap(MLP((4, 3)), "theirs")


def test_a_recorded_step_of_each_kind():
    record = run_ranks(record_on_rank, 2, SMALL, link=Link.named("1 Gb/s"), device="cpu", record=True).record
    calls = {}
    for kind in KINDS[1:]:
        for rank in range(2):
            (step,) = recorded_steps(fastest(record, kind), rank)
            assert [s.phase for s in step.spans] == ["forward", "backward", "step"]
            calls[kind] = [event.nbytes for event in step.buckets]
            assert 0 < step.exposed_seconds < step.seconds
            if kind == "naive":
                assert step.exposed_seconds == pytest.approx(sum(e.seconds for e in step.events))
            else:
                assert all(e.start_ns < arrival(e) <= e.end_ns for e in step.buckets)
    layer = 4 * (64 * 64 + 64)
    assert calls["naive"] == [4 * 64 * 64, 4 * 64] * 2
    assert calls["ours"] == calls["torch's"] == [layer, layer]


def test_of_several_rounds_the_fastest_is_taken():
    spans = [
        Span(r, "forward", n * 100 + 1, n * 100 + 1 + t) for r in (0, 1) for n, t in enumerate((30, 10 + 5 * r, 20))
    ]
    spans += [Span(r, f"ours, round {n}", n * 100, n * 100 + 50) for r in (0, 1) for n in range(3)]
    record = merge(2, [[], []], "", spans)
    assert [(s.rank, s.start_ns, s.end_ns) for s in fastest(record, "ours").spans] == [(0, 101, 111), (1, 101, 116)]
    with pytest.raises(ValueError, match="no step of the kind 'naive'"):
        fastest(record, "naive")


def test_all_ranks_choose_the_same_batch():
    result = run_ranks(batch_for, 2, SMALL, 1e-3, device="cpu", record=True)
    one, other = result.values
    assert one == other and one % 16 == 0 and 16 <= one <= 4096
    counts = {op: count for (rank, op), count in result.record.counts().items() if rank == 0}
    assert counts == {"barrier": 16, "all_reduce": 1}  # both batches, eight times each


@pytest.mark.parametrize(
    ("small", "large", "samples"),
    [
        (32.0, 128.0, 512),  # a second each, and nothing else
        (62.0, 158.0, 482),  # and 30 seconds of its own
        (128.0, 128.0, 128 + 384 / 0.5),  # nothing for a sample: half of it, at least
        (200.0, 128.0, 128 + 384 / 0.5),
        (1.0, 128.0, 512),  # more than everything: no more than that
    ],
)
def test_the_samples_that_take_so_long(small, large, samples):
    assert samples_in(512.0, small, large) == pytest.approx(samples)


def test_what_a_kind_adds_is_to_a_local_step_of_the_same_round():
    assert added({"local": (2.0, 2.0), "ours": (3.0, 5.0)}, "ours") == 2.0
