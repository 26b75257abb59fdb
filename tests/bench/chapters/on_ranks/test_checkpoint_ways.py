from dataclasses import replace

from dtlearn.bench.chapters.on_ranks.checkpoint_ways import (
    COUNTERPARTS,
    STALLS,
    WAYS,
    CheckpointSpeed,
    measure_checkpoints,
    table_of,
)

SECONDS = {way: (0.2, 0.2, 0.2) if way in COUNTERPARTS else (0.4, 0.4, 0.4) for way in WAYS}
STALL = {way: (0.02, 0.02, 0.02) if "beside" in way else (0.2, 0.2, 0.2) for way in STALLS}
SPEED = CheckpointSpeed("gloo on CPU", 2, 16 << 20, SECONDS, STALL, True)


def test_table():
    lines = "\n".join(table_of(SPEED)).splitlines()
    assert lines[0] == "Checkpoints, gloo on CPU, 2 ranks, 16 MiB in all; medians."
    assert lines[3].split() == ["save", "200", "ms", "200", "ms", "0.50x"]
    assert lines[4].split() == ["save,", "torch's", "400", "ms", "200", "ms"]
    assert lines[-2] == "Training waits 0.10x as long for a save beside it as for a synchronous one."
    assert lines[-1] == "Every load gave what was saved: yes."
    assert table_of(replace(SPEED, equal=False))[-1].endswith("NO.")


def test_a_real_small_measurement():
    speed = measure_checkpoints(2, 1, num_tensors=2, size=8)
    assert speed.equal and list(speed.seconds) == list(WAYS) and list(speed.stalls) == list(STALLS)
    assert speed.nbytes == 2 * 8 * 8 * 4
    assert all(speed.seconds[way][0] >= speed.stalls[way][0] > 0 for way in STALLS)
