"""What a task is: data, model, optimizer, and settings that suit it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from dtlearn.models.reference import Batch


@dataclass(frozen=True)
class Defaults:
    """Settings that learn well; options of the command line replace them one by one.

    Attributes:
        epochs: passes over the data.
        batch_size: samples of one update, over all ranks.
        lr: learning rate at that batch size.
        warmup: updates until the learning rate is reached.
    """

    epochs: int
    batch_size: int
    lr: float
    warmup: int


@dataclass(frozen=True)
class TrainingTask:
    """A classification task.

    Attributes:
        name: as in `--task`.
        classes: a name for each class.
        train, test: samples, each an input and a label; no sample is in both.
        collate: makes a batch of samples: inputs (B, ...) and labels (B,) int64.
        make_model: from the dropout probability.
        make_optimizer: from parameters and learning rate.
        defaults: settings that learn well.
    """

    name: str
    classes: tuple[str, ...]
    train: Sequence[Any]
    test: Sequence[Any]
    collate: Callable[[list[Any]], Batch]
    make_model: Callable[[float], nn.Module]
    make_optimizer: Callable[[Iterable[nn.Parameter], float], torch.optim.Optimizer]
    defaults: Defaults

    @property
    def baseline(self) -> float:
        """Test accuracy (0 to 1) of a model that always says the class that is most frequent in training."""
        train_labels, test_labels = ([int(label) for _, label in samples] for samples in (self.train, self.test))
        most_frequent = max(sorted(set(train_labels)), key=train_labels.count)
        return test_labels.count(most_frequent) / len(test_labels)

    def __str__(self) -> str:
        sizes = torch.bincount(torch.tensor([int(label) for _, label in self.train]), minlength=len(self.classes))
        text = f"{self.name}: {len(self.train)} training and {len(self.test)} test samples, {len(self.classes)} classes"
        if sizes.max() > 2 * sizes.min():
            text += f" of unequal size ({sizes.min()} to {sizes.max()} in training)"
        return text
