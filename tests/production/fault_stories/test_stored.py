"""The stored stories of faults: that they are read as they were written, and tell what the scenarios promise."""

import pytest

from dtlearn.production.fault_stories.stored import ON_HOSTS, load_stories, run_all, write_stories
from dtlearn.production.faults import SCENARIOS

STORED = load_stories()


def test_every_scenario_is_there_under_every_launcher():
    pairs = {(story.name, story.launcher) for story in STORED.stories}
    expected = {(name, launcher) for name in SCENARIOS for launcher in ("run_ranks", "torchrun")}
    assert pairs == expected - {(ON_HOSTS, "run_ranks")}


@pytest.mark.parametrize("story", STORED.stories, ids=lambda s: f"{s.name}-{s.launcher}")
def test_each_job_went_on_to_its_end_and_somebody_named_the_rank(story):
    scenario = SCENARIOS[story.name]
    assert not story.error and story.last_step == 7  # of eight steps
    assert len(story.worlds) == 1 + scenario.restarts
    # A rank that leaves out a collective is one of several whose calls do not fit: nobody can say which was wrong.
    assert any(one.names_rank for one in story.detections) == (story.name != "skip")
    if scenario.fewer and story.launcher == "run_ranks":
        assert story.worlds[1] == story.worlds[0] - scenario.fewer


@pytest.mark.slow
def test_a_new_run_is_kept_and_read_alike(tmp_path):
    fresh = run_all(["flip_parameter"])
    write_stories(fresh, tmp_path / "kept.json")
    assert load_stories(tmp_path / "kept.json") == fresh
    assert {one.noticer for one in fresh.select("flip_parameter", "run_ranks").detections} >= {"check"}


def test_an_unknown_story_is_named():
    with pytest.raises(ValueError, match="no story of 'flood' under 'torchrun' is stored"):
        STORED.select("flood", "torchrun")
