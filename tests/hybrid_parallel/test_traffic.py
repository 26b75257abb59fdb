"""Bytes by axis: the formula equals the record of real steps, to the byte; and by hand."""

import pytest
import torch.distributed as dist

from dtlearn.hybrid_parallel import MeshLayout, recorded_bytes, stage_shapes, step_bytes
from dtlearn.pipeline_parallel import make_schedule
from dtlearn.runtime.record.event import Event
from tests.devices import run_ranks
from tests.hybrid_parallel.runs import LAYOUTS, B, T, batches, config, make

CASES = {
    "tp2 pp2": [
        {"tied": True, "schedule": "1f1b"},
        {"schedule": "interleaved", "zero": 1},
        {"schedule": "zbv", "tied": True, "sequence_parallel": False},
    ],
    "tp2 dp2": [{"zero": zero} for zero in (0, 1, 2, 3)],
    "pp2 dp2": [{"zero": 0, "tied": True}, {"zero": 2}, {"zero": 3}],
}


def on_ranks(layout, cases):
    """By case, the formula for this rank. The second of two steps is between barriers: the first tells shapes, too."""
    found = []
    for case in cases:
        model, (tokens, targets) = make(layout, **case), next(batches(1))
        model.step(tokens, targets)
        dist.barrier()
        model.step(tokens, targets)
        dist.barrier()
        options = {name: value for name, value in case.items() if name in ("zero", "sequence_parallel")}
        found.append(formula(layout, model, dist.get_rank(), **options))
    return found


def formula(layout, model, rank, **options):
    return step_bytes(model.config, layout, model.schedule, model.boundaries, rank, global_batch=B, length=T, **options)


def between_barriers(record, rank):
    parts = [[]]
    for event in record.select(rank=rank):
        if event.op == "barrier":
            parts.append([])
        else:
            parts[-1].append(event)
    return parts[1::2]


@pytest.mark.parametrize("name", CASES)
def test_the_record_has_the_bytes_of_the_formula(name):
    layout = LAYOUTS[name]
    result = run_ranks(on_ranks, 4, layout, CASES[name], device="cpu", record=True)
    for rank in range(4):
        for case, by_formula, events in zip(
            CASES[name], result[rank], between_barriers(result.record, rank), strict=True
        ):
            assert recorded_bytes(events, layout, rank) == pytest.approx(by_formula, abs=1e-6), (rank, case)


def test_by_hand():
    """A block of C = 16 has 4 C^2 + 8 C^2 weights; b T C = 4 * 8 * 16 elements go from stage to stage."""
    layout, schedule = MeshLayout(pp=2, dp=1), make_schedule("1f1b", 2, 2)
    shapes = stage_shapes(config(), (0, 3, 6), 0, 1)
    weights = sum(
        shape[0] * shape[1] for name, (shape, _) in shapes.items() if name.startswith("blocks.0") and shape[1:]
    )
    assert weights == 12 * 16**2
    sent = step_bytes(config(), layout, schedule, (0, 3, 6), 0, global_batch=8, length=8)
    assert sent["pp"] == 2 * 4 * (4 * 8 * 16) + 4 + 8  # and the norm, and the loss
    assert sent["tp"] == sent["dp"] == 0


def test_a_tied_head_in_a_stage_of_its_own_is_a_copy():
    assert "head.projection.weight" in stage_shapes(config(tied=True), (0, 3, 6), 1, 2)
    assert "head.projection.weight" not in stage_shapes(config(tied=True), (0, 6), 0, 2)
    assert stage_shapes(config(), (0, 6), 0, 2)["embedding.token.weight"] == ((7, 16), False)  # 13 tokens, padded


def test_a_group_that_is_no_axis_is_refused():
    event = Event(0, 0, "all_reduce", "0,3", 0, 4, "float32", (), None, {}, 0, 1, False, "", 0)
    with pytest.raises(ValueError, match="is in the group 0,3, which is none of"):
        recorded_bytes([event], MeshLayout(tp=2, dp=2), 0)
