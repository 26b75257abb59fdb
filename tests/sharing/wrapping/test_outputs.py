"""Tensors are found in whatever a model returns."""

from dataclasses import dataclass

import torch

from dtlearn.sharing.wrapping.outputs import tensors_in


@dataclass
class Outputs:
    logits: torch.Tensor
    more: dict


def test_tensors_that_require_a_gradient_are_found_in_every_container():
    a, b, plain = torch.ones(1, requires_grad=True), torch.ones(2, requires_grad=True), torch.ones(3)
    nests = [[a, (b,)], {"y": a, "z": [b, plain]}, Outputs(a, {"z": b}), (a, 3, None, "text", plain, b)]
    assert all([id(t) for t in tensors_in(nest)] == [id(a), id(b)] for nest in nests)
    assert tensors_in([plain, Outputs, None]) == []  # a class is no container
