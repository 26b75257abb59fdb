"""Accelerators and clusters as data: peaks, what kernels reach of them, memory, links. Every number can be replaced.

Sources. Peaks (dense), memory and its bandwidth, links: NVIDIA's data sheets of V100, A100, H100, H200 and B200; PaLM,
2204.02311, appendix B (TPU v4); Patterson et al., 2104.10350, table 4 (TPU v3); its links: four of 70 GB/s, 2304.01433,
table 4, halved for one direction as PaLM's 270 of v4. The matmul ceilings of A100, H100 and B200 are measured: Bekman,
"Machine Learning Engineering", compute/accelerator; V100: 83 of 112 TFLOP/s, Markidis et al., 1803.04014. Those of the
other chips are assumed. Fused attention: 2307.08691, section 4 (A100), and 2407.08608, abstract: FlashAttention-2
reaches 35 % of an H100, which stands here; FlashAttention-3 up to 75 %.
"""

from __future__ import annotations

import difflib
import math
import re
from dataclasses import dataclass, replace

from .checking import check_positive, check_whole, divisors

GB = 10**9
GIB = 2**30


@dataclass(frozen=True)
class Accelerator:
    """A chip, and what it reaches.

    Attributes:
        name: as users write it.
        peak: FLOP/s of dense products in 16 bits.
        ceiling: of 1, what the best measured product reaches of the peak.
        attention: of 1, what fused attention reaches of the peak.
        memory: bytes.
        bandwidth: of that memory, bytes/s.
        link: bytes/s in one direction to the other chips of a node.
        network: bytes/s in one direction to other nodes, for each chip.
        low_peak: FLOP/s in 8 bits; 0: none.

    Raises:
        ValueError: a number that is not above 0, or a share above 1.
    """

    name: str
    peak: float
    ceiling: float
    attention: float
    memory: float
    bandwidth: float
    link: float
    network: float
    low_peak: float = 0.0

    def __post_init__(self) -> None:
        names = ("peak", "ceiling", "attention", "memory", "bandwidth", "link", "network")
        check_positive(f"accelerator {self.name}", **{name: getattr(self, name) for name in names})
        check_positive(f"accelerator {self.name}", zero=True, low_peak=self.low_peak)


ACCELERATORS = {
    chip.name: chip
    for chip in (
        Accelerator("P100", 21.2e12, 0.85, 0.4, 16 * GIB, 0.73e12, 16e9, 12.5e9),
        Accelerator("V100-16GB", 125e12, 83 / 112, 0.4, 16 * GIB, 0.9e12, 150e9, 12.5e9),
        Accelerator("V100-32GB", 125e12, 83 / 112, 0.4, 32 * GIB, 0.9e12, 150e9, 12.5e9),
        Accelerator("A100-40GB", 312e12, 271.2 / 312, 0.55, 40 * GIB, 1.555e12, 300e9, 25e9),
        Accelerator("A100-80GB", 312e12, 271.2 / 312, 0.55, 80 * GIB, 2.0e12, 300e9, 25e9),
        Accelerator("A800-80GB", 312e12, 271.2 / 312, 0.55, 80 * GIB, 2.0e12, 200e9, 25e9),
        Accelerator("H800-80GB", 989.5e12, 794.5 / 989.5, 0.35, 79.6 * GIB, 3.35e12, 200e9, 50e9, 1979e12),
        Accelerator("H100-80GB", 989.5e12, 794.5 / 989.5, 0.35, 79.6 * GIB, 3.35e12, 450e9, 50e9, 1979e12),
        # A 500 W variant of torchtitan's measurements, 2410.06511, section 3: slower clocks, HBM2e.
        Accelerator("H100-96GB", 989.5e12, 0.65, 0.3, 95 * GIB, 2.4e12, 450e9, 50e9, 1979e12),
        Accelerator("H200", 989.5e12, 794.5 / 989.5, 0.35, 141 * GB, 4.8e12, 450e9, 50e9, 1979e12),
        Accelerator("B200", 2250e12, 1745 / 2250, 0.35, 180 * GB, 8.0e12, 900e9, 50e9, 4500e12),
        # AMD's data sheets; an MI250X is two chips, each of which a framework sees as one.
        Accelerator("MI250X", 191.5e12, 0.75, 0.3, 64 * GIB, 1.6e12, 100e9, 12.5e9),
        Accelerator("MI300X", 1307e12, 0.6, 0.3, 192 * GB, 5.3e12, 448e9, 50e9, 2614e12),
        Accelerator("TPUv3", 123e12, 0.85, 0.4, 32 * GIB, 0.9e12, 140e9, 140e9),
        Accelerator("TPUv4", 275e12, 0.85, 0.4, 32 * GIB, 1.2e12, 135e9, 135e9),
    )
}
LATENCY = {"link": 3e-6, "net": 10e-6}  # seconds a message: NCCL inside a node and over InfiniBand, order of magnitude
MOST_CHIPS = 10**7  # of a cluster that can be planned; the largest that trained one model have some 10^5
DEFAULTS = {"A100": "A100-80GB", "H100": "H100-80GB", "V100": "V100-32GB", "A800": "A800-80GB", "H800": "H800-80GB"}


