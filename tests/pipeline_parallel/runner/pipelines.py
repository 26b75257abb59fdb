"""Training through a runner beside the run of one process."""

from dtlearn.pipeline_parallel import make_schedule, tied_embedding
from dtlearn.pipeline_parallel.runner.runner import PipelineRunner
from tests.pipeline_parallel.runs import (
    OPTIMIZERS,
    TIED_GPT,
    batches,
    distance,
    first_ranks,
    loss_of,
    reference,
    snapshot,
    stages_of,
)

STEPS = 2


def pipeline(name, kind, p, m, group=None, runner=PipelineRunner, **options):
    """A runner of a model of `runs.MODELS`."""
    schedule = make_schedule(kind, p, m)
    stages, tied = stages_of(name, schedule.num_stages)
    return runner(schedule, stages, loss_of(name), group=group, **{"tied": tied, **options})


def away_from_reference(trained, name, rows, optimizer="plain", steps=STEPS):
    """How far this rank is from the run of one process, at most; in gradients, parameters and losses."""
    stepper, away = OPTIMIZERS[optimizer](trained.parameters()), 0.0
    tied = tied_embedding(TIED_GPT, trained.schedule.num_stages) if name == "tied" else ()
    whole = reference(name, optimizer, rows, steps)
    for (inputs, targets), (expected, tensors) in zip(batches(name, rows, steps), whole, strict=True):
        stepper.zero_grad()
        loss = trained.step(inputs, targets).loss
        stepper.step()
        away = max(away, distance(snapshot(trained.modules.values()), tensors, tied))
        is_last = trained.schedule.placement[-1] == trained.rank
        assert (loss is not None) == is_last
        away = max(away, abs(loss.item() - expected) if is_last else 0.0)
    return away


def groups_of_first(sizes):
    """Groups of the first ranks, by size; every rank of the world calls it."""
    return {size: first_ranks(size) for size in sizes}
