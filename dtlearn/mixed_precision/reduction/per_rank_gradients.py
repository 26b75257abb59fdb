"""Gradients that many ranks would have, from one backward pass in this process."""

from __future__ import annotations

from typing import Any

import torch

from dtlearn.models import GPT, GPTConfig, load_corpus, next_token_loss


def per_rank_gradients(num_ranks: int, numel: int = 4096, length: int = 16, seed: int = 0) -> torch.Tensor:
    """Real gradients, a row per rank: a small GPT at its start, one sequence of the corpus on each rank. (N, numel)

    Of one weight, the first layer of the first block's feed-forward network. All sequences are one batch, and the
    weight's gradient is split up by sequence: the gradient of a linear layer is the product of what came in and of the
    gradient of what went out, summed over the tokens.

    **Memory**: N * numel * 4 bytes, and the batch's activations.

    Args:
        num_ranks: N.
        numel: elements of the gradient that are returned, 64 to 16,384, a multiple of 64.
        length: tokens of a sequence.
        seed: of the model and of the choice of sequences.

    Raises:
        ValueError: another `numel`.
    """
    config = GPTConfig(num_layers=1)
    if numel not in range(64, 4 * config.hidden_size**2 + 1, config.hidden_size):
        raise ValueError(f"numel must be a multiple of 64 up to 16384; got {numel}")
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = GPT(config)
    seen: dict[str, torch.Tensor] = {}

    def keep(layer: Any, inputs: tuple[torch.Tensor], output: torch.Tensor) -> None:
        seen["inputs"] = inputs[0].detach()  # (N, T, C)
        output.register_hook(lambda gradient: seen.update(outputs=gradient))  # (N, T, F)

    model.get_submodule("blocks.0.feed_forward.up").register_forward_hook(keep)
    ((inputs, targets),) = load_corpus().batches(1, num_ranks, length, seed=seed)  # (N, T) each
    loss = next_token_loss(model(inputs), targets)
    (num_ranks * loss).backward()  # the sum of the ranks' losses, each a mean over its own tokens
    rows = numel // config.hidden_size
    gradients = torch.einsum("ntf,ntc->nfc", seen["outputs"][..., :rows], seen["inputs"])  # (N, rows, C)
    return gradients.flatten(1)
