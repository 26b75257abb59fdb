"""Whether every node of a lab can reach every other one, tried before the ranks do and wait for minutes."""

from concurrent.futures import ThreadPoolExecutor

from ...errors import LaunchError
from .port import JoinedNode

ADVICE = (
    "Between the nodes every TCP port must be open. If a machine has several networks, name the one that they share "
    "with `interface` in lab.toml."
)


def probe_mesh(joined: list[JoinedNode]) -> None:
    """Let each node connect to each other one. Raises LaunchError that names the pairs that fail."""
    if lines := failed_pairs(joined):
        first = "nodes cannot reach each other, so no group of their ranks can form:"
        raise LaunchError("\n".join([first, *(f"  {line}" for line in lines), ADVICE]))


def failed_pairs(joined: list[JoinedNode]) -> list[str]:
    """Let each node connect to each other one. Returns a line for each pair that fails."""
    addresses = {p.host: [p.said["address"], p.ask({"do": "listen"})["port"]] for p in joined}
    requests = [{"do": "probe", "targets": {h: at for h, at in addresses.items() if h != p.host}} for p in joined]
    with ThreadPoolExecutor(len(joined)) as pool:
        replies = list(pool.map(JoinedNode.ask, joined, requests))
    return [
        f"{p.host} ({addresses[p.host][0]}, {p.said['interface']}) -> {target} ({addresses[target][0]}): {error}"
        for p, reply in zip(joined, replies, strict=True)
        for target, error in reply["answer"].items()
    ]
