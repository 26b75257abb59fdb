"""The doctor's checks of one machine of a lab. Each judges plain values that the node told, which tests can fake."""

import ipaddress
import shlex
from typing import Any

from ...runtime.lab.config import NodeConfig
from ...runtime.machine.limits import RANK_MEMORY
from ...runtime.machine.memory import GIB
from .check import Line
from .machine import check_host_name, sensible_ranks
from .ranks import gpu_text

_FAR = 5e-3  # seconds: a clock that is known no better blurs a timeline
_WALL = 2.0  # seconds between two wall clocks that are worth a word
_BUSY = 0.1  # share of a GPU's memory that an idle driver does not need


def check_absent(node: NodeConfig, why: str, command: str) -> Line:
    """A node that did not join. `why`: what the head says. `command`: what a person would type there."""
    by_hand = f"Type it there, and read what it says: {command}"
    advice = {
        "manual": by_hand,
        "local": by_hand,
        "ssh": f"Must answer without a question: ssh -o BatchMode=yes {shlex.quote(node.host)} true. Then: {by_hand}",
        "srun": f"Needs an allocation that has this node: squeue --me, srun --overlap --nodelist={node.host} hostname",
    }[node.start]
    advised = "install the same version" in why or "GPUs to torch" in why  # what to do stands in the message
    return Line("joined", "problem", why, "" if advised else advice)


def check_joined(node: NodeConfig, said: dict[str, Any], within_ns: int) -> Line:
    """`said`: what it told when it joined. `within_ns`: half of the shortest round trip to it."""
    how = "by hand" if node.start == "manual" else node.start
    return Line("joined", "ok", f"started {how}, process {said['pid']}; a round trip takes {within_ns / 5e5:.2f} ms")


def check_software(versions: dict[str, str]) -> Line:
    """The versions of a node that was let in: they are those of the head, or it would not have been."""
    return Line("software", "ok", ", ".join(f"{k} {v}" for k, v in sorted(versions.items())) + ", as on the head")


def check_network(said: dict[str, Any], far: bool) -> Line:
    """Where ranks of this node listen for those of the others. `far`: the nodes are several machines."""
    text = f"{said['interface']}, {said['address']}"
    if ipaddress.ip_address(said["address"]).is_loopback and far:
        advice = "Put the head's own address in the network of the nodes, not 127.0.0.1, into [head]."
        return Line("interface", "note", f"{text}: no other machine can reach that", advice)
    return Line("interface", "ok", f"{text}: ranks talk over it")


def check_name(facts: dict[str, Any], interface: str, far: bool) -> Line:
    """What this machine's name stands for: gloo listens there, where no interface is named. `far`: as above."""
    timed = check_host_name(facts["name"], facts["seconds"], facts["patience"])
    if timed.state != "ok":
        return timed
    addresses = facts["addresses"]
    text = f"{facts['name']} stands for {', '.join(addresses) or 'no address'}, after {facts['seconds']:.2f} s"
    if far and all(ipaddress.ip_address(a.partition("%")[0]).is_loopback for a in addresses):
        advice = f"Cells do not mind. A script that you start yourself needs: export GLOO_SOCKET_IFNAME={interface}"
        return Line("host name", "note", f"{text}: of no use to other machines", advice)
    return Line("host name", "ok", text)


def check_memory(num_ranks: int, memory: list[int] | None) -> Line:
    """Whether its ranks fit. `memory`: bytes, all and free."""
    if memory is None:
        return Line("memory", "note", "this system does not say how much there is")
    total, free = memory
    text = f"{free / GIB:.1f} of {total / GIB:.1f} GiB free, for {num_ranks} rank{'s' * (num_ranks > 1)}"
    if num_ranks * RANK_MEMORY > free:
        advice = f"{free // RANK_MEMORY} fit: lower `slots` or `gpus` of this node, or close other programs there."
        return Line("memory", "problem", text, advice)
    if num_ranks > sensible_ranks(free):
        return Line("memory", "note", f"{text}: little is left for tensors", "Lower `slots`, or close other programs.")
    return Line("memory", "ok", text)


def check_cores(node: NodeConfig, cores: int) -> Line:
    if node.ranks > cores:
        advice = "Results are right, but nothing gets faster with ranks."
        return Line("cores", "note", f"{node.ranks} ranks share {cores}", advice)
    return Line("cores", "ok", str(cores))


def check_gpus(node: NodeConfig, seen: int, lines: list[str] | None, visible: str | None) -> Line:
    """The GPUs of its ranks. `seen`: by torch; `lines`: see `facts.query_gpus`; `visible`: CUDA_VISIBLE_DEVICES."""
    if not node.gpus:
        if seen:
            return Line("GPUs", "ok", f"torch sees {seen}; ranks run on the CPU, as `slots` says (`gpus` uses them)")
        return Line("GPUs", "ok", "none: ranks run on the CPU")
    numbers = ", ".join(map(str, node.gpus))
    if not lines or visible is not None:  # then the driver's numbers are not those of torch
        where = "" if visible is None else f", CUDA_VISIBLE_DEVICES={visible}"
        return Line("GPUs", "ok", f"{numbers} of the {seen} that torch sees{where}")
    mine = [line for line in lines if int(line.partition(",")[0]) in node.gpus]
    text = f"{numbers} of {seen}: {'; '.join(map(gpu_text, mine))}"
    if any(_share(line) > _BUSY for line in mine):
        return Line("GPUs", "note", f"{text}: in use", "`nvidia-smi` there says by whom. Choose others with `gpus`.")
    return Line("GPUs", "ok", text)


def check_clock(within_ns: int, wall: float) -> Line:
    """How well the head knows the clock that times calls, and by how many seconds its wall clock is ahead (`wall`)."""
    text = f"calls are timed to {within_ns / 1e6:.2f} ms"
    if abs(wall) > _WALL:
        advice = "Cells do not mind; Slurm, logs and files do. `timedatectl` there: is it synchronised?"
        text += f"; its date is {abs(wall):.0f} s {'ahead' if wall > 0 else 'behind'}"
        return Line("clock", "note", text, advice)
    if within_ns > _FAR * 1e9:
        return Line("clock", "note", text, "A slow or busy network: bars in figures may be off by that much.")
    return Line("clock", "ok", text)


def _share(line: str) -> float:
    """The part of a GPU's memory that is in use; 0 where the driver does not say."""
    try:
        total, used = (int(part) for part in line.split(",")[2:4])
    except ValueError:
        return 0.0
    return used / total
