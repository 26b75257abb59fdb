"""What a call on `torch.distributed` means: which argument is the payload, who is the peer; and the log read back.

`recorder.py` writes the log on the ranks.
"""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

from .record import Event

# Which argument holds the payload of each operation, the first that is given.
PAYLOAD = {
    "all_reduce": ("tensor",),
    "broadcast": ("tensor",),
    "reduce": ("tensor",),
    "all_gather": ("tensor",),
    "all_gather_into_tensor": ("input_tensor",),
    "all_gather_single": ("input_tensor",),
    "reduce_scatter": ("input_list",),
    "reduce_scatter_tensor": ("input",),
    "reduce_scatter_single": ("input",),
    "all_to_all": ("input_tensor_list",),
    "all_to_all_single": ("input",),
    "gather": ("tensor",),
    "scatter": ("scatter_list", "tensor"),
    "send": ("tensor",),
    "recv": ("tensor",),
    "isend": ("tensor",),
    "irecv": ("tensor",),
    "all_reduce_coalesced": ("tensors",),
    "all_gather_coalesced": ("input_tensor_list",),
    "barrier": (),
    "monitored_barrier": (),
    "all_gather_object": (),
    "broadcast_object_list": (),
    "gather_object": (),
    "scatter_object_list": (),
    "new_group": (),
}
# Functions that do what another one does; the record has the name of that one.
SAME_AS = {
    "all_gather_single": "all_gather_into_tensor",
    "reduce_scatter_single": "reduce_scatter_tensor",
    "all_reduce_coalesced": "all_reduce",
    "all_gather_coalesced": "all_gather",
}
# Those that torch queues inside its coalescing manager, to make one call of them at its end.
QUEUED = frozenset({"all_reduce", "all_gather_into_tensor", "reduce_scatter_tensor"})
_PEER = {
    "send": "dst",
    "isend": "dst",
    "recv": "src",
    "irecv": "src",
    "broadcast": "src",
    "scatter": "src",
    "reduce": "dst",
    "gather": "dst",
    "broadcast_object_list": "src",
    "scatter_object_list": "src",
    "gather_object": "dst",
}


_REDUCTIONS: dict[Any, str] = {}  # names are slow to make


def read_call_log(path: Path, rank: int) -> list[Event]:
    """The calls of one rank. A last line that was cut short, by a kill, is left out."""
    begun: dict[int, dict[str, Any]] = {}
    try:
        lines = path.read_bytes().splitlines()
    except FileNotFoundError:  # the rank ended before its first call
        return []
    for text in lines:
        with contextlib.suppress(ValueError):
            take_line(begun, json.loads(text))
    first = min(begun, default=0)  # a cell's calls count from 0, whatever its rank did before
    return [to_event(rank, {**call, "seq": call["seq"] - first}) for call in begun.values()]


def take_line(begun: dict[int, dict[str, Any]], line: dict[str, Any]) -> None:
    """Add one line of a log to the calls that it has begun: a call, what became of it, or its end."""
    if "end" in line:
        if call := begun.get(line["end"]):
            call["end_ns"] = line.get("end_ns")
            call["nbytes"] = line.get("nbytes", call["nbytes"])
            call["detail"].update({k: line[k] for k in ("raised", "unseen") if k in line})
    elif "wait" in line:
        if call := begun.get(line["wait"]):
            call["wait_ns"] = line["wait_ns"]
    elif "arrived" in line:
        if call := begun.get(line["arrived"]):
            call["arrived_ns"] = line["arrived_ns"]
    elif "dropped" in line:
        if call := begun.get(line["dropped"]):
            call["detail"]["dropped"] = True
    else:
        begun[line["seq"]] = {**line, "end_ns": None}


def to_event(rank: int, call: dict[str, Any]) -> Event:
    """A call as the log has it, as an event."""
    shape = None if call["shape"] is None else tuple(call["shape"])
    return Event(rank=rank, **{**call, "shape": shape})


def ordinal(number: int) -> str:
    """1 -> "1st", 2 -> "2nd", 11 -> "11th"."""
    suffix = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{suffix}"


def call_text(op: str, count: int, peer: int | None, line: int) -> str:
    """A call for a person: "its 3rd all_reduce, line 25"; `count` is 1 for the rank's first such call."""
    to = "" if peer is None else f" {'to' if 'send' in op else 'from'} rank {peer}"
    rooted = {"broadcast", "scatter", "reduce", "gather"}
    where = f" (root {peer})" if op in rooted and peer is not None else to
    return f"its {ordinal(count)} {op}{where}, line {line}"


def payload(op: str, arguments: dict[str, Any]) -> list[Any]:
    """The tensors that the call hands in (or receives into, for a pure receiver)."""
    for name in PAYLOAD[op]:
        value = arguments.get(name)
        if value is not None:
            values = value if isinstance(value, list | tuple) else [value]
            return [v for v in values if hasattr(v, "element_size")]  # torch itself says what else is wrong
    return []


def group_name(group: Any) -> str:
    """ "world", or the global ranks of a sub-group, such as "0,2"."""
    if group is None:
        return "world"
    import torch.distributed as dist

    if not dist.is_initialized() or group is dist.group.WORLD:
        return "world"
    with contextlib.suppress(ValueError, RuntimeError, TypeError, AttributeError):
        return ",".join(map(str, dist.get_process_group_ranks(group)))
    return "unknown"


def group_id(group: Any) -> str:
    """torch's own name of a sub-group, the same on all ranks; two groups of the same ranks differ in it."""
    return str(getattr(group, "group_name", "") or "")


def peer(op: str, arguments: dict[str, Any]) -> int | None:
    import torch.distributed as dist

    name = _PEER.get(op)
    if name is None:
        return None
    found, in_group = arguments.get(name), arguments.get(f"group_{name}")
    if found is None and in_group is not None:
        group = arguments.get("group") or dist.group.WORLD
        return dist.get_global_rank(group, in_group) if group is not None else None
    return found


def detail(arguments: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if "op" in arguments:
        found["reduce_op"] = _reduction(arguments["op"])
    if "tag" in arguments:  # point-to-point
        if arguments["tag"]:
            found["tag"] = arguments["tag"]
        found |= _place(arguments.get("tensor"))
    if arguments.get("ranks") is not None:
        found["ranks"] = list(arguments["ranks"])
    outputs = arguments.get("tensor_list")
    if outputs and len({tuple(getattr(t, "shape", ())) for t in outputs}) > 1:
        found["uneven"] = True
    import torch.distributed as dist

    ends = [end for end in (arguments.get("src"), arguments.get("dst")) if isinstance(end, int)]
    if ends and dist.is_initialized() and max(ends) >= (size := dist.get_world_size()):
        found["world_size"] = size  # there is no such rank; gloo may wait for it, and for ever
    if arguments.get("use_local_synchronization"):
        found["local"] = True  # only the members of the new group call this
    return found


def _place(tensor: Any) -> dict[str, int]:
    """Where a payload lies in its storage, in bytes: which chunk of a larger tensor travels."""
    with contextlib.suppress(AttributeError, RuntimeError, NotImplementedError):  # not every tensor has a storage
        return {"at": tensor.storage_offset() * tensor.element_size(), "of": tensor.untyped_storage().nbytes()}
    return {}


def _reduction(op: Any) -> str:
    """ReduceOp.SUM -> "SUM"."""
    try:
        return _REDUCTIONS[op]
    except (KeyError, TypeError):  # TypeError: one with a factor of its own cannot be a key
        name = str(op).rsplit(".", 1)[-1]
        with contextlib.suppress(TypeError):
            _REDUCTIONS[op] = name
        return name
