"""The training loop: everything else in this folder serves it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path

from torch import nn

from dtlearn.data_parallel.large_batch.learning_rate import make_scheduler, scaled_lr
from dtlearn.data_parallel.samples.evaluation import evaluate
from dtlearn.data_parallel.samples.metrics import Metrics

from .checkpoint import checkpoint_file, find_state, write_checkpoint
from .compression import check_compress, make_hook_state, register
from .data import TrainingData, evaluation_batches
from .options import Options, Settings, settle
from .ranks.group import RankOnDevice, training_group
from .ranks.rank_0 import TrainError, from_rank_0
from .ranks.stop_signals import StopSignals
from .report import Report, announce, tell_the_end
from .state import Training, TrainResult, digest, seed_rank
from .step import check_amp, train_step, wrap
from .task import TrainingTask
from .tasks import load_task


def train(options: Options | None = None) -> TrainResult:
    """Train on this rank, together with the others.

    **Communication** (default group; P bytes of parameters, N ranks):
        at the start: the checkpoint, if there is one, and the model, broadcast from rank 0
        each update: the gradients, P bytes, in DistributedDataParallel's buckets, once for all micro-batches (with
            `--compress` less, see the hook);
            and one all-reduce of 12 bytes: the loss that is reported, and who was asked to stop
        each epoch: one all-reduce of the sums of the evaluation
        each checkpoint: a gather of about 10 kB per rank (with `--compress` of P more), and a broadcast of whether it
            was written
    **Memory** (per rank): parameters P, gradients P, buckets P, optimizer P (SGD with momentum) or 2 P (AdamW); on rank
        0, while it writes a checkpoint, parameters and optimizer once more, in the CPU's memory

    Args:
        options: what to do; None: the defaults.

    Raises:
        TrainError: it cannot be done; the message says what to change.
    """
    options = options or Options()
    options.check()
    with training_group(options.device, options.backend) as here, StopSignals() as signals:
        task = load_task(options.task)
        settings = settle(options, task.defaults)
        check_amp(settings, here)
        check_compress(settings)
        training = make_training(task, settings, here)
        state, notes = find_state(settings)
        if state is not None:
            notes += training.load_state_dict(state)
        report = Report(here, settings.log_dir, training.step)
        try:
            return _run(training, task, report, signals, notes)
        finally:
            report.close()


def make_training(task: TrainingTask, settings: Settings, here: RankOnDevice) -> Training:
    """Model, optimizer, scheduler and data at the start of a run."""
    data = TrainingData(task, settings, here)
    seed_rank(settings.seed, here.rank)  # another model on every rank, on purpose: only the wrapper makes them one
    model = task.make_model(settings.dropout).to(here.device)
    lr = scaled_lr(settings.lr, settings.batch_size, task.defaults.batch_size, settings.scale_lr)
    optimizer = task.make_optimizer(model.parameters(), lr)
    scheduler = make_scheduler(optimizer, settings.warmup, settings.epochs * data.steps_per_epoch)
    return Training(settings, here, model, optimizer, scheduler, data, lr, make_hook_state(settings))


@dataclass
class Progress:
    """What has come of this run so far, beside `Training`, which an earlier run may have begun.

    Attributes:
        first_step: updates made before this run.
        saved_at: the step of the last checkpoint that was tried.
        losses, metrics: mean loss of each update; of the test after the last epoch, if the model is still the same.
        stopped_by, unsaved: as in `TrainResult`.
    """

    first_step: int
    saved_at: int
    losses: list[float] = field(default_factory=list)
    metrics: Metrics | None = None
    stopped_by: int = 0
    unsaved: str = ""


def _run(training: Training, task: TrainingTask, report: Report, signals: StopSignals, notes: list[str]) -> TrainResult:
    settings, data = training.settings, training.data
    total = settings.epochs * data.steps_per_epoch
    last = min(total, settings.max_steps or total)
    model = wrap(training.model, settings)  # after the state was loaded; gives all ranks the parameters of rank 0
    register(model, settings, training.compression)
    progress = Progress(first_step=training.step, saved_at=training.step)
    announce(training, task, report, notes, total)
    while training.step < last and not progress.stopped_by:
        _train_epoch(training, model, progress, report, signals, last)
        if training.step % data.steps_per_epoch == 0 and not progress.stopped_by:
            progress.metrics = test(training, task, report)
    if training.step > progress.saved_at or progress.unsaved:
        progress.unsaved = save(training, report)
    if progress.metrics is None and not progress.stopped_by:  # nothing was left to do, or it ends within an epoch
        progress.metrics = test(training, task, report)
    tell_the_end(training, report, total, progress.stopped_by, progress.unsaved)
    metrics = progress.metrics
    return TrainResult(
        losses=progress.losses,
        first_step=progress.first_step,
        step=training.step,
        accuracy=metrics.accuracy if metrics else math.nan,
        macro_f1=metrics.macro_f1 if metrics else math.nan,
        baseline=task.baseline,
        digest=digest(training.model),
        rank=training.here.rank,
        world_size=training.here.world_size,
        stopped_by=progress.stopped_by,
        unsaved=progress.unsaved,
    )


def _train_epoch(
    training: Training, model: nn.Module, progress: Progress, report: Report, signals: StopSignals, last: int
) -> None:
    """Train for the rest of an epoch, or less: to step `last`, or until some rank is asked to stop."""
    settings, data = training.settings, training.data
    epoch, done = divmod(training.step, data.steps_per_epoch)
    data.sampler.set_epoch(epoch)
    progress.metrics = None  # those of an earlier epoch are not those of the model at the end
    report.start_epoch(epoch, data.steps_per_epoch, done)
    model.train()
    for batches in data.updates():
        lr = training.optimizer.param_groups[0]["lr"]
        loss, progress.stopped_by = train_step(training, model, batches, signals)
        progress.losses.append(loss)
        report.step(training.step, settings.batch_size, loss=loss, lr=lr)
        if progress.stopped_by or training.step == last:
            break
        if training.step % settings.checkpoint_every == 0:
            progress.unsaved, progress.saved_at = save(training, report), training.step
    report.end_epoch()


def save(training: Training, report: Report) -> str:
    """Write a checkpoint, if wanted. Returns why it could not be done, or "".

    A full disk does not end the training: it is said each time, older checkpoints stay, and the next try may succeed.
    """
    settings = training.settings
    if settings.checkpoint_dir is None:
        return ""
    state = training.state_dict()
    file = checkpoint_file(Path(settings.checkpoint_dir), training.step)
    try:
        from_rank_0(lambda: write_checkpoint(state, file, settings.keep))
    except TrainError as error:
        report.say(f"no checkpoint after step {training.step}: {error}", error=True)
        return str(error)
    return ""


def test(training: Training, task: TrainingTask, report: Report) -> Metrics:
    """Evaluate the bare model on all test samples, each once, over all ranks; the same metrics on every rank."""
    batches = evaluation_batches(task, training.here)
    metrics = evaluate(training.model, batches, num_classes=len(task.classes), num_samples=len(task.test))
    epoch = training.step / training.data.steps_per_epoch
    numbers = {"loss": metrics.loss, "accuracy": metrics.accuracy, "macro_f1": metrics.macro_f1}
    report.write("test", training.step, epoch=epoch, **numbers)
    report.say(
        f"epoch {epoch:g}: step {training.step}, test loss {metrics.loss:.4f}, accuracy {100 * metrics.accuracy:.1f} % "
        f"(always the largest class: {100 * task.baseline:.1f} %), macro F1 {metrics.macro_f1:.3f}"
    )
    return metrics
