"""The plan of one rank, by hand and beside the planner's own functions; real runs are in `test_compare`."""

import pytest

from dtlearn.hybrid_parallel import MeshLayout, step_bytes
from dtlearn.hybrid_parallel.against_plan import SmallRun, planned_bytes, planned_rank
from dtlearn.hybrid_parallel.against_plan.planned_rank import stage_activations, stage_inputs
from dtlearn.models import GPTConfig
from dtlearn.planner import bytes_by_axis
from dtlearn.planner.memory import block_bytes

TINY = GPTConfig(vocab_size=16, context_length=8, num_layers=8, num_heads=4, hidden_size=16)
RUNS = [
    SmallRun(TINY, MeshLayout(tp=2, pp=4), num_microbatches=4),
    SmallRun(TINY, MeshLayout(pp=2, dp=2), zero=3, num_microbatches=2),
    SmallRun(TINY, MeshLayout(pp=4, tp=2), num_microbatches=8, sequence_parallel=False),
    SmallRun(TINY, MeshLayout(pp=2), num_microbatches=4, schedule="interleaved", chunks=2),
    SmallRun(TINY, MeshLayout(tp=4, dp=2), zero=2),
]


@pytest.mark.parametrize("run", RUNS, ids=str)
def test_bytes_by_part_add_up_to_the_formula_of_the_recipe(run):
    """`test_traffic` holds that formula to the record."""
    for rank in range(run.layout.world_size):
        by_formula = step_bytes(
            run.config, run.layout, run.made_schedule, run.boundaries, rank, global_batch=run.global_batch,
            length=run.config.context_length, zero=run.zero, sequence_parallel=run.sequence_parallel,
        )  # fmt: skip
        assert planned_rank(run, rank).sent == pytest.approx(by_formula)


def test_the_first_part_is_the_planners_own_figure():
    """The rank is in an inner stage; the figure is 9 of 10 bytes along tp, and all but a few along pp."""
    run = RUNS[0]
    of_planner, parts = bytes_by_axis(run.training_run()), planned_bytes(run, 2)
    assert parts["tp"]["blocks"] == of_planner["tp"] > 0.9 * sum(parts["tp"].values())
    assert parts["pp"]["outputs and their gradients"] == of_planner["pp"]
    assert sum(parts["pp"].values()) - of_planner["pp"] == 12 * 1.5  # norm and loss, an all-reduce of 4 ranks
    assert parts["tp"]["embedding and head"] == parts["tp"]["loss"] == 0


def test_live_microbatches_by_hand():
    """1F1B on 4 stages: 4, 3, 2, 1 alive, and on all but the first stage one input that has come and waits."""
    run = SmallRun(TINY, MeshLayout(pp=4), num_microbatches=8)
    block = block_bytes(run.training_run()).whole
    assert stage_activations(run, 1) == 2 * block  # 8 layers on 4 ranks
    assert stage_inputs(run) == 4 * 8 * 16
    activations = [planned_rank(run, rank).memory["activations"] for rank in range(4)]
    live = [nbytes / stage_activations(run, rank) for rank, nbytes in enumerate(activations)]
    assert live[0] == 4
    waiting = [activations[rank] - (4 - rank) * stage_activations(run, rank) for rank in range(4)]
    assert waiting[1:] == [stage_inputs(run)] * 3


@pytest.mark.parametrize(
    ("zero", "state"), [(0, (1, 1, 1)), (1, (1, 1, 0.5)), (2, (1, 0.5, 0.5)), (3, (0.5, 0.5, 0.5))]
)
def test_zero_divides_its_parts_only(zero, state):
    whole = planned_rank(SmallRun(TINY, MeshLayout(dp=2)), 0).memory
    found = planned_rank(SmallRun(TINY, MeshLayout(dp=2), zero=zero), 0).memory
    for name, share in zip(("parameters", "gradients", "optimizer state"), state, strict=True):
        assert found[name] / whole[name] == pytest.approx(share, rel=0.01)
