"""A character-level text corpus that is shipped with the package, so that nothing is downloaded.

The text is reference prose from the Python documentation, copyright the Python Software Foundation. Beside it in
`data/` lie a notice, which says what was changed, and the licence (PSF License Version 2).
`tools/make_corpus.py` made the text.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from importlib.resources import files
from typing import Literal

import numpy as np
import torch

from .reference import Batch

FILE_NAME = "python_reference.txt"
SHA256 = "37aff741c959085d7091df0f7f512b6ae99a4897b72bd231d8fa463b71270a49"
VALIDATION_PART = 10  # one token in ten, at the end of the text


class Corpus:
    """A text as tokens, one per character.

    Attributes:
        text: the whole text.
        vocabulary: its characters, sorted; the token of a character is its place here.
        train: (N_train,) int64, the first nine tenths of the tokens.
        val: (N_val,) int64, the rest.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.vocabulary = "".join(sorted(set(text)))
        self._codes = code_points(self.vocabulary)
        tokens = self.encode(text)
        num_val = len(tokens) // VALIDATION_PART
        self.train = tokens[: len(tokens) - num_val]
        self.val = tokens[len(tokens) - num_val :]

    @property
    def vocab_size(self) -> int:
        """Number of different characters."""
        return len(self.vocabulary)

    def encode(self, text: str) -> torch.Tensor:
        """Tokens of a text, (N,) int64. Raises ValueError for a character that is not in the vocabulary."""
        if unknown := set(text).difference(self.vocabulary):
            first = next(character for character in text if character in unknown)
            raise ValueError(f"the character {first!r} is not in the vocabulary of this corpus")
        return torch.tensor(np.searchsorted(self._codes, code_points(text)), dtype=torch.int64)

    def decode(self, tokens: torch.Tensor) -> str:
        """The text of (N,) tokens. Raises ValueError for a token that is not in the vocabulary."""
        values = tokens.tolist()
        if values and not 0 <= min(values) <= max(values) < self.vocab_size:
            raise ValueError(f"tokens must be from 0 to {self.vocab_size - 1}, got {min(values)} to {max(values)}")
        return "".join(self.vocabulary[token] for token in values)

    def batches(
        self,
        num_batches: int,
        batch_size: int,
        context_length: int,
        *,
        seed: int = 0,
        split: Literal["train", "val"] = "train",
    ) -> Iterator[Batch]:
        """Random windows of the text: inputs (B, T) and targets (B, T), which are the inputs one character later.

        The same seed gives the same batches in every process.

        Args:
            num_batches: how many; one per training step.
            batch_size: B, of the global batch.
            context_length: T.
            seed: of the windows' places.
            split: the part of the text to read.

        Raises:
            ValueError: a size is too small, or longer than the split.
        """
        tokens = {"train": self.train, "val": self.val}.get(split)
        if tokens is None:
            raise ValueError(f'split must be "train" or "val", got {split!r}')
        if num_batches < 0 or batch_size < 1:
            raise ValueError(f"need num_batches >= 0 and batch_size >= 1, got {num_batches} and {batch_size}")
        if not 1 <= context_length < len(tokens):
            raise ValueError(f"context_length must be between 1 and {len(tokens) - 1}, got {context_length}")
        return _windows(tokens, num_batches, batch_size, context_length, torch.Generator().manual_seed(seed))


def code_points(text: str) -> np.ndarray:
    """The Unicode numbers of a text's characters, (N,) int32: far faster than `ord` for each of a whole corpus."""
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<i4")


def _windows(
    tokens: torch.Tensor, num_batches: int, batch_size: int, context_length: int, generator: torch.Generator
) -> Iterator[Batch]:
    offsets = torch.arange(context_length + 1)  # (T + 1,): one more, because the targets are one character later
    for _ in range(num_batches):
        starts = torch.randint(len(tokens) - context_length, (batch_size, 1), generator=generator)  # (B, 1)
        windows = tokens[starts + offsets]  # (B, T + 1)
        yield windows[:, :-1].contiguous(), windows[:, 1:].contiguous()


def load_corpus() -> Corpus:
    """Load the shipped corpus.

    Raises:
        ValueError: the file is missing or is not the one that was shipped.
    """
    try:
        text = files("dtlearn.models").joinpath("data", FILE_NAME).read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise ValueError(f"the corpus file {FILE_NAME} is missing from dtlearn.models: reinstall dtlearn") from error
    return Corpus(verified(text))


def verified(text: str) -> str:
    """The text itself, if it is the shipped one. Raises ValueError if not: losses could then not be compared."""
    found = hashlib.sha256(text.encode()).hexdigest()
    if found != SHA256:
        raise ValueError(
            f"the corpus {FILE_NAME} has been changed: its sha256 starts with {found[:12]}, not {SHA256[:12]}. "
            "Restore the file, or reinstall dtlearn"
        )
    return text
