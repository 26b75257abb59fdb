"""Handwritten digits: 1797 real images that come with scikit-learn, so that nothing is downloaded.

Source: E. Alpaydin and C. Kaynak, "Optical Recognition of Handwritten Digits", UCI Machine Learning Repository, 1998,
https://archive.ics.uci.edu/dataset/80/. scikit-learn ships the test set of that collection, written by 13 people.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch

from .reference import Batch

NUM_TEST = 360  # one fifth
SPLIT_SEED = 0


@dataclass(frozen=True)
class Digits:
    """The images and their labels, in two parts.

    Attributes:
        train_x: (1437, 64) float32, 8x8 pixels row by row, from 0 (paper) to 1 (ink).
        train_y: (1437,) int64, the digit.
        test_x: (360, 64) float32.
        test_y: (360,) int64.
    """

    train_x: torch.Tensor
    train_y: torch.Tensor
    test_x: torch.Tensor
    test_y: torch.Tensor

    def batches(self, num_batches: int, batch_size: int, *, seed: int = 0) -> Iterator[Batch]:
        """Global batches of training images: (B, 64) and (B,).

        The images are shuffled at the start of each epoch; those that no longer fill a batch are left out of it. The
        same seed gives the same batches in every process.

        Raises:
            ValueError: `num_batches` is negative, or `batch_size` is not between 1 and the number of training images.
        """
        num_images = len(self.train_x)
        if num_batches < 0:
            raise ValueError(f"num_batches must be 0 or more, got {num_batches}")
        if not 1 <= batch_size <= num_images:
            raise ValueError(f"batch_size must be between 1 and {num_images}, the training images, got {batch_size}")
        return self._batches(num_batches, batch_size, torch.Generator().manual_seed(seed))

    def _batches(self, num_batches: int, batch_size: int, generator: torch.Generator) -> Iterator[Batch]:
        per_epoch = len(self.train_x) // batch_size
        for index in range(num_batches):
            if index % per_epoch == 0:
                order = torch.randperm(len(self.train_x), generator=generator)
            start = index % per_epoch * batch_size
            rows = order[start : start + batch_size]
            yield self.train_x[rows], self.train_y[rows]


def load_digits() -> Digits:
    """Load the digits; the split into training and test images is random, and the same everywhere.

    The same people wrote the training and the test images, so the accuracy says nothing about other writers.

    Raises:
        ModuleNotFoundError: scikit-learn is not installed, or keeps the images elsewhere.
    """
    # The file is read directly: importing scikit-learn takes a second, and every rank would pay for it.
    package = find_spec("sklearn")
    file = Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz" if package and package.origin else None
    if file is None or not file.exists():
        raise ModuleNotFoundError("the digits come with scikit-learn (tested with 1.9): pip install scikit-learn")
    rows = np.loadtxt(file, delimiter=",", dtype=np.float32)  # (1797, 65): 64 pixels, and the digit
    # NumPy freezes what RandomState gives (NEP 19), so the split is the same with every version of every library.
    order = np.random.RandomState(SPLIT_SEED).permutation(len(rows))
    x = torch.from_numpy(rows[order, :-1] / 16)  # (1797, 64): pixels are integers from 0 to 16
    y = torch.from_numpy(rows[order, -1]).long()  # (1797,)
    return Digits(x[:-NUM_TEST], y[:-NUM_TEST], x[-NUM_TEST:], y[-NUM_TEST:])
