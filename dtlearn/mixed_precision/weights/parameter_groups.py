"""What an optimizer is given to train, read as torch reads it, and checked; and the format of its updates."""

from __future__ import annotations

from typing import Any

import torch


def checked_groups(params: Any) -> list[dict[str, Any]]:
    """Parameter groups from parameters, named parameters or groups.

    Raises:
        TypeError: a parameter is not a floating-point tensor.
        ValueError: there are none, or one stands in two groups.
    """
    groups = torch.optim.Optimizer(params, {}).param_groups  # the class itself reads them, and has no options
    for group in groups:
        names = group.get("param_names", range(len(group["params"])))
        for name, parameter in zip(names, group["params"], strict=True):
            if not parameter.is_floating_point():
                raise TypeError(
                    f"parameter {name} is {parameter.dtype}, and only floating-point parameters can be trained: "
                    "register it as a buffer of the module, or leave it out of the optimizer"
                )
    return groups


def update_dtype(parameter: torch.Tensor) -> torch.dtype:
    """The format in which a parameter is updated: float32, or its own if that has more bits."""
    return torch.float32 if parameter.itemsize < 4 else parameter.dtype
