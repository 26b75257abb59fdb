"""Ray Tune runs the training script; the trial's function is tested without it, too."""

import pytest

from dtlearn.production.watching.tune_search import run_trial, search_learning_rate
from dtlearn.train import Options, TrainError, train

OPTIONS = Options(max_steps=20, device="cpu")


def test_a_trial_is_a_run_of_the_training_script():
    result = train(Options(max_steps=20, device="cpu", lr=0.05))
    assert run_trial({"max_steps": 20, "device": "cpu", "lr": 0.05}) == {
        "accuracy": result.accuracy,
        "losses": result.losses,
    }


@pytest.mark.watching
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.filterwarnings("default")  # Ray and what it imports warn of each other
def test_the_search_finds_the_rate_that_learns(tmp_path):
    try:
        trials = search_learning_rate([1e-5, 0.1], tmp_path, options=OPTIONS)
    except TimeoutError as error:  # Ray has no setting for it, and it says nothing about the search
        pytest.skip(str(error))
    assert [trial.lr for trial in trials] == [0.1, 1e-5]
    for trial in trials:
        alone = train(Options(max_steps=20, device="cpu", lr=trial.lr))
        assert trial.accuracy == alone.accuracy and list(trial.losses) == pytest.approx(alone.losses, rel=1e-5)
    assert trials[0].accuracy > trials[1].accuracy + 0.2


@pytest.mark.watching
def test_what_cannot_run_is_refused_before_ray_starts(tmp_path):
    with pytest.raises(ValueError, match="at least one learning rate"):
        search_learning_rate([], tmp_path)
    with pytest.raises(TrainError, match="--lr must be more than 0; got -1"):
        search_learning_rate([0.1, -1], tmp_path)
