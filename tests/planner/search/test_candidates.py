"""What may be asked of a search, and that it asks for all that divides."""

import pytest

from dtlearn.planner import Axes, Constraints, TrainingRun, find_model, parse_cluster, run_faults
from dtlearn.planner.search.candidates import candidates, dividing


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"tp": -1}, "constraints: tp must be a whole number of 0 or more; got -1"),
        ({"pp": 2.0}, "constraints: pp must be a whole number of 0 or more; got 2.0"),
        ({"microbatch": "2"}, "constraints: microbatch must be"),
        ({"virtual_stages": None}, "constraints: virtual_stages must be"),
        ({"recompute": "x"}, "recompute must be one of \"\", none, selective, ops, full; got 'x'"),
        ({"zero_stage": 4}, "zero_stage must be one of 0, 1, 2, 3; got 4"),
        ({"schedule": "x"}, "schedule must be one of naive, gpipe, .*; got 'x'"),
        ({"precision": "x"}, "'x' is none of the conventions"),
    ],
)
def test_what_nothing_knows_cannot_be_asked_for(wrong, says):
    with pytest.raises(ValueError, match=says):
        Constraints(**wrong)


def test_all_that_divide_are_candidates():
    """By trying every pp and every tp of a node, as no shorter way would."""
    base = TrainingRun(find_model("gpt-3"), parse_cluster("64xA100"), Axes(), 96)
    tried = (
        TrainingRun(base.model, base.cluster, Axes(tp, pp, 64 // (tp * pp)), 96, microbatch)
        for tp in range(1, 9)
        for pp in range(1, 65)
        if 64 % (tp * pp) == 0
        for microbatch in (1, 2, 4, 8)
    )
    asked = Constraints(virtual_stages=1)
    assert {run for run in tried if not run_faults(run)} == set(dividing(base, asked))
    stages = {run.zero_stage for run in candidates(base, asked) if run.axes.pp == 1}
    assert stages == {1, 2, 3} and {run.zero_stage for run in candidates(base, asked) if run.axes.pp > 1} == {1, 2}


def test_a_thousand_ranks_have_few_candidates():
    """A search plans each of them: it stays one of a second."""
    for gpus in (1024, 10**7):
        base = TrainingRun(find_model("llama-3-405b"), parse_cluster(f"{gpus}xH100"), Axes(), gpus, length=131072)
        assert 100 < sum(1 for _ in candidates(base, Constraints())) < 20_000
