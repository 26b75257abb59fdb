"""Passages, their features, and the model that reads them."""

import pytest
import torch

from dtlearn.models import load_corpus
from dtlearn.train.text import (
    LONGEST,
    NUM_CLASSES,
    PADDING,
    SHORTEST,
    BagOfWords,
    collate_passages,
    features,
    labelled_passages,
    split_page,
)


@pytest.fixture(scope="module")
def passages():
    return labelled_passages(load_corpus().text)


def test_passages_are_of_the_pages_and_no_longer_than_said(passages):
    titles, found = passages
    assert len(titles) == NUM_CLASSES and {label for _, label in found} == set(range(NUM_CLASSES))
    assert all(SHORTEST <= len(passage) <= LONGEST for passage, _ in found)
    plain = " ".join(word for word in load_corpus().text.split() if set(word) - set('=-~^"*') or len(word) < 3)
    assert sum(passage in plain for passage, _ in found) > 0.98 * len(found)  # tables have lines of other marks too


def test_no_passage_is_there_twice_or_holds_its_pages_heading(passages):
    titles, found = passages
    assert len({passage for passage, _ in found}) == len(found)
    assert not [passage for passage, label in found if f"{titles[label]} ***" in passage]
    headed = sum(passage.startswith(titles[label]) for passage, label in found)
    assert headed <= 1  # the sentence "Compound statements contain ..." is the page's own


def test_duplicates_are_dropped():
    body = "\n\n".join(f"{word} " * 60 for word in ("one", "two", "one"))
    other = "\n\n".join(f"{word} " * 60 for word in ("two", "three"))
    _, found = labelled_passages(f"\nA\n***\n\n{body}\nB\n***\n\n{other}")
    assert sorted((passage[:3], label) for passage, label in found) == [("one", 0), ("thr", 1)]


def test_short_paragraphs_are_joined_and_long_ones_cut():
    words = [f"w{number:03}" for number in range(300)]
    page = "Title\n=====\n\n" + " ".join(words[:20]) + "\n\n" + " ".join(words[20:60]) + "\n\n" + " ".join(words[60:])
    found = split_page(page)
    assert [len(passage) for passage in found] == [305, 399, 399, 399]
    assert found[0].startswith("Title w000") and " ".join(found).split()[1:] == words


def test_features_are_the_same_in_every_process():
    assert features("In in the").tolist() == [3531, 3531, 4129, 5242, 1656]


def test_padding_changes_nothing():
    model = BagOfWords()
    short, long = features("a short passage"), features("a passage that is a good deal longer")
    alone, together = model(short[None]), model(collate_passages([(short, 0), (long, 1)])[0])
    assert torch.allclose(alone[0], together[0], atol=1e-6)
    assert PADDING not in short.tolist()
    assert sum(p.numel() for p in model.parameters()) == 262_408
