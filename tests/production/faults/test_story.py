"""Events that survive a kill, and what a story concludes from them."""

import dataclasses

import pytest

from dtlearn.production.faults.story import Detection, FaultStory, StoryEvent, StoryLog, detection_rows, read_events

EVENTS = (
    StoryEvent(1.0, 0, 0, "step", 0, 9.0),
    StoryEvent(1.1, 1, 0, "step", 0, 9.0),
    StoryEvent(2.0, 0, 0, "step", 1, 8.0),
    StoryEvent(2.2, -1, 0, "noticed", by="progress"),  # before the fault: of nothing
    StoryEvent(3.0, 1, 0, "fault", 2, detail="kill"),
    StoryEvent(3.1, -1, 0, "noticed", by="heartbeat", about=0),  # a consequence
    StoryEvent(3.5, 0, 0, "noticed", by="connection"),
    StoryEvent(4.0, -1, 0, "noticed", by="heartbeat", about=1),
    StoryEvent(4.5, -1, 0, "noticed", by="heartbeat", about=1),
    StoryEvent(5.0, -1, 1, "noticed", by="launcher", about=1),  # of another attempt
    StoryEvent(7.0, 0, 1, "step", 1, 7.5),
    StoryEvent(8.0, 0, 1, "step", 2, 7.0),
)


@pytest.fixture
def story() -> FaultStory:
    return FaultStory("kill", "run_ranks", (1,), EVENTS, (2, 2))


def test_the_first_notice_of_each_kind_that_names_the_faulty_rank_or_nobody(story):
    assert story.detections == (
        Detection("kill", "run_ranks", "connection", False, 0.5),
        Detection("kill", "run_ranks", "heartbeat", True, 1.0),
    )
    assert detection_rows([story, story]) == list(2 * story.detections)


def test_steps_that_were_made_twice_count_with_their_last_loss(story):
    assert story.losses == {0: 9.0, 1: 7.5, 2: 7.0}
    assert story.repeated_steps == 1
    assert story.restart_seconds == 4.0


def test_a_story_without_a_fault_or_a_restart_has_neither_detections_nor_a_restart(story):
    quiet = dataclasses.replace(story, events=EVENTS[:3])
    assert quiet.detections == () and quiet.restart_seconds is None and quiet.fault is None


def test_events_are_selected_by_kind_rank_and_attempt(story):
    assert [e.step for e in story.select("step", rank=0, attempt=1)] == [1, 2]
    assert set(story.by_rank()) == {-1, 0, 1}
    assert {row["what"] for row in story.table()} == {"noticed", "fault"}


def test_half_a_line_of_a_killed_rank_is_left_out_and_times_begin_at_the_start(tmp_path):
    log, other = StoryLog(tmp_path, 1, 0), StoryLog(tmp_path, 0, 2)
    log("joined", now=12.0)
    other("noticed", now=11.0, by="launcher", about=1, attempt=3)
    log.close()
    other.close()
    file = next(tmp_path.glob("events-1-*"))
    file.write_bytes(file.read_bytes() + b'{"seconds": 13.0, "ra')
    assert read_events(tmp_path, 10.0) == (
        StoryEvent(1.0, 0, 3, "noticed", by="launcher", about=1),
        StoryEvent(2.0, 1, 0, "joined"),
    )
