"""Copies of a wrapped model: `copy.deepcopy` of what holds a process group, which itself cannot be copied."""

from __future__ import annotations

import copy
from typing import Any, TypeVar

import torch.distributed as dist

Wrapper = TypeVar("Wrapper")


def copy_in_group(wrapper: Wrapper, memo: dict[int, Any], group: dist.ProcessGroup | None) -> Wrapper:
    """`wrapper.__deepcopy__(memo)`: copy all that it has but the group, which the copy shares.

    Args:
        wrapper: what is copied; as with `copy.deepcopy`, its `__setstate__` is called if it has one.
        memo: of `copy.deepcopy`.
        group: its ranks.
    """
    memo[id(group)] = group
    twin = memo[id(wrapper)] = type(wrapper).__new__(type(wrapper))
    state = copy.deepcopy(wrapper.__getstate__(), memo)
    restore: Any = getattr(twin, "__setstate__", vars(twin).update)
    restore(state)
    return twin
