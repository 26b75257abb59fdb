"""What can be learnt, in a time that suits two CPU cores."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable

import torch
from torch import nn
from torch.utils.data import default_collate

from dtlearn.models.digits import load_digits
from dtlearn.models.mlp import MLP

from .ranks.rank_0 import TrainError
from .task import Defaults, TrainingTask
from .text import text_task


def make_digits_model(dropout: float) -> nn.Module:
    """(B, 64) -> (B, 10): an MLP whose inputs may be dropped out."""
    return nn.Sequential(OrderedDict(dropout=nn.Dropout(dropout), mlp=MLP()))


def make_sgd(parameters: Iterable[nn.Parameter], lr: float) -> torch.optim.Optimizer:
    """SGD with momentum 0.9."""
    return torch.optim.SGD(parameters, lr=lr, momentum=0.9)


def digits_task() -> TrainingTask:
    """Handwritten digits, with an MLP and SGD."""
    digits = load_digits()
    return TrainingTask(
        "digits",
        tuple("0123456789"),
        list(zip(digits.train_x, digits.train_y, strict=True)),
        list(zip(digits.test_x, digits.test_y, strict=True)),
        default_collate,
        make_digits_model,
        make_sgd,
        Defaults(epochs=15, batch_size=96, lr=0.1, warmup=10),
    )


def load_task(name: str) -> TrainingTask:
    """The task of that name, "digits" or "text". Raises TrainError for another, or if its data are not there."""
    makers: dict[str, Callable[[], TrainingTask]] = {"digits": digits_task, "text": text_task}
    if name not in makers:
        raise TrainError(f"--task must be one of {', '.join(makers)}; got {name!r}")
    try:
        return makers[name]()
    except (ModuleNotFoundError, ValueError) as error:
        raise TrainError(f"the data of {name} cannot be read: {error}") from error
