"""Deep gradient compression: what top-k at a ratio of 1/1000 needs beside error feedback.

Source: Lin, Han, Mao, Wang and Dally, "Deep Gradient Compression: Reducing the Communication Bandwidth for Distributed
Training", ICLR 2018, arXiv:1712.01887, sections 3.2 and 3.3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn

from .codecs.codec import Codec, Payload
from .codecs.sparse import RandomK, TopK
from .error_feedback import ErrorFeedback
from .residuals import Residuals, Updates


class MomentumCorrection(ErrorFeedback):
    """Error feedback of a velocity, in the place of a gradient.

    An optimizer with momentum would take what arrives late as a gradient of today: each element's momentum would begin
    when it is sent. So the momentum goes before the codec, and the optimizer is SGD without any:

        u = m u + g,    v = v + u,    c = C(v) is sent,    v = v - c,    u = 0 where c was sent

    The last is momentum factor masking: what was computed before an element was sent does not push it on afterwards.
    A codec that sends everything leaves no momentum at all.

    **Communication**: none. **Memory**: 8 bytes a parameter (16 for float64), and four times a bucket to encode it;
    with `compress_hook` twice all buckets that are under way.

    Args:
        codec: TopK or RandomK, since others send something of every element.
        momentum: m.
        max_norm: clips each parameter's local gradient before anything else; the paper has 1 / sqrt(N) times the limit
            of the whole gradient, as N independent gradients add up to sqrt(N) times the norm. None: no limit. (A hook
            sees one bucket at a time, so the norm of the whole gradient is not known when the first one leaves.)

    Raises:
        ValueError: another codec, a momentum outside [0, 1), or a limit that is not positive.
    """

    def __init__(self, codec: Codec, *, momentum: float = 0.9, max_norm: float | None = None) -> None:
        if not isinstance(codec, TopK | RandomK):
            raise ValueError(f"momentum correction needs a codec that sends few elements, TopK or RandomK; got {codec}")
        if not 0 <= momentum < 1:
            raise ValueError(f"the momentum must be 0 or more, and less than 1; got {momentum}")
        if max_norm is not None and not max_norm > 0:
            raise ValueError(f"max_norm must be more than 0, or None for no limit; got {max_norm}")
        super().__init__(codec)
        self.velocities = Residuals()
        self.momentum, self.max_norm = momentum, max_norm

    def prepare(
        self, gradient: torch.Tensor, parameters: Sequence[torch.Tensor], *, generator: torch.Generator | None = None
    ) -> tuple[Payload, Updates]:
        velocity, residual = self.velocities.of(parameters, gradient), self.residuals.of(parameters, gradient)
        if self.max_norm is not None:
            gradient = clipped(gradient, [p.numel() for p in parameters], self.max_norm)
        pushed = velocity * self.momentum + gradient
        given = residual + pushed
        payload = self.codec.encode(given, generator=generator)
        sent = self.codec.decode(payload, len(given))
        left = given - sent
        return payload, [(residual, left), (velocity, torch.where(sent == 0, pushed, 0))]

    def state_dict(self, model: nn.Module) -> dict[str, Any]:
        return {**super().state_dict(model), "velocities": self.velocities.state_dict(model)}

    def load_state_dict(self, state: dict[str, Any], model: nn.Module) -> None:
        if "velocities" not in state:
            raise ValueError("this state was saved without momentum correction: make the ErrorFeedback that it is of")
        super().load_state_dict(state, model)
        self.velocities.load_state_dict(state["velocities"], model)


def clipped(gradient: torch.Tensor, sizes: Sequence[int], max_norm: float) -> torch.Tensor:
    """A copy of a flat gradient, (n,), in which no parameter's part has a norm of more than `max_norm`."""
    parts = []
    for part in gradient.split(list(sizes)):
        parts.append(part * (max_norm / torch.linalg.vector_norm(part)).clamp(max=1))  # 0 / 0 is no limit
    return torch.cat(parts)


def warm_up_sparsity(ratio: float, *, stages: int, steps_per_stage: int) -> Callable[[int], TopK]:
    """Top-k that begins mildly: the codec of each step, for `CompressionState(codec_at=)`.

    The ratio of stage i = 0, 1, ... is ratio^((i + 1) / (stages + 1)), after the last stage
    `ratio`: with 0.001 and 4 stages 25 %, 6.3 %, 1.6 %, 0.4 %, 0.1 %. The paper takes an epoch
    for a stage.

    Raises:
        ValueError: a ratio outside (0, 1], or less than one stage or step.
    """
    if not 0 < ratio <= 1 or stages < 1 or steps_per_stage < 1:
        raise ValueError(
            "warm_up_sparsity takes a ratio of more than 0 and at most 1, and one stage or more of "
            f"one step or more; got {ratio}, {stages} and {steps_per_stage}"
        )

    def codec_at(step: int) -> TopK:
        stage = min(step // steps_per_stage, stages)
        return TopK(ratio=ratio ** ((stage + 1) / (stages + 1)))

    return codec_at
