"""Small records made by hand, with times in ms, for the tests of the figures."""

from dtlearn.runtime.record.event import Event
from dtlearn.runtime.record.record import Record, merge

MS = 1_000_000


def event(rank, seq, op, start, end, *, nbytes=1000, peer=None, group="world", group_seq=None, tag=0):
    """An event whose times are given in ms; `end=None` never returned."""
    end_ns = None if end is None else round(end * MS)
    number = seq if group_seq is None else group_seq
    return Event(
        rank,
        seq,
        op,
        group,
        number,
        nbytes,
        "float32",
        (250,),
        peer,
        {"tag": tag},
        round(start * MS),
        end_ns,
        False,
        "f.py",
        1,
    )


def record(*per_rank, label="gloo on CPU"):
    return merge(len(per_rank), per_rank, label)


def all_reduce_run() -> Record:
    """Three ranks; rank 2 comes last, at 4 ms, and all end at 6 ms."""
    return record(*([event(r, 0, "all_reduce", 1 + r * 1.5, 6)] for r in range(3)))


def chain_run() -> Record:
    """Rank 0 sends at 5 ms to rank 1, which waits from 0 ms."""
    return record([event(0, 0, "send", 5, 6, peer=1)], [event(1, 0, "recv", 0, 7, peer=0)])
