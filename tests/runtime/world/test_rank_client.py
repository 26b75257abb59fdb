"""The line to a rank: requests and replies that belong together, a side door, and no output lost or left over."""

import time

from dtlearn.runtime import pickles
from dtlearn.runtime.machine.patience import Patience
from dtlearn.runtime.world.rank_client import ask_all


def finish(link, msg_id, seconds=20.0):
    """Read what a rank publishes until that request has ended; all texts."""
    deadline, texts = time.monotonic() + seconds, []
    while time.monotonic() < deadline:
        for message in link.published():
            if message["msg_type"] == "stream":
                texts.append(message["content"]["text"])
            elif message["content"].get("execution_state") == "idle" and message["parent_header"]["msg_id"] == msg_id:
                return "".join(texts)
    raise AssertionError("the rank did not become idle")


def test_replies_come_in_rank_order_with_their_values(world):
    replies = ask_all(world.ranks.clients, {"do": "gather", "expression": "rank"}, patience=Patience(10))
    assert [(content["status"], pickles.unpack(body)) for content, body in replies] == [("ok", 0), ("ok", 1)]


def occupy(link, until):
    """Keep a rank's main thread busy until that file is there."""
    return link.execute(f"import os, time\nwhile not os.path.exists({str(until)!r}): time.sleep(0.01)", 1)


def test_a_rank_that_does_not_answer_in_time_has_no_reply(world, tmp_path):
    msg_id = occupy(world.ranks.clients[1], tmp_path / "go")
    replies = ask_all(world.ranks.clients, {"do": "gather", "expression": "rank"}, patience=Patience(2))
    assert replies[0] is not None and replies[1] is None
    (tmp_path / "go").touch()
    finish(world.ranks.clients[1], msg_id)


def test_a_late_reply_is_not_taken_for_the_answer_to_the_next_request(world, tmp_path):
    link = world.ranks.clients[0]
    msg_id = occupy(link, tmp_path / "go")
    late = link.send({"do": "gather", "expression": "'late'"})
    assert link.receive(late, Patience(0.1)) is None
    (tmp_path / "go").touch()
    ((_, body),) = ask_all([link], {"do": "gather", "expression": "'right'"}, patience=Patience(10))
    assert pickles.unpack(body) == "right"
    finish(link, msg_id)


def test_the_side_door_is_open_while_the_main_thread_works(world):
    link = world.ranks.clients[0]
    msg_id = link.execute("import time\ntime.sleep(1.0)", 1)
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        begun = time.monotonic()
        ((content, _),) = ask_all([link], {"do": "state"}, patience=Patience(5), side=True)
        if content["frames"]:
            break
    assert [(frame["line"], frame["code"]) for frame in content["frames"]] == [(2, "time.sleep(1.0)")]
    assert content["inside"] is None
    assert time.monotonic() - begun < 0.5
    finish(link, msg_id)


def test_an_unknown_request_is_answered_with_an_error(world):
    for side in (False, True):
        replies = ask_all(world.ranks.clients, {"do": "dance"}, patience=Patience(10), side=side)
        for content, _ in replies:
            assert (content["status"], content["type"]) == ("error", "ValueError")
            assert content["message"] == "unknown request 'dance'"


def test_nothing_is_lost_while_nobody_reads(world):
    link = world.ranks.clients[0]
    msg_id = link.execute("for i in range(5000): print(i, flush=True)", 1)
    # The reply tells that all was printed; until then nothing is read.
    assert link.shell.poll(30_000)
    assert finish(link, msg_id) == "".join(f"{i}\n" for i in range(5000))
    list(link.replies())


def test_output_is_given_out_in_portions(world):
    link = world.ranks.clients[0]
    msg_id = link.execute("for i in range(1000): print(i, flush=True)", 1)
    assert link.shell.poll(30_000)
    assert 0 < len(list(link.published())) <= 200
    finish(link, msg_id)
    list(link.replies())


def test_discarded_output_is_gone(world):
    link = world.ranks.clients[0]
    link.execute("for i in range(500): print(i, flush=True)", 1)
    assert link.shell.poll(30_000)
    list(link.replies())
    deadline = time.monotonic() + 5
    while link.iopub.poll(100) and time.monotonic() < deadline:
        link.discard_output()
    assert list(link.published()) == []


def test_the_rest_of_a_message_that_an_interrupt_cut_in_two_does_no_harm(world):
    link = world.ranks.clients[0]
    msg_id = link.execute("print('cut')\nprint('whole')", 1)
    assert link.iopub.poll(10_000)
    while link.iopub.recv() != b"<IDS|MSG>":  # what an interrupt in the middle of a message has taken away
        pass
    assert finish(link, msg_id) == "cut\nwhole\n"
