"""The peak of a training step beside its formula, for several models: for `memory`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch
    from torch import nn

    from ...memory.arithmetic.activations import ActivationTable


def _mlp() -> tuple[nn.Module, ActivationTable, torch.Tensor, torch.Tensor]:
    import torch

    from ...memory.arithmetic.activations import mlp_activations
    from ...models import MLP

    sizes, batch = (64, 256, 256, 1024), 512  # with few classes the peak would lie later, at a hidden layer
    return MLP(sizes), mlp_activations(sizes, batch), torch.ones(batch, 64), torch.zeros(batch, dtype=torch.long)


def _gpt(**sizes: Any) -> tuple[nn.Module, ActivationTable, torch.Tensor, torch.Tensor]:
    import torch

    from ...memory.arithmetic.activations import gpt_activations
    from ...models import GPT, GPTConfig

    config, batch = GPTConfig(**sizes), 8
    inputs, targets = (torch.zeros(batch, config.context_length, dtype=torch.long) for _ in range(2))
    return GPT(config), gpt_activations(config, batch, config.context_length), inputs, targets


# Each as model, table of activations, inputs and targets; a batch at which activations are most of the memory.
MODELS: dict[str, Callable[[], tuple[nn.Module, ActivationTable, torch.Tensor, torch.Tensor]]] = {
    "MLP": _mlp,
    "GPT": _gpt,
    "GPT, tied embeddings": functools.partial(_gpt, tie_embeddings=True, vocab_size=512),
    "GPT, dropout": functools.partial(_gpt, dropout=0.1, num_layers=8),
}


def peak_and_formula(name: str) -> tuple[int, int]:
    """Bytes at the peak of a step with Adam: counted, and by the formula.

    Where activations fill the memory, the peak is the first operation of backward: parameters, Adam's moments, the
    batch, all activations, and twice the logits: the gradient of the log-softmax, and that of the logits.
    """
    import torch
    from torch import nn

    from ...memory.arithmetic.activations import table_bytes
    from ...memory.arithmetic.training_state import optimizer_state_of, tensor_bytes
    from ...memory.ledger.ledger import MemoryLedger

    torch.manual_seed(0)
    model, table, inputs, targets = MODELS[name]()
    optimizer = torch.optim.Adam(model.parameters())
    logits = 0

    def step() -> None:
        nonlocal logits
        outputs = model(inputs)
        logits = tensor_bytes(outputs)
        loss = nn.functional.cross_entropy(outputs.reshape(targets.numel(), -1), targets.flatten())
        del outputs
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    step()  # makes the optimizer's state
    with MemoryLedger(model, optimizer, inputs=(inputs, targets)) as ledger:
        step()
    parameters = list(model.parameters())
    there = sum(map(tensor_bytes, [*parameters, inputs, targets])) + optimizer_state_of(parameters, "Adam")
    return ledger.peak, there + table_bytes(table) + 2 * logits
