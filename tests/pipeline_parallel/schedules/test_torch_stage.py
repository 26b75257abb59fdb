"""torch's stages for V-shaped schedules, on gloo: no rank sends to itself, and the step is that of one process."""

import torch
import torch.distributed as dist
from torch import nn

from dtlearn.pipeline_parallel import torch_stage
from dtlearn.runtime.run import run_ranks

NUM_STAGES, NUM_MICROBATCHES = 4, 4


def layers():
    torch.manual_seed(0)
    return [nn.Linear(6, 6) for _ in range(NUM_STAGES)]


def mean_square(result, target):
    return (result - target).square().mean()


def step_of_zbv(x, y):
    """On each rank: the gradients of this rank's stages; and whom plain stages, and ours, would greet."""
    from torch.distributed.pipelining import PipelineStage, ScheduleZBVZeroBubble

    rank = dist.get_rank()
    modules, held = layers(), (rank, NUM_STAGES - 1 - rank)
    greeted = []
    for make in (PipelineStage, torch_stage):
        stages = [make(modules[s], s, NUM_STAGES, "cpu") for s in held]
        schedule = ScheduleZBVZeroBubble(stages, NUM_MICROBATCHES, loss_fn=mean_square)
        greeted.append({op.group_peer for stage in stages for op in stage._get_init_p2p_neighbors_ops()})
    schedule.step(x, target=y) if rank == 0 else schedule.step()
    return {s: modules[s].weight.grad for s in held}, greeted


def test_a_v_shaped_schedule_of_torch_runs_on_gloo():
    x, y = torch.rand(8, 6), torch.rand(8, 6)
    whole = layers()
    mean_square(nn.Sequential(*whole)(x), y).backward()
    results = run_ranks(step_of_zbv, 2, x, y, device="cpu")
    # Rank 1 has stages 1 and 2: a plain one greets rank 1 itself.
    assert [greeted for _, greeted in results] == [[{1}, {1}], [{0, 1}, {0}]]
    for gradients, _ in results:
        assert len(gradients) == 2
        for stage, gradient in gradients.items():
            torch.testing.assert_close(gradient, whole[stage].weight.grad)
