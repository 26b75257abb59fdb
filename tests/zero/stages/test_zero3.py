"""Stage 3: the single-process run and `fully_shard`, step by step; what a pass sends and holds; what breaks it."""

import pytest

from dtlearn.runtime import run_ranks
from dtlearn.zero.stages.naive_zero3 import NaiveFullyShardedDataParallel
from dtlearn.zero.stages.zero3 import FullyShardedDataParallel
from tests.data_parallel.runs import distance
from tests.zero.stages.sharded_training import (
    OPTIMIZERS,
    TOLERANCE,
    UNITS,
    reference,
    seeded_by_rank,
    torchs,
    train,
)

WAYS = {
    "freed, prefetch 1": {},
    "freed, prefetch 0": {"prefetch": 0},
    "root kept": {"reshard_after_forward": None},
    "kept, prefetch 3": {"reshard_after_forward": False, "prefetch": 3},
    "one unit": {"units": ()},
}


def sharded(name, **options):
    return FullyShardedDataParallel(seeded_by_rank(name), **{"units": UNITS[name], **options})


# Model, optimizer, and a key of WAYS; or the naive version, or PyTorch's.
CASES = [
    ("mlp", "sgd", "freed, prefetch 1"),
    ("mlp", "momentum", "freed, prefetch 1"),
    ("frozen", "adamw", "freed, prefetch 0"),
    ("twice", "adamw", "root kept"),
    ("types", "adamw", "kept, prefetch 3"),
    ("tied", "momentum", "one unit"),
    *(("gpt", "adamw", way) for way in WAYS),
    *((name, "adamw", "naive") for name in ("frozen", "twice", "tied")),
    ("tied", "adamw", "torch"),
]


def parity(cases=CASES):
    """The distance to the single-process run, and of PyTorch's from ours, by case."""
    found = {}
    for name, optimizer, way in cases:
        if way == "naive":
            wrapped = NaiveFullyShardedDataParallel(seeded_by_rank(name))
        else:
            wrapped = sharded(name, **WAYS.get(way, {"reshard_after_forward": None}))
        compared = way != "torch"
        mine = train(wrapped, OPTIMIZERS[optimizer](wrapped.parameters()), name, gradients=compared)
        theirs = reference(name, optimizer) if compared else torchs(name, optimizer)
        found[name, optimizer, way] = distance(mine, theirs)
    return found


@pytest.mark.parametrize("world_size", [1, 2, 3, 4])
def test_it_is_the_single_process_run_and_torchs(world_size):
    for found in run_ranks(parity, world_size, device="cpu", timeout=110):
        print(max(found.values()))
        assert len(found) == len(CASES)
        assert not {case: away for case, away in found.items() if not away < (1e-5 if "types" in case else TOLERANCE)}
