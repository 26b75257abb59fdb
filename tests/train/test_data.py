"""Which rank reads which samples."""

import pytest
import torch

from dtlearn.train import Options, TrainError
from dtlearn.train.data import TrainingData, check_batch, evaluation_batches
from dtlearn.train.options import settle
from dtlearn.train.ranks.group import RankOnDevice
from dtlearn.train.tasks import load_task


@pytest.fixture(scope="module")
def text():
    return load_task("text")


def data_of(task, rank, world_size, **options):
    settings = settle(Options(task=task.name, **options), task.defaults)
    return TrainingData(task, settings, RankOnDevice(rank, world_size, torch.device("cpu")))


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
    batches = [evaluation_batches(text, RankOnDevice(r, world_size, torch.device("cpu"))) for r in range(world_size)]
    assert sum(len(y) for loader in batches for _, y in loader) == len(text.test) == 199


def test_fewer_samples_than_ranks_are_refused():
    task = load_task("digits")
    with pytest.raises(TrainError, match="2000 ranks, but only 1437 training samples: start fewer ranks"):
        check_batch(task, settle(Options(), task.defaults), 2000)
