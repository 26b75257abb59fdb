"""Metrics as sums: sums of two parts can be added, means and F1 scores cannot.

Three counts for each class are enough for precision, recall and F1. A confusion matrix adds up just as well, and takes
C numbers for every class instead of three.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from dtlearn.models.reference import LossFn


@dataclass(frozen=True, eq=False)
class Metrics:
    """The result of an evaluation, over all the samples it counted. `a + b` is the evaluation of both parts together.

    Attributes:
        loss_sum: sum of the losses of the samples.
        hits: (C,) int64, of each class the samples that were predicted as it, rightly.
        predicted: (C,) int64, the samples that were predicted as it.
        actual: (C,) int64, the samples that are of it.
    """

    loss_sum: float
    hits: torch.Tensor
    predicted: torch.Tensor
    actual: torch.Tensor

    @classmethod
    def nothing(cls, num_classes: int) -> Metrics:
        """Counts of no samples: the beginning of a sum."""
        zeros = torch.zeros(num_classes, dtype=torch.int64)
        return cls(0.0, zeros, zeros, zeros)

    @classmethod
    def of(cls, outputs: torch.Tensor, targets: torch.Tensor, loss_fn: LossFn) -> Metrics:
        """Counts of one batch, or of all predictions at once.

        Args:
            outputs: (B, C) scores, one per class; the largest is the prediction.
            targets: (B,) int64, the classes.
            loss_fn: mean loss of (outputs, targets), over the B samples.

        Raises:
            ValueError: the shapes are others, or a target is no class.
        """
        if outputs.ndim != 2 or targets.shape != outputs.shape[:1]:
            raise ValueError(
                f"outputs must be (B, C) and targets (B,); got {tuple(outputs.shape)} and {tuple(targets.shape)}"
            )
        num_classes = outputs.shape[1]
        if not len(targets):
            return cls.nothing(num_classes)  # a mean loss over nothing would be NaN
        if not 0 <= int(targets.min()) <= int(targets.max()) < num_classes:
            raise ValueError(f"targets must be between 0 and {num_classes - 1}, the classes of the outputs")
        guesses = outputs.argmax(dim=1)  # (B,)
        found = (targets[guesses == targets], guesses, targets)
        hits, predicted, actual = (torch.bincount(t, minlength=num_classes).cpu() for t in found)
        return cls(float(loss_fn(outputs, targets)) * len(targets), hits, predicted, actual)

    def __add__(self, other: Metrics) -> Metrics:
        return Metrics.unpack(self.pack() + other.pack())

    def pack(self) -> torch.Tensor:
        """The metrics as one tensor of sums, (1 + 3 C,) float64 on the CPU: it holds counts exactly up to 2 ** 53."""
        loss = torch.tensor([self.loss_sum], dtype=torch.float64)
        return torch.cat([loss, self.hits.double(), self.predicted.double(), self.actual.double()])

    @classmethod
    def unpack(cls, sums: torch.Tensor) -> Metrics:
        """The metrics from what `pack` gives, or from a sum of such tensors."""
        hits, predicted, actual = sums[1:].cpu().long().chunk(3)
        return cls(sums[0].item(), hits, predicted, actual)

    @property
    def count(self) -> int:
        """Number of samples."""
        return int(self.actual.sum())

    @property
    def correct(self) -> int:
        """Number of samples that were predicted rightly."""
        return int(self.hits.sum())

    @property
    def loss(self) -> float:
        """Mean over the samples; NaN without any."""
        return self.loss_sum / self.count if self.count else float("nan")

    @property
    def accuracy(self) -> float:
        """Share of the samples that were predicted rightly, 0 to 1; NaN without any."""
        return self.correct / self.count if self.count else float("nan")

    @property
    def f1(self) -> torch.Tensor:
        """(C,) float64: F1 = 2 hits / (predicted + actual) of each class; NaN for one that occurs in neither."""
        return 2 * self.hits.double() / (self.predicted + self.actual)

    @property
    def macro_f1(self) -> float:
        """Mean of F1 over the classes that occur among targets or predictions; NaN without any."""
        return self.f1.nanmean().item()

    def __str__(self) -> str:
        return (
            f"{self.count} samples: mean loss {self.loss:.4f}, accuracy {100 * self.accuracy:.2f} %, "
            f"macro F1 {self.macro_f1:.4f}"
        )
