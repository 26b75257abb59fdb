"""What each group's training system hides and reaches: calibrated on at most one row of the group, the rest predicted.

`efficiency` is solved so that the named row comes out as printed (`tests/planner/score/test_calibration.py` solves it
again); what is hidden is what the paper says of its system. A group that is not here has `Software()`, uncalibrated.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from ..run import Software
from .entries import PublishedNumber

# On V100, where a group has no row: what the three systems of 2021 and 2022 below have in the mean.
OLD_CHIPS = ("v100", "p100")
OLD_EFFICIENCY = 0.66
EARLY = Software(tp_hidden=0.0, dp_hidden=False)  # Megatron-LM of 2021, 2104.04473


class Calibration(NamedTuple):
    """A group's system.

    Attributes:
        software: as calibrated.
        row: the entry that its efficiency was solved on; "": none.
        why: what is hidden, by which source.
    """

    software: Software
    row: str
    why: str


GROUPS: dict[str, Calibration] = {
    "megatron_sc21": Calibration(
        replace(EARLY, efficiency=0.9002), "megatron21_t1_529.6B_tflops", "nothing is overlapped, 2104.04473"
    ),
    "bloom_topology": Calibration(
        replace(EARLY, efficiency=0.6585), "jz_187B_dp4_pp10_mbs1_time", "Megatron-DeepSpeed of 2022 on Omni-Path"
    ),
    "mtnlg": Calibration(
        replace(EARLY, efficiency=0.6863), "mtnlg_350_itertime", "Megatron-DeepSpeed of 2021, 2201.11990"
    ),
    "megatron_vs_zero3": Calibration(
        Software(efficiency=0.649, net=0.1159),
        "megatron21_t2_zero3_529.6B_2240_tflops",
        "net: ZeRO-3 of 2021 gathers tensor by tensor; efficiency as deepspeed_azure's",
    ),
    "megatron_vs_zero3/ptdp": Calibration(EARLY, "", "as megatron_sc21, whose paper it is"),
    "deepspeed_azure": Calibration(Software(efficiency=0.649), "ds_azure_1t", "DeepSpeed of 2022, ZeRO-3 alone"),
    "megascale/megatron": Calibration(
        replace(EARLY, tp_hidden=0.25, efficiency=0.7222), "megascale_megatron_b768_768_tokens", "the paper's baseline"
    ),
    "megascale/megascale": Calibration(
        Software(tp_hidden=0.75, pp_hidden=0.75), "", "products and transfers overlap: 2402.15627, section 3.2"
    ),
    "llama3": Calibration(Software(efficiency=0.791), "llama3_t4_row1_tflops", "2407.21783, section 3.3.2"),
    "megatron_core_h100": Calibration(
        Software(tp_hidden=0.75, pp_hidden=0.75, efficiency=0.7861),
        "mcore_h100_16B_tflops",
        "communication of tp, pp and dp overlaps: its README",
    ),
    "recompute_throughput": Calibration(Software(efficiency=0.866), "korth_t5_22B_itertime_present", "2205.05198"),
    "torchtitan": Calibration(
        Software(efficiency=0.8126, streams=2.0), "titan_table3_fsdp_tps", "eager PyTorch, FSDP2"
    ),
    "torchtitan/compile": Calibration(Software(efficiency=0.8126), "", "torch.compile fuses what is no product"),
}


def software_for(entry: PublishedNumber, low_precision: bool = False) -> Software:
    """The system of an entry: its group's, or `Software()`; with products in 8 bits if it says so."""
    variants = [str(entry.inputs[key]) for key in ("system", "scheme") if key in entry.inputs]
    variants += ["compile"] * ("compile" in entry.words)
    known = next((GROUPS[f"{entry.group}/{name}"] for name in variants if f"{entry.group}/{name}" in GROUPS), None)
    known = known or GROUPS.get(entry.group)
    old = any(chip in str(entry.inputs.get("device", "")).lower() for chip in OLD_CHIPS)
    software = known.software if known else replace(EARLY, efficiency=OLD_EFFICIENCY) if old else Software()
    return replace(software, low_precision=low_precision)
