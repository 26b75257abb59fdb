"""Records of made-up ranks from short scripts, for tests of what is counted in a record.

A script is a text per rank: s1 sends to rank 1, r1 receives from it, i1 and j1 are isend and irecv, and w waits for
the oldest of these that is open: "i1 r0 w".
"""

from dtlearn.runtime.record.event import Event
from dtlearn.runtime.record.record import Record

_OPS = {"s": "send", "r": "recv", "i": "isend", "j": "irecv"}


def record(*scripts: str, nbytes: int = 4) -> Record:
    events: list[Event] = []
    for rank, script in enumerate(scripts):
        made: list[dict] = []
        for time, word in enumerate(script.split()):
            if word == "w":
                next(e for e in made if e["end_ns"] is None)["end_ns"] = 10 * time
                continue
            op, peer = _OPS[word[0]], int(word[1:])
            blocks = op in ("send", "recv")
            made.append(dict(rank=rank, seq=len(made), op=op, group="world", group_seq=len(made), nbytes=nbytes))
            made[-1] |= dict(dtype="float32", shape=(nbytes // 4,), peer=peer, detail={}, start_ns=10 * time)
            made[-1] |= dict(end_ns=10 * time + 5 if blocks else None, asynchronous=not blocks, file="a.py", line=time)
        events += [Event(**fields) for fields in made]
    return Record(len(scripts), tuple(events))
