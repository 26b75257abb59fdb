"""What the tasks learn from is what they say: passages, split, batches, places."""

import pytest
import torch

from dtlearn.models import load_corpus
from dtlearn.train.data import TrainingData, evaluation_batches
from dtlearn.train.group import Place
from dtlearn.train.options import Options, settle
from dtlearn.train.schedule import lr_factor, scaled_lr
from dtlearn.train.tasks import load_task
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
def text():
    return load_task("text")


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


def test_the_split_keeps_every_passage_once(text, passages):
    assert len(text.train) + len(text.test) == len(passages[1])
    assert len(text.test) == len(passages[1]) // 4
    assert "8 classes of unequal size (30 to 151 in training)" in str(text)
    assert str(load_task("digits")) == "digits: 1437 training and 360 test samples, 10 classes"


def test_the_baseline_always_says_the_class_that_is_largest_in_training(text):
    count = torch.bincount(torch.tensor([label for _, label in text.train]))
    of_largest = [label for _, label in text.test].count(int(count.argmax()))
    assert text.baseline == of_largest / len(text.test) == pytest.approx(0.221, abs=1e-3)


def test_features_are_the_same_in_every_process():
    assert features("In in the").tolist() == [3531, 3531, 4129, 5242, 1656]


def test_padding_changes_nothing():
    model = BagOfWords()
    short, long = features("a short passage"), features("a passage that is a good deal longer")
    alone, together = model(short[None]), model(collate_passages([(short, 0), (long, 1)])[0])
    assert torch.allclose(alone[0], together[0], atol=1e-6)
    assert PADDING not in short.tolist()
    assert sum(p.numel() for p in model.parameters()) == 262_408


def data_of(task, rank, world_size, **options):
    settings = settle(Options(task=task.name, **options), task.defaults)
    return TrainingData(task, settings, Place(rank, world_size, torch.device("cpu")))


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("workers", [0, 1])
def test_an_update_sees_the_same_samples_however_they_are_shared(text, accumulate, workers):
    def labels_of_update(number, world_size, **options):
        """Labels of an update's samples, sorted."""
        found = []
        for rank in range(world_size):
            data = data_of(text, rank, world_size, **options)
            data.sampler.set_epoch(3)
            batches = list(data.updates())[number]
            assert len(batches) == options.get("accumulate", 1)
            found += [int(label) for _, y in batches for label in y]
        return sorted(found)

    for number in (0, 11):
        one = labels_of_update(number, 1)
        assert len(one) == 48
        assert labels_of_update(number, 3, accumulate=accumulate, workers=workers) == one


@pytest.mark.parametrize("world_size", [1, 3, 7])
def test_a_test_sample_is_on_exactly_one_rank(text, world_size):
    batches = [evaluation_batches(text, Place(r, world_size, torch.device("cpu"))) for r in range(world_size)]
    assert sum(len(y) for loader in batches for _, y in loader) == len(text.test) == 199


def test_the_learning_rate_rises_and_falls():
    factors = [lr_factor(step, warmup=4, total=12) for step in range(13)]
    assert factors[:5] == [0.25, 0.5, 0.75, 1.0, 1.0]
    assert factors[8] == pytest.approx(0.5) and factors[12] == pytest.approx(0)
    assert factors[4:] == sorted(factors[4:], reverse=True)
    assert [scaled_lr(0.1, 384, 96, rule) for rule in ("none", "linear", "sqrt")] == [0.1, 0.4, 0.2]
