"""What a rank of a pipeline does, one piece of work at a time: `2F0` is stage 2, forward pass, micro-batch 0.

Letters are those of torch.distributed.pipelining. The zero bubble paper (2401.10241) writes B for the gradient of the
inputs alone, which is I here.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import NamedTuple

# stage, letter, micro-batch
PATTERN = re.compile(r"([0-9]+)([FBIW])([0-9]+)")


class Op(StrEnum):
    """Kind of work, by its letter.

    Attributes:
        F: forward pass of a stage.
        B: its whole backward pass: the gradients of its inputs and of its weights.
        I: the gradient of its inputs only, which the stage before waits for.
        W: the gradient of its weights only, which nobody waits for but the optimizer. I and W together are B.
    """

    F = "F"
    B = "B"
    I = "I"  # noqa: E741, the field's letter
    W = "W"


class Action(NamedTuple):
    """A piece of work that a rank does without a pause.

    Attributes:
        stage: number of the stage along the model, from 0.
        op: kind of work.
        microbatch: number of the micro-batch, from 0.
    """

    stage: int
    op: Op
    microbatch: int

    def __str__(self) -> str:
        return f"{self.stage}{self.op}{self.microbatch}"

    @classmethod
    def parse(cls, text: str) -> Action:
        """The action that prints as `text`.

        Raises:
            ValueError: no action prints like this.
        """
        if not (match := PATTERN.fullmatch(text)):
            raise ValueError(f"expected a stage, one of F, B, I and W, and a micro-batch, as in 2F0; got {text!r}")
        stage, op, microbatch = match.groups()
        return cls(int(stage), Op(op), int(microbatch))
