"""Planned equals found, on real ranks: memory by category and bytes by axis, of every rank."""

from dataclasses import replace

import pytest

from dtlearn.hybrid_parallel import MeshLayout
from dtlearn.hybrid_parallel.against_plan import SmallRun, compare_with_plan, comparison_table
from dtlearn.models import GPTConfig

TINY = GPTConfig(vocab_size=13, context_length=8, num_layers=4, num_heads=4, hidden_size=16)
TIED = replace(TINY, tie_embeddings=True)
RUNS = [
    SmallRun(TINY, MeshLayout(tp=4), sequence_parallel=False),
    SmallRun(TIED, MeshLayout(pp=2), num_microbatches=4, schedule="gpipe"),
    SmallRun(TINY, MeshLayout(pp=2), num_microbatches=4, schedule="interleaved", chunks=2),
    SmallRun(TINY, MeshLayout(tp=2, dp=2), zero=2),
    SmallRun(TINY, MeshLayout(pp=2, dp=2), zero=3, num_microbatches=2),
    SmallRun(TIED, MeshLayout(tp=2, pp=2, dp=2), zero=1, num_microbatches=2),
]


@pytest.mark.parametrize("run", RUNS, ids=str)
def test_every_rank_is_as_planned(run):
    comparison = compare_with_plan(run)
    assert not comparison.unequal
    assert len(comparison.found) == run.layout.world_size
    assert all(min(figures.memory.values()) > 0 for figures in comparison.found)
    # The planner's own rows are those of the fullest rank, but for what is small in a large model.
    for name, nbytes in comparison.planner_rows.items():
        assert 0.8 < nbytes / max(figures.memory[name] for figures in comparison.found) <= 1
    if run.zero == 1:  # beside the whole gradients the shards of their mean, until the optimizer is done
        found, most = comparison.found[0].memory["gradients"], comparison.gradients_while_stepping[0]
        assert most == pytest.approx(1.5 * found, rel=0.01)


def test_a_difference_is_found_and_shown():
    comparison = compare_with_plan(SmallRun(TINY, MeshLayout()))
    wrong = replace(comparison, planned=(comparison.planned[0]._replace(sent={"tp": 8.0, "pp": 0.0, "dp": 0.0}),))
    assert not comparison.unequal
    assert wrong.unequal == ["rank 0, tp: planned 8, found 0 bytes"]
    lines = comparison_table(wrong).splitlines()
    assert len(lines) == 1 + 7 and sum(line.endswith("not equal") for line in lines) == 1
    assert lines[1].split() == ["0", "tp0", "pp0", "dp0", "parameters", *2 * [f"{4 * TINY.num_parameters:,}"], "equal"]
    assert len(comparison_table(wrong, []).splitlines()) == 1
