"""Costs of a parameter while a model trains: the weight, its gradient, and what the optimizer keeps of it.

"16 bytes per parameter" is right for fp32 Adam and for one of three ways to count mixed precision; the others are 18
and 20. They differ in the gradients only. `CONVENTIONS` names each way, what it counts, and who counts so.

Bytes are counted in GB, 10^9 bytes, by ZeRO, and in GiB, 2^30 bytes, by the driver of a GPU; papers mix the two names.
A GiB is 7.4 % more.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn

GB = 10**9
GIB = 2**30

StateBytes = dict[str, int]  # bytes by category, with the ledger's names
Optimizer = Literal["SGD", "SGD with momentum", "Adam"]


@dataclass(frozen=True)
class BytesPerParameter:
    """A way to count the bytes of one parameter in training.

    Attributes:
        name: as in `CONVENTIONS`.
        weight: of the parameter that forward and backward use.
        gradient: of all copies of its gradient.
        master: of the fp32 copy that the optimizer updates; 0 where the weight itself is fp32.
        moments: momentum and variance, or whatever else the optimizer keeps.
        source: who counts so.
    """

    name: str
    weight: int
    gradient: int
    master: int
    moments: int
    source: str

    @property
    def total(self) -> int:
        """Bytes per parameter."""
        return self.weight + self.gradient + self.optimizer_state

    @property
    def optimizer_state(self) -> int:
        """Bytes per parameter that live in the optimizer: the master copy too."""
        return self.master + self.moments


CONVENTIONS = {
    convention.name: convention
    for convention in (
        BytesPerParameter("fp32 SGD", 4, 4, 0, 0, "torch.optim.SGD"),
        BytesPerParameter("fp32 SGD with momentum", 4, 4, 0, 4, "torch.optim.SGD"),
        BytesPerParameter(
            "fp32 Adam", 4, 4, 0, 8, "torch.optim.Adam, AdamW; torch.autocast adds its 16-bit weights, until backward"
        ),
        BytesPerParameter("mixed 16", 2, 2, 4, 8, "ZeRO, 1910.02054, section 3.1: gradients in 16 bits"),
        BytesPerParameter(
            "mixed 18", 2, 4, 4, 8, "Megatron-LM, bf16, and Hugging Face's documentation: fp32 gradients only"
        ),
        BytesPerParameter(
            "mixed 20", 2, 2 + 4, 4, 8, "Megatron-LM, fp16: gradients in 16 bits, and an fp32 copy of them"
        ),
    )
}


def training_state(num_parameters: int, convention: str | BytesPerParameter) -> StateBytes:
    """Bytes of the training state of so many parameters, by category; activations come on top.

    175 * 10^9 parameters, GPT-3's, are 700 GB of fp32 weights, and 2.8 TB of training state at 16 bytes each.

    Raises:
        ValueError: a negative number of parameters, or a convention that is not in `CONVENTIONS`.
    """
    if num_parameters < 0:
        raise ValueError(f"num_parameters must be 0 or more, got {num_parameters}")
    rule = find_convention(convention)
    return {
        "parameters": num_parameters * rule.weight,
        "gradients": num_parameters * rule.gradient,
        "optimizer state": num_parameters * rule.optimizer_state,
    }


def training_state_of(parameters: Iterable[nn.Parameter], convention: str | BytesPerParameter) -> StateBytes:
    """Bytes of the training state of these parameters: of all groups of an optimizer, say, one after the other.

    A tied parameter counts once, however often it comes. A frozen one is a weight and nothing else: it has no gradient,
    so the optimizer keeps nothing of it.

    Raises:
        ValueError: a convention that is not in `CONVENTIONS`.
    """
    once = {id(parameter): parameter for parameter in parameters}.values()
    trained = training_state(sum(p.numel() for p in once if p.requires_grad), convention)
    frozen = training_state(sum(p.numel() for p in once if not p.requires_grad), convention)
    return {**trained, "parameters": trained["parameters"] + frozen["parameters"]}


def optimizer_state_of(parameters: Iterable[nn.Parameter], optimizer: Optimizer) -> int:
    """Bytes that an optimizer of torch keeps after its first step: what the ledger counts, to the byte.

    Adam (and AdamW) keeps two tensors like each parameter and, for each, the number of steps as a number of 4 bytes,
    which is left out of "8 bytes per parameter". A frozen parameter has no state.

    Raises:
        ValueError: another optimizer.
    """
    kept = {
        "SGD": (0, 0),
        "SGD with momentum": (1, 0),
        "Adam": (2, 4),
    }  # copies of the parameter, and bytes beside them
    if optimizer not in kept:
        raise ValueError(f"known optimizers are {', '.join(kept)}; got {optimizer!r}")
    copies, beside = kept[optimizer]
    once = {id(parameter): parameter for parameter in parameters if parameter.requires_grad}.values()
    return sum(copies * tensor_bytes(parameter) + beside for parameter in once)


def tensor_bytes(tensor: torch.Tensor) -> int:
    """Bytes of the elements of a tensor."""
    return tensor.numel() * tensor.element_size()


def find_convention(convention: str | BytesPerParameter) -> BytesPerParameter:
    """The convention of a name.

    Raises:
        ValueError: there is none of that name.
    """
    if isinstance(convention, BytesPerParameter):
        return convention
    if convention not in CONVENTIONS:
        raise ValueError(f"{convention!r} is none of the conventions; take one of: {', '.join(CONVENTIONS)}")
    return CONVENTIONS[convention]
