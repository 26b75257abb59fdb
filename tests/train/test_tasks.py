"""What the tasks learn from is what they say."""

import pytest
import torch

from dtlearn.models import load_corpus
from dtlearn.train.tasks import load_task
from dtlearn.train.text import labelled_passages


@pytest.fixture(scope="module")
def text():
    return load_task("text")


def test_the_split_keeps_every_passage_once(text):
    passages = labelled_passages(load_corpus().text)
    assert len(text.train) + len(text.test) == len(passages[1])
    assert len(text.test) == len(passages[1]) // 4
    assert "8 classes of unequal size (30 to 151 in training)" in str(text)
    assert str(load_task("digits")) == "digits: 1437 training and 360 test samples, 10 classes"


def test_the_baseline_always_says_the_class_that_is_largest_in_training(text):
    count = torch.bincount(torch.tensor([label for _, label in text.train]))
    of_largest = [label for _, label in text.test].count(int(count.argmax()))
    assert text.baseline == of_largest / len(text.test) == pytest.approx(0.221, abs=1e-3)
