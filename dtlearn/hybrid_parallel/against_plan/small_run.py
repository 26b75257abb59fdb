"""A small run, once as `HybridGPT` takes it and once as the planner does: what can be planned, and run here.

The planner knows models by their sizes, in 16 bits unless told otherwise, and the fullest rank. The course's GPT runs
in fp32 without recomputation, and keeps the gathered inputs of its products: the planner is told so.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from dtlearn.memory.arithmetic.published import sizes_of
from dtlearn.models import GPTConfig
from dtlearn.pipeline_parallel import Schedule, make_schedule
from dtlearn.planner import Axes, Cluster, Software, TrainingRun
from dtlearn.planner.hardware import Accelerator

from ..fit import check_layout, even_boundaries
from ..layout import MeshLayout, is_whole
from ..recipe import HybridGPT

# The rates do not matter: computation is measured. Links are those of `cluster_of`.
CPU = Accelerator("a core of this machine", 1e11, 0.5, 0.5, 4e9, 1e10, 1e9, 1e9)
NOTHING_HIDDEN = Software(1.0, tp_hidden=0.0, dp_hidden=False, pp_hidden=0.0, net=1.0, link=1.0)


@dataclass(frozen=True)
class SmallRun:
    """A run of `HybridGPT` with AdamW.

    Attributes:
        config: of the model, without dropout: its masks are bytes in the planner, and numbers of fp32 on a CPU.
        layout: of the mesh; a product of at most 8 ranks or so.
        global_batch: rows of a step, each as long as the context.
        zero, schedule, num_microbatches, chunks, sequence_parallel: as for `HybridGPT`.

    Raises:
        ValueError: what does not go together; cp or ep, whose bytes no rule here has; dropout; or a schedule that
            splits its backward passes: what waits for their second half is no matter of layers and micro-batches alone.
    """

    config: GPTConfig
    layout: MeshLayout
    global_batch: int = 8
    zero: int = 0
    schedule: str = "1f1b"
    num_microbatches: int = 1
    chunks: int | None = None
    sequence_parallel: bool = True

    def __post_init__(self) -> None:
        if self.layout.cp > 1 or self.layout.ep > 1:
            raise ValueError(
                f"cp={self.layout.cp}, ep={self.layout.ep}: only tp, pp and dp are planned to the byte; take cp=1 and "
                "ep=1 (`step_bytes` counts what all axes send)"
            )
        if not is_whole(self.zero) or self.zero not in range(4):
            raise ValueError(f"zero is 0, 1, 2 or 3; got {self.zero!r}")
        check_layout(
            self.layout,
            num_heads=self.config.num_heads,
            num_layers=self.config.num_layers,
            sequence_length=self.config.context_length,
            global_batch=self.global_batch,
            num_microbatches=self.num_microbatches,
            chunks=self.made_schedule.num_stages // self.layout.pp,
        )
        if self.config.dropout:
            raise ValueError(f"dropout={self.config.dropout}: masks have other bytes on a CPU; take dropout=0.0")
        if self.made_schedule.splits_backward:
            raise ValueError(f"{self.schedule} splits its backward passes; take gpipe, 1f1b or interleaved")

    @cached_property
    def made_schedule(self) -> Schedule:
        """The schedule of its pipelines."""
        return make_schedule(self.schedule, self.layout.pp, self.num_microbatches, self.chunks)

    @property
    def boundaries(self) -> tuple[int, ...]:
        """Where the model is cut into stages, as `split_gpt` takes it."""
        return even_boundaries(self.config.num_layers, self.made_schedule.num_stages)

    @property
    def microbatch(self) -> int:
        """Rows of a micro-batch."""
        return self.global_batch // (self.layout.num_replicas * self.num_microbatches)

    @property
    def divides_tokens(self) -> bool:
        """Whether tp divides the tokens between the layers."""
        return self.sequence_parallel and self.layout.tp > 1

    def training_run(self, cluster: Cluster | None = None) -> TrainingRun:
        """The same run for the planner. With one chunk: its axes have no chunks that are not even.

        Args:
            cluster: on which links; None: any will do for bytes.
        """
        axes = self.layout
        return TrainingRun(
            sizes_of(self.config),
            cluster or Cluster(CPU, axes.world_size, axes.world_size),
            Axes(axes.tp, axes.pp, axes.num_replicas, virtual_stages=self.made_schedule.num_stages // axes.pp),
            self.global_batch,
            self.microbatch,
            self.config.context_length,
            recompute="none",
            zero_stage=self.zero,
            precision="fp32 Adam",
            sequence_parallel=self.divides_tokens,
            schedule=self.schedule,
            software=NOTHING_HIDDEN,
            gather_again=False,
            element_bytes=4,
        )

    def make(self) -> HybridGPT:
        """The model of this rank. Every rank calls it."""
        return HybridGPT(
            self.config,
            self.layout,
            optimizer_class=torch.optim.AdamW,
            schedule=self.schedule,
            num_microbatches=self.num_microbatches,
            chunks=self.chunks,
            zero=self.zero,
            sequence_parallel=self.sequence_parallel,
            lr=1e-3,
        )

    def batch(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Tokens and targets of all rows, (B, T) each, the same on every rank."""
        generator = torch.Generator().manual_seed(0)
        size = (self.global_batch, self.config.context_length + 1)
        rows = torch.randint(self.config.vocab_size, size, generator=generator)
        return rows[:, :-1].contiguous(), rows[:, 1:].contiguous()

    def __str__(self) -> str:
        extra: dict[str, Any] = {"ZeRO ": self.zero, "m = ": self.num_microbatches if self.layout.pp > 1 else 0}
        words = [f"{word}{value}" for word, value in extra.items() if value]
        return ", ".join([str(self.layout), *([self.schedule] if self.layout.pp > 1 else []), *words])
