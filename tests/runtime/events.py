"""Calls of made-up ranks, for the tests of the rules."""

from dtlearn.runtime.record.event import Event
from dtlearn.runtime.record.operations import P2P_OPS
from dtlearn.runtime.watch.message_rules import RankView


class Rank:
    """Collects the calls of one rank, numbering them as the recorder does."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.calls: list[Event] = []

    def call(
        self,
        op="all_reduce",
        *,
        group="world",
        peer=None,
        done=True,
        shape=(4,),
        dtype="float32",
        line=1,
        nbytes=16,
        **detail,
    ):
        alike = [e for e in self.calls if e.group == group and e.is_p2p == (op in P2P_OPS)]
        self.calls.append(
            Event(
                rank=self.rank,
                seq=len(self.calls),
                op=op,
                group=group,
                group_seq=len(alike),
                nbytes=nbytes,
                dtype=dtype,
                shape=shape,
                peer=peer,
                detail=detail,
                start_ns=len(self.calls),
                end_ns=len(self.calls) + 1 if done else None,
                asynchronous=False,
                file="cell.py",
                line=line,
                code=f"dist.{op}(t)",
            )
        )
        return self

    def view(self, ended=False) -> RankView:
        last = self.calls[-1] if self.calls else None
        blocked = last if last is not None and last.end_ns is None and not ended else None
        return RankView(self.calls, blocked, ended)


def views(*ranks: Rank, ended=()) -> dict[int, RankView]:
    return {rank.rank: rank.view(rank.rank in ended) for rank in ranks}
