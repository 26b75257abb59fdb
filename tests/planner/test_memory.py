"""Memory against printed formulae, measured runs, and the schedules themselves."""

from dataclasses import replace

import pytest

from dtlearn.memory.arithmetic.fits import what_fits
from dtlearn.memory.arithmetic.published import GPUS, ModelSizes, sizes_of
from dtlearn.models import GPTConfig
from dtlearn.pipeline_parallel.checking.simulate import simulate
from dtlearn.pipeline_parallel.schedules.make import make_schedule
from dtlearn.planner import Axes, TrainingRun, find_model, parse_cluster, planned_memory
from dtlearn.planner.memory import FRAGMENTATION, FRAMEWORK, block_bytes, live_microbatches
from dtlearn.tensor_parallel.arithmetic.activations import gpt_block, table_bytes


def block(**changes):
    """The bytes of a block of the 22B model of Korthikanti et al.: b 4, s 2048, h 6144, a 64, on tp 8."""
    cluster = parse_cluster("8xA100")
    run = TrainingRun(
        ModelSizes("", 48, 6144, 64, 51200, 2048), cluster, Axes(8), 4, microbatch=4, recompute="none",
        sequence_parallel=False, fused_attention=False,
    )  # fmt: skip
    return block_bytes(replace(run, **changes))


def test_the_rows_add_up_to_the_papers_table():
    """Table 2 of arXiv:2205.05198, in units of sbh; it leaves out the statistics of the norms, a thousandth."""
    sbh, scores = 2048 * 4 * 6144, 5 * 64 * 2048 / 6144
    assert block().whole == pytest.approx(sbh * (10 + 24 / 8 + scores / 8), rel=0.001)
    assert block(sequence_parallel=True).whole == pytest.approx(sbh * (34 + scores) / 8, rel=0.001)
    assert block(sequence_parallel=True, recompute="selective").held == pytest.approx(sbh * 34 / 8, rel=0.001)
    assert block(recompute="full").held == 2 * sbh
    assert block(axes=Axes(1)).whole == pytest.approx(sbh * (34 + scores), rel=0.001)


@pytest.mark.parametrize(
    ("hidden", "layers", "pp", "dp", "microbatch", "printed"),
    [  # BigScience, tr11, chronicles-prequel: memory of the fullest nodes, 384 A100
        (13824, 84, 6, 8, 4, 56),
        (13824, 84, 12, 4, 4, 52),
        (14336, 72, 6, 8, 4, 56),
        (14336, 72, 12, 4, 2, 37),
    ],
)
def test_measured_memory_is_met(hidden, layers, pp, dp, microbatch, printed):
    run = TrainingRun(
        ModelSizes("", layers, hidden, 108 if hidden == 13824 else 112, 250000, 2048), parse_cluster("384xA100"),
        Axes(8, pp, dp), 2048, microbatch=microbatch, recompute="full", sequence_parallel=False, fused_attention=False,
    )  # fmt: skip
    assert planned_memory(run).total / 1e9 == pytest.approx(printed, rel=0.12)


def test_one_gpu_has_the_state_that_the_memory_chapter_says():
    model = find_model("GPT-2 1.5B")
    run = TrainingRun(model, parse_cluster("1xA100"), Axes(), 1, length=1024, precision="mixed 16")
    ours, theirs = planned_memory(run).rows, what_fits(model, GPUS["A100 80GB"], 1).rows
    for name in ("parameters", "gradients", "optimizer state"):
        assert ours[name] == pytest.approx(theirs[name], rel=0.002)


@pytest.mark.parametrize("name", ["gpipe", "1f1b", "interleaved", "zb_h1", "zbv"])
@pytest.mark.parametrize(("p", "m"), [(4, 8), (4, 4), (2, 8), (4, 2)])
def test_live_microbatches_are_those_of_the_schedule(gpt3, name, p, m):
    if name == "interleaved" and m % p:
        pytest.skip("its micro-batches go in groups of p")
    chunks = 2 if name in ("interleaved", "zbv") else 1
    timeline = simulate(make_schedule(name, p, m, chunks if chunks > 1 else None))
    axes = Axes(1, p, 1, virtual_stages=chunks if name == "interleaved" else 1)
    run = replace(gpt3, axes=axes, batch=m, schedule=name)
    assert live_microbatches(run) == pytest.approx(max(timeline.peak_live) / chunks)


