"""What `on_rank` of a check imports: groups, parameters with gradients, refusals. Runs on the ranks."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.distributed as dist

_groups: dict[tuple[Any, ...], Any] = {}


def own_group(groups: Sequence[Sequence[int]]) -> dist.ProcessGroup | None:
    """The group of this rank among these lists of ranks; None, all ranks, if there are no lists.

    All ranks call it, in the same order. A group is made once for as long as the default group lives.
    """
    own = None
    for ranks in groups:
        key = (id(dist.group.WORLD), *ranks)
        if key not in _groups:
            _groups[key] = dist.new_group(list(ranks))
        own = _groups[key] if dist.get_rank() in ranks else own
    return own


def parameters(gradients: Sequence[torch.Tensor | None], value: float = 1.0) -> list[torch.nn.Parameter]:
    """Parameters that are all `value`, with copies of these gradients; of None one of four elements without one."""
    made = [torch.nn.Parameter(torch.full((4,) if g is None else g.shape, value)) for g in gradients]
    for parameter, gradient in zip(made, gradients, strict=True):
        parameter.grad = None if gradient is None else gradient.clone()
    return made


def refusal(call: Callable[..., object], *args: Any, **kwargs: Any) -> str:
    """How a call refuses what it is given: "a ValueError that names 4 and 3", the numbers in the order of the message;
    "a TypeError"; "nothing was raised"."""
    try:
        call(*args, **kwargs)
    except ValueError as error:
        numbers = re.findall(r"\d+", str(error))
        return f"a ValueError that names {' and '.join(numbers) or 'no number'}"
    except Exception as error:
        return f"a {type(error).__name__}"
    return "nothing was raised"
