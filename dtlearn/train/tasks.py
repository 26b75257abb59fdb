"""What can be learnt: data, model, optimizer, and settings that suit two CPU cores."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils.data import default_collate

from dtlearn.models.digits import load_digits
from dtlearn.models.mlp import MLP
from dtlearn.models.reference import Batch
from dtlearn.train.errors import TrainError


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
class Task:
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


def make_digits_model(dropout: float) -> nn.Module:
    """(B, 64) -> (B, 10): an MLP whose inputs may be dropped out."""
    return nn.Sequential(OrderedDict(dropout=nn.Dropout(dropout), mlp=MLP()))


def make_sgd(parameters: Iterable[nn.Parameter], lr: float) -> torch.optim.Optimizer:
    """SGD with momentum 0.9."""
    return torch.optim.SGD(parameters, lr=lr, momentum=0.9)


def digits_task() -> Task:
    """Handwritten digits, with an MLP and SGD."""
    digits = load_digits()
    return Task(
        "digits",
        tuple("0123456789"),
        list(zip(digits.train_x, digits.train_y, strict=True)),
        list(zip(digits.test_x, digits.test_y, strict=True)),
        default_collate,
        make_digits_model,
        make_sgd,
        Defaults(epochs=15, batch_size=96, lr=0.1, warmup=10),
    )


def load_task(name: str) -> Task:
    """The task of that name, "digits" or "text". Raises TrainError for another, or if its data are not there."""
    from dtlearn.train.text import text_task  # text.py makes its task of the parts above

    makers: dict[str, Callable[[], Task]] = {"digits": digits_task, "text": text_task}
    if name not in makers:
        raise TrainError(f"--task must be one of {', '.join(makers)}; got {name!r}")
    try:
        return makers[name]()
    except (ModuleNotFoundError, ValueError) as error:
        raise TrainError(f"the data of {name} cannot be read: {error}") from error
