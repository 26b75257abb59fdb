"""The runner: it executes any valid schedule on the ranks, for training, and its forward passes for evaluation."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property

import torch
import torch.distributed as dist
from torch import nn

from dtlearn.runtime.device import device
from dtlearn.runtime.recording.phases import phase
from dtlearn.sharing.wrapping import broadcast_module, require_same_model

from ..actions import Action, Op
from ..checking.validate import check
from ..schedule import Schedule
from ..split_model import Tied
from .communication import Exchange, Step, describe, forward_only, with_communication
from .gradients import TiedParameter, average_over_replicas
from .losses import LossFn, StepResult, Terms, stack_terms
from .microbatches import Microbatches, cut
from .preconditions import module_of, recomputed_stages, require_same_schedule
from .stage import PipelineStage
from .transfers import Transfers


class PipelineRunner:
    """A model in stages on several ranks, trained by a schedule.

        runner = PipelineRunner(make_schedule("1f1b", 4, 8), split_gpt(model, boundaries), next_token_loss)
        optimizer = torch.optim.Adam(runner.parameters())
        for inputs, targets in batches:
            optimizer.zero_grad()
            result = runner.step(inputs, targets)
            optimizer.step()

    The gradients are those of the mean loss of the whole batch, which is cut into m micro-batches along its first
    dimension. If m does not divide the rows, the first ones have a row more, and each counts with its rows.

    **Communication** (n bytes of outputs of a stage for one micro-batch): for each boundary between stages on two ranks
        m n bytes forward and m n back in each step, in 2m messages, m headers of 88 bytes in the first step. Then the
        tied gradient, and one all-reduce of all gradients over the data-parallel group. Once: all-gather of 8 bytes.
    **Memory**: parameters, gradients and optimizer state of this rank's stages; what `PipelineStage` keeps for each
        live micro-batch; of what travels, see `Transfers`.

    Args:
        schedule: the same on all ranks.
        stages: modules by the number of the stage, as a list of all or a mapping of those of this rank; one tensor in,
            one tensor of floating-point numbers out. Build the optimizer over `parameters()`.
        loss_fn: mean loss of (outputs, targets), (); or several by name, as in {"cross_entropy": ..., "z_loss": ...}:
            then the loss is their sum, and a step reports each of them too.
        group: the ranks of this pipeline; None: all.
        data_parallel_group: the ranks that have the same stages in other pipelines; they begin with the values of its
            first rank. None: there are none.
        tied: two stages with the name of a parameter that they share; see `tied_embedding`.
        recompute: the numbers of the stages that keep their inputs only, and compute their activations again in the
            backward pass; True: all.

    Attributes:
        modules: this rank's stages, by number.

    Raises:
        ScheduleError: the schedule is wrong.
        ValueError: another number of ranks than in the schedule, or a tied parameter or a stage to recompute that is
            not there.
        RuntimeError: the ranks have different schedules, or the replicas different models.
    """

    def __init__(
        self,
        schedule: Schedule,
        stages: Sequence[nn.Module] | Mapping[int, nn.Module],
        loss_fn: LossFn,
        *,
        group: dist.ProcessGroup | None = None,
        data_parallel_group: dist.ProcessGroup | None = None,
        tied: Tied = (),
        recompute: bool | Collection[int] = False,
    ) -> None:
        check(schedule)
        self.schedule, self.rank = schedule, dist.get_rank(group)
        require_same_schedule(schedule, group)
        self.modules = {stage: module_of(stages, stage, self.rank) for stage in schedule.stages_of(self.rank)}
        self._replicas = data_parallel_group
        for module in self.modules.values() if data_parallel_group is not None else ():
            require_same_model(module, group=data_parallel_group)
            broadcast_module(module, group=data_parallel_group)
        self._last = schedule.num_stages - 1
        recomputed = recomputed_stages(recompute, schedule.num_stages)
        self._stages = {
            stage: PipelineStage(
                module,
                loss_fn=loss_fn if stage == self._last else None,
                is_first=stage == 0,
                recompute=stage in recomputed,
                splits_backward=schedule.splits_backward,
            )
            for stage, module in self.modules.items()
        }
        self._tied = TiedParameter(tied, schedule.placement, self.modules, self.rank, group) if tied else None
        self._steps = with_communication(schedule)[self.rank]
        self._transfers = Transfers(self.rank, group, device())
        self._evaluation_transfers = Transfers(self.rank, group, device())

    def parameters(self) -> list[nn.Parameter]:
        """The parameters of this rank's stages, for its optimizer."""
        return [parameter for module in self.modules.values() for parameter in module.parameters()]

    # Training

    def step(
        self,
        inputs: torch.Tensor | None = None,
        targets: torch.Tensor | None = None,
    ) -> StepResult:
        """Execute the schedule for one batch, and add to the gradients of the parameters.

        Args:
            inputs: of the whole batch, on the rank of the first stage; the others look at none.
            targets: of the whole batch, on the rank of the last stage; the others look at none.

        Raises:
            ValueError: what this rank needs is missing, fewer rows than micro-batches, or an output of a stage that
                has another shape than in the first step.
        """
        batch = cut(self.schedule, self.rank, inputs, targets)
        losses = dict[int, torch.Tensor]()
        if self._tied is not None:
            self._tied.step_begins()
        self._execute(self._steps, self._transfers, lambda action: self._do(action, batch, losses))
        if self._tied is not None:
            self._tied.sum_gradients()
        if self._replicas is not None:
            average_over_replicas(list(self.modules.values()), group=self._replicas)
        return _result(batch, losses, self._stages[self._last].terms if losses else {})

    def _do(self, action: Action, batch: Microbatches, losses: dict[int, torch.Tensor]) -> None:
        """One action: take what it needs, compute, and put what it makes where the next action finds it."""
        number, op, microbatch = action
        stage = self._stages[number]
        if op is Op.F:
            inputs = batch.inputs[microbatch] if number == 0 else self._transfers.take(action)
            with phase(str(action)):
                outputs = stage.forward(microbatch, inputs, *self._targets(batch, action))
            if number == self._last:
                losses[microbatch] = outputs
            else:
                self._transfers.put(Action(number + 1, Op.F, microbatch), outputs)
        elif op is Op.W:
            with phase(str(action)):
                stage.backward_weights(microbatch)
        else:
            if number == self._last:  # d(mean loss of the batch) / d(loss of this micro-batch)
                gradient = torch.full_like(losses[microbatch], batch.shares[microbatch])
            else:
                gradient = self._transfers.take(Action(number, Op.B, microbatch))
            with phase(str(action)):
                backward = stage.backward if op is Op.B else stage.backward_inputs
                input_gradient = backward(microbatch, gradient)
            if input_gradient is not None:
                self._transfers.put(Action(number - 1, Op.B, microbatch), input_gradient)

    def _targets(self, batch: Microbatches, action: Action) -> tuple[torch.Tensor, ...]:
        return (batch.targets[action.microbatch],) if action.stage == self._last and batch.targets else ()

    def forget_shapes(self) -> None:
        """Let the next step have batches of another size. Call it on every rank."""
        self._transfers.forget_shapes()

    # Evaluation

    @cached_property
    def _forward_steps(self) -> tuple[Step, ...]:
        return with_communication(forward_only(self.schedule))[self.rank]

    def evaluate(self, inputs: torch.Tensor | None = None, targets: torch.Tensor | None = None) -> torch.Tensor | None:
        """The mean loss of a batch, (), on the rank of the last stage; None on the others. In evaluation mode.

        Batches may be of any size: the shapes are told anew.

        Args:
            inputs, targets: as for `step`.
        """
        batch = cut(self.schedule, self.rank, inputs, targets)
        return _result(batch, self._forward_passes(batch), {}).loss

    def predict(self, inputs: torch.Tensor | None = None) -> torch.Tensor | None:
        """The outputs of the model for a batch, on the rank of the last stage; None on the others.

        Args:
            inputs: as for `step`.
        """
        outputs = self._forward_passes(cut(self.schedule, self.rank, inputs, None, needs_targets=False))
        return torch.cat([outputs[number] for number in sorted(outputs)]) if outputs else None

    def _forward_passes(self, batch: Microbatches) -> dict[int, torch.Tensor]:
        """The forward passes of the schedule; of the last stage what it makes of each micro-batch."""
        transfers, results = self._evaluation_transfers, dict[int, torch.Tensor]()
        transfers.forget_shapes()

        def do(action: Action) -> None:
            stage, _, microbatch = action
            inputs = batch.inputs[microbatch] if stage == 0 else transfers.take(action)
            with phase(str(action)):
                outputs = self._stages[stage].evaluate(inputs, *self._targets(batch, action))
            if stage == self._last:
                results[microbatch] = outputs
            else:
                transfers.put(Action(stage + 1, Op.F, microbatch), outputs)

        with _in_evaluation_mode(self.modules.values()):
            self._execute(self._forward_steps, transfers, do)
        return results

    def _execute(self, steps: Sequence[Step], transfers: Transfers, do: Callable[[Action], None]) -> None:
        """Go through the steps of this rank. An error says in which one it came, and nothing of the step is kept."""
        for step in steps:
            try:
                if isinstance(step, Exchange):
                    transfers.post(step)
                else:
                    do(step.action)
            except Exception as error:
                error.add_note(f"{describe(step, self.rank)} ({self.schedule.name})")
                transfers.drop()
                for stage in self._stages.values():
                    stage.drop()
                raise
        transfers.wait_for_sends()


def _result(batch: Microbatches, losses: Mapping[int, torch.Tensor], terms: Mapping[int, Terms]) -> StepResult:
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