def test_zero_divides_over_dp_and_cp(gpt3):
    """All ranks that hold a copy of a parameter share its state: also those that have other tokens of the same rows."""
    layouts = (Axes(8, 2, 4, 1), Axes(8, 2, 2, 2), Axes(8, 2, 1, 4))
    states = [planned_memory(replace(gpt3, axes=axes)).rows["optimizer state"] for axes in layouts]
    assert states[0] == states[1] == states[2]
    one = replace(gpt3, axes=Axes(8, 2, 1), cluster=replace(gpt3.cluster, size=16))
    undivided = planned_memory(one).rows["optimizer state"]
    assert states[0] == pytest.approx(undivided / 4, rel=0.01)


def test_what_saves_memory_saves_memory(gpt3):
    def total(**changes):
        return planned_memory(replace(gpt3, **changes)).total

    two = Axes(8, 4, 2)
    stages = [total(axes=two, zero_stage=stage) for stage in range(3)]
    assert stages == sorted(stages, reverse=True) and len(set(stages)) == 3
    ways = [total(recompute=way, fused_attention=False) for way in ("full", "selective", "none")]
    assert ways == sorted(ways) and len(set(ways)) == 3
    assert total(sequence_parallel=False) > total()
    assert total(microbatch=2) > total()
    assert total(schedule="gpipe") > total()
    assert total(length=4096) > total()


def test_zero_divides_its_parts_only(gpt3):
    rows = [planned_memory(replace(gpt3, axes=Axes(8, 4, 2), zero_stage=stage)).rows for stage in (0, 1)]
    assert rows[1]["optimizer state"] == pytest.approx(rows[0]["optimizer state"] / 2)
    for name in ("parameters", "gradients", "activations", "temporaries"):
        assert rows[1][name] == rows[0][name]


def test_a_sharded_stage_of_a_pipeline_is_whole_while_it_runs(gpt3):
    """torch's pipelining keeps `fully_shard`'s weights gathered and its gradients whole until the last micro-batch."""
    three, one = (planned_memory(replace(gpt3, axes=Axes(8, 4, 2), zero_stage=stage)).rows for stage in (3, 1))
    state = ("parameters", "gradients", "gathered")
    assert sum(three[name] for name in state) > sum(one[name] for name in state)
    alone = planned_memory(replace(gpt3, axes=Axes(8, 1, 8), zero_stage=3)).rows
    assert alone["gathered"] == 4 * gpt3.model.block_parameters / 8


def test_the_assumptions_are_in_the_rows(gpt3):
    rows = planned_memory(gpt3).rows
    assert rows["framework"] == FRAMEWORK
    assert rows["fragmentation"] == pytest.approx(FRAGMENTATION * (sum(rows.values()) - rows["fragmentation"]))


@pytest.mark.parametrize("tp", [1, 2, 4])
@pytest.mark.parametrize("sequence_parallel", [False, True])
@pytest.mark.parametrize("gather_again", [False, True])
def test_a_block_of_the_courses_gpt_is_known_to_the_byte(tp, sequence_parallel, gather_again):
    """The table of the tensor-parallel chapter, in fp32, which the ledger is held to."""
    config = GPTConfig(hidden_size=32, context_length=16)
    run = TrainingRun(
        sizes_of(config), parse_cluster(f"{tp}xA100"), Axes(tp), 3, microbatch=3, length=16, recompute="none",
        sequence_parallel=sequence_parallel, gather_again=gather_again, element_bytes=4,
    )  # fmt: skip
    options = {"sequence_parallel": sequence_parallel, "gather_again": gather_again}
    assert block_bytes(run).whole == table_bytes(gpt_block(config, 3, 16), tp, **options)
    assert block_bytes(replace(run, recompute="full")).held == 4 * 3 * 16 * 32 / (tp if sequence_parallel else 1)
