"""A GPT trained on a mesh, as a recipe: `HybridGPT.__init__` puts the chapters' parts together, `step` is a step.

Who sums what, and over which group:

    activations                        tp      in the layers, forward and backward (chapter 12)
    keys and values                    cp      in attention, forward and backward (chapter 13)
    rows of tokens for experts         ep      there and back, forward and backward (chapter 13)
    outputs of stages                  pp      one rank to the next, and their gradients back (chapters 10, 11)
    tokens that count                  dp *    before the first micro-batch, for a mean over all of them (chapter 3)
    a tied embedding's two gradients   pp      the first stage and the last one (chapter 10)
    norms' and biases' gradients       tp      partial sums under sequence parallelism (chapter 12)
    all gradients                      dp *    means, or the pieces of them that are this rank's (chapters 3, 9)
    but those of divided experts       dp, cp  which ep ranks have not in common (chapter 13)
    the square of the norm             tp, pp  and dp *, if pieces are divided along it, else ep: each element once
    the loss, for people               pp, dp *  the last stage has it

dp * is dp x ep x cp: all ranks that have the same parameters, and other tokens.

Source: the order of the training steps of Megatron-LM (`core/distributed/finalize_model_grads.py`) and torchtitan.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from dtlearn.context_parallel import ContextMethod, TokenLayout, shard_tokens
from dtlearn.data_parallel.samples.token_mean import count_tokens, scale_for_averaging
from dtlearn.expert_parallel import ExpertGPTConfig
from dtlearn.models import GPTConfig
from dtlearn.pipeline_parallel import PipelineRunner, Schedule, make_schedule, tied_embedding
from dtlearn.runtime.device import device
from dtlearn.sharing.clipping import clip_grad_norm_, global_norm
from dtlearn.tensor_parallel import tensor_parallel_manual_seed, vocabulary_parallel_cross_entropy

from .fit import check_layout, even_boundaries
from .groups import AxisGroups, make_groups
from .layout import MeshLayout
from .replicas import TrainedExperts, TrainedStage
from .stages import HEAD, build_stages, random_seed

Trained = TypeVar("Trained", bound=TrainedStage)
IGNORED = -100  # targets that count neither in the sum of the losses nor in the number of tokens


@dataclass(frozen=True)
class HybridStep:
    """What a step found, the same on every rank.

    Attributes:
        loss: mean over all tokens that count, of the whole global batch.
        norm: of the whole gradient, before clipping.
        tokens: how many count.
    """

    loss: float
    norm: float
    tokens: int


class HybridGPT:
    """A GPT whose layers, stages and replicas lie on a mesh of ranks. Every rank makes one, with the same arguments.

        model = HybridGPT(GPTConfig(), MeshLayout(tp=2, pp=2, dp=2), zero=1, optimizer_class=AdamW, lr=1e-3)
        for tokens, targets in batches:             # the global batch, on every rank
            step = model.step(tokens, targets)      # the loss that one process would have

    **Communication**: see the table of this file; `traffic.step_bytes` says how much.
    **Memory**: 1/tp of the layers of this rank's stages, and of them what `TrainedStage` and `PipelineRunner` keep.

    Args:
        config: of the whole model; an `ExpertGPTConfig` has mixtures, whose experts ep divides. With a capacity each
            rank drops by its own tokens, and layouts differ in what they drop.
        layout: of the mesh.
        schedule: a name that `make_schedule` knows; of a pipeline of one rank any one will do. Where it splits the
            backward pass, products of weights wait for W; with ZeRO 2 and 3, which reduce in backward, none does.
        num_microbatches: m, of each pipeline.
        chunks: stages on each rank, for schedules that take several.
        boundaries: of the stages; None: `even_boundaries`.
        zero: what replicas divide: nothing (0), optimizer state (1), gradients (2), parameters (3).
        sequence_parallel: tp divides the tokens between the layers, too.
        context_method: how tokens attend to those of other cp ranks: "ring", "all-gather" or "ulysses".
        token_layout: which tokens a cp rank has: "zigzag" or "contiguous".
        max_norm: gradients are clipped to it; None: they are not.
        seed: of the weights, and of dropout.
        optimizer_class, options: over this rank's pieces.

    Attributes:
        groups: of this rank.
        stages: this rank's, by number; without experts that ep divides.
        experts: of these stages, by number; {} where ep is 1.

    Raises:
        ValueError: what does not go together (`check_layout`): ep without mixtures, ep with ZeRO 2 or 3, cp with
            dropout, or a tied embedding in two stages whose gradients ZeRO 2 or 3 would have in pieces.
    """

    def __init__(
        self,
        config: GPTConfig,
        layout: MeshLayout,
        *,
        optimizer_class: type[torch.optim.Optimizer],
        schedule: str = "1f1b",
        num_microbatches: int = 1,
        chunks: int | None = None,
        boundaries: Sequence[int] | None = None,
        zero: int = 0,
        sequence_parallel: bool = True,
        context_method: ContextMethod = "ring",
        token_layout: TokenLayout = "zigzag",
        max_norm: float | None = None,
        seed: int = 0,
        **options: Any,
    ) -> None:
        self.config, self.layout, self.max_norm, self.zero = config, layout, max_norm, zero
        self.token_layout: TokenLayout = token_layout
        self.schedule = make_schedule(schedule, layout.pp, num_microbatches, chunks)
        self.tied = tied_embedding(config, self.schedule.num_stages)
        _require_known(config, layout, zero, self.schedule, bool(self.tied))
        num_experts = config.num_experts if isinstance(config, ExpertGPTConfig) else None
        check_layout(
            layout,
            world_size=dist.get_world_size(),
            num_heads=config.num_heads,
            num_experts=num_experts,
            context_method=context_method,
        )
        self.boundaries = tuple(boundaries or even_boundaries(config.num_layers, self.schedule.num_stages))

        # 1. The mesh: every process makes every group. Dropout: alike along tp, different along all other axes.
        self.groups: AxisGroups = make_groups(layout)
        random_states = tensor_parallel_manual_seed(
            random_seed(layout, self.groups.rank, seed), group=self.groups.tp, device=device()
        )
        # 2. Pipeline of stages, whose layers are divided over tp, their tokens over cp, and experts over ep.
        modules = build_stages(
            config,
            self.boundaries,
            self.schedule.stages_of(self.groups.coordinates.pp),
            seed=seed,
            groups=self.groups,
            num_microbatches=num_microbatches,
            sequence_parallel=sequence_parallel,
            context_method=context_method,
            token_layout=token_layout,
            random_states=random_states,
            device=device(),
        )

        # 3. Each with its replicas, and an optimizer over what this rank is to update. Divided experts have others.
        def trained(kind: type[Trained]) -> dict[int, Trained]:
            own = zero, optimizer_class, options
            return {number: kind(module, *own, groups=self.groups) for number, module in modules.items()}

        self.stages = trained(TrainedStage)
        self.experts = trained(TrainedExperts) if layout.ep > 1 else {}
        # 4. Who plays the schedule. Micro-batches count as they come, by rows: `loss_fn` weighs their tokens.
        self.runner = PipelineRunner(
            self.schedule,
            {number: stage.runs for number, stage in self.stages.items()},
            self.loss_fn,
            group=self.groups.pp,
            tied=self.tied,
            num_terms=len,
        )
        self._tokens = torch.zeros((), dtype=torch.int64, device=device())

    def step(self, tokens: torch.Tensor, targets: torch.Tensor) -> HybridStep:
        """Train on one global batch. All ranks call it.

        Args:
            tokens, targets: (B, T) int64, all rows, the same on every rank; a target of -100 does not count.

        Raises:
            ValueError: the batch does not fit the layout.
        """
        tokens, targets = self.own_tokens(tokens), self.own_tokens(targets)  # (B/dp, T/cp), twice
        self._tokens = count_tokens(targets.ne(IGNORED).sum(), group=self.groups.dp)  # of all
        for part in self.parts:
            part.optimizer.zero_grad()
        result = self.runner.step(tokens, targets)  # forward and backward of all micro-batches
        for part in self.parts:
            part.reduce_gradients()  # over tp what is partial; over dp, and experts over theirs
        norm = self.clip()  # over tp and pp, and dp if it has pieces, else ep
        for part in self.parts:
            part.optimizer.step()  # and, in ZeRO 1 and 2, a gather over dp
        return HybridStep(self.reported(result.loss), norm.item(), int(self._tokens))

    @property
    def parts(self) -> list[TrainedStage]:
        """What this rank trains: its stages, and after them the experts that ep divides."""
        return [*self.stages.values(), *self.experts.values()]

    def own_tokens(self, batch: torch.Tensor) -> torch.Tensor:
        """This rank's tokens of the global batch: the rows of its replica, by dp and ep, and its cp part of each row.

        Ranks that differ only in tp or pp have the same tokens. (B, T) -> (B/(dp ep), T/cp).
        """
        layout, place = self.layout, self.groups.coordinates
        self.check_batch(batch)
        each = len(batch) // layout.num_replicas
        first = layout.replica(self.groups.rank) * each
        rows = batch[first : first + each].to(device())
        return shard_tokens(rows, layout.cp, place.cp, layout=self.token_layout) if layout.cp > 1 else rows

    def check_batch(self, batch: torch.Tensor) -> None:
        """Refuse (B, T) that the mesh cannot divide."""
        check_layout(
            self.layout,
            global_batch=len(batch),
            num_microbatches=self.schedule.num_microbatches,
            sequence_length=batch.shape[1],
            token_layout=self.token_layout,
        )

    def loss_fn(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """A micro-batch's loss, (): averaged over micro-batches and replicas, it is the mean over all tokens.

        From (b, T/cp, V/tp). The runner averages over m micro-batches, and replicas over dp: both factors go in here.
        """
        loss_sum = vocabulary_parallel_cross_entropy(
            logits, targets, reduction="sum", num_classes=self.config.vocab_size, group=self.groups.tp
        )
        return scale_for_averaging(loss_sum, self._tokens, group=self.groups.dp) * self.schedule.num_microbatches

    def clip(self) -> torch.Tensor:
        """Clip by the norm of the whole gradient, (), or only find it: each of its elements on exactly one rank."""
        copies = {self.schedule.num_stages - 1: (HEAD,)} if self.tied else {}  # the first stage counts it
        pieces = [piece for part in self.parts for piece in part.pieces.values()]
        counted = [p for n, stage in self.stages.items() for p in stage.counted(without=copies.get(n, ()))]
        counted += [p for experts in self.experts.values() for p in experts.counted()]
        if self.max_norm is None:
            return global_norm(pieces, counted=counted, groups=self.norm_groups())
        return clip_grad_norm_(pieces, self.max_norm, counted=counted, groups=self.norm_groups())

    def norm_groups(self) -> list[dist.ProcessGroup]:
        """The groups over which the whole gradient lies in parts: of all replicas if ZeRO cuts it there, else of ep."""
        axes = ["tp", "pp", "dp" if self.zero else "ep"]
        return [group for axis in axes if dist.get_world_size(group := getattr(self.groups, axis)) > 1]

    def reported(self, loss: torch.Tensor | None) -> float:
        """The mean loss of all tokens, on every rank; `loss` is that of the last stage, None elsewhere."""
        value = torch.zeros((), dtype=torch.float64, device=device())  # ()
        if loss is not None:
            value += loss
        dist.all_reduce(value, group=self.groups.pp)
        dist.all_reduce(value, group=self.groups.dp)
        return value.item() / dist.get_world_size(self.groups.dp)


def _require_known(
    config: GPTConfig, layout: MeshLayout, zero: int, schedule: Schedule, is_tied_over_stages: bool
) -> None:
    if layout.ep > 1 and not isinstance(config, ExpertGPTConfig):
        raise ValueError(
            f"ep={layout.ep} divides experts, and this model has none: take an ExpertGPTConfig of "
            "dtlearn.expert_parallel, or ep=1"
        )
    if layout.ep > 1 and zero in (2, 3):
        raise ValueError(
            f"zero={zero} with ep={layout.ep}: ZeRO 2 and 3 reduce a stage in backward, over one group of replicas; "
            f"experts have {layout.dp * layout.cp} of them, all else {layout.dp * layout.cp * layout.ep}. "
            "Take zero=1 or ep=1"
        )
    if zero not in (0, 1, 2, 3):
        raise ValueError(f"zero is 0, 1, 2 or 3; got {zero}")
    if zero > 1 and is_tied_over_stages:
        raise ValueError(
            f"zero={zero} with tied embeddings in {schedule.num_stages} stages: the two gradients of the one weight "
            "would lie in pieces, cut in another way in each stage, when they are to be added up. Take zero=1, "
            "tie_embeddings=False, or pp=1"
        )
