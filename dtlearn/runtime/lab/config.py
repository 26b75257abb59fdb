"""`lab.toml`: which machines make up a lab, how many ranks each takes, and how each is started."""

import ipaddress
import os
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..device import Placement, check_world_size

STARTS = ("manual", "local", "ssh", "srun")


@dataclass(frozen=True)
class HeadConfig:
    """The machine of the notebook."""

    address: str  # the one address that it listens on; the nodes reach it there
    ports: tuple[int, ...]  # tried in order; the first free one is taken
    token_file: Path  # who has it may join; made if it is not there
    patience: float = 15.0  # seconds without a sign of life after which the other side counts as gone
    wait: float = 120.0  # seconds to wait for nodes to join


@dataclass(frozen=True)
class NodeConfig:
    """One machine that runs ranks."""

    host: str  # its name; for "ssh" and "srun" also what these are told
    ranks: int  # how many it takes
    gpus: tuple[int, ...] = ()  # the GPUs for them, by number; () for ranks on the CPU
    start: str = "manual"  # a person types the command there; or "local" (the head's own machine), "ssh", "srun"
    python: str | None = None  # its interpreter; None: at the same path as here
    directory: str | None = None  # the working directory there; None: where the command starts
    interface: str | None = None  # the network interface that ranks use; None: the one that routes to the head
    env: dict[str, str] = field(default_factory=dict)  # environment variables of its ranks


@dataclass(frozen=True)
class Lab:
    """All machines. Ranks are numbered node by node, in the order of the file."""

    path: Path  # the file, for messages
    head: HeadConfig
    nodes: tuple[NodeConfig, ...]

    @property
    def size(self) -> int:
        """The number of ranks on all nodes."""
        return sum(node.ranks for node in self.nodes)

    def first_rank(self, node: int) -> int:
        return sum(n.ranks for n in self.nodes[:node])

    def node_of(self, rank: int) -> int:
        """The number of the node that runs a global rank."""
        return next(k for k in range(len(self.nodes)) if rank < self.first_rank(k + 1))

    def ranks_of(self, node: int) -> list[int]:
        """The global ranks of a node."""
        return list(range(self.first_rank(node), self.first_rank(node + 1)))

    def place(self, device: str = "auto") -> Placement:
        """Backend and devices; see `device.place`, which decides for one machine. Raises ValueError as that does."""
        if device not in ("auto", "cpu", "cuda"):
            raise ValueError(f"device must be one of auto, cpu, cuda; got {device!r}")
        count = f"{len(self.nodes)} node{'s' * (len(self.nodes) > 1)} of {self.path.name}"
        if device != "cpu" and all(node.gpus for node in self.nodes):
            return Placement("nccl", tuple(f"cuda:{k}" for n in self.nodes for k in range(n.ranks)), count)
        if device == "cuda":
            raise ValueError(f'device="cuda", but {self.path} gives some nodes no `gpus`')
        return Placement("gloo", ("cpu",) * self.size, count)


