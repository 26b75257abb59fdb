"""Stages that sleep: the times are kept, the gradients are real, and the record shows the schedule."""

import time

import pytest
import torch

from dtlearn.pipeline_parallel.checking.simulate import StageTimes, simulate
from dtlearn.pipeline_parallel.checking.validate import ScheduleError
from dtlearn.pipeline_parallel.emulated import LABEL, WIDTH, EmulatedStage, emulated_stages, run_emulated
from dtlearn.pipeline_parallel.runner.split_backward import deferred_work
from dtlearn.pipeline_parallel.schedules.make import make_schedule
from dtlearn.pipeline_parallel.text import parse_schedule
from dtlearn.runtime.link.link import Link


def seconds_of(work):
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def test_a_stage_multiplies_and_takes_its_time():
    stage, x = EmulatedStage(0.03, 0.02, 0.05), torch.randn(3, WIDTH, requires_grad=True)
    stage.weight.data = torch.arange(1.0, WIDTH + 1)
    outputs = []
    assert seconds_of(lambda: outputs.append(stage(x))) >= 0.03
    assert torch.equal(outputs[0], x * stage.weight)
    assert seconds_of(lambda: outputs[0].sum().backward()) >= 0.07
    assert torch.equal(x.grad, stage.weight.expand(3, WIDTH)) and torch.allclose(stage.weight.grad, x.detach().sum(0))


def test_each_part_of_the_backward_pass_takes_its_own_time():
    stage, x = EmulatedStage(0.0, 0.02, 0.2), torch.randn(3, WIDTH, requires_grad=True)
    expected, work = x.detach().sum(0), []
    y = stage(x)
    with deferred_work(work):
        assert 0.02 <= seconds_of(lambda: y.sum().backward()) < 0.2
    assert stage.weight.grad is None and x.grad is not None
    assert seconds_of(work.pop()) >= 0.2
    torch.testing.assert_close(stage.weight.grad, expected)
    with deferred_work(work):
        stage(x).sum().backward()
    work.pop()()
    torch.testing.assert_close(stage.weight.grad, 2 * expected)  # added, as autograd does
    y = stage(x)
    assert seconds_of(lambda: torch.autograd.grad(y.sum(), x)) >= 0.02  # autograd alone can leave W out, too


def test_the_first_stage_has_an_i_as_well():
    stage = EmulatedStage(0.0, 0.03, 0.0)
    y = stage(torch.ones(2, WIDTH))
    assert seconds_of(lambda: y.sum().backward()) >= 0.03


def test_times_by_stage_or_one_for_all():
    schedule = make_schedule("1f1b", 2, 2)
    times = StageTimes(forward=(0.1, 0.2), inputs=0.3, weights=(0.4, 0.5))
    assert [emulated_stages(schedule, times, rank)[rank].seconds for rank in (0, 1)] == [
        (0.1, 0.3, 0.4),
        (0.2, 0.3, 0.5),
    ]
    with pytest.raises(ValueError, match="a stage takes 0 s or more"):
        EmulatedStage(0.1, -0.1, 0.1)


@pytest.mark.parametrize("name", ["1f1b", "zbv"])
def test_the_record_shows_the_schedule_and_no_action_is_shorter_than_its_time(name):
    schedule = make_schedule(name, 2, 4)
    times = StageTimes.equal_parts(schedule.num_stages // 2, forward=0.004, inputs=0.004, weights=0.002)
    record = run_emulated(schedule, times, steps=2, link=Link.named("1 Gb/s"))
    assert LABEL in record.label and "emulated link" in record.label
    for rank, order in enumerate(schedule.orders):
        spans = [span for span in record.spans if span.rank == rank and span.phase[0].isdigit()]
        spans.sort(key=lambda span: span.start_ns)
        assert [span.phase for span in spans] == 2 * [str(action) for action in order]
        for span, action in zip(spans, 2 * order, strict=True):
            assert span.end_ns - span.start_ns >= times.of(action) * 1e9
    ends = [span.end_ns for span in record.spans if span.phase == str(schedule.orders[0][-1])]
    begin = min(span.start_ns for span in record.spans)
    assert min(ends) - begin >= simulate(schedule, times).spans[0][-1].end * 1e9  # no step is faster than theory


def test_a_wrong_schedule_is_refused_before_any_rank_starts():
    schedule = parse_schedule("0F0\n1F0 1B0", num_microbatches=1)
    with pytest.raises(ScheduleError, match="0B0"):
        run_emulated(schedule, StageTimes())