@dataclass(frozen=True)
class Cluster:
    """Chips in nodes, on two levels of links.

    Attributes:
        chip: of every rank.
        size: number of chips.
        node: chips of a node; the last one need not be full.
        link_latency, network_latency: seconds of a message inside a node, and between nodes.

    Raises:
        ValueError: no whole numbers of 1 or more, or negative latencies.
    """

    chip: Accelerator
    size: int
    node: int = 8
    link_latency: float = LATENCY["link"]
    network_latency: float = LATENCY["net"]

    def __post_init__(self) -> None:
        check_whole("a cluster", most=MOST_CHIPS, size=self.size, node=self.node)
        check_positive("a cluster", zero=True, link_latency=self.link_latency, network_latency=self.network_latency)

    @property
    def memory(self) -> float:
        """Bytes of one chip."""
        return self.chip.memory


def find_accelerator(name: str) -> Accelerator:
    """The accelerator that a text names: "A100", "H100-SXM 80 GB", "H100 96GB HBM2e, 500W", "TPU v4".

    A name without its memory means the larger variant, or, of the H100, that with 80 GB.

    Raises:
        ValueError: no known accelerator, or none with the memory that is named; the message lists those that are known.
    """
    text = name.lower()
    printed = [int(number) for number in re.findall(r"(?<!\d)(\d+) ?gi?b(?!it|/|ps)", text)]
    for family in sorted({known.partition("-")[0] for known in ACCELERATORS}):
        if not _names(text, family):
            continue
        variants = [known for known in ACCELERATORS if known.partition("-")[0] == family and "-" in known]
        sizes = [int(known.partition("-")[2].removesuffix("GB")) for known in variants]
        if not variants or not printed:
            return ACCELERATORS[DEFAULTS.get(family, family)]
        for known, size in zip(variants, sizes, strict=True):
            if size in printed:
                return ACCELERATORS[known]
        raise ValueError(
            f"unknown GPU {name!r}: known of {family} are {', '.join(variants)}. For another one make an Accelerator: "
            "peak, memory, bandwidth and links are on its data sheet"
        )
    near = difflib.get_close_matches(name, [*ACCELERATORS, *DEFAULTS], n=2, cutoff=0.4)
    hint = f"; did you mean {' or '.join(near)}?" if near else "."
    raise ValueError(
        f"unknown GPU {name!r}{hint} Known are {', '.join(ACCELERATORS)}. For another one make an "
        "Accelerator: peak, memory, bandwidth and links are on its data sheet"
    )


def _names(text: str, family: str) -> bool:
    """Whether a text has a family's name as a word of its own: V100 is neither in V1000, nor H200 in GH200."""
    spread = "[^a-z0-9]*".join(family.lower())
    return re.search(rf"(?<![a-z0-9])(?:\d+ ?x ?)?{spread}(?!\d)", text) is not None


def parse_cluster(text: str, network: float | None = None) -> Cluster:
    """A cluster from "384xA100-80GB" or "1024xH100/4", with 4 chips in a node.

    Args:
        text: number, "x" and accelerator.
        network: bytes/s of each chip to other nodes, where they differ from the table's.

    Raises:
        ValueError: another form, an unknown accelerator, nodes that do not divide it, or a network without bandwidth.
    """
    match = re.fullmatch(r"\s*(\d{1,20})\s*[x*]\s*(.+?)(?:/(\d{1,20}))?\s*", text, flags=re.ASCII)
    if not match:
        raise ValueError(f"a cluster is NUMBERxGPU, such as 384xA100-80GB, or 64xH100/4 in nodes of 4; got {text!r}")
    chip = find_accelerator(match[2])
    if network is not None:
        if not (math.isfinite(network) and network > 0):
            raise ValueError(f"the network needs a finite bandwidth above 0, got {network} bytes/s for each GPU")
        chip = replace(chip, network=network)
    size, node = int(match[1]), int(match[3] or 8)
    if match[3] and node and size > node and size % node:
        sizes = " or ".join(str(n * node) for n in (size // node, size // node + 1))
        nodes = ", ".join(str(n) for n in divisors(size, 72))
        raise ValueError(
            f"{size} chips do not fill nodes of {node}: take {sizes} chips, or nodes of one of {nodes} "
            f"(such as {size}x{chip.name}/{divisors(size, node)[-1]})"
        )
    return Cluster(chip, size, node)
