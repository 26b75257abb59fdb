"""One run, as the recipe and as the planner take it."""

import pytest

from dtlearn.hybrid_parallel import MeshLayout
from dtlearn.hybrid_parallel.against_plan import SmallRun
from dtlearn.models import GPTConfig
from dtlearn.planner.run import run_faults

TINY = GPTConfig(vocab_size=13, context_length=8, num_layers=4, num_heads=4, hidden_size=16)


def test_the_planner_sees_the_same_run():
    run = SmallRun(TINY, MeshLayout(tp=2, pp=2, dp=2), zero=1, num_microbatches=2)
    plan = run.training_run()
    assert not run_faults(plan)
    assert (plan.axes.world, plan.num_microbatches, plan.microbatch, plan.length) == (8, 2, 2, 8)
    assert (plan.element_bytes, plan.zero_stage, plan.recompute) == (4, 1, "none")
    assert plan.model.num_parameters == TINY.num_parameters
    assert str(run) == "tp2 pp2 dp2, 1f1b, ZeRO 1, m = 2"


def test_all_rows_are_there_and_the_same_every_time():
    tokens, targets = SmallRun(TINY, MeshLayout()).batch()
    assert tokens.shape == targets.shape == (8, 8)
    assert tokens.equal(SmallRun(TINY, MeshLayout(tp=2)).batch()[0])
    assert tokens[:, 1:].equal(targets[:, :-1])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"layout": MeshLayout(tp=3)}, "tp=3 does not divide 4 heads"),
        ({"layout": MeshLayout(dp=3)}, "a global batch of 8 rows"),
        ({"schedule": "zbv", "layout": MeshLayout(pp=2), "num_microbatches": 4}, "zbv splits its backward passes"),
        ({"config": GPTConfig(dropout=0.1)}, "take dropout=0.0"),
        ({"layout": MeshLayout(cp=2)}, "cp=2, ep=1: only tp, pp and dp are planned to the byte; take cp=1 and ep=1"),
        ({"layout": MeshLayout(ep=2)}, "cp=1, ep=2: only tp, pp and dp"),
        ({"zero": 4}, "zero is 0, 1, 2 or 3; got 4"),
        ({"zero": True}, "got True"),
        ({"global_batch": 0}, "global_batch is a whole number of 1 or more; got 0"),
    ],
)
def test_what_cannot_be_planned_to_the_byte_is_refused(options, words):
    with pytest.raises(ValueError, match=words):
        SmallRun(**{"config": TINY, "layout": MeshLayout()} | options)
