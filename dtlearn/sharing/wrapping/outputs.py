"""What a model returned: the tensors in it, from which a backward pass can start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import torch


def tensors_in(value: Any) -> list[torch.Tensor]:
    """All tensors that require a gradient in a nest of lists, tuples, dictionaries and dataclasses."""
    if isinstance(value, torch.Tensor):
        return [value] if value.requires_grad else []
    if is_dataclass(value) and not isinstance(value, type):
        value = [getattr(value, field.name) for field in fields(value)]
    elif isinstance(value, Mapping):
        value = list(value.values())
    elif not isinstance(value, (list, tuple)):
        return []
    return [tensor for item in value for tensor in tensors_in(item)]
