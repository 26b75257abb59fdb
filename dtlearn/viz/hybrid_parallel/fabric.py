"""Clusters as data: what is joined to what, by which kind of link, and where it stands in a picture.

    hgx_node      one node: GPUs on a switch of fast links, and a network card for each
    rail_fabric   nodes whose i-th cards share a leaf switch, the i-th rail; spine switches join the rails
    torus_fabric  chips on a grid, each joined to its neighbours, the last of a row to the first

Sources: NVIDIA, "DGX SuperPOD: reference architecture, H100" (rails, leaf and spine); Jouppi et al., 2304.01433,
section 2 (TPU v4's torus). Bandwidths are the planner's, those of `Accelerator`.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..units import format_bytes

if TYPE_CHECKING:
    from dtlearn.planner import Accelerator

DEVICES = {
    "gpu": "GPU",
    "card": "network card",
    "switch": "NVLink switch",
    "leaf": "leaf switch",
    "spine": "spine switch",
    "chip": "chip",
}
DEPTH = (0.40, 0.36)  # a step along a torus's third axis, as the eye sees it


@dataclass(frozen=True)
class FabricNode:
    """A device of a cluster.

    Attributes:
        name: unique in its cluster.
        kind: "gpu", "card", "switch", "leaf", "spine", "outside" or "chip".
        at: its middle in the picture.
        text: what stands on it.
        rail: the number of its rail, whose colour it and its links have; None: it has none.
    """

    name: str
    kind: str
    at: tuple[float, float]
    text: str = ""
    rail: int | None = None


@dataclass(frozen=True)
class FabricLink:
    """A link between two devices.

    Attributes:
        ends: their names.
        kind: a key of the cluster's `rates`.
        wraps: whether it closes a row of a torus.
    """

    ends: tuple[str, str]
    kind: str
    wraps: bool = False


@dataclass(frozen=True)
class Fabric:
    """A cluster that can be drawn.

    Attributes:
        name: what it is.
        nodes: its devices.
        links: between them.
        rates: of each kind of link, what is known of it, in words.
        bandwidths: bytes/s in one direction of those kinds of links for which the planner has them.
        boxes: names of the devices that share a node, by its name.
    """

    name: str
    nodes: tuple[FabricNode, ...]
    links: tuple[FabricLink, ...]
    rates: Mapping[str, str]
    bandwidths: Mapping[str, float]
    boxes: Mapping[str, tuple[str, ...]]

    def __post_init__(self) -> None:
        names = {node.name for node in self.nodes}
        ends = {end for link in self.links for end in link.ends} | {n for box in self.boxes.values() for n in box}
        if len(names) != len(self.nodes) or ends - names or {link.kind for link in self.links} - set(self.rates):
            raise ValueError(
                f"{self.name}: names of devices must differ, and links join these and have a rate; "
                f"unknown are {sorted(ends - names)}, {sorted({link.kind for link in self.links} - set(self.rates))}"
            )

    def degree(self, name: str) -> int:
        """Number of links of a device."""
        return sum(name in link.ends for link in self.links)


def hgx_node(chip: Accelerator, gpus: int = 8) -> Fabric:
    """One node: each GPU on the switch of the fast links and, over PCIe, at a network card of its own.

    Args:
        chip: whose `link` and `network` are the bandwidths.
        gpus: in the node.
    """
    _check("gpus", gpus, 1)
    middle = (gpus - 1) / 2
    inside, links = [FabricNode("switch", "switch", (middle, 0.0), "NVLink switches")], []
    network = FabricNode("network", "outside", (middle, 3.5), "the other nodes, over the leaf switch of each card")
    for i in range(gpus):
        gpu, card = (
            FabricNode(f"{k} {i}", k, (i, y), f"{w} {i}") for k, y, w in (("gpu", 1.1, "GPU"), ("card", 2.2, "card"))
        )
        inside += [gpu, card]
        links += [FabricLink(("switch", gpu.name), "NVLink"), FabricLink((gpu.name, card.name), "PCIe")]
        links.append(FabricLink((card.name, "network"), "network"))
    rates = {
        "NVLink": f"inside the node, {_rate(chip.link)}",
        "PCIe": "between a GPU and its network card",
        "network": f"from node to node, {_rate(chip.network)}",
    }
    bandwidths = {"NVLink": chip.link, "network": chip.network}
    name = f"One node of {gpus} {chip.name}"
    return Fabric(name, (*inside, network), tuple(links), rates, bandwidths, {"node": _names(inside)})


def rail_fabric(chip: Accelerator, nodes: int = 4, gpus: int = 8, spines: int = 2) -> Fabric:
    """Nodes joined by rails: the i-th GPU of every node has its card on the i-th leaf switch.

    Args:
        chip: whose `link` and `network` are the bandwidths.
        nodes: of the cluster.
        gpus: in each node; as many rails.
        spines: switches that join the rails, each to every leaf.
    """
    for name, number in (("nodes", nodes), ("gpus", gpus), ("spines", spines)):
        _check(name, number, 1)
    pitch = gpus + 1.2
    width = nodes * pitch - 1.2 - 1
    found, links, boxes = [], [], {}
    for s in range(spines):
        found.append(FabricNode(f"spine {s}", "spine", (width * (s + 1) / (spines + 1), 5.6), f"spine {s}"))
    for i in range(gpus):
        at = width * (i + 0.5) / gpus
        found.append(FabricNode(f"leaf {i}", "leaf", (at, 3.7), f"leaf {i}", i))
        links += [FabricLink((f"leaf {i}", f"spine {s}"), "uplinks") for s in range(spines)]
    for n in range(nodes):
        left = n * pitch
        inside = [FabricNode(f"{n} switch", "switch", (left + (gpus - 1) / 2, -0.9))]
        for i in range(gpus):
            inside.append(FabricNode(f"{n} gpu {i}", "gpu", (left + i, 0.0), str(i), i))
            links.append(FabricLink((f"{n} gpu {i}", f"leaf {i}"), "network"))
            links.append(FabricLink((f"{n} switch", f"{n} gpu {i}"), "NVLink"))
        found += inside
        boxes[f"node {n}"] = _names(inside)
    rates = {
        "NVLink": f"inside a node, {_rate(chip.link)}",
        "network": f"from each GPU's card to the leaf switch of its rail (colour), {_rate(chip.network)}",
        "uplinks": "from rail to rail, over the spine",
    }
    bandwidths = {"NVLink": chip.link, "network": chip.network}
    name = f"{nodes} nodes of {gpus} {chip.name} on {gpus} rails"
    return Fabric(name, tuple(found), tuple(links), rates, bandwidths, boxes)


def torus_fabric(chip: Accelerator, shape: tuple[int, ...] = (4, 4)) -> Fabric:
    """Chips on a torus of two or three axes: no switch, each chip at its neighbours, rows closed to rings.

    Args:
        chip: whose `link` is the bandwidth, over all links of a chip together.
        shape: chips along each axis: two axes as TPU v2 and v3 have, three as v4. In an axis of 2 there is one link.

    Raises:
        ValueError: another number of axes, or an axis without neighbours.
    """
    if len(shape) not in (2, 3) or min(shape) < 2:
        raise ValueError(f"a torus has two or three axes of 2 chips or more; got {shape}")
    places = list(itertools.product(*(range(size) for size in shape)))
    nodes = [FabricNode(_name(place), "chip", _at(place, shape), ",".join(map(str, place))) for place in places]
    links = []
    for place in places:
        for axis, size in enumerate(shape):
            last = place[axis] == size - 1
            if size > 2 or not last:
                other = (*place[:axis], (place[axis] + 1) % size, *place[axis + 1 :])
                links.append(FabricLink((_name(place), _name(other)), f"axis {axis}", wraps=last))
    dots = "; dots: the two ends of a row are joined" if len(shape) == 3 else ""
    rates = {
        f"axis {axis}": f"{size} chips in each row" + (f", a ring{dots}" if size > 2 else "")
        for axis, size in enumerate(shape)
    }
    rates["axis 0"] += f"; all links of a chip together: {format_bytes(chip.link)}/s each way"
    return Fabric(f"A torus of {' x '.join(map(str, shape))} {chip.name}", tuple(nodes), tuple(links), rates, {}, {})


def fabric_words(fabric: Fabric) -> str:
    """The cluster in words: its devices and links by kind."""
    kinds = [node.kind for node in fabric.nodes]
    devices = ", ".join(f"{kinds.count(kind)} x {DEVICES[kind]}" for kind in DEVICES if kind in kinds)
    links = "; ".join(
        f"{kind}, {sum(link.kind == kind for link in fabric.links)}: {rate}" for kind, rate in fabric.rates.items()
    )
    return f"{fabric.name}. Devices: {devices}. Links: {links}."


def _at(place: tuple[int, ...], shape: tuple[int, ...]) -> tuple[float, float]:
    """The first axis to the right, the second one downwards, the third one into the depth."""
    deep = place[2] if len(place) == 3 else 0
    step = 1.0 if len(shape) == 2 else DEPTH[0] * (shape[2] - 1) + 0.75
    down = 1.0 if len(shape) == 2 else DEPTH[1] * (shape[2] - 1) + 0.55
    return place[0] * step + deep * DEPTH[0], -place[1] * down + deep * DEPTH[1]


def _name(place: tuple[int, ...]) -> str:
    return "chip " + ",".join(map(str, place))


def _names(nodes: list[FabricNode]) -> tuple[str, ...]:
    return tuple(node.name for node in nodes)


def _rate(bandwidth: float) -> str:
    return f"{format_bytes(bandwidth)}/s each way for a GPU"


def _check(name: str, number: int, least: int) -> None:
    if number < least:
        raise ValueError(f"{name} must be {least} or more, got {number}")
