"""Process groups on ranks: made, kept, cut from another thread while stuck, and made again."""

import gc
import os
import socket
import sys
import threading
import time
import weakref
from pathlib import Path
from types import SimpleNamespace

import cloudpickle
import pytest
import torch
import torch.distributed as dist

from dtlearn.runtime.rank.group import RankGroup, _is_connection, _open_sockets
from dtlearn.runtime.rank.spec import RankOnNode, RankSpec
from dtlearn.runtime.run import run_ranks


def spec_of(rank, size, folder):
    return RankSpec("run", rank, size, "gloo", "cpu", folder, {}, "/", [], 60.0, vars(RankOnNode.alone(rank, size)))


class Member:
    """Run on a rank: it in a group whose connections are remembered, and in step with the others through files."""

    def __init__(self, folder):
        self.folder, self.rank, self.size = Path(folder), int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        self.group = RankGroup(spec_of(self.rank, self.size, folder))
        self.group.follow_new_groups()
        self.group.init()
        self.cutter = threading.Thread(target=self._cut)

    def meet(self, name):
        (self.folder / f"{name}-{self.rank}").touch()
        while len(list(self.folder.glob(f"{name}-*"))) < self.size:
            time.sleep(0.01)

    def _cut(self):
        self.meet("stuck")
        time.sleep(0.2)  # those that are to get stuck are now inside the call
        self.group.abort()

    def remake(self):
        self.cutter.join()
        self.meet("cut")
        self.group.remake(1)

    def total(self):
        value = torch.ones(1)
        dist.all_reduce(value)
        return value.item()


@pytest.fixture
def member(monkeypatch):
    """The class above, as a value that ranks get although they cannot import this file. Nobody watches their calls."""
    monkeypatch.setattr(
        "dtlearn.runtime.run.Watch",
        lambda *_: SimpleNamespace(
            look=lambda ended: None, last_look=lambda ended: None, waiting=lambda: True, last_calls=dict, advice={}
        ),
    )
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    yield Member
    cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


@pytest.mark.parametrize("crossed", [False, True])
def test_a_stuck_collective_is_freed_on_every_rank_and_the_group_made_again(tmp_path, member, crossed):
    def free(folder):
        me = member(folder)
        before, raised = me.total(), False
        me.cutter.start()
        try:
            if me.rank == 0:
                dist.all_reduce(torch.ones(1))
            elif crossed:
                dist.barrier()
        except RuntimeError:
            raised = True
        me.remake()
        return before, raised, me.total()

    result = run_ranks(free, 3, str(tmp_path), init_group=False, timeout=20)
    assert [(before, after) for before, _, after in result] == [(3.0, 3.0)] * 3
    assert [raised for _, raised, _ in result] == ([True] * 3 if crossed else [True, False, False])


def test_connections_of_sub_groups_are_cut_too(tmp_path, member):
    def free(folder):
        me = member(folder)
        pair, raised = dist.new_group([0, 1]), False
        me.cutter.start()
        if me.rank == 0:
            try:
                dist.all_reduce(torch.ones(1), group=pair)
            except RuntimeError:
                raised = True
        me.remake()
        return raised, me.total()

    result = run_ranks(free, 3, str(tmp_path), init_group=False, timeout=20)
    assert result.values == [(True, 3.0), (False, 3.0), (False, 3.0)]


def test_other_sockets_are_never_cut(tmp_path, member):
    def keep(folder):
        me = member(folder)
        me.meet("joined")
        with (
            socket.create_server(("127.0.0.1", 0)) as server,
            socket.create_connection(server.getsockname()) as ours,
            server.accept()[0] as theirs,
        ):
            cut = me.group.abort() if me.rank == 0 else 0
            ours.sendall(b"alive")
            return cut, theirs.recv(5)

    (cut, data), other = run_ranks(keep, 2, str(tmp_path), init_group=False, timeout=20)
    assert cut >= 1
    assert (data, other) == (b"alive", (0, b"alive"))


def test_a_descriptor_that_was_given_to_another_file_is_left_alone():
    group = RankGroup(spec_of(0, 1, "/nowhere"))
    one, two = socket.socketpair()
    with one, two:
        inode = _open_sockets()[one.fileno()]
        group._sockets = {one.fileno(): inode + 1}
        assert group.abort() == 0
        one.sendall(b"x")
        group._sockets = {one.fileno(): inode}
        assert group.abort() == 1
        with pytest.raises(OSError, match="Broken pipe"):
            one.sendall(b"x")


def test_only_connections_to_peers_count():
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        one, two = socket.socketpair()
        with one, two:
            found = _open_sockets()
            assert {server.fileno(), client.fileno(), one.fileno()} <= set(found)
            assert _is_connection(client.fileno())
            assert not _is_connection(server.fileno())  # a listening socket
            assert not _is_connection(one.fileno())  # not TCP
    assert not _is_connection(client.fileno())


def leave_a_group():
    group = dist.new_group([0, 1])
    alive = weakref.ref(group)
    dist.destroy_process_group(group)
    del group
    gc.collect()
    dist.barrier()
    return alive() is not None


def test_a_group_that_was_left_is_not_destroyed():
    assert run_ranks(leave_a_group, 2).values == [True, True]


def test_many_groups_are_not_kept_for_ever():
    def make_many():
        alive = []
        for _ in range(80):
            group = dist.new_group([0, 1])
            alive.append(weakref.ref(group))
            dist.destroy_process_group(group)
        del group
        gc.collect()
        return sum(group() is not None for group in alive)

    assert set(run_ranks(make_many, 2).values) <= {64}
