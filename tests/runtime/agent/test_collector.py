"""Listening to ranks: every order in which results, errors, output and deaths can arrive. No processes."""

import os
import signal
import socket
import threading
import time

import pytest

from dtlearn.runtime import wire
from dtlearn.runtime.agent import collector
from dtlearn.runtime.agent.collector import Collector, RankState
from dtlearn.runtime.machine.patience import TO_SAY_THE_SAME, Patience
from dtlearn.runtime.record.rank_file import Tampered, read_rank_file


class Run:
    """The far ends of a run: what ranks and agent would write."""

    def __init__(self, size: int):
        self.channels, self.outputs, states = [], [], []
        for _ in range(size):
            ours, theirs = socket.socketpair()
            read, write = os.pipe()
            states.append(RankState(ours, read))
            self.channels.append(theirs)
            self.outputs.append(write)
        events_read, self.events = os.pipe()
        self.asked: list[tuple[float, list[int]]] = []  # how much time, for which processes
        self.queued: list[int] = []  # processes that wait for a processor, all the time
        self.collector = Collector(states, events_read, patience=self.patience)

    def patience(self, seconds, pids):
        self.asked.append((seconds, list(pids)))
        return Patience(seconds, pids, lambda pids: {pid: time.monotonic() * (pid in self.queued) for pid in pids})

    def say(self, rank: int, kind: str, blob: bytes = b"", **more) -> None:
        self.channels[rank].sendall(wire.encode({"kind": kind, **more}, blob))

    def fail(self, rank: int, message: str, time_ns: int) -> None:
        self.say(rank, "error", type="RuntimeError", message=message, traceback="", time_ns=time_ns)

    def die(self, rank: int, status: int) -> None:
        os.write(self.events, wire.encode({"index": rank, "status": status}))

    def wait(self, seconds: float = 5.0) -> bool:
        return self.collector.wait(time.monotonic() + seconds)

    def close(self) -> None:
        self.collector.close()
        for channel in self.channels:
            channel.close()
        for descriptor in [*self.outputs, *([self.events] if self.events is not None else [])]:
            os.close(descriptor)


@pytest.fixture
def run():
    run = Run(3)
    yield run
    run.close()


def test_a_run_is_over_when_every_rank_has_finished(run):
    for rank in range(3):
        os.write(run.outputs[rank], b"hello\n")
        run.say(rank, "result", bytes([rank]))
        run.say(rank, "finished")
    assert run.wait()
    assert [state.result for state in run.collector.ranks] == [b"\0", b"\1", b"\2"]
    assert run.collector.failures() == ()


def test_a_result_alone_does_not_finish_a_rank(run):
    for rank in range(3):
        run.say(rank, "result", b"x")
    assert not run.wait(0.1)
    assert not any(state.finished for state in run.collector.ranks)


def test_an_exit_code_of_0_without_the_word_finished_is_a_failure(run):
    run.say(0, "result", b"x")
    run.die(0, 0)
    assert run.wait()
    (failure,) = run.collector.failures()
    assert (failure.rank, failure.kind, failure.message) == (0, "ended", "ended (exit code 0) before it finished")


def test_last_words_count_before_the_death(run):
    run.fail(1, "bad", 5)
    run.die(1, -6)
    assert run.wait()
    (failure,) = run.collector.failures()
    assert (failure.kind, failure.message) == ("raised", "bad")
    assert run.collector.ranks[1].status == -6


def test_a_death_after_the_end_of_work_is_no_failure(run):
    for rank in range(3):
        run.say(rank, "finished")
        run.die(rank, -9)
    assert run.wait()
    assert run.collector.failures() == ()


def test_what_was_said_of_the_last_task_is_forgotten_and_who_ended_since_has_failed(run):
    for rank in range(3):
        os.write(run.outputs[rank], b"hello\n")
        run.say(rank, "incomplete", reason="disk full")
        run.say(rank, "result", b"x")
        run.say(rank, "finished")
    assert run.wait()
    run.die(2, 3)
    run.collector.listen(0.1)
    run.collector.begin_again()
    states = run.collector.ranks
    assert {(s.result, s.finished, s.fault, s.output.text()) for s in states} == {(None, False, "", "")}
    assert run.wait()
    (failure,) = run.collector.failures()
    assert (failure.rank, failure.message) == (2, "ended (exit code 3) before it finished")


def test_failures_are_ordered_by_cause_then_time(run):
    run.fail(0, "Connection closed by peer [127.0.0.1]:1", 1)
    run.die(1, -11)
    run.fail(2, "shapes differ", 9)
    assert run.wait()
    assert [f.rank for f in run.collector.failures()] == [2, 1, 0]
    assert [f.consequence for f in run.collector.failures()] == [False, False, True]


