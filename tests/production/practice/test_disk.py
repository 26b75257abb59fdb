import pytest

from dtlearn.production.practice.disk import DiskCall, Stopped, StoppedDisk, left_after

OLD = {"latest": b"5"}


def calls_of(*steps, rank=0, period=0):
    """Calls of one rank, as a disk makes them of ("write", "x", b"data") and so on."""
    disk = StoppedDisk(rank, OLD)
    disk.period = period
    for verb, *arguments in steps:
        getattr(disk, verb)(*arguments)
    return disk.calls


WRITE, SYNC, MOVE = ("write", "new", b"88"), ("fsync", "new"), ("rename", "new", "latest")


def test_a_kill_keeps_what_was_written():
    assert left_after(OLD, calls_of(WRITE, MOVE)) == {"latest": {b"88"}, "new": {None}}
    assert left_after(OLD, calls_of(("remove", "latest"))) == {"latest": {None}}


def test_a_write_is_not_one_moment():
    disk = StoppedDisk(0, OLD, moments=1)
    with pytest.raises(Stopped, match="in write"):
        disk.write("latest", b"88")
    assert left_after(OLD, disk.calls) == {"latest": {b"8"}}
    with pytest.raises(Stopped):  # the dead write nothing, in a `finally` either
        disk.remove("latest")
    assert disk.stopped_at == "in write('latest')"


@pytest.mark.parametrize(
    ("steps", "latest"),
    [
        ((WRITE, MOVE), {b"5", b"", b"8", b"88"}),  # neither bytes nor name
        ((WRITE, SYNC, MOVE), {b"5", b"88"}),
        ((WRITE, MOVE, ("fsync_folder",)), {b"", b"8", b"88"}),  # the name of a file without its bytes
        ((WRITE, SYNC, MOVE, ("fsync_folder",)), {b"88"}),
        ((("remove", "latest"),), {b"5", None}),
        ((("write", "latest", b"88"), ("fsync", "latest")), {b"88"}),
    ],
)
def test_a_power_cut_keeps_what_was_forced(steps, latest):
    assert left_after(OLD, calls_of(*steps), power_cut=True)["latest"] == latest


def test_fsync_of_the_folder_covers_others_only_after_a_barrier():
    mine, others = calls_of(("fsync_folder",), rank=0), calls_of(WRITE, SYNC, rank=1)
    assert left_after(OLD, [*mine, *others], power_cut=True)["new"] == {None, b"88"}
    later = calls_of(("fsync_folder",), rank=0, period=1)
    assert left_after(OLD, [*later, *others], power_cut=True)["new"] == {b"88"}


def test_what_is_not_there_is_refused():
    for verb, *arguments in (("fsync", "x"), ("rename", "x", "y"), ("remove", "x")):
        with pytest.raises(FileNotFoundError, match="'x'"):
            getattr(StoppedDisk(0, OLD), verb)(*arguments)


def test_of_two_ranks_only_calls_of_different_periods_have_an_order():
    first = DiskCall(0, 0, "fsync_folder")
    assert first.is_before(DiskCall(1, 1, "write", "x")) and not first.is_before(DiskCall(0, 1, "write", "x"))
