"""Masked language modelling: hide some characters of a text, and ask for them.

BERT replaces 80 % of the places to guess by a mask and 10 % by a random token, and leaves 10 % as they are: a
model that is used later never meets a mask, so it must not rely on one.

Source: Devlin et al., "BERT", section 3.1, 2019 (arXiv 1810.04805).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

VOCAB_SIZE = 128  # the corpus has 103 characters
MASK = VOCAB_SIZE - 1  # a token that no character has
MASKED_PART = 0.15
REPLACED = 0.8  # by the mask; half of the others by a random token


@dataclass(frozen=True)
class MaskedBatch:
    """Some sequences, with K places of each to be guessed.

    Attributes:
        inputs: (B, T) int64, what the model sees.
        places: (B, K) int64, where it must guess, in order.
        targets: (B, K) int64, what stood there.
    """

    inputs: torch.Tensor
    places: torch.Tensor
    targets: torch.Tensor

    def rows(self, start: int, stop: int) -> MaskedBatch:
        """Some of its sequences: a rank's part, or a micro-batch."""
        return MaskedBatch(self.inputs[start:stop], self.places[start:stop], self.targets[start:stop])

    def to(self, device: torch.device) -> MaskedBatch:
        """The same batch on a device."""
        return MaskedBatch(self.inputs.to(device), self.places.to(device), self.targets.to(device))


def num_masked(context_length: int) -> int:
    """How many places of a sequence are asked for: the same in all.

    So every rank has the same number of targets, and the mean of the ranks' mean losses is the mean over all targets. A
    number that is drawn for each sequence would need a sum of targets over the ranks.
    """
    return max(1, round(MASKED_PART * context_length))


def mask_tokens(tokens: torch.Tensor, generator: torch.Generator, num_tokens: int) -> MaskedBatch:
    """Hide `num_masked(T)` places of each sequence.

    Args:
        tokens: (B, T) int64.
        generator: draws the places and what comes there.
        num_tokens: random tokens are drawn from those below it.
    """
    size, length = tokens.shape
    order = torch.rand(size, length, generator=generator).argsort(dim=1)  # (B, T): a random order of the places
    places = order[:, : num_masked(length)].sort(dim=1).values  # (B, K)
    targets = tokens.gather(1, places)  # (B, K)
    drawn = torch.rand(places.shape, generator=generator)  # (B, K)
    random = torch.randint(num_tokens, places.shape, generator=generator)
    shown = torch.where(drawn < (1 + REPLACED) / 2, random, targets)
    shown = torch.where(drawn < REPLACED, MASK, shown)
    return MaskedBatch(tokens.scatter(1, places, shown), places, targets)


def masked_batch(text: torch.Tensor, step: int, batch_size: int, context_length: int, seed: int) -> MaskedBatch:
    """The global batch of a step: random windows of the text, masked.

    It depends on the seed and on the step alone. So all ranks know it, each takes its rows, and a run that is resumed
    reads on where it stopped.

    Args:
        text: (N,) int64, the tokens of a whole text.

    Raises:
        ValueError: a window is longer than the text.
    """
    if not 1 <= context_length <= len(text):
        raise ValueError(f"context_length must be between 1 and the text's {len(text)} tokens, got {context_length}")
    generator = torch.Generator().manual_seed(seed * 1_000_003 + step)
    starts = torch.randint(len(text) - context_length + 1, (batch_size, 1), generator=generator)  # (B, 1)
    windows = text[starts + torch.arange(context_length)]  # (B, T)
    return mask_tokens(windows, generator, int(text.max()) + 1)
