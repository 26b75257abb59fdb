"""Text classification: from which page of the Python documentation does a passage come?

The corpus holds pages, each under a heading underlined with asterisks. The eight longest pages are the classes. A
sample is a passage: whole paragraphs, joined or cut to about 200 to 400 characters, without overlap. The page's heading
is in no passage. Passages are split at random into training and test ones; so a test passage often stands between two
training passages of the same section, and accuracy on a page that nobody has read would be lower.

The model is fastText's (Joulin et al., "Bag of Tricks for Efficient Text Classification", arXiv:1607.01759): the mean
of the vectors of words and of pairs of neighbouring words, which share a table by hashing, and one linear layer.

Shapes in this file:
    B  passages    T_i  features of passage i, T the most of a batch    C  hidden size    K  classes
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence

from dtlearn.models.corpus import load_corpus
from dtlearn.models.reference import Batch

from .task import Defaults, TrainingTask

NUM_CLASSES = 8
SHORTEST, TARGET, LONGEST = 100, 200, 400  # characters of a passage: least, enough, most
TEST_PART = 4  # one passage in four
SPLIT_SEED = 0
BUCKETS = 8192  # rows of the hashed table
PADDING = 0  # the row that no feature has, for places behind the end of a passage
HIDDEN_SIZE = 32


def text_task() -> TrainingTask:
    """Passages of the Python documentation, with a bag of words and AdamW."""
    titles, passages = labelled_passages(load_corpus().text)
    samples = [(features(passage), label) for passage, label in passages]
    order = torch.randperm(len(samples), generator=torch.Generator().manual_seed(SPLIT_SEED)).tolist()
    num_test = len(samples) // TEST_PART
    return TrainingTask(
        "text",
        titles,
        [samples[i] for i in order[num_test:]],
        [samples[i] for i in order[:num_test]],
        collate_passages,
        BagOfWords,
        make_adamw,
        Defaults(epochs=12, batch_size=48, lr=0.02, warmup=10),
    )


def labelled_passages(text: str) -> tuple[tuple[str, ...], list[tuple[str, int]]]:
    """Titles of the longest pages, and (passage, class); a passage that stands twice is kept once, or not at all.

    Kept once if both are on one page (or it could be in training and in test); dropped if on two (of unclear class).
    """
    parts = re.split(r"^(.+)\n\*{3,}\n", text, flags=re.MULTILINE)  # what precedes, title, page, title, page, ...
    pages = sorted(zip(parts[1::2], parts[2::2], strict=True), key=lambda page: -len(page[1]))[:NUM_CLASSES]
    classes_of: dict[str, set[int]] = {}
    for label, (_, body) in enumerate(pages):
        for passage in split_page(body):
            classes_of.setdefault(passage, set()).add(label)
    titles = tuple(title for title, _ in pages)
    return titles, [(passage, min(labels)) for passage, labels in classes_of.items() if len(labels) == 1]


def split_page(body: str) -> list[str]:
    """The passages of a page: SHORTEST to LONGEST characters each, in order, without overlap.

    Short paragraphs are joined until there are TARGET characters; a long one is cut between words. Lines that
    underline the headings of sections are left out, and so is what is too short to be joined.
    """
    body = re.sub(r"^([=\-~^\"*])\1{2,}$", "", body, flags=re.MULTILINE)
    found, passage = [], ""
    for paragraph in re.split(r"\n\s*\n", body):
        for piece in cut(" ".join(paragraph.split())):
            if passage and len(passage) + 1 + len(piece) > LONGEST:
                found.append(passage)
                passage = ""
            passage = f"{passage} {piece}".strip()
            if len(passage) >= TARGET:
                found.append(passage)
                passage = ""
    return [passage for passage in [*found, passage] if len(passage) >= SHORTEST]


def cut(paragraph: str) -> list[str]:
    """The paragraph in pieces of at most LONGEST characters, cut at the last space that allows it."""
    pieces = []
    while len(paragraph) > LONGEST:
        end = paragraph.rfind(" ", TARGET, LONGEST)
        end = LONGEST if end < 0 else end
        pieces.append(paragraph[:end])
        paragraph = paragraph[end:].strip()
    return [*pieces, paragraph] if paragraph else pieces


def features(passage: str) -> torch.Tensor:
    """Rows of the table for a passage's words and for its pairs of words: (T_i,) int64.

    crc32 and not `hash`, which Python seeds anew in every process: ranks would not agree.
    """
    words = re.findall(r"[a-z_]+", passage.lower())
    pairs = [f"{first} {second}" for first, second in pairwise(words)]
    return torch.tensor(
        [1 + zlib.crc32(feature.encode()) % (BUCKETS - 1) for feature in words + pairs], dtype=torch.int64
    )


def collate_passages(samples: list[Any]) -> Batch:
    """Passages of unequal length, padded to the longest: (B, max T_i) and labels (B,), both int64."""
    bags = pad_sequence([bag for bag, _ in samples], batch_first=True, padding_value=PADDING)
    return bags, torch.tensor([label for _, label in samples])


class BagOfWords(nn.Module):
    """Mean of the features' vectors, padding left out, and a linear layer; 262,408 parameters.

    Args:
        dropout: probability of dropping a component of the mean while training.
    """

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.table = nn.EmbeddingBag(BUCKETS, HIDDEN_SIZE, mode="mean", padding_idx=PADDING)  # weight (BUCKETS, C)
        self.dropout = nn.Dropout(dropout)
        self.classify = nn.Linear(HIDDEN_SIZE, NUM_CLASSES)
        nn.init.normal_(self.table.weight, std=0.1)

    def forward(self, bags: torch.Tensor) -> torch.Tensor:
        """Logits of padded bags of features: (B, T) -> (B, K)."""
        logits: torch.Tensor = self.classify(self.dropout(self.table(bags)))  # (B, C) -> (B, K)
        return logits


def make_adamw(parameters: Iterable[nn.Parameter], lr: float) -> torch.optim.Optimizer:
    """AdamW with a weight decay of 0.01."""
    return torch.optim.AdamW(parameters, lr=lr, weight_decay=0.01)
