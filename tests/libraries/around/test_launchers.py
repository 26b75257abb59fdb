"""Launchers, started on a script that writes down what it was told."""

import pytest

from dtlearn.libraries.around.launchers import LAUNCHERS, launch, launcher_is_there


@pytest.mark.slow
def test_torchrun_says_who_is_who():
    found = launch("torchrun", 2)
    said = found.variables()
    assert (said["RANK"], said["LOCAL_RANK"], said["WORLD_SIZE"]) == (["0", "1"], ["0", "1"], ["2", "2"])
    assert found.arguments == () and len(set(said["MASTER_PORT"])) == 1
    assert "TORCHELASTIC_RUN_ID" in said


def test_accelerate_on_the_processor_starts_one_process_without_a_word():
    found = launch("accelerate launch --cpu", 2)
    assert (found.asked, len(found.ranks)) == (2, 1)
    said = found.variables()
    assert said["ACCELERATE_USE_CPU"] == ["True"] and "WORLD_SIZE" not in said


@pytest.mark.libraries
def test_deepspeed_hands_an_argument_over_too():
    found = launch("deepspeed", 2)
    said = found.variables()
    assert (said["RANK"], said["WORLD_SIZE"]) == (["0", "1"], ["2", "2"])
    assert found.arguments == ("--local_rank=0",)
    assert said["CUDA_VISIBLE_DEVICES"] == ["0,1", "0,1"]  # on a machine without a GPU as well


def test_what_is_no_launcher():
    with pytest.raises(ValueError, match="launcher must be one of 'torchrun'"):
        launch("mpirun")
    assert launcher_is_there("torchrun") and len(LAUNCHERS) == 3


@pytest.mark.parametrize("number", [0, -1, 2.0])
def test_a_number_of_ranks_that_is_none_is_refused(number):
    with pytest.raises(ValueError, match="num_ranks must be"):
        launch("torchrun", number)