def read_lab(path: str | os.PathLike[str]) -> Lab:
    """Read and check a `lab.toml`. Raises ValueError, saying where it is wrong, what was expected and what is there."""
    path = Path(path).expanduser()
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(
            f"the lab's file {path} cannot be read: {error.strerror or error}. (A plain number of ranks, such as "
            "world(2), starts them on this machine.)"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not valid TOML: {error}") from None
    top = _Table(path, "the file", content, {"head", "node"})
    head = _head(_Table(path, "[head]", top.get("head", dict), {"address", "port", "token_file", "patience", "wait"}))
    tables = top.get("node", list)
    if not tables:
        raise ValueError(f"{path}: at least one [[node]] is needed")
    known = {"host", "slots", "gpus", "start", "python", "directory", "interface", "env"}
    nodes = tuple(_node(_Table(path, f"[[node]] number {k + 1}", t, known)) for k, t in enumerate(tables))
    names = [node.host for node in nodes]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ValueError(f"{path}: each host has one [[node]]; {', '.join(sorted(twice))} has more")
    if len({bool(node.gpus) for node in nodes}) > 1:
        raise ValueError(f"{path}: either all nodes have `gpus` (NCCL) or all have `slots` (gloo on the CPU)")
    lab = Lab(path, head, nodes)
    check_world_size(lab.size)
    return lab


class _Table:
    """One table of the file, read key by key; its errors name the file and the place."""

    def __init__(self, path: Path, where: str, content: Any, known: set[str]) -> None:
        self.path, self.where = path, where
        if not isinstance(content, dict):
            raise self.error(f"must be a table; got {content!r}")
        if unknown := sorted(set(content) - known):
            raise self.error(f"does not know {', '.join(unknown)}; it knows {', '.join(sorted(known))}")
        self._content = content

    def get(self, key: str, kind: Any, default: Any = ...) -> Any:
        """The value of a key. Without a default the key is required."""
        if key not in self._content:
            if default is ...:
                raise self.error(f"needs `{key}`")
            return default
        value = self._content[key]
        if not isinstance(value, kind) or isinstance(value, bool):
            names = " or ".join(_KINDS[k] for k in (kind if isinstance(kind, tuple) else (kind,)))
            raise self.error(f"`{key}` must be {names}; got {value!r}")
        return value

    def error(self, text: str) -> ValueError:
        return ValueError(f"{self.path}: {self.where} {text}")


_KINDS = {str: "text", int: "a whole number", float: "a number", dict: "a table", list: "a list"}


def _head(table: _Table) -> HeadConfig:
    address = table.get("address", str)
    try:
        interface = ipaddress.IPv4Address(address)
    except ValueError:
        raise table.error(f"`address` must be a numeric IPv4 address such as 192.168.1.10; got {address!r}") from None
    if interface.is_unspecified:
        raise table.error(f"`address` must be that of one interface, not {address}, which means all of them")
    token = Path(table.get("token_file", str, "lab.token")).expanduser()
    patience = float(table.get("patience", (int, float), HeadConfig.patience))
    wait = float(table.get("wait", (int, float), HeadConfig.wait))
    if patience < 2 or wait <= 0:
        raise table.error("needs a `patience` of 2 seconds or more and a positive `wait`")
    return HeadConfig(address, _ports(table), table.path.parent / token, patience, wait)


def _ports(table: _Table) -> tuple[int, ...]:
    value = table.get("port", (int, str), 47600)
    first, dash, last = str(value).partition("-")
    try:
        ports = tuple(range(int(first), int(last if dash else first) + 1))
    except ValueError:
        ports = ()
    if not ports or ports[0] < 1 or ports[-1] > 65535:
        raise table.error(f'`port` must be a port from 1 to 65535, or a range such as "47600-47620"; got {value!r}')
    return ports


def _node(table: _Table) -> NodeConfig:
    host = table.get("host", str)
    if not host or host.startswith("-") or any(c.isspace() for c in host):
        raise table.error(f"`host` must be a name without spaces that does not start with -; got {host!r}")
    start = table.get("start", str, "manual")
    if start not in STARTS:
        raise table.error(f"`start` must be one of {', '.join(STARTS)}; got {start!r}")
    gpus, slots = table.get("gpus", (int, list), None), table.get("slots", int, None)
    if (gpus is None) == (slots is None):
        raise table.error("needs either `slots` (ranks on the CPU) or `gpus` (their number, or a list such as [0, 3])")
    numbers = tuple(range(gpus)) if isinstance(gpus, int) else tuple(gpus or ())
    if any(not isinstance(n, int) or isinstance(n, bool) or n < 0 for n in numbers) or len(set(numbers)) < len(numbers):
        raise table.error(f"`gpus` must be a number of GPUs or a list of different GPU numbers; got {gpus!r}")
    ranks = len(numbers) if slots is None else slots
    if ranks < 1:
        raise table.error(f"must take at least 1 rank; got {ranks}")
    env = table.get("env", dict, {})
    if wrong := [k for k, v in env.items() if not isinstance(v, str)]:
        raise table.error(f"`env` must have text values; {wrong[0]} has {env[wrong[0]]!r}")
    texts = {k: table.get(k, str, None) for k in ("python", "directory", "interface")}
    return NodeConfig(host, ranks, numbers, start, env=env, **texts)
