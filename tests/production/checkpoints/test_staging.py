import threading

import pytest
import torch

from dtlearn.production.checkpoints.staging import BackgroundTask, Staging
from dtlearn.sharing.resharding import whole_piece


def test_a_copy_does_not_change_when_training_goes_on():
    values, staging = torch.arange(4.0), Staging()
    [(piece, copy)] = staging.copy({"w": (whole_piece((4,)), values)}).values()
    values += 1
    assert piece == whole_piece((4,)) and copy.tolist() == [0, 1, 2, 3]


def test_the_memory_of_the_copies_is_used_again():
    values, staging = torch.arange(4.0), Staging()
    first = staging.copy({"w": (whole_piece((4,)), values)})["w"][1]
    second = staging.copy({"w": (whole_piece((4,)), values + 1)})["w"][1]
    assert first.data_ptr() == second.data_ptr() and second.tolist() == [1, 2, 3, 4]
    other = staging.copy({"w": (whole_piece((5,)), torch.zeros(5))})["w"][1]
    assert other.shape == (5,)


def test_a_task_runs_beside_and_its_error_is_raised_once():
    task, gate = BackgroundTask(), threading.Event()
    assert task.finish() < 60 and not task.is_running  # nothing to wait for

    def fail():
        gate.wait(30)
        raise OSError("no room")

    task.start(fail)
    assert task.is_running
    gate.set()
    with pytest.raises(OSError, match="no room"):
        task.finish()
    task.finish()
    task.start(lambda: None)
    task.finish()
