"""torch.distributed.pipelining's runner, given any order: for parity in both directions."""

import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

from dtlearn.pipeline_parallel import format_schedule


def torch_step(schedule, modules, loss_fn, inputs, targets, *, group=None, scale_grads=True):
    """One step of torch's runner with this schedule, on this rank's modules by stage. Returns the losses."""
    rank, device = dist.get_rank(group), torch.device("cpu")
    stages = [PipelineStage(m, s, schedule.num_stages, device, group=group) for s, m in modules.items()]
    runner = _PipelineScheduleRuntime(stages, schedule.num_microbatches, loss_fn, scale_grads=scale_grads)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "orders.csv")
        path.write_text(format_schedule(schedule).replace(" ", ",") + "\n")
        runner._load_csv(str(path))
    losses = []
    is_first, is_last = schedule.placement[0] == rank, schedule.placement[-1] == rank
    runner.step(*([inputs] if is_first else []), target=targets if is_last else None, losses=losses)
    return [loss.item() for loss in losses]
