"""Headers and groups: what ranks have to agree on, and the error that names a rank that is gone."""

import contextlib
import re
import threading
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

from dtlearn.parameter_server.ranks.messages import (
    HEADER_BYTES,
    Channels,
    Header,
    MessageKind,
    PeerLost,
    needed,
    open_channels,
)
from dtlearn.parameter_server.ranks.roles import ServerRoles
from dtlearn.runtime.errors import RankError
from dtlearn.runtime.run import run_ranks


def send_a_header():
    channels = open_channels(1, "all at server 0", world=3 * (dist.get_rank() == 0))
    sent = Header(MessageKind.PUSH, channels.world, 1, 2, 3, 4, 5, 1 << 40)
    if dist.get_rank() == 1:
        channels.send_header(sent, 0)
        return channels.world
    return channels.receive_header(1) == sent


def test_headers_arrive_and_workers_learn_the_world():
    run = run_ranks(send_a_header, 2, record=True)
    assert run.values == [True, 3]
    assert [event.nbytes for event in run.record.select(op="send")] == [HEADER_BYTES]


DISAGREE = {
    "servers": (lambda rank: (1 + rank // 2, "plan", 0), r"rank \d and ranks \[\d(, \d)?\] disagree on who serves"),
    "plan": (lambda rank: (1, f"plan {rank // 2}", 0), "disagree on who serves or who keeps what"),
    "no worker": (lambda rank: (3, "plan", 0), "there is no worker: nobody trains"),
    "no server": (lambda rank: (0, "plan", 0), "there is no server: nobody keeps the parameters"),
    "worlds": (lambda rank: (2, "plan", rank), r"servers come from different worlds, \[0, 1\]"),
}


def disagree(name):
    try:
        open_channels(*DISAGREE[name][0](dist.get_rank()))
    except ValueError as error:
        return str(error)


@pytest.mark.parametrize("name", DISAGREE)
def test_ranks_that_disagree_all_say_so(name):
    assert all(re.search(DISAGREE[name][1], text or "") for text in run_ranks(disagree, 3, name))


def the_server_returns():
    channels = open_channels(1, "plan")
    if dist.get_rank():
        with needed(0, "from which this rank pulls"):
            channels.receive_header(0)


def test_a_worker_does_not_wait_for_a_server_that_has_left():
    with pytest.raises(RankError, match="rank 1 receives from rank 0, and the other half is missing"):
        run_ranks(the_server_returns, 2, timeout=60)


def test_the_error_names_the_rank_and_what_it_was_needed_for():
    says = r"rank 3 is gone, from which this rank pulls; .* Connection closed\)"
    with pytest.raises(PeerLost, match=says), needed(3, "from which this rank pulls"):
        raise RuntimeError("Connection closed\nmany lines")
    with pytest.raises(ValueError, match="ours"), needed(3, "never"):
        raise ValueError("ours")


class OneThreadAtATime:
    """A group's receive as NCCL has it: not for two threads at once. The first call waits a moment for a second one."""

    def __init__(self):
        self.calls, self.at_once = 0, 0
        self.inside, self.second = threading.Semaphore(1), threading.Event()

    def irecv(self, tensor, source, group=None, tag=0):
        alone = self.inside.acquire(blocking=False)
        self.calls += 1
        if alone:
            self.second.wait(1)
            self.inside.release()
        else:
            self.at_once += 1
        self.second.set()
        return self

    def wait(self):
        pass


@pytest.mark.parametrize(("options", "at_once"), [({}, 0), ({"one_at_a_time": contextlib.nullcontext()}, 1)])
def test_listeners_begin_to_receive_one_at_a_time(options, at_once, monkeypatch):
    group, channels = OneThreadAtATime(), Channels(ServerRoles(1, 3), **options)
    monkeypatch.setattr(dist, "irecv", group.irecv)
    listeners = [threading.Thread(target=channels.receive, args=(torch.empty(3), rank)) for rank in (1, 2)]
    for listener in listeners:
        listener.start()
    for listener in listeners:
        listener.join()
    assert (group.calls, group.at_once) == (2, at_once)


def timeouts(timeout):
    channels = open_channels(1, "plan", timeout=timeout)
    groups = (channels.headers, channels.to_servers, channels.to_workers)
    return [group._get_backend(torch.device("cpu")).options._timeout for group in groups]


@pytest.mark.parametrize(("timeout", "each"), [(None, timedelta(minutes=30)), (timedelta(hours=7), timedelta(hours=7))])
def test_a_pull_may_be_held_back_as_long_as_the_timeout_says(timeout, each):
    assert run_ranks(timeouts, 2, timeout).values == [[each] * 3] * 2
