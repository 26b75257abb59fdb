"""Methods by name: how each turns local gradients into an update of the parameters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from dtlearn.sharing.comm_hooks import GradBucket, Hook, allreduce_hook, fp16_compress_hook

from .tasks import SmallTask

Update = Callable[[], None]  # after backward: communicate, step, and clear the gradients


@dataclass(frozen=True)
class Method:
    """A way to train together.

    Attributes:
        name: for figures.
        set_up: called on every rank with the model, equal everywhere, and the task; gives the update of a step.
    """

    name: str
    set_up: Callable[[nn.Module, SmallTask], Update]


def hooked(name: str, make_state: Callable[[], Any], hook: Hook) -> Method:
    """A communication hook, with the task's optimizer.

    Args:
        name: for figures.
        make_state: gives the state that the hook is called with.
        hook: as `register_comm_hook` takes it.
    """

    def set_up(model: nn.Module, task: SmallTask) -> Update:
        bucket, optimizer, state = _one_bucket(model), task.optimizer(model.parameters()), make_state()

        def update() -> None:
            mean = hook(state, bucket).wait()
            if mean.data_ptr() != bucket.buffer().data_ptr():
                bucket.buffer().copy_(mean)
            optimizer.step()
            bucket.buffer().zero_()

        return update

    return Method(name, set_up)


def _one_bucket(model: nn.Module) -> GradBucket:
    """All gradients of a model in one buffer, where backward adds to them."""
    parameters = list(model.parameters())
    buffer = torch.zeros(sum(p.numel() for p in parameters), device=parameters[0].device)
    views = [v.view_as(p) for v, p in zip(buffer.split([p.numel() for p in parameters]), parameters, strict=True)]
    for parameter, view in zip(parameters, views, strict=True):
        parameter.grad = view
    return GradBucket(0, buffer, views, parameters, last=True)


METHODS = {
    method.name: method
    for method in (
        hooked("no compression", lambda: None, allreduce_hook),
        hooked("fp16", lambda: None, fp16_compress_hook),
    )
}
