from dtlearn.mixed_precision.timing import (
    REDUCTIONS,
    STEPS,
    MixedPrecisionWorkload,
    time_reductions_on_rank,
    time_steps_on_rank,
)
from dtlearn.models import GPTConfig
from dtlearn.runtime.run import run_ranks

SMALL = MixedPrecisionWorkload(GPTConfig(16, 8, 1, 2, 16), batch=2)


def both():
    return time_steps_on_rank(SMALL, 2), time_reductions_on_rank(100, 2)


def test_every_way_is_timed_in_every_round_and_sends_its_bytes():
    run = run_ranks(both, 2, device="cpu", record=True)
    for steps, reductions in run:
        assert set(steps) == set(STEPS) and set(reductions) == set(REDUCTIONS)
        assert all(len(seconds) == 2 and min(seconds) > 0 for seconds in (*steps.values(), *reductions.values()))
    sent = [e.nbytes for e in run.record.select(rank=0) if e.op == "all_reduce"]
    assert sorted(sent) == [200] * 8 + [400] * 4  # two warm rounds and two more; the steps send nothing


def test_the_models_size():
    assert MixedPrecisionWorkload().config.num_parameters == 3_241_472
