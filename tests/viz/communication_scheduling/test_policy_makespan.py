import pytest

from dtlearn.communication_scheduling.policy import SchedulingPolicy
from dtlearn.communication_scheduling.simulate import LayerTimes
from dtlearn.viz.communication_scheduling.policy_makespan import latency_knee, policy_makespan

TIMES = LayerTimes((2.0, 2.0), (2.0, 2.0), (80, 80))


def seconds(nbytes):
    return 0.25 + nbytes / 40


def curves(fig):
    (ax,) = fig.axes
    return {line.get_label(): dict(zip(*map(list, line.get_data()), strict=True)) for line in ax.lines}


def test_the_simulator_draws_the_curve_beside_fifo_with_a_barrier():
    fig = policy_makespan(TIMES, seconds, SchedulingPolicy(credit_bytes=1), [40, 80], {40: 9.0}, measured_ddp=10.0)
    found = curves(fig)
    # FIFO: backward ends at 4, the transfers at 2 + 2 x 2.25 = 6.5; forward takes 4 more.
    assert found["FIFO, forward waits for all"] == {40: 10.5, 80: 10.5}
    # Halves take 1.25: layer 1's leave at 2 and 3.25, then layer 0's until 7; forward follows until 11.
    assert found["priority"] == {40: 11.0, 80: 10.5}
    assert {40: 9.0} in found.values() and {80: 10.0} in found.values()
    assert [text.get_text() for text in fig.axes[0].texts if "best" in text.get_text()] == ["best: 80 bytes, 10.5 s"]


def test_the_policys_own_size_is_marked():
    fig = policy_makespan(TIMES, seconds, SchedulingPolicy(partition_bytes=20), [40, 80])
    # 8 transfers of 0.75 from 2 on; all that is ready leaves at once, so layer 0 comes after layer 1.
    assert curves(fig)["priority, no limit in flight"][20] == 12.0
    assert "20 bytes, 12 s" in [text.get_text() for text in fig.axes[0].texts]


def test_below_the_knee_most_of_a_call_is_latency():
    assert latency_knee(seconds) == pytest.approx(10)
    assert seconds(latency_knee(seconds)) == pytest.approx(2 * seconds(0))


def test_without_sizes_there_is_no_curve():
    with pytest.raises(ValueError, match="sizes of partitions are needed"):
        policy_makespan(TIMES, seconds, SchedulingPolicy(), [])
