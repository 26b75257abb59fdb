"""The runner: it plays any valid schedule on the ranks, for training, and its forward passes for evaluation."""

from __future__ import annotations

import weakref
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import cached_property
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from dtlearn.runtime.device import device
from dtlearn.sharing.wrapping import broadcast_module, require_same_model

from ..checking.validate import check
from ..schedule import Schedule
from .communication import MessageBatch, RankStep, forward_only, with_communication
from .gradients import Tied, TiedParameter, average_over_replicas
from .losses import LossTerms, NumTerms, PipelineLossFn, StepResult, num_terms_of, stack_terms
from .microbatches import Microbatches, cut
from .play import play
from .preconditions import module_of, recomputed_stages, require_same_schedule, require_tied
from .recomputation import RecomputingStage
from .stage import ForwardOnlyStage, PipelineStage
from .transfers import Transfers


class PipelineRunner:
    """`page_pipeline.run_schedule` with any valid schedule, and what a training needs around it.

    It adds: several stages on a rank and split backward passes (I, W); messages in an order that is safe on every
    backend; shapes that the ranks tell each other; memory of outputs that is free once they are sent; micro-batches of
    different sizes; tied parameters, recomputation, data parallelism; evaluation; errors that say in which action.

        runner = PipelineRunner(make_schedule("1f1b", 4, 8), split_gpt(model, boundaries), next_token_loss)
        optimizer = torch.optim.Adam(runner.parameters())
        for inputs, targets in batches:
            optimizer.zero_grad()
            result = runner.step(inputs, targets)
            optimizer.step()

    The gradients are those of the mean loss of the whole batch, which is cut into m micro-batches along its first
    dimension. If m does not divide the rows, the first ones have a row more. Each counts with its terms, see
    `num_terms`; pipelines side by side count the same, as the replicas of DDP.

    **Communication** (n bytes of outputs of a stage for one micro-batch): for each boundary between stages on two ranks
        m n bytes forward and m n back in each step, in 2m messages, m headers of 88 bytes in the first step. Then the
        tied gradient, and one all-reduce of all gradients over the data-parallel group. Once: all-gather of 8 bytes.
    **Memory**: parameters, gradients and optimizer state of this rank's stages; what `PipelineStage`, or
        `RecomputingStage`, keeps for each live micro-batch; of what travels, see `Transfers`.

    Args:
        schedule: the same on all ranks.
        stages: modules by the number of the stage, as a list of all or a mapping of those of this rank; one tensor in,
            one tensor of floating-point numbers out. Build the optimizer over `parameters()`.
        loss_fn: mean loss of (outputs, targets), (); or several by name, as in {"cross_entropy": ..., "z_loss": ...}:
            then the loss is their sum, and a step reports each of them too.
        group: the ranks of this pipeline; None: all.
        data_parallel_group: the ranks that have the same stages in other pipelines; they begin with the values of its
            first rank. None: there are none.
        tied: two stages with the name of a parameter that they share; see `tied_embedding`. They begin with the values
            of its first place.
        recompute: the numbers of the stages that keep their inputs only, and compute their activations again in the
            backward pass; True: all.
        num_terms: of targets: how many terms `loss_fn` takes the mean of; for a loss that ignores padding,
            `lambda targets: int((targets != -100).sum())`. None: what
            `num_terms_of` knows of torch's losses, else rows.

    Attributes:
        modules: this rank's stages, by number; what to copy or to save.

    Raises:
        ScheduleError: the schedule is wrong.
        ValueError: another number of ranks than in the schedule; a tied parameter or a stage to recompute that is not
            there; a parameter in stages of two ranks that is not tied; a loss that is no mean.
        RuntimeError: the ranks have different schedules, or the replicas different models.
    """

    def __init__(
        self,
        schedule: Schedule,
        stages: Sequence[nn.Module] | Mapping[int, nn.Module],
        loss_fn: PipelineLossFn,
        *,
        group: dist.ProcessGroup | None = None,
        data_parallel_group: dist.ProcessGroup | None = None,
        tied: Tied = (),
        recompute: bool | Collection[int] = False,
        num_terms: NumTerms | None = None,
    ) -> None:
        check(schedule)
        self.schedule, self.rank, self.group = schedule, dist.get_rank(group), group
        self._num_terms = num_terms or num_terms_of(loss_fn)
        require_same_schedule(schedule, group)
        require_tied(stages, tied, schedule.placement)
        self.modules = {stage: module_of(stages, stage, self.rank) for stage in schedule.stages_of(self.rank)}
        self._replicas = data_parallel_group
        for module in self.modules.values() if data_parallel_group is not None else ():
            require_same_model(module, group=data_parallel_group)
            broadcast_module(module, group=data_parallel_group)
        self._last = schedule.num_stages - 1
        recomputed = recomputed_stages(recompute, schedule.num_stages)
        self._stages = {
            stage: (RecomputingStage if stage in recomputed else PipelineStage)(
                module,
                loss_fn=loss_fn if stage == self._last else None,
                is_first=stage == 0,
                splits_backward=schedule.splits_backward,
            )
            for stage, module in self.modules.items()
        }
        self._tied = TiedParameter(tied, schedule.placement, self.modules, self.rank, group) if tied else None
        self._steps = with_communication(schedule)[self.rank]
        self._transfers = Transfers(self.rank, group, device())
        self._evaluation_transfers = Transfers(self.rank, group, device())
        self._world: weakref.ref[Any] | None = None
        self._failed = False

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_world": None}  # a reference that cannot travel

    def parameters(self) -> list[nn.Parameter]:
        """The parameters of this rank's stages, for its optimizer; one that two of them share is there once."""
        every = (parameter for module in self.modules.values() for parameter in module.parameters())
        return list({id(parameter): parameter for parameter in every}.values())

    def step(
        self,
        inputs: torch.Tensor | None = None,
        targets: torch.Tensor | None = None,
    ) -> StepResult:
        """Play the schedule for one batch, and add to the gradients of the parameters.

        Args:
            inputs: of the whole batch, on the rank of the first stage; the others look at none.
            targets: of the whole batch, on the rank of the last stage; the others look at none.

        Raises:
            ValueError: what this rank needs is missing, fewer rows than micro-batches, a micro-batch without terms, or
                an output of a stage that has another shape than in the first step.
            RuntimeError: an earlier step ended in an error.
        """
        batch = cut(self.schedule, self.rank, inputs, targets, num_terms=self._num_terms)
        with self._tied.summed() if self._tied is not None else nullcontext():
            losses = self._play(self._steps, self._stages, self._transfers, batch)
        if self._replicas is not None:
            average_over_replicas(list(self.modules.values()), group=self._replicas)
        return _result(batch, losses, self._stages[self._last].terms if losses else {})

    def forget_shapes(self) -> None:
        """Let the next step have batches of another size. Call it on every rank."""
        self._transfers.forget_shapes()

    def evaluate(self, inputs: torch.Tensor | None = None, targets: torch.Tensor | None = None) -> torch.Tensor | None:
        """The mean loss of a batch, (), on the rank of the last stage; None on the others. In evaluation mode.

        Batches may be of any size: the shapes are told anew.

        Args:
            inputs, targets: as for `step`.
        """
        batch = cut(self.schedule, self.rank, inputs, targets, num_terms=self._num_terms)
        return _result(batch, self._forward_passes(batch), {}).loss

    def predict(self, inputs: torch.Tensor | None = None) -> torch.Tensor | None:
        """The outputs of the model for a batch, on the rank of the last stage; None on the others.

        Args:
            inputs: as for `step`.
        """
        outputs = self._forward_passes(cut(self.schedule, self.rank, inputs, None, needs_targets=False))
        return torch.cat([outputs[number] for number in sorted(outputs)]) if outputs else None

    @cached_property
    def _forward_steps(self) -> tuple[RankStep, ...]:
        return with_communication(forward_only(self.schedule))[self.rank]

    def _forward_passes(self, batch: Microbatches) -> dict[int, torch.Tensor]:
        """What the last stage makes of each micro-batch, output or loss, by number; {} on ranks without that stage."""
        self._evaluation_transfers.forget_shapes()
        stages = {number: ForwardOnlyStage(stage) for number, stage in self._stages.items()}
        with _in_evaluation_mode(self.modules.values()):
            return self._play(self._forward_steps, stages, self._evaluation_transfers, batch)

    def _play(
        self,
        steps: Sequence[RankStep],
        stages: Mapping[int, PipelineStage | ForwardOnlyStage],
        transfers: Transfers,
        batch: Microbatches,
    ) -> dict[int, torch.Tensor]:
        """Play the steps. After an error nothing of them is kept, and there is no other step in the same group."""
        world = weakref.ref(self.group or dist.group.WORLD)
        if world != self._world:  # a first step, also after ranks began anew: nothing is on its way, no shape was told
            self._world, self._failed = world, False
            transfers.forget_shapes()
        if self._failed:
            raise RuntimeError(
                "an earlier step ended in an error, and messages of it may still be on their way: this step would take "
                "them for its own. Start the ranks again (in a notebook: %world restart) and make a new runner"
            )
        try:
            return play(self.schedule, steps, stages, transfers, batch)
        except BaseException:
            self._failed = any(isinstance(step, MessageBatch) for step in steps)
            transfers.drop()
            for stage in self._stages.values():
                stage.drop()
            raise


def _result(batch: Microbatches, losses: Mapping[int, torch.Tensor], terms: Mapping[int, LossTerms]) -> StepResult:
    if not losses:
        return StepResult(None, None)
    of_microbatches = torch.stack([losses[number] for number in range(len(losses))])  # (m,)
    mean = of_microbatches @ of_microbatches.new_tensor(batch.shares)
    return StepResult(of_microbatches, mean, stack_terms([terms[number] for number in sorted(terms)]) if terms else {})


@contextmanager
def _in_evaluation_mode(modules: Iterable[nn.Module]) -> Iterator[None]:
    """Dropout is off, and so on; then each module is again in the mode that it was in."""
    parts = [part for module in modules for part in module.modules()]
    modes = [part.training for part in parts]
    try:
        for part in parts:
            part.training = False
        yield
    finally:
        for part, mode in zip(parts, modes, strict=True):
            part.training = mode