def test_of_two_real_errors_the_earlier_comes_first(run):
    run.fail(0, "second", 20)
    run.fail(2, "first", 10)
    assert run.wait()
    assert [f.message for f in run.collector.failures()] == ["first", "second"]


def test_after_a_failure_the_others_get_only_a_moment(run):
    run.fail(0, "bad", 1)
    begun = time.monotonic()
    assert run.wait(30)
    assert 0.2 < time.monotonic() - begun < 20  # not 30


def test_the_deadline_is_kept(run):
    begun = time.monotonic()
    assert not run.wait(0.1)
    assert 0.1 <= time.monotonic() - begun < 2


def test_when_the_agent_is_gone_so_are_its_ranks(run):
    run.say(0, "result", b"x")
    run.say(0, "finished")
    os.close(run.events)
    run.events = None
    assert run.wait(30)
    assert [f.rank for f in run.collector.failures()] == [1, 2]
    assert "helper process that starts ranks is gone" in run.collector.failures()[0].message
    assert run.collector.wait_for_deaths(30)


def test_a_message_in_two_pieces_is_heard_once_it_is_whole(run):
    data = wire.encode({"kind": "result"}, b"x" * 100)
    run.channels[0].sendall(data[:50])
    assert not run.wait(0.05)
    run.channels[0].sendall(data[50:])
    assert not run.wait(0.05)
    assert run.collector.ranks[0].result == b"x" * 100


def test_what_is_left_of_the_output_is_read_after_the_end(run):
    for rank in range(3):
        os.write(run.outputs[rank], b"y" * 60_000)
        run.die(rank, 0)
    assert run.collector.wait_for_deaths(5)
    assert [state.output.total for state in run.collector.ranks] == [60_000] * 3


def test_a_grandchild_that_prints_for_ever_does_not_keep_the_run(run):
    for rank in range(3):
        run.die(rank, 0)
    listen, begun = run.collector.listen, time.monotonic()

    def and_print(timeout):
        os.write(run.outputs[0], b"still here\n")
        return listen(timeout)

    run.collector.listen = and_print
    assert run.collector.wait_for_deaths(0.3)
    assert time.monotonic() - begun < 20  # for ever, if it kept it


def test_everybody_is_told_although_one_rank_is_gone(run):
    run.channels[1].shutdown(socket.SHUT_RDWR)
    run.collector.tell_all(wire.encode({"go": True}))
    assert wire.receive(run.channels[0]) == wire.receive(run.channels[2]) == ({"go": True}, b"")


def test_a_signal_is_named(run):
    run.die(0, -signal.SIGSEGV)
    run.die(1, -40)
    run.wait()
    messages = [f.message for f in run.collector.failures()]
    assert messages == ["was killed by signal 11 (SIGSEGV)", "was killed by signal 40 (a real-time signal)"]


def test_a_rank_that_was_replaced_is_given_up_and_the_last_one_closes_all():
    before = set(os.listdir("/proc/self/fd"))
    run = Run(2)
    try:
        run.collector.leave(0)
        run.collector.leave(0)  # a second time does no harm
        run.say(1, "finished")
        run.die(0, -9)
        run.collector.listen_for(0.1)
        assert run.collector.ranks[0].status == -9
        assert run.collector.ranks[1].finished
        run.collector.leave(1)
    finally:
        run.close()
    assert set(os.listdir("/proc/self/fd")) == before


def answered(channel: socket.socket) -> bool:
    channel.setblocking(False)
    try:
        return channel.recv(10) == b"!"
    except BlockingIOError:
        return False


def test_a_mark_is_answered_at_once_and_its_moment_and_the_lines_of_the_log_are_kept(run):
    run.collector.meet = lambda rank, k: (0.0, 70 * rank + k)
    before = time.monotonic_ns()
    run.say(1, "mark", label="comes")
    assert not run.wait(0.05) and answered(run.channels[1])
    run.say(1, "mark", label="left")
    assert not run.wait(0.05) and answered(run.channels[1])
    comes, left = run.collector.ranks[1].marks
    assert (comes.rank, comes.label, comes.logged, left.label, left.logged) == (1, "comes", 70, "left", 71)
    assert before < comes.came_ns <= comes.answered_ns < left.came_ns <= left.answered_ns < time.monotonic_ns()
    assert not run.collector.ranks[0].marks


