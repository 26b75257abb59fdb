"""What a rank prints is on its way when `flush` returns: nothing that was flushed is lost, whatever comes next."""

import pytest

from dtlearn.runtime.errors import CellError
from tests.runtime.conftest import Shown


def test_what_was_flushed_arrives_from_a_rank_that_ends_soon_after(world):
    """Not at once: a thread of ZeroMQ's still has to send it, and a process that is gone sends nothing."""
    shown = Shown()
    code = "import os, sys, time\nfor i in range(3):\n    print(i, flush=True)\nsys.stdout.flush()\n"
    code += "time.sleep(0.05)\nif rank == 0: os._exit(3)"
    with pytest.raises(CellError, match="rank 0 ended"):
        world.execute(code, sink=shown)
    assert shown.text(0) == "0\n1\n2\n"


def test_a_flush_of_nothing_new_asks_nothing_of_the_thread_that_sends(world):
    shown = Shown()
    code = (
        "import sys\nthread, asked = sys.stdout.pub_thread, []\nschedule = thread.schedule\nprint('x', flush=True)\n"
        "thread.schedule = lambda work: asked.append(work) or schedule(work)\n"
        "for _ in range(3): sys.stdout.flush()\ncount = len(asked)\ndel thread.schedule\nprint(count)"
    )
    world.execute(code, [0], sink=shown)
    assert shown.text(0) == "x\n0\n"
