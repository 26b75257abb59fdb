import time

from dtlearn.runtime.faults.stacks import Frame
from dtlearn.runtime.rank.state import group_sequence, main_thread
from dtlearn.runtime.run import run_ranks


def test_the_main_thread_is_told_as_data_from_another_thread():
    import threading

    told = []
    asking = threading.Thread(target=lambda: (time.sleep(0.1), told.append(main_thread())))
    asking.start()
    while asking.is_alive():
        time.sleep(0.01)
    state = told[0]
    ours = [frame for frame in state["frames"] if frame["file"] == __file__]
    assert ours[-1]["name"] == "test_the_main_thread_is_told_as_data_from_another_thread"
    assert ours[-1]["loop"][0] == "while"
    assert "asking.is_alive" in str(Frame(**ours[-1])) or "time.sleep" in str(Frame(**ours[-1]))
    assert state["cpu_seconds"] > 0


def test_the_group_counts_its_collectives():
    def count():
        import torch
        import torch.distributed as dist

        before = group_sequence()
        dist.all_reduce(torch.ones(1))
        return group_sequence() - before

    assert run_ranks(count, 2).values == [1, 1]
    assert group_sequence() == -1  # there is no group in this process
