"""What each operation of `torch.distributed` is: one row per function. A new operation is one more row.

The recorder reads it to know what travels and whither, the watch to know what ranks must agree on, the figures to know
who waits for whom, the grader to know where a result arrives. (Elsewhere: the dispatcher's operators, in
`recording/operators.py`; backends' own names, `rank/flight_recorder.py`; costs, `link/cost.py`, `collectives/cost.py`.)
"""

from dataclasses import dataclass

from ..words import ordinal


@dataclass(frozen=True, slots=True)
class Operation:
    """One function of `torch.distributed`."""

    # The arguments that can hold what is handed in (a pure receiver: received into); the first given does.
    payload: tuple[str, ...] = ()
    result: str = ""  # the argument in which a tensor, or a list of them, arrives; "" if there is none
    # The argument that names the other end, or the root: "dst" if data goes there, "src" if it comes from there.
    peer: str = ""
    root: bool = False  # the peer is the root of a collective
    must_be_equal: tuple[str, ...] = ()  # for all of the group, beyond the operation itself: fields of an `Event`
    asynchronous: bool = False  # it always returns a Work
    same_as: str = ""  # the function that does the same, under whose name it is recorded; "" for one that has its own
    queued: bool = False  # torch's coalescing manager queues it, to make one call of several at its end


_LIKE = ("dtype", "shape")
_SUM = ("detail.reduce_op", *_LIKE)

OPERATIONS = {
    "all_reduce": Operation(("tensor",), "tensor", must_be_equal=_SUM, queued=True),
    "broadcast": Operation(("tensor",), "tensor", "src", True, ("peer", *_LIKE)),
    "reduce": Operation(("tensor",), "tensor", "dst", True, ("peer", *_SUM)),
    "all_gather": Operation(("tensor",), "tensor_list", must_be_equal=_LIKE),
    "all_gather_into_tensor": Operation(("input_tensor",), "output_tensor", must_be_equal=_LIKE, queued=True),
    "reduce_scatter": Operation(("input_list",), "output", must_be_equal=("detail.reduce_op", "dtype")),
    "reduce_scatter_tensor": Operation(("input",), "output", must_be_equal=_SUM, queued=True),
    "all_to_all": Operation(("input_tensor_list",), "output_tensor_list", must_be_equal=("dtype",)),
    "all_to_all_single": Operation(("input",), "output", must_be_equal=("dtype",)),
    "gather": Operation(("tensor",), "gather_list", "dst", True, ("peer", *_LIKE)),
    # The root hands in a list and the others nothing, so shapes may differ.
    "scatter": Operation(("scatter_list", "tensor"), "tensor", "src", True, ("peer", "dtype")),
    "send": Operation(("tensor",), peer="dst"),
    "recv": Operation(("tensor",), "tensor", "src"),
    "isend": Operation(("tensor",), peer="dst", asynchronous=True),
    "irecv": Operation(("tensor",), "tensor", "src", asynchronous=True),
    "barrier": Operation(),
    "monitored_barrier": Operation(),
    "all_gather_object": Operation(),
    "broadcast_object_list": Operation(peer="src", root=True, must_be_equal=("peer",)),
    "gather_object": Operation(peer="dst", root=True, must_be_equal=("peer",)),
    "scatter_object_list": Operation(peer="src", root=True, must_be_equal=("peer",)),
    "new_group": Operation(must_be_equal=("detail.ranks",)),
    # Second names; they come and go with torch's versions.
    "all_gather_single": Operation(("input_tensor",), same_as="all_gather_into_tensor"),
    "reduce_scatter_single": Operation(("input",), same_as="reduce_scatter_tensor"),
    "all_reduce_coalesced": Operation(("tensors",), same_as="all_reduce"),
    "all_gather_coalesced": Operation(("input_tensor_list",), same_as="all_gather"),
}
# What an operation is: the chapters, the figures and the budgets tell collectives and point-to-point apart.
P2P_OPS = frozenset(name for name, operation in OPERATIONS.items() if operation.peer and not operation.root)
SENDS = frozenset(name for name in P2P_OPS if OPERATIONS[name].peer == "dst")
_UNKNOWN = Operation()


def operation_of(op: str) -> Operation:
    """The row of a recorded name; of one that is not in the table nothing is known."""
    return OPERATIONS.get(op, _UNKNOWN)


def peer_word(op: str) -> str:
    """What the peer of a call is, for a person: "to" (send), "from" (recv) or "root"."""
    return "to" if op in SENDS else "from" if op in P2P_OPS else "root"


def call_text(op: str, count: int, peer: int | None, line: int) -> str:
    """A call for a person: "its 3rd all_reduce, line 25"; `count` is 1 for the rank's first such call."""
    where = "" if peer is None else f" {peer_word(op)} rank {peer}" if op in P2P_OPS else f" (root {peer})"
    return f"its {ordinal(count)} {op}{where}, line {line}"
