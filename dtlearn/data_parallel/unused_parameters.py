"""Which parameters will get no gradient: those that the outputs of this forward pass do not depend on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import nn

from dtlearn.sharing.wrapping.outputs import tensors_in


def parameters_used(outputs: Any) -> set[int]:
    """The ids of all leaf tensors that backward from these outputs reaches: a walk over the autograd graph.

    Args:
        outputs: what a model returned: tensors, also inside lists, tuples, dictionaries and dataclasses.
    """
    nodes = [t.grad_fn for t in tensors_in(outputs) if t.grad_fn is not None]
    used = {id(t) for t in tensors_in(outputs) if t.grad_fn is None}
    seen = set(nodes)
    while nodes:
        node = nodes.pop()
        if hasattr(node, "variable"):  # AccumulateGrad: the end of the graph, where a leaf gets its gradient
            used.add(id(node.variable))
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                nodes.append(following)
    return used


def unused_parameters(outputs: Any, parameters: Sequence[nn.Parameter]) -> list[int]:
    """Numbers of the parameters that `outputs` do not depend on."""
    used = parameters_used(outputs)
    return [number for number, parameter in enumerate(parameters) if id(parameter) not in used]
