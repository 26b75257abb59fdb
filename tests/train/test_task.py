"""What a task says of itself."""

import torch

from dtlearn.train.task import Defaults, TrainingTask


def task_of(train_labels, test_labels):
    train, test = ([(torch.zeros(1), label) for label in labels] for labels in (train_labels, test_labels))
    defaults = Defaults(epochs=1, batch_size=2, lr=0.1, warmup=0)
    return TrainingTask("small", ("a", "b", "c"), train, test, list, torch.nn.Dropout, torch.optim.SGD, defaults)


def test_the_baseline_is_that_of_the_largest_class_in_training():
    assert task_of([0, 1, 1, 2], [1, 0, 0, 0]).baseline == 0.25
    assert task_of([2, 1, 1, 2], [1, 1, 2]).baseline == 2 / 3  # of equal classes the first


def test_unequal_classes_are_said():
    assert str(task_of([0, 0, 1, 2], [1])) == "small: 4 training and 1 test samples, 3 classes"
    unequal = "small: 5 training and 1 test samples, 3 classes of unequal size (1 to 3 in training)"
    assert str(task_of([0, 0, 0, 1, 2], [1])) == unequal
    assert (
        str(task_of([0, 0], []))
        == "small: 2 training and 0 test samples, 3 classes of unequal size (0 to 2 in training)"
    )
