"""ch04.place_keys: models of a few keys. Each rung adds one reason for which a key goes elsewhere."""

from __future__ import annotations

import heapq
from typing import Any

from dtlearn.grading import Case, Check, Edit, Given, rules
from dtlearn.runtime.record.record import Record

from . import MAY_HELP

FALLING, TIE = {"w1": 32, "w2": 24}, "of several servers with the fewest bytes the one with the lowest number is next"
# Per case: the arguments.
CASES: dict[str, dict[str, Any]] = {
    "a key for each server": {"keys": FALLING},
    "a small key before a large one": {
        "says": "the largest key is placed first, wherever it stands in sizes",
        "keys": {"b": 8, "w": 32},
    },
    "more keys than servers": {
        "says": "a key goes to the server that has the fewest bytes so far, whatever it got before",
        "keys": {"b1": 12, "w1": 40, "b2": 16, "w2": 32, "w3": 20},
    },
    "keys of equal sizes": {
        "says": "of keys of equal sizes the one that stands first in sizes is placed first",
        "keys": {"w1": 16, "w2": 16, "b2": 4, "b1": 4, "b3": 4},
    },
    "servers with equal loads": {"says": TIE, "keys": {"w1": 24, "w2": 20, "w3": 12, "b1": 4, "b2": 4, "b3": 4}},
    "four servers": {
        "says": "there are num_servers servers, not always 2 or 3",
        "keys": {"w1": 28, "b1": 8, "w2": 24, "w3": 24, "b2": 12, "w4": 24},
        "num_servers": 4,
    },
    "fewer keys than servers": {
        "says": "with fewer keys than servers one would keep nothing: raise a ValueError that names both numbers",
        "keys": FALLING,
        "num_servers": 3,
    },
}
ORDER, SERVER = "sorted(sizes, key=sizes.__getitem__, reverse=True)", "server = loads.index(min(loads))"
RAISE, MESSAGE = "if len(sizes) < num_servers:", 'f"{len(sizes)} keys on {num_servers} servers: '
LOAD, TURN = "loads[server] += sizes[key]", "len(servers) % num_servers"
EDITS = (
    Edit("the keys are placed in the order of sizes: the largest goes first", {ORDER: "sizes"}),
    Edit("the smallest key is placed first: begin with the largest", {", reverse=True": ""}),
    Edit("the keys are placed in the order of their names: the largest goes first", {ORDER: "sorted(sizes)"}),
    Edit("the servers take turns, as if keys counted: each goes to the one with the fewest bytes",
         {SERVER: f"server = {TURN}"}),
    Edit("the servers take turns there and back: each key goes to the one that has the fewest bytes",
         {SERVER: "turn = len(servers) % (2 * num_servers); server = min(turn, 2 * num_servers - 1 - turn)"}),
    Edit("the keys are cut into runs of about equal bytes: each key by itself goes to the server with the least",
         {SERVER: "server = min(num_servers - 1, sum(loads) * num_servers // sum(sizes.values()))"}),
    Edit("of equal loads the last server is next: it is the one with the lowest number",
         {SERVER: "server = num_servers - 1 - loads[::-1].index(min(loads))"}),
    Edit("of equal loads the server with the fewest keys is next: it is the one with the lowest number",
         {SERVER: "server = min(range(num_servers), key=lambda s: (loads[s], list(servers.values()).count(s)))"}),
    Edit("of equal loads the server of the key before is next: it is the one with the lowest number",
         {SERVER: "last = next(reversed(servers.values()), 0); "
          "server = min(range(num_servers), key=lambda s: (loads[s], s != last))"}),
    Edit("of equal sizes the last key is placed first: it is the one that stands first in sizes",
         {ORDER: "sorted(sizes, key=sizes.__getitem__)[::-1]"}),
    Edit("of equal sizes the first key by name is placed first: it is the one that stands first in sizes",
         {ORDER: "sorted(sizes, key=lambda key: (-sizes[key], key))"}),
    Edit("the server with the most bytes is next: it is the one with the fewest",
         {SERVER: "server = loads.index(max(loads))"}),
    Edit("the loads are not added up: add the bytes of each key to its server", {LOAD: "loads[server] = sizes[key]"}),
    Edit("there are two servers, whatever num_servers says", {"[0] * num_servers": "[0] * 2"}),
    Edit("the servers are numbered from 1: the first is server 0",
         {"servers[key] = server": "servers[key] = server + 1"}),
    Edit("of each server its keys are returned: a dict with the server of each key is expected",
         {"return servers": "return {s: [k for k in servers if servers[k] == s] for s in range(num_servers)}"}),
    Edit("the numbers of the servers are floats: 1.0 is the index of no list, make it an int",
         {"servers[key] = server": "servers[key] = float(server)"}),
    Edit("of each key the server's bytes are returned: its number is expected",
         {"return servers": "return {key: loads[server] for key, server in servers.items()}"}),
    Edit("fewer keys than servers are not refused: raise a ValueError, a server would keep nothing",
         {RAISE: "if not num_servers:"}),
    Edit("the message of the ValueError does not name both numbers: that of the keys and that of the servers",
         {MESSAGE: 'f"too few keys: '}),
)  # fmt: skip


def inputs(case: Case) -> Given:
    return [{"sizes": case.params["keys"], "num_servers": case.params.get("num_servers", 2)}] * case.world_size


def on_rank(answer: Any, sizes: Any, num_servers: int) -> Any:
    from dtlearn.grading.on_rank.tools import refusal_naming

    if len(sizes) < num_servers:
        return refusal_naming([len(sizes), num_servers], answer, sizes, num_servers)
    servers = answer(sizes, num_servers)
    if not isinstance(servers, dict):
        return servers
    # Else 1.0 passes, since it equals 1; but it is the index of no list.
    return {str(key): repr(server) if isinstance(server, float) else server for key, server in servers.items()}


def expected(case: Case, given: Given) -> list[Any]:
    """The server of each key: from the largest on, a key goes to the first server in a heap by load and number."""
    sizes, num_servers = given[0]["sizes"], given[0]["num_servers"]
    if len(sizes) < num_servers:
        return [f"a ValueError that names {len(sizes)} and {num_servers}"] * case.world_size
    heap, servers = [(0, server) for server in range(num_servers)], {}
    for size, _, key in sorted((-size, place, key) for place, (key, size) in enumerate(sizes.items())):
        load, servers[key] = heap[0]
        heapq.heapreplace(heap, (load - size, servers[key]))
    return [servers] * case.world_size


def why(case: Case, given: Given, record: Record) -> str:
    """The hint for a run that raised: the arguments of the call."""
    return f"{MAY_HELP}it was called with {', '.join(f'{name} = {value}' for name, value in given[0].items())}"


CHECK = Check(
    on_rank,
    inputs,
    expected,
    cases=CASES,
    edits=EDITS,
    example=[{"sizes": {"w1": 24, "b1": 4, "w2": 32, "b2": 8}, "num_servers": 2}],
    why=why,
    rules=[rules.most_messages("0")],
)