def test_a_rank_that_is_held_waits_and_the_others_do_not(run):
    run.collector.meet = lambda rank, k: (0.2 if rank == 0 else 0.0, 0)
    for rank in range(3):
        run.say(rank, "mark", label="here")
    assert not run.wait(0.05)
    assert [answered(channel) for channel in run.channels] == [False, True, True]
    assert not run.wait(0.3)  # and needs nothing to arrive for its answer
    assert answered(run.channels[0])
    (held,) = run.collector.ranks[0].marks
    assert held.answered_ns - held.came_ns >= 0.2e9


def test_what_arrived_before_a_rank_is_let_go_is_heard_before(run):
    """Also by a head that got no processor meanwhile: otherwise it would have arrived too late to tell."""
    run.collector.meet = lambda rank, k: (0.02 if rank == 0 else 0.0, 0)
    run.say(0, "mark", label="comes")
    run.collector.listen(0)
    run.say(1, "mark", label="left")
    time.sleep(0.05)
    run.collector.listen(0)
    assert run.collector.ranks[1].marks[0].came_ns < run.collector.ranks[0].marks[0].answered_ns


def test_nobody_answers_marks_where_there_should_be_none(run):
    run.say(0, "mark", label="here")
    assert not run.wait(0.05)
    assert not answered(run.channels[0]) and not run.collector.ranks[0].marks


@pytest.mark.parametrize("label", [None, 5, ["here"], {}, "x" * 101])
def test_a_mark_that_is_no_mark_is_tampering(run, label):
    run.collector.meet = lambda rank, k: (0.0, 0)
    run.say(2, "mark", label=label)
    with pytest.raises(Tampered, match="rank 2 wrote"):
        run.wait()


def test_marks_without_end_are_tampering(run, monkeypatch):
    monkeypatch.setattr(collector, "_MOST_MARKS", 2)
    run.collector.meet = lambda rank, k: (0.0, 0)
    for _ in range(2):
        run.say(2, "mark", label="x")
        assert not run.wait(0.05)
    run.say(2, "mark", label="x")
    with pytest.raises(Tampered):
        run.wait()


def test_a_mark_before_the_last_one_is_answered_is_tampering(run):
    run.collector.meet = lambda rank, k: (0.0, 0)
    for _ in range(2):
        run.say(2, "mark", label="here")
    with pytest.raises(Tampered):
        run.wait()


def test_a_rank_that_takes_its_log_away_is_tampering(run, tmp_path):
    run.collector.meet = lambda rank, k: (0.0, len(read_rank_file(tmp_path / "calls")))
    run.say(0, "mark", label="here")
    with pytest.raises(Tampered):
        run.wait()


def test_the_answer_to_a_rank_that_is_gone_is_nobodys_fault(run):
    run.collector.meet = lambda rank, k: (0.0, 0)
    run.say(0, "mark", label="here")
    run.channels[0].close()
    assert not run.wait(0.1)
    assert not run.collector.failures()


def test_a_kill_for_lack_of_memory_is_told_as_one(run, monkeypatch):
    monkeypatch.setattr("dtlearn.runtime.agent.collector.oom_kills", lambda: run.collector._oom_kills + 1)
    run.die(1, -signal.SIGKILL)
    run.wait()
    (failure,) = run.collector.failures()
    assert failure.message == "was killed by signal 9 (SIGKILL), because the machine ran out of memory"


def test_a_rank_that_closed_its_own_line_is_told(run):
    run.die(0, 71)
    run.wait()
    assert run.collector.failures()[0].message.startswith("ended: its line to this program was closed")


def test_a_collector_that_nobody_holds_closes_its_descriptors():
    before = set(os.listdir("/proc/self/fd"))
    run = Run(2)
    del run.collector
    for channel in run.channels:
        channel.close()
    for descriptor in [*run.outputs, run.events]:
        os.close(descriptor)
    assert set(os.listdir("/proc/self/fd")) == before


def test_ranks_that_cannot_get_a_processor_have_longer_to_say_the_same(run):
    """Rank 1 stands in the queue when rank 0 has failed: on a busy machine it says so later."""
    for number, state in enumerate(run.collector.ranks):
        state.pid = 70 + number
    run.die(2, 0)
    run.fail(0, "no room", 5)

    run.queued = [71]
    late = threading.Timer(TO_SAY_THE_SAME + 0.2, run.fail, [1, "no room", 6])
    late.start()
    assert run.wait(60)
    late.join()
    assert run.asked == [(TO_SAY_THE_SAME, [70, 71])]  # the dead have nothing to say
    assert [f.rank for f in run.collector.failures()][:2] == [0, 1]
