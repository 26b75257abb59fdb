"""A pasted script's own calls that make and end the default group: each right, or told in the cell that does it."""

import os

import pytest

from dtlearn.runtime.errors import CellError
from dtlearn.runtime.rank.group import RankGroup
from dtlearn.runtime.rank.own_groups import OwnGroups
from dtlearn.runtime.run import run_ranks
from tests.runtime.rank.test_group import spec_of

OWN = (
    "if dist.is_initialized():\n    dist.destroy_process_group()\ndist.init_process_group('gloo')\n"
    "x = torch.ones(1)\ndist.all_reduce(x)"
)


def test_a_script_with_a_group_of_its_own_runs_as_often_as_one_likes(world, cell):
    for _ in range(4):
        cell(OWN, timeout=20.0)
        assert world.gather("x.item()") == [world.size] * world.size


def test_a_group_that_is_made_once_too_often_is_said_to_be_there(world, cell):
    with pytest.raises(CellError, match=r"twice: dtlearn has made the group of these ranks\. Leave this line out here"):
        cell("dist.init_process_group('gloo')")
    cell("dist.barrier()")


def test_the_cell_that_ends_the_group_says_so_and_later_ones_name_it(cell):
    said = cell("x = 1\ndist.destroy_process_group()", number=7).text(0)
    assert "line 2 of cell [7]: destroy_process_group() has ended the group that dtlearn had made" in said
    with pytest.raises(
        CellError, match=r"destroy_process_group\(\) has ended it, line 2 of cell \[7\]. .*makes a group"
    ):
        cell("dist.all_reduce(torch.ones(1))", number=8)
    assert "has ended the group" not in cell("x = 2", number=8).text(0)  # once
    cell("dist.init_process_group('gloo')\ndist.barrier()", number=9)
    cell("dist.barrier()", number=10)


def test_a_function_that_makes_its_group_itself_may_do_it_again_and_again():
    def program():
        import torch
        import torch.distributed as dist

        totals = []
        for _ in range(3):
            dist.init_process_group("gloo", rank=int(os.environ["RANK"]), world_size=3)
            total = torch.ones(1)
            dist.all_reduce(total)
            totals.append(total.item())
            dist.destroy_process_group()
        return totals

    assert run_ranks(program, 3, init_group=False).values == [[3.0] * 3] * 3


def test_ranks_that_are_not_those_of_the_run_meet_where_torch_has_them_meet(tmp_path, monkeypatch):
    """Two of three ranks, or processes that a rank has forked: the store of the run is for all of it, once."""
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "3")
    group = RankGroup(spec_of(0, 3, str(tmp_path)))
    groups = OwnGroups(group)
    meet = groups._meet(lambda url, **options: iter(["torch's own way"]))
    assert next(meet("env://?world_size=2", timeout=None)) == "torch's own way"
    assert [next(meet("env://"))[1:], next(meet("env://?rank=0&world_size=3"))[1:]] == [(0, 3), (0, 3)]
    group.generation = 1
    store, *_ = next(meet("env://"))
    store.set("key", "value")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["own-0-1", "own-0-2", "own-1-1"]
    groups._pid = 1
    assert next(meet("env://")) == "torch's own way"
