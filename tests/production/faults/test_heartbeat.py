"""A monitor that hears heartbeats: of ranks that go on, fall silent, stand still, and are done."""

import json
import os
import threading
import time

import pytest

from dtlearn.production.faults.heartbeat import Heartbeat, HeartbeatMonitor, host_store

LIMIT, LONG = 0.3, 30.0


class Heard:
    """What a monitor has told, as far as the test waits for it."""

    def __init__(self) -> None:
        self.told: list[tuple[int, int | None, str]] = []
        self.changed = threading.Event()

    def __call__(self, attempt: int, rank: int | None, by: str) -> None:
        self.told.append((attempt, rank, by))
        self.changed.set()

    def wait(self) -> list[tuple[int, int | None, str]]:
        assert self.changed.wait(LONG), "the monitor has told nothing"
        return self.told


@pytest.fixture
def store():
    return host_store()


@pytest.fixture
def monitored(store):
    """Start a monitor with limits, and stop it after the test."""
    monitors = []

    def start(silence: float, stall: float, ranks: int = 2) -> tuple[HeartbeatMonitor, Heard]:
        heard = Heard()
        monitors.append(HeartbeatMonitor(store, ranks, 2, silence, stall, heard, every=0.02))
        return monitors[-1], heard

    yield start
    for monitor in monitors:
        monitor.stop()


def test_a_rank_is_heard_before_it_begins(store, monitored):
    """It may be stopped before its thread first runs."""
    beating = Heartbeat(("127.0.0.1", store.port), "0/1", LONG)
    assert json.loads(store.get("beat/0/1"))[:2] == [1, 0]
    monitor, heard = monitored(LIMIT, LONG)
    assert heard.wait() == [(0, 1, "heartbeat")]
    assert monitor.pid(0, 1) == os.getpid() and monitor.pid(0, 0) is None
    beating.stop()


def test_a_rank_that_beats_no_more_is_named_and_one_that_is_done_is_not(store, monitored):
    beating = Heartbeat(("127.0.0.1", store.port), "1/0", 0.02)
    done = Heartbeat(("127.0.0.1", store.port), "0/1", 0.02)
    done.reach(1)
    done.stop()
    store.set("beat/1/1", json.dumps([1, 3, 4711]))  # its last beat
    monitor, heard = monitored(LIMIT, LONG)
    assert heard.wait() == [(1, 1, "heartbeat")]
    assert monitor.pid(1, 1) == 4711
    beating.stop()


def test_a_rank_that_dies_in_mid_step_is_silent_and_does_not_hang(store, monitored):
    """Its step does not end either, but that is no news of a dead rank, however long it has been silent."""
    alive = Heartbeat(("127.0.0.1", store.port), "0/0", 0.02)
    store.set("beat/0/1", json.dumps([1, 3, 4711]))  # its last beat, in step 3
    _, heard = monitored(LIMIT, LIMIT / 2)
    heard.wait()
    time.sleep(LIMIT)
    assert heard.told == [(0, 1, "heartbeat")]
    alive.stop()


def test_a_thread_beats_on_while_the_main_thread_hangs_and_the_step_tells(store, monitored):
    behind, ahead = (Heartbeat(("127.0.0.1", store.port), f"0/{rank}", 0.02) for rank in range(2))
    behind.reach(3)
    ahead.reach(4)
    _, heard = monitored(LONG, LIMIT)
    assert heard.wait()[0] == (0, 0, "progress")
    behind.stop()
    ahead.stop()


def test_nobody_is_named_where_all_ranks_stand_in_one_step(store, monitored):
    beats = [Heartbeat(("127.0.0.1", store.port), f"0/{rank}", 0.02) for rank in range(2)]
    for beat in beats:
        beat.reach(3)
    _, heard = monitored(LONG, LIMIT)
    assert heard.wait()[0] == (0, None, "progress")
    for beat in beats:
        beat.stop()


def test_a_stalled_rank_is_asked_once_for_what_it_knows(store):
    asked = threading.Event()
    beat = Heartbeat(("127.0.0.1", store.port), "0/0", 0.02, asked.set, stall=0.05)
    assert not asked.wait(0.2)  # it has not begun
    beat.reach(1)
    assert asked.wait(LONG)
    beat.stop()
