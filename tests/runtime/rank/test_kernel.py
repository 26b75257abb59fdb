"""The kernel that a rank is: names, numbers of cells, what it tells of its calls; nothing of the learner's set-up."""

import re

import pytest

from dtlearn.runtime.errors import CellError
from dtlearn.runtime.machine.patience import Patience
from dtlearn.runtime.world.rank_client import ask_all

_ANSI = re.compile(r"\x1b\[[0-9;]*m")


def reply_to(world, code: str, number: int = 1) -> list[dict]:
    """The replies of all ranks to a cell."""
    sent = [(link, link.execute(code, number)) for link in world.ranks.clients]
    found = []
    for link, msg_id in sent:
        while True:
            assert link.shell.poll(20_000)
            message = next(m for m in [link._receive(link.shell)])
            if message["parent_header"]["msg_id"] == msg_id:
                found.append(message)
                break
    return found


def test_a_traceback_names_the_cell_by_the_notebooks_number(cell):
    with pytest.raises(CellError) as caught:
        cell("def f():\n    return 1 / 0\nf()", number=42)
    text = _ANSI.sub("", caught.value.failures[0].traceback)
    assert "Cell In[42], line 3" in text
    assert "Cell In[42], line 2, in f()" in text


def test_an_error_that_the_end_of_a_cell_makes_is_described_shortly(world, cell):
    with pytest.raises(CellError):
        cell("if rank == 1:\n    1 / 0\ndist.barrier()", number=42)
    freed, failed = ["\n".join(lines) for lines in world.gather("get_ipython()._last_traceback")]
    assert _ANSI.search(failed) and "Cell In[42], line 2" in _ANSI.sub("", failed)
    # The head freed it from its call; nobody is shown what it raised.
    assert freed.startswith("Traceback (most recent call last):\n") and ", line 3, in <module>" in freed
    with pytest.raises(CellError):
        cell("1 / 0", number=43)
    for text in world.gather("get_ipython()._last_traceback"):
        assert "Cell In[43], line 1" in _ANSI.sub("", "\n".join(text))


def test_a_reply_counts_the_collectives_of_this_cell_only(world):
    code = "dist.barrier(); dist.barrier()"
    for message in [*reply_to(world, code), *reply_to(world, code)]:
        told = message["metadata"]["ranks"]
        assert (told["collectives"], told["others"]) == (2, 0)
        assert told["time_ns"] > 0


def test_a_reply_counts_point_to_point_and_sub_groups_apart(world):
    code = "g = dist.new_group([0])\nif rank == 0: dist.all_reduce(torch.ones(1), group=g)\n" + (
        "dist.send(torch.ones(1), 1) if rank == 0 else dist.recv(torch.ones(1), 0)"
    )
    told = [m["metadata"]["ranks"] for m in reply_to(world, code)]
    assert [(t["collectives"], t["others"]) for t in told] == [(1, 2), (1, 1)]


def test_the_groups_own_count_grows_also_by_what_torch_issues_itself(world, cell):
    cell("model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))")
    before = [m["metadata"]["ranks"]["sequence"] for m in reply_to(world, "")]
    after = [m["metadata"]["ranks"]["sequence"] for m in reply_to(world, "model(torch.ones(1, 2)).sum().backward()")]
    assert all(b > a >= 0 for a, b in zip(before, after, strict=True))


def test_a_rank_that_waits_says_in_which_call(world):
    sent = world.ranks.clients[0].execute("dist.barrier()", 1)
    found = None
    for _ in range(100):
        ((content, _),) = ask_all(world.ranks.clients[:1], {"do": "state"}, patience=Patience(5), side=True)
        if found := content["inside"]:
            break
    assert found == "its 1st barrier, line 1"
    world.ranks.clients[1].execute("dist.barrier()", 1)
    assert world.ranks.clients[0].shell.poll(20_000)
    assert world.ranks.clients[0]._receive(world.ranks.clients[0].shell)["parent_header"]["msg_id"] == sent


def test_the_learners_own_start_up_files_and_history_are_not_used(world, cell):
    shown = cell("print(get_ipython().history_manager.enabled, get_ipython().ipython_dir)", ranks=[0])
    assert shown.text(0) == f"False {world.ranks.run_dir}/ipython\n"


def test_magics_and_shell_commands_work(cell):
    shown = cell("%pwd\n!echo hello", ranks=[0])
    assert "hello" in shown.text(0)


def test_input_is_refused_and_not_waited_for(cell):
    with pytest.raises(CellError, match="StdinNotImplementedError"):
        cell("input('name? ')")


def test_a_cell_is_not_sent_back_to_the_only_one_who_knows_it(world):
    client = world.ranks.clients[0]
    client.discard_output()
    msg_id, kinds = client.execute("print('x')", 1), []
    while kinds[-1:] != ["idle"]:
        assert client.iopub.poll(20_000)
        message = client._receive(client.iopub)
        if message["parent_header"].get("msg_id") == msg_id:
            kinds.append(message["content"].get("execution_state", message["msg_type"]))
    assert kinds == ["busy", "stream", "idle"]
    for _ in client.replies():
        pass
