"""The head's clock on other machines; and no code of a rank may look at its own instead."""

import re
from pathlib import Path

import dtlearn.runtime
from dtlearn.runtime.recording import clock

# What runs on ranks. (Not `link/`: emulated links are for ranks on one machine.)
ON_RANKS = ("rank", "recording")


def test_the_clock_is_that_of_the_head(monkeypatch):
    monkeypatch.setattr(clock, "_ahead_ns", 0)
    before = clock.now_ns()
    clock.set_ahead_ns(10**12)
    assert 10**12 <= clock.now_ns() - before < 10**12 + 10**10


def test_what_runs_on_ranks_asks_the_heads_clock():
    folder = Path(dtlearn.runtime.__file__).parent
    files = [file for name in ON_RANKS for file in (folder / name).glob("*.py")]
    own = {file.stem for file in files if re.search(r"monotonic_ns|perf_counter_ns", file.read_text())}
    assert own == {"clock"}, f"{own}: use clock.now_ns(), or a lab's record mixes the clocks of its hosts"
