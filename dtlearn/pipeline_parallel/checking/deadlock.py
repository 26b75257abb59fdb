"""Whether ranks that send and receive in given orders wait for each other forever.

A send here ends when its receive is posted: a rendezvous, the strictest rule. A library that has a buffer for the
message may let the sender go on; then a wrong order runs today and hangs with a larger message. MPI calls a program
safe when it needs no buffer (MPI 4.0, section 3.5), and so do we.

Calls posted together (`batch_isend_irecv`) are one step of a rank: their order among each other does not matter, and
the rank goes on when all are done. A blocking call is a step of its own. Between two ranks messages do not overtake.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple


class Post(NamedTuple):
    """A send or a receive that a rank posts.

    Attributes:
        op: which of the two.
        peer: the other rank.
        what: the message, "2F0" say: what the sender and the receiver must agree about.
    """

    op: Literal["send", "receive"]
    peer: int
    what: str

    def __str__(self) -> str:
        return f"{self.op}s {self.what} {'to' if self.op == 'send' else 'from'} rank {self.peer}"


PostOrder = Sequence[Sequence[Post]]  # of one rank: in each step, what it posts together


@dataclass(frozen=True)
class Deadlock:
    """Why not all ranks come to the end.

    Attributes:
        kind: "circle": ranks wait for each other; "no-partner": for a rank that is done, or posts no such call;
            "other-message": a sender and a receiver disagree about what is sent.
        message: who waits for whom, in words.
        ranks: of whom the message speaks, each waiting for the next one.
    """

    kind: Literal["circle", "no-partner", "other-message"]
    message: str
    ranks: tuple[int, ...]

    def __str__(self) -> str:
        return self.message


def find_deadlock(orders: Sequence[PostOrder], *, buffered: bool = False) -> Deadlock | None:
    """Let all ranks post their calls in order.

    Args:
        orders: for each rank, its steps.
        buffered: a send ends at once, whether or not its receive is posted.

    Returns:
        Why they do not come to the end; None: they do.

    Raises:
        ValueError: a peer that does not exist, or a rank that sends to itself.
    """
    _check_peers(orders)
    at, waiting = [-1] * len(orders), [list[Post]() for _ in orders]  # of each rank: its step, and what is not done
    channels = defaultdict[tuple[int, int], tuple[deque[Post], deque[Post]]](lambda: (deque(), deque()))
    active = list(range(len(orders)))
    while active:
        rank = active.pop()
        if waiting[rank] or at[rank] == len(orders[rank]):
            continue
        at[rank] += 1
        active.append(rank)
        for post in orders[rank][at[rank]] if at[rank] < len(orders[rank]) else ():
            source, target = (rank, post.peer) if post.op == "send" else (post.peer, rank)
            sends, receives = channels[source, target]
            (sends if post.op == "send" else receives).append(post)
            if not (buffered and post.op == "send"):
                waiting[rank].append(post)
            if sends and receives:
                send, receive = sends.popleft(), receives.popleft()
                if send.what != receive.what:
                    words = f"{_where(source, at, orders)} {send}, and {_where(target, at, orders)} {receive}"
                    return Deadlock("other-message", f"{words}: they disagree about the message", (source, target))
                if not buffered:
                    waiting[source].remove(send)
                waiting[target].remove(receive)
                active += [source, target]
    return _who_waits(orders, at, waiting)


def _check_peers(orders: Sequence[PostOrder]) -> None:
    for rank, steps in enumerate(orders):
        for post in (post for step in steps for post in step):
            if not 0 <= post.peer < len(orders) or post.peer == rank:
                raise ValueError(f"rank {rank} {post}: expected another one of {len(orders)} ranks")


def _where(rank: int, at: list[int], orders: Sequence[PostOrder]) -> str:
    return f"rank {rank} (step {at[rank]} of {len(orders[rank])})"


def _who_waits(orders: Sequence[PostOrder], at: list[int], waiting: list[list[Post]]) -> Deadlock | None:
    """The deadlock of ranks that cannot go on: a circle of them, or one whose partner is done. None: no rank waits."""
    waits = {rank: posts[0] for rank, posts in enumerate(waiting) if posts}
    if not waits:
        return None
    path = [next(iter(waits))]
    while (peer := waits[path[-1]].peer) in waits and peer not in path:
        path.append(peer)
    ranks = path[path.index(peer) :] if peer in path else [path[-1]]
    words = "; ".join(f"{_where(rank, at, orders)} {waits[rank]}" for rank in ranks)
    if peer in path:
        return Deadlock("circle", f"{words}: each waits for the next, and the last for the first", tuple(ranks))
    return Deadlock("no-partner", f"{words}, and rank {peer} has come to its end without it", (ranks[0], peer))
