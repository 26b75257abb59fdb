# expect: DTL-VALUE-FROZEN-COUNTED
# says: gradients: frozen parameters are counted
# says: they have no gradient

from typing import Any

import torch


def adam_state(
    named_parameters: list[tuple[str, torch.nn.Parameter]],
    groups: list[dict[str, Any]],
    convention: int,
) -> dict[str, int]:
    """Return the bytes of training state, by category."""
    in_groups = {id(parameter) for group in groups for parameter in group["params"]}
    weights = gradients = state = 0
    for parameter in {id(parameter): parameter for _, parameter in named_parameters}.values():
        is_half = parameter.element_size() == 2
        weights += parameter.numel() * parameter.element_size()
        per_gradient = {16: 2, 18: 4, 20: 2 + 4}[convention] if is_half else 4
        gradients += parameter.numel() * per_gradient
        if id(parameter) in in_groups:
            master = 4 if is_half else 0
            state += parameter.numel() * (master + 4 + 4)
    return {"parameters": weights, "gradients": gradients, "optimizer state": state}
