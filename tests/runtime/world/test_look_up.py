"""Rank 0 tells names to who types: in milliseconds, while it is idle, and without a trace in the cells around it."""

import os
import signal
import time

from tests.runtime.world.test_rank_client import finish


def completions(world, code, tries=1):
    """Names that complete that code; None if rank 0 did not answer. On a busy machine it may need some tries."""
    for _ in range(tries):
        if reply := world.look_up("complete_request", {"code": code, "cursor_pos": len(code)}):
            return reply["matches"]
    return None


def test_names_of_rank_0_are_completed_and_inspected(world, cell):
    cell("if rank == 0: mine_0 = 1\nelse: mine_1 = 1")
    assert completions(world, "x = min", tries=9) == ["min", "mine_0"]
    assert completions(world, "torch.zeros_l", tries=9) == [".zeros_like"]
    assert completions(world, "no_such_nam", tries=9) == []
    cell("class MyNet:\n    'A net of mine.'")
    asked = {"code": "MyNet()", "cursor_pos": 3, "detail_level": 0}
    reply = next(filter(None, (world.look_up("inspect_request", asked) for _ in range(9))))
    assert reply["found"] and "A net of mine." in reply["data"]["text/plain"]
    seconds = []
    for _ in range(5):
        begun = time.monotonic()
        completions(world, "MyN")
        seconds.append(time.monotonic() - begun)
    assert min(seconds) < 0.1
    assert cell("print(rank)").text(0) == "0\n", "what a look-up publishes is no output of a cell"
    assert world.record().events == ()


def test_a_busy_rank_is_not_asked(world):
    client = world.ranks.clients[0]
    message = client.execute("import time; time.sleep(4)", 1, cell=world.ranks.tasks + 1)
    time.sleep(0.3)
    begun = time.monotonic()
    assert completions(world, "ran") is None
    assert time.monotonic() - begun < 3
    finish(client, message)
    assert completions(world, "ran", tries=9) == ["range", "rank"]


def test_a_rank_that_is_gone_is_not_asked(make_world):
    world = make_world(2)
    os.kill(world.pids[0], signal.SIGKILL)
    deadline = time.monotonic() + 10
    while world.ranks.processes[0].alive and time.monotonic() < deadline:
        world.ranks.listen(0.05)
    assert completions(world, "ran") is None


SLOW = """import time
class Slow:
    def __repr__(self):
        time.sleep(5)
        return 'slow'
slow = Slow()"""


def test_a_name_that_takes_long_to_describe_is_given_up(world, cell):
    cell(SLOW)
    begun = time.monotonic()
    assert world.look_up("inspect_request", {"code": "slow", "cursor_pos": 2, "detail_level": 0}) is None
    assert time.monotonic() - begun < 4
    assert cell("print('after', rank)").text(0) == "after 0\n"


def test_ranks_that_were_stopped_have_no_names(make_world):
    world = make_world(2)
    world.stop()
    assert completions(world, "ran") is None
