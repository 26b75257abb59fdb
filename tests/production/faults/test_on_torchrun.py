"""torchrun's restart, for real: all processes again, from the newest checkpoint."""

import sys
from pathlib import Path

import pytest

from dtlearn.production.faults.on_torchrun import follow_torchruns, with_restarts
from dtlearn.production.faults.scenarios import run_scenario
from dtlearn.production.faults.story import StoryLog, read_events
from dtlearn.runtime.launch import launch_command


def test_restarts_are_an_option_of_torchrun_and_not_of_the_script(tmp_path):
    command = with_restarts(launch_command(Path("rank.py"), 2, "torchrun", tmp_path), 3)
    at = command.index("--max-restarts")
    assert command[at + 1] == "3" and at < command.index("rank.py")


def test_the_line_in_which_the_agent_names_a_failed_process_is_noted(tmp_path):
    said = "failed (exitcode: -9) local_rank: 2 (pid: 7) of binary: python"
    log = StoryLog(tmp_path, -1, 0)
    reason = follow_torchruns([[sys.executable, "-c", f"print({said!r}); raise SystemExit(3)"]], log, 60.0)
    log.close()
    assert "exit code 3" in reason and said in reason
    (event,) = read_events(tmp_path, 0.0)
    assert (event.by, event.about, event.detail) == ("launcher", 2, "exit code -9")


def test_what_does_not_end_in_time_is_ended(tmp_path):
    log = StoryLog(tmp_path, -1, 0)
    assert "did not end within 0.2 s" in follow_torchruns([["sleep", "600"]], log, 0.2)
    log.close()


@pytest.mark.slow
def test_a_killed_rank_and_all_others_are_started_again():
    story = run_scenario("kill", launcher="torchrun", ranks=2, timeout=240.0)
    assert story.error == "" and story.worlds == (2, 2)
    assert set(story.losses) == set(range(8))
    assert "launcher" in {d.noticer for d in story.detections}
    assert {e.step for e in story.select("resumed", attempt=1)} == {4}


@pytest.mark.slow
def test_a_stopped_rank_is_killed_when_its_heartbeat_is_silent_and_torchrun_starts_all_again():
    story = run_scenario("stop", launcher="torchrun", ranks=2, timeout=240.0)
    assert story.error == "" and story.worlds == (2, 2)
    assert set(story.losses) == set(range(8))
    (heartbeat,) = [d for d in story.detections if d.noticer == "heartbeat"]
    assert heartbeat.names_rank and heartbeat.seconds < 30
    assert {e.about for e in story.select("killed")} == {1}
    assert {e.step for e in story.select("resumed", attempt=1)} == {4}
